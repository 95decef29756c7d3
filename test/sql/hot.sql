--
-- hot: a lease that is renewed for ever stays small, and so does a pin.
--
-- Renewals are HOT: no index entry is made, and the page is cleaned by the next of them.
-- (A system elsewhere had its heartbeat column indexed: 379 million updates, less than
-- 1 % of them HOT, 337,000 autovacuums of a 22 MB table.)
--
-- Renewals need not be durable one by one, so the test does without waiting for the disk.
-- A process that looks at the database meanwhile, such as autovacuum's ANALYZE, can keep
-- old versions for a moment; the bounds leave room for that.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
RESET client_min_messages;
SET synchronous_commit = off;

-- Updates of the table of leases, as counted by the server, since it was last asked.
CREATE TABLE counted AS SELECT 0::bigint AS updates, 0::bigint AS hot_updates;
CREATE FUNCTION count_again(OUT updates bigint, OUT hot_percent numeric) LANGUAGE plpgsql AS $$
DECLARE
	before counted;
	now counted;
BEGIN
	PERFORM pg_stat_force_next_flush();
	SELECT * INTO before FROM counted;
	now.updates := pg_stat_get_tuples_updated('lease.lease'::regclass);
	now.hot_updates := pg_stat_get_tuples_hot_updated('lease.lease'::regclass);
	UPDATE counted SET (updates, hot_updates) = (now.updates, now.hot_updates);
	updates := now.updates - before.updates;
	hot_percent := round(100.0 * (now.hot_updates - before.hot_updates) / nullif(now.updates - before.updates, 0), 2);
END;
$$;

--
-- 20,000 renewals of one lease, a transaction each
--

SELECT lease.create('hot', ttl => '1 hour');
SELECT outcome FROM lease.acquire('hot', 'host-a/4711/2026-01-01T00:00:00', metadata => '{"version": "1.2.3", "zone": "a"}');
VACUUM lease.lease;
SELECT pg_relation_size('lease.lease') AS size, pg_relation_size('lease.lease_pkey') AS index_size \gset
SELECT pg_stat_force_next_flush();
SELECT updates >= 0 AS counting FROM count_again();
DO $$
DECLARE
	mine CONSTANT bigint := (SELECT epoch FROM lease.status WHERE name = 'hot');
BEGIN
	FOR i IN 1..20000 LOOP
		PERFORM lease.renew('hot', mine);
		COMMIT;
	END LOOP;
END;
$$;
SELECT pg_stat_force_next_flush();
SELECT updates, hot_percent > 99 AS over_99_percent_hot FROM count_again();
SELECT (pg_relation_size('lease.lease') - :size) / current_setting('block_size')::int <= 16 AS grown_by_few_pages,
	(pg_relation_size('lease.lease_pkey') - :index_size) / current_setting('block_size')::int <= 4 AS index_too;

--
-- So are acquire, release and changes of settings
--

DO $$
DECLARE
	mine bigint := (SELECT epoch FROM lease.status WHERE name = 'hot');
BEGIN
	FOR i IN 1..50 LOOP
		PERFORM lease.release('hot', mine, 'successor', '1 min');
		COMMIT;
		mine := (lease.acquire('hot', 'successor')).epoch;
		COMMIT;
		PERFORM lease.alter('hot', grace => '1 min', ttl => '2 hours');
		COMMIT;
	END LOOP;
END;
$$;
SELECT pg_stat_force_next_flush();
SELECT updates, hot_percent > 99 AS over_99_percent_hot FROM count_again();

--
-- Many leases in one commit: half of each page is left for the new versions
--

SELECT count(lease.create('hot/' || i, ttl => '1 hour')) FROM generate_series(1, 500) i;
SELECT outcome, count(*) FROM lease.acquire_many((SELECT array_agg('hot/' || i) FROM generate_series(1, 500) i), 'host-a/4711/2026-01-01T00:00:00') GROUP BY outcome;
VACUUM lease.lease;
SELECT pg_stat_force_next_flush();
SELECT updates >= 500 AS granted FROM count_again();
DO $$
DECLARE
	names text[];
	epochs bigint[];
BEGIN
	SELECT array_agg(name), array_agg(epoch) INTO names, epochs FROM lease.status WHERE name LIKE 'hot/%';
	FOR i IN 1..40 LOOP
		PERFORM lease.renew_many(names, epochs);
		COMMIT;
	END LOOP;
END;
$$;
SELECT pg_stat_force_next_flush();
SELECT updates, hot_percent > 90 AS over_90_percent_hot FROM count_again();

--
-- Pins, floors, and the end of the records of a lease
--

SELECT outcome FROM lease.decide('hot', (SELECT epoch FROM lease.status WHERE name = 'hot'), 'x', 'y');
SELECT outcome FROM lease.advance_floor('hot', (SELECT epoch FROM lease.status WHERE name = 'hot'), 'hot-floor', 0);
SELECT outcome FROM lease.pin('hot-floor', 0, 'host-a/4711/2026-01-01T00:00:00', '1 hour');
VACUUM lease.floor, lease.floor_pin, lease.record_chain;
SELECT pg_stat_force_next_flush();
CREATE TABLE counted_records AS
	SELECT rel, pg_stat_get_tuples_updated(rel) AS updates, pg_stat_get_tuples_hot_updated(rel) AS hot_updates
		FROM unnest('{lease.floor,lease.floor_pin,lease.record_chain}'::regclass[]) AS r(rel);
DO $$
DECLARE
	mine CONSTANT bigint := (SELECT epoch FROM lease.status WHERE name = 'hot');
BEGIN
	FOR i IN 1..1000 LOOP
		PERFORM lease.renew_pin('hot-floor', 'host-a/4711/2026-01-01T00:00:00');
		COMMIT;
		PERFORM lease.pin('hot-floor', i, 'host-a/4711/2026-01-01T00:00:00', '1 hour');
		COMMIT;
		PERFORM lease.advance_floor('hot', mine, 'hot-floor', i + 1);
		COMMIT;
	END LOOP;
END;
$$;
SELECT pg_stat_force_next_flush();
SELECT rel, now.updates - c.updates AS updates,
		100 * (now.hot_updates - c.hot_updates) > 99 * (now.updates - c.updates) AS over_99_percent_hot,
		pg_relation_size(rel) / current_setting('block_size')::int <= 16 AS few_pages
	FROM counted_records AS c,
		LATERAL (SELECT pg_stat_get_tuples_updated(rel), pg_stat_get_tuples_hot_updated(rel)) AS now(updates, hot_updates)
	ORDER BY rel::text;

-- Many pins in one commit: half of each page is left for the new versions.
SELECT count((lease.pin('hot-floor', 2000, 'host-a/' || i, '1 hour')).outcome) FROM generate_series(1, 500) i;
VACUUM lease.floor_pin;
SELECT pg_stat_force_next_flush();
UPDATE counted_records SET (updates, hot_updates) = (pg_stat_get_tuples_updated(rel), pg_stat_get_tuples_hot_updated(rel));
DO $$
BEGIN
	FOR turn IN 1..20 LOOP
		PERFORM lease.renew_pin('hot-floor', 'host-a/' || i) FROM generate_series(1, 500) i;
		COMMIT;
	END LOOP;
END;
$$;
SELECT pg_stat_force_next_flush();
SELECT rel, pg_stat_get_tuples_updated(rel) - updates AS updates,
		100 * (pg_stat_get_tuples_hot_updated(rel) - hot_updates) > 90 * (pg_stat_get_tuples_updated(rel) - updates) AS over_90_percent_hot
	FROM counted_records WHERE rel = 'lease.floor_pin'::regclass;

--
-- Reports of progress and heartbeats
--

SELECT lease.beat('host-a/4711/2026-01-01T00:00:00', '{"version": "1.2.3", "owns": ["job 1", "job 2"]}'), lease.progress('hot', epoch, '{"done": 0}')
	FROM lease.status WHERE name = 'hot';
VACUUM lease.report, lease.heartbeat;
SELECT pg_stat_force_next_flush();
CREATE TABLE counted_signs AS
	SELECT rel, pg_stat_get_tuples_updated(rel) AS updates, pg_stat_get_tuples_hot_updated(rel) AS hot_updates
		FROM unnest('{lease.heartbeat,lease.report}'::regclass[]) AS r(rel);
DO $$
DECLARE
	mine CONSTANT bigint := (SELECT epoch FROM lease.status WHERE name = 'hot');
BEGIN
	FOR i IN 1..2000 LOOP
		PERFORM lease.progress('hot', mine, jsonb_build_object('done', i));
		PERFORM lease.beat('host-a/4711/2026-01-01T00:00:00', '{"version": "1.2.3", "owns": ["job 1", "job 2"]}');
		COMMIT;
	END LOOP;
END;
$$;
SELECT pg_stat_force_next_flush();
SELECT rel, now.updates - c.updates AS updates,
		100 * (now.hot_updates - c.hot_updates) > 99 * (now.updates - c.updates) AS over_99_percent_hot,
		pg_relation_size(rel) / current_setting('block_size')::int <= 16 AS few_pages
	FROM counted_signs AS c,
		LATERAL (SELECT pg_stat_get_tuples_updated(rel), pg_stat_get_tuples_hot_updated(rel)) AS now(updates, hot_updates)
	ORDER BY rel::text;
SELECT lease.retire('host-a/4711/2026-01-01T00:00:00');

DROP TABLE counted, counted_signs, counted_records;
DROP FUNCTION count_again;
SELECT count(lease.drop(name, force => true)) FROM lease.status WHERE name LIKE 'hot%';
-- Records and floors stay; the doctor of a later test would find them.
SET client_min_messages = warning;
DROP EXTENSION lease;
CREATE EXTENSION lease;
