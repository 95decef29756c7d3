-- What a task does, classified before it does it; and the fence of a provider that
-- lives in a database.
--
-- A fence protects what is in this database.  Whatever else an action changes is up to
-- its provider, which may compare tokens, or know what it has already done, or do
-- neither.  An action says which of these it is; nobody begins one that is unfenced
-- without saying that he knows.

CREATE TABLE lease.action (
	name text COLLATE "C" PRIMARY KEY
		CHECK (name ~ '^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,126}$'),
	lease text COLLATE "C" NOT NULL,
	class text NOT NULL CHECK (class IN ('protected', 'token_checked', 'idempotent', 'unfenced')),
	provider text NOT NULL,
	rel regclass,
	CHECK ((class = 'protected') = (rel IS NOT NULL))
);
COMMENT ON TABLE lease.action IS 'what is done under leases, and who sees to it that it is done under the latest epoch only; written by the functions of the extension only; read lease.guarantee, too';
COMMENT ON COLUMN lease.action.name IS 'name of the action';
COMMENT ON COLUMN lease.action.lease IS 'the lease under which it is done';
COMMENT ON COLUMN lease.action.class IS 'protected: it writes to a fenced table of this database; token_checked: its provider compares epochs and refuses an earlier one; idempotent: its provider knows what it has done by a key; unfenced: neither';
COMMENT ON COLUMN lease.action.provider IS 'what it acts on, for people';
COMMENT ON COLUMN lease.action.rel IS 'the fenced table, of a protected one';

-- A statement of somebody, which is not to be taken back.
CREATE TABLE lease.acknowledgement (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	action text COLLATE "C" NOT NULL,
	lease text COLLATE "C" NOT NULL,
	epoch bigint NOT NULL,
	holder text,
	task text,
	due_at timestamptz,
	reason text NOT NULL CHECK (reason ~ '\S'),
	actor name NOT NULL,
	at timestamptz NOT NULL,
	xid xid8 NOT NULL,
	CHECK ((task IS NULL) = (due_at IS NULL))
);
COMMENT ON TABLE lease.acknowledgement IS 'who has begun an unfenced action and said that he knows; append-only, but for lease.prune_occurrences()';
COMMENT ON SEQUENCE lease.acknowledgement_id_seq IS 'numbers of lease.acknowledgement';
COMMENT ON COLUMN lease.acknowledgement.id IS 'grows; may have gaps';
COMMENT ON COLUMN lease.acknowledgement.action IS 'the action';
COMMENT ON COLUMN lease.acknowledgement.lease IS 'the lease';
COMMENT ON COLUMN lease.acknowledgement.epoch IS 'under which epoch of it';
COMMENT ON COLUMN lease.acknowledgement.holder IS 'to whom that was granted';
COMMENT ON COLUMN lease.acknowledgement.task IS 'for which task; null if none was named';
COMMENT ON COLUMN lease.acknowledgement.due_at IS 'for which occurrence of it';
COMMENT ON COLUMN lease.acknowledgement.reason IS 'what he said';
COMMENT ON COLUMN lease.acknowledgement.actor IS 'the role';
COMMENT ON COLUMN lease.acknowledgement.at IS 'transaction time';
COMMENT ON COLUMN lease.acknowledgement.xid IS 'the transaction';

CREATE FUNCTION lease.remove_acknowledgements(
	before timestamptz)
RETURNS bigint
AS 'MODULE_PATHNAME', 'lease_remove_acknowledgements'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.remove_acknowledgements(timestamptz) IS
'a part of lease.prune_occurrences(), which is the function to use';

CREATE TRIGGER lease_keep_events BEFORE UPDATE OR DELETE ON lease.acknowledgement
	FOR EACH ROW EXECUTE FUNCTION lease.keep_events();
CREATE TRIGGER lease_keep_events_truncate BEFORE TRUNCATE ON lease.acknowledgement
	FOR EACH STATEMENT EXECUTE FUNCTION lease.keep_events();
ALTER TABLE lease.acknowledgement ENABLE ALWAYS TRIGGER lease_keep_events;
ALTER TABLE lease.acknowledgement ENABLE ALWAYS TRIGGER lease_keep_events_truncate;

CREATE TABLE lease.admission (
	resource text COLLATE "C" PRIMARY KEY,
	role regrole NOT NULL,
	epoch bigint NOT NULL CHECK (epoch > 0),
	admitted_at timestamptz NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE lease.admission IS 'the highest epoch under which each resource was used: see lease.admit()';
COMMENT ON COLUMN lease.admission.resource IS 'what the provider calls it';
COMMENT ON COLUMN lease.admission.role IS 'the role that was the first to admit anything to it; only its members may go on';
COMMENT ON COLUMN lease.admission.epoch IS 'the highest epoch that was admitted';
COMMENT ON COLUMN lease.admission.admitted_at IS 'when that was the first time';

SELECT pg_catalog.pg_extension_config_dump('lease.action', '');
SELECT pg_catalog.pg_extension_config_dump('lease.acknowledgement', '');
SELECT pg_catalog.pg_extension_config_dump('lease.acknowledgement_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('lease.admission', '');

--
-- Defining actions
--

CREATE FUNCTION lease.is_fenced(
	rel regclass,
	lease text)
RETURNS boolean
LANGUAGE sql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
	SELECT EXISTS (SELECT FROM lease.fence f
		WHERE f.rel = is_fenced.rel AND (f.lease = is_fenced.lease OR f.lease_column IS NOT NULL)
			AND f.row_trigger IN ('origin', 'always') AND f.truncate_trigger IN ('origin', 'always'));
$$;
COMMENT ON FUNCTION lease.is_fenced(regclass, text) IS
'whether a fence of that lease keeps a table, as the catalog has it';

CREATE FUNCTION lease.write_action(
	action lease.action,
	verb text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	new lease.action := action;
	is_there boolean;
BEGIN
	is_there := EXISTS (SELECT FROM lease.action a WHERE a.name = new.name AND (verb = 'create' OR a.lease = new.lease));
	IF verb = 'create' AND is_there THEN
		RAISE duplicate_object USING MESSAGE = format('action "%s" already exists', new.name);
	ELSIF verb <> 'create' AND NOT is_there THEN
		RAISE undefined_object USING MESSAGE = format('action "%s" does not exist', new.name);
	END IF;
	IF verb = 'drop' THEN
		DELETE FROM lease.action a WHERE a.name = new.name;
		RETURN;
	END IF;

	IF new.name IS NULL OR new.class IS NULL OR new.provider IS NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = 'name, class and provider must not be null';
	END IF;
	PERFORM lease.check_name(new.name, 'an action');
	IF new.provider !~ '\S' THEN
		RAISE invalid_parameter_value USING MESSAGE = 'provider must not be empty';
	END IF;
	IF new.class NOT IN ('protected', 'token_checked', 'idempotent', 'unfenced') THEN
		RAISE invalid_parameter_value USING
			MESSAGE = format('class must be protected, token_checked, idempotent or unfenced, not "%s"', new.class);
	END IF;
	IF (new.class = 'protected') <> (new.rel IS NOT NULL) THEN
		RAISE invalid_parameter_value USING
			MESSAGE = 'a protected action has a table, and no other has';
	END IF;
	IF new.class = 'protected' AND NOT lease.is_fenced(new.rel, new.lease) THEN
		RAISE object_not_in_prerequisite_state USING
			MESSAGE = format('table %s is not fenced by lease "%s"', new.rel, new.lease),
			HINT = format('Fence it first: SELECT lease.protect(%L, %L);', new.rel, new.lease);
	END IF;
	INSERT INTO lease.action SELECT new.* ON CONFLICT DO NOTHING;
	IF NOT FOUND THEN
		RAISE duplicate_object USING MESSAGE = format('action "%s" already exists', new.name);
	END IF;
END;
$$;
COMMENT ON FUNCTION lease.write_action(lease.action, text) IS 'a part of lease.create_action(), which is the function to use';

CREATE FUNCTION lease.define_action(
	action lease.action,
	verb text)
RETURNS void
AS 'MODULE_PATHNAME', 'lease_define_action'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.define_action(lease.action, text) IS 'a part of lease.create_action(), which is the function to use';

CREATE FUNCTION lease.create_action(
	name text,
	lease text,
	class text,
	provider text,
	rel regclass DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	action lease.action;
BEGIN
	action.name := create_action.name;
	action.lease := create_action.lease;
	action.class := create_action.class;
	action.provider := create_action.provider;
	action.rel := create_action.rel;
	PERFORM lease.define_action(action, 'create');
END;
$$;
COMMENT ON FUNCTION lease.create_action(text, text, text, text, regclass) IS
'says of an action that is done under a lease who sees to it that it is done under the latest epoch only: protected, the fence of the table rel, which has to be there; token_checked, its provider, which compares epochs; idempotent, its provider, which does nothing twice that has the same key; unfenced, nobody. provider names what it acts on, for people. Raises 42710 (exists), 55000 (not fenced), LS005 (no such lease), 42501 (whoever calls does not administer the lease), 22023';

CREATE FUNCTION lease.drop_action(
	name text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	action lease.action;
BEGIN
	SELECT a.* INTO action FROM lease.action a WHERE a.name = drop_action.name;
	IF NOT FOUND THEN
		RAISE undefined_object USING
			MESSAGE = format('action "%s" does not exist', drop_action.name);
	END IF;
	PERFORM lease.define_action(action, 'drop');
END;
$$;
COMMENT ON FUNCTION lease.drop_action(text) IS
'drops an action; what was acknowledged stays; raises 42704 (no such action), 42501';

--
-- Beginning actions
--

CREATE FUNCTION lease.record_acknowledgement(
	action text,
	epoch bigint,
	task text,
	due_at timestamptz,
	reason text,
	actor regrole)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	lease_name text;
BEGIN
	SELECT a.lease INTO lease_name FROM lease.action a WHERE a.name = record_acknowledgement.action;
	IF NOT lease.is_guarded(lease_name, record_acknowledgement.epoch) THEN
		RAISE EXCEPTION USING ERRCODE = 'LS004',
			MESSAGE = 'an action is begun under a guard',
			HINT = 'Call lease.begin_action().';
	END IF;
	IF record_acknowledgement.task IS NOT NULL AND NOT EXISTS (SELECT FROM lease.occurrence_attempt x
		WHERE x.task = record_acknowledgement.task AND x.due_at = record_acknowledgement.due_at
			AND x.epoch = record_acknowledgement.epoch AND x.verdict IS NULL)
	THEN
		RAISE object_not_in_prerequisite_state USING
			MESSAGE = 'an action is acknowledged for an occurrence that is begun under the same epoch',
			HINT = 'Call lease.begin_action().';
	END IF;
	INSERT INTO lease.acknowledgement (action, lease, epoch, holder, task, due_at, reason, actor, at, xid)
		VALUES (record_acknowledgement.action, lease_name, record_acknowledgement.epoch,
			(SELECT l.holder FROM lease.lease l WHERE l.name = lease_name AND l.epoch = record_acknowledgement.epoch),
			record_acknowledgement.task, record_acknowledgement.due_at, record_acknowledgement.reason,
			pg_get_userbyid(record_acknowledgement.actor), lease.transaction_time(), pg_current_xact_id());
END;
$$;
COMMENT ON FUNCTION lease.record_acknowledgement(text, bigint, text, timestamptz, text, regrole) IS
'a part of lease.begin_action(), which is the function to use';

CREATE FUNCTION lease.acknowledge(
	action text,
	epoch bigint,
	task text,
	due_at timestamptz,
	reason text)
RETURNS void
AS 'MODULE_PATHNAME', 'lease_acknowledge'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.acknowledge(text, bigint, text, timestamptz, text) IS
'a part of lease.begin_action(), which is the function to use: records what whoever calls says under a guard';

CREATE FUNCTION lease.occurrence_key(
	task text,
	due_at timestamptz)
RETURNS text
LANGUAGE sql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
	SELECT format('%s@%s', task, to_char(due_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
	WHERE task ~ '^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,126}$'
		AND due_at >= '1900-01-01 00:00+00' AND due_at < '10000-01-01 00:00+00';
$$;
COMMENT ON FUNCTION lease.occurrence_key(text, timestamptz) IS
'a text that is the same for every attempt at an occurrence, and for no other: what a provider may know it by; null for what can be none';

CREATE FUNCTION lease.begin_action(
	action text,
	epoch bigint,
	task text DEFAULT NULL,
	due_at timestamptz DEFAULT NULL,
	acknowledge text DEFAULT NULL,
	OUT class text,
	OUT token bigint,
	OUT key text)
RETURNS record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	a lease.action;
BEGIN
	IF begin_action.action IS NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = 'action must not be null';
	END IF;
	SELECT x.* INTO a FROM lease.action x WHERE x.name = begin_action.action;
	IF NOT FOUND THEN
		RAISE undefined_object USING
			MESSAGE = format('action "%s" does not exist', begin_action.action);
	END IF;
	PERFORM lease.guard(a.lease, begin_action.epoch);

	IF (begin_action.task IS NULL) <> (begin_action.due_at IS NULL) THEN
		RAISE invalid_parameter_value USING
			MESSAGE = 'task and due_at belong together';
	END IF;
	IF begin_action.task IS NOT NULL AND NOT EXISTS (SELECT FROM lease.occurrence_attempt x
		WHERE x.task = begin_action.task AND x.due_at = begin_action.due_at
			AND x.epoch = begin_action.epoch AND x.verdict IS NULL)
	THEN
		RAISE object_not_in_prerequisite_state USING
			MESSAGE = format('the occurrence of task "%s" at %s has not been begun under epoch %s, or is finished',
				begin_action.task, begin_action.due_at, begin_action.epoch),
			HINT = 'Call lease.begin_occurrence() first.';
	END IF;
	CASE a.class
	WHEN 'protected' THEN
		IF NOT lease.is_fenced(a.rel, a.lease) THEN
			RAISE object_not_in_prerequisite_state USING
				MESSAGE = format('action "%s" is classified as protected, but table %s is not fenced by lease "%s"',
					a.name, a.rel, a.lease),
				HINT = 'Call lease.doctor(), which says how to mend the fence.';
		END IF;
	WHEN 'idempotent' THEN
		IF begin_action.task IS NULL THEN
			RAISE invalid_parameter_value USING
				MESSAGE = format('action "%s" is idempotent by the key of an occurrence, and none is given', a.name),
				HINT = 'Give task and due_at.';
		END IF;
	WHEN 'unfenced' THEN
		IF coalesce(begin_action.acknowledge, '') !~ '\S' THEN
			RAISE object_not_in_prerequisite_state USING
				MESSAGE = format('action "%s" is unfenced', a.name),
				DETAIL = format('Nothing keeps a paused holder of lease "%s" from reaching "%s" after its successor.',
					a.lease, a.provider),
				HINT = 'If that can be borne, say why in acknowledge, and commit before the action: it is kept in lease.acknowledgement.';
		END IF;
		PERFORM lease.acknowledge(a.name, begin_action.epoch, begin_action.task, begin_action.due_at,
			begin_action.acknowledge);
	ELSE
	END CASE;
	-- What is done elsewhere need not be done in this transaction.
	IF a.class <> 'protected' THEN
		PERFORM lease.is_guarded(a.lease, begin_action.epoch);
	END IF;
	class := a.class;
	token := begin_action.epoch;
	key := CASE WHEN begin_action.task IS NOT NULL THEN lease.occurrence_key(begin_action.task, begin_action.due_at) END;
END;
$$;
COMMENT ON FUNCTION lease.begin_action(text, bigint, text, timestamptz, text) IS
'to be called before an action, perhaps for an occurrence that was begun under this epoch: guards the transaction, and returns the class of the action, the token for a provider that compares epochs, and the key for one that knows what it has done (null without an occurrence). An unfenced action is refused (55000) unless acknowledge says why it may be done all the same, which is kept; a protected one unless its table is fenced. Raises 42704 (no such action), 22023, and what lease.guard() raises';

--
-- A provider in a database
--

CREATE FUNCTION lease.record_admission(
	resource text,
	epoch bigint,
	role regrole)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET lock_timeout = 0
AS $$
DECLARE
	a lease.admission;
BEGIN
	PERFORM lease.bound_waits();
	LOOP
		-- To the end of the transaction nobody admits a later epoch.  Whoever will be
		-- refused waits for nobody, and has nobody wait.
		SELECT x.* INTO a FROM lease.admission x WHERE x.resource = record_admission.resource;
		IF a.resource IS NULL THEN
			INSERT INTO lease.admission VALUES
				(record_admission.resource, record_admission.role, record_admission.epoch, lease.transaction_time())
				ON CONFLICT DO NOTHING;
			IF FOUND THEN
				RETURN;
			END IF;
			CONTINUE;
		END IF;
		IF NOT pg_has_role(record_admission.role, a.role, 'USAGE') THEN
			RAISE insufficient_privilege USING
				MESSAGE = format('permission denied for resource "%s"', a.resource),
				DETAIL = format('It belongs to role %s, which was the first to admit anything to it.', a.role),
				HINT = 'The owner of the extension may call lease.forget_admission().';
		END IF;
		IF a.epoch = record_admission.epoch THEN
			SELECT x.* INTO a FROM lease.admission x WHERE x.resource = record_admission.resource FOR SHARE;
		ELSIF a.epoch < record_admission.epoch THEN
			SELECT x.* INTO a FROM lease.admission x WHERE x.resource = record_admission.resource FOR NO KEY UPDATE;
		END IF;
		CONTINUE WHEN a.resource IS NULL;
		IF a.epoch > record_admission.epoch THEN
			RAISE EXCEPTION USING ERRCODE = 'LS001',
				MESSAGE = format('epoch %s has been superseded at resource "%s"', record_admission.epoch, a.resource),
				DETAIL = format('Epoch %s was admitted at %s.', a.epoch, a.admitted_at),
				HINT = 'Whoever sent this has lost its lease. Do nothing for it.';
		ELSIF a.epoch < record_admission.epoch THEN
			UPDATE lease.admission x SET epoch = record_admission.epoch, admitted_at = lease.transaction_time()
				WHERE x.resource = record_admission.resource;
		END IF;
		RETURN;
	END LOOP;
EXCEPTION WHEN lock_not_available THEN
	RAISE EXCEPTION USING ERRCODE = 'LS006',
		MESSAGE = format('resource "%s" is busy', record_admission.resource),
		DETAIL = 'A transaction that has admitted an earlier epoch to it, or is admitting one, has not ended.',
		HINT = 'Repeat the transaction. Let the provider''s sessions end by idle_in_transaction_session_timeout; pg_blocking_pids() of one that waits tells who is in the way.';
END;
$$;
COMMENT ON FUNCTION lease.record_admission(text, bigint, regrole) IS
'a part of lease.admit(), which is the function to use';

CREATE FUNCTION lease.admit(
	resource text,
	epoch bigint)
RETURNS void
AS 'MODULE_PATHNAME', 'lease_admit'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
CREATE FUNCTION lease.forget_admission(
	resource text)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	DELETE FROM lease.admission a WHERE a.resource = forget_admission.resource;
	RETURN FOUND;
END;
$$;
COMMENT ON FUNCTION lease.forget_admission(text) IS
'for the owner of the extension: forgets what was admitted to a resource, and whose it is, so that any epoch may be the next; false if nothing was; for a resource that is gone, whose role was dropped, or to which an epoch was admitted by mistake';

COMMENT ON FUNCTION lease.admit(text, bigint) IS
'for a provider in a database, that of the lease or another one: admits a token to a resource, for this transaction, or raises LS001 if a later one has been admitted; until the transaction has ended no later one is, and whoever brings one waits for that, at most lease.busy_timeout (LS006). A resource belongs to the role that was the first to admit anything. Raises 22004 (null), 22023 (an epoch below 1), 42501 (of another role), 25006 (standby or read-only transaction)';

CREATE VIEW lease.guarantee AS
	SELECT a.name AS action, a.lease, a.class, a.provider, a.rel,
		CASE WHEN a.class = 'protected' THEN lease.is_fenced(a.rel, a.lease) ELSE a.class <> 'unfenced' END AS supported,
		CASE a.class
			WHEN 'protected' THEN 'no write under a superseded epoch is committed; begun, done and finished in one transaction, an occurrence has one effect'
			WHEN 'token_checked' THEN 'once the provider has seen an epoch, it admits no earlier one, if it compares them as it says'
			WHEN 'idempotent' THEN 'repeated attempts at an occurrence have one effect, for as long as the provider keeps its key'
			ELSE 'nothing' END AS guarantee,
		CASE a.class
			WHEN 'protected' THEN 'anything that the transaction does outside of this database'
			WHEN 'token_checked' THEN 'that a paused holder does not reach the provider before its successor does; that an attempt which is repeated has no second effect'
			WHEN 'idempotent' THEN 'whose attempt has the effect: it may be that of a paused holder'
			ELSE 'that one acts at a time, or that an effect happens once: a paused holder may reach the provider after its successor' END AS not_supported
	FROM lease.action a;
COMMENT ON VIEW lease.guarantee IS 'of each action, what can be relied on, and what cannot';
COMMENT ON COLUMN lease.guarantee.action IS 'the action';
COMMENT ON COLUMN lease.guarantee.lease IS 'the lease under which it is done';
COMMENT ON COLUMN lease.guarantee.class IS 'as it was classified';
COMMENT ON COLUMN lease.guarantee.provider IS 'what it acts on';
COMMENT ON COLUMN lease.guarantee.rel IS 'the fenced table, of a protected one';
COMMENT ON COLUMN lease.guarantee.supported IS 'whether the guarantee holds: of a protected one, whether the fence is there; of the others, what is said of the provider, on trust';
COMMENT ON COLUMN lease.guarantee.guarantee IS 'what is guaranteed, if it is supported';
COMMENT ON COLUMN lease.guarantee.not_supported IS 'what is not, in any case';
