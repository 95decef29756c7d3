--
-- messages: what the errors say.
--
-- Each names the lease, the epoch that was expected and the one that is, the holder and
-- the times, and says what to do next (section 5.6 of the contract).
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
RESET client_min_messages;

SELECT lease.create('m', ttl => '1 hour'), lease.create('m/new'), lease.raise_floor(1000000) \g /dev/null
SELECT epoch FROM lease.acquire('m', 'host-a/100') \gset
CREATE TABLE guarded (x int);
SELECT lease.protect('guarded', 'm', ddl => false);
CREATE TABLE stamped (epoch bigint);
INSERT INTO stamped VALUES (9000000000000000000);
SELECT lease.protect('stamped', 'm', epoch_column => 'epoch', ddl => false);
CREATE TABLE named (l text);
SELECT lease.protect('named', 'm', lease_column => 'l', ddl => false);
CREATE TABLE parted (id int) PARTITION BY LIST (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1);
SELECT lease.protect('parted', 'm');

-- complain shows the error of a command, with epochs, times and durations replaced.
CREATE FUNCTION complain(sql text, epoch bigint DEFAULT NULL, later bigint DEFAULT NULL)
	RETURNS TABLE (field text, value text) LANGUAGE plpgsql AS $$
DECLARE
	state text;
	message text;
	detail text;
	hint text;
	context text;
	table_name text;
	schema_name text;
BEGIN
	BEGIN
		EXECUTE sql;
		RETURN;
	EXCEPTION WHEN OTHERS THEN
		GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT,
			context = PG_EXCEPTION_CONTEXT, table_name = TABLE_NAME, schema_name = SCHEMA_NAME;
	END;
	-- Only what the extension adds to the context.
	context := substring(context FROM '((write to|change of) table [^\n]*)');
	FOR field, value IN
		SELECT * FROM (VALUES ('sqlstate', state), ('message', message), ('detail', detail), ('hint', hint),
			('context', context), ('table', nullif(concat_ws('.', nullif(schema_name, ''), nullif(table_name, '')), ''))) AS v(f, v)
		WHERE v <> ''
	LOOP
		value := regexp_replace(value, '\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?[+-][\d:]+', '<time>', 'g');
		value := regexp_replace(value, '\m\d+\.\d{3} s', '<n> s', 'g');
		value := replace(value, coalesce(epoch::text, '?'), '<epoch>');
		value := replace(value, coalesce(later::text, '?'), '<later>');
		RETURN NEXT;
	END LOOP;
END;
$$;

\pset format unaligned
\pset tuples_only
\pset fieldsep ': '

-- LS004, no token
SELECT * FROM complain('INSERT INTO guarded VALUES (1)');
SELECT * FROM complain('TRUNCATE guarded');

-- LS005, no such lease
SELECT * FROM complain($$SELECT lease.acquire('none', 'a')$$);
SELECT * FROM complain($$SELECT lease.guard('none', 1)$$);
SELECT * FROM complain($$SELECT lease.protect('guarded', 'none', ddl => false)$$);

-- LS002, expired
SET lease.clock_offset = '3600 s';
SELECT * FROM complain(format('SELECT lease.guard(%L, %s)', 'm', :epoch), :epoch);
RESET lease.clock_offset;

-- LS001, superseded
SELECT lease.release('m', :epoch) \g /dev/null
SELECT epoch AS later FROM lease.acquire('m', 'host-b/200') \gset
SELECT * FROM complain(format('SELECT lease.guard(%L, %s)', 'm', :epoch), :epoch, :later);

-- The same of a write whose row carries the token
SELECT * FROM complain(format('INSERT INTO stamped VALUES (%s)', :epoch), :epoch, :later);
SELECT * FROM complain($$INSERT INTO stamped VALUES (0)$$);
SELECT * FROM complain(format('INSERT INTO stamped VALUES (NULL)'), :epoch, :later);

-- A row of a later epoch, and one that has been tampered with
SELECT * FROM complain(format('SELECT lease.guard(%L, %s); DELETE FROM stamped WHERE epoch = 9000000000000000000', 'm', :later), :epoch, :later);
SELECT * FROM complain(format('ALTER TABLE stamped DISABLE TRIGGER lease_stamp; SELECT lease.guard(%L, %s); INSERT INTO stamped VALUES (NULL)', 'm', :later), :epoch, :later);
SELECT * FROM complain(format('ALTER TABLE stamped DISABLE TRIGGER lease_stamp; SELECT lease.guard(%L, %s); INSERT INTO stamped VALUES (%s)', 'm', :later, :epoch), :epoch, :later);
SELECT * FROM complain($$INSERT INTO named VALUES (NULL)$$);
SELECT * FROM complain($$INSERT INTO named VALUES ('not a name')$$);
SELECT * FROM complain($$ALTER TABLE stamped RENAME epoch TO token; INSERT INTO stamped VALUES (1)$$);

-- DDL
SELECT * FROM complain($$DROP TABLE parted$$, :epoch, :later);
SELECT * FROM complain($$ALTER TABLE parted DETACH PARTITION parted_1$$, :epoch, :later);
SELECT * FROM complain($$SELECT lease.unprotect('parted')$$, :epoch, :later);
SELECT * FROM complain($$CREATE TABLE child () INHERITS (stamped, named)$$);
SELECT * FROM complain($$CREATE TABLE child (l text); SELECT lease.protect('child', 'm/new'); ALTER TABLE child INHERIT named$$);

-- LS003, not held: released, revoked for a reason and for none, never granted
SELECT lease.release('m', :later) \g /dev/null
SELECT * FROM complain(format('SELECT lease.guard(%L, %s)', 'm', :later), :later);
SELECT epoch AS later FROM lease.acquire('m', 'host-b/200') \gset
SELECT lease.revoke('m', 'host-b is to be shut down') \g /dev/null
SELECT * FROM complain(format('SELECT lease.guard(%L, %s)', 'm', :later), :later);
SELECT epoch AS later FROM lease.acquire('m', 'host-b/200') \gset
SELECT lease.revoke('m') \g /dev/null
SELECT * FROM complain(format('SELECT lease.guard(%L, %s)', 'm', :later), :later);
SELECT * FROM complain(format('SELECT lease.guard(%L, %s)', 'm', :later + 1), :later + 1, :later);
SELECT * FROM complain($$SELECT lease.guard('m/new', 9223372036854775807)$$);

-- At COMMIT the error is the same; its context says that it is COMMIT that was refused.
\pset format aligned
\pset tuples_only off
SELECT epoch FROM lease.acquire('m', 'host-c/300') \gset
\set VERBOSITY sqlstate
BEGIN;
SELECT lease.guard('m', :epoch);
SELECT lease.revoke('m') = :epoch AS revoked;
COMMIT;
SELECT replace(:'LAST_ERROR_MESSAGE', :'epoch', '<epoch>') AS message;
\set VERBOSITY default
\pset format unaligned
\pset tuples_only

-- Setting up
SELECT * FROM complain($$SELECT lease.create('m')$$);
SELECT * FROM complain($$SELECT lease.drop('m')$$, :epoch);
SELECT lease.revoke('m') \g /dev/null
SELECT * FROM complain($$SELECT lease.drop('m')$$);
SELECT * FROM complain($$SELECT lease.protect('guarded', 'm/new', ddl => false)$$);
SELECT * FROM complain($$SELECT lease.unprotect('pg_class')$$);
SELECT * FROM complain($$SELECT lease.create('not a name')$$);
SELECT * FROM complain($$SELECT lease.create('m/2', ttl => '1 month')$$);
SELECT * FROM complain($$SELECT lease.create('m/2', ttl => '-1 s')$$);
SELECT * FROM complain($$SELECT lease.create('m/2', grace => '-1 s')$$);
SELECT * FROM complain($$SELECT lease.create('m/2', ttl => '200 years'::interval - '200 years' + '73050 days')$$);

-- Acting
SELECT * FROM complain($$SELECT lease.guard('m', 0)$$);
SELECT * FROM complain($$SELECT lease.acquire('m', 'a', metadata => to_jsonb(repeat('x', 2000)))$$);
SELECT * FROM complain($$SELECT lease.release('m', 1, reserve => '1 min')$$);
SELECT * FROM complain($$SELECT lease.acquire_many((SELECT array_agg('x' || i) FROM generate_series(1, 1001) i), 'a')$$);
SELECT * FROM complain($$DO 'BEGIN WHILE clock_timestamp() < now() + interval ''20 ms'' LOOP PERFORM pg_sleep(0.005); END LOOP; PERFORM lease.acquire(''m/new'', ''a'', ''10 ms''); END'$$);
BEGIN READ ONLY;
SELECT * FROM complain($$SELECT lease.acquire('m', 'a')$$);
COMMIT;

-- Privileges
CREATE ROLE regress_messages;
CREATE ROLE regress_messages_team;
SELECT lease.allow('regress_messages'), lease.alter('m', role => 'regress_messages_team') \g /dev/null
SET ROLE regress_messages;
SELECT * FROM complain($$SELECT lease.acquire('m', 'a')$$);
RESET ROLE;
SELECT lease.disallow('regress_messages') \g /dev/null
DROP ROLE regress_messages, regress_messages_team;
SELECT * FROM complain($$SELECT lease.acquire('m', 'a')$$);

-- LS008, it was decided, or settled, otherwise, or stands elsewhere
SET datestyle = 'ISO';
SELECT lease.alter('m', role => current_user::regrole) \g /dev/null
SELECT epoch FROM lease.acquire('m', 'host-c/300') \gset
SELECT lease.decide('m', :epoch, 'node 7', 'drain', '{"why": "disk"}') \g /dev/null
SELECT lease.open_attempt('m', :epoch, 'backup') \g /dev/null
SELECT lease.settle_attempt('m', :epoch, 2, 'aborted', '"disk"') \g /dev/null
SELECT lease.declare_destructive('m', :epoch, 'rows', 'delete') \g /dev/null
SELECT lease.advance_cursor('m', :epoch, 'rows', NULL, NULL, '10', 'delete') \g /dev/null
SELECT * FROM complain(format($$SELECT lease.decide('m', %s, 'node 7', 'keep', strict => true)$$, :epoch), :epoch);
SELECT * FROM complain(format($$SELECT lease.settle_attempt('m', %s, 2, 'committed', strict => true)$$, :epoch), :epoch);
SELECT * FROM complain(format($$SELECT lease.advance_cursor('m', %s, 'rows', '20', 'delete', '30', 'delete', strict => true)$$, :epoch), :epoch);
SELECT * FROM complain(format($$SELECT lease.advance_cursor('m', %s, 'none', '20', 'delete', '30', 'delete', strict => true)$$, :epoch), :epoch);
SELECT lease.release('m', :epoch) \g /dev/null
SELECT epoch AS later FROM lease.acquire('m', 'host-d/400') \gset
SELECT * FROM complain(format($$SELECT lease.advance_cursor('m', %s, 'rows', '10', 'delete', '10', 'done', strict => true)$$, :later), :epoch, :later);

-- Records
SELECT * FROM complain(format($$SELECT lease.record_decision('m', %s, 'node 7', 'keep', NULL, NULL, NULL, NULL)$$, :later));
SELECT * FROM complain(format($$SELECT lease.decide('m', %s, 'node 8', 'keep', to_jsonb(repeat('x', 10000)))$$, :later));
SELECT * FROM complain(format($$SELECT lease.settle_attempt('m', %s, 1, 'aborted')$$, :later));
SELECT * FROM complain(format($$SELECT lease.advance_cursor('m', %s, 'rows', '10', 'delete', '10', 'delete')$$, :later));
SELECT * FROM complain($$UPDATE lease.record SET verdict = 'keep'$$);
SELECT attempt FROM lease.open_attempt('m', :later, 'short') \gset
SELECT lease.settle_attempt('m', :later, :attempt, 'committed', keep => '0') \g /dev/null
SELECT lease.compact('m', :later, before => 1000) \g /dev/null
SELECT * FROM complain(format($$SELECT lease.settle_attempt('m', %s, %s, 'aborted')$$, :later, :attempt));
SELECT * FROM complain(format($$SELECT lease.settle_attempt('m', %s, 1, 'aborted')$$, :later));

-- Floors and pins
SELECT lease.advance_floor('m', :later, 'm/floor', 100) \g /dev/null
SELECT lease.pin('m/floor', 150, 'reader', '1 h') \g /dev/null
SELECT epoch AS other FROM lease.acquire('m/new', 'host-c/300') \gset
SELECT * FROM complain(format($$SELECT lease.advance_floor('m/new', %s, 'm/floor', 200)$$, :other));
SELECT lease.release('m/new', :other) \g /dev/null
SELECT * FROM complain(format($$SELECT lease.advance_floor('m', %s, 'm#records', 200)$$, :later));
SELECT * FROM complain(format($$SELECT lease.advance_floor('m', %s, 'm floor', 200)$$, :later));
SELECT * FROM complain($$SELECT lease.pin('m/none', 200, 'reader')$$);
SELECT * FROM complain($$DO 'BEGIN WHILE clock_timestamp() < now() + interval ''20 ms'' LOOP PERFORM pg_sleep(0.005); END LOOP; PERFORM lease.pin(''m/floor'', 200, ''reader'', ''10 ms''); END'$$);
CREATE ROLE regress_messages;
UPDATE lease.floor_pin SET role = 'regress_messages';
CREATE ROLE regress_messages_team;
SELECT lease.allow('regress_messages_team') \g /dev/null
SET ROLE regress_messages_team;
SELECT * FROM complain($$SELECT lease.renew_pin('m/floor', 'reader')$$);
RESET ROLE;
SELECT lease.disallow('regress_messages_team') \g /dev/null
DROP ROLE regress_messages, regress_messages_team;
SELECT lease.release('m', :later) \g /dev/null

-- The connection's tokens
SELECT epoch FROM lease.acquire('m', 'host-c/300') \gset
\c -reuse-previous=on "options='-c lease.token=m=17,'"
SELECT * FROM complain('INSERT INTO guarded VALUES (1)');
\c -reuse-previous=on "options='-c lease.token=m=9223372036854775807'"
SELECT * FROM complain('INSERT INTO guarded VALUES (1)', :epoch);

-- LS007, exhausted
SELECT last_value AS before FROM lease.epoch \gset
SELECT setval('lease.epoch', 9223372036854775807) \g /dev/null
SELECT * FROM complain($$SELECT lease.acquire('m/new', 'a')$$);
SELECT setval('lease.epoch', :before) \g /dev/null

\pset format aligned
\pset tuples_only off

-- A guard that guards nothing: a warning. So is a step of the wall clock; it has a
-- number that cannot be shown.
SELECT lease.guard('m', :epoch);

BEGIN;
SELECT lease.guard('m', :epoch) \g /dev/null
DROP TABLE guarded, stamped, named, parted;
COMMIT;
DROP FUNCTION complain;
SELECT lease.drop('m', force => true), lease.drop('m/new') \g /dev/null
-- Records and floors stay; the doctor of a later test would find them.
SET client_min_messages = warning;
DROP EXTENSION lease;
CREATE EXTENSION lease;
