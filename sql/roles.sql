-- Who may call what.  On which lease is decided in src/role.c.
--
-- PUBLIC gets the functions of the triggers, because whoever creates a partition of
-- a protected table needs them.  The owner of the extension gets
-- everything, with the right to pass it on, since under a trusted extension the
-- objects belong to the bootstrap superuser.
--
-- allow and disallow act as the owner of the objects, so that what one administrator
-- has granted another can take back.

CREATE FUNCTION lease.allow(
	role regrole,
	fences boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF allow.role IS NULL OR allow.fences IS NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = 'role and fences must not be null';
	END IF;
	IF NOT EXISTS (SELECT FROM pg_roles r WHERE r.oid = allow.role) THEN
		RAISE undefined_object USING
			MESSAGE = format('role with OID %s does not exist', allow.role::oid);
	END IF;
	EXECUTE format('GRANT USAGE ON SCHEMA lease TO %s', allow.role);
	EXECUTE format('GRANT SELECT ON lease.status, lease.fence, lease.event, lease.candidate,'
		' lease.health, lease.peer, lease.orphan, lease.metric, lease.task, lease.task_cursor,'
		' lease.occurrence, lease.occurrence_attempt, lease.misfire, lease.maintenance,'
		' lease.action, lease.acknowledgement, lease.guarantee, lease.admission,'
		' lease.record, lease.decision, lease.attempt, lease.cursor, lease.floor, lease.pin_held,'
		' lease.boundary, lease.record_chain, lease.outcome TO %s', allow.role);
	EXECUTE format('GRANT EXECUTE ON FUNCTION lease.acquire, lease.acquire_many,'
		' lease.acquire_any, lease.renew, lease.renew_many, lease.release, lease.release_many,'
		' lease.request_handover, lease.holds, lease.remaining, lease.guard, lease.share,'
		' lease.progress, lease.beat, lease.retire, lease.history, lease.watch,'
		' lease.read_status, lease.read_trigger, lease.read_candidates,'
		' lease.elapsed, lease.transaction_time, lease.occurrences, lease.create_task,'
		' lease.alter_task, lease.drop_task, lease.define_task, lease.due, lease.never_begun, lease.is_in_reach,'
		' lease.latest_occurrence, lease.knows_zone,'
		' lease.begin_occurrence, lease.record_begin, lease.finish_occurrence,'
		' lease.record_finish, lease.is_guarded, lease.create_action, lease.drop_action,'
		' lease.define_action, lease.begin_action, lease.acknowledge,'
		' lease.occurrence_key, lease.is_fenced, lease.admit, lease.decide, lease.record_decision,'
		' lease.decision_of, lease.attempt_of, lease.cursor_of, lease.floor_of, lease.open_attempt, lease.record_opening, lease.settle_attempt,'
		' lease.record_settlement, lease.declare_destructive, lease.record_declaration,'
		' lease.is_destructive, lease.advance_cursor, lease.take_over_cursor, lease.record_cursor,'
		' lease.advance_floor, lease.record_floor, lease.pin, lease.renew_pin, lease.unpin,'
		' lease.pin_renew_interval, lease.task_interval, lease.is_live, lease.compact, lease.verify_authority,'
		' lease.attempt_numbered, lease.latest_attempt,'
		' lease.record_compaction TO %s', allow.role);
	EXECUTE format('GRANT EXECUTE ON PROCEDURE lease.await TO %s', allow.role);
	IF allow.fences THEN
		EXECUTE format('GRANT EXECUTE ON FUNCTION lease.protect, lease.unprotect,'
			' lease.descendants, lease.own_triggers, lease.build_fence, lease.boot_clock,'
			' lease.doctor TO %s',
			allow.role);
	END IF;
END;
$$;
COMMENT ON FUNCTION lease.allow(regrole, boolean) IS
'grants a role what a scheduler needs: to acquire, renew, release and guard, to report progress and heartbeats, and to read the views; it must also be a member of the role of each lease that it is to act under; fences: also to protect and unprotect tables that it owns, and to call the doctor';

CREATE FUNCTION lease.disallow(
	role regrole)
RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF disallow.role IS NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = 'role must not be null';
	END IF;
	IF NOT EXISTS (SELECT FROM pg_roles r WHERE r.oid = disallow.role) THEN
		RAISE undefined_object USING
			MESSAGE = format('role with OID %s does not exist', disallow.role::oid);
	END IF;
	IF disallow.role IN ('pg_monitor'::regrole, 'pg_database_owner'::regrole,
		(SELECT e.extowner FROM pg_extension e WHERE e.extname = 'lease'))
	THEN
		RAISE insufficient_privilege USING
			MESSAGE = format('role %s has its rights from the extension itself', disallow.role);
	END IF;
	EXECUTE format('REVOKE ALL ON ALL ROUTINES IN SCHEMA lease FROM %s', disallow.role);
	EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA lease FROM %s', disallow.role);
	EXECUTE format('REVOKE USAGE ON SCHEMA lease FROM %s', disallow.role);
END;
$$;
COMMENT ON FUNCTION lease.disallow(regrole) IS
'takes back from a role all rights that it was granted, by lease.allow() or one by one, in schema lease';

REVOKE ALL ON ALL ROUTINES IN SCHEMA lease FROM PUBLIC;
REVOKE ALL ON TYPE lease.reply FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lease.fence(), lease.stamp(),
	lease.refuses(text, regclass), lease.refuses_stamp(text, regclass, bigint),
	lease.refuses_older(text, regclass, bigint), lease.row_lease(text, text) TO PUBLIC;

GRANT USAGE ON SCHEMA lease TO @extowner@ WITH GRANT OPTION;
GRANT USAGE ON TYPE lease.reply TO @extowner@ WITH GRANT OPTION;
GRANT EXECUTE ON ALL ROUTINES IN SCHEMA lease TO @extowner@ WITH GRANT OPTION;
REVOKE EXECUTE ON FUNCTION lease.remove_events(text, bigint), lease.remove_acknowledgements(timestamptz),
	lease.write_task(lease.task, text), lease.write_action(lease.action, text),
	lease.bound_waits(), lease.pass_over(lease.task, timestamptz, bigint),
	lease.record_acknowledgement(text, bigint, text, timestamptz, text, regrole),
	lease.record_admission(text, bigint, regrole),
	lease.lock_chain(text, bigint), lease.append_record(lease.record, lease.record_chain), lease.lock_records(text),
	lease.lock_floor(text, text),
	lease.put_pin(text, bigint, text, bigint, regrole), lease.refresh_pin(text, text, bigint, regrole),
	lease.remove_pin(text, text, regrole), lease.hold_floor(text, bigint), lease.lowest_pin(text, bigint),
	lease.remove_records(text, bigint), lease.delete_records(text, bigint) FROM @extowner@;
GRANT SELECT ON lease.status, lease.fence, lease.event, lease.candidate, lease.health,
	lease.peer, lease.orphan, lease.metric,
	lease.task, lease.task_cursor, lease.occurrence, lease.occurrence_attempt, lease.misfire,
	lease.maintenance, lease.action, lease.acknowledgement, lease.guarantee, lease.admission,
	lease.record, lease.decision, lease.attempt, lease.cursor, lease.floor, lease.pin_held,
	lease.boundary, lease.record_chain, lease.outcome TO @extowner@ WITH GRANT OPTION;

-- What pg_dump needs when the owner of the database runs it, whoever installed the
-- extension; and what pg_restore needs, whose user installs it.
GRANT USAGE ON SCHEMA lease TO pg_database_owner;
GRANT SELECT ON lease.lease, lease.event, lease.pruned, lease.epoch, lease.origin, lease.epoch_floor,
	lease.task, lease.task_cursor, lease.occurrence, lease.occurrence_attempt, lease.misfire,
	lease.action, lease.acknowledgement, lease.acknowledgement_id_seq, lease.admission,
	lease.record, lease.record_chain, lease.floor, lease.floor_pin TO pg_database_owner;
GRANT SELECT, INSERT ON lease.lease, lease.event, lease.pruned,
	lease.task, lease.task_cursor, lease.occurrence, lease.occurrence_attempt, lease.misfire,
	lease.action, lease.acknowledgement, lease.admission,
	lease.record, lease.record_chain, lease.floor, lease.floor_pin TO @extowner@;
GRANT SELECT, UPDATE ON SEQUENCE lease.epoch, lease.origin, lease.epoch_floor,
	lease.acknowledgement_id_seq TO @extowner@;

GRANT USAGE ON SCHEMA lease TO pg_monitor;
GRANT SELECT ON lease.status, lease.fence, lease.event, lease.candidate, lease.health,
	lease.peer, lease.orphan, lease.metric,
	lease.task, lease.task_cursor, lease.occurrence, lease.occurrence_attempt, lease.misfire,
	lease.maintenance, lease.action, lease.acknowledgement, lease.guarantee, lease.admission,
	lease.record, lease.decision, lease.attempt, lease.cursor, lease.floor, lease.pin_held,
	lease.boundary, lease.record_chain, lease.outcome TO pg_monitor;
GRANT EXECUTE ON FUNCTION lease.read_status(), lease.doctor(), lease.boot_clock(),
	lease.read_trigger(oid), lease.history(text, bigint), lease.watch(jsonb),
	lease.verify_history(text), lease.read_candidates(),
	lease.elapsed(text, bigint, timestamptz), lease.transaction_time(),
	lease.occurrences(text, text, interval, timestamptz, timestamptz, timestamptz, integer),
	lease.due(text, integer), lease.never_begun(lease.task, timestamptz, timestamptz, integer),
	lease.is_in_reach(lease.task, timestamptz, timestamptz, timestamptz),
	lease.latest_occurrence(text, text, interval, timestamptz, timestamptz, timestamptz), lease.knows_zone(text),
	lease.is_fenced(regclass, text), lease.decision_of(text, text, text, text),
	lease.attempt_of(text, text), lease.attempt_numbered(text, bigint),
	lease.latest_attempt(text, text), lease.cursor_of(text, text), lease.floor_of(text),
	lease.is_live(text, bigint, timestamptz, bigint), lease.is_destructive(text, text, text),
	lease.verify_authority(text) TO pg_monitor;
