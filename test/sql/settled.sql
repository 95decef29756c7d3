--
-- settled: statements that begin in a transaction which is guarded already.
--
-- The fence's trigger is left out of them, because its condition would be false for every
-- row.  That must hold for this statement only, and only for what the guard stands for.
-- Probes G4.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;

SELECT lease.create('st', ttl => '1 hour'), lease.create('st/other', ttl => '1 hour') \g /dev/null
SELECT epoch AS now FROM lease.acquire('st', 'a') \gset
SELECT epoch AS other FROM lease.acquire('st/other', 'a') \gset
SELECT set_config('st.now', :'now', false) \g /dev/null

CREATE TABLE work (id int PRIMARY KEY, note text);
INSERT INTO work VALUES (0);
SELECT lease.protect('work', 'st', ddl => false);
PREPARE put (int) AS INSERT INTO work VALUES ($1);
PREPARE remove AS DELETE FROM work;

-- A guard in a savepoint that is rolled back, with plans that have been used before it,
-- under it and after it.
BEGIN;
SAVEPOINT s;
SELECT lease.guard('st', :now) \g /dev/null
EXECUTE put(1);
EXECUTE remove;
ROLLBACK TO s;
EXECUTE put(2);
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT lease.guard('st', :now) \g /dev/null
EXECUTE remove;
ROLLBACK TO s;
EXECUTE remove;
ROLLBACK;

-- The same in a function, whose plans are kept, and in the loop over what a statement
-- returns: it has ended when the loop begins.
CREATE FUNCTION write_in_block() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..2 LOOP
		BEGIN
			IF i = 1 THEN
				PERFORM lease.guard('st', current_setting('st.now')::bigint);
			END IF;
			INSERT INTO work VALUES (i);
			RAISE 'undone %', i;
		EXCEPTION WHEN raise_exception THEN
			NULL;
		END;
	END LOOP;
END;
$$;
SELECT write_in_block();
CREATE FUNCTION write_in_loop() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	r record;
BEGIN
	BEGIN
		PERFORM lease.guard('st', current_setting('st.now')::bigint);
		FOR r IN INSERT INTO work SELECT i FROM generate_series(10, 15) i RETURNING id LOOP
			IF r.id = 12 THEN
				RAISE 'in the middle';
			END IF;
		END LOOP;
	EXCEPTION WHEN raise_exception THEN
		NULL;
	END;
	FOR r IN INSERT INTO work SELECT i FROM generate_series(20, 25) i RETURNING id LOOP
		NULL;
	END LOOP;
END;
$$;
SELECT write_in_loop();

-- A guard that the statement itself makes comes too late for that, and is enough.
BEGIN;
WITH g AS MATERIALIZED (SELECT lease.guard('st', :now)) INSERT INTO work SELECT 3 FROM g;
DELETE FROM work WHERE id = 3;
COMMIT;
-- One that it makes and undoes is not.
CREATE FUNCTION guard_and_undo() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		PERFORM lease.guard('st', current_setting('st.now')::bigint);
		RAISE 'undone';
	EXCEPTION WHEN raise_exception THEN
		RETURN 4;
	END;
END;
$$;
INSERT INTO work SELECT guard_and_undo();

-- Only the triggers of this lease are left out, of an ordinary fence, and no others.
CREATE TABLE log (what text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
	'BEGIN INSERT INTO log VALUES (TG_NAME || '' '' || TG_OP); RETURN NULL; END';
CREATE TRIGGER a_row AFTER INSERT OR UPDATE OR DELETE ON work FOR EACH ROW EXECUTE FUNCTION note();
CREATE TRIGGER z_row AFTER DELETE ON work FOR EACH ROW WHEN (old.id > 0) EXECUTE FUNCTION note();
CREATE TRIGGER z_statement AFTER INSERT ON work FOR EACH STATEMENT EXECUTE FUNCTION note();
CREATE TRIGGER other_lease AFTER UPDATE ON work FOR EACH ROW WHEN (lease.refuses('st/other')) EXECUTE FUNCTION lease.fence('st/other');
BEGIN;
SELECT lease.guard('st', :now) \g /dev/null
INSERT INTO work VALUES (5);
UPDATE work SET note = 'x' WHERE id = 5;
ROLLBACK;
BEGIN;
SELECT lease.guard('st', :now), lease.guard('st/other', :other) \g /dev/null
INSERT INTO work VALUES (5);
UPDATE work SET note = 'x' WHERE id = 5;
DELETE FROM work WHERE id = 5;
SELECT what FROM log;
COMMIT;
DROP TRIGGER other_lease ON work;
DROP TRIGGER a_row ON work;
DROP TRIGGER z_row ON work;
DROP TRIGGER z_statement ON work;
-- A condition that is more than ours is asked for each row.
CREATE TRIGGER more AFTER UPDATE ON work FOR EACH ROW WHEN (lease.refuses('st') OR new.note = 'no') EXECUTE FUNCTION note();
TRUNCATE log;
BEGIN;
SELECT lease.guard('st', :now) \g /dev/null
UPDATE work SET note = 'yes';
UPDATE work SET note = 'no';
SELECT what FROM log;
COMMIT;

-- Next statement, next transaction: nothing of it stays.
BEGIN;
SELECT lease.guard('st', :now) \g /dev/null
EXECUTE put(6);
COMMIT;
EXECUTE put(7);
EXECUTE remove;
UPDATE work SET note = 'x';

-- Partitions, rows that move between them, MERGE, and what cascades
CREATE TABLE tree (id int) PARTITION BY RANGE (id);
CREATE TABLE tree_1 PARTITION OF tree FOR VALUES FROM (0) TO (10);
CREATE TABLE tree_2 PARTITION OF tree FOR VALUES FROM (10) TO (20);
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE child (id int REFERENCES parent ON DELETE CASCADE);
SELECT lease.protect('tree', 'st', ddl => false), lease.protect('child', 'st/other', ddl => false) \g /dev/null
INSERT INTO parent VALUES (1), (2);
PREPARE drop_parents AS DELETE FROM parent WHERE id = $1;
BEGIN;
SELECT lease.guard('st', :now) \g /dev/null
INSERT INTO tree VALUES (1), (11);
UPDATE tree SET id = 12 WHERE id = 1;
MERGE INTO tree USING (VALUES (12), (13)) v(i) ON id = i WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (i);
SELECT tableoid::regclass, id FROM tree ORDER BY id;
SAVEPOINT s;
INSERT INTO child VALUES (1);
ROLLBACK TO s;
SELECT lease.guard('st/other', :other) \g /dev/null
INSERT INTO child VALUES (1), (2);
EXECUTE drop_parents(1);
COMMIT;
EXECUTE drop_parents(2);
SELECT * FROM child;
INSERT INTO tree VALUES (1);
DELETE FROM tree;
UPDATE tree SET id = 3;
MERGE INTO tree USING (VALUES (13)) v(i) ON id = i WHEN MATCHED THEN DELETE;

DROP TABLE work, log, tree, child, parent;
DROP FUNCTION write_in_block, write_in_loop, guard_and_undo, note;
DEALLOCATE ALL;
SELECT lease.drop('st', force => true), lease.drop('st/other', force => true) \g /dev/null
