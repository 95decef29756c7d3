--
-- view_health: held is not working, and peers are stale by the age of their heartbeats.
--
-- Section 5.3 of the contract: a holder that renews but reports no progress, one that
-- reports but does not renew, one that does neither: three different rows.  Orphans and
-- metrics are made of the same.
--
-- Time passes by lease.clock_offset.  Verdicts are shown without their seconds, and the
-- clock stands some seconds past the minute, so that a slow machine shows the same.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
RESET client_min_messages;
\d lease.health
\d lease.peer
\d lease.orphan
\d lease.metric

CREATE FUNCTION minutes(t interval) RETURNS numeric LANGUAGE sql AS $$
	SELECT trunc(extract(epoch FROM t) / 60)
$$;
CREATE FUNCTION without_seconds(verdict text) RETURNS text LANGUAGE sql AS $$
	SELECT regexp_replace(verdict, '(\d\d:\d\d):\d\d', '\1')
$$;
CREATE VIEW brief AS
	SELECT name, state, held, epoch IS NOT NULL AS epoch, holder, minutes(remaining) AS remains, working, minutes(progress_age) AS age,
			minutes(silence) AS silence, progress_detail AS detail, reports, without_seconds(verdict) AS verdict
		FROM lease.health ORDER BY name COLLATE "C";

--
-- Held is not working
--

-- Nothing there.
SELECT * FROM brief;
SELECT lease.create(name, ttl => '5 min') FROM (VALUES ('both'), ('neither'), ('never'), ('renews'), ('reports')) AS l(name) \g /dev/null
SELECT count(lease.acquire(name, 'a')) FROM lease.status WHERE name <> 'never';
SELECT epoch AS both FROM lease.status WHERE name = 'both' \gset
SELECT epoch AS renews FROM lease.status WHERE name = 'renews' \gset
SELECT epoch AS reports FROM lease.status WHERE name = 'reports' \gset
-- A grant alone is no progress.
SELECT * FROM brief;
SELECT lease.progress('both', :both), lease.progress('reports', :reports, '{"done": 1}');
SELECT * FROM brief;

-- Four minutes later one of them renews, one reports, and one does both.
SET lease.clock_offset = '250 s';
SELECT outcome FROM lease.renew('both', :both);
SELECT outcome FROM lease.renew('renews', :renews);
SELECT lease.progress('both', :both, '{"done": 2}'), lease.progress('reports', :reports, '{"done": 2}');
SELECT * FROM brief;

-- Four more minutes later as well.  One of those who report holds nothing any more: it is
-- told so, and is seen working.
SET lease.clock_offset = '490 s';
SELECT outcome FROM lease.renew('both', :both);
SELECT outcome FROM lease.renew('renews', :renews);
SELECT lease.progress('both', :both, '{"done": 3}'), lease.progress('reports', :reports, '{"done": 3}');
SET lease.clock_offset = '610 s';
SELECT * FROM brief;
SELECT verdict ~ '^held, no progress for 00:10:[1-5]\d$' AS as_documented FROM lease.health WHERE name = 'renews';
-- The verdict does not depend on how intervals are shown elsewhere.
SET intervalstyle = 'iso_8601';
SELECT without_seconds(verdict) FROM lease.health WHERE name = 'renews';
RESET intervalstyle;

-- A day later all is over; what is shown is for how long.
SET lease.clock_offset = '90010 s';
SELECT name, working, verdict FROM brief;
SELECT name, minutes(expired_ago) AS expired FROM lease.health ORDER BY name COLLATE "C";
RESET lease.clock_offset;

-- The clock decides, not the order of calls: for a session whose clock is behind, the
-- reports came just now, since an age is never negative.
SELECT progress_age, working FROM lease.health WHERE name = 'both';
-- How old that is which the boot clock of another host, or none, has seen, the wall clock
-- tells; and something of everything.
SELECT minutes(lease.elapsed(lease.boot_clock(), -60000000, now())) > 0 OR lease.boot_clock() IS NULL AS by_boot_clock,
	minutes(lease.elapsed('elsewhere', 0, now() - interval '5 min')) AS elsewhere,
	minutes(lease.elapsed(NULL, 0, now() - interval '5 min')) AS no_boot_clock,
	minutes(lease.elapsed(lease.boot_clock(), NULL, now() - interval '5 min')) AS not_on_it;
SELECT lease.elapsed(NULL, NULL, NULL), lease.elapsed('', 9223372036854775807, 'infinity'),
	lease.elapsed(lease.boot_clock(), 9223372036854775807, 'infinity') AS future,
	lease.elapsed(NULL, NULL, '-infinity') > '10000 years' AS long_ago,
	lease.elapsed(lease.boot_clock(), -9223372036854775808, '-infinity') > '10000 years' AS also;

--
-- Until when a report counts
--

-- By default for the ttl of the grant, else for as long as it promises.
SELECT lease.create('within', ttl => '5 min');
SELECT epoch AS within FROM lease.acquire('within', 'a', '20 min') \gset
SELECT lease.progress('within', :within);
SELECT progress_within FROM lease.health WHERE name = 'within';
SET lease.clock_offset = '19 min';
SELECT working, verdict FROM brief WHERE name = 'within';
SELECT lease.progress('within', :within, within => '30 s');
SELECT working, verdict FROM brief WHERE name = 'within';
SET lease.clock_offset = '1175 s';
SELECT held, working, verdict FROM brief WHERE name = 'within';

-- A report that came before an expiry may still be true,
SELECT lease.progress('within', :within, within => '10 min');
SET lease.clock_offset = '1210 s';
SELECT held, working, verdict FROM brief WHERE name = 'within';
-- or before a revocation, until the holder has noticed;
SELECT epoch AS within FROM lease.acquire('within', 'b', '20 min') \gset
SELECT working, reports, verdict FROM brief WHERE name = 'within';
SELECT lease.progress('within', :within);
SELECT lease.revoke('within') = :within AS revoked;
SELECT state, held, working, verdict FROM brief WHERE name = 'within';
SELECT lease.progress('within', :within, '{"still": "here"}', '1 min');
SELECT state, held, working, verdict FROM brief WHERE name = 'within';
SET lease.clock_offset = '1290 s';
SELECT state, held, working, verdict FROM brief WHERE name = 'within';
-- but who releases has stopped, unless it goes on.
SELECT epoch AS within FROM lease.acquire('within', 'b', '20 min') \gset
SELECT lease.progress('within', :within);
SELECT lease.release('within', :within);
SELECT state, working, age, reports, verdict FROM brief WHERE name = 'within';
SELECT lease.progress('within', :within);
SELECT state, working, age, reports, verdict FROM brief WHERE name = 'within';
-- In grace, too, it is expired.
SELECT lease.create('grace', ttl => '1 min', grace => '1 hour');
SELECT epoch AS grace FROM lease.acquire('grace', 'a') \gset
SET lease.clock_offset = '1410 s';
SELECT state, held, working, verdict FROM brief WHERE name = 'grace';
RESET lease.clock_offset;

--
-- Which reports are recorded
--

-- Those under the latest epoch only.  The row of the one before goes with the first that
-- comes after it.
SELECT lease.create('epochs', ttl => '1 hour');
SELECT epoch AS first FROM lease.acquire('epochs', 'a') \gset
SELECT lease.progress('epochs', :first), lease.progress('epochs', :first + 1);
SELECT epoch AS second FROM lease.acquire('epochs', 'a', reclaim => true) \gset
SELECT lease.progress('epochs', :first, '{"stale": true}');
SELECT working, age, reports, detail, verdict FROM brief WHERE name = 'epochs';
SELECT epoch = :first AS first, reports, detail FROM lease.report WHERE name = 'epochs';
SELECT lease.progress('epochs', :second), lease.progress('epochs', :second);
SELECT epoch = :second AS second, reports, detail FROM lease.report WHERE name = 'epochs';
-- A report that is rolled back has not been made.
BEGIN;
SELECT lease.progress('epochs', :second, '{"rolled": "back"}');
ROLLBACK;
SELECT working, reports, detail FROM brief WHERE name = 'epochs';
-- Nor has one under a grant that is rolled back.
BEGIN;
SELECT lease.release('epochs', :second);
SELECT epoch AS third FROM lease.acquire('epochs', 'b') \gset
SELECT lease.progress('epochs', :third), lease.progress('epochs', :second);
SELECT holder, working, reports FROM brief WHERE name = 'epochs';
ROLLBACK;
SELECT holder, working, reports FROM brief WHERE name = 'epochs';
SELECT epoch = :second AS second, reports FROM lease.report WHERE name = 'epochs';

-- A lease that is dropped takes its reports along, and one of the same name begins anew.
SELECT lease.drop('epochs', force => true);
SELECT count(*) FROM lease.report WHERE name = 'epochs';
SELECT lease.progress('epochs', :second);
SELECT lease.create('epochs', ttl => '1 hour');
SELECT lease.progress('epochs', :second);
-- Also if a row was left behind.
INSERT INTO lease.report VALUES ('epochs', :second, 1, now(), NULL, 1000000, 1, NULL, true);
SELECT working, reports, verdict FROM brief WHERE name = 'epochs';
SELECT epoch AS fourth FROM lease.acquire('epochs', 'a') \gset
SELECT working, reports, verdict FROM brief WHERE name = 'epochs';
SELECT lease.progress('epochs', :fourth);
SELECT count(*), min(epoch) = :fourth AS fourth FROM lease.report WHERE name = 'epochs';

-- In one statement, in a savepoint, and at every isolation level.
SELECT count(lease.progress('epochs', :fourth)) FROM generate_series(1, 3);
BEGIN;
SAVEPOINT s;
SELECT lease.progress('epochs', :fourth);
ROLLBACK TO s;
SELECT lease.progress('epochs', :fourth);
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT lease.progress('epochs', :fourth);
SELECT reports FROM brief WHERE name = 'epochs';
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT lease.progress('epochs', :fourth), lease.beat('a');
SELECT reports FROM brief WHERE name = 'epochs';
COMMIT;
-- Not in a transaction that may not write; to look is all right there.
BEGIN READ ONLY;
SELECT lease.progress('epochs', :fourth);
ROLLBACK;
BEGIN READ ONLY;
SELECT lease.beat('a');
ROLLBACK;
BEGIN READ ONLY;
SELECT lease.retire('a');
ROLLBACK;
BEGIN READ ONLY;
SELECT reports FROM brief WHERE name = 'epochs';
SELECT peer, beats FROM lease.peer;
ROLLBACK;
SELECT lease.retire('a');

-- As much as may be: of what is too much, see the test "bad_input".
SELECT lease.progress('epochs', :fourth, jsonb_build_object('x', repeat('x', 2000)), '36525 days');
SELECT lease.progress('epochs', :fourth, 'null', '1 ms');
SELECT reports, detail FROM brief WHERE name = 'epochs';

--
-- Peers
--

SELECT lease.beat('host-a/1'), lease.beat('host-a/1', '{"version": 1}', NULL), lease.beat('host-b/2', NULL, '1 hour');
SELECT count(lease.acquire('peer/' || i, 'host-a/1', '10 min')) FROM generate_series(1, 3) i, lease.create('peer/' || i);
SELECT count(lease.release('peer/3', epoch)) FROM lease.status WHERE name = 'peer/3';
CREATE VIEW peers AS
	SELECT peer, role::text = current_user AS own_role, minutes(beat_at - now()) AS beat_at, minutes(age) AS age, stale_after, stale, beats, leases, detail
		FROM lease.peer ORDER BY peer COLLATE "C";
SELECT * FROM peers;
SET lease.clock_offset = '20 s';
SELECT stale FROM peers;
SET lease.clock_offset = '70 s';
SELECT * FROM peers;
-- A heartbeat brings it back.
SELECT lease.beat('host-a/1');
SELECT * FROM peers;
-- Held leases are those that are live.
SET lease.clock_offset = '11 min';
SELECT * FROM peers;
SELECT lease.retire('host-b/2'), lease.retire('host-b/2'), lease.retire('none');
SELECT * FROM peers;
SELECT lease.beat('host-b/2', stale_after => '1 hour');
RESET lease.clock_offset;

SELECT lease.beat(repeat('x', 255), stale_after => '1 ms');
SELECT lease.retire(repeat('x', 255));

--
-- Orphans
--

CREATE VIEW orphans AS
	SELECT peer, minutes(stale_for) AS minutes, kind, what FROM lease.orphan ORDER BY peer COLLATE "C", kind, what COLLATE "C";
-- None while it beats.
SET lease.clock_offset = '5 min';
SELECT lease.beat('host-a/1', '{"owns": ["job 1", "job 2", "job 1"]}', '1 min');
SELECT * FROM orphans;
SET lease.clock_offset = '460 s';
SELECT * FROM orphans;
-- Nor what another has taken over, or what was revoked.
SET lease.clock_offset = '670 s';
SELECT * FROM orphans;
SELECT outcome FROM lease.acquire('peer/1', 'host-b/2', '1 day');
SELECT lease.revoke('peer/2') IS NOT NULL AS revoked;
SELECT * FROM orphans;
SELECT lease.release('peer/1', epoch) FROM lease.status WHERE name = 'peer/1';

-- Whatever it says that it owns.
SELECT lease.beat('odd/' || i, detail, '1 min')
	FROM (VALUES (1, jsonb '{}'), (2, '[]'), (3, '"owns"'), (4, '7'), (5, 'null'), (6, NULL), (7, '["owns"]'),
		(8, '{"owns": null}'), (9, '{"owns": "text"}'), (10, '{"owns": {"a": 1}}'), (11, '{"owns": 5}'), (12, '{"owns": []}'),
		(13, '{"owns": [1, null, true, {"a": 1}, ["b"], "text"]}'), (14, '{"owns": ["", "a''b\"c\\"]}')) AS d(i, detail) \g /dev/null
SET lease.clock_offset = '860 s';
SELECT * FROM orphans WHERE peer LIKE 'odd/%';

--
-- Metrics
--

SELECT count(lease.retire(peer)) FROM lease.peer WHERE peer LIKE 'odd/%';
SELECT lease.request_handover('epochs') = :fourth AS asked;
SELECT subject, metric, kind, labels, CASE WHEN metric LIKE '%\_seconds' THEN trunc(value / 60) ELSE value END AS value_or_minutes FROM lease.metric
	WHERE subject <> 'lease' OR labels->>'lease' IN ('epochs', 'never', 'peer/2', 'both') AND metric <> 'lease_epoch'
	ORDER BY subject, labels::text COLLATE "C", metric COLLATE "C";
SELECT value = :fourth AS epoch FROM lease.metric WHERE metric = 'lease_epoch' AND labels = '{"lease": "epochs"}';
-- What Prometheus wants: one help and one kind for each name, no two series with the
-- same labels, and values.
SELECT count(*) - count(DISTINCT metric) AS different FROM (SELECT DISTINCT metric, kind, help FROM lease.metric) AS m;
SELECT count(*) - count(DISTINCT (metric, labels)) AS doubles, count(*) - count(value) AS nulls,
		bool_and(metric ~ '^lease_[a-z]+(_[a-z]+)*$') AS names FROM lease.metric;
-- Nothing that may grow without end is a label but peers, which can be retired.
SELECT DISTINCT subject, key FROM lease.metric, jsonb_object_keys(labels) AS key ORDER BY 1;
RESET lease.clock_offset;

--
-- Roles
--

CREATE ROLE regress_health_one;
CREATE ROLE regress_health_two;
CREATE ROLE regress_health_member;
CREATE ROLE regress_health_watcher;
GRANT regress_health_one TO regress_health_member;
GRANT pg_monitor TO regress_health_watcher;
SELECT lease.allow('regress_health_one'), lease.allow('regress_health_two'), lease.allow('regress_health_member') \g /dev/null
SELECT lease.create('ones', ttl => '1 hour', role => 'regress_health_one');
SET ROLE regress_health_one;
SELECT epoch AS ones FROM lease.acquire('ones', 'one/1') \gset
SELECT lease.progress('ones', :ones), lease.beat('one/1');
-- Another role neither reports progress under its lease nor beats for its peer.
SET ROLE regress_health_two;
SELECT lease.progress('ones', :ones);
SELECT lease.progress('ones', 1);
SELECT lease.beat('one/1');
SELECT lease.retire('one/1');
SELECT lease.beat('two/1');
-- All of them see everything, through the views only.
SELECT reports FROM lease.health WHERE name = 'ones';
SELECT peer, role, leases FROM lease.peer WHERE peer LIKE '%/1' ORDER BY peer;
SELECT count(*) FROM lease.orphan;
SELECT count(*) > 0 AS metrics FROM lease.metric;
SELECT count(*) FROM lease.report;
SELECT count(*) FROM lease.heartbeat;
INSERT INTO lease.report SELECT 'ones', 1, 1, now(), NULL, 1, 1, NULL, true;
-- A member of the role does.
SET ROLE regress_health_member;
SELECT lease.progress('ones', :ones), lease.beat('one/1');
SELECT peer, role, beats FROM lease.peer WHERE peer = 'one/1';
SELECT lease.retire('one/1');
SELECT lease.beat('member/1');
-- The role itself is not a member of its member.
SET ROLE regress_health_one;
SELECT lease.beat('member/1');
SELECT lease.retire('member/1');
-- Who watches only reads.
SET ROLE regress_health_watcher;
SELECT reports FROM lease.health WHERE name = 'ones';
SELECT peer FROM lease.peer WHERE peer LIKE '%/1' ORDER BY peer;
SELECT count(*) FROM lease.orphan;
SELECT count(*) > 0 AS metrics FROM lease.metric;
SELECT lease.progress('ones', :ones);
SELECT lease.beat('watcher/1');
SELECT lease.retire('two/1');
RESET ROLE;
-- Who administers the extension clears away what will not come back.
SELECT lease.disallow('regress_health_one'), lease.disallow('regress_health_two'), lease.disallow('regress_health_member') \g /dev/null
SET ROLE regress_health_two;
SELECT lease.beat('two/1');
SELECT * FROM lease.peer;
RESET ROLE;
SELECT lease.drop('ones', force => true);
DROP ROLE regress_health_one, regress_health_two, regress_health_member, regress_health_watcher;
SELECT peer, role::text ~ '^\d+$' AS bare_number FROM lease.peer WHERE peer LIKE '%/1' AND peer NOT LIKE 'host%' ORDER BY peer;
SELECT lease.beat('two/1');
SELECT lease.retire('two/1'), lease.retire('member/1');

--
-- What is indexed is not changed, and nothing of it is dumped
--

SELECT indexrelid::regclass AS index, indkey AS columns
	FROM pg_index WHERE indrelid IN ('lease.report'::regclass, 'lease.heartbeat'::regclass) ORDER BY 1::text;
SELECT reloptions FROM pg_class WHERE oid IN ('lease.report'::regclass, 'lease.heartbeat'::regclass);
SELECT c.oid::regclass AS dumped FROM pg_extension, unnest(extconfig) AS c(oid)
	WHERE extname = 'lease' AND c.oid IN ('lease.report'::regclass, 'lease.heartbeat'::regclass);

DROP VIEW brief, peers, orphans;
DROP FUNCTION minutes, without_seconds;
SELECT count(lease.retire(peer)) FROM lease.peer;
SELECT count(lease.drop(name, force => true)) FROM lease.status;
SELECT count(*) FROM lease.report;
