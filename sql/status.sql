-- What is to be seen of leases.  See src/status.c.

CREATE FUNCTION lease.read_status()
RETURNS TABLE (
	name text,
	role regrole,
	state text,
	epoch bigint,
	holder text,
	acquired_at timestamptz,
	expires_at timestamptz,
	remaining interval,
	available_at timestamptz,
	last_end text,
	successor text,
	reason text,
	handover_at timestamptz,
	handover_to text,
	handover_reason text,
	metadata jsonb,
	ttl interval,
	grace interval,
	min_hold interval,
	late_commit boolean,
	evict text,
	async_renew boolean,
	events bigint,
	clock_step interval)
AS 'MODULE_PATHNAME', 'lease_read_status'
LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100;
COMMENT ON FUNCTION lease.read_status() IS 'reads lease.status, which is the view to use';

CREATE VIEW lease.status AS
	SELECT * FROM lease.read_status();
COMMENT ON VIEW lease.status IS 'every lease as it stands at the transaction time';
COMMENT ON COLUMN lease.status.name IS 'the lease';
COMMENT ON COLUMN lease.status.role IS 'whose members may act under it; a bare number if the role has been dropped';
COMMENT ON COLUMN lease.status.state IS 'held; expired (its time is over, anybody may acquire); grace (nobody may acquire yet); reserved (only the successor may); free';
COMMENT ON COLUMN lease.status.epoch IS 'epoch of the latest grant; null if there was none';
COMMENT ON COLUMN lease.status.holder IS 'to whom it was made';
COMMENT ON COLUMN lease.status.acquired_at IS 'when it was made';
COMMENT ON COLUMN lease.status.expires_at IS 'when its time is, or would have been, over';
COMMENT ON COLUMN lease.status.remaining IS 'for how long it is still live';
COMMENT ON COLUMN lease.status.available_at IS 'from when on anybody may acquire, if nothing happens until then; null: from now on';
COMMENT ON COLUMN lease.status.last_end IS 'how the latest grant ended: expired, released, revoked; null if it is live';
COMMENT ON COLUMN lease.status.successor IS 'for whom the latest release reserved the lease';
COMMENT ON COLUMN lease.status.reason IS 'why the latest grant was revoked';
COMMENT ON COLUMN lease.status.handover_at IS 'when the holder was asked to step down; null if it was not';
COMMENT ON COLUMN lease.status.handover_to IS 'in whose favour; null if in that of nobody in particular';
COMMENT ON COLUMN lease.status.handover_reason IS 'why';
COMMENT ON COLUMN lease.status.metadata IS 'what the holder said about itself';
COMMENT ON COLUMN lease.status.ttl IS 'default length of a grant';
COMMENT ON COLUMN lease.status.grace IS 'how long nobody may acquire after a grant expired';
COMMENT ON COLUMN lease.status.min_hold IS 'how long after an acquire nobody else may acquire, even after a release';
COMMENT ON COLUMN lease.status.late_commit IS 'whether guarded transactions may commit after expiry while nobody has taken over';
COMMENT ON COLUMN lease.status.evict IS 'which sessions that wait for their client a takeover may end: none, blockers, all';
COMMENT ON COLUMN lease.status.async_renew IS 'whether renewals commit asynchronously';
COMMENT ON COLUMN lease.status.events IS 'seq of its latest event in lease.event';
COMMENT ON COLUMN lease.status.clock_step IS 'by how much the wall clock has been stepped since the lease was last granted, renewed or ended, which changes nothing but expires_at; null if it was never granted, or on another boot of this host or elsewhere';

CREATE FUNCTION lease.boot_clock()
RETURNS text
AS 'MODULE_PATHNAME', 'lease_boot_clock'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.boot_clock() IS
'the identity of the clock by which leases are judged, which no step of the wall clock touches; null if this host has none, and the wall clock decides';
