--
-- task_definitions: defining, changing and dropping tasks and actions.
--
-- Bad schedules are refused when the task is defined; only who administers the lease
-- defines what is done under it; nothing is due that was due before the definition.
--
\set VERBOSITY terse
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';

SELECT lease.create('jobs', ttl => '10 days');

SELECT lease.create_task('nightly', 'jobs', cron => '30 2 * * *', time_zone => 'europe/BERLIN');
SELECT lease.create_task('often', 'jobs', every => '1 day', misfire => 'all', misfire_after => '36 h',
	misfire_window => '7 days', max_attempts => 2, retry_after => '0', enabled => false);
SELECT lease.create_task('anchored', 'jobs', every => '90 min', anchor => '2026-01-01 00:10+00', misfire => 'skip');
SELECT name, lease, cron, time_zone, every, anchor, misfire, misfire_after, misfire_window, max_attempts, retry_after, enabled
	FROM lease.task ORDER BY name;
SELECT count(*) FROM lease.task WHERE defined_at <= now();
SELECT count(*) FROM lease.task_cursor WHERE since <= now() AND passed_over = 0;
SELECT count(*) AS due FROM lease.due();

-- Bad ones
SELECT lease.create_task('nightly', 'jobs', every => '1 h');
SELECT lease.create_task(NULL, 'jobs', every => '1 h');
SELECT lease.create_task('', 'jobs', every => '1 h');
SELECT lease.create_task('white space', 'jobs', every => '1 h');
SELECT lease.create_task('bad', NULL, every => '1 h');
SELECT lease.create_task('bad', 'unknown', every => '1 h');
SELECT lease.create_task('bad', 'no lease', every => '1 h');
SELECT lease.create_task('bad', 'jobs');
SELECT lease.create_task('bad', 'jobs', cron => '* * * * *', every => '1 h');
SELECT lease.create_task('bad', 'jobs', cron => '0 0 31 2 *');
SELECT lease.create_task('bad', 'jobs', cron => '0 0 30 2 *', time_zone => 'Europe/Berlin');
SELECT lease.create_task('bad', 'jobs', cron => '0 25 * * *');
SELECT lease.create_task('bad', 'jobs', cron => 'every day');
SELECT lease.create_task('bad', 'jobs', cron => '');
SELECT lease.create_task('bad', 'jobs', cron => '0 0 * * *', time_zone => 'Mars/Olympus_Mons');
SELECT lease.create_task('bad', 'jobs', cron => '0 0 * * *', time_zone => 'Foo5');
SELECT lease.create_task('bad', 'jobs', cron => '0 0 * * *', time_zone => '');
SELECT lease.create_task('bad', 'jobs', cron => '0 0 * * *', anchor => '2026-01-01');
SELECT lease.create_task('bad', 'jobs', every => '0');
SELECT lease.create_task('bad', 'jobs', every => '-1 h');
SELECT lease.create_task('bad', 'jobs', every => '10 ms');
SELECT lease.create_task('bad', 'jobs', every => '1 mon');
SELECT lease.create_task('bad', 'jobs', every => '1 h', anchor => 'infinity');
SELECT lease.create_task('bad', 'jobs', every => '1 h', time_zone => 'UTC');
SELECT lease.create_task('bad', 'jobs', every => '1 h', misfire => 'sometimes');
SELECT lease.create_task('bad', 'jobs', every => '1 h', misfire => NULL);
SELECT lease.create_task('bad', 'jobs', every => '1 h', misfire_after => '0');
SELECT lease.create_task('bad', 'jobs', every => '1 h', misfire_after => '2 days');
SELECT lease.create_task('bad', 'jobs', every => '1 h', misfire_window => '1 year');
SELECT lease.create_task('bad', 'jobs', every => '1 h', misfire_window => NULL);
SELECT lease.create_task('bad', 'jobs', every => '1 h', retry_after => '-1 s');
SELECT lease.create_task('bad', 'jobs', every => '1 h', max_attempts => 0);
SELECT lease.create_task('bad', 'jobs', every => '1 h', enabled => NULL);
SELECT count(*) FROM lease.task;

-- Changes: NULL leaves a setting as it is; one kind of schedule takes the place of the
-- other.
SELECT lease.alter_task('often', enabled => true, retry_after => '5 s');
SELECT lease.alter_task('anchored', cron => '0 0 L * *');
SELECT lease.alter_task('nightly', every => '2 h');
SELECT name, cron, time_zone, every, anchor, retry_after, enabled FROM lease.task ORDER BY name;
SELECT lease.alter_task('nightly', cron => '0 0 31 4 *');
SELECT lease.alter_task('nightly', time_zone => 'UTC');
SELECT lease.alter_task('nightly', max_attempts => -1);
SELECT lease.alter_task('unknown', enabled => false);
SELECT lease.alter_task(NULL);
SELECT name, cron, every FROM lease.task WHERE name = 'nightly';

-- What was due before there was the schedule, or while the task was disabled, is not.
BEGIN;
SET LOCAL lease.clock_offset = '3 h';
SELECT count(*) > 0 AS due FROM lease.due('nightly');
SELECT lease.alter_task('nightly', misfire => 'all');
SELECT count(*) > 0 AS still_due FROM lease.due('nightly');
SELECT lease.alter_task('nightly', every => '1 h');
SELECT count(*) AS due_by_another_schedule FROM lease.due('nightly');
SET LOCAL lease.clock_offset = '6 h';
SELECT lease.alter_task('nightly', enabled => false);
SELECT count(*) AS while_disabled FROM lease.due('nightly');
SET LOCAL lease.clock_offset = '9 h';
SELECT lease.alter_task('nightly', enabled => true);
SELECT count(*) AS enabled_again FROM lease.due('nightly');
ROLLBACK;

-- Actions
CREATE TABLE plan (t timestamptz);
SELECT lease.create_action('write-plan', 'jobs', 'protected', 'table plan', 'plan');
SELECT lease.protect('plan', 'jobs');
SELECT lease.create_action('write-plan', 'jobs', 'protected', 'table plan', 'plan');
SELECT lease.create_action('write-plan', 'jobs', 'unfenced', 'elsewhere');
SELECT lease.create_action('upload', 'jobs', 'token_checked', 'object store');
SELECT lease.create_action('charge', 'jobs', 'idempotent', 'payments');
SELECT lease.create_action('mail', 'jobs', 'unfenced', 'mail server');
SELECT lease.create_action('bad', 'jobs', 'safe', 'x');
SELECT lease.create_action('bad', 'jobs', NULL, 'x');
SELECT lease.create_action('bad', 'jobs', 'unfenced', NULL);
SELECT lease.create_action('bad', 'jobs', 'unfenced', 'x', 'plan');
SELECT lease.create_action('bad', 'jobs', 'protected', 'x');
SELECT lease.create_action('bad', 'unknown', 'unfenced', 'x');
SELECT lease.create_action('bad bad', 'jobs', 'unfenced', 'x');
SELECT action, class, provider, supported FROM lease.guarantee ORDER BY action;
ALTER TABLE plan DISABLE TRIGGER lease_fence;
SELECT action, supported FROM lease.guarantee WHERE class = 'protected';
SELECT severity, object, meaning FROM lease.doctor() WHERE object LIKE 'action%';
SELECT lease.drop_action('unknown');

-- Who may: whoever administers the lease, and the owner of the extension.
CREATE ROLE planners;
CREATE ROLE planner IN ROLE planners;
CREATE ROLE stranger;
SELECT lease.create('theirs', role => 'planners'), lease.allow('planner'), lease.allow('stranger');
SET ROLE stranger;
SELECT lease.create_task('theirs', 'theirs', every => '1 h');
SELECT lease.create_action('theirs', 'theirs', 'unfenced', 'x');
SELECT lease.drop_task('often');
SELECT lease.write_task(t, 'drop') FROM lease.task t WHERE name = 'often';
SELECT lease.define_task(t, 'drop') FROM lease.task t WHERE name = 'often';
DELETE FROM lease.task;
SET ROLE planner;
SELECT lease.create_task('theirs', 'theirs', every => '1 h');
SELECT lease.alter_task('theirs', enabled => false);
SELECT lease.create_action('theirs', 'theirs', 'unfenced', 'x');
-- A task of another lease cannot be had by a row that names one's own.
DO $$
DECLARE
	task lease.task;
BEGIN
	SELECT t.* INTO task FROM lease.task t WHERE name = 'often';
	task.lease := 'theirs';
	PERFORM lease.define_task(task, 'drop');
END
$$;
SELECT lease.define_task(NULL, 'drop');
SET ROLE stranger;
SELECT lease.alter_task('theirs', enabled => true);
SELECT lease.drop_action('theirs');
RESET ROLE;
SELECT name, enabled FROM lease.task WHERE lease = 'theirs';

-- A lease that is not there any more
SELECT lease.drop('theirs');
SELECT severity, object, meaning, remedy FROM lease.doctor() WHERE object LIKE '%"theirs"';
SET ROLE planner;
SELECT lease.drop_task('theirs');
RESET ROLE;
SELECT lease.alter_task('theirs', enabled => true);
SELECT lease.drop_task('theirs'), lease.drop_action('theirs');
SELECT lease.drop_task('theirs');

SELECT lease.drop_action(name) FROM lease.action;
SELECT lease.drop_task(name) FROM lease.task;
SELECT * FROM lease.task_cursor;
SELECT epoch FROM lease.acquire('jobs', 'A') \gset
BEGIN;
SELECT lease.guard('jobs', :epoch);
DROP TABLE plan;
COMMIT;
SELECT lease.release('jobs', :epoch), lease.drop('jobs');
DROP OWNED BY planner, stranger;
DROP ROLE planner, planners, stranger;
