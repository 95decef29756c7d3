-- Leases: setting them up, and acting under them.  See src/api.c, src/admin.c.
--
-- There are no overloads and no STRICT functions: drivers send parameters
-- without types, and a NULL that is skipped looks like a success.

CREATE TYPE lease.reply AS (
	name text,
	outcome text,
	epoch bigint,
	holder text,
	acquired_at timestamptz,
	expires_at timestamptz,
	remaining interval,
	handover boolean,
	successor text
);
COMMENT ON TYPE lease.reply IS 'what acquire and renew answer';
COMMENT ON COLUMN lease.reply.name IS 'the lease';
COMMENT ON COLUMN lease.reply.outcome IS 'granted, renewed; or why not: held (by another), reserved (for a successor), grace (nobody may acquire yet), busy (another transaction is deciding), superseded, expired, released, revoked';
COMMENT ON COLUMN lease.reply.epoch IS 'the fencing token; not null only if it is yours';
COMMENT ON COLUMN lease.reply.holder IS 'to whom the latest grant was made; null if there was none';
COMMENT ON COLUMN lease.reply.acquired_at IS 'when: the start of the granting transaction';
COMMENT ON COLUMN lease.reply.expires_at IS 'when its time is over, on the wall clock of the server';
COMMENT ON COLUMN lease.reply.remaining IS 'for how long it is still live, measured at the end of the call: the instant of sending the request, on the client''s own monotonic clock, plus this is a safe local deadline; zero if it is not live';
COMMENT ON COLUMN lease.reply.handover IS 'whether the holder has been asked to step down: see lease.request_handover()';
COMMENT ON COLUMN lease.reply.successor IS 'in whose favour; or, of a lease that was released, for whom it is reserved; null if for nobody in particular';

CREATE FUNCTION lease.create(
	name text,
	ttl interval DEFAULT '30 s',
	grace interval DEFAULT '0',
	min_hold interval DEFAULT '0',
	role regrole DEFAULT NULL,
	late_commit boolean DEFAULT false,
	evict text DEFAULT 'all',
	async_renew boolean DEFAULT false)
RETURNS void
AS 'MODULE_PATHNAME', 'lease_create'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.create(text, interval, interval, interval, regrole, boolean, text, boolean) IS
'creates a lease: ttl is the default length of a grant, grace how long nobody may acquire after one expired, min_hold how long after an acquire nobody else may acquire even if it was released, role whose members may act under it (null: the current user), late_commit whether guarded transactions may commit after expiry while nobody has taken over, evict which sessions that wait for their client a takeover ends: none, blockers (that sit on an uncommitted change of the lease whose time is over), all (also those in transactions guarded by the epoch that is superseded), async_renew whether renewals commit asynchronously, so that a crash of the server may forget the last ones';

CREATE FUNCTION lease.alter(
	name text,
	ttl interval DEFAULT NULL,
	grace interval DEFAULT NULL,
	min_hold interval DEFAULT NULL,
	role regrole DEFAULT NULL,
	late_commit boolean DEFAULT NULL,
	evict text DEFAULT NULL,
	async_renew boolean DEFAULT NULL)
RETURNS void
AS 'MODULE_PATHNAME', 'lease_alter'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.alter(text, interval, interval, interval, regrole, boolean, text, boolean) IS
'changes settings of a lease, null leaving each as it is; a live grant keeps its deadline';

CREATE FUNCTION lease.drop(
	name text,
	force boolean DEFAULT false)
RETURNS void
AS 'MODULE_PATHNAME', 'lease_drop'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.drop(text, boolean) IS
'drops a lease; refused while it is held or protects a table, unless forced; no epoch of it ever comes back, also if it is created again';

CREATE FUNCTION lease.raise_floor(
	epoch bigint)
RETURNS bigint
AS 'MODULE_PATHNAME', 'lease_raise_floor'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.raise_floor(bigint) IS
'makes sure that no epoch up to the given one is ever granted from now on, in this database; returns the highest epoch that can no longer be granted';

CREATE FUNCTION lease.acquire(
	name text,
	holder text,
	ttl interval DEFAULT NULL,
	reclaim boolean DEFAULT false,
	metadata jsonb DEFAULT NULL)
RETURNS lease.reply
AS 'MODULE_PATHNAME', 'lease_acquire'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.acquire(text, text, interval, boolean, jsonb) IS
'grants the lease to a holder (a process incarnation, not a host) if it is free, for ttl (null: the lease''s) from the start of the transaction; reclaim: also if that very holder has a live grant, whose epoch is then superseded; does not wait for a holder';

CREATE FUNCTION lease.acquire_many(
	names text[],
	holder text,
	ttl interval DEFAULT NULL,
	reclaim boolean DEFAULT false,
	metadata jsonb DEFAULT NULL)
RETURNS SETOF lease.reply
AS 'MODULE_PATHNAME', 'lease_acquire_many'
LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100;
COMMENT ON FUNCTION lease.acquire_many(text[], text, interval, boolean, jsonb) IS
'acquires up to 1000 leases, each on its own terms, in one transaction; one row for each, sorted by name; one that is busy is a row';

CREATE FUNCTION lease.renew(
	name text,
	epoch bigint,
	ttl interval DEFAULT NULL)
RETURNS lease.reply
AS 'MODULE_PATHNAME', 'lease_renew'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.renew(text, bigint, interval) IS
'prolongs a live grant to ttl from the start of the transaction (null: the ttl of the acquire, else the lease''s); never shortens it; never revives one that is over';

CREATE FUNCTION lease.renew_many(
	names text[],
	epochs bigint[],
	ttl interval DEFAULT NULL)
RETURNS SETOF lease.reply
AS 'MODULE_PATHNAME', 'lease_renew_many'
LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100;
COMMENT ON FUNCTION lease.renew_many(text[], bigint[], interval) IS
'renews any number of leases, each on its own terms, in one transaction; one row for each, sorted by name; superseded also for one that does not exist, revoked also for one under which the user may not act';

CREATE FUNCTION lease.release(
	name text,
	epoch bigint,
	successor text DEFAULT NULL,
	reserve interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'lease_release'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.release(text, bigint, text, interval) IS
'gives back a live grant; false, and nothing changes, if there is none of that epoch; with a successor only that holder may acquire for the time of reserve (null: the lease''s ttl); without one, it is reserved for whom lease.request_handover() has named';

CREATE FUNCTION lease.release_many(
	names text[],
	epochs bigint[],
	successor text DEFAULT NULL,
	reserve interval DEFAULT NULL)
RETURNS TABLE (name text, released boolean)
AS 'MODULE_PATHNAME', 'lease_release_many'
LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100;
COMMENT ON FUNCTION lease.release_many(text[], bigint[], text, interval) IS
'releases up to 1000 leases, each on its own terms, in one transaction; one row for each, sorted by name';

CREATE FUNCTION lease.revoke(
	name text,
	reason text DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME', 'lease_revoke'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.revoke(text, text) IS
'takes back the latest grant now, whoever holds it, and returns its epoch, also of one that was released but that a successor or min_hold still keeps from others; null if there is none; anybody may acquire at once';

CREATE FUNCTION lease.request_handover(
	name text,
	successor text DEFAULT NULL,
	reason text DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME', 'lease_request_handover'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.request_handover(text, text, text) IS
'asks the holder of a live grant to step down, in favour of a successor (null: of nobody in particular), and returns its epoch; null if there is no live grant; the holder sees it in the reply of its next renewal, everybody in lease.status; a later request replaces an earlier one';

CREATE FUNCTION lease.holds(
	name text,
	epoch bigint)
RETURNS boolean
AS 'MODULE_PATHNAME', 'lease_holds'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.holds(text, bigint) IS
'whether the grant of that epoch is live and the current user may act under it; false for whatever does not exist, and for null';

CREATE FUNCTION lease.remaining(
	name text,
	epoch bigint)
RETURNS interval
AS 'MODULE_PATHNAME', 'lease_remaining'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.remaining(text, bigint) IS
'for how long the grant of that epoch is still live; zero where lease.holds() is false';

CREATE FUNCTION lease.guard(
	name text,
	epoch bigint)
RETURNS void
AS 'MODULE_PATHNAME', 'lease_guard'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.guard(text, bigint) IS
'declares that this transaction acts under that epoch: an error unless its grant is live, now and again at COMMIT; protected tables can then be written; raises LS001 (superseded), LS002 (expired), LS003 (not held), LS005 (no such lease), and at COMMIT also LS006 (busy)';
