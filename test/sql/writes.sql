--
-- writes: every way to write to a protected table, with every kind of token.
--
-- Probes G4 (no write reaches a protected table without a valid guard) for an
-- ordinary table, and G10 (what does not validate is refused).  Partitions have a
-- test of their own, and so have savepoints and COMMIT.
--
-- Each kind of token has its lease, its schema and its tables.  The tokens come from
-- the start-up option lease.token, so that it is the write that is refused.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
RESET client_min_messages;

CREATE TABLE token (kind text PRIMARY KEY, n int, epoch bigint);
INSERT INTO token SELECT kind, n FROM unnest('{valid,none,superseded,expired,released,revoked,never,dropped}'::text[])
	WITH ORDINALITY AS t(kind, n);
SELECT lease.create('w/' || kind, ttl => '1 hour') FROM token \g /dev/null

-- An hour's grant of two hours ago has expired.
SET lease.clock_offset = '-7200 s';
UPDATE token SET epoch = (lease.acquire('w/expired', 'a')).epoch WHERE kind = 'expired';
RESET lease.clock_offset;
UPDATE token SET epoch = (lease.acquire('w/' || kind, 'a')).epoch WHERE kind <> 'expired';

-- A table that refers to another in all ways that cascade, one that is written by
-- triggers, and a view.
CREATE FUNCTION build(kind text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE SCHEMA w_%1$s', kind);
	EXECUTE format('SET LOCAL search_path = w_%1$s', kind);
	CREATE TABLE parent (id int PRIMARY KEY);
	INSERT INTO parent VALUES (1), (2), (3);
	CREATE TABLE child (
		id int PRIMARY KEY,
		parent int REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE,
		note text);
	CREATE TABLE loose (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE SET NULL);
	CREATE VIEW child_view AS SELECT * FROM child WHERE id < 100;
	CREATE TABLE source (id int);
	CREATE FUNCTION copy_down() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN EXECUTE format(''INSERT INTO %I.child VALUES ($1)'', TG_TABLE_SCHEMA) USING new.id; RETURN NULL; END';
	CREATE TRIGGER copy_down AFTER INSERT ON source FOR EACH ROW WHEN (new.id < 50) EXECUTE FUNCTION copy_down();
	CREATE CONSTRAINT TRIGGER copy_down_later AFTER INSERT ON source DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW WHEN (new.id >= 50) EXECUTE FUNCTION copy_down();
	CREATE FUNCTION write_it() RETURNS void LANGUAGE sql AS 'INSERT INTO child VALUES (10, 1)';

	INSERT INTO child VALUES (1, 1), (2, 2);
	INSERT INTO loose VALUES (1, 3);
	PERFORM lease.protect('child', 'w/' || kind), lease.protect('loose', 'w/' || kind);
END;
$$;
SELECT build(kind) FROM token ORDER BY n \g /dev/null
CREATE FUNCTION untouched(kind text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	same boolean;
BEGIN
	EXECUTE format('SELECT array_agg(c ORDER BY id)::text = %L FROM w_%s.child c',
		'{"(1,1,)","(2,2,)"}', kind) INTO same;
	RETURN same;
END;
$$;

-- Now the grants end, each in its way.  In one case there is another since.
SELECT lease.release('w/released', epoch) FROM token WHERE kind = 'released' \g /dev/null
SELECT lease.revoke('w/' || kind) FROM token WHERE kind IN ('revoked', 'superseded') \g /dev/null
SELECT outcome FROM lease.acquire('w/superseded', 'b');
SELECT lease.drop('w/dropped', force => true);
UPDATE token SET epoch = epoch + 1000000000000 WHERE kind = 'never';
SELECT count(*) AS fences, count(DISTINCT lease) AS leases, min(row_trigger) AS row_trigger, min(truncate_trigger) AS truncate_trigger
	FROM lease.fence WHERE lease LIKE 'w/%';

CREATE TABLE command (n int GENERATED ALWAYS AS IDENTITY, label text, sql text);
INSERT INTO command (label, sql) VALUES
	('INSERT', 'INSERT INTO child VALUES (10, 1)'),
	('INSERT of many', 'INSERT INTO child SELECT i, 1 FROM generate_series(10, 1000) i'),
	('INSERT ON CONFLICT DO NOTHING', 'INSERT INTO child VALUES (10, 1) ON CONFLICT DO NOTHING'),
	('INSERT ON CONFLICT DO UPDATE', 'INSERT INTO child VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET note = ''x'''),
	('INSERT RETURNING', 'INSERT INTO child VALUES (10, 1) RETURNING id'),
	('UPDATE', 'UPDATE child SET note = ''x'' WHERE id = 1'),
	('UPDATE FROM', 'UPDATE child SET note = ''x'' FROM parent WHERE child.parent = parent.id'),
	('UPDATE of nothing new', 'UPDATE child SET note = note'),
	('UPDATE through a view', 'UPDATE child_view SET note = ''x'''),
	('DELETE', 'DELETE FROM child WHERE id = 1'),
	('DELETE USING', 'DELETE FROM child USING parent WHERE child.parent = parent.id'),
	('MERGE INSERT', 'MERGE INTO child USING (VALUES (10)) v(i) ON id = i WHEN NOT MATCHED THEN INSERT VALUES (i, 1)'),
	('MERGE UPDATE', 'MERGE INTO child USING (VALUES (1)) v(i) ON id = i WHEN MATCHED THEN UPDATE SET note = ''x'''),
	('MERGE DELETE', 'MERGE INTO child USING (VALUES (1)) v(i) ON id = i WHEN MATCHED THEN DELETE'),
	('COPY', 'COPY child (id, parent) FROM PROGRAM ''echo 10,1'' (FORMAT csv)'),
	('TRUNCATE', 'TRUNCATE child'),
	('TRUNCATE CASCADE', 'TRUNCATE parent CASCADE'),
	('ON DELETE CASCADE', 'DELETE FROM parent WHERE id = 1'),
	('ON UPDATE CASCADE', 'UPDATE parent SET id = 5 WHERE id = 2'),
	('ON DELETE SET NULL', 'DELETE FROM parent WHERE id = 3'),
	('in a WITH', 'WITH w AS (DELETE FROM child RETURNING id) SELECT 1'),
	('in a function', 'SELECT write_it()'),
	('in a DO block', 'DO ''BEGIN INSERT INTO child VALUES (10, 1); END'''),
	('in a trigger', 'INSERT INTO source VALUES (10)'),
	('in a deferred trigger', 'INSERT INTO source VALUES (60); SET CONSTRAINTS ALL IMMEDIATE'),
	('INSERT of no row', 'INSERT INTO child SELECT 10, 1 WHERE false'),
	('INSERT that conflicts, DO NOTHING', 'INSERT INTO child VALUES (1, 1) ON CONFLICT DO NOTHING'),
	('UPDATE of no row', 'UPDATE child SET note = ''x'' WHERE id = 99'),
	('DELETE of no row', 'DELETE FROM child WHERE id = 99'),
	('SELECT', 'SELECT * FROM child'),
	('SELECT FOR UPDATE', 'SELECT * FROM child FOR UPDATE');

-- try answers with the SQLSTATE of a command, and undoes what succeeded.
CREATE FUNCTION try(schema text, sql text, guard text DEFAULT NULL, epoch bigint DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('search_path', schema, true);
	IF guard IS NOT NULL THEN
		PERFORM lease.guard(guard, epoch);
	END IF;
	EXECUTE sql;
	RAISE 'undo' USING ERRCODE = 'UNDO0';
EXCEPTION
	WHEN SQLSTATE 'UNDO0' THEN RETURN 'ok';
	WHEN OTHERS THEN RETURN sqlstate;
END;
$$;

-- With no token at all, nothing can be written; the last lines write nothing.
SET client_min_messages = warning;
SELECT try('w_' || kind, sql) AS without_tokens, min(c.n) AS first_line, max(c.n) AS last_line
	FROM token, command c GROUP BY 1 ORDER BY 1;

SELECT 'dbname=' || current_database() || ' options=''-c lease.token=' ||
		(SELECT string_agg('w/' || kind || '=' || epoch, ',' ORDER BY n) FROM token WHERE kind <> 'none') || '''' AS connection \gset
\c -reuse-previous=on :"connection"

SET client_min_messages = warning;

-- The matrix: LS001 superseded, LS002 expired, LS003 not held, LS004 no token,
-- LS005 no such lease.
SELECT label,
		max(answer) FILTER (WHERE kind = 'valid') AS valid,
		max(answer) FILTER (WHERE kind = 'none') AS none,
		max(answer) FILTER (WHERE kind = 'superseded') AS superseded,
		max(answer) FILTER (WHERE kind = 'expired') AS expired,
		max(answer) FILTER (WHERE kind = 'released') AS released,
		max(answer) FILTER (WHERE kind = 'revoked') AS revoked,
		max(answer) FILTER (WHERE kind = 'never') AS never,
		max(answer) FILTER (WHERE kind = 'dropped') AS dropped
	FROM (SELECT c.n, label, kind, try('w_' || kind, sql) AS answer FROM command c, token) AS a
	GROUP BY n, label ORDER BY n;

-- Nothing of all that has arrived.
SELECT kind, untouched(kind) FROM token WHERE kind <> 'valid' ORDER BY n;

-- COPY from the client.
BEGIN;
COPY w_none.child (id) FROM stdin;
10
\.
ROLLBACK;
BEGIN;
COPY w_superseded.child (id) FROM stdin;
10
\.
ROLLBACK;
BEGIN;
COPY w_valid.child (id) FROM stdin;
10
11
12
\.
SELECT count(*) FROM w_valid.child;
ROLLBACK;

-- The same connection without a transaction block: each statement is guarded by
-- itself, at the first row it writes and again at its COMMIT.
INSERT INTO w_valid.child VALUES (20, 1), (21, 2);
UPDATE w_valid.child SET note = 'seen' WHERE id >= 20;
INSERT INTO w_superseded.child VALUES (20, 1);
SELECT id, note FROM w_valid.child ORDER BY id;
DELETE FROM w_valid.child WHERE id >= 20;

\c -reuse-previous=on "options=''"
SET client_min_messages = warning;

--
-- With lease.guard() in the same transaction
--

SELECT epoch AS none FROM token WHERE kind = 'none' \gset
SELECT epoch AS valid FROM token WHERE kind = 'valid' \gset

-- By the guard of the lease everything is admitted,
SELECT try('w_none', sql, 'w/none', :none) AS answer, count(*) FROM command GROUP BY 1;
-- by that of another lease nothing is.
SELECT try('w_none', sql, 'w/valid', :valid) AS answer, min(n) AS first_line, max(n) AS last_line
	FROM command GROUP BY 1 ORDER BY 1;
RESET client_min_messages;

-- A transaction may be guarded by several leases and write under each.
BEGIN;
SELECT lease.guard('w/none', :none), lease.guard('w/valid', :valid);
INSERT INTO w_none.child VALUES (20, 1);
INSERT INTO w_valid.child VALUES (20, 1);
INSERT INTO w_revoked.child VALUES (20, 1);
ROLLBACK;
BEGIN;
SELECT lease.guard('w/none', :none), lease.guard('w/valid', :valid);
INSERT INTO w_none.child VALUES (20, 1);
INSERT INTO w_valid.child VALUES (20, 1);
COMMIT;
SELECT (SELECT count(*) FROM w_none.child WHERE id = 20), (SELECT count(*) FROM w_valid.child WHERE id = 20);

-- A guard in the statement that writes.
INSERT INTO w_valid.child SELECT 21, 1 FROM lease.guard('w/valid', :valid);
WITH g AS MATERIALIZED (SELECT lease.guard('w/valid', :valid))
	DELETE FROM w_valid.child USING g WHERE id > 2;

-- After COMMIT the guard is gone; a guard that was refused is none.
INSERT INTO w_valid.child VALUES (22, 1);
BEGIN;
SAVEPOINT s;
SELECT lease.guard('w/valid', :valid + 1);
ROLLBACK TO s;
INSERT INTO w_valid.child VALUES (22, 1);
ROLLBACK;

--
-- Replication, and the fence that fires there, too
--

-- What replication applies is not refused: the fence was passed where the write was
-- made.  Who may set this locally is a superuser, or has been granted the right.
SET session_replication_role = replica;
INSERT INTO w_none.child VALUES (30, 1);
TRUNCATE w_none.loose;
RESET session_replication_role;
SELECT id FROM w_none.child ORDER BY id;

-- With "always" it is.
SELECT lease.unprotect('w_none.child');
SELECT lease.protect('w_none.child', 'w/none', always => true);
SET session_replication_role = replica;
INSERT INTO w_none.child VALUES (31, 1);
TRUNCATE w_none.child;
BEGIN;
SELECT lease.guard('w/none', :none);
INSERT INTO w_none.child VALUES (31, 1);
COMMIT;
RESET session_replication_role;
SELECT id FROM w_none.child ORDER BY id;

-- All of it is to be seen, and also if the owner switches a fence off.
ALTER TABLE w_released.child DISABLE TRIGGER lease_fence;
ALTER TABLE w_revoked.child ENABLE REPLICA TRIGGER lease_fence_truncate;
DROP TRIGGER lease_fence_truncate ON w_never.child;
SELECT * FROM lease.fence WHERE lease LIKE 'w/%' ORDER BY rel::text COLLATE "C";

--
-- Unprotect
--

SELECT lease.unprotect('w_none.child');
INSERT INTO w_none.child VALUES (40, 1);
TRUNCATE w_none.child;
SELECT lease.unprotect('w_none.child');
SELECT lease.unprotect('w_none.parent');

-- What is left of a fence is removed, too.
SELECT lease.unprotect('w_never.child');
INSERT INTO w_never.child VALUES (40, 1);

-- Names that have to be quoted.
CREATE SCHEMA "w S";
CREATE TABLE "w S"."T'""y" ("X z" int);
SELECT lease.protect('"w S"."T''""y"', 'w/valid');
INSERT INTO "w S"."T'""y" VALUES (1);
SELECT rel, row_trigger FROM lease.fence WHERE rel = '"w S"."T''""y"'::regclass;
ALTER TABLE "w S"."T'""y" RENAME TO "another %I";
TRUNCATE "w S"."another %I";
SELECT lease.unprotect('"w S"."another %I"');
INSERT INTO "w S"."another %I" VALUES (1);
DROP TABLE "w S"."another %I";
DROP SCHEMA "w S";

-- A table is protected once, by one lease.
SELECT lease.protect('w_valid.child', 'w/valid');
SELECT lease.protect('w_valid.child', 'w/none');

SET client_min_messages = warning;
SELECT format('DROP SCHEMA w_%s CASCADE', kind) FROM token ORDER BY n \gexec
RESET client_min_messages;
SELECT lease.drop(name, force => true) FROM lease.status WHERE name LIKE 'w/%' \g /dev/null
DROP FUNCTION build, untouched, try;
DROP TABLE token, command;
