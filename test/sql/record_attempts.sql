--
-- record_attempts: what was attempted is settled once.
--
-- One attempt at a subject is open at a time, and each is settled exactly once: by who
-- opened it, or by the successor, who is named.  What was committed is not attempted
-- again; what was aborted is, under a new number.  Probes G3, G5 and G10.
--
-- Epochs are shown by the holders to whom they were granted.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
RESET client_min_messages;

SELECT lease.create('att', ttl => '1 hour'), lease.create('att/other', ttl => '1 hour') \g /dev/null
SELECT epoch AS a FROM lease.acquire('att', 'A') \gset
SELECT epoch AS other FROM lease.acquire('att/other', 'A') \gset
CREATE VIEW attempted AS
	SELECT attempt, subject, status, detail, holder, settlement, settled_detail, settled_by FROM lease.attempt WHERE lease = 'att' ORDER BY attempt;

--
-- Open
--

SELECT outcome, attempt, status, standing_detail, opened_epoch = :a AS under_a, opened_by, opened_at <= now() AS opened
	FROM lease.open_attempt('att', :a, 'backup', '{"run": 1}');
-- The same again, as after a reply that was lost: the number that was lost.
SELECT outcome, attempt, status, standing_detail, opened_epoch = :a AS under_a, opened_by FROM lease.open_attempt('att', :a, 'backup', '{"run": 1}');
-- Another one has to wait until that is settled; detail tells them apart.
SELECT outcome, attempt, status, standing_detail FROM lease.open_attempt('att', :a, 'backup', '{"run": 2}');
SELECT outcome, attempt, status, standing_detail FROM lease.open_attempt('att', :a, 'backup');
-- At another subject, and of another lease.
SELECT outcome, attempt, status, standing_detail FROM lease.open_attempt('att', :a, 'restore');
SELECT outcome, attempt, status, standing_detail FROM lease.open_attempt('att', :a, 'restore', NULL);
SELECT outcome, attempt FROM lease.open_attempt('att/other', :other, 'backup');
SELECT * FROM attempted;
SELECT kind, seq, subject, outcome, settled, epoch = :a AS under_a, holder, kept_until FROM lease.outcome WHERE lease = 'att' ORDER BY seq;

--
-- Settle
--

SELECT outcome, standing_status, standing_detail, settled_epoch = :a AS under_a, settled_by, settled_at <= now() AS settled
	FROM lease.settle_attempt('att', :a, 1, 'committed', '{"bytes": 7}');
SELECT outcome, standing_status, standing_detail, settled_epoch = :a AS under_a, settled_by
	FROM lease.settle_attempt('att', :a, 1, 'committed', '{"bytes": 7}');
-- Otherwise than it was
SELECT outcome, standing_status, standing_detail, settled_by FROM lease.settle_attempt('att', :a, 1, 'aborted', '{"bytes": 7}');
SELECT outcome, standing_status, standing_detail FROM lease.settle_attempt('att', :a, 1, 'committed', '{"bytes": 8}');
SELECT outcome, standing_status, standing_detail FROM lease.settle_attempt('att', :a, 1, 'committed');
SELECT lease.settle_attempt('att', :a, 1, 'aborted', strict => true);
SELECT :'LAST_ERROR_MESSAGE' AS message;
SELECT lease.settle_attempt('att', :a, 1, 'aborted', strict => NULL);
SELECT outcome FROM lease.settle_attempt('att', :a, 1, 'committed', '{"bytes": 7}', strict => true);
SELECT * FROM attempted;

-- What is done is not attempted again, whatever detail says.
SELECT outcome, attempt, status, standing_detail FROM lease.open_attempt('att', :a, 'backup', '{"run": 1}');
SELECT outcome, attempt, status, standing_detail FROM lease.open_attempt('att', :a, 'backup', '{"run": 2}');

-- What was aborted is, under a new number; each keeps its settlement.
SELECT outcome, standing_status FROM lease.settle_attempt('att', :a, 2, 'aborted', '"no space"', strict => true);
SELECT outcome, attempt, status FROM lease.open_attempt('att', :a, 'restore');
SELECT outcome, attempt, status FROM lease.open_attempt('att', :a, 'restore');
SELECT outcome, standing_status, standing_detail FROM lease.settle_attempt('att', :a, 2, 'committed');
SELECT outcome, standing_status FROM lease.settle_attempt('att', :a, 2, 'aborted', '"no space"');
SELECT * FROM attempted;
SELECT outcome, standing_status FROM lease.settle_attempt('att', :a, 5, 'aborted');
SELECT outcome, attempt FROM lease.open_attempt('att', :a, 'restore');
SELECT outcome, standing_status FROM lease.settle_attempt('att', :a, 7, 'committed');
SELECT outcome, attempt, status FROM lease.open_attempt('att', :a, 'restore');
SELECT attempt, status, settlement FROM attempted WHERE subject = 'restore';

-- Opened and settled in one transaction; rolled back; a savepoint.
BEGIN;
SELECT outcome, attempt FROM lease.open_attempt('att', :a, 'both');
SELECT outcome FROM lease.settle_attempt('att', :a, 9, 'committed');
SELECT outcome, attempt FROM lease.open_attempt('att', :a, 'both');
ROLLBACK;
BEGIN;
SELECT outcome, attempt FROM lease.open_attempt('att', :a, 'both');
SAVEPOINT s;
SELECT outcome FROM lease.settle_attempt('att', :a, 9, 'committed');
ROLLBACK TO s;
SELECT outcome FROM lease.settle_attempt('att', :a, 9, 'aborted');
COMMIT;
SELECT attempt, status, settlement FROM attempted WHERE subject = 'both';

--
-- What is no attempt
--

-- A number that there is not, one of another lease, and records that are none.
SELECT lease.settle_attempt('att', :a, 11, 'committed');
SELECT lease.settle_attempt('att', :a, 0, 'committed');
SELECT lease.settle_attempt('att', :a, -1, 'committed');
SELECT lease.settle_attempt('att', :a, 9223372036854775807, 'committed');
SELECT lease.settle_attempt('att/other', :other, 2, 'committed');
SELECT lease.settle_attempt('att', :a, 3, 'committed');
SELECT outcome, seq FROM lease.decide('att', :a, 'a decision', 'yes');
SELECT lease.settle_attempt('att', :a, 11, 'committed');
SELECT lease.settle_attempt('att', :a, NULL, 'committed');
SELECT lease.settle_attempt('att', :a, 11, NULL);
SELECT lease.settle_attempt('att', :a, 11, 'open');
SELECT lease.settle_attempt('att', :a, 11, 'Committed');
SELECT lease.settle_attempt('att', :a, 11, '');
SELECT lease.open_attempt('att', :a, NULL);
SELECT lease.open_attempt('att', :a, '');
SELECT lease.open_attempt('att', :a, repeat('s', 513));
SELECT lease.open_attempt('att', :a, 'large', to_jsonb(repeat('d', 8191)));
SELECT outcome, attempt FROM lease.open_attempt('att', :a, repeat('s', 512), to_jsonb(repeat('d', 8190)));
SELECT lease.settle_attempt('att', :a, 12, 'committed', to_jsonb(repeat('d', 8191)));
SELECT lease.settle_attempt('att', :a, 12, 'committed', keep => '-1 s');
SELECT outcome FROM lease.settle_attempt('att', :a, 12, 'aborted', to_jsonb(repeat('d', 8190)), keep => '1 day');
SELECT kept_until - settled_at AS kept FROM lease.attempt WHERE lease = 'att' AND attempt = 12;

--
-- At every level of isolation
--

BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT outcome, attempt FROM lease.open_attempt('att', :a, 'levels');
SELECT outcome, attempt FROM lease.open_attempt('att', :a, 'levels');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT outcome, attempt FROM lease.open_attempt('att', :a, 'levels');
SELECT outcome FROM lease.settle_attempt('att', :a, 14, 'aborted');
SELECT outcome, attempt FROM lease.open_attempt('att', :a, 'levels');
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT outcome FROM lease.settle_attempt('att', :a, 14, 'aborted');
SELECT outcome FROM lease.settle_attempt('att', :a, 16, 'committed');
COMMIT;
BEGIN READ ONLY;
SELECT lease.open_attempt('att', :a, 'read only');
COMMIT;
SELECT attempt, status, settlement FROM attempted WHERE subject IN ('levels', 'read only');

--
-- A thousand times
--

SELECT last_seq AS before FROM lease.record_chain WHERE lease = 'att' \gset
CREATE TABLE answer (call text, outcome text, attempt bigint);
DO $$
DECLARE
	mine CONSTANT bigint := (SELECT epoch FROM lease.status WHERE name = 'att');
	number bigint;
BEGIN
	FOR i IN 1..1000 LOOP
		INSERT INTO answer SELECT 'open', o.outcome, o.attempt FROM lease.open_attempt('att', mine, 'often', '{"times": 1000}') AS o
			RETURNING attempt INTO number;
		COMMIT;
	END LOOP;
	FOR i IN 1..1000 LOOP
		INSERT INTO answer SELECT 'settle', s.outcome FROM lease.settle_attempt('att', mine, number, 'committed', '{"times": 1000}') AS s;
		COMMIT;
	END LOOP;
	FOR i IN 1..1000 LOOP
		INSERT INTO answer SELECT 'settle', s.outcome FROM lease.settle_attempt('att', mine, number, 'aborted', to_jsonb(i)) AS s;
		INSERT INTO answer SELECT 'open again', o.outcome, o.attempt FROM lease.open_attempt('att', mine, 'often', to_jsonb(i)) AS o;
		COMMIT;
	END LOOP;
END;
$$;
SELECT call, outcome, count(*), min(attempt) - :before AS first, max(attempt) - :before AS last FROM answer GROUP BY call, outcome ORDER BY call, outcome;
SELECT last_seq - :before AS records FROM lease.record_chain WHERE lease = 'att';
SELECT seq - :before AS next, kind, verdict FROM lease.record WHERE lease = 'att' AND subject = 'often' ORDER BY seq;

--
-- A leader who is gone, and the successor
--

SELECT outcome, attempt - :before AS next, attempt AS left FROM lease.open_attempt('att', :a, 'left open', '{"by": "A"}') \gset
\echo :outcome :next
SELECT outcome, attempt - :before AS next, attempt AS left2 FROM lease.open_attempt('att', :a, 'left open, too') \gset
\echo :outcome :next

-- Lost between the call and COMMIT: nothing is opened, nothing settled.
BEGIN;
SELECT outcome FROM lease.open_attempt('att', :a, 'late');
SELECT outcome FROM lease.settle_attempt('att', :a, :left, 'committed');
SET LOCAL lease.clock_offset = '2 h';
COMMIT;
SET lease.clock_offset = '2 h';
SELECT lease.open_attempt('att', :a, 'late');
SELECT lease.settle_attempt('att', :a, :left, 'committed');
RESET lease.clock_offset;
SELECT lease.release('att', :a);
SELECT lease.open_attempt('att', :a, 'late');
SELECT lease.settle_attempt('att', :a, :left, 'committed');
SELECT epoch AS b FROM lease.acquire('att', 'B') \gset
SELECT lease.open_attempt('att', :a, 'late');
SELECT lease.settle_attempt('att', :a, :left, 'committed');
-- Not past the guard either.
SELECT lease.record_opening('att', :b, 'late', NULL);
SELECT lease.record_settlement('att', :b, :left, 'committed', NULL, NULL);
BEGIN;
SELECT lease.guard('att', :b), lease.guard('att/other', :other);
SAVEPOINT s;
SELECT lease.record_opening('att', :a, 'late', NULL);
ROLLBACK TO s;
SELECT lease.record_settlement('att', :a, :left, 'committed', NULL, NULL);
ROLLBACK TO s;
SELECT lease.record_settlement('att', :other, :left, 'committed', NULL, NULL);
COMMIT;
SELECT subject, status FROM attempted WHERE subject IN ('left open', 'late');

-- The successor finds it open, also if the details are the same: it is not its own.
SELECT outcome, attempt = :left AS that, status, standing_detail, opened_epoch = :a AS under_a, opened_by FROM lease.open_attempt('att', :b, 'left open', '{"by": "B"}');
SELECT outcome, attempt = :left AS that, status, standing_detail, opened_epoch = :a AS under_a, opened_by FROM lease.open_attempt('att', :b, 'left open', '{"by": "A"}');
-- It settles it once, and is named.
SELECT outcome, standing_status, standing_detail, settled_epoch = :b AS under_b, settled_by FROM lease.settle_attempt('att', :b, :left, 'aborted', '"A is gone"');
SELECT outcome, settled_epoch = :b AS under_b, settled_by FROM lease.settle_attempt('att', :b, :left, 'aborted', '"A is gone"');
SELECT outcome, standing_status, settled_by FROM lease.settle_attempt('att', :b, :left, 'committed');
SELECT outcome, settled_by FROM lease.settle_attempt('att', :b, :left2, 'committed');
SELECT subject, status, epoch = :a AS opened_under_a, holder, settled_epoch = :b AS settled_under_b, settled_by FROM lease.attempt
	WHERE lease = 'att' AND subject LIKE 'left open%' ORDER BY attempt;
SELECT subject, outcome, settled, epoch = :b AS under_b, holder FROM lease.outcome WHERE lease = 'att' AND subject LIKE 'left open%' ORDER BY seq;
-- What A has settled B's retry finds settled.
SELECT outcome, standing_status, settled_by FROM lease.settle_attempt('att', :b, 1, 'committed', '{"bytes": 7}');
SELECT outcome, attempt, opened_by FROM lease.open_attempt('att', :b, 'backup', '{"run": 1}');
-- And begins anew.
SELECT outcome, attempt > :left AS later, opened_epoch = :b AS under_b, opened_by FROM lease.open_attempt('att', :b, 'left open', '{"by": "B"}');

SELECT count(*) = max(seq) AND min(seq) = 1 AS no_gaps, count(*) FILTER (WHERE kind = 'settled') = count(DISTINCT attempt) AS settled_once
	FROM lease.record WHERE lease = 'att';
SELECT verified, problem FROM lease.verify_authority('att');

--
-- What was compacted
--

-- An attempt goes with its settlement, when the time of that is over; who asks for it
-- then is told so, and its number does not come back.
SELECT outcome, attempt AS gone FROM lease.open_attempt('att/other', :other, 'short') \gset
SELECT outcome FROM lease.settle_attempt('att/other', :other, :gone, 'committed', keep => '0');
SELECT outcome FROM lease.settle_attempt('att/other', :other, 1, 'committed');
SELECT outcome, attempt FROM lease.open_attempt('att/other', :other, 'short');
SELECT removed, up_to, remaining, held_by FROM lease.compact('att/other', :other, before => 1000000);
SELECT attempt, subject, status FROM lease.attempt WHERE lease = 'att/other' ORDER BY attempt;
SELECT lease.settle_attempt('att/other', :other, :gone, 'committed');
SELECT :'LAST_ERROR_MESSAGE' AS message;
DO $$
DECLARE
	detail text;
BEGIN
	PERFORM lease.settle_attempt('att/other', (SELECT epoch FROM lease.status WHERE name = 'att/other'), 2, 'committed');
EXCEPTION WHEN undefined_object THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
	PERFORM set_config('lease_test.detail', detail, false);
END;
$$;
SELECT current_setting('lease_test.detail') AS detail;
SELECT outcome, attempt FROM lease.open_attempt('att/other', :other, 'short');
SELECT outcome, standing_status FROM lease.settle_attempt('att/other', :other, 1, 'committed');
SELECT verified, problem FROM lease.verify_authority('att/other');

-- Records stay; what is still open would be found by the doctor of a later test.
SELECT lease.settle_attempt(lease, CASE lease WHEN 'att' THEN :b ELSE :other END, attempt, 'aborted') FROM lease.attempt WHERE status = 'open' \g /dev/null
DROP TABLE answer;
DROP VIEW attempted;
SELECT lease.drop('att', force => true), lease.drop('att/other', force => true) \g /dev/null
