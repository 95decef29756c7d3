--
-- epochs: strictly increasing, and never told twice.
--
-- Probes G2, on one server: across rollback, savepoints, failed statements, drop and
-- re-create of a lease, a fork of the database's history as far as it can be had
-- without a second server, a sequence that was set back, and exhaustion.
--
-- This test starts from a fresh installation, so that it can show epochs as they are.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
RESET client_min_messages;
DROP EXTENSION lease;
CREATE EXTENSION lease;

SELECT lease.create('a'), lease.create('b');

-- The first epoch is 1: a fresh installation is on no other branch of history, and
-- nothing is skipped.
SELECT outcome, epoch FROM lease.acquire('a', 'x');

-- All leases draw from one sequence, so that all grants are in one order.
SELECT outcome, epoch FROM lease.acquire('b', 'x');
SELECT lease.release('a', 1);
SELECT outcome, epoch FROM lease.acquire('a', 'x');

-- Only an acquire that wins draws.
SELECT outcome, count(*)
	FROM (SELECT (lease.acquire('a', 'y')).outcome FROM generate_series(1, 20)) AS a GROUP BY outcome;
SELECT outcome FROM lease.renew('a', 3);
SELECT lease.release('a', 2), lease.release('a', 3), lease.holds('b', 2);
SELECT last_value FROM lease.epoch;

--
-- Rollback
--

-- An epoch that was told in a transaction that rolled back is never told again,
-- although the grant itself is undone.
BEGIN;
SELECT outcome, epoch FROM lease.acquire('a', 'x');
ROLLBACK;
SELECT lease.holds('a', 4);
SELECT lease.guard('a', 4);
SELECT outcome, epoch FROM lease.acquire('a', 'y');
SELECT lease.release('a', 5);

-- The same with a savepoint, twice in one transaction.
BEGIN;
SAVEPOINT s;
SELECT outcome, epoch FROM lease.acquire('a', 'x');
ROLLBACK TO s;
SELECT lease.holds('a', 6);
SELECT outcome, epoch FROM lease.acquire('a', 'x');
ROLLBACK TO s;
SELECT outcome, epoch FROM lease.acquire('a', 'y');
COMMIT;
SELECT lease.holds('a', 6), lease.holds('a', 7), lease.holds('a', 8);
SELECT lease.release('a', 8);

-- The statement that acquires fails afterwards.
SELECT epoch / 0 FROM lease.acquire('a', 'x');
SELECT lease.holds('a', 9);
DO $$
BEGIN
	PERFORM lease.acquire('a', 'x');
	RAISE EXCEPTION 'the election failed' USING ERRCODE = '40001';
END;
$$;
SELECT outcome, epoch FROM lease.acquire('a', 'y');

--
-- Reclaim, revoke, drop and re-create
--

SELECT outcome, epoch FROM lease.acquire('a', 'y', reclaim => true);
SELECT lease.revoke('a');
SELECT outcome, epoch FROM lease.acquire('a', 'y');

-- A lease that is dropped and created again knows nothing of its past, but the
-- sequence does.
SELECT lease.drop('a', force => true);
SELECT lease.create('a');
SELECT epoch IS NULL AS never_granted FROM lease.status WHERE name = 'a';
SELECT lease.holds('a', 13);
SELECT outcome, epoch FROM lease.acquire('a', 'y');
SELECT lease.drop('a', force => true);

-- Even if somebody deletes the row, which only a superuser can.
SELECT lease.create('a');
SELECT outcome, epoch FROM lease.acquire('a', 'y');
DELETE FROM lease.lease WHERE name = 'a';
SELECT lease.create('a');
SELECT outcome, epoch FROM lease.acquire('a', 'y');
SELECT lease.release('a', 16);

--
-- raise_floor: the administrator's answer to what no server can notice
--

-- It returns the highest epoch that can no longer be granted.
SELECT lease.raise_floor(1000);
SELECT outcome, epoch FROM lease.acquire('a', 'x');
SELECT lease.release('a', 1001);

-- It only raises.
SELECT lease.raise_floor(1000);
SELECT lease.raise_floor(1);
SELECT lease.raise_floor(1001);
SELECT outcome, epoch FROM lease.acquire('a', 'x');
SELECT lease.release('a', 1002);

-- Nothing takes it back.
BEGIN;
SELECT lease.raise_floor(2000);
ROLLBACK;
SELECT outcome, epoch FROM lease.acquire('a', 'x');
SELECT lease.release('a', 2001);

-- Live grants are below it, and remain.
SELECT lease.holds('b', 2) AS still_held, outcome FROM lease.renew('b', 2);

SELECT lease.raise_floor(0);
SELECT lease.raise_floor(-1);
SELECT lease.raise_floor(NULL);

--
-- A fork of the history: promotion, recovery to a point in time, a restored dump
--

-- The first draw recorded where it was made; the draw that finds another origin
-- skips by at least 2^32, and at least to the present time in microseconds since
-- 1970, which tells apart two branches that skip from the same value.
SELECT last_value AS here FROM lease.origin \gset
SELECT last_value AS before FROM lease.epoch \gset
SELECT setval('lease.origin', :here % 1000000 + 1) <> :here AS another_origin;
SELECT outcome, epoch - :before >= 4294967296 AS skipped, epoch AS skipped_to,
		epoch / 1e6 - extract(epoch FROM now()) BETWEEN 0 AND 60 AS to_the_present_time
	FROM lease.acquire('a', 'x') \gset
\echo :outcome :skipped :to_the_present_time

-- Once: the origin is recorded, and the next draw is an ordinary one.
SELECT last_value = :here AS recorded FROM lease.origin;
SELECT lease.release('a', :skipped_to);
SELECT outcome, epoch - :skipped_to AS step FROM lease.acquire('a', 'x');

-- Where the sequence is ahead of the present time already, 2^32 is added to it, and the
-- time, by which two that skip from the same value differ.
SELECT setval('lease.epoch', 4000000000000000000);
SELECT setval('lease.origin', 1);
SELECT lease.revoke('a') IS NOT NULL AS revoked;
SELECT outcome, epoch - 4000000000000000000 > 4294967296 AS skipped, epoch AS ahead FROM lease.acquire('a', 'x') \gset
\echo :outcome :skipped

-- A sequence that was used without an origin is not fresh: something is missing.
SELECT setval('lease.origin', 1, false);
SELECT lease.revoke('a') IS NOT NULL AS revoked;
SELECT outcome, epoch - :ahead > 4294967296 AS skipped FROM lease.acquire('a', 'x');
SELECT last_value = :here AS recorded, is_called FROM lease.origin;

--
-- A sequence that was set back, against all advice
--

-- An epoch that is not above the one in the row is never issued.
SELECT last_value AS before FROM lease.epoch \gset
SELECT setval('lease.epoch', 5);
SELECT lease.revoke('a') = :before AS revoked;
SELECT outcome, epoch > :before AS above_the_row, epoch FROM lease.acquire('a', 'x') \gset
\echo :outcome :above_the_row

-- From then on all leases are above it again.
SELECT lease.revoke('b');
SELECT outcome, epoch - :epoch AS step FROM lease.acquire('b', 'x');
SELECT lease.revoke('b') = :epoch + 1 AS revoked;

-- Also when the value set back to is just below the row's.
SELECT setval('lease.epoch', :epoch) = :epoch AS set_back;
SELECT outcome, epoch > :epoch + 1 AS above_the_row FROM lease.acquire('b', 'x');

--
-- A sequence that a crash would set back
--

ALTER SEQUENCE lease.epoch SET UNLOGGED;
SELECT lease.acquire('b', 'x', reclaim => true);
ALTER SEQUENCE lease.epoch SET LOGGED;
ALTER SEQUENCE lease.epoch_floor SET UNLOGGED;
SELECT lease.raise_floor(9000000000000000000);
ALTER SEQUENCE lease.epoch_floor SET LOGGED;
SELECT outcome FROM lease.acquire('b', 'x', reclaim => true);

--
-- Exhaustion (LS007)
--

-- The last epoch there is.
SELECT lease.create('c'), lease.create('d');
SELECT lease.raise_floor(9223372036854775806);
SELECT outcome, epoch FROM lease.acquire('c', 'x');

-- There is none for any other lease, and nothing is left of the attempt.
SELECT lease.acquire('d', 'x');
SELECT state, epoch FROM lease.status WHERE name = 'd';
SELECT * FROM lease.acquire_many('{c,d}', 'x');

-- Who holds a lease holds it: to renew and to write takes no new epoch.
SELECT lease.holds('c', 9223372036854775807);
SELECT outcome FROM lease.renew('c', 9223372036854775807);
BEGIN;
SELECT lease.guard('c', 9223372036854775807);
COMMIT;

-- A reclaim that fails leaves the holder alone.
SELECT lease.acquire('c', 'x', reclaim => true);
SELECT lease.holds('c', 9223372036854775807);

-- A release is final.
SELECT lease.release('c', 9223372036854775807);
SELECT lease.acquire('c', 'x');
SELECT state, last_end FROM lease.status WHERE name = 'c';

-- A fork so near to the end cannot skip.
SELECT setval('lease.origin', 1);
SELECT lease.acquire('c', 'x');
SELECT setval('lease.epoch', 9223372036854775807 - 4294967296 + 1);
SELECT lease.acquire('c', 'x');

-- To raise the floor to the end has the same effect.
SELECT lease.raise_floor(9223372036854775807);
SELECT lease.acquire('d', 'x');

--
-- DROP EXTENSION drops the sequence, too
--

-- What was told before is forgotten then, with all the leases and fences.  Whoever
-- passes epochs on to something outside of the database raises the floor first.
DROP EXTENSION lease;
CREATE EXTENSION lease;
SELECT lease.create('a');
SELECT lease.raise_floor(3000);
SELECT outcome, epoch FROM lease.acquire('a', 'x');

SELECT lease.drop('a', force => true);
