-- Many leases of which any will do: shards, and seats of a semaphore.  See src/pool.c.

CREATE FUNCTION lease.acquire_any(
	names text[],
	holder text,
	up_to integer DEFAULT 1,
	ttl interval DEFAULT NULL,
	metadata jsonb DEFAULT NULL)
RETURNS SETOF lease.reply
AS 'MODULE_PATHNAME', 'lease_acquire_any'
LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 10;
COMMENT ON FUNCTION lease.acquire_any(text[], text, integer, interval, jsonb) IS
'acquires up to that many (1 to 1000) of the leases that are free, in one transaction, and never waits for anybody; names may end with *, for all leases whose names begin so and under which the user may act; one row for each that was granted; none if none is free';

CREATE FUNCTION lease.share(
	pool text,
	holder text,
	members integer DEFAULT NULL)
RETURNS TABLE (
	leases bigint,
	held bigint,
	target bigint,
	take bigint,
	hand_over text[])
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF share.pool IS NULL OR share.holder IS NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = 'pool and holder must not be null';
	END IF;
	IF share.members < 1 THEN
		RAISE invalid_parameter_value USING
			MESSAGE = format('members must be at least 1, not %s', share.members);
	END IF;

	RETURN QUERY
		WITH lease AS (
			SELECT s.name, CASE WHEN s.state = 'held' THEN s.holder END AS held_by
			FROM lease.status s
			WHERE starts_with(s.name, rtrim(share.pool, '*'))
				AND pg_has_role(s.role::oid, 'USAGE')
		), member AS (
			SELECT m.name, count(l.name) AS held
			FROM (SELECT share.holder
				UNION SELECT l.held_by FROM lease l WHERE l.held_by IS NOT NULL
				UNION SELECT p.peer FROM lease.peer p WHERE NOT p.stale AND share.members IS NULL) AS m(name)
				LEFT JOIN lease l ON l.held_by = m.name
			GROUP BY m.name
		), spread AS (
			SELECT (SELECT count(*) FROM lease) AS leases,
				coalesce(share.members, (SELECT count(*) FROM member)) AS members
		), ranked AS (
			-- Whoever has most already keeps what cannot be divided.
			SELECT m.name, m.held,
				s.leases / s.members + (row_number() OVER (ORDER BY m.held DESC, m.name COLLATE "C") <= s.leases % s.members)::int AS target
			FROM member m, spread s
		)
		SELECT s.leases, r.held, r.target, greatest(r.target - r.held, 0),
			ARRAY(SELECT l.name FROM lease l WHERE l.held_by = r.name
				ORDER BY l.name COLLATE "C" OFFSET r.target)
		FROM spread s, ranked r
		WHERE r.name = share.holder;
END;
$$;
COMMENT ON FUNCTION lease.share(text, text, integer) IS
'for an even spread of the leases whose names begin with pool, and under which the user may act, among that many members (null: who holds one of them, and the peers that are not stale): how many there are, how many the holder has and should have, how many to take with lease.acquire_any(), and which to release once the work under them has stopped; computed on what is held at the moment, it decides nothing; null arguments raise 22004, members below 1 22023';
