--
-- ddl: what takes rows out of a protected table, or brings some in, without writing any.
--
-- Retention drops or detaches a partition.  With "ddl", the default, that takes a guarded
-- transaction, and so does whatever else would remove the fence.  Probes G4 and G10.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;

SELECT lease.create('ddl', ttl => '1 hour'), lease.create('ddl/other', ttl => '1 hour') \g /dev/null
SELECT epoch AS old FROM lease.acquire('ddl', 'a') \gset
SELECT lease.release('ddl', :old) \g /dev/null
SELECT epoch AS now FROM lease.acquire('ddl', 'b') \gset
SELECT epoch AS other FROM lease.acquire('ddl/other', 'b') \gset

CREATE ROLE regress_lease_owner;
GRANT CREATE ON SCHEMA public TO regress_lease_owner;
CREATE SCHEMA kept;
CREATE TYPE kept.mood AS ENUM ('good', 'bad');
CREATE TABLE kept.log (at int, note text, size int, mood kept.mood) PARTITION BY RANGE (at);
CREATE TABLE kept.log_1 PARTITION OF kept.log FOR VALUES FROM (0) TO (10);
CREATE TABLE kept.log_2 PARTITION OF kept.log FOR VALUES FROM (10) TO (20) PARTITION BY LIST (at);
CREATE TABLE kept.log_2_a PARTITION OF kept.log_2 FOR VALUES IN (10, 11);
INSERT INTO kept.log VALUES (1, 'x', 1, 'good'), (10, 'x', 1, 'bad');
CREATE TABLE mother (id int, note text);
CREATE TABLE daughter () INHERITS (mother);
INSERT INTO daughter VALUES (1);
CREATE TABLE owned (id int);
CREATE TABLE stamped (id int, epoch bigint, lease text);
CREATE TABLE free (id int) PARTITION BY RANGE (id);
CREATE TABLE single (id int NOT NULL);
SELECT lease.protect('kept.log', 'ddl'), lease.protect('mother', 'ddl'), lease.protect('owned', 'ddl'),
	lease.protect('stamped', 'ddl', 'epoch', 'lease'), lease.protect('single', 'ddl') \g /dev/null
ALTER TABLE owned OWNER TO regress_lease_owner;
-- Tables that are to be attached.
CREATE TABLE more (at int, note text, size int, mood kept.mood);
INSERT INTO more VALUES (20);
CREATE TABLE girl (id int, note text);
CREATE TABLE unfenced (id int);
CREATE TABLE unfenced_part PARTITION OF free FOR VALUES FROM (0) TO (10);

-- try answers with the SQLSTATE of a command, and undoes what succeeded.
CREATE FUNCTION try(sql text, lease text DEFAULT NULL, epoch bigint DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	IF lease IS NOT NULL THEN
		PERFORM lease.guard(lease, epoch);
	END IF;
	EXECUTE sql;
	RAISE 'undo' USING ERRCODE = 'UNDO0';
EXCEPTION
	WHEN SQLSTATE 'UNDO0' THEN RETURN 'ok';
	WHEN OTHERS THEN RETURN sqlstate;
END;
$$;

CREATE TABLE command (n int GENERATED ALWAYS AS IDENTITY, sql text);
INSERT INTO command (sql) VALUES
	('DROP TABLE kept.log'),
	('DROP TABLE kept.log_1'),
	('DROP TABLE kept.log_2'),
	('DROP TABLE kept.log_2_a'),
	('DROP TABLE unfenced, kept.log_1'),
	('DROP TABLE IF EXISTS single'),
	('DROP SCHEMA kept CASCADE'),
	('DROP OWNED BY regress_lease_owner'),
	('DROP OWNED BY regress_lease_owner RESTRICT'),
	('DROP TYPE kept.mood CASCADE'),
	('ALTER TABLE kept.log DETACH PARTITION kept.log_1'),
	('ALTER TABLE kept.log DETACH PARTITION kept.log_2'),
	('ALTER TABLE kept.log_2 DETACH PARTITION kept.log_2_a'),
	('ALTER TABLE kept.log ATTACH PARTITION more FOR VALUES FROM (20) TO (30)'),
	('ALTER TABLE free ATTACH PARTITION single FOR VALUES FROM (20) TO (30)'),
	('CREATE TABLE new (LIKE more); INSERT INTO new VALUES (20); ALTER TABLE kept.log ATTACH PARTITION new FOR VALUES FROM (20) TO (30)'),
	('CREATE TABLE new AS SELECT * FROM more; ALTER TABLE kept.log ATTACH PARTITION new FOR VALUES FROM (20) TO (30)'),
	('CREATE TABLE new (LIKE more) PARTITION BY RANGE (at); CREATE TABLE new_1 PARTITION OF new DEFAULT; INSERT INTO new VALUES (20); ALTER TABLE kept.log ATTACH PARTITION new FOR VALUES FROM (20) TO (30)'),
	('CREATE TABLE new () INHERITS (mother); INSERT INTO new VALUES (1)'),
	('ALTER TABLE girl INHERIT mother'),
	('ALTER TABLE girl INHERIT daughter'),
	('ALTER TABLE daughter NO INHERIT mother'),
	('ALTER TABLE daughter INHERIT unfenced'),
	('DROP TABLE daughter'),
	('DROP TABLE mother CASCADE'),
	('DROP TRIGGER lease_fence ON single'),
	('DROP TRIGGER lease_fence_truncate ON single'),
	('DROP TRIGGER lease_fence_truncate ON kept.log_1'),
	('DROP TRIGGER lease_fence ON kept.log'),
	('DROP TRIGGER lease_stamp ON stamped'),
	('DROP TRIGGER lease_fence_insert ON stamped'),
	('DROP TRIGGER lease_fence_update ON stamped'),
	('DROP TRIGGER lease_fence_delete ON stamped'),
	($$SELECT lease.unprotect('single')$$),
	($$SELECT lease.unprotect('kept.log')$$),
	('ALTER TABLE kept.log DROP COLUMN note'),
	('ALTER TABLE mother DROP COLUMN note'),
	('ALTER TABLE stamped DROP COLUMN epoch CASCADE'),
	('ALTER TABLE kept.log ALTER COLUMN size TYPE bigint'),
	($$ALTER TABLE kept.log ALTER COLUMN note TYPE text USING 'forged'$$),
	('ALTER TABLE mother ALTER COLUMN id TYPE int USING id + 1'),
	('DROP FUNCTION lease.fence() CASCADE'),
	('DROP EVENT TRIGGER lease_watch_ddl'),
	-- These take no row away, bring none in, and leave the fence as it is.
	('CREATE TABLE new PARTITION OF kept.log FOR VALUES FROM (20) TO (30)'),
	('CREATE TABLE new PARTITION OF kept.log FOR VALUES FROM (20) TO (30) PARTITION BY HASH (at)'),
	('CREATE TABLE new (LIKE more); ALTER TABLE kept.log ATTACH PARTITION new FOR VALUES FROM (20) TO (30)'),
	('CREATE TABLE new () INHERITS (mother)'),
	('CREATE TABLE new (LIKE single INCLUDING ALL)'),
	('CREATE INDEX ON kept.log (note); CREATE STATISTICS s ON at, note FROM kept.log_1'),
	('ALTER TABLE kept.log ADD COLUMN more int DEFAULT 1'),
	('ALTER TABLE kept.log ALTER COLUMN note TYPE varchar; ALTER TABLE kept.log ALTER COLUMN note SET DEFAULT 1'),
	('ALTER TABLE kept.log RENAME TO log2; ALTER TABLE kept.log2 RENAME COLUMN note TO remark; ALTER TABLE kept.log2 SET SCHEMA public'),
	('ALTER TABLE single SET UNLOGGED'),
	('ALTER TABLE single OWNER TO regress_lease_owner'),
	('ALTER TABLE free DETACH PARTITION unfenced_part; DROP TABLE unfenced; ALTER TABLE unfenced_part ADD COLUMN x int'),
	('CREATE TRIGGER other BEFORE INSERT ON single FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger(); DROP TRIGGER other ON single');

-- The matrix, at every isolation level; one answer stands for all where they agree.
CREATE TABLE answer (level text, n int, kind text, answer text);
CREATE PROCEDURE fill(now bigint, old bigint, other bigint) LANGUAGE plpgsql AS $$
DECLARE
	level text;
BEGIN
	FOREACH level IN ARRAY '{read committed,repeatable read,serializable}'::text[] LOOP
		PERFORM set_config('default_transaction_isolation', level, false);
		COMMIT;
		INSERT INTO answer
			SELECT level, c.n, k.kind, try(c.sql, k.lease, k.epoch) FROM command c,
				(VALUES ('none', NULL, NULL), ('valid', 'ddl', now), ('superseded', 'ddl', old), ('foreign', 'ddl/other', other))
					AS k(kind, lease, epoch);
	END LOOP;
	RESET default_transaction_isolation;
	COMMIT;
END;
$$;
CALL fill(:now, :old, :other);
CREATE FUNCTION cell(n int, kind text) RETURNS text LANGUAGE sql STABLE AS $$
	SELECT CASE WHEN count(*) <> 3 THEN 'missing'
			WHEN count(DISTINCT answer) = 1 THEN min(answer)
			ELSE string_agg(answer, '/' ORDER BY level) END
		FROM answer a WHERE a.n = cell.n AND a.kind = cell.kind
$$;
SELECT cell(n, 'none') AS none, cell(n, 'valid') AS valid, cell(n, 'superseded') AS superseded, cell(n, 'foreign') AS foreign, sql
	FROM command ORDER BY n;

-- From PostgreSQL 17 on the expression of a generated column can be changed, which computes
-- it anew, and in 18 such a column may be virtual.  On earlier servers the answers are given.
SELECT current_setting('server_version_num')::int >= 170000 AS settable,
	CASE WHEN current_setting('server_version_num')::int >= 180000 THEN 'VIRTUAL' ELSE 'STORED' END AS kind \gset
CREATE TABLE computed (id int, twice int GENERATED ALWAYS AS (id * 2) STORED, lease text GENERATED ALWAYS AS ('ddl') :kind) PARTITION BY RANGE (id);
CREATE TABLE computed_1 PARTITION OF computed DEFAULT;
INSERT INTO computed VALUES (1);
SELECT lease.protect('computed', 'ddl', lease_column => 'lease');
SELECT CASE WHEN :'settable' THEN try(sql) ELSE 'LS004' END AS none, CASE WHEN :'settable' THEN try(sql, 'ddl', :now) ELSE 'ok' END AS valid, sql
	FROM (VALUES ('ALTER TABLE computed ALTER COLUMN twice SET EXPRESSION AS (id * 3)'),
		('ALTER TABLE computed_1 ALTER COLUMN twice SET EXPRESSION AS (id * 3)'),
		($$ALTER TABLE computed ALTER COLUMN lease SET EXPRESSION AS ('ddl/other')$$),
		($$ALTER TABLE computed_1 ALTER COLUMN id SET STATISTICS 10, ALTER COLUMN lease SET EXPRESSION AS ('ddl/other')$$)) AS c(sql);
BEGIN;
SELECT lease.guard('ddl', :now) \g /dev/null
DROP TABLE computed;
COMMIT;
-- It may become an ordinary column, as it stands, and be given a type that is stored alike.
CREATE TABLE computed (id int, note text GENERATED ALWAYS AS ('x') STORED, size int DEFAULT 1);
SELECT lease.protect('computed', 'ddl');
ALTER TABLE computed ALTER COLUMN note TYPE varchar;
ALTER TABLE computed ALTER COLUMN note DROP EXPRESSION, ALTER COLUMN size SET DEFAULT 2;
ALTER TABLE computed ALTER COLUMN size DROP DEFAULT;
BEGIN;
SELECT lease.guard('ddl', :now) \g /dev/null
DROP TABLE computed;
COMMIT;

-- Nothing of it has changed anything.
SELECT rel, ddl, row_trigger, truncate_trigger FROM lease.fence WHERE lease = 'ddl' ORDER BY rel::text COLLATE "C";
SELECT (SELECT count(*) FROM kept.log), (SELECT count(*) FROM mother);

--
-- In a transaction of its own: the check at COMMIT follows, and the start-up option serves
--

BEGIN;
SELECT lease.guard('ddl', :now) \g /dev/null
ALTER TABLE kept.log DETACH PARTITION kept.log_1;
SELECT lease.release('ddl', :now);
COMMIT;
SELECT count(*) FROM kept.log;
SELECT epoch AS now FROM lease.acquire('ddl', 'c') \gset
DROP TABLE kept.log_1;

-- A guard in a savepoint that was rolled back does not count.
BEGIN;
SAVEPOINT s;
SELECT lease.guard('ddl', :now) \g /dev/null
ROLLBACK TO s;
DROP TABLE kept.log;
ROLLBACK;

-- What a savepoint had attached is forgotten with it.
BEGIN;
SELECT lease.guard('ddl', :now) \g /dev/null
SAVEPOINT s;
CREATE TABLE kept.log_3 PARTITION OF kept.log FOR VALUES FROM (20) TO (30);
ROLLBACK TO s;
CREATE TABLE kept.log_4 PARTITION OF kept.log FOR VALUES FROM (30) TO (40);
COMMIT;
SELECT truncate_trigger FROM lease.fence WHERE rel = 'kept.log_4'::regclass;

-- DETACH CONCURRENTLY commits in the middle, so it is refused before it begins; it cannot
-- be called in a transaction block, but with a token of the connection.
ALTER TABLE kept.log DETACH PARTITION kept.log_4 CONCURRENTLY;
SELECT inhrelid::regclass FROM pg_inherits WHERE inhdetachpending;
SELECT 'options=''-c lease.token=ddl=' || :old || '''' AS connection \gset
\c -reuse-previous=on :"connection"
SET client_min_messages = warning;
ALTER TABLE kept.log DETACH PARTITION kept.log_4 CONCURRENTLY;
DROP TABLE kept.log;
SELECT 'options=''-c lease.token=ddl=' || :now || '''' AS connection \gset
\c -reuse-previous=on :"connection"
SET client_min_messages = warning;
ALTER TABLE kept.log DETACH PARTITION kept.log_4 CONCURRENTLY;
SELECT count(*) AS left_behind FROM pg_trigger WHERE tgrelid = 'kept.log_4'::regclass;
DROP TABLE kept.log_4, kept.log_2_a;
\c -reuse-previous=on "options=''"
SET client_min_messages = warning;

--
-- Who may not make a trigger may make a partition
--

GRANT ALL ON SCHEMA public TO regress_lease_owner;
CREATE TABLE theirs (id int) PARTITION BY LIST (id);
SELECT lease.protect('theirs', 'ddl');
ALTER TABLE theirs OWNER TO regress_lease_owner;
SET ROLE regress_lease_owner;
CREATE TABLE theirs_1 PARTITION OF theirs FOR VALUES IN (1);
TRUNCATE theirs_1;
DROP TABLE theirs_1;
RESET ROLE;
SELECT rel, truncate_trigger FROM lease.fence WHERE rel::text LIKE 'theirs%' ORDER BY rel::text COLLATE "C";

--
-- Others than the owner, who may make triggers, must not replace ours
--

CREATE ROLE regress_lease_trigger;
GRANT USAGE, CREATE ON SCHEMA public TO regress_lease_trigger;
CREATE TABLE plain_fence (id int);
SELECT lease.protect('plain_fence', 'ddl', ddl => false);
GRANT INSERT, TRIGGER, TRUNCATE ON single, plain_fence TO regress_lease_trigger;
SET ROLE regress_lease_trigger;
CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE OR REPLACE TRIGGER lease_fence AFTER INSERT ON single FOR EACH ROW WHEN (false) EXECUTE FUNCTION nothing();
CREATE OR REPLACE TRIGGER lease_fence_truncate BEFORE TRUNCATE ON single EXECUTE FUNCTION nothing();
CREATE OR REPLACE TRIGGER lease_fence AFTER INSERT ON plain_fence FOR EACH ROW WHEN (false) EXECUTE FUNCTION nothing();
-- One of their own is another condition, and takes nothing away.
CREATE OR REPLACE TRIGGER theirs AFTER INSERT ON single FOR EACH ROW WHEN (false) EXECUTE FUNCTION nothing();
CREATE OR REPLACE TRIGGER theirs AFTER INSERT ON single FOR EACH ROW WHEN (false) EXECUTE FUNCTION nothing();
RESET ROLE;
GRANT USAGE ON SCHEMA lease TO regress_lease_trigger;
SET ROLE regress_lease_trigger;
CREATE TRIGGER zzz AFTER INSERT ON single FOR EACH ROW WHEN (false) EXECUTE FUNCTION lease.fence('ddl/other');
CREATE TRIGGER aaa AFTER INSERT ON single FOR EACH ROW WHEN (false) EXECUTE FUNCTION lease.fence('ddl/other');
CREATE OR REPLACE TRIGGER lease_fence AFTER INSERT ON single FOR EACH ROW WHEN (false) EXECUTE FUNCTION lease.fence('ddl');
RESET ROLE;
SELECT try('DROP TABLE single') AS none, try('DROP TABLE single', 'ddl/other', :other) AS foreign, try('ALTER TABLE single DROP COLUMN id', 'ddl', :now) AS valid;
CREATE TABLE single_child () INHERITS (single);
SELECT * FROM lease.fence WHERE rel IN ('single'::regclass, 'single_child'::regclass, 'plain_fence'::regclass) ORDER BY rel::text;
-- The owner may replace one in a guarded transaction, or without "ddl"; then it is gone.
CREATE OR REPLACE TRIGGER lease_fence AFTER INSERT ON single FOR EACH ROW WHEN (false) EXECUTE FUNCTION nothing();
BEGIN;
SELECT lease.guard('ddl', :now) \g /dev/null
CREATE OR REPLACE TRIGGER lease_fence AFTER INSERT OR UPDATE OR DELETE ON single FOR EACH ROW WHEN (false) EXECUTE FUNCTION lease.fence('ddl', 'ddl');
SELECT row_trigger FROM lease.fence WHERE rel = 'single'::regclass;
ROLLBACK;
CREATE OR REPLACE TRIGGER lease_fence AFTER INSERT ON plain_fence FOR EACH ROW WHEN (false) EXECUTE FUNCTION nothing();
SELECT row_trigger, truncate_trigger FROM lease.fence WHERE rel = 'plain_fence'::regclass;
DROP TABLE plain_fence;
BEGIN;
SELECT lease.guard('ddl', :now) \g /dev/null
DROP TABLE single_child;
COMMIT;

-- DDL inside of DDL: an event trigger that makes tables does not distract from what the
-- command is.
CREATE FUNCTION make_tables() RETURNS event_trigger LANGUAGE plpgsql AS
	'BEGIN CREATE TEMPORARY TABLE IF NOT EXISTS seen (what text); INSERT INTO seen VALUES (tg_tag); END';
CREATE EVENT TRIGGER z_make_tables ON ddl_command_start WHEN TAG IN ('CREATE TRIGGER', 'DROP EXTENSION', 'DROP TABLE') EXECUTE FUNCTION make_tables();
SET ROLE regress_lease_trigger;
CREATE OR REPLACE TRIGGER lease_fence AFTER INSERT ON single FOR EACH ROW WHEN (false) EXECUTE FUNCTION nothing();
RESET ROLE;
DROP TABLE single;
BEGIN;
DROP EXTENSION lease CASCADE;
ROLLBACK;
BEGIN;
SAVEPOINT s;
DROP EXTENSION lease CASCADE;
ROLLBACK TO s;
DROP TABLE single;
ROLLBACK;
DROP EVENT TRIGGER z_make_tables;
DROP FUNCTION make_tables;

-- A trigger that calls our function and asks nobody is no fence: a child gets one.  Nor is
-- one for each statement, which does not fire for a child whose parent is written to.
-- One that asks at INSERT only has to go first.
CREATE TABLE asks_nobody (id int, note text);
CREATE TRIGGER t AFTER INSERT OR UPDATE OR DELETE ON asks_nobody FOR EACH ROW WHEN (false) EXECUTE FUNCTION lease.fence('ddl', 'ddl');
CREATE TABLE asks_sometimes (id int, note text);
CREATE TRIGGER t AFTER INSERT ON asks_sometimes FOR EACH ROW WHEN (lease.refuses('ddl') OR new.id = 1) EXECUTE FUNCTION lease.fence('ddl', 'ddl');
CREATE TABLE asks_and (id int, note text);
CREATE TRIGGER t AFTER INSERT OR UPDATE OR DELETE ON asks_and FOR EACH ROW WHEN (lease.refuses('ddl') AND false) EXECUTE FUNCTION lease.fence('ddl', 'ddl');
CREATE TABLE asks_once (id int, note text);
CREATE TRIGGER t AFTER INSERT OR UPDATE OR DELETE ON asks_once FOR EACH STATEMENT WHEN (lease.refuses('ddl')) EXECUTE FUNCTION lease.fence('ddl', 'ddl');
CREATE TABLE asks_other (id int, note text);
CREATE TRIGGER t AFTER INSERT OR UPDATE OR DELETE ON asks_other FOR EACH ROW WHEN (lease.refuses(rel => 'asks_other', lease => 'ddl/other')) EXECUTE FUNCTION lease.fence('ddl', 'ddl');
CREATE TABLE asks_named (id int, note text);
CREATE TRIGGER t AFTER INSERT OR UPDATE OR DELETE ON asks_named FOR EACH ROW WHEN (lease.refuses(rel => 'asks_named', lease => 'ddl')) EXECUTE FUNCTION lease.fence('ddl', 'ddl');
CREATE TABLE asks_user (id int, note text);
CREATE TRIGGER t AFTER INSERT OR UPDATE OR DELETE ON asks_user FOR EACH ROW WHEN (lease.refuses(current_user::text)) EXECUTE FUNCTION lease.fence('ddl', 'ddl', '', 'note');
SELECT rel, row_trigger, truncate_trigger FROM lease.fence WHERE rel::text LIKE 'asks%' ORDER BY rel::text COLLATE "C";
BEGIN;
SELECT lease.guard('ddl', :now) \g /dev/null
ALTER TABLE asks_nobody INHERIT mother;
ALTER TABLE asks_and INHERIT mother;
ALTER TABLE asks_once INHERIT mother;
ALTER TABLE asks_other INHERIT mother;
ALTER TABLE asks_user INHERIT mother;
SAVEPOINT s;
ALTER TABLE asks_sometimes INHERIT mother;
ROLLBACK TO s;
COMMIT;
SELECT rel, row_trigger FROM lease.fence WHERE rel::text LIKE 'asks%' ORDER BY rel::text;
SELECT c, try(format('INSERT INTO %s VALUES (1)', c)), try(format('INSERT INTO %s VALUES (1); UPDATE mother SET note = NULL', c)), try(format('INSERT INTO %s VALUES (1)', c), 'ddl', :now) AS valid
	FROM unnest('{asks_nobody,asks_and,asks_once}'::text[]) c;
BEGIN;
SELECT lease.guard('ddl', :now) \g /dev/null
DROP TABLE asks_nobody, asks_sometimes, asks_and, asks_once, asks_other, asks_named, asks_user;
COMMIT;

-- A fence by hand that asks for another lease, for some columns only, or for a lease that
-- it does not name, is not the table's.
CREATE TABLE easy (id int, note text) PARTITION BY LIST (id);
SELECT lease.protect('easy', 'ddl', ddl => false);
CREATE TABLE easy_1 (id int, note text);
CREATE TRIGGER mine BEFORE TRUNCATE ON easy_1 EXECUTE FUNCTION lease.fence('ddl/other');
ALTER TABLE easy ATTACH PARTITION easy_1 FOR VALUES IN (1);
SELECT * FROM lease.fence WHERE rel::text LIKE 'easy%' ORDER BY rel::text;
SELECT try('TRUNCATE easy_1'), try('TRUNCATE easy_1', 'ddl/other', :other) AS other, try('TRUNCATE easy_1', 'ddl', :now) AS own;
DROP TABLE easy;
CREATE TABLE easy (id int, note text);
CREATE TRIGGER lease_fence AFTER INSERT OR DELETE OR UPDATE OF note ON easy FOR EACH ROW WHEN (lease.refuses('ddl')) EXECUTE FUNCTION lease.fence('ddl');
SELECT rel, row_trigger FROM lease.fence WHERE rel = 'easy'::regclass;
CREATE OR REPLACE TRIGGER lease_fence AFTER INSERT OR DELETE OR UPDATE ON easy FOR EACH ROW WHEN (lease.refuses('ddl/other')) EXECUTE FUNCTION lease.fence('ddl');
SELECT rel, row_trigger FROM lease.fence WHERE rel = 'easy'::regclass;
CREATE OR REPLACE TRIGGER lease_fence AFTER INSERT OR DELETE OR UPDATE ON easy FOR EACH ROW EXECUTE FUNCTION lease.fence('ddl');
SELECT rel, row_trigger FROM lease.fence WHERE rel = 'easy'::regclass;
DROP TABLE easy;

-- A table into which a statement is writing is not empty, even if it is new and no page
-- of it is filled yet.
CREATE TABLE filling (id int, note text) PARTITION BY RANGE (id);
SELECT lease.protect('filling', 'ddl');
CREATE FUNCTION attach_it() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	IF NOT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = 'filling_1'::regclass) THEN
		ALTER TABLE filling ATTACH PARTITION filling_1 FOR VALUES FROM (0) TO (10);
	END IF;
	RETURN 1;
END;
$$;
BEGIN;
CREATE TABLE filling_1 (id int, note text);
INSERT INTO filling_1 SELECT attach_it() FROM generate_series(1, 3);
ROLLBACK;
BEGIN;
CREATE TABLE filling_1 (id int, note text);
WITH w AS (INSERT INTO filling_1 SELECT attach_it() RETURNING id) SELECT count(*) FROM w;
ROLLBACK;
BEGIN;
SELECT lease.guard('ddl', :now) \g /dev/null
DROP TABLE filling;
COMMIT;
DROP FUNCTION attach_it;

-- Triggers of other fences may stand beside that of protect(), and are asked as well; but
-- later children and partitions are fenced as protect() has done it.
CREATE TABLE twice (id int, note text);
SELECT lease.protect('twice', 'ddl');
CREATE TRIGGER aa AFTER INSERT OR UPDATE OR DELETE ON twice FOR EACH ROW WHEN (lease.refuses('ddl')) EXECUTE FUNCTION lease.fence('ddl');
CREATE TRIGGER bb AFTER INSERT OR UPDATE OR DELETE ON twice FOR EACH ROW WHEN (lease.refuses('ddl/other')) EXECUTE FUNCTION lease.fence('ddl/other', 'ddl');
CREATE TABLE twice_child () INHERITS (twice);
SELECT rel, lease, ddl, row_trigger, truncate_trigger FROM lease.fence WHERE rel::text LIKE 'twice%' ORDER BY rel::text COLLATE "C";
SELECT try('INSERT INTO twice VALUES (1)', 'ddl', :now), try('INSERT INTO twice_child VALUES (1)', 'ddl', :now), try('INSERT INTO twice_child VALUES (1)', 'ddl/other', :other);
BEGIN;
SELECT lease.guard('ddl', :now), lease.guard('ddl/other', :other) \g /dev/null
DROP TABLE twice, twice_child;
COMMIT;
CREATE TABLE above (id int) PARTITION BY LIST (id);
CREATE TABLE above_1 PARTITION OF above DEFAULT PARTITION BY LIST (id);
SELECT lease.protect('above_1', 'ddl');
CREATE TRIGGER aaa AFTER INSERT OR UPDATE OR DELETE ON above FOR EACH ROW WHEN (lease.refuses('ddl/other')) EXECUTE FUNCTION lease.fence('ddl/other');
CREATE TABLE above_1_1 PARTITION OF above_1 DEFAULT;
SELECT rel, lease, ddl, row_trigger, truncate_trigger, inherited FROM lease.fence WHERE rel::text LIKE 'above%' ORDER BY rel::text COLLATE "C";
SELECT try('TRUNCATE above_1_1', 'ddl/other', :other), try('TRUNCATE above_1_1', 'ddl', :now);
BEGIN;
SELECT lease.guard('ddl', :now) \g /dev/null
DROP TABLE above;
COMMIT;
CREATE VIEW a_view AS SELECT * FROM mother;
CREATE TRIGGER instead INSTEAD OF INSERT OR UPDATE OR DELETE ON a_view FOR EACH ROW EXECUTE FUNCTION lease.fence('ddl');
SELECT count(*) FROM lease.fence WHERE rel = 'a_view'::regclass;
DROP VIEW a_view;

-- A child must not be fenced less than its parents are.
CREATE TABLE strict (id int);
SELECT lease.protect('strict', 'ddl', always => true);
CREATE TABLE lax (id int);
SELECT lease.protect('lax', 'ddl', ddl => false);
CREATE TABLE weak (id int);
SELECT lease.protect('weak', 'ddl', ddl => false, always => true);
CREATE TABLE loose_child (id int);
SELECT lease.protect('loose_child', 'ddl');
SELECT try('ALTER TABLE weak INHERIT strict', 'ddl', :now), try('ALTER TABLE loose_child INHERIT strict', 'ddl', :now), try('ALTER TABLE strict INHERIT lax', 'ddl', :now);
CREATE TABLE of_both () INHERITS (strict, lax);
CREATE TABLE of_both_too () INHERITS (lax, strict);
SELECT rel, ddl, row_trigger, truncate_trigger FROM lease.fence WHERE rel::text LIKE 'of_both%' ORDER BY rel::text COLLATE "C";
BEGIN;
SELECT lease.guard('ddl', :now) \g /dev/null
DROP TABLE strict, lax, weak, loose_child, of_both, of_both_too;
COMMIT;

-- Another trigger beside a fence takes nothing from it.
CREATE TABLE two_fences (id int, note text);
SELECT lease.protect('two_fences', 'ddl');
CREATE TRIGGER zz AFTER UPDATE OF note ON two_fences FOR EACH ROW WHEN (lease.refuses('ddl')) EXECUTE FUNCTION lease.fence('ddl', 'ddl');
BEGIN;
SELECT lease.guard('ddl', :now) \g /dev/null
ALTER TABLE two_fences INHERIT mother;
SELECT rel, row_trigger FROM lease.fence WHERE rel = 'two_fences'::regclass;
DROP TABLE two_fences;
COMMIT;

-- DDL inside of DDL that is rolled back takes along what it has done for the command around it.
CREATE TABLE audit (what text UNIQUE);
CREATE FUNCTION write_audit() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
	ALTER TABLE public.audit ADD COLUMN IF NOT EXISTS at timestamptz;
	INSERT INTO public.audit VALUES (tg_tag);
EXCEPTION WHEN unique_violation THEN
	NULL;
END;
$$;
CREATE EVENT TRIGGER audit ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION write_audit();
CREATE TABLE child_1 () INHERITS (mother);
CREATE TABLE child_2 () INHERITS (mother);
DROP EVENT TRIGGER audit;
SELECT rel, row_trigger, truncate_trigger FROM lease.fence WHERE rel::text LIKE 'child%' ORDER BY rel::text;
BEGIN;
SELECT lease.guard('ddl', :now) \g /dev/null
DROP TABLE child_1, child_2, audit;
COMMIT;
DROP FUNCTION write_audit;

-- What a savepoint had attached is forgotten with it, and nothing is locked for it.
CREATE TABLE unfit (id int, note text CHECK (note <> ''));
BEGIN;
SELECT lease.guard('ddl', :now) \g /dev/null
SAVEPOINT s;
ALTER TABLE unfit INHERIT mother;
SELECT count(*) AS fences FROM lease.fence WHERE rel = 'unfit'::regclass;
ROLLBACK TO s;
CREATE TABLE unrelated (id int);
SELECT count(*) AS fences FROM lease.fence WHERE rel = 'unfit'::regclass;
SELECT count(*) AS locks FROM pg_locks WHERE relation = 'unfit'::regclass AND mode = 'ShareRowExclusiveLock';
ROLLBACK;
DROP TABLE unfit;

--
-- A trigger that was renamed, and one that was made by hand
--

CREATE TABLE renamed (id int) PARTITION BY LIST (id);
CREATE TABLE renamed_1 PARTITION OF renamed FOR VALUES IN (1);
SELECT lease.protect('renamed', 'ddl');
ALTER TRIGGER lease_fence_truncate ON renamed_1 RENAME TO "another ""name""";
BEGIN;
SELECT lease.guard('ddl', :now) \g /dev/null
ALTER TABLE renamed DETACH PARTITION renamed_1;
COMMIT;
SELECT count(*) AS left_behind FROM pg_trigger WHERE tgrelid = 'renamed_1'::regclass;
CREATE TABLE by_hand (id int);
CREATE TRIGGER lease_fence_truncate BEFORE TRUNCATE ON by_hand EXECUTE FUNCTION lease.fence('ddl');
CREATE TABLE free_parent (id int);
ALTER TABLE by_hand INHERIT free_parent;
TRUNCATE by_hand;
ALTER TABLE by_hand NO INHERIT free_parent;
TRUNCATE by_hand;

-- A table with a fence of its own is not attached under another one.
CREATE TABLE own (id int);
SELECT lease.protect('own', 'ddl');
BEGIN;
SELECT lease.guard('ddl', :now) \g /dev/null
ALTER TABLE renamed ATTACH PARTITION own FOR VALUES IN (2);
ROLLBACK;
BEGIN;
SELECT lease.guard('ddl', :now) \g /dev/null
DROP TABLE renamed, renamed_1, own;
COMMIT;

-- A column in the key of a partition cannot be the epoch's, whenever that is made.
CREATE TABLE keyed (id int, epoch bigint) PARTITION BY RANGE ((epoch + 1));
SELECT lease.protect('keyed', 'ddl', epoch_column => 'epoch');
DROP TABLE keyed;
CREATE TABLE keyed (id int, epoch bigint) PARTITION BY RANGE (id);
SELECT lease.protect('keyed', 'ddl', epoch_column => 'epoch', ddl => false);
CREATE TABLE keyed_1 PARTITION OF keyed FOR VALUES FROM (0) TO (10) PARTITION BY LIST (epoch);
DROP TABLE keyed, by_hand, free_parent;

-- Names that have to be quoted, or look like the separators in the catalog.
CREATE TABLE "q ""'" ("a\000b" bigint, "l \ 'x" text);
SELECT lease.protect('"q ""''"', 'ddl', 'a\000b', 'l \ ''x', ddl => false);
SELECT * FROM lease.fence WHERE epoch_column LIKE 'a%';
INSERT INTO "q ""'" VALUES (:now, 'ddl');
INSERT INTO "q ""'" VALUES (NULL, 'ddl');
DROP TABLE "q ""'";

--
-- Without "ddl"
--

BEGIN;
SELECT lease.guard('ddl', :now) \g /dev/null
SELECT lease.unprotect('mother') \g /dev/null
COMMIT;
SELECT lease.protect('mother', 'ddl', ddl => false) \g /dev/null
TRUNCATE answer, command RESTART IDENTITY;
INSERT INTO command (sql) VALUES
	('ALTER TABLE girl INHERIT mother'),
	('ALTER TABLE daughter NO INHERIT mother'),
	('DROP TABLE daughter'),
	('ALTER TABLE mother DROP COLUMN note'),
	('ALTER TABLE mother ALTER COLUMN id TYPE bigint'),
	('DROP TRIGGER lease_fence ON mother'),
	($$SELECT lease.unprotect('mother')$$),
	('DROP TABLE mother CASCADE');
SELECT try(sql) AS none, sql FROM command ORDER BY n;

--
-- A lease that was dropped, and the end of all fences
--

SELECT lease.drop('ddl');
SELECT lease.drop('ddl', force => true);
DROP TABLE single;
SELECT lease.create('ddl');
SELECT epoch AS now FROM lease.acquire('ddl', 'd') \gset
BEGIN;
SELECT lease.guard('ddl', :now) \g /dev/null
DROP TABLE single;
COMMIT;

-- DROP EXTENSION is decided by its owner, and not by a guard; a transaction that was
-- guarded does not survive it.
DROP EXTENSION lease;
BEGIN;
SELECT lease.guard('ddl', :now) \g /dev/null
DROP EXTENSION lease CASCADE;
COMMIT;
SELECT count(*) > 0 AS still_there FROM lease.fence;
BEGIN;
DROP EXTENSION lease CASCADE;
DROP TABLE mother CASCADE;
COMMIT;
SELECT count(*) AS triggers FROM pg_trigger WHERE tgname LIKE 'lease%';
-- In a session that knew the extension, DDL is as it ever was.
CREATE TABLE plain (id int) PARTITION BY LIST (id);
CREATE TABLE plain_1 PARTITION OF plain FOR VALUES IN (1);
ALTER TABLE plain DETACH PARTITION plain_1;
DROP TABLE plain, plain_1;

DROP SCHEMA kept CASCADE;
DROP TABLE owned, stamped, free, more, girl, unfenced, theirs, command, answer;
DROP PROCEDURE fill;
DROP FUNCTION try, cell;
DROP FUNCTION nothing;
DROP OWNED BY regress_lease_owner, regress_lease_trigger;
DROP ROLE regress_lease_owner, regress_lease_trigger;
CREATE EXTENSION lease;
