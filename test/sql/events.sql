--
-- events: lease.event, the history of leases, and what proves that it is whole.
--
-- Probes section 5.3 of the contract: every transition is an event, in the transaction
-- that makes it, without gaps; renewals are none; nothing can be changed or removed but
-- by lease.prune(), and what is missing or altered is found.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
RESET client_min_messages;

-- Epochs are shown as their order of appearance.
CREATE VIEW told AS
	SELECT name, seq, kind, dense_rank() OVER (PARTITION BY name ORDER BY epoch NULLS LAST) AS grant,
			epoch IS NOT NULL AS has_epoch, holder, detail
		FROM lease.event WHERE name LIKE 'ev%' ORDER BY name, seq;

--
-- Every transition
--

-- Created, altered, granted; a renewal is no event, nor is what is refused.
SELECT lease.create('ev', ttl => '1 hour', min_hold => '1 ms');
SELECT lease.alter('ev', ttl => '90.5 min', evict => 'none', async_renew => true, late_commit => true);
SELECT lease.alter('ev', late_commit => false, grace => '0');
SELECT epoch AS e1 FROM lease.acquire('ev', 'a') \gset
SELECT outcome FROM lease.renew('ev', :e1);
SELECT outcome FROM lease.acquire('ev', 'b');
SELECT lease.release('ev', :e1 + 1);
SELECT lease.guard('ev', :e1) \g /dev/null

-- Reclaimed: the old grant ends, too.
SELECT epoch AS e2 FROM lease.acquire('ev', 'a', reclaim => true) \gset
-- Asked to step down; revoked.
SELECT lease.request_handover('ev', 'c', 'deploy') = :e2 AS asked;
SELECT lease.revoke('ev', 'stuck') = :e2 AS revoked;
-- Expired, as somebody notes who takes over.
SELECT outcome FROM lease.acquire('ev', 'd');
SET lease.clock_offset = '2h';
SELECT epoch AS e4 FROM lease.acquire('ev', 'e') \gset
-- Released, and reserved to a successor.
SELECT lease.release('ev', :e4, successor => 'f', reserve => '1500 ms');
RESET lease.clock_offset;
-- Dropped; and a lease of that name goes on where it ended.
SELECT lease.drop('ev', force => true);
SELECT lease.create('ev');
SELECT outcome FROM lease.acquire('ev', 'g');
SELECT lease.drop('ev', force => true);
SET lease.auto_create = on;
SELECT outcome FROM lease.acquire('ev/auto', 'a');
RESET lease.auto_create;
SELECT * FROM told;

-- Who, when and in which transaction
SELECT count(*) FROM lease.event
	WHERE name LIKE 'ev%' AND actor = current_user AND pid = pg_backend_pid()
		AND at BETWEEN now() - interval '1 hour' AND now() + interval '2 hours'
		AND xid < pg_current_xact_id() AND length(digest) = 32;
SELECT name, events FROM lease.status WHERE name = 'ev/auto';

-- What is rolled back has not happened: its numbers are used again.
SELECT lease.create('ev/roll');
BEGIN;
SELECT outcome FROM lease.acquire('ev/roll', 'a');
SAVEPOINT s;
SELECT lease.revoke('ev/roll') > 0 AS revoked;
ROLLBACK TO s;
SELECT kind, seq FROM lease.history('ev/roll');
ROLLBACK;
SELECT outcome FROM lease.acquire('ev/roll', 'b');
SELECT seq, kind, holder FROM lease.history('ev/roll');

-- At every isolation level alike.
SELECT lease.create('ev/level', ttl => '1 hour');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM lease.event WHERE name = 'ev/level';
SELECT epoch FROM lease.acquire('ev/level', 'a') \gset
SELECT lease.release('ev/level', :epoch);
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT epoch FROM lease.acquire('ev/level', 'a') \gset
SELECT lease.release('ev/level', :epoch);
COMMIT;
SELECT seq, kind FROM lease.history('ev/level');

--
-- Reading on
--
SELECT seq, kind FROM lease.history('ev/level', 3);
SELECT seq, kind FROM lease.history('ev/level', NULL) LIMIT 1;
SELECT seq, kind FROM lease.history('ev/level', 5);
SELECT seq, kind FROM lease.history('ev/nobody');
SELECT seq, kind FROM lease.history(NULL);

-- What a listener has missed that has seen some of some leases.
SELECT name, seq, kind FROM lease.watch('{"ev": 17, "ev/level": 4, "ev/roll": 9}') WHERE name LIKE 'ev%';
-- Of all, also those that were dropped, nothing is missing.
SELECT count(*) = (SELECT count(*) FROM lease.event) AS all_of_them FROM lease.watch();
SELECT count(*) AS out_of_order
	FROM (SELECT seq - lag(seq) OVER (PARTITION BY name ORDER BY ordinality) AS step
		FROM lease.watch() WITH ORDINALITY) AS w
	WHERE step <> 1;
SELECT lease.watch('[]');
SELECT lease.watch('{"ev": "1"}');
SELECT lease.watch('{"ev": -1}');
SELECT lease.watch('{"ev": 1e30}');

--
-- Append-only, also for the owner
--
UPDATE lease.event SET holder = 'x' WHERE name = 'ev/level';
DELETE FROM lease.event WHERE name = 'ev/level';
TRUNCATE lease.event;
MERGE INTO lease.event e USING (VALUES ('ev/level', 1)) AS v(name, seq) ON e.name = v.name AND e.seq = v.seq
	WHEN MATCHED THEN DELETE;
INSERT INTO lease.event SELECT * FROM lease.event WHERE name = 'ev/level'
	ON CONFLICT (name, seq) DO UPDATE SET holder = 'x';
SET session_replication_role = replica;
DELETE FROM lease.event WHERE name = 'ev/level';
RESET session_replication_role;
-- Who adds events by hand cannot use up the numbers.
BEGIN;
SAVEPOINT s;
INSERT INTO lease.event SELECT name, 4611686018427387904, kind, epoch, holder, at, xid, pid, actor, detail, digest
	FROM lease.event WHERE name = 'ev/level' AND seq = 1;
ROLLBACK TO s;
INSERT INTO lease.event SELECT name, 4611686018427387903, kind, epoch, holder, at, xid, pid, actor, detail, digest
	FROM lease.event WHERE name = 'ev/level' AND seq = 1;
SELECT lease.alter('ev/level', ttl => '1 s');
SELECT max(seq) = 4611686018427387904 AS counted_on FROM lease.event WHERE name = 'ev/level';
ROLLBACK;
SELECT lease.keep_events();
\set VERBOSITY default
DELETE FROM lease.event WHERE name = 'ev/level' AND seq = 1;
\set VERBOSITY sqlstate

--
-- Pruning
--
SELECT * FROM lease.verify_history('ev/level');
-- Each event is digested with the digest of the one before.
SELECT seq, digest = lease.event_digest(lag(digest) OVER (ORDER BY seq), e) AS as_it_has_to_be
	FROM lease.event e WHERE name = 'ev/level' ORDER BY seq;
-- The older part; the latest event always stays.
SELECT lease.prune('-infinity');
SELECT lease.create('ev/old', ttl => '1 hour');
SELECT epoch FROM lease.acquire('ev/old', 'a') \gset
SELECT lease.release('ev/old', :epoch);
SELECT epoch FROM lease.acquire('ev/old', 'b') \gset
BEGIN;
SELECT lease.prune(at) > 1 AS pruned FROM lease.event WHERE name = 'ev/old' AND seq = 3;
SELECT seq, kind FROM lease.history('ev/old');
SELECT name, events, last_seq, length(digest) AS digest FROM lease.pruned WHERE name = 'ev/old';
SELECT * FROM lease.verify_history('ev/old');
-- Again: the count goes on.
SELECT lease.prune('infinity') >= 1 AS pruned;
SELECT seq, kind FROM lease.history('ev/old');
SELECT * FROM lease.verify_history('ev/old');
SELECT count(*) AS not_verified FROM lease.verify_history() WHERE NOT verified;
-- And the history.
SELECT lease.release('ev/old', :epoch), lease.drop('ev/old');
SELECT * FROM lease.verify_history('ev/old');
UPDATE lease.pruned SET events = 1 WHERE name = 'ev/old';
ROLLBACK;
SELECT lease.prune(NULL);
SELECT * FROM lease.verify_history('ev/nobody');

--
-- What somebody finds who has tampered with it, with the triggers disabled
--
CREATE FUNCTION tampered(sql text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	found text;
BEGIN
	ALTER TABLE lease.event DISABLE TRIGGER ALL;
	ALTER TABLE lease.pruned DISABLE TRIGGER ALL;
	EXECUTE sql;
	SELECT coalesce(v.problem, 'nothing') INTO found FROM lease.verify_history('ev/old') AS v;
	RAISE 'undo' USING ERRCODE = 'UNDO0';
EXCEPTION
	WHEN SQLSTATE 'UNDO0' THEN RETURN found;
END;
$$;
SELECT lease.release('ev/old', :epoch), lease.revoke('ev/old');
SELECT lease.prune(at) > 0 AS pruned FROM lease.event WHERE name = 'ev/old' AND seq = 2;
SELECT seq, kind FROM lease.history('ev/old');
SELECT sql, tampered(sql) FROM (VALUES
	(1, $$SELECT$$),
	(2, $$DELETE FROM lease.event WHERE name = 'ev/old' AND seq = 3$$),
	(3, $$DELETE FROM lease.event WHERE name = 'ev/old' AND seq IN (3, 4)$$),
	(4, $$DELETE FROM lease.event WHERE name = 'ev/old' AND seq = 2$$),
	(5, $$DELETE FROM lease.event WHERE name = 'ev/old' AND seq = 5$$),
	(6, $$DELETE FROM lease.event WHERE name = 'ev/old'$$),
	(7, $$UPDATE lease.event SET holder = 'c' WHERE name = 'ev/old' AND seq = 3$$),
	(8, $$UPDATE lease.event SET at = at - interval '1 us' WHERE name = 'ev/old' AND seq = 4$$),
	(9, $$UPDATE lease.event SET detail = '{"reason": null}' WHERE name = 'ev/old' AND seq = 5$$),
	(10, $$UPDATE lease.event SET epoch = NULL WHERE name = 'ev/old' AND seq = 2$$),
	(11, $$UPDATE lease.event SET digest = digest || '\x00' WHERE name = 'ev/old' AND seq = 5$$),
	(12, $$UPDATE lease.event SET seq = 6 WHERE name = 'ev/old' AND seq = 5$$),
	(13, $$UPDATE lease.event SET kind = 'released', actor = 'x', pid = 1, xid = '3' WHERE name = 'ev/old' AND seq = 5$$),
	(14, $$INSERT INTO lease.event SELECT name, seq + 1, kind, epoch, holder, at, xid, pid, actor, detail, digest
		FROM lease.event WHERE name = 'ev/old' AND seq = 5$$),
	(15, $$DELETE FROM lease.pruned WHERE name = 'ev/old'$$),
	(16, $$UPDATE lease.pruned SET events = events + 1 WHERE name = 'ev/old'$$),
	(17, $$UPDATE lease.pruned SET events = 2, last_seq = 2 WHERE name = 'ev/old'$$),
	(18, $$UPDATE lease.pruned SET digest = '\x' WHERE name = 'ev/old'$$),
	(19, $$DELETE FROM lease.lease WHERE name = 'ev/old'$$),
	(20, $$UPDATE lease.lease SET event_seq = 4 WHERE name = 'ev/old'$$)) AS c(n, sql)
	ORDER BY n;
-- A digest tells what is null from what is empty.
SELECT lease.event_digest(NULL, ROW('ev', 1, 'x', 1, NULL, '2026-01-01', '3', 1, 'x', NULL, NULL)::lease.event) <>
	lease.event_digest(NULL, ROW('ev', 1, 'x', 1, '', '2026-01-01', '3', 1, 'x', NULL, NULL)::lease.event) AS null_is_not_empty;
SELECT lease.event_digest(NULL, NULL);
SELECT lease.event_digest(NULL, ROW('ev', NULL, 'x', 1, 'x', now(), '3', 1, 'x', NULL, NULL)::lease.event);

-- An event that was removed by hand does not let its number come back.
BEGIN;
ALTER TABLE lease.event DISABLE TRIGGER ALL;
DELETE FROM lease.event WHERE name = 'ev/old' AND seq = 5;
SELECT outcome FROM lease.acquire('ev/old', 'd');
SELECT seq, kind FROM lease.history('ev/old', 2);
SELECT problem FROM lease.verify_history('ev/old');
ROLLBACK;

SET client_min_messages = warning;
SELECT lease.drop('ev/old', force => true), lease.drop('ev/level'), lease.drop('ev/roll', force => true), lease.drop('ev/auto', force => true) \g /dev/null
DROP FUNCTION tampered;
DROP VIEW told;
