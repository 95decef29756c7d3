-- Cursors: how far a leader has come with work that many leaders do one after the other.
-- See sql/records.sql.
--
-- A cursor stands at a position, in a phase; both are texts that mean something to the
-- leaders alone.  It moves by compare-and-set: from exactly where it stands, or not at
-- all.  Moved in the transaction that does the step, it makes the step happen once.
--
-- Steps whose effects are elsewhere, or cannot be undone, belong to a phase that is
-- declared destructive.  Such a step is taken only by the leader who has also taken
-- the one before: a new one must first take the cursor over, that is, say where he found
-- it, and see to what may have been left half done.

CREATE VIEW lease.cursor AS
	SELECT h.lease, c.subject AS cursor, r.position, r.phase,
		-- One look-up for each, whatever the planner believes.
		coalesce((SELECT true FROM lease.record d
			WHERE d.lease = r.lease AND d.kind = 'declared' AND d.subject = r.subject AND d.phase = r.phase
			LIMIT 1), false) AS destructive,
		r.seq, r.epoch, r.holder, r.at
	FROM lease.record_chain h
		CROSS JOIN LATERAL (WITH RECURSIVE name(subject) AS (
				(SELECT x.subject FROM lease.record x
					WHERE x.lease = h.lease AND x.kind = 'cursor' ORDER BY x.subject LIMIT 1)
				UNION ALL
				SELECT (SELECT x.subject FROM lease.record x
					WHERE x.lease = h.lease AND x.kind = 'cursor' AND x.subject > n.subject ORDER BY x.subject LIMIT 1)
				FROM name n WHERE n.subject IS NOT NULL
			) SELECT n.subject FROM name n WHERE n.subject IS NOT NULL) AS c
		CROSS JOIN LATERAL (SELECT x.* FROM lease.record x
			WHERE x.lease = h.lease AND x.kind = 'cursor' AND x.subject = c.subject
			ORDER BY x.seq DESC LIMIT 1) AS r;
COMMENT ON VIEW lease.cursor IS 'where each cursor stands';
COMMENT ON COLUMN lease.cursor.lease IS 'the lease';
COMMENT ON COLUMN lease.cursor.cursor IS 'name of the cursor';
COMMENT ON COLUMN lease.cursor.position IS 'where it stands';
COMMENT ON COLUMN lease.cursor.phase IS 'in which phase';
COMMENT ON COLUMN lease.cursor.destructive IS 'whether that was declared destructive: whoever goes on under another epoch has to take it over first';
COMMENT ON COLUMN lease.cursor.seq IS 'number of the record that brought it there';
COMMENT ON COLUMN lease.cursor.epoch IS 'under which epoch that was written';
COMMENT ON COLUMN lease.cursor.holder IS 'by whom';
COMMENT ON COLUMN lease.cursor.at IS 'when, by the transaction time';

CREATE FUNCTION lease.is_destructive(
	name text,
	cursor text,
	phase text)
RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN EXISTS (SELECT FROM lease.record r
		WHERE r.lease = is_destructive.name AND r.kind = 'declared' AND r.subject = is_destructive.cursor
			AND r.phase = is_destructive.phase);
END;
$$;
COMMENT ON FUNCTION lease.is_destructive(text, text, text) IS
'whether a phase of a cursor of a lease was declared destructive';

CREATE FUNCTION lease.cursor_of(
	name text,
	cursor text)
RETURNS SETOF lease.cursor
LANGUAGE sql STABLE PARALLEL UNSAFE ROWS 1
SET search_path = pg_catalog, pg_temp
AS $$
	SELECT r.lease, r.subject, r.position, r.phase, lease.is_destructive(r.lease, r.subject, r.phase),
		r.seq, r.epoch, r.holder, r.at
	FROM lease.record r
	WHERE r.lease = cursor_of.name AND r.kind = 'cursor' AND r.subject = cursor_of.cursor
	ORDER BY r.seq DESC LIMIT 1;
$$;
COMMENT ON FUNCTION lease.cursor_of(text, text) IS
'where a cursor of a lease stands: a row of lease.cursor, or none if it has not been anywhere';

CREATE FUNCTION lease.record_declaration(
	name text,
	epoch bigint,
	cursor text,
	phase text)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	chain lease.record_chain;
	new lease.record;
BEGIN
	PERFORM lease.require_text(record_declaration.cursor, 'cursor', 512);
	PERFORM lease.require_text(record_declaration.phase, 'phase', 255);
	chain := lease.lock_chain(record_declaration.name, record_declaration.epoch);
	IF lease.is_destructive(record_declaration.name, record_declaration.cursor, record_declaration.phase) THEN
		RETURN false;
	END IF;
	new.lease := record_declaration.name;
	new.kind := 'declared';
	new.subject := record_declaration.cursor;
	new.phase := record_declaration.phase;
	new.kept_until := 'infinity';
	new.epoch := record_declaration.epoch;
	PERFORM lease.append_record(new, chain);
	RETURN true;
END;
$$;
COMMENT ON FUNCTION lease.record_declaration(text, bigint, text, text) IS
'a part of lease.declare_destructive(), which is the function to use';

CREATE FUNCTION lease.declare_destructive(
	name text,
	epoch bigint,
	cursor text,
	phase text)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM lease.guard(declare_destructive.name, declare_destructive.epoch);
	RETURN lease.record_declaration(declare_destructive.name, declare_destructive.epoch,
		declare_destructive.cursor, declare_destructive.phase);
END;
$$;
COMMENT ON FUNCTION lease.declare_destructive(text, bigint, text, text) IS
'declares a phase of a cursor destructive, once for all, under the epoch of the lease, and guards the transaction: lease.advance_cursor() then moves the cursor into, in or out of it only under the epoch under which it was moved, or taken over, before. True if it was not declared before. Raises 22004, 22023, LS006 (another transaction that has written records of this lease has not ended), and what lease.guard() raises';

CREATE FUNCTION lease.record_cursor(
	name text,
	epoch bigint,
	cursor text,
	from_position text,
	from_phase text,
	to_position text,
	to_phase text,
	take_over boolean,
	detail jsonb,
	OUT outcome text,
	OUT seq bigint,
	OUT standing_position text,
	OUT standing_phase text,
	OUT recorded_epoch bigint,
	OUT recorded_by text,
	OUT recorded_at timestamptz)
RETURNS record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	chain lease.record_chain;
	new lease.record;
	standing lease.record;
BEGIN
	PERFORM lease.require_text(record_cursor.cursor, 'cursor', 512);
	PERFORM lease.require_text(record_cursor.to_position, CASE WHEN take_over THEN 'at_position' ELSE 'to_position' END, 512);
	PERFORM lease.require_text(record_cursor.to_phase, CASE WHEN take_over THEN 'in_phase' ELSE 'to_phase' END, 255);
	PERFORM lease.check_text(record_cursor.from_position, 'from_position', 512);
	PERFORM lease.check_text(record_cursor.from_phase, 'from_phase', 255);
	new.lease := record_cursor.name;
	new.kind := 'cursor';
	new.subject := record_cursor.cursor;
	new.from_position := record_cursor.from_position;
	new.from_phase := record_cursor.from_phase;
	new.position := record_cursor.to_position;
	new.phase := record_cursor.to_phase;
	new.verdict := CASE WHEN take_over THEN 'taken over' ELSE 'advanced' END;
	new.detail := record_cursor.detail;
	new.epoch := record_cursor.epoch;
	IF take_over IS NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = 'take_over must not be null';
	ELSIF take_over AND (new.from_position, new.from_phase) IS DISTINCT FROM (new.position, new.phase) THEN
		RAISE invalid_parameter_value USING MESSAGE = 'a cursor is taken over where it stands';
	ELSIF (new.from_position IS NULL) <> (new.from_phase IS NULL) THEN
		RAISE invalid_parameter_value USING
			MESSAGE = 'from_position and from_phase belong together',
			HINT = 'Both are null for a cursor that has not been anywhere yet.';
	ELSIF NOT take_over AND (new.from_position, new.from_phase) = (new.position, new.phase) THEN
		RAISE invalid_parameter_value USING
			MESSAGE = 'a cursor must not be moved to where it stands',
			HINT = 'A step changes the position, the phase, or both. To go on with what an earlier leader has left, call lease.take_over_cursor().';
	END IF;

	chain := lease.lock_chain(new.lease, new.epoch);
	SELECT r.* INTO standing FROM lease.record r
		WHERE r.lease = new.lease AND r.kind = 'cursor' AND r.subject = new.subject
		ORDER BY r.seq DESC LIMIT 1;
	outcome := CASE
		WHEN (standing.position, standing.phase) IS DISTINCT FROM (new.from_position, new.from_phase)
			THEN CASE WHEN NOT take_over AND standing.verdict = 'advanced'
					AND (standing.from_position, standing.from_phase, standing.position, standing.phase)
						IS NOT DISTINCT FROM (new.from_position, new.from_phase, new.position, new.phase)
				THEN 'identical' ELSE 'stale' END
		WHEN take_over AND standing.epoch = new.epoch THEN 'identical'
		WHEN NOT take_over AND standing.epoch <> new.epoch
			AND (lease.is_destructive(new.lease, new.subject, new.phase)
				OR lease.is_destructive(new.lease, new.subject, standing.phase))
			THEN 'not taken over'
		ELSE new.verdict END;
	IF outcome = new.verdict THEN
		standing := lease.append_record(new, chain);
	END IF;
	seq := standing.seq;
	standing_position := standing.position;
	standing_phase := standing.phase;
	recorded_epoch := standing.epoch;
	recorded_by := standing.holder;
	recorded_at := standing.at;
END;
$$;
COMMENT ON FUNCTION lease.record_cursor(text, bigint, text, text, text, text, text, boolean, jsonb) IS
'a part of lease.advance_cursor() and lease.take_over_cursor(), which are the functions to use';

CREATE FUNCTION lease.advance_cursor(
	name text,
	epoch bigint,
	cursor text,
	from_position text,
	from_phase text,
	to_position text,
	to_phase text,
	detail jsonb DEFAULT NULL,
	strict boolean DEFAULT false,
	OUT outcome text,
	OUT seq bigint,
	OUT standing_position text,
	OUT standing_phase text,
	OUT recorded_epoch bigint,
	OUT recorded_by text,
	OUT recorded_at timestamptz)
RETURNS record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM lease.guard(advance_cursor.name, advance_cursor.epoch);
	SELECT r.* INTO outcome, seq, standing_position, standing_phase, recorded_epoch, recorded_by, recorded_at
		FROM lease.record_cursor(advance_cursor.name, advance_cursor.epoch, advance_cursor.cursor,
			advance_cursor.from_position, advance_cursor.from_phase,
			advance_cursor.to_position, advance_cursor.to_phase, false, advance_cursor.detail) AS r;
	IF advance_cursor.strict IS NOT false AND outcome <> 'advanced' THEN
		RAISE EXCEPTION USING ERRCODE = 'LS008',
			MESSAGE = format(CASE outcome
					WHEN 'stale' THEN 'cursor "%s" of lease "%s" does not stand there'
					WHEN 'identical' THEN 'cursor "%s" of lease "%s" has been moved there already'
					ELSE 'cursor "%s" of lease "%s" was not taken over' END,
				advance_cursor.cursor, advance_cursor.name),
			DETAIL = CASE WHEN seq IS NULL THEN 'It has not been anywhere yet.'
				ELSE format('It stands at position "%s" in phase "%s", since epoch %s of "%s" at %s.',
					standing_position, standing_phase, recorded_epoch, recorded_by, recorded_at) END,
			HINT = CASE WHEN outcome <> 'not taken over' THEN 'Go on from there, which lease.cursor shows.'
				ELSE format('Phase "%s" or "%s" is destructive. See to what may have been left half done, then call lease.take_over_cursor().',
					standing_phase, advance_cursor.to_phase) END;
	END IF;
END;
$$;
COMMENT ON FUNCTION lease.advance_cursor(text, bigint, text, text, text, text, text, jsonb, boolean) IS
'moves a cursor from exactly where it stands, both null: from nowhere, to another position, another phase, or both, under the epoch of the lease, and guards the transaction. outcome: advanced; identical, the latest move was exactly this one (a retry, also under a later epoch); stale, it does not stand there; not taken over, the phase that it is in, or comes to, is destructive, and it stands there since another epoch: see lease.take_over_cursor(). The rest of the row is where it stands, null: nowhere. strict (null: true): raises LS008 unless it is advanced, so that what else the transaction has done is undone, also in a retry of what was committed. Raises 22004, 22023, LS006 (another transaction that has written records of this lease has not ended), and what lease.guard() raises';

CREATE FUNCTION lease.take_over_cursor(
	name text,
	epoch bigint,
	cursor text,
	at_position text,
	in_phase text,
	detail jsonb DEFAULT NULL,
	OUT outcome text,
	OUT seq bigint,
	OUT standing_position text,
	OUT standing_phase text,
	OUT recorded_epoch bigint,
	OUT recorded_by text,
	OUT recorded_at timestamptz)
RETURNS record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM lease.guard(take_over_cursor.name, take_over_cursor.epoch);
	SELECT r.* INTO outcome, seq, standing_position, standing_phase, recorded_epoch, recorded_by, recorded_at
		FROM lease.record_cursor(take_over_cursor.name, take_over_cursor.epoch, take_over_cursor.cursor,
			take_over_cursor.at_position, take_over_cursor.in_phase,
			take_over_cursor.at_position, take_over_cursor.in_phase, true, take_over_cursor.detail) AS r;
END;
$$;
COMMENT ON FUNCTION lease.take_over_cursor(text, bigint, text, text, text, jsonb) IS
'puts on record that whoever holds the lease under this epoch goes on with a cursor from exactly where an earlier leader has left it, which is what a destructive phase asks for, and guards the transaction. outcome: taken over; identical, it stands there since this epoch; stale, it does not stand there. The rest of the row is where it stands. Raises 22004, 22023, LS006 (another transaction that has written records of this lease has not ended), and what lease.guard() raises';
