--
-- row_leases: tables whose rows belong to different leases (lease_column).
--
-- The row names its lease; to move it to another one takes both.  The lease that is given
-- to protect() protects the table as a whole.  Probes G4 and G10.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;

SELECT lease.create('rl/' || n, ttl => '1 hour') FROM unnest('{table,a,b,free}'::text[]) n \g /dev/null
SELECT epoch AS old_a FROM lease.acquire('rl/a', 'x') \gset
SELECT lease.release('rl/a', :old_a) \g /dev/null
SELECT epoch AS a FROM lease.acquire('rl/a', 'y') \gset
SELECT epoch AS b FROM lease.acquire('rl/b', 'x') \gset
SELECT epoch AS t FROM lease.acquire('rl/table', 'x') \gset

-- One table without and one with epochs in its rows.
CREATE TABLE shard (id int PRIMARY KEY, lease text, note text);
CREATE TABLE stamped (id int PRIMARY KEY, lease varchar(64), epoch bigint, note text);
INSERT INTO shard VALUES (1, 'rl/a'), (2, 'rl/b'), (3, 'rl/free');
INSERT INTO stamped VALUES (1, 'rl/a', :a), (2, 'rl/b', :b), (3, 'rl/free', 1), (4, 'rl/a', :old_a), (5, 'rl/b', 9000000000000000000);
SELECT lease.protect('shard', 'rl/table', lease_column => 'lease', ddl => false);
SELECT lease.protect('stamped', 'rl/table', 'epoch', 'lease', ddl => false);
SELECT * FROM lease.fence WHERE lease = 'rl/table' ORDER BY rel::text;

-- try answers with the SQLSTATE of a command under some guards, and undoes what succeeded.
CREATE FUNCTION try(sql text, leases text[], epochs bigint[]) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM lease.guard(n, e) FROM unnest(leases, epochs) AS g(n, e);
	EXECUTE sql;
	RAISE 'undo' USING ERRCODE = 'UNDO0';
EXCEPTION
	WHEN SQLSTATE 'UNDO0' THEN RETURN 'ok';
	WHEN OTHERS THEN RETURN sqlstate;
END;
$$;
CREATE TABLE command (n int GENERATED ALWAYS AS IDENTITY, sql text);
PREPARE results AS SELECT sql,
		try(c, '{}', '{}') AS none,
		try(c, '{rl/a}', ARRAY[:a]) AS a,
		try(c, '{rl/b}', ARRAY[:b]) AS b,
		try(c, '{rl/a,rl/b}', ARRAY[:a, :b]) AS a_and_b,
		try(c, '{rl/table}', ARRAY[:t]) AS of_table,
		try(c, '{rl/a,rl/table}', ARRAY[:old_a, :t]) AS old_a
	FROM command, LATERAL (SELECT replace(replace(replace(sql, 'OLD_A', :'old_a'), 'EPOCH_A', :'a'), 'EPOCH_B', :'b') AS c OFFSET 0) AS q
	ORDER BY n;

INSERT INTO command (sql) VALUES
	($$INSERT INTO shard VALUES (10, 'rl/a')$$),
	($$INSERT INTO shard VALUES (10, 'rl/b')$$),
	($$INSERT INTO shard VALUES (10, 'rl/a'), (11, 'rl/b')$$),
	($$INSERT INTO shard VALUES (10, 'rl/free')$$),
	($$INSERT INTO shard VALUES (10, 'rl/nobody')$$),
	($$INSERT INTO shard VALUES (10, NULL)$$),
	($$INSERT INTO shard VALUES (10)$$),
	($$INSERT INTO shard VALUES (10, '')$$),
	($$INSERT INTO shard VALUES (10, 'rl/a ')$$),
	($$INSERT INTO shard VALUES (10, repeat('x', 1000))$$),
	($$INSERT INTO shard VALUES (10, repeat(U&'\00e4', 1000))$$),
	($$UPDATE shard SET note = 'x' WHERE id = 1$$),
	($$UPDATE shard SET note = 'x' WHERE id = 2$$),
	($$UPDATE shard SET note = 'x' WHERE id < 3$$),
	($$UPDATE shard SET note = 'x'$$),
	($$UPDATE shard SET lease = 'rl/b' WHERE id = 1$$),
	($$UPDATE shard SET lease = 'rl/a' WHERE id = 2$$),
	($$UPDATE shard SET lease = 'rl/free' WHERE id = 1$$),
	($$UPDATE shard SET lease = 'rl/a' WHERE id = 3$$),
	($$UPDATE shard SET lease = NULL WHERE id = 1$$),
	($$DELETE FROM shard WHERE id = 1$$),
	($$DELETE FROM shard WHERE id = 2$$),
	($$DELETE FROM shard$$),
	($$TRUNCATE shard$$),
	($$COPY shard (id, lease) FROM PROGRAM 'echo 10,rl/a; echo 11,rl/b' (FORMAT csv)$$),
	($$INSERT INTO shard VALUES (1, 'rl/a') ON CONFLICT (id) DO UPDATE SET note = 'x'$$),
	($$INSERT INTO shard VALUES (2, 'rl/a') ON CONFLICT (id) DO UPDATE SET note = 'x'$$),
	($$INSERT INTO shard VALUES (1, 'rl/b') ON CONFLICT (id) DO UPDATE SET lease = excluded.lease$$),
	($$MERGE INTO shard USING (VALUES (1), (10)) v(i) ON id = i
		WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (i, 'rl/b')$$);
EXECUTE results;

-- With epochs in the rows: a value that is set is a token of the lease that the row names.
TRUNCATE command RESTART IDENTITY;
INSERT INTO command (sql) VALUES
	($$INSERT INTO stamped VALUES (10, 'rl/a', EPOCH_A)$$),
	($$INSERT INTO stamped VALUES (10, 'rl/a', OLD_A)$$),
	($$INSERT INTO stamped VALUES (10, 'rl/a', EPOCH_B)$$),
	($$INSERT INTO stamped VALUES (10, 'rl/b', EPOCH_A)$$),
	($$INSERT INTO stamped VALUES (10, 'rl/a', EPOCH_A), (11, 'rl/b', EPOCH_B)$$),
	($$INSERT INTO stamped VALUES (10, 'rl/a')$$),
	($$INSERT INTO stamped VALUES (10, 'rl/free', EPOCH_A)$$),
	($$INSERT INTO stamped VALUES (10, 'rl/nobody', EPOCH_A)$$),
	($$INSERT INTO stamped VALUES (10, NULL, EPOCH_A)$$),
	($$UPDATE stamped SET note = 'x' WHERE id = 1$$),
	($$UPDATE stamped SET note = 'x', epoch = EPOCH_A WHERE id = 1$$),
	($$UPDATE stamped SET note = 'x' WHERE id = 4$$),
	($$UPDATE stamped SET note = 'x' WHERE id = 5$$),
	($$UPDATE stamped SET note = 'x', epoch = EPOCH_B WHERE id = 5$$),
	($$UPDATE stamped SET lease = 'rl/b' WHERE id = 1$$),
	($$UPDATE stamped SET lease = 'rl/b', epoch = EPOCH_B WHERE id = 1$$),
	($$UPDATE stamped SET lease = 'rl/b', epoch = EPOCH_A WHERE id = 1$$),
	($$UPDATE stamped SET lease = 'rl/a', epoch = EPOCH_A WHERE id = 2$$),
	($$DELETE FROM stamped WHERE id = 1$$),
	($$DELETE FROM stamped WHERE id = 5$$);
EXECUTE results;

-- A row that moves is stamped with the epoch of the lease that it moves to.
BEGIN;
SELECT lease.guard('rl/a', :a), lease.guard('rl/b', :b) \g /dev/null
UPDATE stamped SET lease = 'rl/b' WHERE id = 1;
SELECT lease, epoch = :b AS of_b FROM stamped WHERE id = 1;
ROLLBACK;

-- A trigger of the user that moves rows behind our back.
CREATE FUNCTION move() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN new.lease := ''rl/b''; RETURN new; END';
CREATE TRIGGER z BEFORE INSERT OR UPDATE ON stamped FOR EACH ROW EXECUTE FUNCTION move();
CREATE TRIGGER z BEFORE INSERT OR UPDATE ON shard FOR EACH ROW EXECUTE FUNCTION move();
TRUNCATE command RESTART IDENTITY;
INSERT INTO command (sql) VALUES
	($$INSERT INTO shard VALUES (10, 'rl/a')$$),
	($$UPDATE shard SET note = 'x' WHERE id = 1$$),
	($$INSERT INTO stamped VALUES (10, 'rl/a', EPOCH_A)$$),
	($$UPDATE stamped SET note = 'x' WHERE id = 1$$);
EXECUTE results;
DROP TRIGGER z ON stamped;
DROP TRIGGER z ON shard;

-- Rows from before the fence that name no lease, or what is no name, are under that of
-- the table; they can be deleted, or given to a lease.
CREATE TABLE before (id int, lease text, epoch bigint);
INSERT INTO before VALUES (1, NULL), (2, 'no name'), (3, 'rl/a');
SELECT lease.protect('before', 'rl/table', 'epoch', 'lease', ddl => false);
TRUNCATE command RESTART IDENTITY;
INSERT INTO command (sql) VALUES
	($$DELETE FROM before WHERE id = 1$$),
	($$DELETE FROM before WHERE id = 2$$),
	($$DELETE FROM before WHERE id = 3$$),
	($$UPDATE before SET lease = 'rl/table' WHERE id = 1$$),
	($$UPDATE before SET lease = 'rl/table' WHERE id = 2$$),
	($$UPDATE before SET id = 4 WHERE id = 1$$),
	($$UPDATE before SET id = 4 WHERE id = 2$$);
EXECUTE results;
DROP TABLE before;

-- Partitioned by lease, a row that moves to another lease also moves to another partition.
CREATE TABLE tree (lease text, id int) PARTITION BY LIST (lease);
CREATE TABLE tree_a PARTITION OF tree FOR VALUES IN ('rl/a');
CREATE TABLE tree_b (id int, lease text);
ALTER TABLE tree ATTACH PARTITION tree_b FOR VALUES IN ('rl/b');
INSERT INTO tree VALUES ('rl/a', 1), ('rl/b', 2);
SELECT lease.protect('tree', 'rl/table', lease_column => 'lease');
CREATE TABLE tree_rest PARTITION OF tree DEFAULT;
TRUNCATE command RESTART IDENTITY;
INSERT INTO command (sql) VALUES
	($$INSERT INTO tree VALUES ('rl/a', 3)$$),
	($$INSERT INTO tree_b VALUES (3, 'rl/b')$$),
	($$INSERT INTO tree VALUES ('rl/free', 3)$$),
	($$UPDATE tree SET id = 4$$),
	($$UPDATE tree SET lease = 'rl/b' WHERE id = 1$$),
	($$DELETE FROM tree$$),
	($$TRUNCATE tree_b$$),
	($$TRUNCATE tree_rest$$),
	($$DROP TABLE tree_a$$),
	($$ALTER TABLE tree DETACH PARTITION tree_a$$);
EXECUTE results;

-- A lease in a generated column is judged as it will stand, also where PostgreSQL 18 and later
-- do not store it.
SELECT CASE WHEN current_setting('server_version_num')::int >= 180000 THEN 'VIRTUAL' ELSE 'STORED' END AS kind \gset
CREATE TABLE computed (id int, lease text GENERATED ALWAYS AS ('rl/' || CASE WHEN id < 10 THEN 'a' ELSE 'b' END) STORED);
CREATE TABLE virtual (id int, lease text GENERATED ALWAYS AS ('rl/' || CASE WHEN id < 10 THEN 'a' ELSE 'b' END) :kind);
INSERT INTO virtual VALUES (2), (12);
SELECT lease.protect('computed', 'rl/table', lease_column => 'lease', ddl => false);
SELECT lease.protect('virtual', 'rl/table', lease_column => 'lease', ddl => false);
TRUNCATE command RESTART IDENTITY;
INSERT INTO command (sql) VALUES
	($$INSERT INTO computed VALUES (1)$$),
	($$INSERT INTO computed VALUES (11)$$),
	($$INSERT INTO computed VALUES (1), (11)$$),
	($$INSERT INTO virtual VALUES (1)$$),
	($$INSERT INTO virtual VALUES (11)$$),
	($$INSERT INTO virtual VALUES (1), (11)$$),
	($$UPDATE virtual SET id = 3 WHERE id = 2$$),
	($$UPDATE virtual SET id = 13 WHERE id = 2$$),
	($$UPDATE virtual SET id = 3 WHERE id = 12$$),
	($$DELETE FROM virtual WHERE id = 2$$),
	($$DELETE FROM virtual$$);
EXECUTE results;

BEGIN;
SELECT lease.guard('rl/table', :t);
DROP TABLE tree;
COMMIT;
DROP TABLE shard, stamped, computed, virtual, command;
DROP FUNCTION try, move;
SELECT lease.drop(name, force => true) FROM lease.status WHERE name LIKE 'rl/%' \g /dev/null
