-- Waiting in line for a lease.  See src/await.c and src/line.c.

CREATE PROCEDURE lease.await(
	INOUT name text,
	INOUT holder text,
	IN ttl interval DEFAULT NULL,
	IN timeout interval DEFAULT NULL,
	IN priority integer DEFAULT 0,
	IN metadata jsonb DEFAULT NULL,
	IN waited interval DEFAULT NULL,
	INOUT outcome text DEFAULT NULL,
	INOUT epoch bigint DEFAULT NULL,
	INOUT acquired_at timestamptz DEFAULT NULL,
	INOUT expires_at timestamptz DEFAULT NULL,
	INOUT remaining interval DEFAULT NULL,
	INOUT handover boolean DEFAULT NULL,
	INOUT successor text DEFAULT NULL)
AS 'MODULE_PATHNAME', 'lease_await'
LANGUAGE C;
COMMENT ON PROCEDURE lease.await(text, text, interval, interval, integer, jsonb, interval, text, bigint, timestamptz, timestamptz, interval, boolean, text) IS
'waits in line until the lease is granted to the holder, for ttl (null: the lease''s), for at most timeout (null: for ever; zero: not at all), and answers with one row like lease.acquire(): higher priority (-32768 to 32767) first, then first come, first served, where waited (null: zero; what is beyond 365 days does not count) is for how long the candidate had waited before this call, so that it does not lose its place by calling again; a holder for whom the lease is reserved comes before all; only outside of a transaction block, as each attempt is a transaction of its own; what is given for outcome and after is ignored';

CREATE FUNCTION lease.read_candidates()
RETURNS TABLE (
	name text,
	pid integer,
	priority integer,
	waits interval,
	is_first boolean)
AS 'MODULE_PATHNAME', 'lease_read_candidates'
LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100;
COMMENT ON FUNCTION lease.read_candidates() IS 'reads lease.candidate, which is the view to use';

CREATE VIEW lease.candidate AS
	SELECT c.name,
		pg_catalog.row_number() OVER (PARTITION BY c.name ORDER BY c.priority DESC, c.waits DESC, c.pid) AS place,
		c.pid, c.priority, c.waits, c.is_first
	FROM lease.read_candidates() AS c;
COMMENT ON VIEW lease.candidate IS 'who waits in lease.await(), read from the lock table; pid leads to pg_stat_activity';
COMMENT ON COLUMN lease.candidate.name IS 'the lease';
COMMENT ON COLUMN lease.candidate.place IS 'who is to be granted it first, if it is not reserved';
COMMENT ON COLUMN lease.candidate.pid IS 'the process of the server';
COMMENT ON COLUMN lease.candidate.priority IS 'as it was given';
COMMENT ON COLUMN lease.candidate.waits IS 'for how long already, with what it had waited before';
COMMENT ON COLUMN lease.candidate.is_first IS 'whether it looks after the lease, while the others sleep';
