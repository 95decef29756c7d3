--
-- record_findings: what lease.doctor() finds about decisions, attempts, cursors and floors.
--
-- It is quiet while all is well and somebody leads.  Whatever a leader who is gone has
-- left half done is found, and what cannot go on any more; what its remedy says, executed
-- as it stands, makes it quiet again.  One word of a remedy is for the reader to replace:
-- another_role.  Where there is no remedy, what the meaning says to do is done.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
RESET client_min_messages;
SET datestyle = 'ISO';
\pset format unaligned

CREATE ROLE regress_rf_team;

SELECT lease.create('rf', ttl => '10 days') \g /dev/null
SELECT epoch AS a FROM lease.acquire('rf', 'A') \gset

-- What is found is what this test makes; epochs and times are replaced.
PREPARE findings AS
	SELECT format(E'%s: %s\n  %s\n  %s', d.severity, d.object, regexp_replace(regexp_replace(d.meaning, '\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?[+-][\d:]+', '<time>', 'g'),
			'epoch \d+', 'epoch <epoch>', 'g'), coalesce(regexp_replace(d.remedy, '(''rf'',) \d+', '\1 <epoch>'), '-')) AS finding
	FROM lease.doctor() WITH ORDINALITY AS d(severity, object, meaning, remedy, n)
	WHERE d.object ~ '"rf|floor|lease.record' ORDER BY d.n;
PREPARE remedies AS
	SELECT replace(d.remedy, 'another_role', 'regress_rf_team')
	FROM lease.doctor() WITH ORDINALITY AS d(severity, object, meaning, remedy, n)
	WHERE d.object ~ '"rf|floor|lease.record' ORDER BY d.n;

--
-- While all is well
--

SELECT outcome FROM lease.decide('rf', :a, 'x', 'yes');
SELECT outcome, attempt AS first FROM lease.open_attempt('rf', :a, 'first') \gset
SELECT outcome, attempt AS second FROM lease.open_attempt('rf', :a, 'second') \gset
SELECT lease.declare_destructive('rf', :a, 'c''s', 'delete');
SELECT outcome FROM lease.advance_cursor('rf', :a, 'c''s', NULL, NULL, '7''', 'delete');
SELECT outcome FROM lease.advance_cursor('rf', :a, 'd', NULL, NULL, '1', 'copy');
SELECT outcome FROM lease.advance_floor('rf', :a, 'rf/f', 10);
SELECT outcome FROM lease.pin('rf/f', 10, 'reader', '1 h');
EXECUTE findings;

--
-- A leader who is gone
--

-- Nobody leads: what was left open, and where the cursor stands.  There is nobody who
-- could do something about it.
SELECT lease.release('rf', :a);
EXECUTE findings;
-- Somebody does.  The remedy is for the cursor; it says exactly where it stands.
SELECT epoch AS b FROM lease.acquire('rf', 'B') \gset
EXECUTE findings;
DO $$ BEGIN EXECUTE (SELECT remedy FROM lease.doctor() WHERE object LIKE 'cursor %'); END; $$;
SELECT cursor, position, phase, holder FROM lease.cursor WHERE lease = 'rf' ORDER BY cursor;
EXECUTE findings;
SELECT outcome FROM lease.advance_cursor('rf', :b, 'c''s', '7''', 'delete', '8', 'done');
-- The attempts are settled, one after the other.
SELECT outcome FROM lease.settle_attempt('rf', :b, :first, 'aborted');
EXECUTE findings;
SELECT outcome FROM lease.settle_attempt('rf', :b, :second, 'aborted');
EXECUTE findings;
-- A grant that is over is not held; one that was renewed is.
SELECT outcome FROM lease.open_attempt('rf', :b, 'third');
SET lease.clock_offset = '11 d';
EXECUTE findings;
RESET lease.clock_offset;
EXECUTE findings;
SELECT s.outcome FROM lease.open_attempt('rf', :b, 'third') AS o, lease.settle_attempt('rf', :b, o.attempt, 'aborted') AS s;

--
-- Records that are missing, or altered
--

BEGIN;
ALTER TABLE lease.record DISABLE TRIGGER lease_keep_events;
EXECUTE findings;
SAVEPOINT s;
DELETE FROM lease.record r USING lease.record_chain c WHERE c.lease = 'rf' AND r.lease = 'rf' AND r.seq = c.last_seq;
EXECUTE findings;
SELECT problem FROM lease.verify_authority('rf');
ROLLBACK TO s;
UPDATE lease.record r SET digest = sha256('x') FROM lease.record_chain c WHERE c.lease = 'rf' AND r.lease = 'rf' AND r.seq = c.last_seq;
EXECUTE findings;
ROLLBACK TO s;
UPDATE lease.record_chain c SET last_seq = r.seq, last_digest = r.digest FROM lease.record r WHERE c.lease = 'rf' AND r.lease = 'rf' AND r.seq = c.last_seq - 1;
EXECUTE findings;
ROLLBACK TO s;
-- The trigger that keeps them
EXECUTE remedies \gexec
EXECUTE findings;
DELETE FROM lease.record WHERE lease = 'rf';
ROLLBACK;
EXECUTE findings;

--
-- Floors
--

-- A pin that has been renewed for longer than a day, and is the lowest
SET lease.clock_offset = '30 min';
SELECT outcome FROM lease.renew_pin('rf/f', 'reader', '2 d');
SELECT outcome FROM lease.pin('rf/f', 11, 'another', '2 d');
EXECUTE findings;
SET lease.clock_offset = '25 h';
EXECUTE findings;
EXECUTE remedies \gexec
-- That of the other has become the lowest.
EXECUTE findings;
EXECUTE remedies \gexec
EXECUTE findings;
RESET lease.clock_offset;

-- A floor of a lease that there is not any more; that of its records is none of those.
SELECT lease.drop('rf', force => true);
EXECUTE findings;
EXECUTE remedies \gexec
EXECUTE findings;
SELECT epoch AS c FROM lease.acquire('rf', 'C') \gset
SELECT outcome, floor_position FROM lease.advance_floor('rf', :c, 'rf/f', 20);
SELECT name, role FROM lease.status WHERE name = 'rf';
SELECT verified, problem FROM lease.verify_authority('rf');

-- Floors and records stay; the doctor of a later test would find them.
SET client_min_messages = warning;
DEALLOCATE ALL;
DROP EXTENSION lease;
DROP ROLE regress_rf_team;
CREATE EXTENSION lease;
