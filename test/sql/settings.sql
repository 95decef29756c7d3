--
-- settings: create, alter and drop leases; their names; lease.auto_create; metadata.
--
-- Probes section 5.1 of the contract, and of G10 that a typing error makes no lease.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
RESET client_min_messages;

CREATE VIEW settings AS
	SELECT name, role = current_user::regrole AS own, state, ttl, grace, min_hold, late_commit
		FROM lease.status ORDER BY name COLLATE "C";

--
-- Create
--

-- The defaults, and all settings by name.
SELECT lease.create('plain'),
		lease.create('fancy', ttl => '90 s', grace => '1 day 2 h', min_hold => '0.5 s',
			role => 'pg_monitor', late_commit => true);
SELECT * FROM settings;

-- Once only; the settings of the first remain.
SELECT lease.create('plain', ttl => '1 s');
SELECT * FROM settings WHERE name = 'plain';

-- A lease that was created in a transaction that rolled back does not exist.
BEGIN;
SELECT lease.create('undone');
SELECT outcome FROM lease.acquire('undone', 'a');
ROLLBACK;
SELECT lease.acquire('undone', 'a');

-- The same in a savepoint, and then once more.
BEGIN;
SAVEPOINT s;
SELECT lease.create('undone');
ROLLBACK TO s;
SELECT lease.create('undone', ttl => '1 min');
COMMIT;
SELECT * FROM settings WHERE name = 'undone';

--
-- Alter: null leaves a setting as it is
--

SELECT lease.alter('plain');
SELECT * FROM settings WHERE name = 'plain';
SELECT lease.alter('plain', ttl => '1 min');
SELECT lease.alter('plain', grace => '2 min');
SELECT lease.alter('plain', min_hold => '3 min');
SELECT lease.alter('plain', late_commit => true);
SELECT lease.alter('plain', role => 'pg_monitor');
SELECT * FROM settings WHERE name = 'plain';
SELECT lease.alter('plain', '30 s', '0', '0', current_user::regrole, false);
SELECT * FROM settings WHERE name = 'plain';
SELECT lease.alter('plane', ttl => '1 min');

-- A live grant stays live, with its epoch, and its holder notices nothing.
SELECT epoch FROM lease.acquire('plain', 'a', metadata => '{"port": 1}') \gset
SELECT lease.alter('plain', '1 ms', '1 h', '1 h', 'pg_monitor', true);
SELECT lease.holds('plain', :epoch), lease.remaining('plain', :epoch) > '20 s' AS remaining;
SELECT state, holder, epoch = :epoch AS same_epoch, metadata FROM lease.status WHERE name = 'plain';

-- Grace and min_hold are those of the moment: the lease was released, so that
-- min_hold is what counts now.
SELECT lease.release('plain', :epoch);
SELECT outcome FROM lease.acquire('plain', 'b');
SELECT lease.alter('plain', '30 s', '0', '0', current_user::regrole, false);
SELECT outcome, epoch FROM lease.acquire('plain', 'b') \gset
\echo :outcome

-- What cannot be is an error, and nothing has changed.
SELECT lease.alter('plain', ttl => '0');
SELECT lease.alter('plain', ttl => '1 min', grace => '-1 s');
SELECT lease.alter('plain', ttl => '1 min', role => 4294967295::oid::regrole);
SELECT * FROM settings WHERE name = 'plain';

--
-- Drop
--

-- Not while it is held,
SELECT lease.drop('plain');
-- nor while a table is protected by it,
CREATE TABLE guarded (x int);
SELECT lease.protect('guarded', 'undone', ddl => false);
SELECT lease.drop('undone');
-- unless forced: then nobody can write to the table.
SELECT lease.drop('undone', force => true);
INSERT INTO guarded VALUES (1);
SELECT lease.guard('undone', 1);
-- A lease of that name makes it writable again, under a grant of its own.
SELECT lease.create('undone');
BEGIN;
SELECT epoch AS undone FROM lease.acquire('undone', 'a') \gset
SELECT lease.guard('undone', :undone);
INSERT INTO guarded VALUES (2);
COMMIT;
SELECT * FROM guarded;
SELECT lease.release('undone', :undone);
SELECT lease.drop('undone');
SELECT lease.unprotect('guarded');
SELECT lease.drop('undone');
SELECT lease.drop('undone');
DROP TABLE guarded;

-- A grant that is over does not keep it, also where nobody else may acquire yet.
SELECT lease.create('over', grace => '1 h');
SELECT epoch FROM lease.acquire('over', 'a') \gset over_
SET lease.clock_offset = '60 s';
SELECT lease.drop('over');
RESET lease.clock_offset;

-- Forced: the holder has lost it.
SELECT lease.drop('plain', force => true);
SELECT lease.holds('plain', :epoch), lease.release('plain', :epoch);
SELECT lease.renew('plain', :epoch);

-- A drop that rolls back has not happened.
SELECT lease.create('plain');
SELECT epoch FROM lease.acquire('plain', 'a') \gset
BEGIN;
SELECT lease.drop('plain', force => true);
SELECT lease.holds('plain', :epoch);
ROLLBACK;
SELECT lease.holds('plain', :epoch);

-- Drop and create anew in one transaction: the same name, but nobody's grant.
BEGIN;
SELECT lease.drop('plain', force => true);
SELECT lease.create('plain', ttl => '1 min');
SELECT lease.holds('plain', :epoch);
SELECT outcome, epoch > :epoch AS greater FROM lease.acquire('plain', 'b');
COMMIT;
SELECT lease.holds('plain', :epoch);
SELECT * FROM settings WHERE name = 'plain';
SELECT lease.drop('plain', force => true), lease.drop('fancy');

--
-- Names: [A-Za-z0-9_][A-Za-z0-9_.:/-]{0,126}
--

CREATE FUNCTION pg_temp.try_name(name text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM lease.create(name);
	PERFORM lease.drop(name);
	RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
	RETURN sqlstate;
END;
$$;
SELECT i, CASE WHEN length(name) > 20 THEN length(name) || ' times ' || left(name, 1)
			ELSE '"' || regexp_replace(name, '[^ -~]', '?', 'g') || '"' END AS name,
		pg_temp.try_name(name)
	FROM unnest(ARRAY['a', 'Z', '0', '_', 'a.b:c/d-e_f', '0-', '_.', repeat('x', 127),
		'', ' ', 'a b', ' a', 'a ', '.a', ':a', '/a', '-a', repeat('x', 128), repeat('x', 10000),
		'a,b', 'a=1', 'a''b', 'a"b', 'a\b', 'a;b', 'a%b', 'a$', 'a*', 'a@b', 'a+b',
		E'a\tb', E'a\nb', E'a\n', E'\x01', E'a\x7f', chr(233), 'a' || chr(160) || 'b', NULL]) WITH ORDINALITY AS n(name, i)
	ORDER BY i;

-- They are case-sensitive, and are compared byte by byte.
SELECT lease.create('Case'), lease.create('case');
SELECT name FROM settings;
SELECT lease.drop('Case'), lease.drop('case');

--
-- lease.auto_create: acquire creates what does not exist
--

SHOW lease.auto_create;
SELECT lease.acquire('made', 'a');
SET lease.auto_create = on;
-- With default settings, for the current user.
SELECT outcome, epoch FROM lease.acquire('made', 'a') \gset made_
\echo :made_outcome
SELECT * FROM settings;
SELECT lease.holds('made', :made_epoch);

-- Only acquire and acquire_many do, and only for what can be a name.
SELECT name, outcome FROM lease.acquire_many('{made,made2,made3}', 'a', '1 min');
SELECT lease.acquire('not a name', 'a');
SELECT lease.acquire(NULL, 'a');
SELECT lease.renew('other', 1);
SELECT lease.guard('other', 1);
SELECT lease.alter('other', ttl => '1 min');
SELECT lease.revoke('other');
SELECT lease.drop('other');
SELECT lease.release('other', 1), lease.holds('other', 1);
SELECT * FROM settings;

-- One that exists is acquired as ever, or not.
SELECT outcome FROM lease.acquire('made', 'b');
-- What an acquire that fails had created is undone with it.
SELECT lease.acquire('failed', 'a', '1 month');
SELECT lease.acquire('failed', '');
RESET lease.auto_create;
SELECT * FROM settings;
SELECT lease.drop(name, force => true) FROM settings \g /dev/null

--
-- Metadata: what the holder says about itself
--

SELECT lease.create('meta');
SELECT epoch FROM lease.acquire('meta', 'a', metadata => '{"host": "a", "pid": 1}') \gset
SELECT metadata FROM lease.status WHERE name = 'meta';
-- A renewal keeps it; a release does, too, until the next grant.
SELECT outcome FROM lease.renew('meta', :epoch);
SELECT metadata FROM lease.status WHERE name = 'meta';
SELECT lease.release('meta', :epoch);
SELECT metadata FROM lease.status WHERE name = 'meta';
SELECT epoch FROM lease.acquire('meta', 'b') \gset
SELECT metadata IS NULL AS gone FROM lease.status WHERE name = 'meta';
SELECT lease.release('meta', :epoch);
-- A json null is a value.
SELECT epoch FROM lease.acquire('meta', 'b', metadata => 'null') \gset
SELECT metadata FROM lease.status WHERE name = 'meta';
SELECT lease.release('meta', :epoch);

-- At most 1024 bytes as stored, because each renewal writes it again.  What fits is
-- kept through renewals, also when everything else is as long as it may be.
SELECT lease.acquire('meta', 'a', metadata => to_jsonb(repeat('x', 1017)));
SELECT pg_column_size(to_jsonb(repeat('x', 1016))) - 4 AS bytes;
SELECT lease.create(repeat('n', 127));
SELECT epoch FROM lease.acquire(repeat('n', 127), repeat('s', 255)) \gset
SELECT lease.release(repeat('n', 127), :epoch, repeat('h', 255));
SELECT outcome, epoch FROM lease.acquire(repeat('n', 127), repeat('h', 255), metadata => to_jsonb((SELECT string_agg(chr(33 + i * 7919 % 57), '') FROM generate_series(1, 1016) i))) \gset
\echo :outcome
SELECT outcome, count(*)
	FROM (SELECT (lease.renew(repeat('n', 127), :epoch)).outcome FROM generate_series(1, 50)) AS r GROUP BY outcome;
SELECT length(metadata #>> '{}') AS metadata, length(holder) AS holder, state FROM lease.status WHERE length(name) = 127;
SELECT lease.revoke(repeat('n', 127), repeat('r', 255)) = :epoch AS revoked;
SELECT length(reason) AS reason, length(metadata #>> '{}') AS metadata FROM lease.status WHERE length(name) = 127;

SELECT lease.drop(name, force => true) FROM settings \g /dev/null
DROP VIEW settings;
