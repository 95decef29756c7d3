-- Scheduled maintenance: tasks, their occurrences, and the attempts at each.  See
-- src/schedule.c, and for who may define a task src/definition.c.
--
-- An occurrence is (task, due_at), and due_at follows from the schedule alone.  Leaders
-- come and go; what an occurrence is, whether it is due, and what has become of it is
-- decided here, by the server's clock, under the guard of the present leader.  A
-- transaction that begins an occurrence, writes to protected tables, and finishes it
-- has all of that happen once, or none of it.

--
-- Schedules
--

CREATE FUNCTION lease.transaction_time()
RETURNS timestamptz
AS 'MODULE_PATHNAME', 'lease_transaction_time'
LANGUAGE C STABLE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.transaction_time() IS
'the instant by which occurrences are due: the start of the transaction, now(), moved by lease.clock_offset';

CREATE FUNCTION lease.occurrences(
	cron text DEFAULT NULL,
	time_zone text DEFAULT 'UTC',
	every interval DEFAULT NULL,
	anchor timestamptz DEFAULT NULL,
	after timestamptz DEFAULT NULL,
	until timestamptz DEFAULT NULL,
	up_to integer DEFAULT 10)
RETURNS SETOF timestamptz
AS 'MODULE_PATHNAME', 'lease_occurrences'
LANGUAGE C STABLE PARALLEL UNSAFE ROWS 10;
COMMENT ON FUNCTION lease.occurrences(text, text, interval, timestamptz, timestamptz, timestamptz, integer) IS
'the instants of a schedule, in order, at most up_to (null: no limit, then until must be given), after one (null: the transaction time) and not after another (null: a century later). Either a cron expression in a time zone (five fields: minute, hour, day of the month, month, day of the week; L is the last day of the month, 5L its last Friday), or an interval of at least a second, repeated from an anchor (null: 1970-01-01 UTC). A local time that a change of the clocks leaves out is reckoned as if they had not changed; one that it repeats counts once, but for expressions with a time in every hour. Raises 22023 for anything else, and for dates that there never are';

CREATE FUNCTION lease.latest_occurrence(
	cron text,
	time_zone text,
	every interval,
	anchor timestamptz,
	after timestamptz,
	until timestamptz)
RETURNS timestamptz
AS 'MODULE_PATHNAME', 'lease_latest_occurrence'
LANGUAGE C STABLE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.latest_occurrence(text, text, interval, timestamptz, timestamptz, timestamptz) IS
'a part of lease.due(): the last instant of a schedule after one and not after another; null if there is none';

CREATE FUNCTION lease.count_occurrences(
	cron text,
	time_zone text,
	every interval,
	anchor timestamptz,
	after timestamptz,
	until timestamptz)
RETURNS bigint
AS 'MODULE_PATHNAME', 'lease_count_occurrences'
LANGUAGE C STABLE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.count_occurrences(text, text, interval, timestamptz, timestamptz, timestamptz) IS
'a part of lease.begin_occurrence(): how many instants of a schedule come after one and not after another';

CREATE FUNCTION lease.knows_zone(
	time_zone text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'lease_knows_zone'
LANGUAGE C STABLE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.knows_zone(text) IS
'a part of lease.due(): whether this server has a time zone, which an update of the time zone data may have taken away; true for null';

--
-- Tables
--

CREATE TABLE lease.task (
	name text COLLATE "C" PRIMARY KEY
		CHECK (name ~ '^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,126}$'),
	lease text COLLATE "C" NOT NULL,
	cron text,
	time_zone text,
	every interval,
	anchor timestamptz,
	misfire text NOT NULL CHECK (misfire IN ('skip', 'once', 'all')),
	misfire_after interval NOT NULL,
	misfire_window interval NOT NULL CHECK (misfire_window >= misfire_after),
	max_attempts integer NOT NULL CHECK (max_attempts > 0),
	retry_after interval NOT NULL CHECK (retry_after >= '0'),
	enabled boolean NOT NULL,
	defined_at timestamptz NOT NULL,
	CHECK ((cron IS NULL) <> (every IS NULL)),
	CHECK ((cron IS NULL) = (time_zone IS NULL)),
	CHECK ((every IS NULL) = (anchor IS NULL))
);
COMMENT ON TABLE lease.task IS 'what is to be done, and when; written by the functions of the extension only';
COMMENT ON COLUMN lease.task.name IS 'name of the task';
COMMENT ON COLUMN lease.task.lease IS 'the lease whose holder does it';
COMMENT ON COLUMN lease.task.cron IS 'at which local times; null if it is repeated after an interval';
COMMENT ON COLUMN lease.task.time_zone IS 'in which time zone';
COMMENT ON COLUMN lease.task.every IS 'after which interval it is repeated; null if a cron expression says when';
COMMENT ON COLUMN lease.task.anchor IS 'an instant at which it is due, from which the interval is repeated';
COMMENT ON COLUMN lease.task.misfire IS 'what becomes of occurrences that nobody has begun in time: skip, none is done any more; once, the latest, if none after it was begun; all, each, the earliest first';
COMMENT ON COLUMN lease.task.misfire_after IS 'how long after its time an occurrence is still in time';
COMMENT ON COLUMN lease.task.misfire_window IS 'how long after its time an occurrence is done at all, or tried again';
COMMENT ON COLUMN lease.task.max_attempts IS 'how many attempts there may be at an occurrence, those that were abandoned included';
COMMENT ON COLUMN lease.task.retry_after IS 'after an attempt that failed, how long to wait for the next; twice as long after each further one, up to 64 times';
COMMENT ON COLUMN lease.task.enabled IS 'whether occurrences may be begun; those of the time in which it was disabled are never due';
COMMENT ON COLUMN lease.task.defined_at IS 'since when there is the present schedule, or it has been enabled: what was due before is not due';

-- Apart from the definition, so that a leader in a long transaction is in nobody's way
-- who changes other things than the schedule.
CREATE TABLE lease.task_cursor (
	task text COLLATE "C" PRIMARY KEY,
	since timestamptz NOT NULL,
	passed_over bigint NOT NULL CHECK (passed_over >= 0),
	pruned_to timestamptz
) WITH (fillfactor = 50);
COMMENT ON TABLE lease.task_cursor IS 'how far each task has come; written by the functions of the extension only';
COMMENT ON COLUMN lease.task_cursor.task IS 'the task';
COMMENT ON COLUMN lease.task_cursor.since IS 'up to here each occurrence was begun, passed over, or due before there was the present schedule';
COMMENT ON COLUMN lease.task_cursor.pruned_to IS 'the latest occurrence of which the record has been pruned: it never comes back before that';
COMMENT ON COLUMN lease.task_cursor.passed_over IS 'how many were passed over: see lease.misfire';

CREATE TABLE lease.occurrence (
	task text COLLATE "C" NOT NULL,
	due_at timestamptz NOT NULL,
	lease text COLLATE "C" NOT NULL,
	attempts integer NOT NULL CHECK (attempts >= 0),
	retry_at timestamptz,
	verdict text CHECK (verdict IN ('done', 'failed')),
	settled_at timestamptz,
	result jsonb,
	PRIMARY KEY (task, due_at),
	CHECK ((verdict IS NULL) = (settled_at IS NULL))
) WITH (fillfactor = 70);
CREATE INDEX occurrence_unsettled ON lease.occurrence (task, due_at) WHERE verdict IS NULL;
COMMENT ON TABLE lease.occurrence IS 'occurrences of tasks that were begun; written by the functions of the extension only';
COMMENT ON COLUMN lease.occurrence.task IS 'the task';
COMMENT ON COLUMN lease.occurrence.due_at IS 'the instant at which it was due: with the task, what identifies it';
COMMENT ON COLUMN lease.occurrence.lease IS 'the lease of the task';
COMMENT ON COLUMN lease.occurrence.attempts IS 'how many attempts have been begun; the latest has this number';
COMMENT ON COLUMN lease.occurrence.retry_at IS 'after an attempt that failed, not to be begun again before';
COMMENT ON COLUMN lease.occurrence.verdict IS 'done or failed, and then for ever; null: neither so far';
COMMENT ON COLUMN lease.occurrence.settled_at IS 'when that was decided, by the transaction time';
COMMENT ON COLUMN lease.occurrence.result IS 'what was said with the verdict';

CREATE TABLE lease.occurrence_attempt (
	task text COLLATE "C" NOT NULL,
	due_at timestamptz NOT NULL,
	attempt integer NOT NULL CHECK (attempt > 0),
	epoch bigint NOT NULL CHECK (epoch > 0),
	holder text,
	begun_at timestamptz NOT NULL,
	verdict text CHECK (verdict IN ('done', 'failed', 'abandoned')),
	ended_at timestamptz,
	result jsonb,
	PRIMARY KEY (task, due_at, attempt),
	CHECK ((verdict IS NULL) = (ended_at IS NULL))
) WITH (fillfactor = 70);
COMMENT ON TABLE lease.occurrence_attempt IS 'attempts at occurrences of tasks; written by the functions of the extension only';
COMMENT ON COLUMN lease.occurrence_attempt.task IS 'the task';
COMMENT ON COLUMN lease.occurrence_attempt.due_at IS 'which occurrence of it';
COMMENT ON COLUMN lease.occurrence_attempt.attempt IS 'counts the attempts at the occurrence from 1';
COMMENT ON COLUMN lease.occurrence_attempt.epoch IS 'under which epoch it was begun';
COMMENT ON COLUMN lease.occurrence_attempt.holder IS 'by whom';
COMMENT ON COLUMN lease.occurrence_attempt.begun_at IS 'when, by the transaction time';
COMMENT ON COLUMN lease.occurrence_attempt.verdict IS 'done, failed, or abandoned: the next attempt was begun under a later epoch before it was finished; null: none so far';
COMMENT ON COLUMN lease.occurrence_attempt.ended_at IS 'when that was decided, by the transaction time';
COMMENT ON COLUMN lease.occurrence_attempt.result IS 'what was said with the verdict';

CREATE INDEX occurrence_attempt_failed ON lease.occurrence_attempt (task, ended_at) WHERE verdict = 'failed';

CREATE TABLE lease.misfire (
	task text COLLATE "C" NOT NULL,
	first_due timestamptz NOT NULL,
	last_due timestamptz NOT NULL,
	occurrences bigint NOT NULL CHECK (occurrences > 0),
	misfire text NOT NULL,
	noted_at timestamptz NOT NULL,
	epoch bigint,
	PRIMARY KEY (task, first_due)
);
COMMENT ON TABLE lease.misfire IS 'occurrences of tasks that were passed over: nobody had begun them in time, or had committed that, and the task''s policy was not to make up for them; written by the functions of the extension only';
COMMENT ON COLUMN lease.misfire.task IS 'the task';
COMMENT ON COLUMN lease.misfire.first_due IS 'the first of them';
COMMENT ON COLUMN lease.misfire.last_due IS 'the last of them';
COMMENT ON COLUMN lease.misfire.occurrences IS 'how many; others in between may have been begun';
COMMENT ON COLUMN lease.misfire.misfire IS 'the policy; or altered: they were still to be done when the schedule was changed';
COMMENT ON COLUMN lease.misfire.noted_at IS 'when a later one was begun, and this noted';
COMMENT ON COLUMN lease.misfire.epoch IS 'under which epoch; null if the schedule was changed';

SELECT pg_catalog.pg_extension_config_dump('lease.task', '');
SELECT pg_catalog.pg_extension_config_dump('lease.task_cursor', '');
SELECT pg_catalog.pg_extension_config_dump('lease.occurrence', '');
SELECT pg_catalog.pg_extension_config_dump('lease.occurrence_attempt', '');
SELECT pg_catalog.pg_extension_config_dump('lease.misfire', '');

--
-- Defining tasks
--

CREATE FUNCTION lease.task_interval(
	value interval,
	what text,
	minimum interval)
RETURNS interval
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- Seconds alone, so that no time zone has a say in what a day is.  The infinite
	-- intervals of PostgreSQL 17 have months, too.
	IF value IS NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = format('%s must not be null', what);
	END IF;
	IF extract(year FROM value) <> 0 OR extract(month FROM value) <> 0
		OR value < minimum OR value > interval '36500 days'
	THEN
		RAISE invalid_parameter_value USING
			MESSAGE = format('%s must be between %s and 36500 days, without months or years', what, minimum);
	END IF;
	RETURN make_interval(secs => extract(epoch FROM value)::float8);
END;
$$;
COMMENT ON FUNCTION lease.task_interval(interval, text, interval) IS 'a part of lease.create_task(), which is the function to use';

CREATE FUNCTION lease.check_name(
	value text,
	what text)
RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF value !~ '^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,126}$' THEN
		RAISE invalid_parameter_value USING
			MESSAGE = format('invalid name of %s: "%s"', what, value),
			HINT = 'Names have 1 to 127 of the characters A-Z a-z 0-9 _ . : / -, the first one a letter, a digit or _.';
	END IF;
END;
$$;
COMMENT ON FUNCTION lease.check_name(text, text) IS
'a part of lease.create_task(), lease.create_action() and lease.advance_floor(): raises 22023 for what is no name; null passes';

CREATE FUNCTION lease.write_task(
	task lease.task,
	verb text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	old lease.task;
	new lease.task := task;
	now constant timestamptz := lease.transaction_time();
	zone text;
	same_schedule boolean;
	cursor_at timestamptz;
BEGIN
	SELECT t.* INTO old FROM lease.task t WHERE t.name = new.name FOR UPDATE;
	IF verb NOT IN ('create', 'alter', 'drop') THEN
		RAISE invalid_parameter_value USING MESSAGE = format('a task can be created, altered and dropped, not "%s"', verb);
	ELSIF verb = 'create' AND old.name IS NOT NULL THEN
		RAISE duplicate_object USING MESSAGE = format('task "%s" already exists', new.name);
	ELSIF verb <> 'create' AND (old.name IS NULL OR old.lease <> new.lease) THEN
		RAISE undefined_object USING MESSAGE = format('task "%s" does not exist', new.name);
	END IF;
	IF verb = 'drop' THEN
		DELETE FROM lease.task t WHERE t.name = old.name;
		DELETE FROM lease.task_cursor c WHERE c.task = old.name;
		RETURN;
	ELSIF verb = 'alter' THEN
		-- Null leaves a setting as it is, also one that has been changed since the caller
		-- looked.  One kind of schedule takes the place of the other.
		new.time_zone := coalesce(new.time_zone, CASE WHEN new.every IS NULL THEN old.time_zone END);
		new.anchor := coalesce(new.anchor, CASE WHEN new.cron IS NULL THEN old.anchor END);
		IF new.cron IS NULL AND new.every IS NULL THEN
			new.cron := old.cron;
			new.every := old.every;
		END IF;
		new.misfire := coalesce(new.misfire, old.misfire);
		new.misfire_after := coalesce(new.misfire_after, old.misfire_after);
		new.misfire_window := coalesce(new.misfire_window, old.misfire_window);
		new.max_attempts := coalesce(new.max_attempts, old.max_attempts);
		new.retry_after := coalesce(new.retry_after, old.retry_after);
		new.enabled := coalesce(new.enabled, old.enabled);
	END IF;

	IF new.name IS NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = 'name must not be null';
	END IF;
	PERFORM lease.check_name(new.name, 'a task');
	new.misfire_after := lease.task_interval(new.misfire_after, 'misfire_after', '1 ms');
	new.misfire_window := lease.task_interval(new.misfire_window, 'misfire_window', '1 ms');
	new.retry_after := lease.task_interval(new.retry_after, 'retry_after', '0');
	IF new.misfire_window < new.misfire_after THEN
		RAISE invalid_parameter_value USING
			MESSAGE = format('misfire_window (%s) must not be shorter than misfire_after (%s)',
				new.misfire_window, new.misfire_after),
			HINT = 'An occurrence is in time until misfire_after, and done at all until misfire_window after it was due.';
	END IF;
	IF new.misfire IS NULL OR new.misfire NOT IN ('skip', 'once', 'all') THEN
		RAISE invalid_parameter_value USING
			MESSAGE = format('misfire must be skip, once or all, not %s', coalesce(quote_literal(new.misfire), 'null'));
	END IF;
	IF new.max_attempts IS NULL OR new.max_attempts < 1 THEN
		RAISE invalid_parameter_value USING MESSAGE = 'max_attempts must be at least 1';
	END IF;
	IF new.enabled IS NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = 'enabled must not be null';
	END IF;

	new.time_zone := coalesce(new.time_zone, CASE WHEN new.cron IS NOT NULL THEN 'UTC' END);
	IF new.cron IS NOT NULL THEN
		-- A rule such as "Foo5", which PostgreSQL takes for a zone, is a typing error; and what
		-- "localtime" is depends on the host.  A zone that is gone must not keep the
		-- task from being disabled.
		IF new.time_zone IS DISTINCT FROM old.time_zone THEN
			zone := (SELECT z.name FROM pg_timezone_names z
				WHERE lower(z.name) = lower(new.time_zone)
					AND z.name NOT IN ('localtime', 'posixrules', 'Factory') LIMIT 1);
			IF zone IS NULL THEN
				RAISE invalid_parameter_value USING
					MESSAGE = format('time zone "%s" not recognized', new.time_zone),
					HINT = 'Names are those of the view pg_timezone_names, such as UTC or Europe/Berlin.';
			END IF;
			new.time_zone := zone;
		END IF;
	ELSIF new.time_zone IS NOT NULL THEN
		RAISE invalid_parameter_value USING
			MESSAGE = 'a time zone has no meaning without a cron expression';
	END IF;
	IF new.every IS NOT NULL THEN
		new.anchor := coalesce(new.anchor, 'epoch');
	ELSIF new.anchor IS NOT NULL THEN
		RAISE invalid_parameter_value USING
			MESSAGE = 'an anchor has no meaning without an interval';
	END IF;
	same_schedule := verb = 'alter' AND (new.cron, new.time_zone, new.every, new.anchor)
		IS NOT DISTINCT FROM (old.cron, old.time_zone, old.every, old.anchor);
	IF NOT same_schedule THEN
		PERFORM lease.occurrences(new.cron, new.time_zone, new.every, new.anchor, up_to => 1);
	END IF;
	IF new.every IS NOT NULL THEN
		new.every := lease.task_interval(new.every, 'every', '1 s');
	END IF;

	-- What a new schedule says of the past, or the old one of a time in which the task
	-- was disabled, was never to be done.
	new.defined_at := CASE WHEN same_schedule AND (old.enabled OR NOT new.enabled) THEN old.defined_at ELSE now END;
	IF verb = 'create' THEN
		INSERT INTO lease.task SELECT new.* ON CONFLICT DO NOTHING;
		IF NOT FOUND THEN
			RAISE duplicate_object USING MESSAGE = format('task "%s" already exists', new.name);
		END IF;
		INSERT INTO lease.task_cursor VALUES (new.name, now, 0, NULL);
		-- Nor is anything due that an earlier task of this name has left unsettled, perhaps
		-- one of another lease.
		UPDATE lease.occurrence o SET verdict = 'failed', settled_at = now, retry_at = NULL,
				result = jsonb_build_object('reason', 'its task was dropped')
			WHERE o.task = new.name AND o.verdict IS NULL;
		UPDATE lease.occurrence_attempt a SET verdict = 'abandoned', ended_at = now
			WHERE a.task = new.name AND a.verdict IS NULL;
		RETURN;
	END IF;
	UPDATE lease.task t SET cron = new.cron, time_zone = new.time_zone, every = new.every,
			anchor = new.anchor, misfire = new.misfire, misfire_after = new.misfire_after,
			misfire_window = new.misfire_window, max_attempts = new.max_attempts,
			retry_after = new.retry_after, enabled = new.enabled, defined_at = new.defined_at
		WHERE t.name = new.name;
	-- A cursor that is ahead, because the clock has been set back since, comes back, too;
	-- what was begun is not begun again.
	IF new.defined_at IS DISTINCT FROM old.defined_at THEN
		SELECT c.since INTO cursor_at FROM lease.task_cursor c WHERE c.task = new.name FOR NO KEY UPDATE;
		INSERT INTO lease.misfire
			SELECT new.name, min(d), max(d), count(*), 'altered', now, NULL
			FROM lease.never_begun(old, cursor_at, now, NULL) AS d HAVING count(*) > 0
			ON CONFLICT DO NOTHING;
		UPDATE lease.task_cursor c SET since = greatest(now, c.pruned_to)
			WHERE c.task = new.name;
	END IF;
END;
$$;
COMMENT ON FUNCTION lease.write_task(lease.task, text) IS 'a part of lease.create_task(), which is the function to use';

CREATE FUNCTION lease.define_task(
	task lease.task,
	verb text)
RETURNS void
AS 'MODULE_PATHNAME', 'lease_define_task'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.define_task(lease.task, text) IS 'a part of lease.create_task(), which is the function to use';

CREATE FUNCTION lease.create_task(
	name text,
	lease text,
	cron text DEFAULT NULL,
	time_zone text DEFAULT NULL,
	every interval DEFAULT NULL,
	anchor timestamptz DEFAULT NULL,
	misfire text DEFAULT 'once',
	misfire_after interval DEFAULT '1 min',
	misfire_window interval DEFAULT '1 day',
	max_attempts integer DEFAULT 5,
	retry_after interval DEFAULT '30 s',
	enabled boolean DEFAULT true)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	task lease.task;
BEGIN
	task.name := create_task.name;
	task.lease := create_task.lease;
	task.cron := create_task.cron;
	task.time_zone := create_task.time_zone;
	task.every := create_task.every;
	task.anchor := create_task.anchor;
	task.misfire := create_task.misfire;
	task.misfire_after := create_task.misfire_after;
	task.misfire_window := create_task.misfire_window;
	task.max_attempts := create_task.max_attempts;
	task.retry_after := create_task.retry_after;
	task.enabled := create_task.enabled;
	PERFORM lease.define_task(task, 'create');
END;
$$;
COMMENT ON FUNCTION lease.create_task(text, text, text, text, interval, timestamptz, text, interval, interval, integer, interval, boolean) IS
'defines a task that whoever holds the lease is to do: either at the local times of a cron expression in a time zone (null: UTC), or every interval of at least a second from an anchor (null: 1970-01-01 UTC); see lease.occurrences(). An occurrence is in time until misfire_after; what becomes of those that were not begun by then is what misfire says: skip, none is done any more; once, the latest, if none after it was begun; all, each; none is begun, or tried again, after misfire_window. max_attempts counts those that were abandoned, too; after one that failed the next has to wait for retry_after, doubled with each attempt, up to 64 times. Nothing is due that was due before the definition. Raises 42710 (exists), LS005 (no such lease), 42501 (whoever calls does not administer the lease), 22023 for a schedule that has no occurrences or is none';

CREATE FUNCTION lease.alter_task(
	name text,
	cron text DEFAULT NULL,
	time_zone text DEFAULT NULL,
	every interval DEFAULT NULL,
	anchor timestamptz DEFAULT NULL,
	misfire text DEFAULT NULL,
	misfire_after interval DEFAULT NULL,
	misfire_window interval DEFAULT NULL,
	max_attempts integer DEFAULT NULL,
	retry_after interval DEFAULT NULL,
	enabled boolean DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	task lease.task;
BEGIN
	SELECT t.name, t.lease INTO task.name, task.lease FROM lease.task t WHERE t.name = alter_task.name;
	IF NOT FOUND THEN
		RAISE undefined_object USING
			MESSAGE = format('task "%s" does not exist', alter_task.name);
	END IF;
	task.cron := alter_task.cron;
	task.time_zone := alter_task.time_zone;
	task.every := alter_task.every;
	task.anchor := alter_task.anchor;
	task.misfire := alter_task.misfire;
	task.misfire_after := alter_task.misfire_after;
	task.misfire_window := alter_task.misfire_window;
	task.max_attempts := alter_task.max_attempts;
	task.retry_after := alter_task.retry_after;
	task.enabled := alter_task.enabled;
	PERFORM lease.define_task(task, 'alter');
END;
$$;
COMMENT ON FUNCTION lease.alter_task(text, text, text, interval, timestamptz, text, interval, interval, integer, interval, boolean) IS
'changes a task, null leaving each setting as it is; of another schedule, or of a task that is enabled again, nothing is due that was due before; occurrences that were begun stay; raises 42704 (no such task), and what lease.create_task() raises';

CREATE FUNCTION lease.drop_task(
	name text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	task lease.task;
BEGIN
	SELECT t.* INTO task FROM lease.task t WHERE t.name = drop_task.name;
	IF NOT FOUND THEN
		RAISE undefined_object USING
			MESSAGE = format('task "%s" does not exist', drop_task.name);
	END IF;
	PERFORM lease.define_task(task, 'drop');
END;
$$;
COMMENT ON FUNCTION lease.drop_task(text) IS
'drops a task; what is recorded of its occurrences stays, until lease.prune_occurrences(); raises 42704 (no such task), 42501';

--
-- What is due
--

CREATE FUNCTION lease.is_in_reach(
	task lease.task,
	since timestamptz,
	due_at timestamptz,
	now timestamptz)
RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF due_at <= since OR due_at > now OR due_at <= now - task.misfire_window THEN
		RETURN false;
	ELSIF due_at > now - task.misfire_after OR task.misfire = 'all' THEN
		RETURN true;
	END IF;
	RETURN task.misfire = 'once'
		AND NOT EXISTS (SELECT FROM lease.occurrence o
			WHERE o.task = is_in_reach.task.name AND o.due_at > is_in_reach.due_at AND o.due_at <= now)
		AND NOT EXISTS (SELECT FROM lease.occurrences(task.cron, task.time_zone, task.every,
			task.anchor, is_in_reach.due_at, now - task.misfire_after, 1));
END;
$$;
COMMENT ON FUNCTION lease.is_in_reach(lease.task, timestamptz, timestamptz, timestamptz) IS
'a part of lease.due() and lease.begin_occurrence(): whether an occurrence that was never begun is to be';

-- One after the other, and only as many as are wanted: there may be a month of them.
CREATE FUNCTION lease.never_begun(
	task lease.task,
	since timestamptz,
	now timestamptz,
	up_to integer)
RETURNS SETOF timestamptz
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 10
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	at_once constant integer := 1000;
	after timestamptz := greatest(since, now - task.misfire_window);
	seen integer;
	due_at timestamptz;
	returned integer := 0;
BEGIN
	IF NOT task.enabled OR NOT lease.knows_zone(task.time_zone) THEN
		RETURN;
	ELSIF task.misfire = 'skip' THEN
		after := greatest(after, now - task.misfire_after);
	ELSIF task.misfire = 'once' AND after < now - task.misfire_after THEN
		after := coalesce(lease.latest_occurrence(task.cron, task.time_zone, task.every, task.anchor,
				after, now - task.misfire_after) - interval '1 microsecond',
			now - task.misfire_after);
	END IF;
	LOOP
		seen := 0;
		FOR due_at IN SELECT o FROM lease.occurrences(task.cron, task.time_zone, task.every,
			task.anchor, after, now, at_once) AS o
		LOOP
			seen := seen + 1;
			after := due_at;
			CONTINUE WHEN EXISTS (SELECT FROM lease.occurrence o
					WHERE o.task = never_begun.task.name AND o.due_at = after)
				OR NOT lease.is_in_reach(task, since, due_at, now);
			RETURN NEXT due_at;
			returned := returned + 1;
			IF returned >= up_to THEN
				RETURN;
			END IF;
		END LOOP;
		EXIT WHEN seen < at_once;
	END LOOP;
END;
$$;
COMMENT ON FUNCTION lease.never_begun(lease.task, timestamptz, timestamptz, integer) IS
'a part of lease.due(), which is the function to use';

CREATE FUNCTION lease.due(
	name text DEFAULT NULL,
	up_to integer DEFAULT 100)
RETURNS TABLE (
	task text,
	lease text,
	due_at timestamptz,
	state text,
	ready boolean,
	attempts integer,
	epoch bigint,
	not_before timestamptz)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	now constant timestamptz := lease.transaction_time();
BEGIN
	IF due.name IS NOT NULL AND NOT EXISTS (SELECT FROM lease.task t WHERE t.name = due.name) THEN
		RAISE undefined_object USING MESSAGE = format('task "%s" does not exist', due.name);
	END IF;
	IF due.up_to < 1 THEN
		RAISE invalid_parameter_value USING
			MESSAGE = format('up_to must be at least 1, not %s', due.up_to);
	END IF;
	-- Whether an epoch is held is not to depend on who asks, as lease.holds() does.
	RETURN QUERY
		WITH held AS MATERIALIZED (
			SELECT s.name, s.epoch FROM lease.read_status() AS s WHERE s.state = 'held'
		)
		SELECT t.name::text, t.lease::text, x.due_at, x.state, x.state IN ('due', 'retry', 'abandoned'),
			x.attempts, x.epoch, x.retry_at
		FROM lease.task t
			JOIN lease.task_cursor c ON c.task = t.name
			CROSS JOIN LATERAL (
				SELECT d, 'due', 0, NULL::bigint, NULL::timestamptz
				FROM lease.never_begun(t, c.since, now, due.up_to) AS d
				UNION ALL
				SELECT o.due_at,
					CASE WHEN a.verdict IS NOT NULL AND o.retry_at > now THEN 'waiting'
						WHEN a.verdict IS NOT NULL THEN 'retry'
						WHEN EXISTS (SELECT FROM held h WHERE h.name = t.lease AND h.epoch = a.epoch) THEN 'running'
						ELSE 'abandoned' END,
					o.attempts, a.epoch, o.retry_at
				FROM lease.occurrence o
					LEFT JOIN lease.occurrence_attempt a
						ON a.task = o.task AND a.due_at = o.due_at AND a.attempt = o.attempts
				WHERE o.task = t.name AND o.verdict IS NULL) AS x(due_at, state, attempts, epoch, retry_at)
		WHERE (t.enabled OR x.state = 'running') AND (due.name IS NULL OR t.name = due.name)
		ORDER BY x.due_at, t.name;
END;
$$;
COMMENT ON FUNCTION lease.due(text, integer) IS
'the occurrences of a task (null: of all) that are due at the transaction time and not settled, the earliest first; of each task, those that were begun and at most up_to that never were (null: all). state: due (never begun), retry (an attempt failed, the next may be begun), waiting (it may be from not_before on), running (under an epoch that is held), abandoned (begun under an epoch that is not held any more). ready: whether its next attempt may be begun. attempts: how many were begun. epoch: of the latest. Of a task that is disabled only those are shown that are running. Raises 42704 (no such task), 22023';

--
-- Attempts
--

CREATE FUNCTION lease.is_guarded(
	lease text,
	epoch bigint)
RETURNS boolean
AS 'MODULE_PATHNAME', 'lease_is_guarded'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.is_guarded(text, bigint) IS
'whether this transaction acts under that epoch of the lease: see lease.guard(); that it does then counts as use of the guard, of which there is no warning any more';

-- The setting outlives this function, at whose end only what its own SET clause names is
-- restored, and ends with the caller, whose SET clause has to name lock_timeout.  A zero
-- is not to wait at all; to lock_timeout it would be no limit.
CREATE FUNCTION lease.bound_waits()
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM set_config('lock_timeout', CASE current_setting('lease.busy_timeout')
		WHEN '0' THEN '1ms' ELSE current_setting('lease.busy_timeout') END, true);
END;
$$;
COMMENT ON FUNCTION lease.bound_waits() IS
'a part of lease.begin_occurrence(), lease.finish_occurrence() and lease.admit(): has whatever calls it wait for no lock longer than lease.busy_timeout';

CREATE FUNCTION lease.pass_over(
	task lease.task,
	now timestamptz,
	epoch bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	at_once integer := 10;
	old_since timestamptz;
	cutoff timestamptz;
	last_begun timestamptz;
	new_since timestamptz;
	step record;
	lost bigint := 0;
	first_lost timestamptz;
	last_lost timestamptz;
BEGIN
	-- Somebody else who is at it will do, or whoever comes next.  Nothing depends on it.
	BEGIN
		SELECT c.since INTO new_since FROM lease.task_cursor c
			WHERE c.task = pass_over.task.name FOR NO KEY UPDATE SKIP LOCKED;
	EXCEPTION WHEN serialization_failure THEN
		RETURN;
	END;
	-- Nor if the schedule has been changed meanwhile.
	IF new_since IS NULL OR NOT EXISTS (SELECT FROM lease.task t WHERE t.name = pass_over.task.name
		AND t.defined_at = pass_over.task.defined_at)
	THEN
		RETURN;
	END IF;
	SELECT max(o.due_at) INTO last_begun FROM lease.occurrence o
		WHERE o.task = pass_over.task.name AND o.due_at <= now;

	-- What is out of reach by its age is counted, but not looked at one by one: after a
	-- year without a scheduler there may be millions.
	cutoff := greatest(now - task.misfire_window, CASE task.misfire
		WHEN 'skip' THEN now - task.misfire_after
		WHEN 'once' THEN coalesce(lease.latest_occurrence(task.cron, task.time_zone, task.every, task.anchor,
				new_since, now - task.misfire_after) - interval '1 microsecond',
			now - task.misfire_after) END);
	IF cutoff > new_since THEN
		old_since := new_since;
		new_since := cutoff;
		lost := lease.count_occurrences(task.cron, task.time_zone, task.every, task.anchor, old_since, cutoff)
			- (SELECT count(*) FROM lease.occurrence o
				WHERE o.task = pass_over.task.name AND o.due_at > old_since AND o.due_at <= cutoff);
		IF lost > 0 THEN
			first_lost := (SELECT d FROM lease.occurrences(task.cron, task.time_zone, task.every, task.anchor,
				old_since, cutoff, 1) AS d);
			last_lost := lease.latest_occurrence(task.cron, task.time_zone, task.every, task.anchor, old_since, cutoff);
		END IF;
	END IF;

	LOOP
		WITH candidate AS (
			SELECT d.due_at, lead(d.due_at) OVER (ORDER BY d.due_at) AS next_due,
				-- One look-up for each, whatever the planner believes.
				coalesce((SELECT true FROM lease.occurrence o
					WHERE o.task = pass_over.task.name AND o.due_at = d.due_at), false) AS begun
			FROM lease.occurrences(task.cron, task.time_zone, task.every, task.anchor,
				new_since, now, at_once) AS d(due_at)
		), judged AS (
			SELECT d.due_at, d.begun,
				d.begun OR d.due_at <= now - task.misfire_window
					OR d.due_at <= now - task.misfire_after
						AND CASE task.misfire
							WHEN 'skip' THEN true
							WHEN 'once' THEN d.due_at < last_begun
								OR coalesce(d.next_due <= now - task.misfire_after, false)
							ELSE false END AS passed
			FROM candidate d
		)
		SELECT max(j.due_at) AS last_due, count(*) AS all_of_them,
				count(*) FILTER (WHERE NOT j.begun) AS lost,
				min(j.due_at) FILTER (WHERE NOT j.begun) AS first_lost,
				max(j.due_at) FILTER (WHERE NOT j.begun) AS last_lost,
				(SELECT count(*) FROM judged) AS seen
			INTO step
			FROM judged j
			WHERE j.due_at < coalesce((SELECT min(s.due_at) FROM judged s WHERE NOT s.passed), 'infinity');
		new_since := coalesce(step.last_due, new_since);
		lost := lost + step.lost;
		first_lost := coalesce(first_lost, step.first_lost);
		last_lost := coalesce(step.last_lost, last_lost);
		EXIT WHEN step.all_of_them = 0 OR step.seen < at_once;
		at_once := least(at_once * 10, 10000);
	END LOOP;

	UPDATE lease.task_cursor c SET since = new_since, passed_over = c.passed_over + lost
		WHERE c.task = pass_over.task.name AND c.since < new_since;
	IF lost > 0 THEN
		INSERT INTO lease.misfire VALUES
			(task.name, first_lost, last_lost, lost, task.misfire, now, pass_over.epoch)
			ON CONFLICT DO NOTHING;
	END IF;
END;
$$;
COMMENT ON FUNCTION lease.pass_over(lease.task, timestamptz, bigint) IS
'a part of lease.begin_occurrence(): moves the cursor of a task past what was begun and what will not be any more';

CREATE FUNCTION lease.record_begin(
	task text,
	due_at timestamptz,
	epoch bigint,
	OUT outcome text,
	OUT attempt integer,
	OUT not_before timestamptz,
	OUT result jsonb)
RETURNS record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = 0
AS $$
DECLARE
	now constant timestamptz := lease.transaction_time();
	t lease.task;
	o lease.occurrence;
	a lease.occurrence_attempt;
	cursor_at timestamptz;
BEGIN
	SELECT x.* INTO t FROM lease.task x WHERE x.name = record_begin.task;
	SELECT x.since INTO cursor_at FROM lease.task_cursor x WHERE x.task = record_begin.task;
	IF NOT lease.is_guarded(t.lease, record_begin.epoch) THEN
		RAISE EXCEPTION USING ERRCODE = 'LS004',
			MESSAGE = 'an occurrence is begun under a guard',
			HINT = 'Call lease.begin_occurrence().';
	END IF;

	-- Who is in the way is another session of this holder; or an earlier one that is
	-- not ended, for which nobody has to wait for long.
	PERFORM lease.bound_waits();
	BEGIN
		SELECT x.* INTO o FROM lease.occurrence x
			WHERE x.task = record_begin.task AND x.due_at = record_begin.due_at FOR NO KEY UPDATE;
		IF NOT FOUND THEN
			IF record_begin.due_at NOT BETWEEN '1900-01-02' AND '9999-12-30'
				OR NOT EXISTS (SELECT FROM lease.occurrences(t.cron, t.time_zone, t.every, t.anchor,
				record_begin.due_at - interval '1 microsecond', record_begin.due_at, 1))
			THEN
				RAISE invalid_parameter_value USING
					MESSAGE = format('%s is no occurrence of task "%s"', record_begin.due_at, t.name),
					HINT = 'Take what lease.due() returns, with its microseconds.';
			END IF;
			outcome := CASE
				WHEN NOT t.enabled THEN 'disabled'
				WHEN record_begin.due_at > now THEN 'early'
				WHEN NOT lease.is_in_reach(t, cursor_at, record_begin.due_at, now) THEN 'passed over' END;
			IF outcome IS NOT NULL THEN
				not_before := CASE outcome WHEN 'early' THEN record_begin.due_at END;
				RETURN;
			END IF;
			INSERT INTO lease.occurrence (task, due_at, lease, attempts)
				VALUES (t.name, record_begin.due_at, t.lease, 0) ON CONFLICT DO NOTHING;
			SELECT x.* INTO o FROM lease.occurrence x
				WHERE x.task = record_begin.task AND x.due_at = record_begin.due_at FOR NO KEY UPDATE;
			-- It may have been begun, settled and pruned before we could.
			SELECT x.since INTO cursor_at FROM lease.task_cursor x WHERE x.task = record_begin.task;
			IF o.attempts = 0 AND NOT coalesce(lease.is_in_reach(t, cursor_at, record_begin.due_at, now), false) THEN
				DELETE FROM lease.occurrence x WHERE x.task = o.task AND x.due_at = o.due_at;
				outcome := 'passed over';
				RETURN;
			ELSIF o.task IS NULL THEN
				RAISE lock_not_available;
			END IF;
		END IF;
	EXCEPTION WHEN lock_not_available THEN
		outcome := 'busy';
		RETURN;
	END;

	attempt := nullif(o.attempts, 0);
	IF o.verdict IS NULL AND o.lease <> t.lease THEN
		-- Left behind by an earlier task of this name, under another lease.
		UPDATE lease.occurrence x SET verdict = 'failed', settled_at = now, retry_at = NULL,
				result = jsonb_build_object('reason', 'its task was dropped')
			WHERE x.task = o.task AND x.due_at = o.due_at
			RETURNING x.* INTO o;
	END IF;
	IF o.verdict IS NOT NULL THEN
		outcome := o.verdict;
		result := o.result;
		RETURN;
	END IF;
	SELECT x.* INTO a FROM lease.occurrence_attempt x
		WHERE x.task = o.task AND x.due_at = o.due_at AND x.attempt = o.attempts;
	IF FOUND AND a.verdict IS NULL AND a.epoch = record_begin.epoch THEN
		outcome := 'running';
		RETURN;
	ELSIF NOT t.enabled THEN
		outcome := 'disabled';
		RETURN;
	ELSIF a.verdict IS NOT NULL AND o.retry_at > now THEN
		outcome := 'waiting';
		not_before := o.retry_at;
		RETURN;
	END IF;
	UPDATE lease.occurrence_attempt x SET verdict = 'abandoned', ended_at = now
		WHERE x.task = o.task AND x.due_at = o.due_at AND x.attempt = o.attempts AND x.verdict IS NULL;

	IF o.attempts >= t.max_attempts OR o.due_at <= now - t.misfire_window THEN
		outcome := 'failed';
		result := jsonb_build_object('reason', CASE WHEN o.attempts >= t.max_attempts
			THEN format('%s attempts, of which none was done', o.attempts)
			ELSE format('not done within %s', t.misfire_window) END);
		UPDATE lease.occurrence x SET verdict = 'failed', settled_at = now, retry_at = NULL,
				result = record_begin.result
			WHERE x.task = o.task AND x.due_at = o.due_at;
		RETURN;
	END IF;
	outcome := 'started';
	attempt := o.attempts + 1;
	UPDATE lease.occurrence x SET attempts = record_begin.attempt, retry_at = NULL
		WHERE x.task = o.task AND x.due_at = o.due_at;
	INSERT INTO lease.occurrence_attempt (task, due_at, attempt, epoch, holder, begun_at)
		VALUES (o.task, o.due_at, record_begin.attempt, record_begin.epoch,
			(SELECT l.holder FROM lease.lease l WHERE l.name = t.lease AND l.epoch = record_begin.epoch), now);
	IF attempt = 1 THEN
		PERFORM lease.pass_over(t, now, record_begin.epoch);
	END IF;
END;
$$;
COMMENT ON FUNCTION lease.record_begin(text, timestamptz, bigint) IS
'a part of lease.begin_occurrence(), which is the function to use';

CREATE FUNCTION lease.begin_occurrence(
	task text,
	due_at timestamptz,
	epoch bigint,
	OUT outcome text,
	OUT attempt integer,
	OUT not_before timestamptz,
	OUT result jsonb)
RETURNS record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	lease_name text;
BEGIN
	IF begin_occurrence.task IS NULL OR begin_occurrence.due_at IS NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = 'task and due_at must not be null';
	END IF;
	SELECT t.lease INTO lease_name FROM lease.task t WHERE t.name = begin_occurrence.task;
	IF NOT FOUND THEN
		RAISE undefined_object USING
			MESSAGE = format('task "%s" does not exist', begin_occurrence.task);
	END IF;
	PERFORM lease.guard(lease_name, begin_occurrence.epoch);
	SELECT r.* INTO outcome, attempt, not_before, result
		FROM lease.record_begin(begin_occurrence.task, begin_occurrence.due_at, begin_occurrence.epoch) AS r;
END;
$$;
COMMENT ON FUNCTION lease.begin_occurrence(text, timestamptz, bigint) IS
'begins an attempt at an occurrence, under the epoch of the task''s lease, and guards the transaction. outcome: started (do it; attempt is its number), running (that attempt was begun under this epoch and is not finished), done or failed (settled, with the result), early (not due at the transaction time), waiting (after an attempt that failed; both: not before not_before), passed over (too late, or a later one was begun: see misfire in lease.create_task()), disabled, busy (another session is at it: ask again). An unfinished attempt of an earlier epoch is abandoned, and the next one started. Raises 42704 (no such task), 22023 (no occurrence of it), and what lease.guard() raises';

CREATE FUNCTION lease.record_finish(
	task text,
	due_at timestamptz,
	attempt integer,
	epoch bigint,
	verdict text,
	result jsonb,
	OUT standing text,
	OUT settled boolean,
	OUT retry_at timestamptz)
RETURNS record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = 0
AS $$
DECLARE
	now constant timestamptz := lease.transaction_time();
	t lease.task;
	o lease.occurrence;
	a lease.occurrence_attempt;
BEGIN
	SELECT x.* INTO o FROM lease.occurrence x
		WHERE x.task = record_finish.task AND x.due_at = record_finish.due_at;
	IF NOT lease.is_guarded(o.lease, record_finish.epoch) THEN
		RAISE EXCEPTION USING ERRCODE = 'LS004',
			MESSAGE = 'an occurrence is finished under a guard',
			HINT = 'Call lease.finish_occurrence().';
	END IF;
	PERFORM lease.bound_waits();
	BEGIN
		SELECT x.* INTO o FROM lease.occurrence x
			WHERE x.task = record_finish.task AND x.due_at = record_finish.due_at FOR NO KEY UPDATE;
	EXCEPTION WHEN lock_not_available THEN
		RAISE EXCEPTION USING ERRCODE = 'LS006',
			MESSAGE = format('the occurrence of task "%s" at %s is busy', record_finish.task, record_finish.due_at),
			DETAIL = 'Another transaction has begun or finished an attempt at it and has not ended.',
			HINT = 'Repeat the transaction. pg_blocking_pids() of a session that waits tells who is in the way.';
	END;
	SELECT x.* INTO a FROM lease.occurrence_attempt x
		WHERE x.task = o.task AND x.due_at = o.due_at AND x.attempt = record_finish.attempt;
	IF NOT FOUND THEN
		RAISE undefined_object USING
			MESSAGE = format('there is no attempt %s at the occurrence of task "%s" at %s',
				record_finish.attempt, o.task, o.due_at);
	END IF;
	standing := coalesce(a.verdict, CASE WHEN a.epoch <> record_finish.epoch THEN 'abandoned' END);
	settled := standing IS NULL;
	IF NOT settled THEN
		retry_at := o.retry_at;
		RETURN;
	END IF;

	standing := record_finish.verdict;
	UPDATE lease.occurrence_attempt x SET verdict = standing, ended_at = now, result = record_finish.result
		WHERE x.task = o.task AND x.due_at = o.due_at AND x.attempt = a.attempt;
	SELECT x.* INTO t FROM lease.task x WHERE x.name = o.task;
	IF standing = 'failed' AND o.attempts < t.max_attempts THEN
		retry_at := now + t.retry_after * power(2, least(o.attempts - 1, 6));
		UPDATE lease.occurrence x SET retry_at = record_finish.retry_at
			WHERE x.task = o.task AND x.due_at = o.due_at;
	ELSE
		UPDATE lease.occurrence x SET verdict = standing, settled_at = now, retry_at = NULL,
				result = record_finish.result
			WHERE x.task = o.task AND x.due_at = o.due_at;
	END IF;
END;
$$;
COMMENT ON FUNCTION lease.record_finish(text, timestamptz, integer, bigint, text, jsonb) IS
'a part of lease.finish_occurrence(), which is the function to use';

CREATE FUNCTION lease.finish_occurrence(
	task text,
	due_at timestamptz,
	attempt integer,
	epoch bigint,
	verdict text DEFAULT 'done',
	result jsonb DEFAULT NULL,
	OUT standing text,
	OUT settled boolean,
	OUT retry_at timestamptz)
RETURNS record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	lease_name text;
BEGIN
	IF finish_occurrence.task IS NULL OR finish_occurrence.due_at IS NULL OR finish_occurrence.attempt IS NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = 'task, due_at and attempt must not be null';
	END IF;
	IF finish_occurrence.verdict IS NULL OR finish_occurrence.verdict NOT IN ('done', 'failed') THEN
		RAISE invalid_parameter_value USING
			MESSAGE = format('verdict must be done or failed, not %s',
				coalesce(quote_literal(finish_occurrence.verdict), 'null'));
	END IF;
	SELECT o.lease INTO lease_name FROM lease.occurrence o
		WHERE o.task = finish_occurrence.task AND o.due_at = finish_occurrence.due_at;
	IF NOT FOUND THEN
		RAISE undefined_object USING
			MESSAGE = format('no occurrence of task "%s" at %s has been begun',
				finish_occurrence.task, finish_occurrence.due_at),
			HINT = 'An occurrence is finished under the task and the time under which it was begun. If that transaction was rolled back, so was the attempt: to have it counted as failed, begin it again, or set a savepoint after you have begun it.';
	END IF;
	PERFORM lease.guard(lease_name, finish_occurrence.epoch);
	SELECT r.* INTO standing, settled, retry_at
		FROM lease.record_finish(finish_occurrence.task, finish_occurrence.due_at, finish_occurrence.attempt,
			finish_occurrence.epoch, finish_occurrence.verdict, finish_occurrence.result) AS r;
END;
$$;
COMMENT ON FUNCTION lease.finish_occurrence(text, timestamptz, integer, bigint, text, jsonb) IS
'finishes an attempt that was begun under this epoch, done or failed, with a result for the record, and guards the transaction. standing: the verdict that stands; settled: whether it is this call that has decided it: a repeated call changes nothing, nor does one for an attempt of an earlier epoch, which is abandoned. retry_at: after a failure, when the next attempt may be begun; null: the occurrence is settled. Raises 42704 (no such attempt), 22023, LS006 (another session is at it), and what lease.guard() raises';

CREATE FUNCTION lease.prune_occurrences(
	before timestamptz)
RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	removed bigint;
BEGIN
	IF prune_occurrences.before IS NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = 'before must not be null';
	END IF;
	IF pg_is_in_recovery() THEN
		RAISE read_only_sql_transaction USING
			MESSAGE = 'cannot execute lease.prune_occurrences() during recovery',
			HINT = 'This server is a standby; connect to the primary, for example with target_session_attrs=read-write.';
	END IF;
	-- What is not past the cursor could be begun again.  The latest of each task stay, which
	-- lease.maintenance shows.
	WITH gone AS (
		DELETE FROM lease.occurrence o
			WHERE o.due_at < prune_occurrences.before
				AND CASE WHEN EXISTS (SELECT FROM lease.task t WHERE t.name = o.task)
					THEN o.verdict IS NOT NULL
						AND o.due_at <= (SELECT c.since FROM lease.task_cursor c WHERE c.task = o.task)
						AND o.due_at < (SELECT max(x.due_at) FROM lease.occurrence x
							WHERE x.task = o.task AND x.verdict IS NOT NULL)
						AND o.due_at IS DISTINCT FROM (SELECT max(x.due_at) FROM lease.occurrence x
							WHERE x.task = o.task AND x.verdict = 'done')
					ELSE true END
			RETURNING o.task, o.due_at
	), attempts AS (
		DELETE FROM lease.occurrence_attempt a USING gone g
			WHERE a.task = g.task AND a.due_at = g.due_at
	), latest AS (
		SELECT g.task, max(g.due_at) AS due_at FROM gone g GROUP BY g.task
	), cursors AS (
		UPDATE lease.task_cursor c SET pruned_to = greatest(c.pruned_to, l.due_at)
			FROM latest l WHERE c.task = l.task
	)
	SELECT count(*) INTO removed FROM gone;
	DELETE FROM lease.misfire m WHERE m.last_due < prune_occurrences.before;
	PERFORM lease.remove_acknowledgements(prune_occurrences.before);
	RETURN removed;
END;
$$;
COMMENT ON FUNCTION lease.prune_occurrences(timestamptz) IS
'removes what is recorded of occurrences that were due before, and are settled, with their attempts, of those that were passed over, and of what was acknowledged; but of each task not the latest that is settled nor the latest that was done; of dropped tasks all that was due before; returns how many occurrences; none of them can be begun again';

CREATE VIEW lease.maintenance AS
	SELECT t.name AS task, t.lease, t.enabled,
		CASE WHEN t.cron IS NOT NULL THEN format('%s in %s', t.cron, t.time_zone) ELSE format('every %s', t.every) END AS schedule,
		CASE WHEN t.enabled AND lease.knows_zone(t.time_zone) THEN (SELECT n FROM lease.occurrences(t.cron, t.time_zone,
			t.every, t.anchor, greatest(c.since, lease.transaction_time()), up_to => 1) AS n) END AS next_due,
		CASE WHEN t.enabled AND lease.knows_zone(t.time_zone) THEN (SELECT n FROM lease.occurrences(t.cron, t.time_zone, t.every, t.anchor,
			greatest(c.since, b.last_begun), lease.transaction_time(), 1) AS n) END AS late_since,
		d.ready, d.running, r.begun_at AS running_since, r.holder AS running_by,
		d.waiting, f.ended_at AS last_failure, f.result AS last_error,
		l.due_at AS last_due, l.settled_at AS last_settled, l.verdict AS last_verdict, l.result AS last_result,
		(SELECT max(o.due_at) FROM lease.occurrence o WHERE o.task = t.name AND o.verdict = 'done') AS last_done,
		c.passed_over
	FROM lease.task t
		JOIN lease.task_cursor c ON c.task = t.name
		CROSS JOIN LATERAL (SELECT max(o.due_at) AS last_begun FROM lease.occurrence o WHERE o.task = t.name) AS b
		CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE x.ready) AS ready,
				count(*) FILTER (WHERE x.state = 'running') AS running,
				count(*) FILTER (WHERE x.state = 'waiting') AS waiting,
				min(x.due_at) FILTER (WHERE x.state = 'running') AS first_running
			FROM lease.due(t.name, 100) AS x) AS d
		LEFT JOIN LATERAL (SELECT a.* FROM lease.occurrence_attempt a
			WHERE a.task = t.name AND a.due_at = d.first_running ORDER BY a.attempt DESC LIMIT 1) AS r ON true
		LEFT JOIN LATERAL (SELECT a.* FROM lease.occurrence_attempt a
			WHERE a.task = t.name AND a.verdict = 'failed' ORDER BY a.ended_at DESC LIMIT 1) AS f ON true
		LEFT JOIN LATERAL (SELECT o.* FROM lease.occurrence o
			WHERE o.task = t.name AND o.verdict IS NOT NULL ORDER BY o.due_at DESC LIMIT 1) AS l ON true;
COMMENT ON VIEW lease.maintenance IS 'every task: what is due, what is being done, and what became of the last occurrences; what is done in a transaction shows when that has been committed';
COMMENT ON COLUMN lease.maintenance.task IS 'the task';
COMMENT ON COLUMN lease.maintenance.lease IS 'the lease whose holder does it';
COMMENT ON COLUMN lease.maintenance.enabled IS 'whether occurrences may be begun';
COMMENT ON COLUMN lease.maintenance.schedule IS 'when it is due';
COMMENT ON COLUMN lease.maintenance.next_due IS 'when it will be due next; null if it is disabled';
COMMENT ON COLUMN lease.maintenance.late_since IS 'the first occurrence after the latest that was begun, if it is due: since when nobody does the task, also if what is missed is not made up for';
COMMENT ON COLUMN lease.maintenance.ready IS 'how many occurrences may be begun; of those that never were begun, at most 100 are counted';
COMMENT ON COLUMN lease.maintenance.running IS 'how many were begun under an epoch that is held, and are not finished';
COMMENT ON COLUMN lease.maintenance.running_since IS 'since when the earliest of them is';
COMMENT ON COLUMN lease.maintenance.running_by IS 'whose it is';
COMMENT ON COLUMN lease.maintenance.waiting IS 'how many wait after an attempt that failed';
COMMENT ON COLUMN lease.maintenance.last_failure IS 'when an attempt failed last';
COMMENT ON COLUMN lease.maintenance.last_error IS 'what was said with that';
COMMENT ON COLUMN lease.maintenance.last_due IS 'the latest occurrence that is settled';
COMMENT ON COLUMN lease.maintenance.last_settled IS 'when that was decided';
COMMENT ON COLUMN lease.maintenance.last_verdict IS 'done or failed';
COMMENT ON COLUMN lease.maintenance.last_result IS 'what was said with it';
COMMENT ON COLUMN lease.maintenance.last_done IS 'the latest occurrence that was done';
COMMENT ON COLUMN lease.maintenance.passed_over IS 'how many were passed over, as was noted whenever a later one was begun: see lease.misfire';
