--
-- commit: the second check of a guard, inside COMMIT.
--
-- Probes G3: a guarded transaction commits only if its epoch is the current one of the
-- lease and the grant is live then.  Here the transaction itself, or the clock, ends the
-- grant; that another session does is shown by the isolation tests.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
RESET client_min_messages;

SELECT lease.create('c', ttl => '1 hour'), lease.create('c/2', ttl => '1 hour') \g /dev/null
CREATE TABLE guarded (x text);
SELECT lease.protect('guarded', 'c', ddl => false);
SELECT epoch FROM lease.acquire('c', 'a') \gset
SELECT epoch AS second FROM lease.acquire('c/2', 'a') \gset

-- What this session holds in the lock classes of leases.
CREATE VIEW lease_lock AS
	SELECT CASE objsubid WHEN 27411 THEN 'fence' WHEN 27412 THEN 'presence' WHEN 27419 THEN 'guarded' ELSE objsubid::text END AS class, mode, count(*)
		FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'
		GROUP BY 1, 2 ORDER BY 1;

-- Live, current: committed.  Before COMMIT the transaction holds nothing that anybody
-- would have to wait for, and after it nothing at all.
BEGIN;
SELECT lease.guard('c', :epoch);
INSERT INTO guarded VALUES ('live');
SELECT * FROM lease_lock;
COMMIT;
SELECT * FROM lease_lock;
SELECT * FROM guarded;

--
-- The grant is over at COMMIT
--

-- Its time is over.  The writes since then were still admitted by the guard, but not
-- one of the transaction arrives.
BEGIN;
SELECT lease.guard('c', :epoch);
INSERT INTO guarded VALUES ('in time');
SET LOCAL lease.clock_offset = '3600 s';
INSERT INTO guarded VALUES ('late');
COMMIT;

-- A renewal in between prolongs it.
BEGIN;
SELECT lease.guard('c', :epoch);
INSERT INTO guarded VALUES ('renewed');
SELECT outcome FROM lease.renew('c', :epoch, '2 hours');
SET LOCAL lease.clock_offset = '3600 s';
COMMIT;

-- The transaction reclaims the lease: superseded by itself.
BEGIN;
SELECT lease.guard('c', :epoch);
INSERT INTO guarded VALUES ('superseded');
SELECT outcome FROM lease.acquire('c', 'a', reclaim => true);
INSERT INTO guarded VALUES ('superseded');
COMMIT;

-- It revokes the lease.
BEGIN;
SELECT lease.guard('c', :epoch);
INSERT INTO guarded VALUES ('revoked');
SELECT lease.revoke('c') = :epoch AS revoked;
COMMIT;

-- It drops it, and even makes another of that name.
BEGIN;
SELECT lease.guard('c', :epoch);
INSERT INTO guarded VALUES ('dropped');
SELECT lease.drop('c', force => true);
COMMIT;
BEGIN;
SELECT lease.guard('c', :epoch);
INSERT INTO guarded VALUES ('dropped');
SELECT lease.drop('c', force => true);
SELECT lease.create('c');
COMMIT;

-- Each time everything was undone, the change of the lease, too; and no lock is left.
SELECT lease.holds('c', :epoch);
SELECT * FROM lease_lock;
SELECT * FROM guarded ORDER BY x;

--
-- A release in the transaction that it belongs to
--

-- The last work under a grant and its release commit together.
BEGIN;
SELECT lease.guard('c', :epoch);
INSERT INTO guarded VALUES ('last work');
SELECT lease.release('c', :epoch);
INSERT INTO guarded VALUES ('work after the release');
COMMIT;
SELECT lease.holds('c', :epoch);
SELECT * FROM guarded ORDER BY x;

-- Not if its time is over at COMMIT,
SELECT epoch FROM lease.acquire('c', 'a') \gset
BEGIN;
SELECT lease.guard('c', :epoch);
SELECT lease.release('c', :epoch);
SET LOCAL lease.clock_offset = '3600 s';
COMMIT;
-- nor if somebody was granted the lease in the same transaction,
BEGIN;
SELECT lease.guard('c', :epoch);
SELECT lease.release('c', :epoch);
SELECT outcome FROM lease.acquire('c', 'b');
COMMIT;
-- and after the release no guard can be made.
BEGIN;
SELECT lease.release('c', :epoch);
SELECT lease.guard('c', :epoch);
ROLLBACK;

-- Both grants in one transaction: under the epoch that is current at COMMIT.
BEGIN;
SELECT lease.release('c', :epoch);
SELECT epoch AS next FROM lease.acquire('c', 'b') \gset
SELECT lease.guard('c', :next);
INSERT INTO guarded VALUES ('acquired here');
COMMIT;
SELECT lease.holds('c', :next);
SELECT lease.revoke('c') = :next AS revoked;
SELECT epoch FROM lease.acquire('c', 'a') \gset

--
-- late_commit: an expired grant that nobody has taken over
--

SELECT lease.alter('c', late_commit => true);
BEGIN;
SELECT lease.guard('c', :epoch);
INSERT INTO guarded VALUES ('late');
SET LOCAL lease.clock_offset = '3600 s';
INSERT INTO guarded VALUES ('later');
COMMIT;

-- The guard must have been made in time.
BEGIN;
SET LOCAL lease.clock_offset = '3600 s';
SELECT lease.guard('c', :epoch);
ROLLBACK;
SET lease.clock_offset = '3600 s';
BEGIN;
SELECT lease.guard('c', :epoch);
ROLLBACK;
RESET lease.clock_offset;

-- It admits what is late, not what was superseded or revoked.
BEGIN;
SELECT lease.guard('c', :epoch);
SET LOCAL lease.clock_offset = '3600 s';
SELECT outcome FROM lease.acquire('c', 'b');
COMMIT;
BEGIN;
SELECT lease.guard('c', :epoch);
SET LOCAL lease.clock_offset = '3600 s';
SELECT lease.revoke('c') = :epoch AS revoked;
COMMIT;

-- It is the setting at COMMIT that counts.
BEGIN;
SELECT lease.guard('c', :epoch);
SELECT lease.alter('c', late_commit => false);
SET LOCAL lease.clock_offset = '3600 s';
COMMIT;
SELECT lease.alter('c', late_commit => false);

--
-- Several guards
--

-- One that does not stand fails the transaction.
BEGIN;
SELECT lease.guard('c', :epoch), lease.guard('c/2', :second);
INSERT INTO guarded VALUES ('two guards');
SELECT lease.revoke('c/2') = :second AS revoked;
COMMIT;
BEGIN;
SELECT lease.guard('c/2', :second), lease.guard('c', :epoch);
INSERT INTO guarded VALUES ('two guards');
COMMIT;

-- The same twice is one.
BEGIN;
SELECT lease.guard('c', :epoch), lease.guard('c', :epoch);
SELECT * FROM lease_lock;
COMMIT;

-- Two epochs of one lease: only one of them can be current.
BEGIN;
SELECT lease.guard('c', :epoch);
SELECT epoch AS next FROM lease.acquire('c', 'a', reclaim => true) \gset
SELECT lease.guard('c', :next);
INSERT INTO guarded VALUES ('two epochs');
COMMIT;

--
-- All ways to end a transaction
--

-- A statement of its own, with the guard in it.
INSERT INTO guarded SELECT 'one statement' FROM lease.guard('c', :epoch);
WITH g AS MATERIALIZED (SELECT lease.guard('c', :epoch)),
		r AS MATERIALIZED (SELECT lease.revoke('c') FROM g)
	INSERT INTO guarded SELECT 'one statement, revoked' FROM r;
SELECT lease.holds('c', :epoch);

-- Several statements that are sent at once are one transaction.
SELECT lease.guard('c', :epoch)\; INSERT INTO guarded VALUES ('sent at once');
SELECT lease.guard('c', :epoch)\; INSERT INTO guarded VALUES ('sent at once')\; SELECT lease.revoke('c') > 0 AS revoked;
SELECT lease.holds('c', :epoch);

-- COMMIT AND CHAIN: the next transaction has no guard.
BEGIN;
SELECT lease.guard('c', :epoch);
INSERT INTO guarded VALUES ('chain 1');
COMMIT AND CHAIN;
INSERT INTO guarded VALUES ('chain 2');
ROLLBACK;

-- A DO block is one transaction, unless it commits.
DO $$
DECLARE
	epoch CONSTANT bigint := (SELECT epoch FROM lease.status WHERE name = 'c');
BEGIN
	PERFORM lease.guard('c', epoch);
	INSERT INTO guarded VALUES ('do 1');
	COMMIT;
	BEGIN
		INSERT INTO guarded VALUES ('do 2');
	EXCEPTION WHEN SQLSTATE 'LS004' THEN
		RAISE NOTICE 'not guarded after COMMIT';
	END;
	PERFORM lease.guard('c', epoch);
	INSERT INTO guarded VALUES ('do 3');
END;
$$;

-- A procedure that commits again and again; the third time its time is over, and that
-- COMMIT fails.
CREATE PROCEDURE work(epoch bigint) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..4 LOOP
		PERFORM lease.guard('c', epoch);
		INSERT INTO guarded VALUES ('procedure ' || i);
		IF i = 3 THEN
			SET LOCAL lease.clock_offset = '3600 s';
		END IF;
		COMMIT;
	END LOOP;
END;
$$;
CALL work(:epoch);

-- A deferred trigger runs before the check: what it writes is checked, and it may guard.
CREATE TABLE journal (epoch bigint);
CREATE FUNCTION guard_and_write() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM lease.guard('c', new.epoch);
	INSERT INTO guarded VALUES ('deferred');
	RETURN NULL;
END;
$$;
CREATE CONSTRAINT TRIGGER later AFTER INSERT ON journal DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION guard_and_write();
INSERT INTO journal VALUES (:epoch);
INSERT INTO journal VALUES (:epoch + 1);
SELECT count(*) FROM journal;

SELECT x FROM guarded WHERE x ~ '^(one|sent|chain|do|proc|def)' ORDER BY x;

-- ROLLBACK of a guarded transaction is never refused.
BEGIN;
SELECT lease.guard('c', :epoch);
SELECT lease.revoke('c') = :epoch AS revoked;
ROLLBACK;

-- PREPARE TRANSACTION is: its COMMIT PREPARED could come after any number of takeovers.
BEGIN;
SELECT lease.guard('c', :epoch);
PREPARE TRANSACTION 'lease_guarded';
BEGIN;
SELECT outcome FROM lease.renew('c', :epoch);
PREPARE TRANSACTION 'lease_changed';
BEGIN;
SAVEPOINT s;
SELECT lease.alter('c', ttl => '2 hours');
RELEASE s;
PREPARE TRANSACTION 'lease_changed_in_a_savepoint';
SELECT count(*) FROM pg_prepared_xacts WHERE gid LIKE 'lease%';

--
-- A guard that guards nothing
--

-- A statement of its own outside of a transaction block: it is over before anything
-- could be written.
SELECT lease.guard('c', :epoch);
DO $$ BEGIN PERFORM lease.guard('c', (SELECT epoch FROM lease.status WHERE name = 'c')); END; $$;
-- In a transaction block nobody knows what the client had in mind.
BEGIN;
SELECT lease.guard('c', :epoch);
COMMIT;

--
-- READ ONLY
--

-- A guard is possible there: who reads under a grant learns at COMMIT whether it lasted.
BEGIN READ ONLY;
SELECT lease.guard('c', :epoch);
SELECT count(*) > 0 AS read FROM guarded;
COMMIT;
BEGIN READ ONLY;
SELECT lease.guard('c', :epoch);
SELECT count(*) > 0 AS read FROM guarded;
SET LOCAL lease.clock_offset = '3600 s';
COMMIT;

-- To ask is possible, too; to change anything is not, nor to be told that nothing has
-- been changed.
BEGIN READ ONLY;
SELECT lease.holds('c', :epoch), lease.remaining('c', :epoch) > '59 min' AS remaining;
SELECT state FROM lease.status WHERE name = 'c';
SAVEPOINT s;
SELECT lease.acquire('c', 'b');
ROLLBACK TO s;
SELECT lease.acquire_many('{c}', 'b');
ROLLBACK TO s;
SELECT lease.renew('c', :epoch);
ROLLBACK TO s;
SELECT lease.renew_many('{c}', ARRAY[:epoch]::bigint[]);
ROLLBACK TO s;
SELECT lease.release('c', 1);
ROLLBACK TO s;
SELECT lease.release_many('{c}', '{1}');
ROLLBACK TO s;
SELECT lease.revoke('c');
ROLLBACK TO s;
SELECT lease.create('c/3');
ROLLBACK TO s;
SELECT lease.alter('c', ttl => '1 min');
ROLLBACK TO s;
SELECT lease.drop('c');
ROLLBACK TO s;
SELECT lease.raise_floor(1);
COMMIT;

DROP TABLE guarded, journal;
DROP VIEW lease_lock;
DROP FUNCTION guard_and_write;
DROP PROCEDURE work;
SELECT lease.drop('c', force => true), lease.drop('c/2', force => true) \g /dev/null
