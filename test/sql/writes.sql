--
-- writes: every way to write to a protected table, with every kind of token.
--
-- Probes G4 (no write reaches a protected table without a valid guard) for an
-- ordinary table, and G10 (what does not validate is refused).  Partitions have a
-- test of their own, and so have savepoints and COMMIT.
--
-- Each kind of token has its lease, its schema and its tables.  The tokens come from
-- the start-up option lease.token, so that it is the write that is refused.  Every way
-- is tried with every kind of token at every isolation level.
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
	INSERT INTO parent VALUES (1), (2), (3), (4);
	CREATE TABLE child (
		id int PRIMARY KEY,
		parent int REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE,
		note text);
	CREATE TABLE loose (
		id int PRIMARY KEY,
		parent int REFERENCES parent ON DELETE SET NULL ON UPDATE SET NULL,
		other int DEFAULT 1 REFERENCES parent ON DELETE SET DEFAULT ON UPDATE SET DEFAULT);
	CREATE VIEW child_view AS SELECT * FROM child WHERE id < 100;
	CREATE VIEW view_of_view AS SELECT id, parent FROM child_view WITH CHECK OPTION;
	CREATE TABLE source (id int);
	CREATE TABLE ruled (id int);
	CREATE RULE instead AS ON INSERT TO ruled WHERE new.id < 50 DO INSTEAD INSERT INTO child VALUES (new.id, 1);
	CREATE RULE also AS ON DELETE TO ruled DO ALSO DELETE FROM child;
	INSERT INTO ruled VALUES (60);
	CREATE VIEW joined AS SELECT c.id, p.id AS parent FROM child c JOIN parent p ON p.id = c.parent;
	CREATE FUNCTION write_through() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN EXECUTE format(''DELETE FROM %I.child WHERE id = $1'', TG_TABLE_SCHEMA) USING old.id; RETURN old; END';
	CREATE TRIGGER write_through INSTEAD OF DELETE ON joined FOR EACH ROW EXECUTE FUNCTION write_through();
	CREATE FUNCTION copy_down() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN EXECUTE format(''INSERT INTO %I.child VALUES ($1)'', TG_TABLE_SCHEMA) USING new.id; RETURN NULL; END';
	CREATE TRIGGER copy_down AFTER INSERT ON source FOR EACH ROW WHEN (new.id < 50) EXECUTE FUNCTION copy_down();
	CREATE CONSTRAINT TRIGGER copy_down_later AFTER INSERT ON source DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW WHEN (new.id >= 50) EXECUTE FUNCTION copy_down();
	CREATE FUNCTION write_it() RETURNS void LANGUAGE sql AS 'INSERT INTO child VALUES (10, 1)';

	CREATE FUNCTION write_as_owner() RETURNS void LANGUAGE sql SECURITY DEFINER AS 'INSERT INTO child VALUES (10, 1)';
	CREATE FUNCTION write_caught() RETURNS void LANGUAGE plpgsql AS
		'BEGIN BEGIN INSERT INTO child VALUES (1, 1); EXCEPTION WHEN unique_violation THEN NULL; END; INSERT INTO child VALUES (10, 1); END';
	CREATE PROCEDURE write_in_procedure() LANGUAGE sql AS 'INSERT INTO child VALUES (10, 1)';

	INSERT INTO child VALUES (1, 1), (2, 2);
	INSERT INTO loose VALUES (1, 3, 4);
	PERFORM lease.protect('child', 'w/' || kind, ddl => false),
		lease.protect('loose', 'w/' || kind, ddl => false);
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
	('INSERT of two rows', 'INSERT INTO child VALUES (10, 1), (11, 2)'),
	('INSERT of columns', 'INSERT INTO child (parent, id) VALUES (1, 10)'),
	('INSERT SELECT', 'INSERT INTO child SELECT i, 1 FROM generate_series(10, 1000) i'),
	('INSERT ON CONFLICT DO NOTHING', 'INSERT INTO child VALUES (10, 1) ON CONFLICT DO NOTHING'),
	('INSERT ON CONFLICT DO UPDATE', 'INSERT INTO child VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET note = ''x'''),
	('INSERT RETURNING', 'INSERT INTO child VALUES (10, 1) RETURNING id'),
	('UPDATE', 'UPDATE child SET note = ''x'' WHERE id = 1'),
	('UPDATE FROM', 'UPDATE child SET note = ''x'' FROM parent WHERE child.parent = parent.id'),
	('UPDATE of the key', 'UPDATE child SET id = id + 100'),
	('UPDATE of nothing new', 'UPDATE child SET note = note'),
	('INSERT through a view', 'INSERT INTO child_view VALUES (10, 1)'),
	('UPDATE through a view', 'UPDATE child_view SET note = ''x'''),
	('DELETE through a view', 'DELETE FROM child_view'),
	('INSERT through two views', 'INSERT INTO view_of_view VALUES (10, 1)'),
	('an INSTEAD rule', 'INSERT INTO ruled VALUES (10)'),
	('an ALSO rule', 'DELETE FROM ruled'),
	('an INSTEAD OF trigger', 'DELETE FROM joined WHERE id = 1'),
	('DELETE', 'DELETE FROM child WHERE id = 1'),
	('DELETE USING', 'DELETE FROM child USING parent WHERE child.parent = parent.id'),
	('MERGE INSERT', 'MERGE INTO child USING (VALUES (10)) v(i) ON id = i WHEN NOT MATCHED THEN INSERT VALUES (i, 1)'),
	('MERGE UPDATE', 'MERGE INTO child USING (VALUES (1)) v(i) ON id = i WHEN MATCHED THEN UPDATE SET note = ''x'''),
	('MERGE DELETE', 'MERGE INTO child USING (VALUES (1)) v(i) ON id = i WHEN MATCHED THEN DELETE'),
	('COPY', 'COPY child (id, parent) FROM PROGRAM ''echo 10,1'' (FORMAT csv)'),
	('COPY binary', 'COPY child (id, parent) FROM PROGRAM ''echo UEdDT1BZCv8NCgAAAAAAAAAAAAACAAAABAAAAAoAAAAEAAAAAf// | base64 -d'' (FORMAT binary)'),
	('TRUNCATE', 'TRUNCATE child'),
	('TRUNCATE of several', 'TRUNCATE source, child, ruled RESTART IDENTITY'),
	('TRUNCATE CASCADE', 'TRUNCATE parent CASCADE'),
	('ON DELETE CASCADE', 'DELETE FROM parent WHERE id = 1'),
	('ON UPDATE CASCADE', 'UPDATE parent SET id = 5 WHERE id = 2'),
	('ON DELETE SET NULL', 'DELETE FROM parent WHERE id = 3'),
	('ON UPDATE SET NULL', 'UPDATE parent SET id = 6 WHERE id = 3'),
	('ON DELETE SET DEFAULT', 'DELETE FROM parent WHERE id = 4'),
	('ON UPDATE SET DEFAULT', 'UPDATE parent SET id = 7 WHERE id = 4'),
	('INSERT in a WITH', 'WITH w AS (INSERT INTO child VALUES (10, 1) RETURNING id) SELECT count(*) FROM w'),
	('UPDATE in a WITH', 'WITH w AS (UPDATE child SET note = ''x'') SELECT 1'),
	('DELETE in a WITH', 'WITH w AS (DELETE FROM child RETURNING id) SELECT 1'),
	('UPDATE WHERE CURRENT OF', 'DO ''DECLARE c CURSOR FOR SELECT * FROM child FOR UPDATE; r record; BEGIN OPEN c; FETCH c INTO r; UPDATE child SET note = ''''x'''' WHERE CURRENT OF c; END'''),
	('DELETE WHERE CURRENT OF', 'DO ''DECLARE c CURSOR FOR SELECT * FROM child; r record; BEGIN OPEN c; FETCH c INTO r; DELETE FROM child WHERE CURRENT OF c; END'''),
	('EXECUTE', 'DEALLOCATE ALL; PREPARE w AS INSERT INTO child VALUES ($1, 1); EXECUTE w(10)'),
	('EXPLAIN ANALYZE', 'EXPLAIN ANALYZE INSERT INTO child VALUES (10, 1)'),
	('in a function', 'SELECT write_it()'),
	('in a function as its owner', 'SELECT write_as_owner()'),
	('after an error that was caught', 'SELECT write_caught()'),
	('in a procedure', 'CALL write_in_procedure()'),
	('in a DO block', 'DO ''BEGIN INSERT INTO child VALUES (10, 1); END'''),
	('in a trigger', 'INSERT INTO source VALUES (10)'),
	('in a deferred trigger', 'INSERT INTO source VALUES (60); SET CONSTRAINTS ALL IMMEDIATE'),
	('in many statements', 'DO ''BEGIN FOR i IN 10..300 LOOP INSERT INTO child VALUES (i, 1); UPDATE child SET note = i WHERE id = i; END LOOP; END'''),
	('INSERT of no row', 'INSERT INTO child SELECT 10, 1 WHERE false'),
	('INSERT that conflicts, DO NOTHING', 'INSERT INTO child VALUES (1, 1) ON CONFLICT DO NOTHING'),
	('MERGE DO NOTHING', 'MERGE INTO child USING (VALUES (1)) v(i) ON id = i WHEN MATCHED THEN DO NOTHING'),
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

-- The matrix is filled in three connections: without a token, with one that is malformed,
-- and with one for each kind, which are all foreign to the tables of the kind "none".
CREATE TABLE answer (level text, n int, label text, kind text, answer text);
CREATE PROCEDURE fill(kinds text[], schema text DEFAULT NULL) LANGUAGE plpgsql AS $$
DECLARE
	level text;
BEGIN
	FOREACH level IN ARRAY '{read committed,repeatable read,serializable}'::text[] LOOP
		PERFORM set_config('default_transaction_isolation', level, false);
		COMMIT;
		INSERT INTO answer
			SELECT level, c.n, c.label, k, try('w_' || coalesce(schema, k), c.sql)
			FROM command c, unnest(kinds) AS k;
	END LOOP;
	RESET default_transaction_isolation;
	COMMIT;
END;
$$;
SET client_min_messages = warning;
CALL fill('{missing}', 'none');

\c -reuse-previous=on "options='-c lease.token=w/none=1,w/none=x'"
SET client_min_messages = warning;
CALL fill('{malformed}', 'none');

SELECT 'dbname=' || current_database() || ' options=''-c lease.token=' ||
		(SELECT string_agg('w/' || kind || '=' || epoch, ',' ORDER BY n) FROM token WHERE kind <> 'none') || '''' AS connection \gset
\c -reuse-previous=on :"connection"
SET client_min_messages = warning;
SELECT array_agg(kind) AS kinds FROM token WHERE kind <> 'none' \gset
CALL fill(:'kinds');
CALL fill('{foreign}', 'none');

-- LS001 superseded, LS002 expired, LS003 not held, LS004 no token, LS005 no such lease,
-- 22023 malformed.  One answer stands for all three isolation levels where they agree.
-- The lines from "INSERT of no row" on write nothing.
CREATE FUNCTION cell(label text, kind text) RETURNS text LANGUAGE sql STABLE AS $$
	SELECT CASE WHEN count(*) <> 3 THEN 'missing'
			WHEN count(DISTINCT answer) = 1 THEN min(answer)
			ELSE string_agg(answer, '/' ORDER BY level) END
		FROM answer a WHERE a.label = cell.label AND a.kind = cell.kind
$$;
SELECT label, cell(label, 'valid') AS valid, cell(label, 'missing') AS missing, cell(label, 'malformed') AS malformed,
		cell(label, 'foreign') AS foreign, cell(label, 'superseded') AS superseded, cell(label, 'expired') AS expired,
		cell(label, 'released') AS released, cell(label, 'revoked') AS revoked, cell(label, 'never') AS never,
		cell(label, 'dropped') AS dropped
	FROM command ORDER BY n;
SELECT count(*) = 3 * 10 * (SELECT count(*) FROM command) AS complete FROM answer;

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

-- By the guard of the lease everything is admitted, at every isolation level,
CREATE PROCEDURE fill_guarded(kind text, guard text, epoch bigint) LANGUAGE plpgsql AS $$
DECLARE
	level text;
BEGIN
	FOREACH level IN ARRAY '{read committed,repeatable read,serializable}'::text[] LOOP
		PERFORM set_config('default_transaction_isolation', level, false);
		COMMIT;
		INSERT INTO answer
			SELECT level, c.n, c.label, kind, try('w_none', c.sql, guard, epoch) FROM command c;
	END LOOP;
	RESET default_transaction_isolation;
	COMMIT;
END;
$$;
CALL fill_guarded('its own', 'w/none', :none);
-- by that of another lease nothing is.
CALL fill_guarded('another', 'w/valid', :valid);
SELECT kind, level, answer, count(*), min(n) AS first_line, max(n) AS last_line
	FROM answer WHERE kind IN ('its own', 'another') GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;
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

-- A procedure that commits: the guard ends with its transaction.
CREATE PROCEDURE write_and_commit(epoch bigint) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM lease.guard('w/valid', epoch);
	INSERT INTO w_valid.child VALUES (40, 1);
	COMMIT;
	INSERT INTO w_valid.child VALUES (41, 1);
END;
$$;
CALL write_and_commit(:valid);
CREATE PROCEDURE write_and_roll_back(epoch bigint) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM lease.guard('w/valid', epoch);
	INSERT INTO w_valid.child VALUES (42, 1);
	ROLLBACK;
	INSERT INTO w_valid.child VALUES (43, 1);
END;
$$;
CALL write_and_roll_back(:valid);
CREATE PROCEDURE guard_anew(epoch bigint) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 44..46 LOOP
		PERFORM lease.guard('w/valid', epoch);
		INSERT INTO w_valid.child VALUES (i, 1);
		COMMIT AND CHAIN;
	END LOOP;
END;
$$;
CALL guard_anew(:valid);
SELECT id FROM w_valid.child WHERE id >= 40 ORDER BY id;
DROP PROCEDURE write_and_commit, write_and_roll_back, guard_anew;

-- Refused, and then done as it should be.
DO $$
BEGIN
	INSERT INTO w_valid.child VALUES (47, 1);
EXCEPTION WHEN SQLSTATE 'LS004' THEN
	PERFORM lease.guard('w/valid', (SELECT epoch FROM token WHERE kind = 'valid'));
	INSERT INTO w_valid.child VALUES (47, 1);
END;
$$;
SELECT id FROM w_valid.child WHERE id = 47;

-- A read-only transaction can be guarded, and then its COMMIT is checked, too.
BEGIN READ ONLY;
SELECT lease.guard('w/valid', :valid);
INSERT INTO w_valid.child VALUES (48, 1);
ROLLBACK;
BEGIN READ ONLY;
SELECT lease.guard('w/valid', :valid);
SELECT count(*) FROM w_valid.child;
COMMIT;

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
SELECT lease.protect('w_none.child', 'w/none', ddl => false, always => true);
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
SELECT lease.protect('"w S"."T''""y"', 'w/valid', ddl => false);
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
DROP FUNCTION build, untouched, try, cell;
DROP PROCEDURE fill, fill_guarded;
DROP TABLE token, command, answer;
