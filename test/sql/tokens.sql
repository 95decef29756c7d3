--
-- tokens: the start-up option lease.token.
--
-- A connection that was made with it acts under its epochs in every transaction.
-- Probes G4 and G10: only the start of the connection can set it, so that it cannot
-- leak to the next user of a pooled connection; a list that is malformed anywhere
-- validates nothing.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
RESET client_min_messages;

SELECT lease.create('t/a', ttl => '1 hour'), lease.create('t/b', ttl => '1 hour') \g /dev/null
SELECT epoch AS a FROM lease.acquire('t/a', 'x') \gset
SELECT epoch AS b FROM lease.acquire('t/b', 'x') \gset
CREATE TABLE table_a (x text);
CREATE TABLE table_b (x text);
CREATE TABLE free (x text);
SELECT lease.protect('table_a', 't/a', ddl => false), lease.protect('table_b', 't/b', ddl => false) \g /dev/null

-- connect is the conninfo of a connection with a token list.
\set connect 'options=''-c lease.token='

--
-- One token, several tokens
--

\set c :connect t/a= :a ''''
\c -reuse-previous=on :"c"
-- What is not protected does not need it.
INSERT INTO free VALUES ('one');
INSERT INTO table_a VALUES ('one');
INSERT INTO table_b VALUES ('one');

\set c :connect 't/a=' :a ',t/b=' :b ''''
\c -reuse-previous=on :"c"
INSERT INTO table_a VALUES ('two');
INSERT INTO table_b VALUES ('two');
BEGIN;
INSERT INTO table_a VALUES ('three');
INSERT INTO table_b VALUES ('three');
COMMIT;

-- Spaces are of no matter.
\set c :connect '\\\\ t/a\\\\ =\\\\ ' :a '\\\\ ,\\\\ t/b=' :b '\\\\ '''
\c -reuse-previous=on :"c"
SHOW lease.token \g /dev/null
INSERT INTO table_b VALUES ('four');

-- Each transaction is checked by itself: the grant ends, and so do the writes.
SELECT lease.release('t/b', :b);
INSERT INTO table_b VALUES ('five');
SELECT epoch AS b2 FROM lease.acquire('t/b', 'y') \gset
INSERT INTO table_b VALUES ('five');

-- A guard that the transaction declares itself comes first: the token is not looked at.
BEGIN;
SELECT lease.guard('t/b', :b2);
INSERT INTO table_b VALUES ('six');
COMMIT;

SELECT * FROM table_a ORDER BY x;
SELECT * FROM table_b ORDER BY x;

-- To read, the token need not be valid.
\set c :connect 't/a=1000000000000000'''
\c -reuse-previous=on :"c"
SELECT count(*) FROM table_a;
INSERT INTO table_a VALUES ('seven');

--
-- Nothing but the start of the connection sets it
--

-- In a session that has loaded the library.
\set c :connect 't/b=' :b2 ''''
\c -reuse-previous=on :"c"
SELECT lease.holds('t/b', :b2);
SELECT context, source, setting = 't/b=' || :b2 AS as_connected FROM pg_settings WHERE name = 'lease.token';
SET lease.token = '';
SET lease.token = 't/a=1';
SET LOCAL lease.token = '';
SET SESSION lease.token = DEFAULT;
SELECT set_config('lease.token', '', false);
SELECT set_config('lease.token', 't/a=1', true);
UPDATE pg_settings SET setting = '' WHERE name = 'lease.token';
RESET lease.token;
RESET ALL;
DISCARD ALL;
CREATE FUNCTION with_token() RETURNS void LANGUAGE sql SET lease.token = 't/a=1' AS '';
SELECT format('ALTER DATABASE %I SET lease.token = %L', current_database(), 't/a=1') AS alter_database \gset
SELECT format('ALTER DATABASE %I RESET lease.token', current_database()) AS alter_database_reset \gset
:alter_database;
ALTER SYSTEM SET lease.token = 't/a=1';
SELECT current_setting('lease.token') = 't/b=' || :b2 AS unchanged;
INSERT INTO table_b VALUES ('eight');

-- Also in one that has not loaded it yet.  There PostgreSQL does not know the
-- setting and lets it be set, until the library is loaded at the first write to a
-- protected table: then what was set is dropped, with a warning.
\c -reuse-previous=on "options=''"
SELECT 't/a=' || :a AS token \gset
SET lease.token = :'token';
INSERT INTO table_a VALUES ('smuggled');
SHOW lease.token;
SET lease.token = :'token';

\c -reuse-previous=on "options=''"
BEGIN;
SET LOCAL lease.token = :'token';
INSERT INTO table_a VALUES ('smuggled');
ROLLBACK;
INSERT INTO table_a VALUES ('smuggled');

\c -reuse-previous=on "options=''"
SELECT set_config('lease.token', :'token', false) <> '' AS set;
SELECT lease.holds('t/a', :a);
INSERT INTO table_a VALUES ('smuggled');

-- A function that brings its own: DDL knows the setting, also in a fresh session.
\c -reuse-previous=on "options=''"
SELECT format('CREATE FUNCTION smuggle() RETURNS void LANGUAGE sql SET lease.token = %L AS $$INSERT INTO table_a VALUES (''smuggled'')$$', :'token') AS create_function \gset
:create_function;

-- A setting of the database or of the role.
\c -reuse-previous=on "options=''"
SELECT format('ALTER DATABASE %I SET lease.token = %L', current_database(), :'token') AS alter_database \gset
:alter_database;
\c -reuse-previous=on "options=''"
INSERT INTO table_a VALUES ('smuggled');
\c -reuse-previous=on "options=''"
:alter_database_reset;

-- What was set instead of the value at the start of the connection has no effect
-- either: that value is back.
\set c :connect 't/b=' :b2 ''''
\c -reuse-previous=on :"c"
SET lease.token = :'token';
INSERT INTO table_a VALUES ('smuggled');
INSERT INTO table_b VALUES ('nine');
\c -reuse-previous=on :"c"
SET lease.token = '';
RESET lease.token;
INSERT INTO table_b VALUES ('ten');
\c -reuse-previous=on :"c"
SET lease.token = '';
DISCARD ALL;
INSERT INTO table_b VALUES ('eleven');
\c -reuse-previous=on :"c"
BEGIN;
SET lease.token = :'token';
SAVEPOINT s;
SET LOCAL lease.token = '';
INSERT INTO table_b VALUES ('undone');
ROLLBACK TO s;
INSERT INTO table_b VALUES ('undone');
ROLLBACK;
INSERT INTO table_b VALUES ('twelve');
INSERT INTO table_a VALUES ('smuggled');
SELECT current_setting('lease.token') = 't/b=' || :b2 AS as_connected;

SELECT count(*) FROM table_a WHERE x = 'smuggled';

-- A misspelled setting is no token, and is reported when the library is loaded.
\set c 'options=''-c lease.tokens=t/a=' :a ''''
\c -reuse-previous=on :"c"
INSERT INTO table_a VALUES ('misspelled');

--
-- Malformed lists validate nothing, not even the part that could be understood
--

\set good t/a= :a
\c -reuse-previous=on "options='-c lease.token='"
INSERT INTO table_a VALUES ('empty list');
\c -reuse-previous=on "options='-c lease.token=\\\\ '"
INSERT INTO table_a VALUES ('a space');
\c -reuse-previous=on "options='-c lease.token=t/a'"
INSERT INTO table_a VALUES ('no epoch');
\c -reuse-previous=on "options='-c lease.token=t/a='"
INSERT INTO table_a VALUES ('empty epoch');
\c -reuse-previous=on "options='-c lease.token=t/a=0'"
INSERT INTO table_a VALUES ('zero');
\c -reuse-previous=on "options='-c lease.token=t/a=-1'"
INSERT INTO table_a VALUES ('negative');
\c -reuse-previous=on "options='-c lease.token=t/a=abc'"
INSERT INTO table_a VALUES ('text');
\set c :connect 't/a=+' :a ''''
\c -reuse-previous=on :"c"
INSERT INTO table_a VALUES ('a sign');
\set c :connect :good '.0'''
\c -reuse-previous=on :"c"
INSERT INTO table_a VALUES ('a fraction');
\set c :connect :good 'x'''
\c -reuse-previous=on :"c"
INSERT INTO table_a VALUES ('followed by a letter');
\c -reuse-previous=on "options='-c lease.token=t/a=9223372036854775808'"
INSERT INTO table_a VALUES ('too large');
\c -reuse-previous=on "options='-c lease.token=t/a=99999999999999999999999999999999999999999999999'"
INSERT INTO table_a VALUES ('far too large');
\set c :connect :good ','''
\c -reuse-previous=on :"c"
INSERT INTO table_a VALUES ('comma at the end');
\set c :connect ',' :good ''''
\c -reuse-previous=on :"c"
INSERT INTO table_a VALUES ('comma at the beginning');
\set c :connect :good ',,t/b=1'''
\c -reuse-previous=on :"c"
INSERT INTO table_a VALUES ('two commas');
\set c :connect :good ',' :good ''''
\c -reuse-previous=on :"c"
INSERT INTO table_a VALUES ('twice');
\set c :connect :good ',t/a=1'''
\c -reuse-previous=on :"c"
INSERT INTO table_a VALUES ('twice, differently');
\set c :connect :good ',t/b'''
\c -reuse-previous=on :"c"
INSERT INTO table_a VALUES ('the rest is cut off');
\set c :connect :good ',t/b=1;t/c=2'''
\c -reuse-previous=on :"c"
INSERT INTO table_a VALUES ('a semicolon');
\set c :connect :good '\\\\ t/b=1'''
\c -reuse-previous=on :"c"
INSERT INTO table_a VALUES ('a space between');
\set c :connect :good ',=1'''
\c -reuse-previous=on :"c"
INSERT INTO table_a VALUES ('no name');
\set c :connect :good ',-bad=1'''
\c -reuse-previous=on :"c"
INSERT INTO table_a VALUES ('no name of a lease');
-- In such a connection lease.guard() still works.
BEGIN;
SELECT lease.guard('t/a', :a);
INSERT INTO table_a VALUES ('guarded');
COMMIT;

-- A list without this lease is no token for it; names are compared exactly.
\c -reuse-previous=on "options='-c lease.token=t/b=1'"
INSERT INTO table_a VALUES ('another lease');
\set c :connect 'T/A=' :a ',t/a/=' :a ',t=' :a ''''
\c -reuse-previous=on :"c"
INSERT INTO table_a VALUES ('other names');

--
-- Tokens are those of the session user, who made the connection
--

\set c :connect :good ''''
\c -reuse-previous=on :"c"
CREATE ROLE regress_token_member;
CREATE ROLE regress_token_stranger;
GRANT INSERT, SELECT ON table_a TO regress_token_member, regress_token_stranger;
SELECT lease.alter('t/a', role => 'regress_token_member');

-- The member connected.
SET SESSION AUTHORIZATION regress_token_member;
INSERT INTO table_a VALUES ('member');
RESET SESSION AUTHORIZATION;

-- Somebody else connected, with the member's token.
SET SESSION AUTHORIZATION regress_token_stranger;
INSERT INTO table_a VALUES ('stranger');
RESET SESSION AUTHORIZATION;

-- Here a superuser connected, and acts as another role for a while: it is still the
-- connection's token.
SET ROLE regress_token_stranger;
INSERT INTO table_a VALUES ('superuser in disguise');
RESET ROLE;

-- A SECURITY DEFINER function does not make the connection's token better.
CREATE FUNCTION insert_as_owner(x text) RETURNS void LANGUAGE sql SECURITY DEFINER AS 'INSERT INTO table_a VALUES (x)';
SET SESSION AUTHORIZATION regress_token_stranger;
SELECT insert_as_owner('through a function');
RESET SESSION AUTHORIZATION;

-- But a guard in it is its owner's: who writes such a function lends its authority.
CREATE FUNCTION insert_guarded(x text, epoch bigint) RETURNS void LANGUAGE sql SECURITY DEFINER AS
	'SELECT lease.guard(''t/a'', epoch); INSERT INTO table_a VALUES (x)';
SET SESSION AUTHORIZATION regress_token_stranger;
SELECT insert_guarded('through a guarded function', :a);
RESET SESSION AUTHORIZATION;

SELECT * FROM table_a ORDER BY x COLLATE "C";
DROP FUNCTION insert_as_owner, insert_guarded;
DROP TABLE table_a, table_b, free;
DROP ROLE regress_token_member, regress_token_stranger;
SELECT lease.drop('t/a', force => true), lease.drop('t/b', force => true) \g /dev/null
