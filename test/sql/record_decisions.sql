--
-- record_decisions: what was decided once stays decided.
--
-- The first verdict on a subject is final, whoever comes later, under whichever epoch; a
-- transition between states is a matter of its own.  A decision is written under a guard:
-- who does not hold the lease when it is committed decides nothing.  What was rolled back
-- leaves nothing, not even a gap in the numbers.  Probes G3, G5 and G10.
--
-- Epochs are shown by the holders to whom they were granted.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
RESET client_min_messages;

SELECT lease.create('dec', ttl => '1 hour'), lease.create('dec/other', ttl => '1 hour') \g /dev/null
SELECT epoch AS a FROM lease.acquire('dec', 'A') \gset
SELECT epoch AS other FROM lease.acquire('dec/other', 'A') \gset
CREATE VIEW decided AS
	SELECT seq, subject, from_state, to_state, verdict, detail, holder FROM lease.decision WHERE lease = 'dec' ORDER BY seq;

--
-- Recorded, identical, conflict
--

SELECT outcome, seq, standing_verdict, standing_detail, decided_epoch = :a AS under_a, decided_by, decided_at <= now() AS decided
	FROM lease.decide('dec', :a, 'node 7', 'drain', '{"reason": "disk", "parts": [1, 2]}');
-- The same again, as after a reply that was lost.
SELECT outcome, seq, standing_verdict, standing_detail, decided_epoch = :a AS under_a, decided_by, decided_at < now() AS before
	FROM lease.decide('dec', :a, 'node 7', 'drain', '{"parts": [1, 2], "reason": "disk"}');
-- Another verdict, or another detail, is told what stands.
SELECT outcome, seq, standing_verdict, standing_detail, decided_by FROM lease.decide('dec', :a, 'node 7', 'keep', '{"reason": "disk", "parts": [1, 2]}');
SELECT outcome, seq, standing_verdict, standing_detail, decided_by FROM lease.decide('dec', :a, 'node 7', 'drain', '{"reason": "disk", "parts": [2, 1]}');
SELECT outcome, standing_verdict, standing_detail FROM lease.decide('dec', :a, 'node 7', 'drain');
SELECT outcome, standing_verdict, standing_detail FROM lease.decide('dec', :a, 'node 7', 'Drain', '{"reason": "disk", "parts": [1, 2]}');
-- No detail is none, and not the null of JSON.
SELECT outcome FROM lease.decide('dec', :a, 'node 8', 'drain');
SELECT outcome FROM lease.decide('dec', :a, 'node 8', 'drain', NULL);
SELECT outcome, standing_detail FROM lease.decide('dec', :a, 'node 8', 'drain', 'null');
-- Details are compared as JSON: the same number is the same, however it is written.
SELECT outcome FROM lease.decide('dec', :a, 'node 9', 'drain', '{"share": 1.50}');
SELECT outcome, standing_detail FROM lease.decide('dec', :a, 'node 9', 'drain', '{"share": 1.5}');
-- Subjects are compared byte by byte.
SELECT outcome FROM lease.decide('dec', :a, 'Node 7', 'keep');
SELECT outcome FROM lease.decide('dec', :a, 'node 7 ', 'keep');

-- Another lease has decisions, and numbers, of its own.
SELECT outcome, seq, standing_verdict FROM lease.decide('dec/other', :other, 'node 7', 'keep');

SELECT * FROM decided;
SELECT seq, verdict, detail, epoch = :a AS under_a, holder, kept_until FROM lease.decision_of('dec', 'node 7');
SELECT count(*) FROM lease.decision_of('dec', 'node 10');
SELECT count(*) FROM lease.decision_of('dec', NULL);

--
-- Strict
--

SELECT lease.decide('dec', :a, 'node 7', 'keep', strict => true);
SELECT :'LAST_ERROR_MESSAGE' AS message;
SELECT lease.decide('dec', :a, 'node 7', 'keep', strict => NULL);
SELECT outcome FROM lease.decide('dec', :a, 'node 7', 'drain', '{"reason": "disk", "parts": [1, 2]}', strict => true);
SELECT outcome FROM lease.decide('dec', :a, 'node 10', 'drain', strict => true);
-- It undoes what the transaction has done.
CREATE TABLE work (x int);
SELECT lease.protect('work', 'dec', ddl => false);
BEGIN;
SELECT lease.guard('dec', :a);
INSERT INTO work VALUES (1);
SELECT outcome FROM lease.decide('dec', :a, 'node 11', 'drain');
SELECT outcome FROM lease.decide('dec', :a, 'node 7', 'keep', strict => true);
COMMIT;
SELECT count(*) FROM work;
SELECT count(*) FROM lease.decision_of('dec', 'node 11');

--
-- Transitions
--

-- The subject alone, from, to, and both are four matters.
SELECT outcome, seq FROM lease.decide('dec', :a, 'shard 1', 'one');
SELECT outcome, seq FROM lease.decide('dec', :a, 'shard 1', 'two', from_state => 'a');
SELECT outcome, seq FROM lease.decide('dec', :a, 'shard 1', 'three', to_state => 'a');
SELECT outcome, seq FROM lease.decide('dec', :a, 'shard 1', 'four', from_state => 'a', to_state => 'a');
SELECT outcome, seq FROM lease.decide('dec', :a, 'shard 1', 'five', from_state => 'a', to_state => 'b');
SELECT outcome, seq FROM lease.decide('dec', :a, 'shard 1', 'six', from_state => 'b', to_state => 'a');
SELECT outcome, seq, standing_verdict FROM lease.decide('dec', :a, 'shard 1', 'other', from_state => 'a');
SELECT outcome, seq, standing_verdict FROM lease.decide('dec', :a, 'shard 1', 'other', to_state => 'a');
SELECT outcome, seq, standing_verdict FROM lease.decide('dec', :a, 'shard 1', 'four', from_state => 'a', to_state => 'a');
SELECT outcome, seq, standing_verdict FROM lease.decide('dec', :a, 'shard 1', 'five', from_state => 'b', to_state => 'a');
SELECT from_state, to_state, verdict FROM decided WHERE subject = 'shard 1';
SELECT verdict FROM lease.decision_of('dec', 'shard 1');
SELECT verdict FROM lease.decision_of('dec', 'shard 1', 'a');
SELECT verdict FROM lease.decision_of('dec', 'shard 1', to_state => 'a');
SELECT verdict FROM lease.decision_of('dec', 'shard 1', 'a', 'b');
SELECT count(*) FROM lease.decision_of('dec', 'shard 1', 'b', 'c');

-- An empty text is neither a state nor none.
SELECT lease.decide('dec', :a, 'shard 1', 'one', from_state => '');
SELECT lease.decide('dec', :a, 'shard 1', 'one', to_state => '');
SELECT lease.decide('dec', :a, '', 'one');
SELECT lease.decide('dec', :a, NULL, 'one');
SELECT lease.decide('dec', :a, 'shard 2', '');
SELECT lease.decide('dec', :a, 'shard 2', NULL);

-- How long each may be.
SELECT outcome FROM lease.decide('dec', :a, repeat('s', 512), repeat('v', 512), to_jsonb(repeat('d', 8190)), repeat('f', 255), repeat('t', 255));
SELECT lease.decide('dec', :a, repeat('s', 513), 'one');
SELECT lease.decide('dec', :a, 'shard 2', repeat('v', 513));
SELECT lease.decide('dec', :a, 'shard 2', 'one', to_jsonb(repeat('d', 8191)));
SELECT lease.decide('dec', :a, 'shard 2', 'one', from_state => repeat('f', 256));
SELECT lease.decide('dec', :a, 'shard 2', 'one', to_state => repeat('t', 256));
SELECT count(*) FROM lease.decision_of('dec', 'shard 2');

--
-- How long it is kept
--

SELECT outcome FROM lease.decide('dec', :a, 'kept for ever', 'yes');
SELECT outcome FROM lease.decide('dec', :a, 'kept for a day', 'yes', keep => '1 day');
SELECT outcome FROM lease.decide('dec', :a, 'not kept', 'yes', keep => '0');
-- Whoever repeats it does not change that.
SELECT outcome FROM lease.decide('dec', :a, 'kept for a day', 'yes', keep => '1 hour');
SELECT outcome FROM lease.decide('dec', :a, 'kept for a day', 'yes');
SELECT outcome FROM lease.decide('dec', :a, 'kept for ever', 'yes', keep => '0');
SELECT subject, CASE kept_until WHEN 'infinity' THEN 'for ever' ELSE (kept_until - at)::text END AS kept FROM lease.decision
	WHERE lease = 'dec' AND subject LIKE '%kept%' ORDER BY seq;
SELECT lease.decide('dec', :a, 'shard 2', 'one', keep => '-1 s');
SELECT lease.decide('dec', :a, 'shard 2', 'one', keep => '1 month');
-- The inventory shows it, too.
SELECT kind, subject, outcome, settled, holder, kept_until - at AS kept FROM lease.outcome
	WHERE lease = 'dec' AND kept_until < 'infinity' ORDER BY seq;

--
-- What was rolled back
--

SELECT last_seq AS before FROM lease.record_chain WHERE lease = 'dec' \gset
BEGIN;
SELECT outcome, seq - :before AS next FROM lease.decide('dec', :a, 'undone', 'yes');
SELECT outcome, seq - :before AS next FROM lease.decide('dec', :a, 'undone', 'yes');
SELECT outcome, seq - :before AS next FROM lease.decide('dec', :a, 'undone', 'no');
ROLLBACK;
SELECT count(*) FROM lease.decision_of('dec', 'undone');

-- In a savepoint, before one, and after it.
BEGIN;
SELECT outcome, seq - :before AS next FROM lease.decide('dec', :a, 'before', 'yes');
SAVEPOINT s;
SELECT outcome, seq - :before AS next FROM lease.decide('dec', :a, 'undone', 'yes');
ROLLBACK TO s;
SELECT outcome, seq - :before AS next FROM lease.decide('dec', :a, 'undone', 'no');
ROLLBACK TO s;
SELECT outcome, seq - :before AS next FROM lease.decide('dec', :a, 'after', 'yes');
RELEASE s;
COMMIT;
-- The guard, too, is undone with the savepoint: this commits although A is gone by then.
BEGIN;
SAVEPOINT s;
SELECT outcome, seq - :before AS next FROM lease.decide('dec', :a, 'undone', 'yes');
ROLLBACK TO s;
SET LOCAL lease.clock_offset = '2 h';
COMMIT;
-- An error in a block is no different.
DO $$
BEGIN
	PERFORM lease.decide('dec', (SELECT epoch FROM lease.status WHERE name = 'dec'), 'undone', 'yes');
	RAISE division_by_zero;
EXCEPTION WHEN division_by_zero THEN
	NULL;
END;
$$;
SELECT seq - :before AS next, subject, verdict FROM decided WHERE seq > :before;
SELECT last_seq - :before AS records FROM lease.record_chain WHERE lease = 'dec';

--
-- At every level of isolation
--

BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT outcome FROM lease.decide('dec', :a, 'repeatable read', 'yes');
SELECT outcome FROM lease.decide('dec', :a, 'repeatable read', 'yes');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT outcome FROM lease.decide('dec', :a, 'serializable', 'yes');
SELECT outcome, standing_verdict FROM lease.decide('dec', :a, 'repeatable read', 'no');
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT outcome FROM lease.decide('dec', :a, 'serializable', 'yes');
SELECT outcome, standing_verdict FROM lease.decide('dec', :a, 'serializable', 'no');
COMMIT;
BEGIN READ ONLY;
SELECT lease.decide('dec', :a, 'read only', 'yes');
COMMIT;
SELECT subject, verdict FROM decided ORDER BY seq DESC LIMIT 2;

--
-- A thousand times
--

-- Each in a transaction of its own: one record, and nothing else written.
SELECT last_seq AS before FROM lease.record_chain WHERE lease = 'dec' \gset
CREATE TABLE answer (outcome text, seq bigint);
DO $$
DECLARE
	mine CONSTANT bigint := (SELECT epoch FROM lease.status WHERE name = 'dec');
BEGIN
	FOR i IN 1..1000 LOOP
		INSERT INTO answer SELECT d.outcome, d.seq FROM lease.decide('dec', mine, 'often', 'yes', '{"times": 1000}') AS d;
		COMMIT;
	END LOOP;
	FOR i IN 1..1000 LOOP
		INSERT INTO answer SELECT d.outcome, d.seq FROM lease.decide('dec', mine, 'often', 'no ' || i) AS d;
		COMMIT;
	END LOOP;
END;
$$;
SELECT outcome, count(*), min(seq) - :before AS first, max(seq) - :before AS last FROM answer GROUP BY outcome ORDER BY outcome;
SELECT last_seq - :before AS records FROM lease.record_chain WHERE lease = 'dec';
SELECT count(*) FROM lease.record WHERE lease = 'dec' AND subject = 'often';

--
-- Not without holding the lease
--

-- The clock comes to the end of the grant: at the call, and between the call and COMMIT.
SELECT last_seq AS before FROM lease.record_chain WHERE lease = 'dec' \gset
SET lease.clock_offset = '2 h';
SELECT lease.decide('dec', :a, 'late', 'yes');
SELECT lease.decide('dec', :a, 'node 7', 'drain', '{"reason": "disk", "parts": [1, 2]}');
RESET lease.clock_offset;
BEGIN;
SELECT outcome FROM lease.decide('dec', :a, 'late', 'yes');
SET LOCAL lease.clock_offset = '2 h';
COMMIT;
-- Revoked in between, and before.
BEGIN;
SELECT outcome FROM lease.decide('dec', :a, 'late', 'yes');
SELECT lease.revoke('dec') = :a AS revoked;
COMMIT;
-- A retry comes to that, too.
BEGIN;
SELECT outcome FROM lease.decide('dec', :a, 'node 7', 'drain', '{"reason": "disk", "parts": [1, 2]}');
SELECT lease.revoke('dec') = :a AS revoked;
COMMIT;
SELECT lease.revoke('dec') = :a AS revoked;
SELECT lease.decide('dec', :a, 'late', 'yes');
SELECT lease.decide('dec', :a, 'node 7', 'drain', '{"reason": "disk", "parts": [1, 2]}');

-- Superseded by B; released by B, to whom it is granted anew.
SELECT epoch AS b FROM lease.acquire('dec', 'B') \gset
SELECT lease.decide('dec', :a, 'late', 'yes');
SELECT lease.decide('dec', :a, 'node 7', 'drain', '{"reason": "disk", "parts": [1, 2]}');
SELECT lease.release('dec', :b);
SELECT lease.decide('dec', :b, 'late', 'yes');
SELECT epoch AS b FROM lease.acquire('dec', 'B') \gset
-- What is no epoch of it, and no lease.
SELECT lease.decide('dec', :other, 'late', 'yes');
SELECT lease.decide('dec', :b + 1000000, 'late', 'yes');
SELECT lease.decide('dec', 0, 'late', 'yes');
SELECT lease.decide('dec', NULL, 'late', 'yes');
SELECT lease.decide('none', :b, 'late', 'yes');
SELECT lease.decide(NULL, :b, 'late', 'yes');

-- What writes the record does not do it without a guard of exactly this lease and epoch.
SELECT lease.record_decision('dec', :b, 'late', 'yes', NULL, NULL, NULL, NULL);
SELECT lease.record_decision('dec', :b, 'node 7', 'drain', '{"reason": "disk", "parts": [1, 2]}', NULL, NULL, NULL);
BEGIN;
SELECT lease.guard('dec/other', :other);
SAVEPOINT s;
SELECT lease.record_decision('dec', :b, 'late', 'yes', NULL, NULL, NULL, NULL);
ROLLBACK TO s;
SELECT lease.record_decision('dec', :other, 'late', 'yes', NULL, NULL, NULL, NULL);
ROLLBACK TO s;
SELECT lease.guard('dec', :b);
SELECT lease.record_decision('dec', :a, 'late', 'yes', NULL, NULL, NULL, NULL);
ROLLBACK TO s;
SELECT lease.record_decision('dec', NULL, 'late', 'yes', NULL, NULL, NULL, NULL);
ROLLBACK TO s;
SELECT lease.guard('dec', :b);
ROLLBACK TO s;
SELECT lease.record_decision('dec', :b, 'late', 'yes', NULL, NULL, NULL, NULL);
COMMIT;

-- Nothing of all this is there.
SELECT last_seq - :before AS records FROM lease.record_chain WHERE lease = 'dec';
SELECT count(*) FROM lease.decision_of('dec', 'late');

--
-- Under a later epoch
--

-- The successor's retry is a retry; another opinion comes too late.
SELECT outcome, standing_verdict, decided_epoch = :a AS under_a, decided_by
	FROM lease.decide('dec', :b, 'node 7', 'drain', '{"reason": "disk", "parts": [1, 2]}');
SELECT outcome, standing_verdict, decided_epoch = :a AS under_a, decided_by FROM lease.decide('dec', :b, 'node 7', 'keep');
SELECT outcome, seq - :before AS next, decided_epoch = :b AS under_b, decided_by FROM lease.decide('dec', :b, 'node 12', 'keep');
SELECT lease.decide('dec', :b, 'node 8', 'keep', strict => true);

-- Nor does it help to drop the lease, and make one of the same name.
SELECT lease.drop('dec', force => true), lease.create('dec', ttl => '1 hour');
SELECT epoch AS c FROM lease.acquire('dec', 'C') \gset
SELECT outcome, standing_verdict, decided_by FROM lease.decide('dec', :c, 'node 12', 'drain');
SELECT outcome, seq - :before AS next, decided_by FROM lease.decide('dec', :c, 'node 13', 'drain');

-- The numbers are without gaps, the epochs never go back, and the chain holds.
SELECT count(*) = max(seq) AND min(seq) = 1 AS no_gaps, count(*) = max(c.last_seq) AS all_there
	FROM lease.record r JOIN lease.record_chain c USING (lease) WHERE lease = 'dec';
SELECT bool_and(r.epoch >= p.epoch) AS epochs_in_order, bool_and(r.previous = p.digest) AS chained
	FROM lease.record r JOIN lease.record p ON p.lease = r.lease AND p.seq = r.seq - 1 WHERE r.lease = 'dec';
SELECT verified, problem FROM lease.verify_authority('dec');

DROP TABLE work, answer;
DROP VIEW decided;
SELECT lease.drop('dec', force => true), lease.drop('dec/other', force => true) \g /dev/null
