--
-- row_tokens: tokens that rows carry (epoch_column).
--
-- A statement that sets the column presents the token; what is inherited from the old
-- row, or NULL, presents nothing and is stamped with the epoch of the transaction's
-- guard; a row of a later epoch is out of reach for an earlier one.  Probes G4 and G10.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;

SELECT lease.create('rt', ttl => '1 hour'), lease.create('rt/other', ttl => '1 hour') \g /dev/null
SELECT epoch AS old FROM lease.acquire('rt', 'a') \gset
SELECT lease.release('rt', :old) \g /dev/null
SELECT epoch AS other FROM lease.acquire('rt/other', 'a') \gset
SELECT epoch AS now FROM lease.acquire('rt', 'b') \gset

CREATE TABLE plan (id int PRIMARY KEY, epoch bigint, note text);
SELECT lease.protect('plan', 'rt', epoch_column => 'epoch', ddl => false);
SELECT * FROM lease.fence WHERE lease = 'rt';

-- What a row carries is told as whose epoch it is.
CREATE FUNCTION whose(epoch bigint) RETURNS text LANGUAGE sql AS $$
	SELECT CASE epoch WHEN current_setting('rt.old')::bigint THEN 'old'
		WHEN current_setting('rt.now')::bigint THEN 'now'
		WHEN current_setting('rt.later')::bigint THEN 'later' ELSE epoch::text END
$$;
SELECT set_config('rt.old', :'old', false), set_config('rt.now', :'now', false),
	set_config('rt.later', '9000000000000000000', false) \g /dev/null

-- reset makes the rows as they are before each command: 1 is of the old epoch, 2 of this
-- one, 3 of a later one, 4 of none.
CREATE FUNCTION reset() RETURNS void LANGUAGE plpgsql SET session_replication_role = replica AS $$
BEGIN
	DELETE FROM plan;
	INSERT INTO plan VALUES (1, current_setting('rt.old')::bigint), (2, current_setting('rt.now')::bigint),
		(3, current_setting('rt.later')::bigint), (4, NULL);
END;
$$;

-- try answers with the SQLSTATE of a command, or with the rows as it leaves them, and
-- undoes it.
CREATE FUNCTION try(sql text, guard bigint DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	rows text;
BEGIN
	PERFORM reset();
	IF guard IS NOT NULL THEN
		PERFORM lease.guard('rt', guard);
	END IF;
	EXECUTE sql;
	SELECT string_agg(id || ':' || coalesce(whose(epoch), 'null'), ' ' ORDER BY id) INTO rows FROM plan;
	RAISE 'undo %', rows USING ERRCODE = 'UNDO0';
EXCEPTION
	WHEN SQLSTATE 'UNDO0' THEN RETURN substr(sqlerrm, 6);
	WHEN OTHERS THEN RETURN sqlstate;
END;
$$;

CREATE TABLE command (n int GENERATED ALWAYS AS IDENTITY, sql text);
INSERT INTO command (sql) VALUES
	($$INSERT INTO plan VALUES (5, NOW)$$),
	($$INSERT INTO plan VALUES (5, OLD)$$),
	($$INSERT INTO plan VALUES (5, OTHER)$$),
	($$INSERT INTO plan VALUES (5, 0)$$),
	($$INSERT INTO plan VALUES (5, -1)$$),
	($$INSERT INTO plan VALUES (5, 9223372036854775807)$$),
	($$INSERT INTO plan VALUES (5, NULL)$$),
	($$INSERT INTO plan VALUES (5)$$),
	($$INSERT INTO plan VALUES (5, NOW), (6, NOW), (7, NULL)$$),
	($$INSERT INTO plan VALUES (5, NOW), (6, OLD)$$),
	($$INSERT INTO plan SELECT i, NOW FROM generate_series(5, 7) i$$),
	($$COPY plan (id, epoch) FROM PROGRAM 'echo 5,NOW' (FORMAT csv)$$),
	($$COPY plan (id, epoch) FROM PROGRAM 'echo 5,OLD' (FORMAT csv)$$),
	($$COPY plan (id) FROM PROGRAM 'echo 5' (FORMAT csv)$$),
	($$UPDATE plan SET epoch = NOW WHERE id = 1$$),
	($$UPDATE plan SET epoch = NOW, note = 'x' WHERE id = 2$$),
	($$UPDATE plan SET epoch = NOW WHERE id = 3$$),
	($$UPDATE plan SET epoch = NOW WHERE id = 4$$),
	($$UPDATE plan SET epoch = OLD, note = 'x' WHERE id = 1$$),
	($$UPDATE plan SET epoch = OLD WHERE id = 2$$),
	($$UPDATE plan SET epoch = epoch WHERE id = 2$$),
	($$UPDATE plan SET epoch = epoch WHERE id = 1$$),
	($$UPDATE plan SET epoch = epoch + 1 WHERE id = 2$$),
	($$UPDATE plan SET epoch = NULL WHERE id = 2$$),
	($$UPDATE plan SET epoch = DEFAULT WHERE id = 1$$),
	($$UPDATE plan SET note = 'x' WHERE id = 1$$),
	($$UPDATE plan SET note = 'x' WHERE id = 2$$),
	($$UPDATE plan SET note = 'x' WHERE id = 3$$),
	($$UPDATE plan SET note = 'x' WHERE id = 4$$),
	($$UPDATE plan SET (epoch, note) = (SELECT NOW, 'x') WHERE id = 2$$),
	($$DELETE FROM plan WHERE id = 1$$),
	($$DELETE FROM plan WHERE id = 3$$),
	($$DELETE FROM plan WHERE id = 4$$),
	($$TRUNCATE plan$$),
	($$UPDATE plan SET epoch = NOW WHERE id = 2; DELETE FROM plan WHERE id = 1$$),
	($$INSERT INTO plan VALUES (2, NOW) ON CONFLICT DO NOTHING$$),
	($$INSERT INTO plan VALUES (2, OLD) ON CONFLICT DO NOTHING$$),
	($$INSERT INTO plan VALUES (2, NULL) ON CONFLICT DO NOTHING$$),
	($$INSERT INTO plan VALUES (1, NOW) ON CONFLICT (id) DO UPDATE SET note = 'x'$$),
	($$INSERT INTO plan VALUES (1, NOW) ON CONFLICT (id) DO UPDATE SET epoch = excluded.epoch$$),
	($$INSERT INTO plan VALUES (3, NOW) ON CONFLICT (id) DO UPDATE SET epoch = excluded.epoch$$),
	($$INSERT INTO plan VALUES (1, NOW) ON CONFLICT (id) DO UPDATE SET epoch = plan.epoch$$),
	($$MERGE INTO plan USING (VALUES (2), (5)) v(i) ON id = i
		WHEN MATCHED THEN UPDATE SET note = 'x' WHEN NOT MATCHED THEN INSERT VALUES (i, NOW)$$),
	($$MERGE INTO plan USING (VALUES (5), (2)) v(i) ON id = i
		WHEN MATCHED THEN UPDATE SET epoch = NOW + 0, note = 'x' WHEN NOT MATCHED THEN INSERT VALUES (i, NOW)$$),
	($$MERGE INTO plan USING (VALUES (1)) v(i) ON id = i WHEN MATCHED THEN UPDATE SET epoch = NOW$$),
	($$MERGE INTO plan USING (VALUES (2), (4)) v(i) ON id = i
		WHEN MATCHED AND id = 4 THEN UPDATE SET epoch = NOW WHEN MATCHED THEN UPDATE SET note = 'x'$$),
	($$MERGE INTO plan USING (VALUES (2)) v(i) ON id = i
		WHEN MATCHED AND id = 4 THEN UPDATE SET epoch = NOW WHEN MATCHED THEN UPDATE SET note = 'x'$$),
	($$MERGE INTO plan USING (VALUES (2)) v(i) ON id = i WHEN MATCHED THEN UPDATE SET epoch = NOW, note = 'x'$$),
	($$MERGE INTO plan USING (VALUES (2)) v(i) ON id = i
		WHEN MATCHED AND id = 4 THEN UPDATE SET epoch = NOW WHEN MATCHED THEN UPDATE SET note = 'x', epoch = OLD$$),
	($$MERGE INTO plan USING (VALUES (2)) v(i) ON id = i
		WHEN MATCHED AND id = 4 THEN UPDATE SET epoch = NOW WHEN MATCHED THEN UPDATE SET note = 'x', epoch = NOW$$),
	($$MERGE INTO plan USING (VALUES (1)) v(i) ON id = i WHEN MATCHED THEN DELETE$$),
	($$MERGE INTO plan USING (VALUES (3)) v(i) ON id = i WHEN MATCHED THEN DELETE$$);

-- The answers: with no token but what the statement presents, and under guards.
SELECT replace(replace(sql, E'\n\t\t', ' '), '''', '') AS sql, try(c.sql2) AS alone, try(c.sql2, :now) AS guarded, try(c.sql2, :old) AS guarded_by_old
	FROM command, LATERAL (SELECT replace(replace(replace(sql, 'NOW', :'now'), 'OLD', :'old'), 'OTHER', :'other') AS sql2 OFFSET 0) AS c
	ORDER BY n;

-- From PostgreSQL 17 on a MERGE also changes rows that are not in its source, may be in a WITH,
-- and returns rows.  On earlier servers the answers are given.
SELECT current_setting('server_version_num')::int >= 170000 AS known \gset
CREATE TABLE merges (n int GENERATED ALWAYS AS IDENTITY, alone text, guarded text, sql text);
INSERT INTO merges (alone, guarded, sql) VALUES
	('LS004', '1:old 2:now 3:later 4:null',
		$$MERGE INTO plan USING (VALUES (1), (3), (4)) v(i) ON id = i WHEN NOT MATCHED BY SOURCE THEN UPDATE SET note = 'x'$$),
	('1:old 2:now 3:later 4:null', '1:old 2:now 3:later 4:null',
		$$MERGE INTO plan USING (VALUES (1), (3), (4)) v(i) ON id = i WHEN NOT MATCHED BY SOURCE THEN UPDATE SET note = 'x', epoch = NOW$$),
	('LS001', 'LS001',
		$$MERGE INTO plan USING (VALUES (1), (3), (4)) v(i) ON id = i WHEN NOT MATCHED BY SOURCE THEN UPDATE SET epoch = OLD$$),
	('LS004', '1:old 2:now 3:later 4:null',
		$$MERGE INTO plan USING (VALUES (5)) v(i) ON id = i WHEN MATCHED THEN UPDATE SET epoch = NOW
		WHEN NOT MATCHED BY SOURCE AND id = 2 THEN UPDATE SET note = 'x'$$),
	('LS004', '1:now 2:now 3:later 4:null',
		$$MERGE INTO plan USING (VALUES (1)) v(i) ON id = i WHEN MATCHED THEN UPDATE SET note = 'x'
		WHEN NOT MATCHED BY SOURCE AND id = 2 THEN UPDATE SET epoch = NOW$$),
	('LS004', 'LS001',
		$$MERGE INTO plan USING (VALUES (1), (2), (4)) v(i) ON id = i WHEN NOT MATCHED BY SOURCE THEN DELETE$$),
	('LS004', '1:old 2:now 3:later 4:null',
		$$MERGE INTO plan USING (VALUES (2)) v(i) ON id = i WHEN MATCHED AND id = 4 THEN UPDATE SET epoch = NOW
		WHEN MATCHED THEN UPDATE SET note = 'x' RETURNING merge_action()$$),
	('LS004', '1:old 2:now 3:later 4:null',
		$$WITH w AS (MERGE INTO plan USING (VALUES (2)) v(i) ON id = i WHEN MATCHED AND id = 4 THEN UPDATE SET epoch = NOW
		WHEN MATCHED THEN UPDATE SET note = 'x' RETURNING id) SELECT count(*) FROM w$$),
	('LS004', '1:old 2:now 3:later 4:null',
		$$WITH w AS (MERGE INTO plan USING (VALUES (2)) v(i) ON id = i WHEN MATCHED AND id = 4 THEN UPDATE SET epoch = NOW
		WHEN MATCHED THEN UPDATE SET note = 'x' RETURNING id) SELECT 1$$),
	('1:old 2:now 3:later 4:null', '1:old 2:now 3:later 4:null',
		$$WITH w AS (MERGE INTO plan USING (VALUES (2)) v(i) ON id = i WHEN MATCHED THEN UPDATE SET epoch = NOW RETURNING id) SELECT 1$$);
SELECT replace(replace(sql, E'\n\t\t', ' '), '''', '') AS sql,
	CASE WHEN :'known' THEN try(c.sql2) ELSE alone END AS alone, CASE WHEN :'known' THEN try(c.sql2, :now) ELSE guarded END AS guarded
	FROM merges, LATERAL (SELECT replace(replace(sql, 'NOW', :'now'), 'OLD', :'old') AS sql2 OFFSET 0) AS c
	ORDER BY n;
DROP TABLE merges;

--
-- Without undoing: the token of a row lasts as long as its transaction, and its COMMIT is
-- checked
--

SELECT reset();
BEGIN;
INSERT INTO plan VALUES (5, :now);
UPDATE plan SET note = 'same transaction' WHERE id = 1;
COMMIT;
UPDATE plan SET note = 'next transaction' WHERE id = 1;
SELECT id, whose(epoch), note FROM plan WHERE id IN (1, 5) ORDER BY id;

-- Presented in a savepoint that is rolled back, it is gone.
BEGIN;
SAVEPOINT s;
INSERT INTO plan VALUES (6, :now);
ROLLBACK TO s;
INSERT INTO plan VALUES (6);
ROLLBACK;

-- PREPARE TRANSACTION is refused as for any guard.
BEGIN;
INSERT INTO plan VALUES (6, :now);
PREPARE TRANSACTION 'rt';

-- Statements that are prepared present what they are given each time.
PREPARE put (int, bigint) AS INSERT INTO plan VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET epoch = excluded.epoch, note = 'again';
EXECUTE put(7, :now);
EXECUTE put(7, :now);
EXECUTE put(7, :old);
EXECUTE put(7, NULL);
SELECT whose(epoch), note FROM plan WHERE id = 7;

--
-- In a new connection the library is loaded by the trigger itself
--

\c -
SET client_min_messages = warning;
UPDATE plan SET epoch = :now, note = 'first' WHERE id = 2;
\c -
SET client_min_messages = warning;
MERGE INTO plan USING (VALUES (2)) v(i) ON id = i
	WHEN MATCHED AND id = 4 THEN UPDATE SET epoch = :now WHEN MATCHED THEN UPDATE SET note = 'x';
\c -
SET client_min_messages = warning;
DO $$
BEGIN
	MERGE INTO plan USING (VALUES (2)) v(i) ON id = i
		WHEN MATCHED AND id = 4 THEN UPDATE SET epoch = 1 WHEN MATCHED THEN UPDATE SET note = 'x';
END;
$$;
\c -
SET client_min_messages = warning;
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) MERGE INTO plan USING (VALUES (2)) v(i) ON id = i
	WHEN MATCHED AND id = 4 THEN UPDATE SET epoch = :now WHEN MATCHED THEN UPDATE SET note = 'x';
\c -
SET client_min_messages = warning;
PREPARE m AS MERGE INTO plan USING (VALUES (2)) v(i) ON id = i
	WHEN MATCHED AND id = 4 THEN UPDATE SET epoch = 1 WHEN MATCHED THEN UPDATE SET note = 'x';
EXECUTE m;
-- The first time nobody can tell; the second time it is known to be an UPDATE.
\c -
SET client_min_messages = warning;
DO $$ BEGIN UPDATE plan SET epoch = epoch + 0, note = 'x' WHERE id = 2; END $$;
DO $$ BEGIN UPDATE plan SET epoch = epoch + 0, note = 'x' WHERE id = 2; END $$;
\c -
SET client_min_messages = warning;
INSERT INTO plan VALUES (8, :now);
\c -
SET client_min_messages = warning;
COPY plan (id) FROM stdin;
9
\.

--
-- The start-up option
--

\c -reuse-previous=on "options='-c lease.token=rt=1'"
SET client_min_messages = warning;
SELECT set_config('rt.now', :'now', false), set_config('rt.old', :'old', false), set_config('rt.later', '9000000000000000000', false) \g /dev/null
INSERT INTO plan VALUES (9);
INSERT INTO plan VALUES (9, :now);
DELETE FROM plan WHERE id = 9;
SELECT 'options=''-c lease.token=rt=' || :now || '''' AS connection \gset
\c -reuse-previous=on :"connection"
SET client_min_messages = warning;
SELECT set_config('rt.now', :'now', false), set_config('rt.old', :'old', false), set_config('rt.later', '9000000000000000000', false) \g /dev/null
INSERT INTO plan VALUES (10);
INSERT INTO plan VALUES (11, :old);
UPDATE plan SET note = 'x' WHERE id = 1;
SELECT id, whose(epoch) FROM plan WHERE id IN (1, 9, 10, 11) ORDER BY id;
\c -reuse-previous=on "options=''"
SET client_min_messages = warning;

--
-- Partitions and children: the column wherever it is in them, and rows that move
--

SELECT set_config('rt.now', :'now', false), set_config('rt.old', :'old', false), set_config('rt.later', '9000000000000000000', false) \g /dev/null
CREATE TABLE tree (epoch bigint NOT NULL, id int, note text) PARTITION BY RANGE (id);
CREATE TABLE tree_1 PARTITION OF tree FOR VALUES FROM (0) TO (10);
SELECT lease.protect('tree', 'rt', 'epoch', ddl => false);
CREATE TABLE tree_2 (note text, gone int, id int, epoch bigint NOT NULL);
ALTER TABLE tree_2 DROP COLUMN gone;
ALTER TABLE tree ATTACH PARTITION tree_2 FOR VALUES FROM (10) TO (20);
CREATE TABLE tree_3 PARTITION OF tree FOR VALUES FROM (20) TO (30);
INSERT INTO tree VALUES (:now, 1), (:now, 11), (:now, 21);
INSERT INTO tree (id) VALUES (2);
INSERT INTO tree_2 (id) VALUES (12);
INSERT INTO tree_2 (id, epoch) VALUES (12, :now);
UPDATE tree SET id = id + 10 WHERE id = 1;
UPDATE tree SET id = id + 10, epoch = :now WHERE id = 1;
BEGIN;
SELECT lease.guard('rt', :now);
UPDATE tree SET id = id + 10 WHERE id = 12;
COMMIT;
SELECT tableoid::regclass, id, whose(epoch) FROM tree ORDER BY id, tableoid::regclass::text;
-- A MERGE, where the column has another number in each partition.
MERGE INTO tree USING (VALUES (11)) v(i) ON id = i WHEN MATCHED AND id = 0 THEN UPDATE SET epoch = :now WHEN MATCHED THEN UPDATE SET note = 'x';
MERGE INTO tree USING (VALUES (11)) v(i) ON id = i WHEN MATCHED AND id = 0 THEN UPDATE SET epoch = :now WHEN MATCHED THEN UPDATE SET note = 'y', epoch = :now;
SELECT id, note FROM tree WHERE note IS NOT NULL;

CREATE TABLE mother (id int, epoch bigint);
SELECT lease.protect('mother', 'rt', 'epoch', ddl => false);
CREATE TABLE daughter (extra int) INHERITS (mother);
INSERT INTO daughter VALUES (1);
INSERT INTO daughter VALUES (1, :now);
UPDATE mother SET id = 2;
UPDATE mother SET id = 2, epoch = :now;
SELECT tableoid::regclass, id, whose(epoch) FROM mother;
SELECT rel, epoch_column, row_trigger, truncate_trigger FROM lease.fence WHERE lease = 'rt' ORDER BY rel::text COLLATE "C";

--
-- Triggers of the user around ours
--

CREATE FUNCTION set_epoch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN new.epoch := TG_ARGV[0]; RETURN new; END';
CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';

-- Before ours: what it sets in an INSERT is presented, in an UPDATE it is not.
SELECT reset();
SELECT format('CREATE TRIGGER a BEFORE INSERT OR UPDATE ON plan FOR EACH ROW EXECUTE FUNCTION set_epoch(%L)', :now) AS create_trigger \gset
:create_trigger;
INSERT INTO plan VALUES (5);
UPDATE plan SET note = 'x' WHERE id = 2;
DROP TRIGGER a ON plan;
SELECT format('CREATE TRIGGER a BEFORE INSERT OR UPDATE ON plan FOR EACH ROW EXECUTE FUNCTION set_epoch(%L)', :old) AS create_trigger \gset
:create_trigger;
INSERT INTO plan VALUES (6, :now);
BEGIN;
SELECT lease.guard('rt', :now);
UPDATE plan SET note = 'x' WHERE id = 2;
SELECT id, whose(epoch), note FROM plan WHERE id IN (2, 5, 6);
COMMIT;
DROP TRIGGER a ON plan;

-- After ours: what it puts there is no token, so the row is refused at last.
SELECT format('CREATE TRIGGER z BEFORE INSERT OR UPDATE ON plan FOR EACH ROW EXECUTE FUNCTION set_epoch(%L)', :old) AS create_trigger \gset
:create_trigger;
INSERT INTO plan VALUES (6, :now);
UPDATE plan SET epoch = :now WHERE id = 2;
DROP TRIGGER z ON plan;
CREATE TRIGGER z BEFORE INSERT OR UPDATE ON plan FOR EACH ROW EXECUTE FUNCTION set_epoch();
INSERT INTO plan VALUES (6, :now);
DROP TRIGGER z ON plan;

-- A row that a trigger drops is not written, and needs no token.
CREATE TRIGGER a BEFORE INSERT OR UPDATE OR DELETE ON plan FOR EACH ROW EXECUTE FUNCTION skip();
INSERT INTO plan VALUES (6);
UPDATE plan SET note = 'x' WHERE id = 1;
DELETE FROM plan;
DROP TRIGGER a ON plan;

-- Without the trigger that stamps, only a guard and the epoch itself will do.
ALTER TABLE plan DISABLE TRIGGER lease_stamp;
INSERT INTO plan VALUES (6, :now);
INSERT INTO plan VALUES (6);
BEGIN;
SELECT lease.guard('rt', :now);
INSERT INTO plan VALUES (6, :now);
INSERT INTO plan VALUES (7);
ROLLBACK;
ALTER TABLE plan ENABLE TRIGGER lease_stamp;

-- A column that is renamed takes its checks along; until the fence is built again, no row
-- can be stamped.
ALTER TABLE plan RENAME COLUMN epoch TO token;
INSERT INTO plan VALUES (6, :now);
DELETE FROM plan WHERE id = 2;
BEGIN;
SELECT lease.guard('rt', :now);
INSERT INTO plan VALUES (6, :now);
ROLLBACK;
SELECT lease.unprotect('plan');
SELECT lease.protect('plan', 'rt', 'token', ddl => false);
INSERT INTO plan VALUES (6, :now);

DROP TABLE plan, tree, mother, daughter, command;
DROP FUNCTION try, reset, whose, set_epoch, skip;
SELECT lease.drop('rt', force => true), lease.drop('rt/other', force => true) \g /dev/null
