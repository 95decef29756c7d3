-- What has happened to leases.  See src/event.c.

CREATE FUNCTION lease.keep_events()
RETURNS trigger
AS 'MODULE_PATHNAME', 'lease_keep_events'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.keep_events() IS
'the trigger function that keeps lease.event, lease.pruned, lease.acknowledgement and lease.record as they are';

CREATE TRIGGER lease_keep_events BEFORE UPDATE OR DELETE ON lease.event
	FOR EACH ROW EXECUTE FUNCTION lease.keep_events();
CREATE TRIGGER lease_keep_events_truncate BEFORE TRUNCATE ON lease.event
	FOR EACH STATEMENT EXECUTE FUNCTION lease.keep_events();
CREATE TRIGGER lease_keep_events BEFORE UPDATE OR DELETE ON lease.pruned
	FOR EACH ROW EXECUTE FUNCTION lease.keep_events();
CREATE TRIGGER lease_keep_events_truncate BEFORE TRUNCATE ON lease.pruned
	FOR EACH STATEMENT EXECUTE FUNCTION lease.keep_events();
ALTER TABLE lease.event ENABLE ALWAYS TRIGGER lease_keep_events;
ALTER TABLE lease.event ENABLE ALWAYS TRIGGER lease_keep_events_truncate;
ALTER TABLE lease.pruned ENABLE ALWAYS TRIGGER lease_keep_events;
ALTER TABLE lease.pruned ENABLE ALWAYS TRIGGER lease_keep_events_truncate;

CREATE FUNCTION lease.history(
	name text,
	since bigint DEFAULT 0)
RETURNS SETOF lease.event
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT e.* FROM lease.event e
		WHERE e.name = history.name AND e.seq > coalesce(history.since, 0)
		ORDER BY e.seq;
	IF NOT FOUND AND NOT EXISTS (SELECT FROM lease.event e WHERE e.name = history.name) THEN
		RAISE EXCEPTION USING ERRCODE = 'LS005',
			MESSAGE = format('lease "%s" has no history', history.name),
			HINT = 'Check the name in lease.status.';
	END IF;
END;
$$;
COMMENT ON FUNCTION lease.history(text, bigint) IS
'the events of a lease, in their order, that come after number since (null: all); also of one that was dropped; raises LS005 if there never was such a lease. Not found is what the owner of the extension has appended, or a superuser altered, and digested anew: for that, keep the digest of a latest event elsewhere';

CREATE FUNCTION lease.watch(
	since jsonb DEFAULT NULL)
RETURNS SETOF lease.event
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF jsonb_typeof(watch.since) <> 'object'
		OR EXISTS (SELECT FROM jsonb_each(watch.since) AS m
			WHERE jsonb_typeof(m.value) <> 'number'
				OR m.value::numeric NOT BETWEEN 0 AND 9223372036854775807
				OR m.value::numeric % 1 <> 0)
	THEN
		RAISE invalid_parameter_value USING
			MESSAGE = 'since must be an object that maps names of leases to numbers of events',
			HINT = 'For example {"planner": 17}; a lease that is not in it is read from its beginning.';
	END IF;

	-- In the order of time, but never against the order of a lease's own events.
	RETURN QUERY
		WITH RECURSIVE lease AS (
			(SELECT e.name FROM lease.event e ORDER BY e.name LIMIT 1)
			UNION ALL
			SELECT (SELECT e.name FROM lease.event e WHERE e.name > l.name ORDER BY e.name LIMIT 1)
			FROM lease l WHERE l.name IS NOT NULL
		), missed AS (
			SELECT e AS event,
				max(e.at) OVER (PARTITION BY e.name ORDER BY e.seq) AS not_before
			FROM lease l, lease.event e
			WHERE e.name = l.name
				AND e.seq > coalesce((watch.since -> l.name)::bigint, 0)
		)
		SELECT (m.event).* FROM missed m
		ORDER BY m.not_before, (m.event).name, (m.event).seq;
END;
$$;
COMMENT ON FUNCTION lease.watch(jsonb) IS
'the events of all leases that come after those numbers, for example {"planner": 17}: what a listener to NOTIFY has missed; a lease that is not named is read from its beginning, null: all are; to go on, put the seq of each row under its name; 22023 for anything else than an object of numbers';

CREATE FUNCTION lease.event_digest(
	previous bytea,
	event lease.event)
RETURNS bytea
AS 'MODULE_PATHNAME', 'lease_event_digest'
LANGUAGE C IMMUTABLE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.event_digest(bytea, lease.event) IS
'what the digest of an event has to be, given the one of the event before; null: there is none';

CREATE FUNCTION lease.remove_events(
	name text,
	seq bigint)
RETURNS bigint
AS 'MODULE_PATHNAME', 'lease_remove_events'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.remove_events(text, bigint) IS
'a part of lease.prune(), which is the function to use';

CREATE FUNCTION lease.prune(
	before timestamptz)
RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	removed bigint := 0;
	lease_name text COLLATE "C";
	last_one bigint;
BEGIN
	IF prune.before IS NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = 'before must not be null';
	END IF;
	LOCK TABLE lease.pruned IN SHARE ROW EXCLUSIVE MODE;

	-- The beginning of each history whose events are all older, but for its end.
	FOR lease_name, last_one IN
		SELECT h.name, coalesce(
			(SELECT e.seq FROM lease.event e
				WHERE e.name = h.name AND e.at >= prune.before ORDER BY e.seq LIMIT 1),
			h.last_seq) - 1
		FROM (SELECT e.name, min(e.seq) AS first_seq, max(e.seq) AS last_seq
			FROM lease.event e GROUP BY e.name) AS h
		WHERE h.first_seq < h.last_seq
		ORDER BY h.name
	LOOP
		IF EXISTS (SELECT FROM lease.event e WHERE e.name = lease_name AND e.seq = last_one) THEN
			removed := removed + lease.remove_events(lease_name, last_one);
		END IF;
	END LOOP;
	RETURN removed;
END;
$$;
COMMENT ON FUNCTION lease.prune(timestamptz) IS
'removes from the beginning of each lease''s history the events that are older, but never the latest, and returns how many; count, last number and digest of what was removed are kept in lease.pruned';

CREATE FUNCTION lease.verify_history(
	name text DEFAULT NULL)
RETURNS TABLE (
	lease text,
	verified boolean,
	events bigint,
	pruned bigint,
	last_seq bigint,
	problem text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
	RETURN QUERY
		WITH known AS (
			SELECT l.name, l.event_seq FROM lease.lease l
			UNION ALL
			SELECT x.name, NULL
			FROM (SELECT e.name FROM lease.event e UNION SELECT p.name FROM lease.pruned p) AS x
			WHERE NOT EXISTS (SELECT FROM lease.lease l WHERE l.name = x.name)
		), link AS (
			SELECT e.name, e.seq, e.kind, e.digest,
				lag(e.seq, 1, coalesce(p.last_seq, 0)) OVER before AS seq_before,
				lease.event_digest(lag(e.digest, 1, p.digest) OVER before, e) AS digest_due
			FROM lease.event e LEFT JOIN lease.pruned p ON p.name = e.name
			WHERE verify_history.name IS NULL OR e.name = verify_history.name
			WINDOW before AS (PARTITION BY e.name ORDER BY e.seq)
		), chain AS (
			SELECT k.name, count(*) AS events, max(k.seq) AS last_seq,
				(array_agg(k.kind ORDER BY k.seq DESC))[1] AS last_kind,
				min(k.seq) FILTER (WHERE k.seq <> k.seq_before + 1) AS after_gap,
				min(k.seq_before) FILTER (WHERE k.seq <> k.seq_before + 1) AS before_gap,
				min(k.seq) FILTER (WHERE k.digest <> k.digest_due) AS altered
			FROM link k GROUP BY k.name
		)
		SELECT l.name::text, j.problem IS NULL, coalesce(c.events, 0), coalesce(p.events, 0),
			coalesce(c.last_seq, p.last_seq, 0), j.problem
		FROM known l
			LEFT JOIN chain c ON c.name = l.name
			LEFT JOIN lease.pruned p ON p.name = l.name
			CROSS JOIN LATERAL (SELECT CASE
				WHEN p.events <> p.last_seq
					THEN format('%s events were pruned up to number %s', p.events, p.last_seq)
				WHEN c.events IS NULL
					THEN 'all events are missing'
				WHEN c.after_gap <= c.before_gap
					THEN format('event %s is there although it was pruned', c.after_gap)
				WHEN c.after_gap <= c.altered OR c.altered IS NULL AND c.after_gap IS NOT NULL
					THEN format('events %s to %s are missing', c.before_gap + 1, c.after_gap - 1)
				WHEN c.altered IS NOT NULL
					THEN format('event %s, or the digest of the one before it, was altered', c.altered)
				WHEN l.event_seq > c.last_seq
					THEN format('events %s to %s are missing', c.last_seq + 1, l.event_seq)
				WHEN l.event_seq < c.last_seq
					THEN format('the lease knows of %s events only', l.event_seq)
				WHEN l.event_seq IS NULL AND c.last_kind <> 'dropped'
					THEN 'the lease is missing and was not dropped'
				END) AS j(problem)
		WHERE verify_history.name IS NULL OR l.name = verify_history.name
		ORDER BY l.name;
	IF NOT FOUND AND verify_history.name IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'LS005',
			MESSAGE = format('lease "%s" has no history', verify_history.name),
			HINT = 'Check the name in lease.status.';
	END IF;
END;
$$;
COMMENT ON FUNCTION lease.verify_history(text) IS
'proves, for each lease or for one, also for those that were dropped, that no event is missing from its history but what lease.prune() has removed, and that none was altered: problem is null, or the first that was found; raises LS005 if there never was such a lease. Not found is what the owner of the extension has appended, or a superuser altered, and digested anew: for that, keep the digest of a latest event elsewhere';
