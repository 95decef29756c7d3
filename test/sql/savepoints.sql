--
-- savepoints: a guard that was made in a savepoint goes with it.
--
-- Probes G3 and G4 in every shape of transaction.  When a savepoint is rolled back, the
-- guards that were made in it are forgotten, and so is whatever has been concluded from
-- them, wherever that is remembered: a cached conclusion that outlives its guard lets a
-- stale write through.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
RESET client_min_messages;

SELECT lease.create('sp', ttl => '1 hour'), lease.create('sp/other', ttl => '1 hour') \g /dev/null
SELECT epoch FROM lease.acquire('sp', 'a') \gset
SELECT epoch AS other FROM lease.acquire('sp/other', 'a') \gset
CREATE TABLE guarded (x text);
CREATE TABLE other (x text);
SELECT lease.protect('guarded', 'sp', ddl => false), lease.protect('other', 'sp/other', ddl => false) \g /dev/null

-- Who acts under a grant shows in pg_locks, in classes of its own: one of the grant, and
-- one of the lease.
CREATE VIEW presence AS
	SELECT count(*) FILTER (WHERE objsubid = 27412) AS presence, count(*) FILTER (WHERE objsubid = 27419) AS guarded FROM pg_locks
		WHERE pid = pg_backend_pid() AND locktype = 'advisory';

--
-- Rolled back, it is forgotten
--

BEGIN;
SAVEPOINT s;
SELECT lease.guard('sp', :epoch);
INSERT INTO guarded VALUES ('in the savepoint');
SELECT * FROM presence;
ROLLBACK TO s;
SELECT * FROM presence;
INSERT INTO guarded VALUES ('after it');
ROLLBACK;

-- It can be made again,
BEGIN;
SAVEPOINT s;
SELECT lease.guard('sp', :epoch);
ROLLBACK TO s;
SELECT lease.guard('sp', :epoch);
INSERT INTO guarded VALUES ('guarded again');
COMMIT;

-- and one that was made before the savepoint stays, whatever happens in it.
BEGIN;
SELECT lease.guard('sp', :epoch);
SAVEPOINT s;
SELECT lease.guard('sp', :epoch);
SELECT lease.guard('sp/other', :other);
INSERT INTO guarded VALUES ('undone');
SELECT * FROM presence;
ROLLBACK TO s;
SELECT * FROM presence;
INSERT INTO guarded VALUES ('guarded before');
INSERT INTO other VALUES ('not guarded any more');
ROLLBACK TO s;
INSERT INTO guarded VALUES ('still guarded');
COMMIT;

--
-- Released, it is kept
--

BEGIN;
SAVEPOINT s;
SELECT lease.guard('sp', :epoch);
RELEASE s;
INSERT INTO guarded VALUES ('released');
COMMIT;

-- but only as long as the savepoint around it.
BEGIN;
SAVEPOINT a;
SAVEPOINT b;
SAVEPOINT c;
SELECT lease.guard('sp', :epoch);
RELEASE c;
INSERT INTO guarded VALUES ('in b');
RELEASE b;
INSERT INTO guarded VALUES ('in a');
ROLLBACK TO a;
INSERT INTO guarded VALUES ('in none');
ROLLBACK;

-- Several guards at several levels: each goes with its own.
BEGIN;
SELECT lease.guard('sp/other', :other);
SAVEPOINT a;
SAVEPOINT b;
SELECT lease.guard('sp', :epoch);
ROLLBACK TO b;
INSERT INTO other VALUES ('outer');
SAVEPOINT c;
SELECT lease.guard('sp', :epoch);
RELEASE a;
INSERT INTO other VALUES ('outer');
INSERT INTO guarded VALUES ('inner, released');
COMMIT;

SELECT * FROM guarded ORDER BY x;
SELECT * FROM other ORDER BY x;
TRUNCATE guarded;
BEGIN;
SELECT lease.guard('sp', :epoch), lease.guard('sp/other', :other);
TRUNCATE guarded, other;
COMMIT;

--
-- The check at COMMIT is made for those that are left
--

-- The guard that is forgotten does not fail it, although its grant is over.
BEGIN;
SAVEPOINT s;
SELECT lease.guard('sp/other', :other);
ROLLBACK TO s;
SELECT lease.revoke('sp/other') = :other AS revoked;
SELECT lease.guard('sp', :epoch);
INSERT INTO guarded VALUES ('committed');
COMMIT;
SELECT epoch AS other FROM lease.acquire('sp/other', 'a') \gset

-- The one that was released does.
BEGIN;
SAVEPOINT s;
SELECT lease.guard('sp/other', :other);
RELEASE s;
SELECT lease.revoke('sp/other') = :other AS revoked;
CREATE TABLE not_created ();
COMMIT;
SELECT to_regclass('not_created');
SELECT lease.holds('sp/other', :other);

--
-- The same statement again
--

-- A prepared statement with a plan that is kept.
PREPARE insert_it (text) AS INSERT INTO guarded VALUES ($1);
SET plan_cache_mode = force_generic_plan;
BEGIN;
SAVEPOINT s;
SELECT lease.guard('sp', :epoch);
EXECUTE insert_it('prepared, in the savepoint');
EXECUTE insert_it('prepared, in the savepoint');
ROLLBACK TO s;
EXECUTE insert_it('prepared, after it');
ROLLBACK;
BEGIN;
EXECUTE insert_it('prepared, in another transaction');
ROLLBACK;
RESET plan_cache_mode;

-- The condition of the fence in a cursor: one execution of one query, which has found
-- in the savepoint that the transaction is guarded, and goes on after it.
BEGIN;
DECLARE c CURSOR FOR SELECT i, lease.refuses('sp') FROM generate_series(1, 5) i;
SAVEPOINT s;
SELECT lease.guard('sp', :epoch);
FETCH 2 FROM c;
ROLLBACK TO s;
FETCH 1 FROM c;
ROLLBACK;
-- With a guard of another lease in its place, too.
BEGIN;
DECLARE c CURSOR FOR SELECT i, lease.refuses('sp') FROM generate_series(1, 5) i;
SAVEPOINT s;
SELECT lease.guard('sp', :epoch);
FETCH 2 FROM c;
ROLLBACK TO s;
SELECT lease.guard('sp/other', :other);
FETCH 1 FROM c;
ROLLBACK;
-- The savepoint is released: the cursor may go on.
BEGIN;
DECLARE c CURSOR FOR SELECT i, lease.refuses('sp') FROM generate_series(1, 5) i;
SAVEPOINT s;
SELECT lease.guard('sp', :epoch);
FETCH 2 FROM c;
RELEASE s;
FETCH 2 FROM c;
COMMIT;
-- A cursor WITH HOLD is run to its end at COMMIT, in the guarded transaction.
BEGIN;
SELECT lease.guard('sp', :epoch);
DECLARE c CURSOR WITH HOLD FOR SELECT i, lease.refuses('sp') FROM generate_series(1, 3) i;
FETCH 1 FROM c;
COMMIT;
FETCH 2 FROM c;
CLOSE c;

-- A PL/pgSQL function, whose expressions stay prepared for the whole transaction.
CREATE FUNCTION write_in_loop(epoch bigint) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	refused boolean;
BEGIN
	FOR i IN 1..4 LOOP
		BEGIN
			IF i % 2 = 1 THEN
				PERFORM lease.guard('sp', epoch);
			END IF;
			refused := lease.refuses('sp');
			INSERT INTO guarded VALUES ('in a loop');
			RETURN NEXT i || ' admitted';
			RAISE 'undo' USING ERRCODE = 'UNDO0';
		EXCEPTION
			WHEN SQLSTATE 'UNDO0' THEN NULL;
			WHEN OTHERS THEN RETURN NEXT i || ' ' || sqlstate;
		END;
	END LOOP;
END;
$$;
SELECT write_in_loop(:epoch);

-- A query that writes, and whose function makes and loses guards while it runs.  The
-- first row is admitted by a guard that stays, since its statement is in the same
-- savepoint as the row; after another guard was lost, it is looked up again.
CREATE FUNCTION guard_and_lose(i int, epoch bigint, other bigint) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	IF i = 1 THEN
		PERFORM lease.guard('sp', epoch);
	END IF;
	BEGIN
		PERFORM lease.guard('sp', epoch);
		PERFORM lease.guard('sp/other', other);
		RAISE 'undo' USING ERRCODE = 'UNDO0';
	EXCEPTION WHEN SQLSTATE 'UNDO0' THEN
		NULL;
	END;
	RETURN 'row ' || i;
END;
$$;
BEGIN;
INSERT INTO guarded SELECT guard_and_lose(i, :epoch, :other) FROM generate_series(1, 3) i;
ROLLBACK;
BEGIN;
INSERT INTO guarded SELECT guard_and_lose(i, :epoch, :other) FROM generate_series(2, 3) i;
ROLLBACK;

-- A guard that a BEFORE trigger of the row itself makes counts: the fence looks at the
-- row as it will stand.
CREATE FUNCTION guard_it() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM lease.guard('sp', new.x::bigint);
	RETURN new;
END;
$$;
CREATE TRIGGER guard_it BEFORE INSERT ON guarded FOR EACH ROW WHEN (new.x ~ '^[0-9]+$') EXECUTE FUNCTION guard_it();
INSERT INTO guarded VALUES (:epoch);
DROP TRIGGER guard_it ON guarded;

--
-- Tokens of the connection
--

-- They guard at the first protected write; if that is undone, the next one guards again.
SELECT 'options=''-c lease.token=sp=' || :epoch || '''' AS connection \gset
\c -reuse-previous=on :"connection"
BEGIN;
SAVEPOINT s;
INSERT INTO guarded VALUES ('undone');
SELECT * FROM presence;
ROLLBACK TO s;
SELECT * FROM presence;
INSERT INTO guarded VALUES ('by token');
SELECT * FROM presence;
COMMIT;
-- And are refused then, if the grant has ended in between.
BEGIN;
SAVEPOINT s;
INSERT INTO guarded VALUES ('undone');
ROLLBACK TO s;
SELECT lease.revoke('sp') = :epoch AS revoked;
INSERT INTO guarded VALUES ('stale');
ROLLBACK;
\c -reuse-previous=on "options=''"

--
-- What was changed in a savepoint
--

-- A grant that is rolled back is gone, with its lock: the lease can be acquired in the
-- same transaction, by somebody else.
BEGIN;
SELECT lease.release('sp', :epoch);
SAVEPOINT s;
SELECT outcome FROM lease.acquire('sp', 'b');
SELECT lease.drop('sp/other', force => true);
ROLLBACK TO s;
SELECT count(*) AS fence_locks FROM pg_locks
	WHERE pid = pg_backend_pid() AND locktype = 'advisory' AND objsubid = 27411;
SELECT lease.holds('sp/other', :other);
SELECT outcome FROM lease.acquire('sp', 'c');
ROLLBACK;
SELECT lease.holds('sp', :epoch);

-- A release that is rolled back has not happened.
BEGIN;
SELECT lease.guard('sp', :epoch);
SAVEPOINT s;
SELECT lease.release('sp', :epoch);
ROLLBACK TO s;
INSERT INTO guarded VALUES ('not released');
COMMIT;
SELECT lease.holds('sp', :epoch);

SELECT * FROM guarded WHERE x !~ '^[0-9]' ORDER BY x;
DROP VIEW presence;
DROP TABLE guarded, other;
DROP FUNCTION write_in_loop, guard_and_lose, guard_it;
SELECT lease.drop('sp', force => true), lease.drop('sp/other', force => true) \g /dev/null
