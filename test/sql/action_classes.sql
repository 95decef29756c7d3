--
-- action_classes: what is asked of an action before it is begun, and the fence of a
-- provider in a database.
--
-- Each action says before its side effects who keeps a superseded holder from having any;
-- nobody begins one that is unfenced without saying so for good; and a token that is
-- missing, malformed or superseded begins and admits nothing.  G3, G10.
--
\set VERBOSITY terse
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';

SELECT lease.create('jobs', ttl => '10 days'), lease.create('other', ttl => '10 days');
CREATE TABLE plan (x int);
SELECT lease.protect('plan', 'jobs');
SELECT lease.create_action('write-plan', 'jobs', 'protected', 'table plan', 'plan'),
	lease.create_action('upload', 'jobs', 'token_checked', 'object store'),
	lease.create_action('charge', 'jobs', 'idempotent', 'payments'),
	lease.create_action('mail', 'jobs', 'unfenced', 'mail server');
SELECT epoch AS old FROM lease.acquire('jobs', 'A') \gset
SELECT epoch FROM lease.acquire('jobs', 'A', reclaim => true) \gset
SELECT epoch AS other FROM lease.acquire('other', 'A') \gset

-- A task with one occurrence that is begun, one that is done and one that is neither
SET lease.clock_offset = '-3 h';
SELECT lease.transaction_time() + interval '1 h' AS first \gset
SELECT timestamptz :'first' + interval '1 h' AS second, timestamptz :'first' + interval '2 h' AS third \gset
SELECT lease.create_task('t', 'jobs', every => '1 h', anchor => :'first', misfire => 'all');
RESET lease.clock_offset;
SELECT outcome FROM lease.begin_occurrence('t', :'first', :epoch);
SELECT outcome FROM lease.begin_occurrence('t', :'second', :epoch);
SELECT standing FROM lease.finish_occurrence('t', :'second', 1, :epoch);

--
-- What is begun: the class, the token for a provider that compares, the key for one that
-- remembers, and the guard, which is why a protected write goes through.
--

BEGIN;
SELECT class, token = :epoch AS token, key FROM lease.begin_action('write-plan', :epoch);
SELECT lease.is_guarded('jobs', :epoch);
INSERT INTO plan VALUES (1);
COMMIT;
BEGIN;
SELECT class, token = :epoch AS token, key IS NOT DISTINCT FROM lease.occurrence_key('t', :'first') AS key
	FROM lease.begin_action('write-plan', :epoch, 't', :'first');
SELECT class, token = :epoch AS token, key FROM lease.begin_action('upload', :epoch);
SELECT class, token = :epoch AS token, key IS NOT DISTINCT FROM lease.occurrence_key('t', :'first') AS key
	FROM lease.begin_action('upload', :epoch, 't', :'first');
SELECT class, token = :epoch AS token, key IS NOT DISTINCT FROM lease.occurrence_key('t', :'first') AS key
	FROM lease.begin_action('charge', :epoch, 't', :'first');
SELECT lease.is_guarded('jobs', :epoch), lease.is_guarded('jobs', :old), lease.is_guarded('other', :other);
COMMIT;
-- It is a guard as others are: without it there is no write, and a savepoint takes it back.
INSERT INTO plan VALUES (2);
BEGIN;
SAVEPOINT s;
SELECT class FROM lease.begin_action('write-plan', :epoch);
ROLLBACK TO s;
SELECT lease.is_guarded('jobs', :epoch);
INSERT INTO plan VALUES (2);
ROLLBACK;

-- The key of an occurrence: the same in any time zone, and another for another one
SELECT lease.occurrence_key('t', '2026-03-29 02:30:00.000001+02');
SET timezone = 'Australia/Lord_Howe';
SELECT lease.occurrence_key('t', '2026-03-29 00:30:00.000001+00');
SET timezone = 'UTC';
SELECT lease.occurrence_key('t', '2026-03-29 00:30'), lease.occurrence_key('t/2', '2026-03-29 00:30');

--
-- What is refused
--

-- An epoch that is superseded, of another lease, or none
\set VERBOSITY sqlstate
SELECT lease.begin_action('write-plan', :old);
SELECT lease.begin_action('upload', :old);
SELECT lease.begin_action('charge', :old, 't', :'first');
SELECT lease.begin_action('mail', :old, acknowledge => 'why');
SELECT lease.begin_action('upload', :other);
SELECT lease.begin_action('upload', NULL);
SELECT lease.begin_action('upload', 0);
\set VERBOSITY terse

-- An occurrence that is not begun under this epoch: never, done already, of no task; and
-- half of one
SELECT lease.begin_action('charge', :epoch);
\set VERBOSITY sqlstate
SELECT lease.begin_action('charge', :epoch, 't', :'third');
SELECT lease.begin_action('charge', :epoch, 't', :'second');
SELECT lease.begin_action('charge', :epoch, 'u', :'first');
SELECT lease.begin_action('upload', :epoch, 't', :'third');
SELECT lease.begin_action('mail', :epoch, 't', :'third', 'why');
SELECT lease.begin_action('charge', :epoch, 't');
SELECT lease.begin_action('charge', :epoch, NULL, :'first');
\set VERBOSITY terse

-- A protected one whose fence is disabled, does not fire for everybody, is of another lease,
-- or gone
ALTER TABLE plan DISABLE TRIGGER lease_fence;
SELECT lease.begin_action('write-plan', :epoch);
ALTER TABLE plan ENABLE TRIGGER lease_fence;
ALTER TABLE plan DISABLE TRIGGER lease_fence_truncate;
SELECT lease.begin_action('write-plan', :epoch);
ALTER TABLE plan ENABLE REPLICA TRIGGER lease_fence_truncate;
SELECT lease.begin_action('write-plan', :epoch);
ALTER TABLE plan ENABLE ALWAYS TRIGGER lease_fence_truncate;
SELECT class FROM lease.begin_action('write-plan', :epoch);
BEGIN;
SELECT lease.guard('jobs', :epoch);
SELECT lease.unprotect('plan');
COMMIT;
SELECT lease.begin_action('write-plan', :epoch);
SELECT lease.protect('plan', 'other');
SELECT lease.begin_action('write-plan', :epoch);
SELECT lease.is_fenced('plan', 'jobs'), lease.is_fenced('plan', 'other');
BEGIN;
SELECT lease.guard('other', :other);
SELECT lease.unprotect('plan');
COMMIT;
SELECT lease.protect('plan', 'jobs');
SELECT class FROM lease.begin_action('write-plan', :epoch);

--
-- Unfenced actions
--

SELECT lease.begin_action('mail', :epoch);
SELECT lease.begin_action('mail', :epoch, acknowledge => '');
SELECT lease.begin_action('mail', :epoch, acknowledge => E' \t\n');
SELECT count(*) AS acknowledged FROM lease.acknowledgement;
-- Acknowledged, and then taken back with the transaction
BEGIN;
SELECT class FROM lease.begin_action('mail', :epoch, acknowledge => 'will be rolled back');
SELECT count(*) AS acknowledged FROM lease.acknowledgement;
ROLLBACK;
SELECT count(*) AS acknowledged FROM lease.acknowledgement;
-- Acknowledged for good, once for each time
SELECT class, token = :epoch AS token, key IS NULL AS without_key
	FROM lease.begin_action('mail', :epoch, acknowledge => 'a mail twice can be borne');
SELECT class, key IS NOT DISTINCT FROM lease.occurrence_key('t', :'first') AS key
	FROM lease.begin_action('mail', :epoch, 't', :'first', 'a mail twice can be borne');
SELECT action, lease, epoch = :epoch AS epoch, holder, task, due_at = :'first' AS due_at, reason,
		actor = current_user AS me, at BETWEEN now() - interval '1 h' AND now() AS recently, xid < pg_current_xact_id() AS before
	FROM lease.acknowledgement ORDER BY id;
-- What the others are begun with says nothing, and is not kept.
SELECT class FROM lease.begin_action('upload', :epoch, acknowledge => 'not needed');
SELECT count(*) AS acknowledged FROM lease.acknowledgement;

-- Nobody takes it back, not the owner of the table either.
UPDATE lease.acknowledgement SET reason = 'another';
DELETE FROM lease.acknowledgement;
TRUNCATE lease.acknowledgement;
SET session_replication_role = replica;
DELETE FROM lease.acknowledgement;
RESET session_replication_role;
SELECT (SELECT relowner FROM pg_class WHERE oid = 'lease.acknowledgement'::regclass) = current_user::regrole AS owner;
-- Pruning does not, nor does dropping the action.
SELECT lease.prune_occurrences('-infinity');
SELECT lease.prune('infinity') >= 0 AS pruned;
SELECT count(*) AS acknowledged, count(DISTINCT id) AS numbers FROM lease.acknowledgement;

-- Not past the guard; and whoever says something says it in its own name.
CREATE ROLE regress_acts;
CREATE ROLE regress_waits;
SELECT lease.allow('regress_acts'), lease.allow('regress_waits'), lease.alter('jobs', role => 'regress_acts') \g /dev/null
\set VERBOSITY sqlstate
SET ROLE regress_waits;
SELECT lease.begin_action('mail', :epoch, acknowledge => 'why');
SET ROLE regress_acts;
SELECT lease.acknowledge('mail', :epoch, NULL, NULL, 'why');
SELECT lease.record_acknowledgement('mail', :epoch, NULL, NULL, 'why', 'regress_waits');
BEGIN;
SELECT class FROM lease.begin_action('mail', :epoch, acknowledge => 'mine');
SELECT lease.acknowledge('mail', :epoch, NULL, NULL, 'mine, too');
SAVEPOINT s;
SELECT lease.acknowledge('mail', :epoch, NULL, NULL, E' \t\n');
ROLLBACK TO s;
SELECT lease.acknowledge('mail', :epoch, NULL, NULL, NULL);
ROLLBACK TO s;
SELECT lease.acknowledge('mail', :epoch, 't', NULL, 'half');
ROLLBACK TO s;
SELECT lease.acknowledge('mail', :old, NULL, NULL, 'another epoch');
ROLLBACK TO s;
SELECT lease.acknowledge('none', :epoch, NULL, NULL, 'another action');
ROLLBACK TO s;
SELECT lease.record_acknowledgement('mail', :epoch, NULL, NULL, 'forged', 'regress_waits');
ROLLBACK TO s;
INSERT INTO lease.acknowledgement (action) VALUES ('mail');
ROLLBACK TO s;
COMMIT;
\set VERBOSITY terse
RESET ROLE;
SELECT reason, actor FROM lease.acknowledgement WHERE actor <> current_user ORDER BY id;

-- A new leader: the old one begins nothing any more, and what it began is not the new
-- one's.
SELECT epoch AS new FROM lease.acquire('jobs', 'B', reclaim => true) \gset
SELECT lease.revoke('jobs') IS NOT NULL AS revoked;
SELECT epoch AS new FROM lease.acquire('jobs', 'B') \gset
\set VERBOSITY sqlstate
SELECT lease.begin_action('charge', :epoch, 't', :'first');
SELECT lease.begin_action('charge', :new, 't', :'first');
\set VERBOSITY terse
SELECT outcome, attempt FROM lease.begin_occurrence('t', :'first', :new);
-- The key is that of the attempt before.
SELECT class, token = :new AS token, key IS NOT DISTINCT FROM lease.occurrence_key('t', :'first') AS key
	FROM lease.begin_action('charge', :new, 't', :'first');

--
-- What is guaranteed
--

\x on
SELECT action, class, provider, rel, supported, guarantee, not_supported FROM lease.guarantee ORDER BY action;
\x off
-- Of a protected one only if the fence is there.
BEGIN;
ALTER TABLE plan DISABLE TRIGGER lease_fence_truncate;
SELECT action, supported FROM lease.guarantee ORDER BY action;
ROLLBACK;

--
-- lease.admit()
--

-- The first, the same again, a later one, and never an earlier one
SELECT lease.admit('store', 7);
SELECT lease.admit('store', 7);
SELECT lease.admit('store', 6);
SELECT lease.admit('store', 9);
SELECT lease.admit('store', 8);
SELECT lease.admit('store', 7);
SELECT lease.admit('store', 9);
SELECT lease.admit('elsewhere', 1);
SELECT resource, role = current_user::regrole AS mine, epoch, admitted_at <= now() AS at FROM lease.admission ORDER BY resource;
-- The time is that of the first use of an epoch.
SELECT admitted_at AS at FROM lease.admission WHERE resource = 'store' \gset
SELECT lease.admit('store', 9);
SELECT admitted_at = :'at' AS same FROM lease.admission WHERE resource = 'store';

-- A rollback forgets it.
BEGIN;
SELECT lease.admit('store', 100), lease.admit('third', 1);
SELECT resource, epoch FROM lease.admission ORDER BY resource;
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT lease.admit('store', 100);
ROLLBACK TO s;
SELECT lease.admit('store', 10);
COMMIT;
SELECT resource, epoch FROM lease.admission ORDER BY resource;

-- What is no token, and no resource
\set VERBOSITY sqlstate
SELECT lease.admit('store', NULL);
SELECT lease.admit('store', 0);
SELECT lease.admit('store', -1);
SELECT lease.admit(NULL, 10);
SELECT lease.admit('', 10);
SELECT lease.admit(repeat('x', 256), 10);
SELECT lease.admit(E'store\n', 10);
BEGIN READ ONLY;
SELECT lease.admit('store', 10);
ROLLBACK;

-- Another role, whatever the epoch: the resource is that of its first user and of its
-- members.
CREATE ROLE regress_provider;
CREATE ROLE regress_worker IN ROLE regress_provider;
SELECT lease.allow('regress_provider'), lease.allow('regress_worker') \g /dev/null
SET ROLE regress_waits;
SELECT lease.admit('store', 9);
SELECT lease.admit('store', 10);
SELECT lease.admit('store', 11);
SELECT lease.record_admission('store', 11, 'regress_waits');
SET ROLE regress_provider;
SELECT lease.admit('shared', 5);
SET ROLE regress_worker;
SELECT lease.admit('shared', 6);
SET ROLE regress_waits;
SELECT lease.admit('shared', 7);
SET ROLE regress_provider;
SELECT lease.admit('shared', 5);
SELECT lease.admit('shared', 6);
RESET ROLE;
-- A superuser is a member of all.
SELECT lease.admit('shared', 8);
SELECT resource, role, epoch FROM lease.admission WHERE resource = 'shared';
-- The role of its first user is gone: it is nobody's but a superuser's.
DROP OWNED BY regress_provider;
DROP ROLE regress_provider;
SET ROLE regress_worker;
SELECT lease.admit('shared', 9);
RESET ROLE;
SELECT lease.admit('shared', 9);
\set VERBOSITY terse

DELETE FROM lease.admission;
SELECT lease.drop_action(name) FROM lease.action;
SELECT lease.drop_task('t');
BEGIN;
SELECT lease.guard('jobs', :new);
DROP TABLE plan;
COMMIT;
SELECT lease.drop('jobs', force => true), lease.drop('other', force => true);
-- What was acknowledged is there until it is pruned.
SELECT count(*) > 0 AS acknowledged FROM lease.acknowledgement;
SELECT lease.prune_occurrences('-infinity');
SELECT count(*) > 0 AS acknowledged FROM lease.acknowledgement;
DELETE FROM lease.acknowledgement;
SELECT lease.prune_occurrences('infinity') IS NOT NULL AS pruned;
SELECT count(*) AS acknowledged FROM lease.acknowledgement;
DROP OWNED BY regress_acts, regress_waits, regress_worker;
DROP ROLE regress_acts, regress_waits, regress_worker;
