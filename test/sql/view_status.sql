--
-- view_status: what lease.status shows of each kind of lease.
--
-- Every lease as it stands at the transaction time: held, free, expired, reserved, grace.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
RESET client_min_messages;

\d lease.status

-- Times in minutes from now.
CREATE FUNCTION in_minutes(t timestamptz) RETURNS numeric LANGUAGE sql AS $$
	SELECT round(extract(epoch FROM t - now()) / 60)
$$;
CREATE VIEW brief AS
	SELECT name, state, epoch IS NOT NULL AS epoch, holder, last_end AS ended, in_minutes(acquired_at) AS acquired,
			in_minutes(expires_at) AS expires, round(extract(epoch FROM remaining) / 60) AS remains,
			in_minutes(available_at) AS available, successor, reason
		FROM lease.status WHERE name LIKE 's/%' ORDER BY name COLLATE "C";

-- Nothing there.
SELECT * FROM brief;

-- One of each kind, all for half an hour.
SELECT lease.create('s/' || name, ttl => '30 min', grace => grace, min_hold => min_hold)
	FROM (VALUES
		('never', interval '20 min', interval '40 min'),
		('held', '0', '0'),
		('held-grace', '20 min', '0'),
		('held-min-hold', '0', '40 min'),
		('lapsed', '0', '0'),
		('lapsed-grace', '20 min', '0'),
		('lapsed-grace-over', '5 min', '0'),
		('lapsed-revoked', '20 min', '0'),
		('released', '20 min', '0'),
		('released-min-hold', '0', '40 min'),
		('released-min-hold-over', '0', '5 min'),
		('reserved', '0', '0'),
		('reserved-min-hold', '0', '40 min'),
		('reserved-over', '0', '0'),
		('revoked', '20 min', '40 min'),
		('revoked-no-reason', '0', '0')) AS l(name, grace, min_hold) \g /dev/null

-- Acquired 40 minutes ago, or ten; ended now, or eight minutes ago.
SET lease.clock_offset = '-40 min';
SELECT lease.acquire(name, 'a') FROM lease.status WHERE name LIKE 's/lapsed%' \g /dev/null
SET lease.clock_offset = '-10 min';
SELECT lease.acquire(name, 'a') FROM lease.status WHERE name LIKE 's/%' AND name !~ 's/(lapsed|never)' \g /dev/null
SET lease.clock_offset = '-8 min';
SELECT lease.release(name, epoch, 'heir', '5 min') FROM lease.status WHERE name = 's/reserved-over';
RESET lease.clock_offset;
SELECT name, lease.release(name, epoch) FROM lease.status WHERE name LIKE 's/released%' ORDER BY name COLLATE "C";
SELECT name, lease.release(name, epoch, 'heir', '15 min') FROM lease.status
	WHERE name IN ('s/reserved', 's/reserved-min-hold') ORDER BY name;
SELECT name, lease.revoke(name, 'maintenance') = epoch AS revoked FROM lease.status
	WHERE name IN ('s/lapsed-revoked', 's/revoked') ORDER BY name;
SELECT lease.revoke('s/revoked-no-reason') IS NOT NULL AS revoked;

-- What is held is available after its time and grace, unless it is released before; a
-- time in the past means that it has been available since then.
SELECT * FROM brief;

-- What it says is what an acquire answers.
CREATE TABLE answer AS
	SELECT name, state, NULL::text AS outcome, NULL::text AS outcome_for_heir, NULL::boolean AS guard FROM lease.status WHERE name LIKE 's/%';
DO $$
DECLARE
	l record;
BEGIN
	FOR l IN SELECT * FROM lease.status WHERE name LIKE 's/%' LOOP
		BEGIN
			UPDATE answer SET outcome = (lease.acquire(l.name, 'b')).outcome WHERE name = l.name RETURNING outcome INTO l.holder;
			RAISE 'undo' USING ERRCODE = 'UNDO0';
		EXCEPTION WHEN SQLSTATE 'UNDO0' THEN
			UPDATE answer SET outcome = l.holder WHERE name = l.name;
		END;
		BEGIN
			UPDATE answer SET outcome = (lease.acquire(l.name, 'heir')).outcome WHERE name = l.name RETURNING outcome INTO l.holder;
			RAISE 'undo' USING ERRCODE = 'UNDO0';
		EXCEPTION WHEN SQLSTATE 'UNDO0' THEN
			UPDATE answer SET outcome_for_heir = l.holder, guard = lease.holds(l.name, l.epoch) WHERE name = l.name;
		END;
	END LOOP;
END;
$$;
SELECT state, outcome, outcome_for_heir, guard AS holds, count(*) FROM answer GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3;

-- It shows what this transaction has changed, and settings that have been altered.
BEGIN;
SELECT lease.alter('s/held', ttl => '1 min', grace => '10 min', min_hold => '5 min', late_commit => true, role => 'pg_monitor');
SELECT outcome FROM lease.acquire('s/lapsed', 'b', '10 min', metadata => '{"a": 1}');
SELECT * FROM brief WHERE name IN ('s/held', 's/lapsed');
SELECT name, role::text = current_user AS own_role, ttl, grace, min_hold, late_commit, metadata FROM lease.status WHERE name IN ('s/held', 's/lapsed') ORDER BY name;
ROLLBACK;
SELECT * FROM brief WHERE name IN ('s/held', 's/lapsed');

-- A grant ends the successor and the reason of the one before.
SELECT a.outcome FROM lease.status s, lease.acquire(s.name, 'b') a WHERE s.name IN ('s/reserved-over', 's/revoked');
SELECT name, state, ended, successor, reason FROM brief WHERE name IN ('s/reserved-over', 's/revoked');

-- The view can be joined, scanned again, and read without a snapshot of its own.
SELECT count(*) FROM lease.status a JOIN lease.status b USING (name) WHERE name LIKE 's/%';
SELECT count(*) FROM generate_series(1, 3) i, LATERAL (SELECT * FROM lease.status s WHERE s.name LIKE 's/%' AND i > 0) s;
SELECT name FROM lease.status WHERE name LIKE 's/%' ORDER BY name LIMIT 1;

DROP TABLE answer;
DROP VIEW brief;
DROP FUNCTION in_minutes;
SELECT count(lease.drop(name, force => true)) FROM lease.status WHERE name LIKE 's/%';
SELECT count(*) FROM lease.status WHERE name LIKE 's/%';
