--
-- misfires: what becomes of occurrences that nobody has begun in time.
--
-- Three tasks, due once a minute, with each of the policies.  Occurrences are shown
-- by the time since the first one, which is half a minute after the definition.
--
\set VERBOSITY terse
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';

SELECT lease.create('jobs', ttl => '100 days');
SELECT lease.transaction_time() + interval '30 s' AS first \gset
SELECT lease.create_task(policy, 'jobs', every => '1 min', anchor => :'first', misfire => policy,
	misfire_after => '100 s', misfire_window => '30 min') FROM unnest('{skip,once,all}'::text[]) AS policy;
SELECT epoch FROM lease.acquire('jobs', 'A') \gset

-- shown(TASK) is what is due, in ranges.
CREATE FUNCTION shown(task text, first timestamptz) RETURNS TABLE (task text, n bigint, earliest interval, latest interval)
LANGUAGE sql AS $$ SELECT shown.task, count(*), min(due_at) - first, max(due_at) - first FROM lease.due(shown.task, NULL) WHERE ready $$;
-- done(TASK, OCCURRENCE, EPOCH) begins and finishes one.
CREATE FUNCTION done(task text, due_at timestamptz, epoch bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	b record;
BEGIN
	b := lease.begin_occurrence(task, due_at, epoch);
	IF b.outcome = 'started' THEN
		PERFORM lease.finish_occurrence(task, due_at, b.attempt, epoch);
		RETURN 'done';
	END IF;
	RETURN b.outcome;
END
$$;

-- In time, all alike: the occurrences of the last 100 seconds
SET lease.clock_offset = '95 s';
SELECT s.* FROM unnest('{skip,once,all}'::text[]) AS t CROSS JOIN LATERAL shown(t, :'first') AS s;

-- After an hour without any scheduler: none of the missed ones, one, all in the window;
-- and in each case those that are in time.
SET lease.clock_offset = '60 min';
SELECT s.* FROM unnest('{skip,once,all}'::text[]) AS t CROSS JOIN LATERAL shown(t, :'first') AS s;
SELECT due_at - :'first' AS due_at FROM lease.due('once');
-- Since when nobody does them, also where that is not made up for; and the doctor says so.
SELECT task, late_since - :'first' AS late_since, ready FROM lease.maintenance ORDER BY task;
SELECT severity, object, regexp_replace(meaning, '20[0-9:. +-]*, when', '..., when') AS meaning, remedy
	FROM lease.doctor() WHERE object LIKE 'task%';
-- One task does not hide another.
SELECT task, count(*) FROM lease.due(up_to => 2) GROUP BY task ORDER BY task;

-- begin_occurrence() judges alike.
SELECT t, m, outcome FROM unnest('{skip,once,all}'::text[]) AS t
	CROSS JOIN unnest('{0,28,29,30,57,58,59,60}'::int[]) AS m
	CROSS JOIN LATERAL (SELECT CASE WHEN d.due_at IS NULL THEN 'not due' ELSE 'due' END AS outcome
		FROM (SELECT) AS one LEFT JOIN lease.due(t, NULL) AS d ON d.due_at = timestamptz :'first' + m * interval '1 min') AS x
	ORDER BY t, m;
SELECT t, m, done(t, timestamptz :'first' + m * interval '1 min', :epoch) FROM unnest('{skip,once,all}'::text[]) AS t
	CROSS JOIN unnest('{0,29}'::int[]) AS m ORDER BY t, m;
-- The one is made up for, and no other then.
SELECT done('once', timestamptz :'first' + interval '57 min', :epoch), done('once', timestamptz :'first' + interval '56 min', :epoch);
SELECT due_at - :'first' AS due_at FROM lease.due('once');
-- A later one that was begun: it is not made up for any more.
SET lease.clock_offset = '120 min';
SELECT due_at - :'first' AS due_at FROM lease.due('once');
SELECT done('once', timestamptz :'first' + interval '119 min', :epoch);
SELECT due_at - :'first' AS due_at FROM lease.due('once');

-- Nothing is lost in the dark.
SELECT done('skip', timestamptz :'first' + interval '119 min', :epoch);
SELECT task, first_due - :'first' AS first_due, last_due - :'first' AS last_due, occurrences, misfire, epoch = :epoch AS ours
	FROM lease.misfire ORDER BY task, first_due;
SELECT task, date_trunc('minute', since - :'first') AS since, passed_over FROM lease.task_cursor ORDER BY task;
SELECT task, passed_over FROM lease.maintenance ORDER BY task;

-- One after the other, the earliest first: none of the window is left out.
SELECT s.* FROM shown('all', :'first') AS s;
DO $$
DECLARE
	lease_epoch bigint := (SELECT epoch FROM lease.status WHERE name = 'jobs');
	next timestamptz;
BEGIN
	LOOP
		SELECT due_at INTO next FROM lease.due('all', 1) WHERE ready;
		EXIT WHEN NOT FOUND;
		PERFORM done('all', next, lease_epoch);
	END LOOP;
END
$$;
SELECT count(*) AS done, min(due_at) - :'first' AS earliest, max(due_at) - :'first' AS latest, count(DISTINCT due_at)
	FROM lease.occurrence WHERE task = 'all' AND due_at > timestamptz :'first' + interval '60 min';
SELECT since - :'first' AS since, passed_over FROM lease.task_cursor WHERE task = 'all';

-- Twenty days without a scheduler, which is more than can be looked at at once
SET lease.clock_offset = '20 d';
SELECT s.* FROM unnest('{skip,once,all}'::text[]) AS t CROSS JOIN LATERAL shown(t, :'first') AS s;
SELECT t, done(t, (SELECT max(due_at) FROM lease.due(t, NULL)), :epoch) FROM unnest('{skip,once,all}'::text[]) AS t;
SELECT s.* FROM unnest('{skip,once,all}'::text[]) AS t CROSS JOIN LATERAL shown(t, :'first') AS s;
SELECT task, date_trunc('minute', since - :'first') AS since, passed_over FROM lease.task_cursor ORDER BY task;

-- A clock that is set back brings nothing back.
SET lease.clock_offset = '19 d';
SELECT count(*) FROM lease.due();
SELECT done('skip', timestamptz :'first' + interval '19 days -1 min', :epoch);

-- The doctor says so, and how to go on from the time that it is now.
SELECT task, regexp_replace(meaning, ' 20[0-9:.+ -]*', ' ...: ') AS meaning, remedy
	FROM lease.doctor() AS d JOIN lease.task AS t ON d.object = format('task "%s"', t.name)
		CROSS JOIN LATERAL (SELECT t.name) AS x(task) WHERE name = 'skip';
SELECT lease.alter_task('skip', enabled => false), lease.alter_task('skip', enabled => true);
SELECT count(*) FROM lease.doctor() WHERE object = 'task "skip"';
SET lease.clock_offset = '27361 min';
SELECT due_at - :'first' AS due_at, state FROM lease.due('skip');
-- What was begun before is not begun again.
SET lease.clock_offset = '20 d';
SELECT outcome, attempt FROM lease.begin_occurrence('skip', timestamptz :'first' + interval '20 days -1 min', :epoch);

-- What is pruned stays so, also if the cursor has to go back; and what a change of the
-- schedule leaves undone is on record.
SELECT lease.prune_occurrences(timestamptz :'first' + interval '20 days -1 min');
SELECT task, pruned_to - :'first' AS pruned_to FROM lease.task_cursor ORDER BY task;
SET lease.clock_offset = '1 h';
SELECT lease.alter_task('all', enabled => false), lease.alter_task('all', enabled => true);
SELECT task, since = pruned_to AS at_what_was_pruned FROM lease.task_cursor WHERE task = 'all';
SET lease.clock_offset = '20 d';
SELECT lease.alter_task('all', enabled => false), lease.alter_task('all', enabled => true);
SET lease.clock_offset = '28820 min';
SELECT lease.alter_task('all', every => '2 min');
SELECT first_due - :'first' AS first_due, last_due - :'first' AS last_due, occurrences, misfire, epoch
	FROM lease.misfire WHERE misfire = 'altered';

-- A time zone that an update of its data has taken away: that task is never due, the
-- others are, the doctor says so, and it can be disabled.
SELECT lease.create_task('zone', 'jobs', cron => '* * * * *', time_zone => 'Europe/Berlin');
UPDATE lease.task SET time_zone = 'Gone/Zone' WHERE name = 'zone';
SET lease.clock_offset = '28830 min';
SELECT task, count(*) FROM lease.due() GROUP BY task ORDER BY task;
SELECT task, next_due IS NULL AS never FROM lease.maintenance WHERE task = 'zone';
SELECT severity, object, meaning, remedy FROM lease.doctor() WHERE object = 'task "zone"';
SELECT lease.alter_task('zone', enabled => false);
SELECT lease.alter_task('zone', time_zone => 'Gone/Again');
SELECT lease.alter_task('zone', time_zone => 'localtime');
SELECT lease.drop_task('zone');

-- A failed one of the past is not passed over: it waits, and is tried again.
SET lease.clock_offset = '21 d';
SELECT outcome, attempt FROM lease.begin_occurrence('skip', timestamptz :'first' + interval '21 days -1 min', :epoch);
SELECT standing FROM lease.finish_occurrence('skip', timestamptz :'first' + interval '21 days -1 min', 1, :epoch, 'failed');
SET lease.clock_offset = '30250 min';
SELECT due_at - :'first' AS due_at, state, attempts FROM lease.due('skip');

RESET lease.clock_offset;
SELECT lease.drop_task(name) FROM lease.task;
SELECT lease.prune_occurrences('infinity') > 0 AS pruned;
SELECT count(*) FROM lease.misfire;
DROP FUNCTION shown, done;
SELECT lease.revoke('jobs') IS NOT NULL AS revoked, lease.drop('jobs');
