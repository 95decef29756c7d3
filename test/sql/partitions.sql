--
-- partitions: fences around partitioned tables and inheritance trees.
--
-- Probes G4 through every partition: addressed directly, through each level above it,
-- as the source and the target of a row that moves, and made after the fence.  What
-- DDL does to partitions has a test of its own, ddl.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;

SELECT lease.create('tree', ttl => '1 hour'), lease.create('other', ttl => '1 hour') \g /dev/null
SELECT epoch FROM lease.acquire('tree', 'a') \gset

-- try answers with the SQLSTATE of a command, and undoes what succeeded.
CREATE FUNCTION try(sql text, epoch bigint DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	IF epoch IS NOT NULL THEN
		PERFORM lease.guard('tree', epoch);
	END IF;
	EXECUTE sql;
	RAISE 'undo' USING ERRCODE = 'UNDO0';
EXCEPTION
	WHEN SQLSTATE 'UNDO0' THEN RETURN 'ok';
	WHEN OTHERS THEN RETURN sqlstate;
END;
$$;
-- Each command with no token, and in a guarded transaction.
CREATE TABLE command (n int GENERATED ALWAYS AS IDENTITY, sql text);
PREPARE results (bigint) AS SELECT sql, try(sql) AS none, try(sql, $1) AS guarded FROM command ORDER BY n;

--
-- Two levels, a default partition, and a partition with its columns in another order
--

CREATE TABLE root (region text, id int, note text) PARTITION BY LIST (region);
CREATE TABLE north PARTITION OF root FOR VALUES IN ('n') PARTITION BY RANGE (id);
CREATE TABLE north_1 PARTITION OF north FOR VALUES FROM (0) TO (100);
CREATE TABLE north_2 (note text, id int NOT NULL, region text);
ALTER TABLE north ATTACH PARTITION north_2 FOR VALUES FROM (100) TO (200);
CREATE TABLE south PARTITION OF root FOR VALUES IN ('s');
CREATE TABLE rest PARTITION OF root DEFAULT;
INSERT INTO root VALUES ('n', 1), ('n', 101), ('s', 1), ('x', 1);

SELECT lease.protect('root', 'tree');
SELECT * FROM lease.fence WHERE lease = 'tree' ORDER BY rel::text COLLATE "C";

INSERT INTO command (sql) VALUES
	($$INSERT INTO root VALUES ('n', 2)$$),
	($$INSERT INTO root VALUES ('n', 102)$$),
	($$INSERT INTO root VALUES ('s', 2)$$),
	($$INSERT INTO root VALUES ('y', 2)$$),
	($$INSERT INTO north VALUES ('n', 2)$$),
	($$INSERT INTO north_1 VALUES ('n', 2)$$),
	($$INSERT INTO north_2 (region, id) VALUES ('n', 102)$$),
	($$INSERT INTO south VALUES ('s', 2)$$),
	($$INSERT INTO rest VALUES ('y', 2)$$),
	($$UPDATE root SET note = 'x' WHERE region = 's'$$),
	($$UPDATE root SET note = 'x'$$),
	($$UPDATE north SET note = 'x' WHERE id > 100$$),
	($$UPDATE north_2 SET note = 'x'$$),
	($$UPDATE rest SET note = 'x'$$),
	($$UPDATE north SET id = id + 100 WHERE id = 1$$),
	($$UPDATE root SET region = 's' WHERE region = 'n'$$),
	($$UPDATE root SET region = 'n' WHERE region = 'x'$$),
	($$DELETE FROM root$$),
	($$DELETE FROM north WHERE id = 101$$),
	($$DELETE FROM north_1$$),
	($$DELETE FROM ONLY south$$),
	($$MERGE INTO root USING (VALUES ('s', 1), ('s', 2)) v(r, i) ON region = r AND id = i
		WHEN MATCHED THEN UPDATE SET note = 'x' WHEN NOT MATCHED THEN INSERT VALUES (r, i)$$),
	($$COPY root (region, id) FROM PROGRAM 'echo n,3; echo s,3' (FORMAT csv)$$),
	($$COPY north_1 (region, id) FROM PROGRAM 'echo n,3' (FORMAT csv)$$),
	($$TRUNCATE root$$),
	($$TRUNCATE north$$),
	($$TRUNCATE north_1$$),
	($$TRUNCATE rest$$),
	($$TRUNCATE south, north_2$$),
	($$DELETE FROM root WHERE region = 'none'$$);
EXECUTE results(:epoch);
SELECT tableoid::regclass, * FROM root ORDER BY region, id;

-- Under a guard rows arrive, change and move, whatever the order of their columns.
BEGIN;
SELECT lease.guard('tree', :epoch);
INSERT INTO root VALUES ('n', 103);
UPDATE north_2 SET note = 'moved', id = 104 WHERE id = 103;
UPDATE root SET region = 's' WHERE id = 104;
COMMIT;
SELECT tableoid::regclass, * FROM root WHERE id = 104;

--
-- Partitions that come later
--

-- Made, attached, attached with partitions of its own, and below another level: rows
-- are protected from the first on, also against TRUNCATE.
CREATE TABLE north_3 PARTITION OF north FOR VALUES FROM (200) TO (300);
CREATE TABLE west (region text, id int, note text);
INSERT INTO west VALUES ('w', 1);
CREATE TABLE far (region text, id int, note text) PARTITION BY RANGE (id);
CREATE TABLE far_1 PARTITION OF far FOR VALUES FROM (0) TO (100);
BEGIN;
SELECT lease.guard('tree', :epoch);
ALTER TABLE root ATTACH PARTITION west FOR VALUES IN ('w');
ALTER TABLE root ATTACH PARTITION far FOR VALUES IN ('f');
COMMIT;
CREATE TABLE east PARTITION OF root FOR VALUES IN ('e') PARTITION BY HASH (id);
CREATE TABLE east_0 PARTITION OF east FOR VALUES WITH (MODULUS 1, REMAINDER 0);
CREATE SCHEMA made_with
	CREATE TABLE south_west PARTITION OF public.root FOR VALUES IN ('sw');
TRUNCATE command RESTART IDENTITY;
INSERT INTO command (sql) VALUES
	($$INSERT INTO root VALUES ('n', 201)$$),
	($$INSERT INTO north_3 VALUES ('n', 201)$$),
	($$UPDATE west SET note = 'x'$$),
	($$UPDATE root SET note = 'x' WHERE region = 'w'$$),
	($$DELETE FROM west$$),
	($$INSERT INTO root VALUES ('e', 1)$$),
	($$INSERT INTO east VALUES ('e', 1)$$),
	($$INSERT INTO east_0 VALUES ('e', 1)$$),
	($$COPY east_0 (region, id) FROM PROGRAM 'echo e,3' (FORMAT csv)$$),
	($$UPDATE root SET region = 'e' WHERE region = 'w'$$),
	($$INSERT INTO far VALUES ('f', 1)$$),
	($$INSERT INTO far_1 VALUES ('f', 1)$$),
	($$INSERT INTO made_with.south_west VALUES ('sw', 1)$$),
	($$TRUNCATE root$$),
	($$TRUNCATE north_3$$),
	($$TRUNCATE west$$),
	($$TRUNCATE far$$),
	($$TRUNCATE far_1$$),
	($$TRUNCATE east$$),
	($$TRUNCATE east_0$$),
	($$TRUNCATE made_with.south_west$$);
EXECUTE results(:epoch);
SELECT rel, row_trigger, truncate_trigger, inherited FROM lease.fence WHERE lease = 'tree' ORDER BY rel::text COLLATE "C";

-- A partition that leaves takes its rows along, out of the fence.
BEGIN;
SELECT lease.guard('tree', :epoch);
ALTER TABLE root DETACH PARTITION west;
ALTER TABLE root DETACH PARTITION far;
DROP TABLE made_with.south_west;
COMMIT;
DROP SCHEMA made_with;
SELECT try('INSERT INTO west VALUES (''w'', 2)'), try('TRUNCATE west'), try('TRUNCATE far_1');
SELECT count(*) AS left_behind FROM pg_trigger WHERE tgrelid IN ('west'::regclass, 'far'::regclass, 'far_1'::regclass);
DROP TABLE west, far;

--
-- A fence stands around the whole tree, or around one branch
--

-- A partition's fence is the tree's.
SELECT lease.unprotect('north');
SELECT lease.unprotect('north_3');
SELECT lease.protect('south', 'other');
SELECT lease.protect('north', 'tree');

-- Unprotect removes all of it, also from partitions that came later.
BEGIN;
SELECT lease.guard('tree', :epoch);
SELECT lease.unprotect('root');
COMMIT;
SELECT count(*) AS fences FROM lease.fence WHERE lease = 'tree';
SELECT count(*) AS triggers FROM pg_trigger WHERE tgname LIKE 'lease%' AND tgrelid <> ALL ('{lease.event,lease.pruned,lease.acknowledgement,lease.record}'::regclass[]);
SELECT sql, try(sql) FROM command WHERE sql NOT LIKE '%west%' ORDER BY n;

-- A single partition, or a branch, can be protected by itself; what does not arrive
-- there is free.
SELECT lease.protect('north', 'tree', ddl => false);
SELECT rel, inherited FROM lease.fence WHERE lease = 'tree' ORDER BY rel::text COLLATE "C";
TRUNCATE command RESTART IDENTITY;
INSERT INTO command (sql) VALUES
	($$INSERT INTO root VALUES ('n', 2)$$),
	($$INSERT INTO north_2 (region, id) VALUES ('n', 102)$$),
	($$INSERT INTO root VALUES ('s', 2)$$),
	($$UPDATE root SET region = 'n' WHERE region = 's'$$),
	($$UPDATE root SET region = 's' WHERE region = 'n'$$),
	($$UPDATE root SET note = 'x' WHERE region = 's'$$),
	($$DELETE FROM root$$),
	($$TRUNCATE root$$),
	($$TRUNCATE south$$);
EXECUTE results(:epoch);
-- Then the tree as a whole cannot be, before that fence is removed.
SELECT lease.protect('root', 'other');
SELECT count(*) AS triggers FROM pg_trigger WHERE tgrelid = 'root'::regclass;
SELECT lease.unprotect('north');
SELECT lease.protect('root', 'other', ddl => false);
SELECT try($$INSERT INTO north_1 VALUES ('n', 2)$$) AS none, try($$INSERT INTO north_1 VALUES ('n', 2)$$, :epoch) AS guarded_by_another_lease;
SELECT lease.unprotect('root');

-- Always: also what replication applies, in every partition.
SELECT lease.protect('root', 'tree', always => true);
CREATE TABLE later PARTITION OF root FOR VALUES IN ('l');
SELECT rel, row_trigger FROM lease.fence WHERE lease = 'tree' ORDER BY rel::text COLLATE "C";
SET session_replication_role = replica;
TRUNCATE command RESTART IDENTITY;
INSERT INTO command (sql) VALUES
	($$INSERT INTO root VALUES ('n', 2)$$),
	($$INSERT INTO north_1 VALUES ('n', 2)$$),
	($$INSERT INTO later VALUES ('l', 2)$$),
	($$TRUNCATE north_1$$),
	($$TRUNCATE root$$);
EXECUTE results(:epoch);
RESET session_replication_role;
BEGIN;
SELECT lease.guard('tree', :epoch);
DROP TABLE root;
COMMIT;

-- A partitioned table without partitions; and one with a foreign partition.
CREATE TABLE root (id int) PARTITION BY RANGE (id);
SELECT lease.protect('root', 'tree', ddl => false);
CREATE TABLE first PARTITION OF root FOR VALUES FROM (0) TO (100);
SELECT try('INSERT INTO root VALUES (1)') AS none, try('INSERT INTO root VALUES (1)', :epoch) AS guarded;
CREATE FOREIGN DATA WRAPPER lease_test_wrapper;
CREATE SERVER lease_test_server FOREIGN DATA WRAPPER lease_test_wrapper;
-- Before PostgreSQL 16 it cannot have a TRUNCATE trigger, and is refused.  The answers,
-- the triggers that are there then or a SQLSTATE, are told if they are not as they should.
CREATE FUNCTION triggers(sql text, epoch bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	found text;
BEGIN
	PERFORM lease.guard('tree', epoch);
	EXECUTE sql;
	SELECT string_agg(format('%s %s', tgrelid::regclass, tgname), ', ' ORDER BY tgrelid::regclass::text COLLATE "C", tgname COLLATE "C")
		INTO found FROM pg_trigger WHERE tgname LIKE 'lease%' AND tgrelid <> ALL ('{lease.event,lease.pruned,lease.acknowledgement,lease.record}'::regclass[]) AND tgrelid <> 'first'::regclass;
	RAISE 'undo %', found USING ERRCODE = 'UNDO0';
EXCEPTION
	WHEN SQLSTATE 'UNDO0' THEN RETURN substr(sqlerrm, 6);
	WHEN OTHERS THEN RETURN sqlstate;
END;
$$;
CREATE FUNCTION judge(answer text, expected text) RETURNS text LANGUAGE sql AS $$
	SELECT CASE WHEN answer = CASE WHEN current_setting('server_version_num')::int >= 160000 THEN expected ELSE '42809' END
		THEN 'as expected' ELSE answer END
$$;
SELECT judge(triggers('CREATE FOREIGN TABLE far PARTITION OF root FOR VALUES FROM (100) TO (200) SERVER lease_test_server', :epoch),
	'far lease_fence, far lease_fence_truncate, root lease_fence, root lease_fence_truncate');
SELECT lease.unprotect('root');
CREATE FOREIGN TABLE far PARTITION OF root FOR VALUES FROM (100) TO (200) SERVER lease_test_server;
SELECT judge(triggers($$SELECT lease.protect('root', 'tree')$$, :epoch),
	'far lease_fence, far lease_fence_truncate, root lease_fence, root lease_fence_truncate');
SELECT count(*) AS left_behind FROM pg_trigger WHERE tgname LIKE 'lease%' AND tgrelid <> ALL ('{lease.event,lease.pruned,lease.acknowledgement,lease.record}'::regclass[]);
DROP FOREIGN DATA WRAPPER lease_test_wrapper CASCADE;
DROP TABLE root;
DROP FUNCTION triggers, judge;

--
-- Inheritance
--

CREATE TABLE mother (id int, note text);
CREATE TABLE daughter (extra int) INHERITS (mother);
CREATE TABLE granddaughter () INHERITS (daughter);
INSERT INTO mother VALUES (1);
INSERT INTO daughter VALUES (2);
INSERT INTO granddaughter VALUES (3);
SELECT lease.protect('mother', 'tree');
SELECT * FROM lease.fence WHERE lease = 'tree' ORDER BY rel::text COLLATE "C";
TRUNCATE command RESTART IDENTITY;
INSERT INTO command (sql) VALUES
	($$INSERT INTO mother VALUES (4)$$),
	($$INSERT INTO daughter VALUES (4)$$),
	($$INSERT INTO granddaughter VALUES (4)$$),
	($$UPDATE mother SET note = 'x' WHERE id = 3$$),
	($$UPDATE ONLY mother SET note = 'x'$$),
	($$DELETE FROM daughter$$),
	($$TRUNCATE granddaughter$$),
	($$TRUNCATE mother$$),
	($$TRUNCATE ONLY mother$$);
EXECUTE results(:epoch);

-- Children that come later are fenced like their mother, and so are theirs.
CREATE TABLE late_daughter (extra int) INHERITS (mother);
CREATE TABLE adopted (id int, note text);
CREATE TABLE adopted_child () INHERITS (adopted);
INSERT INTO adopted VALUES (5);
BEGIN;
SELECT lease.guard('tree', :epoch);
ALTER TABLE adopted INHERIT mother;
COMMIT;
CREATE TABLE late_granddaughter () INHERITS (late_daughter);
CREATE TABLE likeness (LIKE mother INCLUDING ALL);
SELECT rel, row_trigger, truncate_trigger, inherited, ddl FROM lease.fence WHERE lease = 'tree' ORDER BY rel::text COLLATE "C";
TRUNCATE command RESTART IDENTITY;
INSERT INTO command (sql) VALUES
	($$INSERT INTO late_daughter VALUES (4)$$),
	($$INSERT INTO late_granddaughter VALUES (4)$$),
	($$UPDATE adopted SET note = 'x'$$),
	($$UPDATE mother SET note = 'x' WHERE id = 5$$),
	($$INSERT INTO adopted_child VALUES (4)$$),
	($$COPY late_granddaughter (id) FROM PROGRAM 'echo 4'$$),
	($$TRUNCATE late_daughter$$),
	($$TRUNCATE ONLY late_granddaughter$$),
	($$TRUNCATE adopted_child$$),
	($$INSERT INTO likeness VALUES (4)$$);
EXECUTE results(:epoch);

-- Here each table has a fence of its own, also when it leaves.
BEGIN;
SELECT lease.guard('tree', :epoch);
ALTER TABLE adopted NO INHERIT mother;
COMMIT;
SELECT try('INSERT INTO adopted VALUES (6)'), try('INSERT INTO adopted_child VALUES (6)');
BEGIN;
SELECT lease.guard('tree', :epoch);
SELECT lease.unprotect('adopted');
SELECT lease.unprotect('granddaughter');
COMMIT;
SELECT try('INSERT INTO granddaughter VALUES (4)'), try('INSERT INTO daughter VALUES (4)');
BEGIN;
SELECT lease.guard('tree', :epoch);
SELECT lease.unprotect('mother');
COMMIT;
SELECT count(*) AS fences FROM lease.fence WHERE lease = 'tree';

-- Two mothers: the daughter is fenced once, by one lease.
CREATE TABLE father (id int);
ALTER TABLE granddaughter INHERIT father;
SELECT lease.protect('mother', 'tree', ddl => false);
SELECT lease.protect('father', 'tree', ddl => false);
CREATE TABLE stranger (id int);
SELECT lease.protect('stranger', 'other', ddl => false);
CREATE TABLE of_both () INHERITS (mother, stranger);
ALTER TABLE late_daughter INHERIT stranger;
SELECT rel FROM lease.fence WHERE lease = 'tree' ORDER BY rel::text COLLATE "C";

-- Temporary children are nobody else's business, and not fenced.
CREATE TEMPORARY TABLE passing () INHERITS (mother);
INSERT INTO passing VALUES (7);
SELECT lease.unprotect('mother');
SELECT lease.protect('mother', 'tree');
SELECT count(*) FROM lease.fence WHERE rel = 'passing'::regclass;
CREATE TRIGGER by_hand BEFORE TRUNCATE ON passing EXECUTE FUNCTION lease.fence('other', 'ddl');
DISCARD TEMP;
CREATE TEMPORARY TABLE passing () INHERITS (mother) ON COMMIT DROP;
BEGIN;
SELECT lease.guard('tree', :epoch);
SELECT lease.unprotect('mother');
COMMIT;
SELECT lease.protect('mother', 'tree', ddl => false);

DROP TABLE mother, daughter, granddaughter, late_daughter, late_granddaughter, father, stranger, adopted, adopted_child, likeness, command CASCADE;
DROP FUNCTION try;
SELECT lease.drop('tree', force => true), lease.drop('other') \g /dev/null
