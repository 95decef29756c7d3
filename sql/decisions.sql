-- Decisions and attempts: what was decided once, and what was tried and settled once.
-- See sql/records.sql.
--
-- A decision is final: the first verdict on a subject stands.  Whoever comes later, in a
-- retry, under a later epoch, with another opinion, is told what stands.
--
-- An attempt is what takes longer than a transaction, or happens elsewhere.  It is opened
-- before, and settled after, as committed or aborted; its number is that of the record
-- that opened it, which never comes back.  There is one open attempt at a subject at a
-- time; that of a leader who is gone is for the next one to settle, who has to find out
-- what has become of it.

CREATE VIEW lease.decision AS
	SELECT r.lease, r.seq, r.subject, r.from_state, r.to_state, r.verdict, r.detail,
		r.epoch, r.holder, r.at, r.kept_until
	FROM lease.record r
	WHERE r.kind = 'decision';
COMMENT ON VIEW lease.decision IS 'what the leaders of each lease have decided';
COMMENT ON COLUMN lease.decision.lease IS 'the lease';
COMMENT ON COLUMN lease.decision.seq IS 'number of the record';
COMMENT ON COLUMN lease.decision.subject IS 'what it is about';
COMMENT ON COLUMN lease.decision.from_state IS 'if it is about a transition: from which state';
COMMENT ON COLUMN lease.decision.to_state IS 'to which state';
COMMENT ON COLUMN lease.decision.verdict IS 'what was decided';
COMMENT ON COLUMN lease.decision.detail IS 'what was said with it';
COMMENT ON COLUMN lease.decision.epoch IS 'under which epoch';
COMMENT ON COLUMN lease.decision.holder IS 'by whom';
COMMENT ON COLUMN lease.decision.at IS 'when, by the transaction time';
COMMENT ON COLUMN lease.decision.kept_until IS 'until when it cannot be compacted; infinity: never';

CREATE VIEW lease.attempt AS
	SELECT o.lease, o.seq AS attempt, o.subject, coalesce(s.verdict, 'open') AS status, o.detail, o.epoch, o.holder, o.at AS opened_at,
		s.seq AS settlement, s.detail AS settled_detail, s.epoch AS settled_epoch, s.holder AS settled_by,
		s.at AS settled_at, s.kept_until
	FROM lease.record o
		LEFT JOIN lease.record s ON s.kind = 'settled' AND s.lease = o.lease AND s.attempt = o.seq
	WHERE o.kind = 'opened';
COMMENT ON VIEW lease.attempt IS 'what the leaders of each lease have attempted, and what has become of it';
COMMENT ON COLUMN lease.attempt.lease IS 'the lease';
COMMENT ON COLUMN lease.attempt.attempt IS 'number of the attempt: that of the record that opened it';
COMMENT ON COLUMN lease.attempt.subject IS 'what it is about';
COMMENT ON COLUMN lease.attempt.status IS 'open, committed or aborted';
COMMENT ON COLUMN lease.attempt.detail IS 'what was said when it was opened';
COMMENT ON COLUMN lease.attempt.epoch IS 'under which epoch it was opened';
COMMENT ON COLUMN lease.attempt.holder IS 'by whom';
COMMENT ON COLUMN lease.attempt.opened_at IS 'when, by the transaction time';
COMMENT ON COLUMN lease.attempt.settlement IS 'number of the record that settled it';
COMMENT ON COLUMN lease.attempt.settled_detail IS 'what was said when it was settled';
COMMENT ON COLUMN lease.attempt.settled_epoch IS 'under which epoch it was settled';
COMMENT ON COLUMN lease.attempt.settled_by IS 'by whom';
COMMENT ON COLUMN lease.attempt.settled_at IS 'when, by the transaction time';
COMMENT ON COLUMN lease.attempt.kept_until IS 'until when it cannot be compacted; infinity: never; null: it is open';

--
-- Decisions
--

CREATE FUNCTION lease.decision_of(
	name text,
	subject text,
	from_state text DEFAULT NULL,
	to_state text DEFAULT NULL)
RETURNS SETOF lease.decision
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 1
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT d.* FROM lease.decision d
		WHERE d.lease = decision_of.name AND d.subject = decision_of.subject
			AND coalesce(d.from_state, '') = coalesce(decision_of.from_state, '')
			AND coalesce(d.to_state, '') = coalesce(decision_of.to_state, '');
END;
$$;
COMMENT ON FUNCTION lease.decision_of(text, text, text, text) IS
'what was decided about a subject, or about a transition of it between exactly these states (null: none was given): a row of lease.decision, or none';

CREATE FUNCTION lease.record_decision(
	name text,
	epoch bigint,
	subject text,
	verdict text,
	detail jsonb,
	from_state text,
	to_state text,
	keep interval,
	OUT outcome text,
	OUT standing lease.decision)
RETURNS record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	chain lease.record_chain;
	new lease.record;
BEGIN
	PERFORM lease.require_text(record_decision.subject, 'subject', 512);
	PERFORM lease.require_text(record_decision.verdict, 'verdict', 512);
	PERFORM lease.check_text(record_decision.from_state, 'from_state', 255);
	PERFORM lease.check_text(record_decision.to_state, 'to_state', 255);
	new.lease := record_decision.name;
	new.kind := 'decision';
	new.subject := record_decision.subject;
	new.from_state := record_decision.from_state;
	new.to_state := record_decision.to_state;
	new.verdict := record_decision.verdict;
	new.detail := record_decision.detail;
	new.kept_until := lease.kept_until(record_decision.keep);
	new.epoch := record_decision.epoch;

	PERFORM lease.require_guard(new.lease, new.epoch);
	-- What stands for ever, stands: whoever only repeats it waits for nobody.  What may be
	-- compacted may be decided otherwise before this is committed, and is looked at again.
	SELECT d.* INTO standing
		FROM lease.decision_of(new.lease, new.subject, new.from_state, new.to_state) AS d;
	IF standing.kept_until IS DISTINCT FROM 'infinity' THEN
		chain := lease.lock_chain(new.lease, new.epoch);
		SELECT d.* INTO standing
			FROM lease.decision_of(new.lease, new.subject, new.from_state, new.to_state) AS d;
	END IF;
	IF standing.seq IS NULL THEN
		new := lease.append_record(new, chain);
		outcome := 'recorded';
		standing := ROW(new.lease, new.seq, new.subject, new.from_state, new.to_state, new.verdict, new.detail,
			new.epoch, new.holder, new.at, new.kept_until);
	ELSIF standing.verdict = new.verdict AND standing.detail IS NOT DISTINCT FROM new.detail THEN
		outcome := 'identical';
	ELSE
		outcome := 'conflict';
	END IF;
END;
$$;
COMMENT ON FUNCTION lease.record_decision(text, bigint, text, text, jsonb, text, text, interval) IS
'a part of lease.decide(), which is the function to use';

CREATE FUNCTION lease.decide(
	name text,
	epoch bigint,
	subject text,
	verdict text,
	detail jsonb DEFAULT NULL,
	from_state text DEFAULT NULL,
	to_state text DEFAULT NULL,
	keep interval DEFAULT NULL,
	strict boolean DEFAULT false,
	OUT outcome text,
	OUT seq bigint,
	OUT standing_verdict text,
	OUT standing_detail jsonb,
	OUT decided_epoch bigint,
	OUT decided_by text,
	OUT decided_at timestamptz)
RETURNS record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	answer record;
	standing lease.decision;
BEGIN
	PERFORM lease.guard(decide.name, decide.epoch);
	SELECT r.* INTO answer
		FROM lease.record_decision(decide.name, decide.epoch, decide.subject, decide.verdict,
			decide.detail, decide.from_state, decide.to_state, decide.keep) AS r;
	outcome := answer.outcome;
	standing := answer.standing;
	IF decide.strict IS NOT false AND outcome = 'conflict' THEN
		RAISE EXCEPTION USING ERRCODE = 'LS008',
			MESSAGE = format('it was decided otherwise about "%s" of lease "%s"', decide.subject, decide.name),
			DETAIL = format('The verdict that stands is "%s" with detail %s, decided under epoch %s by "%s" at %s; not "%s" with detail %s.',
				standing.verdict, coalesce(standing.detail::text, 'null'), standing.epoch, standing.holder, standing.at,
				decide.verdict, coalesce(decide.detail::text, 'null')),
			HINT = 'The first verdict is final: go on by it, which lease.decision_of() returns.';
	END IF;
	seq := standing.seq;
	standing_verdict := standing.verdict;
	standing_detail := standing.detail;
	decided_epoch := standing.epoch;
	decided_by := standing.holder;
	decided_at := standing.at;
END;
$$;
COMMENT ON FUNCTION lease.decide(text, bigint, text, text, jsonb, text, text, interval, boolean) IS
'decides about a subject, or about a transition of it between states, under the epoch of the lease, once for all, and guards the transaction. outcome: recorded; identical, the same verdict and detail stand already (a retry, also under a later epoch); conflict, others do. The rest of the row is what stands. keep: for how long it is kept at least; null: for ever; after that lease.compact() may remove it, and the subject can be decided anew. strict (null: true): raises LS008 instead of conflict. Raises 22004, 22023, LS006 (another transaction that has written records of this lease has not ended), and what lease.guard() raises';

--
-- Attempts
--

-- By number, so that nothing depends on what the planner believes of the indexes.
CREATE FUNCTION lease.attempt_numbered(
	name text,
	attempt bigint)
RETURNS lease.attempt
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	o lease.record;
	s lease.record;
BEGIN
	SELECT r.* INTO o FROM lease.record r
		WHERE r.lease = attempt_numbered.name AND r.seq = attempt_numbered.attempt;
	IF o.kind IS DISTINCT FROM 'opened' THEN
		RETURN NULL;
	END IF;
	SELECT r.* INTO s FROM lease.record r
		WHERE r.kind = 'settled' AND r.lease = attempt_numbered.name AND r.attempt = attempt_numbered.attempt;
	RETURN ROW(o.lease, o.seq, o.subject, coalesce(s.verdict, 'open'), o.detail, o.epoch, o.holder, o.at,
		s.seq, s.detail, s.epoch, s.holder, s.at, s.kept_until);
END;
$$;
COMMENT ON FUNCTION lease.attempt_numbered(text, bigint) IS
'a part of lease.attempt_of() and the like: the attempt of that number, null if it is none';

CREATE FUNCTION lease.latest_attempt(
	name text,
	subject text)
RETURNS bigint
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT r.seq FROM lease.record r
		WHERE r.lease = latest_attempt.name AND r.kind = 'opened' AND r.subject = latest_attempt.subject
		ORDER BY r.seq DESC LIMIT 1);
END;
$$;
COMMENT ON FUNCTION lease.latest_attempt(text, text) IS
'a part of lease.attempt_of() and the like: the number of the latest attempt at a subject';

CREATE FUNCTION lease.attempt_of(
	name text,
	subject text)
RETURNS SETOF lease.attempt
LANGUAGE sql STABLE PARALLEL UNSAFE ROWS 1
SET search_path = pg_catalog, pg_temp
AS $$
	SELECT a.* FROM lease.attempt_numbered(attempt_of.name, lease.latest_attempt(attempt_of.name, attempt_of.subject)) AS a
	WHERE a.attempt IS NOT NULL;
$$;
COMMENT ON FUNCTION lease.attempt_of(text, text) IS
'the latest attempt at a subject: a row of lease.attempt, or none';

CREATE FUNCTION lease.record_opening(
	name text,
	epoch bigint,
	subject text,
	detail jsonb,
	OUT outcome text,
	OUT standing lease.attempt)
RETURNS record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	new lease.record;
	chain lease.record_chain;
BEGIN
	PERFORM lease.require_text(record_opening.subject, 'subject', 512);
	chain := lease.lock_chain(record_opening.name, record_opening.epoch);
	standing := lease.attempt_numbered(record_opening.name,
		lease.latest_attempt(record_opening.name, record_opening.subject));
	IF standing.status = 'committed' THEN
		outcome := 'committed';
		RETURN;
	ELSIF standing.status = 'open' THEN
		outcome := CASE WHEN standing.epoch = record_opening.epoch
			AND standing.detail IS NOT DISTINCT FROM record_opening.detail THEN 'identical' ELSE 'open' END;
		RETURN;
	END IF;
	new.lease := record_opening.name;
	new.kind := 'opened';
	new.subject := record_opening.subject;
	new.detail := record_opening.detail;
	new.epoch := record_opening.epoch;
	new := lease.append_record(new, chain);
	outcome := 'opened';
	standing := lease.attempt_numbered(new.lease, new.seq);
END;
$$;
COMMENT ON FUNCTION lease.record_opening(text, bigint, text, jsonb) IS
'a part of lease.open_attempt(), which is the function to use';

CREATE FUNCTION lease.open_attempt(
	name text,
	epoch bigint,
	subject text,
	detail jsonb DEFAULT NULL,
	OUT outcome text,
	OUT attempt bigint,
	OUT status text,
	OUT standing_detail jsonb,
	OUT opened_epoch bigint,
	OUT opened_by text,
	OUT opened_at timestamptz)
RETURNS record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	answer record;
	standing lease.attempt;
BEGIN
	PERFORM lease.guard(open_attempt.name, open_attempt.epoch);
	SELECT r.* INTO answer
		FROM lease.record_opening(open_attempt.name, open_attempt.epoch, open_attempt.subject, open_attempt.detail) AS r;
	outcome := answer.outcome;
	standing := answer.standing;
	attempt := standing.attempt;
	status := standing.status;
	standing_detail := standing.detail;
	opened_epoch := standing.epoch;
	opened_by := standing.holder;
	opened_at := standing.opened_at;
END;
$$;
COMMENT ON FUNCTION lease.open_attempt(text, bigint, text, jsonb) IS
'opens an attempt at a subject under the epoch of the lease, and guards the transaction. outcome: opened; identical, it was opened under this epoch with the same detail and is open (a retry: let detail tell apart what is not); open, another one is, under this epoch or an earlier one, and has to be settled first; committed, the subject is done. The rest of the row is the attempt that stands. Commit before the attempt is made. Raises 22004, 22023, LS006 (another transaction that has written records of this lease has not ended), and what lease.guard() raises';

CREATE FUNCTION lease.raise_no_attempt(
	name text,
	attempt bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	message constant text := format('there is no attempt %s of lease "%s"', attempt, name);
	hint constant text := 'Take the number that lease.open_attempt() returns.';
BEGIN
	IF attempt >= 1 AND attempt <= (SELECT b.up_to FROM lease.boundary b WHERE b.lease = raise_no_attempt.name)
		AND NOT EXISTS (SELECT FROM lease.record r
			WHERE r.lease = raise_no_attempt.name AND r.seq = raise_no_attempt.attempt)
	THEN
		RAISE undefined_object USING MESSAGE = message, HINT = hint,
			DETAIL = 'If it was one, it has been settled, and compacted since.';
	END IF;
	RAISE undefined_object USING MESSAGE = message, HINT = hint;
END;
$$;
COMMENT ON FUNCTION lease.raise_no_attempt(text, bigint) IS
'a part of lease.settle_attempt(): raises 42704';

CREATE FUNCTION lease.record_settlement(
	name text,
	epoch bigint,
	attempt bigint,
	status text,
	detail jsonb,
	keep interval,
	OUT outcome text,
	OUT standing lease.attempt)
RETURNS record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	new lease.record;
	chain lease.record_chain;
BEGIN
	IF record_settlement.attempt IS NULL OR record_settlement.status IS NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = 'attempt and status must not be null';
	END IF;
	IF record_settlement.status NOT IN ('committed', 'aborted') THEN
		RAISE invalid_parameter_value USING
			MESSAGE = format('status must be committed or aborted, not "%s"', record_settlement.status);
	END IF;
	chain := lease.lock_chain(record_settlement.name, record_settlement.epoch);
	standing := lease.attempt_numbered(record_settlement.name, record_settlement.attempt);
	IF standing.attempt IS NULL THEN
		PERFORM lease.raise_no_attempt(record_settlement.name, record_settlement.attempt);
	ELSIF standing.status <> 'open' THEN
		outcome := CASE WHEN standing.status = record_settlement.status
			AND standing.settled_detail IS NOT DISTINCT FROM record_settlement.detail
			THEN 'identical' ELSE 'conflict' END;
		RETURN;
	END IF;
	new.lease := record_settlement.name;
	new.kind := 'settled';
	new.subject := standing.subject;
	new.verdict := record_settlement.status;
	new.attempt := record_settlement.attempt;
	new.detail := record_settlement.detail;
	new.kept_until := lease.kept_until(record_settlement.keep);
	new.epoch := record_settlement.epoch;
	new := lease.append_record(new, chain);
	outcome := 'settled';
	standing := lease.attempt_numbered(new.lease, new.attempt);
END;
$$;
COMMENT ON FUNCTION lease.record_settlement(text, bigint, bigint, text, jsonb, interval) IS
'a part of lease.settle_attempt(), which is the function to use';

CREATE FUNCTION lease.settle_attempt(
	name text,
	epoch bigint,
	attempt bigint,
	status text,
	detail jsonb DEFAULT NULL,
	keep interval DEFAULT NULL,
	strict boolean DEFAULT false,
	OUT outcome text,
	OUT standing_status text,
	OUT standing_detail jsonb,
	OUT settled_epoch bigint,
	OUT settled_by text,
	OUT settled_at timestamptz)
RETURNS record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	answer record;
	standing lease.attempt;
BEGIN
	PERFORM lease.guard(settle_attempt.name, settle_attempt.epoch);
	SELECT r.* INTO answer
		FROM lease.record_settlement(settle_attempt.name, settle_attempt.epoch, settle_attempt.attempt,
			settle_attempt.status, settle_attempt.detail, settle_attempt.keep) AS r;
	outcome := answer.outcome;
	standing := answer.standing;
	IF settle_attempt.strict IS NOT false AND outcome = 'conflict' THEN
		RAISE EXCEPTION USING ERRCODE = 'LS008',
			MESSAGE = format('attempt %s of lease "%s" was settled otherwise', settle_attempt.attempt, settle_attempt.name),
			DETAIL = format('It was %s with detail %s, under epoch %s by "%s" at %s; not %s with detail %s.',
				standing.status, coalesce(standing.settled_detail::text, 'null'), standing.settled_epoch,
				standing.settled_by, standing.settled_at,
				settle_attempt.status, coalesce(settle_attempt.detail::text, 'null')),
			HINT = 'The first settlement is final: go on by it, which lease.attempt shows.';
	END IF;
	standing_status := standing.status;
	standing_detail := standing.settled_detail;
	settled_epoch := standing.settled_epoch;
	settled_by := standing.settled_by;
	settled_at := standing.settled_at;
END;
$$;
COMMENT ON FUNCTION lease.settle_attempt(text, bigint, bigint, text, jsonb, interval, boolean) IS
'settles an attempt, once for all, as committed or aborted, under the epoch of the lease, and guards the transaction; also one that was opened under an earlier epoch. outcome: settled; identical, it was settled so, with the same detail (a retry, also under a later epoch); conflict, it was settled otherwise. The rest of the row is the settlement that stands. keep: for how long it is kept at least; null: for ever; after that lease.compact() may remove it, and the subject can be attempted anew; an aborted one is kept only until there is a later attempt. strict (null: true): raises LS008 instead of conflict. Raises 42704 (no such attempt), 22004, 22023, LS006 (another transaction that has written records of this lease has not ended), and what lease.guard() raises';
