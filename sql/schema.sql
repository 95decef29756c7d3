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
	CHECK ((state = 'n') = (epoch = 0)),
	CHECK (epoch = 0 OR (holder IS NOT NULL AND
		acquired_boot IS NOT NULL AND acquired_at IS NOT NULL AND
		deadline_boot IS NOT NULL AND expires_at IS NOT NULL)),
	CHECK (successor IS NULL OR
		(reserved_boot IS NOT NULL AND reserved_until IS NOT NULL))
) USING heap WITH (fillfactor = 50);
ALTER TABLE lease.lease ALTER COLUMN metadata SET STORAGE MAIN;

COMMENT ON TABLE lease.lease IS 'one row per lease; written by the functions of the extension only; read lease.status instead';
COMMENT ON COLUMN lease.lease.name IS 'name of the lease';
COMMENT ON COLUMN lease.lease.role IS 'the role whose members may acquire, renew, release and guard it';
COMMENT ON COLUMN lease.lease.ttl IS 'default length of a grant, in microseconds';
COMMENT ON COLUMN lease.lease.grace IS 'nobody may acquire for that long after a grant expired, in microseconds';
COMMENT ON COLUMN lease.lease.min_hold IS 'after a release nobody may acquire until that long after the acquire, in microseconds';
COMMENT ON COLUMN lease.lease.late_commit IS 'whether a guarded transaction may commit after the grant expired, while nobody has taken over';
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

-- The source of all epochs of the database.  It does not roll back.
CREATE SEQUENCE lease.epoch AS bigint MINVALUE 1 NO CYCLE CACHE 1;
COMMENT ON SEQUENCE lease.epoch IS 'source of all epochs; only ever raise it, with lease.raise_floor()';

-- Where the last epoch was drawn: a hash that differs on every branch of the
-- database's history.  Unused until the first draw.
CREATE SEQUENCE lease.origin AS bigint MINVALUE 1 NO CYCLE CACHE 1;
COMMENT ON SEQUENCE lease.origin IS 'identity of the branch of history on which the last epoch was drawn';

-- To what the sequence of epochs was last lifted or raised.
CREATE SEQUENCE lease.floor AS bigint MINVALUE 1 NO CYCLE CACHE 1;
COMMENT ON SEQUENCE lease.floor IS 'to what lease.epoch was last raised, by lease.raise_floor() or after a fork of history';

-- Not lease.epoch: nothing that is restored may set it back.  The origin that is
-- restored into another database makes the first draw there skip.
SELECT pg_catalog.pg_extension_config_dump('lease.lease', '');
SELECT pg_catalog.pg_extension_config_dump('lease.origin', '');
SELECT pg_catalog.pg_extension_config_dump('lease.floor', '');
