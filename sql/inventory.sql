-- The inventory of authority: what is settled and until when that is kept, how it is
-- removed, and the proof that nothing else was.  See sql/records.sql.
--
-- To compact is to remove, from the beginning of the records of a lease up to a number,
-- those that nothing needs any more: decisions and settled attempts whose time to be
-- kept is over, and what a later record has taken the place of.  What stands stays,
-- in its place.  A record of kind boundary says how many are gone, and vouches for those
-- that stay below: their number, the sum of their numbers, and a digest of their digests.
-- It also says up to where, and what the digest of the last one there was, with which
-- the chain goes on above.  The boundary is part of that chain itself.
--
-- Records of attempts that are open, and those above, stay; so do those at which the floor of
-- the records, NAME#records, is pinned, and those above: whoever reads the records one
-- after the other pins the next one that he needs.

CREATE VIEW lease.boundary AS
	SELECT c.lease, r.seq, (r.detail ->> 'up_to')::bigint AS up_to, (r.detail ->> 'removed')::bigint AS removed,
		(r.detail ->> 'kept')::bigint AS kept, (r.detail ->> 'kept_sum')::numeric AS kept_sum,
		decode(r.detail ->> 'kept_digest', 'hex') AS kept_digest,
		decode(r.detail ->> 'digest', 'hex') AS digest,
		r.epoch, r.holder, r.at
	FROM lease.record_chain c
		CROSS JOIN LATERAL (SELECT x.* FROM lease.record x
			WHERE x.lease = c.lease AND x.kind = 'boundary' AND x.subject = 'records'
			ORDER BY x.seq DESC LIMIT 1) AS r;
COMMENT ON VIEW lease.boundary IS 'up to where the records of each lease were compacted last';
COMMENT ON COLUMN lease.boundary.lease IS 'the lease';
COMMENT ON COLUMN lease.boundary.seq IS 'number of the record that says so';
COMMENT ON COLUMN lease.boundary.up_to IS 'number of the last record that was looked at: all above are there';
COMMENT ON COLUMN lease.boundary.removed IS 'how many up to there are gone, by all compactions together';
COMMENT ON COLUMN lease.boundary.kept IS 'how many up to there were kept';
COMMENT ON COLUMN lease.boundary.kept_sum IS 'the sum of their numbers';
COMMENT ON COLUMN lease.boundary.kept_digest IS 'a digest of their digests, in their order; null if none was kept';
COMMENT ON COLUMN lease.boundary.digest IS 'digest of the record of number up_to';
COMMENT ON COLUMN lease.boundary.epoch IS 'under which epoch it was compacted';
COMMENT ON COLUMN lease.boundary.holder IS 'by whom';
COMMENT ON COLUMN lease.boundary.at IS 'when, by the transaction time';

CREATE VIEW lease.outcome AS
	SELECT d.lease, 'decision' AS kind, d.seq, d.subject, d.from_state, d.to_state, d.verdict AS outcome, true AS settled,
		d.epoch, d.holder, d.at, d.kept_until
	FROM lease.decision d
	UNION ALL
	SELECT a.lease, 'attempt', a.attempt, a.subject, NULL, NULL, a.status, a.settlement IS NOT NULL,
		coalesce(a.settled_epoch, a.epoch), coalesce(a.settled_by, a.holder), coalesce(a.settled_at, a.opened_at), a.kept_until
	FROM lease.attempt a;
COMMENT ON VIEW lease.outcome IS 'decisions and attempts: what is settled, and until when that is kept';
COMMENT ON COLUMN lease.outcome.lease IS 'the lease';
COMMENT ON COLUMN lease.outcome.kind IS 'decision or attempt';
COMMENT ON COLUMN lease.outcome.seq IS 'number of the decision, or of the attempt';
COMMENT ON COLUMN lease.outcome.subject IS 'what it is about';
COMMENT ON COLUMN lease.outcome.from_state IS 'of a decision about a transition: from which state';
COMMENT ON COLUMN lease.outcome.to_state IS 'to which state';
COMMENT ON COLUMN lease.outcome.outcome IS 'the verdict; or open, committed, aborted';
COMMENT ON COLUMN lease.outcome.settled IS 'whether that is final';
COMMENT ON COLUMN lease.outcome.epoch IS 'under which epoch that was decided; of an open attempt, under which it was opened';
COMMENT ON COLUMN lease.outcome.holder IS 'by whom';
COMMENT ON COLUMN lease.outcome.at IS 'when, by the transaction time';
COMMENT ON COLUMN lease.outcome.kept_until IS 'until when it cannot be compacted; infinity: never; null: it is open';

--
-- Compaction
--

CREATE FUNCTION lease.delete_records(
	name text,
	up_to bigint)
RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	now constant timestamptz := lease.transaction_time();
	removed bigint;
	boundaries bigint := 0;
BEGIN
	WITH gone AS (
		DELETE FROM lease.record r
			WHERE r.lease = delete_records.name AND r.seq <= delete_records.up_to
				AND CASE r.kind
					WHEN 'decision' THEN r.kept_until <= now
					-- One that was aborted must not be what is left when a later one goes.
					WHEN 'settled' THEN r.kept_until <= now
						OR r.verdict = 'aborted' AND EXISTS (SELECT FROM lease.record l
							WHERE l.lease = r.lease AND l.kind = 'opened' AND l.subject = r.subject AND l.seq > r.seq)
					WHEN 'cursor' THEN EXISTS (SELECT FROM lease.record l
						WHERE l.lease = r.lease AND l.kind = 'cursor' AND l.subject = r.subject AND l.seq > r.seq)
					WHEN 'floor' THEN EXISTS (SELECT FROM lease.record l
						WHERE l.lease = r.lease AND l.kind = 'floor' AND l.subject = r.subject AND l.seq > r.seq)
					ELSE false END
			RETURNING r.attempt
	), opened AS (
		-- An attempt goes with its settlement.
		DELETE FROM lease.record o USING gone g
			WHERE o.lease = delete_records.name AND o.seq = g.attempt
			RETURNING o.seq
	)
	SELECT (SELECT count(*) FROM gone) + (SELECT count(*) FROM opened) INTO removed;
	-- Another boundary takes the place of earlier ones, but is not written for that alone.
	IF removed > 0 THEN
		DELETE FROM lease.record r
			WHERE r.lease = delete_records.name AND r.seq <= delete_records.up_to AND r.kind = 'boundary';
		GET DIAGNOSTICS boundaries = ROW_COUNT;
	END IF;
	RETURN removed + boundaries;
END;
$$;
COMMENT ON FUNCTION lease.delete_records(text, bigint) IS
'a part of lease.compact(): removes the records of a lease up to a number that nothing needs any more';

CREATE FUNCTION lease.remove_records(
	lease text,
	up_to bigint)
RETURNS bigint
AS 'MODULE_PATHNAME', 'lease_remove_records'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.remove_records(text, bigint) IS
'a part of lease.compact(), which is the function to use';

CREATE FUNCTION lease.summarize_kept(
	name text,
	up_to bigint,
	OUT kept bigint,
	OUT kept_sum numeric,
	OUT kept_digest bytea)
RETURNS record
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	r record;
BEGIN
	-- One row after the other: there may be a million.
	kept := 0;
	kept_sum := 0;
	FOR r IN SELECT x.seq, x.digest FROM lease.record x
		WHERE x.lease = summarize_kept.name AND x.seq <= summarize_kept.up_to ORDER BY x.seq
	LOOP
		kept := kept + 1;
		kept_sum := kept_sum + r.seq;
		kept_digest := sha256(coalesce(kept_digest, '') || r.digest);
	END LOOP;
END;
$$;
COMMENT ON FUNCTION lease.summarize_kept(text, bigint) IS
'a part of lease.compact(): what a boundary vouches for below it';

CREATE FUNCTION lease.check_records(
	name text,
	end_at bigint,
	OUT problem text,
	OUT records bigint,
	OUT last_seq bigint,
	OUT last_digest bytea,
	OUT boundary lease.boundary)
RETURNS record
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	chain lease.record_chain;
	r lease.record;
	below record;
	last_epoch bigint := 0;
BEGIN
	records := 0;
	last_seq := 0;
	SELECT c.* INTO chain FROM lease.record_chain c WHERE c.lease = check_records.name;
	IF NOT FOUND THEN
		problem := 'the row of lease.record_chain is missing';
		RETURN;
	END IF;

	-- What a boundary says is believed only if it is whole, and says what a boundary can say.
	SELECT x.* INTO r FROM lease.record x
		WHERE x.lease = check_records.name AND x.kind = 'boundary' AND x.subject = 'records'
		ORDER BY x.seq DESC LIMIT 1;
	IF r.seq IS NOT NULL THEN
		BEGIN
			IF r.digest = lease.record_digest(r) THEN
				SELECT x.* INTO boundary FROM lease.boundary x WHERE x.lease = check_records.name;
			END IF;
		EXCEPTION WHEN data_exception THEN
			NULL;
		END;
		IF (boundary.removed + boundary.kept = boundary.up_to) IS NOT TRUE THEN
			problem := format('the boundary, record %s, was altered', r.seq);
			RETURN;
		END IF;
	END IF;
	IF chain.boundary IS DISTINCT FROM r.seq THEN
		SELECT x.* INTO r FROM lease.record x WHERE x.lease = check_records.name AND x.seq = chain.boundary;
		problem := CASE
			WHEN r.seq IS NOT NULL AND r.digest <> lease.record_digest(r)
				THEN format('the boundary, record %s, was altered', r.seq)
			WHEN r.seq IS NULL AND (chain.boundary > boundary.seq OR boundary.seq IS NULL)
				THEN format('the boundary, record %s, is missing', chain.boundary)
			ELSE format('the row of lease.record_chain was altered: it says %s of the boundary',
				coalesce(chain.boundary::text, 'nothing')) END;
		RETURN;
	END IF;
	last_seq := coalesce(boundary.up_to, 0);
	last_digest := boundary.digest;

	-- One record after the other: there may be millions.
	FOR r IN SELECT x.* FROM lease.record x
		WHERE x.lease = check_records.name AND (check_records.end_at IS NULL OR x.seq <= check_records.end_at)
		ORDER BY x.seq
	LOOP
		records := records + 1;
		problem := CASE
			WHEN r.digest <> lease.record_digest(r) THEN format('record %s was altered', r.seq)
			WHEN r.epoch < last_epoch
				THEN format('record %s was written under epoch %s, after epoch %s', r.seq, r.epoch, last_epoch)
			WHEN r.seq <= boundary.up_to THEN NULL
			WHEN r.seq = last_seq + 2 THEN format('record %s is missing', last_seq + 1)
			WHEN r.seq <> last_seq + 1 THEN format('records %s to %s are missing', last_seq + 1, r.seq - 1)
			WHEN r.previous IS DISTINCT FROM last_digest
				THEN format('record %s, or the digest of the one before it, was altered', r.seq) END;
		IF problem IS NOT NULL THEN
			RETURN;
		END IF;
		IF r.seq > last_seq THEN
			last_seq := r.seq;
			last_digest := r.digest;
		END IF;
		last_epoch := r.epoch;
	END LOOP;
	IF boundary.seq IS NOT NULL THEN
		SELECT k.* INTO below FROM lease.summarize_kept(check_records.name, boundary.up_to) AS k;
		problem := CASE
			WHEN below.kept = boundary.kept - 1 THEN format('record %s is missing', boundary.kept_sum - below.kept_sum)
			WHEN below.kept < boundary.kept
				THEN format('%s records up to %s are missing', boundary.kept - below.kept, boundary.up_to)
			WHEN below.kept = boundary.kept + 1
				THEN format('record %s is there although it was compacted', below.kept_sum - boundary.kept_sum)
			WHEN below.kept > boundary.kept
				THEN format('%s records up to %s are there although they were compacted', below.kept - boundary.kept, boundary.up_to)
			WHEN below.kept_digest IS DISTINCT FROM boundary.kept_digest
				THEN format('a record up to %s was altered, and digested anew', boundary.up_to) END;
		IF problem IS NOT NULL THEN
			RETURN;
		END IF;
	END IF;

	-- What comes after: the next record, or the end.
	SELECT x.* INTO r FROM lease.record x
		WHERE x.lease = check_records.name AND x.seq = last_seq + 1;
	problem := CASE
		WHEN check_records.end_at > last_seq AND check_records.end_at <= chain.last_seq AND r.seq IS NULL
			THEN format('record %s is missing', last_seq + 1)
		WHEN r.seq IS NOT NULL AND r.previous IS DISTINCT FROM last_digest
			THEN format('record %s, or the digest of the one before it, was altered', r.seq)
		WHEN r.seq IS NULL AND chain.last_digest IS NOT DISTINCT FROM last_digest AND chain.last_seq <> last_seq
			OR chain.last_seq < last_seq
			OR r.seq IS NULL AND chain.last_seq = last_seq AND chain.last_digest IS DISTINCT FROM last_digest
			THEN 'the row of lease.record_chain was altered'
		WHEN r.seq IS NULL AND chain.last_seq = last_seq + 1 THEN format('record %s is missing', chain.last_seq)
		WHEN r.seq IS NULL AND chain.last_seq > last_seq
			THEN format('records %s to %s are missing', last_seq + 1, chain.last_seq) END;
END;
$$;
COMMENT ON FUNCTION lease.check_records(text, bigint) IS
'a part of lease.verify_authority() and lease.compact(): proves the records of a lease up to a number (null: all); problem is null, or the first that was found';

CREATE FUNCTION lease.record_compaction(
	name text,
	epoch bigint,
	before bigint,
	older_than interval,
	OUT removed bigint,
	OUT up_to bigint,
	OUT remaining bigint,
	OUT held_by text)
RETURNS record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	chain lease.record_chain;
	old lease.boundary;
	floor_name constant text := record_compaction.name || '#records';
	kept record;
	held record;
	pin lease.floor_pin;
	open_one lease.attempt;
	limit_at timestamptz;
	new_up_to bigint;
	checked record;
	first_young bigint;
	new lease.record;
BEGIN
	IF record_compaction.before IS NULL AND record_compaction.older_than IS NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = 'before and older_than must not both be null';
	END IF;
	IF record_compaction.older_than IS NOT NULL THEN
		limit_at := lease.transaction_time() - lease.task_interval(record_compaction.older_than, 'older_than', '0');
	END IF;
	chain := lease.lock_chain(record_compaction.name, record_compaction.epoch);
	SELECT b.* INTO old FROM lease.boundary b WHERE b.lease = record_compaction.name;
	removed := 0;
	up_to := least(CASE WHEN record_compaction.before IS NOT NULL THEN greatest(record_compaction.before, 1) - 1 END,
		chain.last_seq);
	IF limit_at IS NOT NULL THEN
		first_young := (SELECT r.seq FROM lease.record r
			WHERE r.lease = record_compaction.name AND r.at >= limit_at ORDER BY r.seq LIMIT 1);
		up_to := least(up_to, coalesce(first_young - 1, chain.last_seq));
	END IF;

	SELECT a.* INTO open_one FROM lease.attempt a
		WHERE a.lease = record_compaction.name AND a.status = 'open' AND a.attempt <= record_compaction.up_to
		ORDER BY a.attempt LIMIT 1;
	IF FOUND THEN
		up_to := open_one.attempt - 1;
		held_by := format('attempt %s at "%s" is open', open_one.attempt, open_one.subject);
	END IF;
	held := lease.hold_floor(floor_name, up_to + 1);
	pin := held.pin;
	IF (held.standing).floor IS NULL THEN
		RAISE data_corrupted USING
			MESSAGE = format('floor "%s" is missing', floor_name),
			HINT = 'Somebody with the rights of a superuser has removed it, so that nobody knows which records are pinned. See lease.verify_authority().';
	END IF;
	IF pin.floor IS NOT NULL THEN
		up_to := pin.position - 1;
		held_by := format('"%s" has pinned record %s', pin.holder, pin.position);
	END IF;

	IF up_to > 0 THEN
		-- What was kept below an earlier boundary may be gone now; that never moves back.
		new_up_to := greatest(up_to, old.up_to);
		-- What a boundary vouches for has to be right before.
		checked := lease.check_records(record_compaction.name, new_up_to);
		IF checked.problem IS NOT NULL THEN
			RAISE data_corrupted USING
				MESSAGE = format('the records of lease "%s" cannot be compacted', record_compaction.name),
				DETAIL = format('Verification has found: %s.', checked.problem),
				HINT = 'Somebody with the rights of a superuser has altered them. See lease.verify_authority().';
		END IF;
		removed := lease.remove_records(record_compaction.name, up_to);
	END IF;
	IF removed > 0 THEN
		SELECT k.* INTO kept FROM lease.summarize_kept(record_compaction.name, new_up_to) AS k;
		new.lease := record_compaction.name;
		new.kind := 'boundary';
		new.subject := 'records';
		new.detail := jsonb_build_object('up_to', new_up_to, 'digest', encode(checked.last_digest, 'hex'),
			'removed', removed + coalesce(old.removed, 0),
			'kept', kept.kept, 'kept_sum', kept.kept_sum, 'kept_digest', encode(kept.kept_digest, 'hex'));
		new.epoch := record_compaction.epoch;
		new := lease.append_record(new, chain);
		UPDATE lease.floor f SET position = new_up_to + 1, seq = new.seq, epoch = new.epoch,
				holder = new.holder, advanced_at = new.at
			WHERE f.floor = floor_name;
		up_to := new_up_to;
	ELSE
		up_to := coalesce(old.up_to, 0);
	END IF;
	remaining := (SELECT c.last_seq FROM lease.record_chain c WHERE c.lease = record_compaction.name)
		- coalesce(old.removed, 0) - removed;
END;
$$;
COMMENT ON FUNCTION lease.record_compaction(text, bigint, bigint, interval) IS
'a part of lease.compact(), which is the function to use';

CREATE FUNCTION lease.compact(
	name text,
	epoch bigint,
	before bigint DEFAULT NULL,
	older_than interval DEFAULT NULL,
	OUT removed bigint,
	OUT up_to bigint,
	OUT remaining bigint,
	OUT held_by text)
RETURNS record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM lease.guard(compact.name, compact.epoch);
	SELECT r.* INTO removed, up_to, remaining, held_by
		FROM lease.record_compaction(compact.name, compact.epoch, compact.before, compact.older_than) AS r;
END;
$$;
COMMENT ON FUNCTION lease.compact(text, bigint, bigint, interval) IS
'removes records of a lease that have a number below before (null: any), are older than older_than (null: any; one of the two has to be given), and are not needed any more: decisions and settled attempts whose time to be kept is over, and what a later record has taken the place of; under the epoch of the lease, and guards the transaction. removed: how many; if any, a record of kind boundary vouches for what is kept below. up_to: number up to which was compacted so far. remaining: how many records there are. held_by: what held it back from going further, an open attempt or a pin of the floor NAME#records; null: nothing. Raises XX001 if the records are not whole, 22004, 22023, LS006 (another transaction that has written records of this lease, or a pin, has not ended), and what lease.guard() raises';

--
-- Proof
--

CREATE FUNCTION lease.verify_authority(
	name text DEFAULT NULL)
RETURNS TABLE (
	lease text,
	verified boolean,
	records bigint,
	removed bigint,
	last_seq bigint,
	problem text)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	checked record;
	b lease.boundary;
BEGIN
	FOR lease IN
		SELECT k.lease
		FROM (SELECT x.lease FROM lease.record_chain x
				UNION
				SELECT x.lease FROM lease.record x
				UNION
				SELECT x.lease FROM lease.floor x) AS k
		WHERE verify_authority.name IS NULL OR k.lease = verify_authority.name
		ORDER BY k.lease
	LOOP
		checked := lease.check_records(verify_authority.lease, NULL);
		b := checked.boundary;
		records := checked.records;
		removed := coalesce(b.removed, 0);
		last_seq := checked.last_seq;
		-- And what is derived from records.
		problem := coalesce(checked.problem,
			(SELECT format(CASE WHEN f.floor IS NULL THEN 'floor "%s", of which record %s is, is missing'
					ELSE 'floor "%s" does not agree with record %s' END, k.subject, k.seq)
				FROM (SELECT DISTINCT ON (x.subject) x.* FROM lease.record x
						WHERE x.lease = verify_authority.lease AND x.kind = 'floor' ORDER BY x.subject, x.seq DESC) AS k
					LEFT JOIN lease.floor f ON f.floor = k.subject
				WHERE (f.lease, f.position, f.seq, f.epoch, f.holder, f.advanced_at)
					IS DISTINCT FROM (k.lease, k.position::bigint, k.seq, k.epoch, k.holder, k.at)
				ORDER BY k.subject LIMIT 1),
			(SELECT format(CASE WHEN f.floor IS NULL THEN 'floor "%s#records" is missing'
					ELSE 'floor "%s#records" does not agree with the boundary' END, verify_authority.lease)
				FROM (VALUES (verify_authority.lease || '#records')) AS n(floor)
					LEFT JOIN lease.floor f ON f.floor = n.floor
				WHERE (f.lease, f.position, f.seq, f.epoch, f.holder, f.advanced_at)
					IS DISTINCT FROM (verify_authority.lease, coalesce(b.up_to, 0) + 1, b.seq, b.epoch, b.holder, b.at)),
			(SELECT format('there is no record of floor "%s"', f.floor)
				FROM lease.floor f
				WHERE f.lease = verify_authority.lease AND f.floor <> verify_authority.lease || '#records'
					AND NOT EXISTS (SELECT FROM lease.record x
						WHERE x.lease = verify_authority.lease AND x.kind = 'floor' AND x.subject = f.floor)
				ORDER BY f.floor LIMIT 1));
		verified := problem IS NULL;
		RETURN NEXT;
	END LOOP;
END;
$$;
COMMENT ON FUNCTION lease.verify_authority(text) IS
'proves, for each lease that has records or for one, that none is missing but what lease.compact() has removed, and that none was altered, nor the boundary, nor the floors: problem is null, or the first that was found; no row: there are no records. Reads all of them, one after the other. Not found is what a superuser has altered from some record on to the end, and digested anew: for that, keep the digest of a latest record elsewhere';
