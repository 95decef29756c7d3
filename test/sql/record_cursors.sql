--
-- record_cursors: work goes on exactly where it was left.
--
-- A cursor moves by compare-and-set, from exactly where it stands, in the transaction that
-- does the step.  Into, in and out of a phase that is declared destructive it is moved
-- only under the epoch under which it was moved, or taken over, before.  Probes G3, G5 and
-- G10.
--
-- Epochs are shown by the holders to whom they were granted.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
RESET client_min_messages;

SELECT lease.create('cur', ttl => '1 hour'), lease.create('cur/other', ttl => '1 hour') \g /dev/null
SELECT epoch AS a FROM lease.acquire('cur', 'A') \gset
SELECT epoch AS other FROM lease.acquire('cur/other', 'A') \gset
CREATE VIEW standing AS
	SELECT cursor, position, phase, destructive, seq, holder FROM lease.cursor WHERE lease = 'cur' ORDER BY cursor;

--
-- Compare-and-set
--

-- From nowhere, and only from there.
SELECT outcome, seq, standing_position, standing_phase, recorded_by FROM lease.advance_cursor('cur', :a, 'rows', '10', 'copy', '20', 'copy');
SELECT outcome, seq, standing_position, standing_phase, recorded_epoch = :a AS under_a, recorded_by, recorded_at <= now() AS recorded
	FROM lease.advance_cursor('cur', :a, 'rows', NULL, NULL, '10', 'copy', '{"rows": 10}');
SELECT outcome, seq, standing_position, standing_phase FROM lease.advance_cursor('cur', :a, 'rows', '10', 'copy', '20', 'copy');
SELECT outcome, seq, standing_position, standing_phase, recorded_by FROM lease.advance_cursor('cur', :a, 'rows', NULL, NULL, '10', 'copy', '{"rows": 10}');
-- The latest move once more, as after a reply that was lost; whatever detail says now.
SELECT outcome, seq, standing_position, standing_phase FROM lease.advance_cursor('cur', :a, 'rows', '10', 'copy', '20', 'copy');
SELECT outcome, seq FROM lease.advance_cursor('cur', :a, 'rows', '10', 'copy', '20', 'copy', '{"again": true}');
-- From elsewhere, or from there to elsewhere, after that move.
SELECT outcome, seq, standing_position, standing_phase FROM lease.advance_cursor('cur', :a, 'rows', '10', 'copy', '21', 'copy');
SELECT outcome, seq, standing_position, standing_phase FROM lease.advance_cursor('cur', :a, 'rows', '10', 'copy', '20', 'check');
SELECT outcome, seq, standing_position, standing_phase FROM lease.advance_cursor('cur', :a, 'rows', '20', 'check', '30', 'check');
SELECT outcome, seq, standing_position, standing_phase FROM lease.advance_cursor('cur', :a, 'rows', '020', 'copy', '30', 'copy');
-- The phase alone, the position alone, and back: nothing says what comes after what.
SELECT outcome, seq, standing_position, standing_phase FROM lease.advance_cursor('cur', :a, 'rows', '20', 'copy', '20', 'check');
SELECT outcome, seq, standing_position, standing_phase FROM lease.advance_cursor('cur', :a, 'rows', '20', 'check', '10', 'check');
SELECT outcome, seq, standing_position, standing_phase FROM lease.advance_cursor('cur', :a, 'rows', '10', 'check', '10', 'copy');
-- It stands there again, and the move from nowhere to there was not the latest.
SELECT outcome, seq, standing_position, standing_phase FROM lease.advance_cursor('cur', :a, 'rows', NULL, NULL, '10', 'copy');
SELECT outcome, seq, standing_position, standing_phase FROM lease.advance_cursor('cur', :a, 'rows', '10', 'copy', '20', 'copy');

-- A cursor of another name, and of another lease.
SELECT outcome, seq FROM lease.advance_cursor('cur', :a, 'Rows', NULL, NULL, 'x', 'y');
SELECT outcome, seq FROM lease.advance_cursor('cur/other', :other, 'rows', NULL, NULL, 'x', 'y');
SELECT * FROM standing;
SELECT seq, kind, subject, from_position, from_phase, position, phase, verdict, detail FROM lease.record WHERE lease = 'cur' ORDER BY seq;

-- To where it stands is no step, also where it does not stand there.
SELECT lease.advance_cursor('cur', :a, 'rows', '20', 'copy', '20', 'copy');
SELECT lease.advance_cursor('cur', :a, 'rows', '99', 'copy', '99', 'copy');
-- Nowhere is both or none; everything else is missing, empty or too long.
SELECT lease.advance_cursor('cur', :a, 'rows', '20', NULL, '30', 'copy');
SELECT lease.advance_cursor('cur', :a, 'rows', NULL, 'copy', '30', 'copy');
SELECT lease.advance_cursor('cur', :a, 'new', NULL, NULL, NULL, 'copy');
SELECT lease.advance_cursor('cur', :a, 'new', NULL, NULL, '10', NULL);
SELECT lease.advance_cursor('cur', :a, 'new', NULL, NULL, NULL, NULL);
SELECT lease.advance_cursor('cur', :a, 'new', NULL, NULL, '', 'copy');
SELECT lease.advance_cursor('cur', :a, 'new', NULL, NULL, '10', '');
SELECT lease.advance_cursor('cur', :a, 'new', '', 'copy', '10', 'copy');
SELECT lease.advance_cursor('cur', :a, 'new', '10', '', '10', 'copy');
SELECT lease.advance_cursor('cur', :a, NULL, NULL, NULL, '10', 'copy');
SELECT lease.advance_cursor('cur', :a, '', NULL, NULL, '10', 'copy');
SELECT lease.advance_cursor('cur', :a, repeat('c', 513), NULL, NULL, '10', 'copy');
SELECT lease.advance_cursor('cur', :a, 'new', NULL, NULL, repeat('p', 513), 'copy');
SELECT lease.advance_cursor('cur', :a, 'new', NULL, NULL, '10', repeat('p', 256));
SELECT lease.advance_cursor('cur', :a, 'new', NULL, NULL, '10', 'copy', to_jsonb(repeat('d', 8191)));
SELECT outcome, seq FROM lease.advance_cursor('cur', :a, repeat('c', 512), NULL, NULL, repeat('p', 512), repeat('p', 255), to_jsonb(repeat('d', 8190)));
SELECT count(*) FROM standing WHERE cursor = 'new';

-- Strict
SELECT lease.advance_cursor('cur', :a, 'rows', '99', 'copy', '30', 'copy', strict => true);
SELECT :'LAST_ERROR_MESSAGE' AS message;
SELECT lease.advance_cursor('cur', :a, 'new', '99', 'copy', '30', 'copy', strict => NULL);
SELECT outcome, seq FROM lease.advance_cursor('cur', :a, 'rows', '10', 'copy', '20', 'copy', strict => true);

--
-- With the step, or not at all
--

CREATE TABLE work (x int);
SELECT lease.protect('work', 'cur', ddl => false);
-- Rolled back with it, and in a savepoint
BEGIN;
SELECT outcome FROM lease.advance_cursor('cur', :a, 'rows', '20', 'copy', '30', 'copy');
INSERT INTO work VALUES (30);
ROLLBACK;
BEGIN;
SELECT outcome, seq FROM lease.advance_cursor('cur', :a, 'rows', '20', 'copy', '30', 'copy');
INSERT INTO work VALUES (30);
SAVEPOINT s;
SELECT outcome, seq FROM lease.advance_cursor('cur', :a, 'rows', '30', 'copy', '40', 'copy');
INSERT INTO work VALUES (40);
ROLLBACK TO s;
SELECT outcome, seq FROM lease.advance_cursor('cur', :a, 'rows', '30', 'copy', '35', 'copy');
INSERT INTO work VALUES (35);
COMMIT;
-- What has been done for a step that turns out to be stale is undone by strict.
BEGIN;
SELECT lease.guard('cur', :a);
INSERT INTO work VALUES (30);
SELECT outcome FROM lease.advance_cursor('cur', :a, 'rows', '20', 'copy', '30', 'copy', strict => true);
COMMIT;
SELECT array_agg(x ORDER BY x) AS done, (SELECT position FROM standing WHERE cursor = 'rows') AS position FROM work;
-- Several in one transaction, of several cursors; at the other levels of isolation.
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT outcome, seq FROM lease.advance_cursor('cur', :a, 'rows', '35', 'copy', '40', 'copy');
SELECT outcome, seq FROM lease.advance_cursor('cur', :a, 'Rows', 'x', 'y', 'z', 'y');
SELECT outcome, seq FROM lease.advance_cursor('cur', :a, 'rows', '40', 'copy', '45', 'copy');
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT outcome, seq FROM lease.advance_cursor('cur', :a, 'rows', '40', 'copy', '45', 'copy');
SELECT outcome, seq FROM lease.advance_cursor('cur', :a, 'rows', '45', 'copy', '50', 'copy');
COMMIT;
BEGIN READ ONLY;
SELECT lease.advance_cursor('cur', :a, 'rows', '50', 'copy', '55', 'copy');
COMMIT;
SELECT * FROM standing WHERE length(cursor) < 10;

-- A thousand times
SELECT last_seq AS before FROM lease.record_chain WHERE lease = 'cur' \gset
CREATE TABLE answer (outcome text, seq bigint);
DO $$
DECLARE
	mine CONSTANT bigint := (SELECT epoch FROM lease.status WHERE name = 'cur');
BEGIN
	FOR i IN 1..1000 LOOP
		INSERT INTO answer SELECT c.outcome, c.seq FROM lease.advance_cursor('cur', mine, 'rows', '50', 'copy', '60', 'copy') AS c;
		COMMIT;
	END LOOP;
	FOR i IN 1..1000 LOOP
		INSERT INTO answer SELECT c.outcome, c.seq FROM lease.advance_cursor('cur', mine, 'rows', '50', 'copy', (60 + i)::text, 'copy') AS c;
		COMMIT;
	END LOOP;
END;
$$;
SELECT outcome, count(*), min(seq) - :before AS first, max(seq) - :before AS last FROM answer GROUP BY outcome ORDER BY outcome;
SELECT last_seq - :before AS records FROM lease.record_chain WHERE lease = 'cur';

--
-- Destructive phases
--

SELECT lease.declare_destructive('cur', :a, 'rows', 'delete');
SELECT lease.declare_destructive('cur', :a, 'rows', 'delete');
SELECT lease.declare_destructive('cur', :a, 'rows', 'truncate');
SELECT lease.is_destructive('cur', 'rows', 'delete'), lease.is_destructive('cur', 'rows', 'copy'), lease.is_destructive('cur', 'Rows', 'delete'),
	lease.is_destructive('cur/other', 'rows', 'delete'), lease.is_destructive('cur', 'rows', NULL);
SELECT lease.declare_destructive('cur', :a, 'rows', NULL);
SELECT lease.declare_destructive('cur', :a, 'rows', '');
SELECT lease.declare_destructive('cur', :a, 'rows', repeat('p', 256));
SELECT lease.declare_destructive('cur', :a, NULL, 'delete');
SELECT lease.declare_destructive('cur', :a, '', 'delete');
SELECT seq - :before AS next, kind, subject, phase, kept_until FROM lease.record WHERE lease = 'cur' AND kind = 'declared' ORDER BY seq;

-- For who has recorded the step before nothing changes: into, in, and out of it.
SELECT outcome FROM lease.advance_cursor('cur', :a, 'rows', '60', 'copy', '60', 'delete');
SELECT outcome FROM lease.advance_cursor('cur', :a, 'rows', '60', 'delete', '50', 'delete');
SELECT outcome FROM lease.advance_cursor('cur', :a, 'rows', '50', 'delete', '50', 'truncate');
SELECT outcome FROM lease.advance_cursor('cur', :a, 'rows', '50', 'truncate', '50', 'copy');
-- A cursor may begin in one.
SELECT outcome FROM lease.advance_cursor('cur', :a, 'begins', NULL, NULL, '1', 'wipe');
SELECT lease.declare_destructive('cur', :a, 'begins', 'wipe');
SELECT cursor, destructive FROM standing WHERE length(cursor) < 10;
-- There is nothing for A to take over from itself.
SELECT outcome, standing_position, standing_phase, recorded_by FROM lease.take_over_cursor('cur', :a, 'rows', '50', 'copy');
SELECT outcome, standing_position, standing_phase FROM lease.take_over_cursor('cur', :a, 'rows', '50', 'delete');
SELECT outcome, standing_position, standing_phase FROM lease.take_over_cursor('cur', :a, 'nowhere', '50', 'delete');

--
-- A new leader
--

-- The old one is refused from then on: at the call, and at COMMIT.
BEGIN;
SELECT outcome FROM lease.advance_cursor('cur', :a, 'rows', '50', 'copy', '60', 'copy');
SELECT lease.revoke('cur') = :a AS revoked;
COMMIT;
SELECT lease.release('cur', :a);
SELECT lease.advance_cursor('cur', :a, 'rows', '50', 'copy', '60', 'copy');
SELECT epoch AS b FROM lease.acquire('cur', 'B') \gset
SELECT lease.advance_cursor('cur', :a, 'rows', '50', 'copy', '60', 'copy');
SELECT lease.take_over_cursor('cur', :a, 'rows', '50', 'copy');
SELECT lease.declare_destructive('cur', :a, 'rows', 'copy');
SET lease.clock_offset = '2 h';
SELECT lease.advance_cursor('cur', :b, 'rows', '50', 'copy', '60', 'copy');
RESET lease.clock_offset;
-- Not past the guard either
SELECT lease.record_cursor('cur', :b, 'rows', '50', 'copy', '60', 'copy', false, NULL);
SELECT lease.record_declaration('cur', :b, 'rows', 'copy');
BEGIN;
SELECT lease.guard('cur', :b), lease.guard('cur/other', :other);
SAVEPOINT s;
SELECT lease.record_cursor('cur', :a, 'rows', '50', 'copy', '60', 'copy', false, NULL);
ROLLBACK TO s;
SELECT lease.record_cursor('cur', :other, 'rows', '50', 'copy', '60', 'copy', false, NULL);
ROLLBACK TO s;
SELECT lease.record_declaration('cur', :a, 'rows', 'copy');
COMMIT;

-- In a phase that is not destructive the new one goes on at once, and exactly there.
SELECT outcome, standing_position, standing_phase, recorded_by FROM lease.advance_cursor('cur', :b, 'rows', '60', 'copy', '70', 'copy');
SELECT outcome, standing_position, standing_phase, recorded_by FROM lease.advance_cursor('cur', :b, 'rows', '50', 'copy', '60', 'copy');
SELECT outcome FROM lease.advance_cursor('cur', :b, 'rows', '60', 'copy', '60', 'delete');
SELECT outcome FROM lease.advance_cursor('cur', :b, 'rows', '60', 'delete', '50', 'delete');

-- The next one may do so neither in that phase, nor out of it: B may have left it half done.
SELECT lease.release('cur', :b);
SELECT epoch AS c FROM lease.acquire('cur', 'C') \gset
SELECT last_seq AS before FROM lease.record_chain WHERE lease = 'cur' \gset
SELECT outcome, standing_position, standing_phase, recorded_epoch = :b AS under_b, recorded_by FROM lease.advance_cursor('cur', :c, 'rows', '50', 'delete', '40', 'delete');
SELECT outcome, standing_position, standing_phase FROM lease.advance_cursor('cur', :c, 'rows', '50', 'delete', '50', 'truncate');
SELECT outcome, standing_position, standing_phase FROM lease.advance_cursor('cur', :c, 'rows', '50', 'delete', '50', 'copy');
SELECT lease.advance_cursor('cur', :c, 'rows', '50', 'delete', '40', 'delete', strict => true);
SELECT :'LAST_ERROR_MESSAGE' AS message;
-- What is not where it stands is stale first; B's latest step is a retry of it.
SELECT outcome FROM lease.advance_cursor('cur', :c, 'rows', '60', 'delete', '40', 'delete');
SELECT outcome, recorded_by FROM lease.advance_cursor('cur', :c, 'rows', '60', 'delete', '50', 'delete');
SELECT last_seq - :before AS records FROM lease.record_chain WHERE lease = 'cur';

-- Not past that either: the part that writes it takes nothing for a take-over that is none.
BEGIN;
SELECT lease.guard('cur', :c);
SAVEPOINT s;
SELECT lease.record_cursor('cur', :c, 'rows', '50', 'delete', '40', 'delete', NULL, NULL);
ROLLBACK TO s;
SELECT lease.record_cursor('cur', :c, 'rows', '50', 'delete', '40', 'delete', true, NULL);
ROLLBACK TO s;
SELECT lease.record_cursor('cur', :c, 'new', NULL, NULL, '40', 'delete', true, NULL);
ROLLBACK TO s;
SELECT (lease.record_cursor('cur', :c, 'rows', '50', 'delete', '40', 'delete', false, NULL)).outcome;
COMMIT;

-- To take it over is to say where it was found, and is for one leader.
SELECT outcome, standing_position, standing_phase, recorded_by FROM lease.take_over_cursor('cur', :c, 'rows', '40', 'delete');
SELECT outcome, standing_position, standing_phase, recorded_by FROM lease.take_over_cursor('cur', :c, 'rows', '50', 'copy');
BEGIN;
SELECT outcome FROM lease.take_over_cursor('cur', :c, 'rows', '50', 'delete');
ROLLBACK;
SELECT outcome FROM lease.advance_cursor('cur', :c, 'rows', '50', 'delete', '40', 'delete');
SELECT outcome, seq - :before AS next, standing_position, standing_phase, recorded_epoch = :c AS under_c, recorded_by
	FROM lease.take_over_cursor('cur', :c, 'rows', '50', 'delete', '{"half": "done"}');
SELECT outcome, seq - :before AS next, recorded_by FROM lease.take_over_cursor('cur', :c, 'rows', '50', 'delete');
-- B's latest step is not the latest record any more, so that it is stale now.
SELECT outcome, recorded_by FROM lease.advance_cursor('cur', :c, 'rows', '60', 'delete', '50', 'delete');
SELECT outcome FROM lease.advance_cursor('cur', :c, 'rows', '50', 'delete', '40', 'delete');
SELECT outcome FROM lease.advance_cursor('cur', :c, 'rows', '40', 'delete', '40', 'copy');
SELECT seq - :before AS next, subject, from_position, from_phase, position, phase, verdict, detail, holder
	FROM lease.record WHERE lease = 'cur' AND seq > :before ORDER BY seq;

-- Into one, too, it takes that; and of the other cursor nobody has taken over anything.
SELECT lease.release('cur', :c);
SELECT epoch AS d FROM lease.acquire('cur', 'D') \gset
SELECT outcome, standing_position, standing_phase, recorded_by FROM lease.advance_cursor('cur', :d, 'rows', '40', 'copy', '40', 'truncate');
SELECT outcome FROM lease.advance_cursor('cur', :d, 'begins', '1', 'wipe', '2', 'wipe');
SELECT outcome FROM lease.take_over_cursor('cur', :d, 'rows', '40', 'copy');
SELECT outcome FROM lease.advance_cursor('cur', :d, 'rows', '40', 'copy', '40', 'truncate');
SELECT outcome FROM lease.advance_cursor('cur', :d, 'begins', '1', 'wipe', '2', 'wipe');
-- The same holder under a later epoch is somebody else.
SELECT lease.release('cur', :d);
SELECT epoch AS e FROM lease.acquire('cur', 'D') \gset
SELECT outcome FROM lease.advance_cursor('cur', :e, 'rows', '40', 'truncate', '30', 'truncate');
SELECT outcome FROM lease.take_over_cursor('cur', :e, 'rows', '40', 'truncate');
SELECT outcome FROM lease.advance_cursor('cur', :e, 'rows', '40', 'truncate', '30', 'truncate');
-- A phase that is declared while another leader's step stands in it, counts from then on.
SELECT outcome FROM lease.advance_cursor('cur', :e, 'Rows', 'z', 'y', 'z', 'late');
SELECT lease.release('cur', :e);
SELECT epoch AS f FROM lease.acquire('cur', 'F') \gset
SELECT lease.declare_destructive('cur', :f, 'Rows', 'late');
SELECT outcome FROM lease.advance_cursor('cur', :f, 'Rows', 'z', 'late', 'z', 'y');

SELECT lease.take_over_cursor('cur', :f, NULL, '50', 'delete');
SELECT lease.take_over_cursor('cur', :f, 'rows', NULL, 'delete');
SELECT lease.take_over_cursor('cur', :f, 'rows', '50', NULL);
SELECT lease.take_over_cursor('cur', :f, 'rows', '', 'delete');
SELECT lease.take_over_cursor('cur', :f, 'rows', '50', '');
SELECT lease.take_over_cursor('cur', :f, 'rows', '30', 'truncate', to_jsonb(repeat('d', 8191)));

SELECT cursor, position, phase, destructive, epoch = :e AS under_e, holder FROM lease.cursor WHERE lease = 'cur' AND length(cursor) < 10 ORDER BY cursor;
SELECT count(*) = max(seq) AND min(seq) = 1 AS no_gaps, bool_and(from_position IS NOT DISTINCT FROM stood AND from_phase IS NOT DISTINCT FROM stood_in) AS each_from_the_one_before
	FROM (SELECT seq, kind, from_position, from_phase,
			CASE kind WHEN 'cursor' THEN lag(position) OVER of_cursor END AS stood,
			CASE kind WHEN 'cursor' THEN lag(phase) OVER of_cursor END AS stood_in
		FROM lease.record WHERE lease = 'cur' WINDOW of_cursor AS (PARTITION BY kind, subject ORDER BY seq)) AS r;
SELECT verified, problem FROM lease.verify_authority('cur');

-- The doctor of a later test would find what nobody has taken over.
SELECT outcome FROM lease.cursor AS c, lease.take_over_cursor('cur', :f, c.cursor, c.position, c.phase) WHERE lease = 'cur' AND destructive ORDER BY c.cursor;
SELECT outcome FROM lease.advance_cursor('cur', :f, 'rows', '30', 'truncate', '0', 'done');
SELECT outcome FROM lease.advance_cursor('cur', :f, 'begins', '1', 'wipe', '0', 'done');
SELECT outcome FROM lease.advance_cursor('cur', :f, 'Rows', 'z', 'late', '0', 'done');
DROP TABLE work, answer;
DROP VIEW standing;
SELECT lease.drop('cur', force => true), lease.drop('cur/other', force => true) \g /dev/null
