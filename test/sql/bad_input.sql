--
-- bad_input: every argument of every function, wrong in every way.
--
-- Each gives a clear error, or the answer "no", and changes nothing.  Probes G10: what is
-- missing, empty, malformed, unknown or out of range is never a token.
--
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
RESET client_min_messages;

-- A lease that is held, one that is free, a table, and a fence.
SELECT lease.create('bad', ttl => '1 hour'), lease.create('bad/free'), lease.raise_floor(1000) > 0 AS raised \g /dev/null
SELECT epoch FROM lease.acquire('bad', 'a') \gset
CREATE TABLE plain_table (x int);
CREATE TABLE fenced_table (x int);
SELECT lease.protect('fenced_table', 'bad');

-- Everything that could change.
CREATE VIEW everything AS
	SELECT md5(concat((SELECT string_agg(concat(ctid, xmin, l), ',' ORDER BY name) FROM lease.lease l),
			(SELECT concat(last_value, is_called) FROM lease.epoch),
			(SELECT string_agg(concat(oid, tgenabled, tgrelid), ',' ORDER BY oid) FROM pg_trigger),
			(SELECT string_agg(proacl::text, ',' ORDER BY oid) FROM pg_proc WHERE pronamespace = 'lease'::regnamespace))) AS everything;

--
-- The functions, with arguments that are right
--

CREATE TABLE argument (function text, n int, name text, kind text, good text);
INSERT INTO argument VALUES
	('create', 1, 'name', 'new name', $$'bad/new'$$),
	('create', 2, 'ttl', 'setting', $$'30 s'$$),
	('create', 3, 'grace', 'setting or zero', $$'0'$$),
	('create', 4, 'min_hold', 'setting or zero', $$'0'$$),
	('create', 5, 'role', 'role', $$NULL$$),
	('create', 6, 'late_commit', 'flag', $$false$$),
	('alter', 1, 'name', 'name', $$'bad'$$),
	('alter', 2, 'ttl', 'interval', $$NULL$$),
	('alter', 3, 'grace', 'interval or zero', $$NULL$$),
	('alter', 4, 'min_hold', 'interval or zero', $$NULL$$),
	('alter', 5, 'role', 'role', $$NULL$$),
	('drop', 1, 'name', 'name', $$'bad/free'$$),
	('drop', 2, 'force', 'flag', $$false$$),
	('acquire', 1, 'name', 'name', $$'bad/free'$$),
	('acquire', 2, 'holder', 'holder', $$'a'$$),
	('acquire', 3, 'ttl', 'interval', $$NULL$$),
	('acquire', 4, 'reclaim', 'flag', $$false$$),
	('acquire', 5, 'metadata', 'metadata', $$NULL$$),
	('acquire_many', 1, 'names', 'names', $$'{bad/free}'$$),
	('acquire_many', 2, 'holder', 'holder', $$'a'$$),
	('acquire_many', 3, 'ttl', 'interval', $$NULL$$),
	('acquire_many', 4, 'reclaim', 'flag', $$false$$),
	('acquire_many', 5, 'metadata', 'metadata', $$NULL$$),
	('renew', 1, 'name', 'name', $$'bad'$$),
	('renew', 2, 'epoch', 'epoch', $$EPOCH$$),
	('renew', 3, 'ttl', 'interval', $$NULL$$),
	('renew_many', 1, 'names', 'names', $$'{bad}'$$),
	('renew_many', 2, 'epochs', 'epochs', $$'{EPOCH}'$$),
	('renew_many', 3, 'ttl', 'interval', $$NULL$$),
	('release', 1, 'name', 'name', $$'bad'$$),
	('release', 2, 'epoch', 'epoch', $$EPOCH$$),
	('release', 3, 'successor', 'successor', $$'b'$$),
	('release', 4, 'reserve', 'interval', $$NULL$$),
	('release_many', 1, 'names', 'names', $$'{bad}'$$),
	('release_many', 2, 'epochs', 'epochs', $$'{EPOCH}'$$),
	('release_many', 3, 'successor', 'successor', $$'b'$$),
	('release_many', 4, 'reserve', 'interval', $$NULL$$),
	('revoke', 1, 'name', 'name', $$'bad'$$),
	('revoke', 2, 'reason', 'reason', $$'why'$$),
	('holds', 1, 'name', 'name', $$'bad'$$),
	('holds', 2, 'epoch', 'epoch', $$EPOCH$$),
	('remaining', 1, 'name', 'name', $$'bad'$$),
	('remaining', 2, 'epoch', 'epoch', $$EPOCH$$),
	('guard', 1, 'name', 'name', $$'bad'$$),
	('guard', 2, 'epoch', 'epoch', $$EPOCH$$),
	('raise_floor', 1, 'epoch', 'floor', $$1$$),
	('protect', 1, 'rel', 'table', $$'plain_table'$$),
	('protect', 2, 'lease', 'name', $$'bad'$$),
	('protect', 3, 'always', 'flag', $$false$$),
	('unprotect', 1, 'rel', 'fenced table', $$'fenced_table'$$),
	('refuses', 1, 'lease', 'fence name', $$'bad'$$),
	('refuses', 2, 'rel', 'any', $$NULL$$),
	('allow', 1, 'role', 'role or else', $$'pg_monitor'$$),
	('allow', 2, 'fences', 'flag', $$false$$),
	('disallow', 1, 'role', 'role or else', $$'pg_read_all_stats'$$);

-- None is missing: functions of the extension with an argument that is not listed.
-- (Of alter, late_commit has no wrong value; descendants is a helper of protect.)
SELECT p.proname, a.name
	FROM pg_proc p, unnest(p.proargnames[:p.pronargs]) AS a(name)
	WHERE p.pronamespace = 'lease'::regnamespace
		AND (p.proname, a.name) NOT IN (SELECT function, name FROM argument)
	ORDER BY p.proname, a.name;

--
-- The values that are wrong
--

CREATE TABLE wrong (n int GENERATED ALWAYS AS IDENTITY, kind text, label text, value text);
INSERT INTO wrong (kind, label, value) VALUES
	('name', 'null', $$NULL$$),
	('name', 'empty', $$''$$),
	('name', '128 bytes', $$repeat('x', 128)$$),
	('name', 'with a line feed', $$E'bad\n'$$),
	('name', 'with a space', $$'b d'$$),
	('name', 'of no lease', $$'nobody'$$),
	('new name', 'null', $$NULL$$),
	('new name', 'empty', $$''$$),
	('new name', '128 bytes', $$repeat('x', 128)$$),
	('new name', 'with a tab', $$E'bad\t'$$),
	('new name', 'of a lease', $$'bad'$$),
	('fence name', 'null', $$NULL$$),
	('fence name', 'empty', $$''$$),
	('fence name', '128 bytes', $$repeat('x', 128)$$),
	('fence name', 'with a space', $$'b d'$$),
	('names', 'null', $$NULL$$),
	('names', 'with a null', $$'{NULL}'$$),
	('names', 'with an empty one', $$'{""}'$$),
	('names', 'with 128 bytes', $$ARRAY[repeat('x', 128)]$$),
	('names', 'with a line feed', $$ARRAY[E'bad\n']$$),
	('names', 'twice the same', $$'{bad,bad}'$$),
	('names', 'two dimensions', $$'{{bad}}'$$),
	('names', 'of no lease', $$'{nobody}'$$),
	('names', 'more than 1000', $$(SELECT array_agg('x' || i) FROM generate_series(1, 1001) i)$$),
	('holder', 'null', $$NULL$$),
	('holder', 'empty', $$''$$),
	('holder', '256 bytes', $$repeat('x', 256)$$),
	('holder', 'with a line feed', $$E'a\nb'$$),
	('holder', 'with an escape', $$E'a\x1b[2Jb'$$),
	('holder', 'with a delete', $$E'a\x7fb'$$),
	('interval', 'zero', $$'0'$$),
	('interval', 'negative', $$'-1 s'$$),
	('interval', 'below 1 ms', $$'0.9 ms'$$),
	('interval', 'months', $$'1 month'$$),
	('interval', 'years', $$'1 year'$$),
	('interval', 'months less days', $$'1 month -30 days'$$),
	('interval', 'more than a century', $$'36526 days'$$),
	('interval', 'as long as can be', $$'2147483647 days 2562047788:00:54.775807'$$),
	('interval', 'as negative as can be', $$'-2147483648 days'$$),
	('interval or zero', 'negative', $$'-1 s'$$),
	('interval or zero', 'below 1 ms', $$'0.9 ms'$$),
	('interval or zero', 'months', $$'1 month'$$),
	('interval or zero', 'more than a century', $$'36526 days'$$),
	('interval or zero', 'as negative as can be', $$'-2147483648 days'$$),
	('epoch', 'null', $$NULL$$),
	('epoch', 'zero', $$0$$),
	('epoch', 'negative', $$-1$$),
	('epoch', 'as negative as can be', $$-9223372036854775808$$),
	('epoch', 'never granted', $$9223372036854775807$$),
	('epoch', 'as text', $$'abc'$$),
	('epoch', 'an empty text', $$''$$),
	('epoch', 'too large', $$'9223372036854775808'$$),
	('epoch', 'a fraction', $$'1.5'$$),
	('epochs', 'null', $$NULL$$),
	('epochs', 'with a null', $$'{NULL}'$$),
	('epochs', 'with a zero', $$'{0}'$$),
	('epochs', 'with a negative one', $$'{-1}'$$),
	('epochs', 'one too few', $$'{}'$$),
	('epochs', 'one too many', $$'{1,2}'$$),
	('epochs', 'two dimensions', $$'{{1}}'$$),
	('epochs', 'never granted', $$'{9223372036854775807}'$$),
	('floor', 'null', $$NULL$$),
	('floor', 'zero', $$0$$),
	('floor', 'negative', $$-9223372036854775808$$),
	('flag', 'null', $$NULL$$),
	('metadata', 'more than 1024 bytes', $$to_jsonb(repeat('x', 1017))$$),
	('metadata', 'a megabyte', $$to_jsonb(repeat('x', 1000000))$$),
	('metadata', 'no json', $$'{'$$),
	('role', 'no role', $$'regress_nobody'$$),
	('role', 'no role of that OID', $$4294967295::oid::regrole$$),
	('role or else', 'null', $$NULL$$),
	('table', 'null', $$NULL$$),
	('table', 'no table', $$'no_table'$$),
	('table', 'no table of that OID', $$4294967295::oid::regclass$$),
	('table', 'a view', $$'a_view'$$),
	('table', 'a materialized view', $$'a_materialized_view'$$),
	('table', 'a foreign table', $$'a_foreign_table'$$),
	('table', 'a sequence', $$'a_sequence'$$),
	('table', 'an index', $$'an_index'$$),
	('table', 'a composite type', $$'a_type'$$),
	('table', 'a temporary table', $$'a_temporary_table'$$),
	('table', 'a catalog', $$'pg_class'$$),
	('table', 'a shared catalog', $$'pg_database'$$),
	('table', 'a TOAST table', $$(SELECT reltoastrelid::regclass FROM pg_class WHERE oid = 'pg_proc'::regclass)$$),
	('table', 'of the information schema', $$'information_schema.sql_features'$$),
	('table', 'of the extension', $$'lease.lease'$$),
	('table', 'a fenced table', $$'fenced_table'$$),
	('fenced table', 'null', $$NULL$$),
	('fenced table', 'no table', $$'no_table'$$),
	('fenced table', 'no table of that OID', $$4294967295::oid::regclass$$),
	('fenced table', 'not a fenced one', $$'plain_table'$$),
	('fenced table', 'a catalog', $$'pg_class'$$),
	('fenced table', 'a view', $$'a_view'$$);
INSERT INTO wrong (kind, label, value)
	SELECT 'successor', label, value FROM wrong WHERE kind = 'holder' AND label <> 'null' ORDER BY n;
INSERT INTO wrong (kind, label, value)
	SELECT 'reason', label, value FROM wrong WHERE kind = 'holder' AND label <> 'null' ORDER BY n;
INSERT INTO wrong (kind, label, value) VALUES ('setting', 'null', 'NULL'), ('setting or zero', 'null', 'NULL');
INSERT INTO wrong (kind, label, value)
	SELECT 'setting', label, value FROM wrong WHERE kind = 'interval' ORDER BY n;
INSERT INTO wrong (kind, label, value)
	SELECT 'setting or zero', label, value FROM wrong WHERE kind = 'interval or zero' ORDER BY n;
INSERT INTO wrong (kind, label, value)
	SELECT 'role or else', label, value FROM wrong WHERE kind = 'role' ORDER BY n;

-- The relations that are no tables, or not the right ones.
CREATE VIEW a_view AS SELECT * FROM plain_table;
CREATE MATERIALIZED VIEW a_materialized_view AS SELECT * FROM plain_table;
CREATE FOREIGN DATA WRAPPER lease_test_wrapper;
CREATE SERVER lease_test_server FOREIGN DATA WRAPPER lease_test_wrapper;
CREATE FOREIGN TABLE a_foreign_table (x int) SERVER lease_test_server;
CREATE SEQUENCE a_sequence;
CREATE INDEX an_index ON plain_table (x);
CREATE TYPE a_type AS (x int);
CREATE TEMPORARY TABLE a_temporary_table (x int);

-- try answers with the error of a command or with its result, which it undoes.
CREATE FUNCTION try(sql text) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	EXECUTE sql INTO result;
	RAISE 'undo' USING ERRCODE = 'UNDO0';
EXCEPTION
	WHEN SQLSTATE 'UNDO0' THEN RETURN ARRAY['ok', result];
	WHEN OTHERS THEN RETURN ARRAY[sqlstate, sqlerrm];
END;
$$;

-- A call with one argument replaced.
CREATE FUNCTION call(called text, replaced int, value text, epoch bigint) RETURNS text LANGUAGE sql AS $$
	SELECT replace(format('SELECT %s FROM lease.%I(%s) AS a',
			CASE WHEN called ~ '^(acquire|renew)' THEN 'a.outcome'
				WHEN called = 'release_many' THEN 'a.released'
				ELSE 'a' END,
			called, string_agg(CASE WHEN n = replaced THEN value ELSE good END, ', ' ORDER BY n)),
		'EPOCH', epoch::text)
		FROM argument WHERE function = called
$$;

-- As a cross-check: with all arguments right, every call succeeds.
SELECT function, (try(call(function, NULL, NULL, :epoch)))[1] AS result
	FROM (SELECT DISTINCT function FROM argument) f WHERE function <> 'refuses'
	ORDER BY function COLLATE "C";

SELECT everything FROM everything \gset

--
-- The table
--

SELECT a.function, a.name AS argument, w.label AS value, r[1] AS result,
		left(regexp_replace(r[2], '[^ -~]', '?', 'g'), 80) AS message
	FROM argument a JOIN wrong w USING (kind),
		LATERAL (SELECT try(call(a.function, a.n, w.value, :epoch)) OFFSET 0) AS t(r)
	ORDER BY a.function COLLATE "C", a.n, w.n;

-- What is wrong in two arguments together.
SELECT label, r[1] AS result, r[2] AS message
	FROM (VALUES
		(1, 'reserve without successor', $$SELECT lease.release('bad', EPOCH, reserve => '1 min')$$),
		(2, 'the same for what is not held', $$SELECT lease.release('nobody', 1, reserve => '1 min')$$),
		(3, 'many, reserve without successor', $$SELECT released FROM lease.release_many('{bad}', '{EPOCH}', reserve => '1 min')$$),
		(4, 'the condition of a fence', $$SELECT lease.refuses('bad', 'fenced_table')$$),
		(5, 'the trigger function as a function', $$SELECT lease.fence()$$)) AS c(n, label, sql),
		LATERAL (SELECT try(replace(sql, 'EPOCH', :epoch::text)) OFFSET 0) AS t(r)
	ORDER BY n;

-- The trigger function in triggers that lease.protect() would not make.
CREATE TRIGGER wrong BEFORE INSERT ON plain_table FOR EACH ROW EXECUTE FUNCTION lease.fence('bad');
INSERT INTO plain_table VALUES (1);
DROP TRIGGER wrong ON plain_table;
CREATE TRIGGER wrong AFTER INSERT ON plain_table FOR EACH STATEMENT EXECUTE FUNCTION lease.fence('bad');
INSERT INTO plain_table VALUES (1);
DROP TRIGGER wrong ON plain_table;
CREATE TRIGGER wrong AFTER TRUNCATE ON plain_table FOR EACH STATEMENT EXECUTE FUNCTION lease.fence('bad');
TRUNCATE plain_table;
DROP TRIGGER wrong ON plain_table;
CREATE TRIGGER wrong AFTER INSERT ON plain_table FOR EACH ROW EXECUTE FUNCTION lease.fence();
INSERT INTO plain_table VALUES (1);
DROP TRIGGER wrong ON plain_table;
CREATE TRIGGER wrong AFTER INSERT ON plain_table FOR EACH ROW EXECUTE FUNCTION lease.fence('bad', 'x');
INSERT INTO plain_table VALUES (1);
DROP TRIGGER wrong ON plain_table;
CREATE TRIGGER wrong AFTER INSERT ON plain_table FOR EACH ROW EXECUTE FUNCTION lease.fence('b d');
INSERT INTO plain_table VALUES (1);
DROP TRIGGER wrong ON plain_table;
-- One that is right but for the missing condition, is a fence all the same.
CREATE TRIGGER right_enough AFTER INSERT ON plain_table FOR EACH ROW EXECUTE FUNCTION lease.fence('bad');
INSERT INTO plain_table VALUES (1);
BEGIN;
SELECT lease.guard('bad', :epoch);
INSERT INTO plain_table VALUES (1);
COMMIT;
DROP TRIGGER right_enough ON plain_table;

--
-- Nothing has changed
--

SELECT everything = :'everything' AS nothing_changed FROM everything;
SELECT lease.holds('bad', :epoch);

SET client_min_messages = warning;
DROP FOREIGN DATA WRAPPER lease_test_wrapper CASCADE;
DROP TABLE plain_table, fenced_table, argument, wrong, a_temporary_table CASCADE;
DROP VIEW everything;
DROP SEQUENCE a_sequence;
DROP TYPE a_type;
DROP FUNCTION try, call;
SELECT lease.drop('bad', force => true), lease.drop('bad/free') \g /dev/null
