--
-- attempts: beginning and finishing occurrences, under one epoch after the other.
--
-- One attempt at a time, each settled once; what a superseded epoch has begun is
-- abandoned, and it can neither begin nor finish anything.  G3, G5, G10.
--
-- Occurrences are shown by the time since the first one.
--
\set VERBOSITY terse
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';

SELECT lease.create('jobs', ttl => '10 days');
SELECT lease.transaction_time() + interval '30 s' AS first \gset
SELECT lease.create_task('t', 'jobs', every => '1 h', anchor => :'first', max_attempts => 3, retry_after => '10 min');
SELECT epoch AS a FROM lease.acquire('jobs', 'A') \gset

-- Before its time, and at an instant that is none of its
SELECT outcome, attempt, not_before = :'first' AS at_its_time FROM lease.begin_occurrence('t', :'first', :a);
\set VERBOSITY sqlstate
SELECT * FROM lease.begin_occurrence('t', timestamptz :'first' + interval '1 s', :a);
\set VERBOSITY terse
SELECT * FROM lease.begin_occurrence('t', timestamptz :'first' - interval '10 h', :a);
SELECT * FROM lease.begin_occurrence('t', 'infinity', :a);
SELECT * FROM lease.due('t');

-- At its time, by the database's clock, begin, finish, and both once more.
SET lease.clock_offset = '31 s';
SELECT task, lease, due_at - :'first' AS due_at, state, ready, attempts, epoch, not_before FROM lease.due();
BEGIN;
SELECT * FROM lease.begin_occurrence('t', :'first', :a);
SELECT lease.is_guarded('jobs', :a);
SELECT * FROM lease.begin_occurrence('t', :'first', :a);
SELECT due_at - :'first' AS due_at, state, ready, attempts, epoch = :a AS ours FROM lease.due('t');
SELECT * FROM lease.finish_occurrence('t', :'first', 1, :a, 'done', '{"rows": 7}');
SELECT * FROM lease.finish_occurrence('t', :'first', 1, :a, 'done', '{"rows": 8}');
SELECT * FROM lease.finish_occurrence('t', :'first', 1, :a, 'failed');
COMMIT;
SELECT * FROM lease.begin_occurrence('t', :'first', :a);
SELECT * FROM lease.due('t');
SELECT due_at - :'first' AS due_at, attempts, verdict, result FROM lease.occurrence;

-- An attempt whose transaction is rolled back has not been.
SET lease.clock_offset = '61 min';
SELECT timestamptz :'first' + interval '1 h' AS second \gset
BEGIN;
SELECT * FROM lease.begin_occurrence('t', :'second', :a);
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT * FROM lease.begin_occurrence('t', :'second', :a);
ROLLBACK TO s;
SELECT lease.is_guarded('jobs', :a);
COMMIT;
SELECT due_at - :'first' AS due_at, state, attempts FROM lease.due('t');

-- One that is running for longer than it may be made up for at all: perhaps nobody is at
-- it any more, and the doctor tells how to have it tried again.
BEGIN;
SELECT outcome, attempt FROM lease.begin_occurrence('t', :'second', :a);
SET LOCAL lease.clock_offset = '26 h';
SELECT running, running_since < lease.transaction_time() - interval '24 h' AS long, running_by FROM lease.maintenance;
SELECT severity, object, regexp_replace(meaning, '20[0-9:. +-]*, under', '..., under') AS meaning,
	replace(replace(remedy, :'second', '...'), format('1, %s, ', :a), '1, EPOCH, ') AS remedy
	FROM lease.doctor() WHERE object LIKE 'task%' AND meaning LIKE '%running%';
ROLLBACK;

-- One that fails has to wait, longer and longer.
SELECT outcome, attempt FROM lease.begin_occurrence('t', :'second', :a);
SELECT standing, settled, retry_at - lease.transaction_time() AS retry_after FROM lease.finish_occurrence('t', :'second', 1, :a, 'failed', '"why"');
SELECT standing, settled, retry_at IS NOT NULL AS retried FROM lease.finish_occurrence('t', :'second', 1, :a, 'done');
SELECT outcome, attempt, not_before - lease.transaction_time() > '9 min' AS later FROM lease.begin_occurrence('t', :'second', :a);
SELECT due_at - :'first' AS due_at, state, ready, attempts FROM lease.due('t');
SELECT waiting, last_failure <= lease.transaction_time() AS failed, last_error, last_verdict FROM lease.maintenance;
SELECT severity, object, regexp_replace(meaning, '20[0-9:. +-]*: ', '...: ') AS meaning FROM lease.doctor() WHERE object LIKE 'task%';
SET lease.clock_offset = '72 min';
SELECT due_at - :'first' AS due_at, state, ready, attempts FROM lease.due('t');
SELECT outcome, attempt FROM lease.begin_occurrence('t', :'second', :a);
SELECT standing, settled, retry_at - lease.transaction_time() AS retry_after FROM lease.finish_occurrence('t', :'second', 2, :a, 'failed');
SET lease.clock_offset = '93 min';
SELECT outcome, attempt FROM lease.begin_occurrence('t', :'second', :a);
SELECT * FROM lease.finish_occurrence('t', :'second', 3, :a, 'failed', '"for good"');
SELECT * FROM lease.begin_occurrence('t', :'second', :a);
SELECT attempt, verdict, result FROM lease.occurrence_attempt WHERE due_at = :'second' ORDER BY attempt;
SELECT severity, object, regexp_replace(meaning, '20[0-9:. +-]*, has', '..., has') AS meaning FROM lease.doctor() WHERE object LIKE 'task%';

-- A new leader: what the old one has begun is abandoned, and the old one is refused.
SET lease.clock_offset = '121 min';
SELECT timestamptz :'first' + interval '2 h' AS third \gset
-- (Work that fails, in an attempt that counts all the same: a savepoint after the beginning.)
BEGIN;
SELECT outcome, attempt FROM lease.begin_occurrence('t', :'third', :a);
SAVEPOINT work;
SELECT 1 / 0;
ROLLBACK TO work;
SELECT standing, settled, retry_at IS NOT NULL AS repeated FROM lease.finish_occurrence('t', :'third', 1, :a, 'failed');
ROLLBACK;
SELECT outcome, attempt FROM lease.begin_occurrence('t', :'third', :a);
SELECT due_at - :'first' AS due_at, state, ready, attempts, epoch = :a AS of_a FROM lease.due('t');
SELECT lease.revoke('jobs', 'test') = :a AS revoked;
SELECT due_at - :'first' AS due_at, state, ready FROM lease.due('t');
SELECT epoch AS b FROM lease.acquire('jobs', 'B') \gset
SELECT due_at - :'first' AS due_at, state, ready, attempts, epoch = :a AS of_a FROM lease.due('t');
SELECT * FROM lease.finish_occurrence('t', :'third', 1, :b);
SELECT outcome, attempt FROM lease.begin_occurrence('t', :'third', :b);
\set VERBOSITY sqlstate
SELECT * FROM lease.begin_occurrence('t', :'third', :a);
SELECT * FROM lease.finish_occurrence('t', :'third', 1, :a);
\set VERBOSITY terse
SELECT * FROM lease.finish_occurrence('t', :'third', 2, :b);
SELECT * FROM lease.finish_occurrence('t', :'third', 1, :b);
SELECT attempt, epoch - :a AS later, holder, verdict FROM lease.occurrence_attempt WHERE due_at = :'third' ORDER BY attempt;

-- Attempts that are abandoned count, so that what kills each leader ends.
SET lease.clock_offset = '181 min';
SELECT timestamptz :'first' + interval '3 h' AS fourth \gset
SELECT outcome, attempt FROM lease.begin_occurrence('t', :'fourth', :b);
SELECT epoch AS b FROM lease.acquire('jobs', 'B', reclaim => true) \gset
SELECT outcome, attempt FROM lease.begin_occurrence('t', :'fourth', :b);
SELECT epoch AS b FROM lease.acquire('jobs', 'B', reclaim => true) \gset
SELECT outcome, attempt FROM lease.begin_occurrence('t', :'fourth', :b);
SELECT epoch AS b FROM lease.acquire('jobs', 'B', reclaim => true) \gset
SELECT * FROM lease.begin_occurrence('t', :'fourth', :b);
SELECT attempt, verdict FROM lease.occurrence_attempt WHERE due_at = :'fourth' ORDER BY attempt;

-- So does what is not done within the window; and a task that is disabled begins nothing.
SET lease.clock_offset = '241 min';
SELECT timestamptz :'first' + interval '4 h' AS fifth \gset
SELECT outcome, attempt FROM lease.begin_occurrence('t', :'fifth', :b);
SELECT lease.alter_task('t', enabled => false);
SELECT * FROM lease.begin_occurrence('t', :'fourth', :b);
SELECT * FROM lease.begin_occurrence('t', :'fifth', :b);
SELECT epoch AS b FROM lease.acquire('jobs', 'B', reclaim => true) \gset
SELECT * FROM lease.begin_occurrence('t', :'fifth', :b);
SELECT * FROM lease.begin_occurrence('t', timestamptz :'first' + interval '3000 h', :b);
SELECT * FROM lease.due('t');
SELECT lease.alter_task('t', enabled => true);
SET lease.clock_offset = '29 h';
SELECT * FROM lease.begin_occurrence('t', :'fifth', :b);

-- Tokens that validate nothing, and things that there are not
\set VERBOSITY sqlstate
SELECT lease.begin_occurrence('t', :'fifth', NULL);
SELECT lease.begin_occurrence('t', :'fifth', 0);
SELECT lease.begin_occurrence('t', :'fifth', -1);
SELECT lease.begin_occurrence('t', :'fifth', 9223372036854775807);
SELECT lease.begin_occurrence('t', NULL, :b);
SELECT lease.begin_occurrence(NULL, :'fifth', :b);
SELECT lease.begin_occurrence('unknown', :'fifth', :b);
SELECT lease.finish_occurrence('t', :'fifth', 1, NULL);
SELECT lease.finish_occurrence('t', :'fifth', 1, 0);
SELECT lease.finish_occurrence('t', :'fifth', 99, :b);
SELECT lease.finish_occurrence('t', :'fifth', NULL, :b);
SELECT lease.finish_occurrence('t', now(), 1, :b);
SELECT lease.finish_occurrence('unknown', :'fifth', 1, :b);
SELECT lease.finish_occurrence('t', :'fifth', 1, :b, 'abandoned');
SELECT lease.finish_occurrence('t', :'fifth', 1, :b, NULL);
SELECT lease.due('unknown');
SELECT lease.is_guarded(NULL, :b), lease.is_guarded('jobs', NULL), lease.is_guarded('jobs', :b);
-- Not past the guard
SELECT lease.record_begin('t', :'fifth', :b);
SELECT lease.record_begin('unknown', :'fifth', :b);
SELECT lease.record_finish('t', :'fifth', 1, :b, 'done', NULL);
\set VERBOSITY terse

-- Maintenance at a glance
SELECT task, enabled, schedule, next_due - :'first' AS next_due, ready, running, waiting, last_due - :'first' AS last_due,
	last_verdict, last_done - :'first' AS last_done, passed_over FROM lease.maintenance;

-- What is pruned cannot be begun again.
SELECT lease.prune_occurrences(timestamptz :'first' + interval '90 min');
SELECT lease.begin_occurrence('t', :'first', :b);
SELECT due_at - :'first' AS due_at, verdict FROM lease.occurrence ORDER BY due_at;
SELECT count(*) FROM lease.occurrence_attempt WHERE due_at < :'third';
SELECT lease.prune_occurrences(NULL);

-- An occurrence that is begun.
SELECT timestamptz :'first' + interval '28 h' AS sixth \gset
SELECT outcome, attempt FROM lease.begin_occurrence('t', :'sixth', :b);
\set VERBOSITY sqlstate
-- What finishes it takes no verdict that is none, and no other epoch, under a guard either.
BEGIN;
SELECT lease.guard('jobs', :b);
SAVEPOINT s;
SELECT lease.record_finish('t', :'sixth', 1, :b, 'abandoned', NULL);
ROLLBACK TO s;
SELECT lease.record_finish('t', :'sixth', 1, :b, NULL, NULL);
ROLLBACK TO s;
SELECT lease.record_finish('t', :'sixth', 1, :b + 1, 'done', NULL);
ROLLBACK;
\set VERBOSITY terse

-- A task that is defined again, here under another lease: what the earlier one has left
-- unsettled is not due, and neither leader finishes it any more.
SELECT lease.drop_task('t'), lease.create('others', ttl => '10 days');
SELECT lease.create_task('t', 'others', every => '1 h', anchor => :'first');
SELECT epoch AS c FROM lease.acquire('others', 'C') \gset
SELECT * FROM lease.due('t');
SELECT * FROM lease.begin_occurrence('t', :'sixth', :c);
SELECT * FROM lease.finish_occurrence('t', :'sixth', 1, :b);
\set VERBOSITY sqlstate
SELECT * FROM lease.finish_occurrence('t', :'sixth', 1, :c);
\set VERBOSITY terse
SELECT lease, attempts, o.verdict, a.verdict AS of_attempt FROM lease.occurrence o JOIN lease.occurrence_attempt a USING (task, due_at) WHERE due_at = :'sixth';
SELECT lease.revoke('others') = :c AS revoked, lease.drop('others');

SELECT lease.drop_task('t');
SELECT lease.prune_occurrences('infinity') AS of_dropped_tasks;
SELECT count(*) FROM lease.occurrence_attempt;
RESET lease.clock_offset;
SELECT lease.revoke('jobs') IS NOT NULL AS revoked, lease.drop('jobs');
