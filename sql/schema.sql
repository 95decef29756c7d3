\echo Use "CREATE EXTENSION lease" to load this file. \quit

-- Under a trusted extension this script runs as the bootstrap superuser, while the
-- schemas of the search path are the installing user's.  Nothing in it may resolve
-- to an operator or a function that somebody planted there.
SET LOCAL search_path TO pg_catalog, pg_temp;

-- The schema is created here and not by the control file, so that it belongs to
-- the bootstrap superuser, nobody else can plant functions in it, and a schema of
-- that name that somebody made before is an error.  The control file says
-- pg_catalog, where the extension has no objects: it would else be listed in, and
-- dropped with, whatever schema the installing user had first.
CREATE SCHEMA lease;
COMMENT ON SCHEMA lease IS 'fenced leases: authority for named jobs, enforced at every write and at COMMIT';

-- One row per lease.  Only the C code writes it.  It reads each row under the
-- latest snapshot, updates it in place and never locks it; the protocol is
-- described in src/lease.c.  No column that an acquire, a renewal or a release
-- changes may ever be indexed: their updates have to be HOT.
--
-- Durations are in microseconds.  Instants are stored twice: on the boot clock
-- of the host that wrote them, which decides while its identity (boot) is that
-- of the reader, and as their image on the wall clock, which decides elsewhere.
CREATE TABLE lease.lease (
	name text COLLATE "C" PRIMARY KEY
		CHECK (name ~ '^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,126}$'),
	role regrole NOT NULL,
	ttl bigint NOT NULL CHECK (ttl > 0),
	grace bigint NOT NULL CHECK (grace >= 0),
	min_hold bigint NOT NULL CHECK (min_hold >= 0),
	late_commit boolean NOT NULL,
	evict "char" NOT NULL CHECK (evict IN ('n', 'b', 'a')),
	async_renew boolean NOT NULL,
	state "char" NOT NULL CHECK (state IN ('n', 'g', 'r', 'v')),
	epoch bigint NOT NULL CHECK (epoch >= 0),
	acquired_boot bigint,
	acquired_at timestamptz,
	deadline_boot bigint,
	expires_at timestamptz,
	reserved_boot bigint,
	reserved_until timestamptz,
	boot text,
	holder text,
	grant_ttl bigint,
	successor text,
	reason text,
	metadata jsonb,
	handover_at timestamptz,
	handover_to text,
	handover_reason text,
	event_seq bigint NOT NULL CHECK (event_seq > 0 AND event_seq < 4611686018427387904),
	CHECK ((state = 'n') = (epoch = 0)),
	CHECK (epoch = 0 OR (holder IS NOT NULL AND
		acquired_boot IS NOT NULL AND acquired_at IS NOT NULL AND
		deadline_boot IS NOT NULL AND expires_at IS NOT NULL)),
	CHECK (successor IS NULL OR
		(reserved_boot IS NOT NULL AND reserved_until IS NOT NULL)),
	CHECK (handover_at IS NOT NULL OR (handover_to IS NULL AND handover_reason IS NULL))
) USING heap WITH (fillfactor = 50);
ALTER TABLE lease.lease ALTER COLUMN metadata SET STORAGE MAIN;

COMMENT ON TABLE lease.lease IS 'one row per lease; written by the functions of the extension only; read lease.status instead';
COMMENT ON COLUMN lease.lease.name IS 'name of the lease';
COMMENT ON COLUMN lease.lease.role IS 'the role whose members may acquire, renew, release and guard it';
COMMENT ON COLUMN lease.lease.ttl IS 'default length of a grant, in microseconds';
COMMENT ON COLUMN lease.lease.grace IS 'nobody may acquire for that long after a grant expired, in microseconds';
COMMENT ON COLUMN lease.lease.min_hold IS 'after a release nobody may acquire until that long after the acquire, in microseconds';
COMMENT ON COLUMN lease.lease.late_commit IS 'whether a guarded transaction may commit after the grant expired, while nobody has taken over';
COMMENT ON COLUMN lease.lease.evict IS 'which sessions a takeover may end: n = none, b = blockers, a = all';
COMMENT ON COLUMN lease.lease.async_renew IS 'whether renewals may commit asynchronously';
COMMENT ON COLUMN lease.lease.state IS 'of the latest grant: n = never granted, g = granted, r = released, v = revoked';
COMMENT ON COLUMN lease.lease.epoch IS 'epoch of the latest grant, 0 if there was none';
COMMENT ON COLUMN lease.lease.acquired_boot IS 'when the latest grant was made, on the boot clock';
COMMENT ON COLUMN lease.lease.acquired_at IS 'its image on the wall clock';
COMMENT ON COLUMN lease.lease.deadline_boot IS 'when the time of the latest grant is over, on the boot clock';
COMMENT ON COLUMN lease.lease.expires_at IS 'its image on the wall clock';
COMMENT ON COLUMN lease.lease.reserved_boot IS 'until when a release reserved the lease for the successor, on the boot clock';
COMMENT ON COLUMN lease.lease.reserved_until IS 'its image on the wall clock';
COMMENT ON COLUMN lease.lease.boot IS 'identity of the boot clock (boot id and time namespace) at the last change of an instant';
COMMENT ON COLUMN lease.lease.holder IS 'to whom the latest grant was made';
COMMENT ON COLUMN lease.lease.grant_ttl IS 'ttl that the acquire asked for, in microseconds; NULL: the default';
COMMENT ON COLUMN lease.lease.successor IS 'for whom the release reserved the lease';
COMMENT ON COLUMN lease.lease.reason IS 'why the latest grant was revoked';
COMMENT ON COLUMN lease.lease.metadata IS 'what the holder said about itself when it acquired';
COMMENT ON COLUMN lease.lease.handover_at IS 'when the holder was asked to step down; NULL if it was not';
COMMENT ON COLUMN lease.lease.handover_to IS 'in whose favour';
COMMENT ON COLUMN lease.lease.handover_reason IS 'why';
COMMENT ON COLUMN lease.lease.event_seq IS 'seq of the latest event of this lease in lease.event';

-- What has happened to leases.  A row is never changed once it is written, and
-- each carries a digest of itself and of the one before, so that a history from
-- which something is missing, or in which something was altered, gives itself away;
-- see src/event.c.
CREATE TABLE lease.event (
	name text COLLATE "C" NOT NULL,
	-- By hand, in a restore say, not beyond 2^62.  (The extension's own events are not
	-- checked, so that it can count on from there.)
	seq bigint NOT NULL CHECK (seq > 0 AND seq < 4611686018427387904),
	kind text NOT NULL,
	epoch bigint,
	holder text,
	at timestamptz NOT NULL,
	xid xid8 NOT NULL,
	pid integer NOT NULL,
	actor text NOT NULL,
	detail jsonb,
	digest bytea NOT NULL,
	PRIMARY KEY (name, seq)
) USING heap;

COMMENT ON TABLE lease.event IS 'every transition of every lease, no renewals; append-only; without gaps in seq for each lease';
COMMENT ON COLUMN lease.event.name IS 'the lease';
COMMENT ON COLUMN lease.event.seq IS 'counts the events of the lease from 1, without gaps, also across drop and re-create';
COMMENT ON COLUMN lease.event.kind IS 'created, altered, dropped; granted; and what ended a grant: released, expired (recorded when somebody takes over), revoked, superseded (reclaimed by its own holder); reserved (for a successor); handover (its holder was asked to step down); evicted (the sessions in the way of this takeover or revocation: blockers were ended before it; guarded were those that waited for their clients in transactions guarded by an earlier grant when it was written, and are ended when it is committed; the server log has a line for each that is ended)';
COMMENT ON COLUMN lease.event.epoch IS 'of the grant that it is about; null if there was none';
COMMENT ON COLUMN lease.event.holder IS 'to whom that was made; of reserved: the successor';
COMMENT ON COLUMN lease.event.at IS 'transaction time, on the wall clock of the server';
COMMENT ON COLUMN lease.event.xid IS 'the transaction';
COMMENT ON COLUMN lease.event.pid IS 'the process of the server that did it';
COMMENT ON COLUMN lease.event.actor IS 'the role on whose behalf';
COMMENT ON COLUMN lease.event.detail IS 'what else is to be said; null if nothing is';
COMMENT ON COLUMN lease.event.digest IS 'SHA-256 of this event and of the digest of the one before';

-- What lease.prune() has removed of each lease's events.
CREATE TABLE lease.pruned (
	name text COLLATE "C" PRIMARY KEY,
	events bigint NOT NULL CHECK (events > 0),
	last_seq bigint NOT NULL,
	last_at timestamptz NOT NULL,
	digest bytea NOT NULL,
	pruned_at timestamptz NOT NULL
);
COMMENT ON TABLE lease.pruned IS 'what has been pruned from the history of each lease: always its beginning';
COMMENT ON COLUMN lease.pruned.name IS 'the lease';
COMMENT ON COLUMN lease.pruned.events IS 'how many events, by all prunings together';
COMMENT ON COLUMN lease.pruned.last_seq IS 'seq of the last of them';
COMMENT ON COLUMN lease.pruned.last_at IS 'its transaction time';
COMMENT ON COLUMN lease.pruned.digest IS 'its digest, which covers all before it and is covered by that of the next';
COMMENT ON COLUMN lease.pruned.pruned_at IS 'when that was removed';

-- The source of all epochs of the database.  It does not roll back.
CREATE SEQUENCE lease.epoch AS bigint MINVALUE 1 NO CYCLE CACHE 1;
COMMENT ON SEQUENCE lease.epoch IS 'source of all epochs; only ever raise it, with lease.raise_floor()';

-- Where the last epoch was drawn: a hash that differs on every branch of the
-- database's history.  Unused until the first draw.
CREATE SEQUENCE lease.origin AS bigint MINVALUE 1 NO CYCLE CACHE 1;
COMMENT ON SEQUENCE lease.origin IS 'identity of the branch of history on which the last epoch was drawn';

-- To what the sequence of epochs was last lifted or raised.
CREATE SEQUENCE lease.epoch_floor AS bigint MINVALUE 1 NO CYCLE CACHE 1;
COMMENT ON SEQUENCE lease.epoch_floor IS 'to what lease.epoch was last raised, by lease.raise_floor() or after a fork of history';

-- Not lease.epoch: nothing that is restored may set it back.  The origin that is
-- restored into another database makes the first draw there skip.
SELECT pg_catalog.pg_extension_config_dump('lease.lease', '');
SELECT pg_catalog.pg_extension_config_dump('lease.event', '');
SELECT pg_catalog.pg_extension_config_dump('lease.pruned', '');
SELECT pg_catalog.pg_extension_config_dump('lease.origin', '');
SELECT pg_catalog.pg_extension_config_dump('lease.epoch_floor', '');
