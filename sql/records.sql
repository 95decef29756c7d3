-- Authority records: what the leaders of a lease have decided, attempted, and how far
-- they have come.
--
-- There is one journal, lease.record.  The records of a lease are numbered without gaps,
-- in the order in which they were committed, and chained: each has a digest of itself and
-- of the one before (src/digest.c).  What is current follows from it: a decision is the
-- record of it, an attempt is open unless there is a record that settles it, a cursor
-- stands where its latest record says.
--
-- A record is written under a guard, and so by whoever holds the lease when that is
-- committed.  Who writes one takes a lock first, to the end of the transaction
-- (src/records.c): that is the lock between those who write, whoever they are, and what
-- everything here is decided under.  The row of the lease in lease.record_chain keeps
-- number and digest of the latest record, as a witness to the end of the journal; at the
-- higher levels of isolation it fails with 40001 if anything was written since the snapshot.
--
-- So a record that is compared with what stands is compared with all that was committed
-- before it.  What a superseded leader has written in a transaction that is still open
-- is waited for, and then is not there; a takeover ends such a session, if the lease's
-- setting "evict" is all.  See sql/decisions.sql, sql/cursors.sql,
-- sql/floors.sql, and for what is removed sql/inventory.sql.

CREATE TABLE lease.record (
	lease text COLLATE "C" NOT NULL,
	seq bigint NOT NULL CHECK (seq > 0),
	kind text NOT NULL CHECK (kind IN ('decision', 'opened', 'settled', 'declared', 'cursor', 'floor', 'boundary')),
	subject text COLLATE "C" NOT NULL,
	from_state text COLLATE "C",
	to_state text COLLATE "C",
	verdict text COLLATE "C",
	attempt bigint,
	from_position text COLLATE "C",
	from_phase text COLLATE "C",
	position text COLLATE "C",
	phase text COLLATE "C",
	detail jsonb,
	kept_until timestamptz,
	epoch bigint NOT NULL CHECK (epoch > 0),
	holder text NOT NULL,
	at timestamptz NOT NULL,
	xid xid8 NOT NULL,
	previous bytea,
	digest bytea NOT NULL,
	PRIMARY KEY (lease, seq),
	CHECK ((kind = 'settled') = (attempt IS NOT NULL)),
	CHECK ((seq = 1) = (previous IS NULL))
);
CREATE UNIQUE INDEX record_decision ON lease.record
	(lease, subject, coalesce(from_state, ''), coalesce(to_state, '')) WHERE kind = 'decision';
CREATE UNIQUE INDEX record_settlement ON lease.record (lease, attempt) WHERE kind = 'settled';
CREATE INDEX record_latest ON lease.record (lease, kind, subject, seq)
	WHERE kind IN ('opened', 'declared', 'cursor', 'floor', 'boundary');

COMMENT ON TABLE lease.record IS 'what the leaders of each lease have put on record; append-only, but for lease.compact(); the views lease.decision, lease.attempt, lease.cursor and lease.boundary show what follows from it';
COMMENT ON COLUMN lease.record.lease IS 'the lease';
COMMENT ON COLUMN lease.record.seq IS 'counts the records of the lease from 1, without gaps, in the order of their commits, also across drop and re-create';
COMMENT ON COLUMN lease.record.kind IS 'decision; opened and settled, of an attempt; declared, a phase of a cursor as destructive; cursor, which has moved or was taken over; floor, which was advanced; boundary, up to which records were compacted';
COMMENT ON COLUMN lease.record.subject IS 'what it is about: the subject of a decision or an attempt, the name of a cursor or a floor';
COMMENT ON COLUMN lease.record.from_state IS 'of a decision about a transition: from which state';
COMMENT ON COLUMN lease.record.to_state IS 'of a decision about a transition: to which state';
COMMENT ON COLUMN lease.record.verdict IS 'of a decision: what was decided; of a settlement: committed or aborted; of a cursor: advanced or taken over';
COMMENT ON COLUMN lease.record.attempt IS 'of a settlement: the record that opened the attempt';
COMMENT ON COLUMN lease.record.from_position IS 'of a cursor or a floor: where it stood before; null if it was not there';
COMMENT ON COLUMN lease.record.from_phase IS 'of a cursor: in which phase it was before';
COMMENT ON COLUMN lease.record.position IS 'of a cursor or a floor: where it stands since';
COMMENT ON COLUMN lease.record.phase IS 'of a cursor: in which phase it is since; of a declaration: the phase';
COMMENT ON COLUMN lease.record.detail IS 'what else was said; of a boundary, what is kept below it';
COMMENT ON COLUMN lease.record.kept_until IS 'until when it is not to be removed, infinity: for ever; null: until a later one takes its place';
COMMENT ON COLUMN lease.record.epoch IS 'under which epoch it was written';
COMMENT ON COLUMN lease.record.holder IS 'to whom that was granted';
COMMENT ON COLUMN lease.record.at IS 'transaction time';
COMMENT ON COLUMN lease.record.xid IS 'the transaction';
COMMENT ON COLUMN lease.record.previous IS 'digest of the record before; null of the first';
COMMENT ON COLUMN lease.record.digest IS 'SHA-256 of all the other columns';

CREATE TABLE lease.record_chain (
	lease text COLLATE "C" PRIMARY KEY,
	last_seq bigint NOT NULL CHECK (last_seq >= 0),
	last_digest bytea,
	boundary bigint,
	CHECK ((last_seq = 0) = (last_digest IS NULL)),
	CHECK (boundary <= last_seq)
) WITH (fillfactor = 50);
COMMENT ON TABLE lease.record_chain IS 'the end of the records of each lease; written by the functions of the extension only';
COMMENT ON COLUMN lease.record_chain.lease IS 'the lease';
COMMENT ON COLUMN lease.record_chain.last_seq IS 'number of its latest record; 0: there is none';
COMMENT ON COLUMN lease.record_chain.last_digest IS 'digest of that';
COMMENT ON COLUMN lease.record_chain.boundary IS 'number of the record that says what was compacted; null if nothing was';

CREATE TRIGGER lease_keep_events BEFORE UPDATE OR DELETE ON lease.record
	FOR EACH ROW EXECUTE FUNCTION lease.keep_events();
CREATE TRIGGER lease_keep_events_truncate BEFORE TRUNCATE ON lease.record
	FOR EACH STATEMENT EXECUTE FUNCTION lease.keep_events();
ALTER TABLE lease.record ENABLE ALWAYS TRIGGER lease_keep_events;
ALTER TABLE lease.record ENABLE ALWAYS TRIGGER lease_keep_events_truncate;

SELECT pg_catalog.pg_extension_config_dump('lease.record', '');
SELECT pg_catalog.pg_extension_config_dump('lease.record_chain', '');

CREATE FUNCTION lease.record_digest(
	record lease.record)
RETURNS bytea
AS 'MODULE_PATHNAME', 'lease_record_digest'
LANGUAGE C IMMUTABLE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.record_digest(lease.record) IS
'what the digest of a record has to be';

--
-- Writing
--

CREATE FUNCTION lease.check_text(
	value text,
	what text,
	up_to integer)
RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF value = '' THEN
		RAISE invalid_parameter_value USING MESSAGE = format('%s must not be empty', what);
	ELSIF octet_length(value) > up_to THEN
		RAISE invalid_parameter_value USING
			MESSAGE = format('%s must not have more than %s bytes', what, up_to);
	END IF;
END;
$$;
COMMENT ON FUNCTION lease.check_text(text, text, integer) IS
'a part of lease.decide() and the like: raises 22023 for a text that is empty or too long; null passes';

CREATE FUNCTION lease.require_text(
	value text,
	what text,
	up_to integer)
RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF value IS NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = format('%s must not be null', what);
	END IF;
	PERFORM lease.check_text(value, what, up_to);
END;
$$;
COMMENT ON FUNCTION lease.require_text(text, text, integer) IS
'a part of lease.decide() and the like: raises 22004 for null, 22023 for a text that is empty or too long';

CREATE FUNCTION lease.kept_until(
	keep interval)
RETURNS timestamptz
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF keep IS NULL THEN
		RETURN 'infinity';
	END IF;
	RETURN lease.transaction_time() + lease.task_interval(keep, 'keep', '0');
END;
$$;
COMMENT ON FUNCTION lease.kept_until(interval) IS
'a part of lease.decide() and the like: until when what is to be kept for that long is not removed; null: never';

CREATE FUNCTION lease.require_guard(
	lease text,
	epoch bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF NOT lease.is_guarded(require_guard.lease, require_guard.epoch) THEN
		RAISE EXCEPTION USING ERRCODE = 'LS004',
			MESSAGE = 'a record is written under a guard',
			HINT = 'Call the function that makes the guard, such as lease.decide().';
	END IF;
END;
$$;
COMMENT ON FUNCTION lease.require_guard(text, bigint) IS
'a part of lease.decide() and the like: raises LS004 unless the transaction acts under that epoch of the lease';

CREATE FUNCTION lease.lock_records(
	lease text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'lease_lock_records'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.lock_records(text) IS
'a part of lease.decide() and the like: takes the lock of those who write records of a lease, to the end of the transaction; whether it had to wait';

CREATE FUNCTION lease.lock_chain(
	lease text,
	epoch bigint)
RETURNS lease.record_chain
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	chain lease.record_chain;
BEGIN
	PERFORM lease.require_guard(lock_chain.lease, lock_chain.epoch);
	IF lease.lock_records(lock_chain.lease) THEN
		-- Meanwhile the lease may have got another holder.
		PERFORM lease.guard(lock_chain.lease, lock_chain.epoch);
	END IF;
	SELECT c.* INTO chain FROM lease.record_chain c WHERE c.lease = lock_chain.lease FOR NO KEY UPDATE;
	IF NOT FOUND THEN
		-- There may be one that an older snapshot does not show: 40001.
		INSERT INTO lease.record_chain AS c (lease, last_seq) VALUES (lock_chain.lease, 0) ON CONFLICT DO NOTHING
			RETURNING c.* INTO chain;
		INSERT INTO lease.floor (floor, lease, position) VALUES (lock_chain.lease || '#records', lock_chain.lease, 1);
	END IF;
	RETURN chain;
END;
$$;
COMMENT ON FUNCTION lease.lock_chain(text, bigint) IS
'a part of lease.decide() and the like: locks the end of the records of a lease to the end of the transaction, which has to be guarded';

CREATE FUNCTION lease.commit_durably()
RETURNS void
AS 'MODULE_PATHNAME', 'lease_commit_durably'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.commit_durably() IS
'a part of lease.decide(), lease.pin() and the like: this transaction commits synchronously, whatever synchronous_commit says';

CREATE FUNCTION lease.append_record(
	record lease.record,
	chain lease.record_chain)
RETURNS lease.record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	new lease.record := record;
BEGIN
	IF octet_length(new.detail::text) > 8192 THEN
		RAISE invalid_parameter_value USING
			MESSAGE = 'detail must not have more than 8192 bytes',
			HINT = 'Put what is large into a table of your own that the lease protects, and its key into detail.';
	END IF;
	new.seq := chain.last_seq + 1;
	new.holder := (SELECT l.holder FROM lease.lease l WHERE l.name = new.lease AND l.epoch = new.epoch);
	IF new.holder IS NULL THEN
		-- It is not the present grant any more, since the guard was made: so the error is of that.
		PERFORM lease.guard(new.lease, new.epoch);
	END IF;
	new.at := lease.transaction_time();
	new.xid := pg_current_xact_id();
	new.previous := chain.last_digest;
	new.digest := lease.record_digest(new);
	INSERT INTO lease.record VALUES (new.*);
	UPDATE lease.record_chain c SET last_seq = new.seq, last_digest = new.digest,
			boundary = CASE new.kind WHEN 'boundary' THEN new.seq ELSE c.boundary END
		WHERE c.lease = new.lease;
	PERFORM lease.commit_durably();
	RETURN new;
END;
$$;
COMMENT ON FUNCTION lease.append_record(lease.record, lease.record_chain) IS
'a part of lease.decide() and the like: numbers, chains and writes a record, after the end of the records as lease.lock_chain() has returned it';
