--
-- privileges: who may do what.
--
-- Probes section 5.7 of the contract: PUBLIC may do nothing; lease.allow() gives what a
-- scheduler needs and not what an administrator does; a lease belongs to a role, and only
-- its members act under it; the owner of the extension administers, and is no superuser.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
DROP EXTENSION lease;

-- The owner of the database; somebody who may use nothing; two schedulers, one of whom is
-- a member of the team to which the lease belongs; one who is a member but does not
-- inherit; the team; somebody who watches; and the owner of a table.
CREATE ROLE regress_owner;
CREATE ROLE regress_stranger;
CREATE ROLE regress_allowed;
CREATE ROLE regress_member;
CREATE ROLE regress_noinherit NOINHERIT;
CREATE ROLE regress_team;
CREATE ROLE regress_watcher;
CREATE ROLE regress_table_owner;
GRANT regress_team TO regress_member, regress_noinherit;
GRANT pg_monitor TO regress_watcher;

--
-- The owner of a database installs the extension
--

-- Who cannot create anything in the database cannot.
SET ROLE regress_stranger;
CREATE EXTENSION lease;
RESET ROLE;

ALTER DATABASE :"DBNAME" OWNER TO regress_owner;
SET ROLE regress_owner;
-- The script runs as a superuser.  What the owner has planted for it to find, in a
-- schema that it names (which is refused) or that comes first in its search path, does
-- not become part of anything, also where it matches better.
CREATE SCHEMA regress_planted;
CREATE FUNCTION regress_planted.planted(int2, int4) RETURNS int LANGUAGE plpgsql AS 'BEGIN RAISE ''planted''; END';
CREATE FUNCTION regress_planted.planted(oid, regclass) RETURNS bool LANGUAGE plpgsql AS 'BEGIN RAISE ''planted''; END';
CREATE FUNCTION regress_planted.pg_extension_config_dump(text, text) RETURNS void LANGUAGE plpgsql AS 'BEGIN RAISE ''planted''; END';
CREATE OPERATOR regress_planted.& (LEFTARG = int2, RIGHTARG = int4, FUNCTION = regress_planted.planted);
CREATE OPERATOR regress_planted.<> (LEFTARG = oid, RIGHTARG = regclass, FUNCTION = regress_planted.planted);
CREATE OPERATOR regress_planted.= (LEFTARG = oid, RIGHTARG = regclass, FUNCTION = regress_planted.planted);
CREATE EXTENSION lease SCHEMA regress_planted;
SET search_path = regress_planted;
CREATE EXTENSION lease;
SELECT count(*) FROM lease.fence;
RESET search_path;
SELECT count(*) AS planted FROM pg_depend
	WHERE refobjid IN (SELECT oid FROM pg_proc WHERE pronamespace = 'regress_planted'::regnamespace
			UNION ALL SELECT oid FROM pg_operator WHERE oprnamespace = 'regress_planted'::regnamespace)
		AND classid <> 'pg_operator'::regclass;
RESET ROLE;
SELECT extowner::regrole FROM pg_extension WHERE extname = 'lease';

-- Nothing in it belongs to that role, so that it cannot plant or replace a function that
-- others trust.
SELECT count(*) FROM (SELECT relowner FROM pg_class WHERE relnamespace = 'lease'::regnamespace
		UNION ALL SELECT proowner FROM pg_proc WHERE pronamespace = 'lease'::regnamespace
		UNION ALL SELECT nspowner FROM pg_namespace WHERE nspname = 'lease') AS o(owner)
	WHERE owner <> 10;
SET ROLE regress_owner;
CREATE FUNCTION lease.planted() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE OR REPLACE FUNCTION lease.holds(name text, epoch bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE TABLE lease.planted ();
ALTER FUNCTION lease.fence() OWNER TO regress_owner;
CREATE TRIGGER x BEFORE UPDATE ON lease.lease FOR EACH ROW EXECUTE FUNCTION lease.fence();
RESET ROLE;

-- Everything for administrators is its own, and it may pass it on.
SET ROLE regress_owner;
SELECT lease.create('team', ttl => '1 hour', role => 'regress_team'),
		lease.create('team/free', ttl => '1 hour', role => 'regress_team'),
		lease.create('team/over', ttl => '1 hour', role => 'regress_team') \g /dev/null
SELECT lease.allow('regress_allowed'), lease.allow('regress_member'), lease.allow('regress_noinherit') \g /dev/null
RESET ROLE;

--
-- The matrix
--

-- So that epoch 1 is never that of a grant.
SELECT lease.raise_floor(1000);
SET ROLE regress_member;
SELECT epoch FROM lease.acquire('team', 'a') \gset
SELECT epoch AS over FROM lease.acquire('team/over', 'a') \gset
SELECT lease.release('team/over', :over);
RESET ROLE;

-- A task of the team: an occurrence is begun, another one due.  And an action, with an
-- acknowledgement.
SET lease.clock_offset = '-1 h';
SELECT lease.create_task('team/task', 'team', every => '20 min', anchor => now() - interval '10 min', misfire => 'all'),
	lease.create_action('team/mail', 'team', 'unfenced', 'mail server') \g /dev/null
RESET lease.clock_offset;
CREATE TABLE moment AS SELECT min(due_at) AS begun, max(due_at) AS due FROM lease.due('team/task');
GRANT SELECT ON moment TO PUBLIC;
SET ROLE regress_member;
SELECT outcome FROM moment, lease.begin_occurrence('team/task', begun, :epoch);
SELECT class FROM lease.begin_action('team/mail', :epoch, acknowledge => 'why');
-- A decision, an attempt, which is open, a cursor, and a floor with a pin
SELECT outcome, seq FROM lease.decide('team', :epoch, 'standing', 'yes');
SELECT outcome, attempt FROM lease.open_attempt('team', :epoch, 'standing');
SELECT outcome, seq FROM lease.advance_cursor('team', :epoch, 'standing', NULL, NULL, '1', 'copy');
SELECT outcome, floor_position FROM lease.advance_floor('team', :epoch, 'team/floor', 100);
SELECT outcome FROM lease.pin('team/floor', 150, 'p', '1 hour');
RESET ROLE;

-- Tables that each of the roles owns.
CREATE TABLE own_table (x int);
CREATE TABLE fenced_table (x int);

-- try answers with the SQLSTATE of a command that is executed as a role, or else with its
-- result, and undoes it.
CREATE FUNCTION try(who text, sql text, epoch bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	IF sql ~ 'own_table' THEN
		EXECUTE format('ALTER TABLE own_table OWNER TO %I', who);
	ELSIF sql ~ 'fenced_table' THEN
		EXECUTE format('ALTER TABLE fenced_table OWNER TO %I', who);
		PERFORM lease.protect('fenced_table', 'team', ddl => false);
	END IF;
	PERFORM set_config('role', who, true);
	IF sql LIKE 'SELECT%' THEN
		EXECUTE replace(sql, '$1', epoch::text) INTO result;
	ELSE
		EXECUTE sql;
	END IF;
	RAISE 'undo' USING ERRCODE = 'UNDO0';
EXCEPTION
	WHEN SQLSTATE 'UNDO0' THEN RETURN coalesce(nullif(result, ''), 'ok');
	WHEN OTHERS THEN RETURN sqlstate;
END;
$$;

CREATE TABLE command (n int GENERATED ALWAYS AS IDENTITY, sql text);
INSERT INTO command (sql) VALUES
	-- what schedulers do
	($$SELECT outcome FROM lease.acquire('team/free', 'a')$$),
	($$SELECT outcome FROM lease.acquire('team', 'b')$$),
	($$SELECT outcome FROM lease.acquire_many('{team/free}', 'a')$$),
	($$SELECT outcome FROM lease.renew('team', $1)$$),
	($$SELECT outcome FROM lease.renew_many('{team}', '{$1}')$$),
	($$SELECT lease.release('team', $1)$$),
	($$SELECT released FROM lease.release_many('{team}', '{$1}')$$),
	($$SELECT lease.holds('team', $1)$$),
	($$SELECT lease.remaining('team', $1) > '0'$$),
	($$SELECT lease.guard('team', $1)$$),
	($$SELECT state FROM lease.status WHERE name = 'team'$$),
	($$SELECT state FROM lease.read_status() WHERE name = 'team'$$),
	($$SELECT count(*) FROM lease.fence$$),
	($$SELECT lease.progress('team', $1)$$),
	($$SELECT lease.beat('p')$$),
	($$SELECT lease.retire('none')$$),
	($$SELECT held FROM lease.health WHERE name = 'team'$$),
	($$SELECT count(*) FROM lease.peer$$),
	($$SELECT count(*) FROM lease.orphan$$),
	($$SELECT value FROM lease.metric WHERE metric = 'lease_held' AND labels->>'lease' = 'team'$$),
	($$SELECT outcome FROM moment, lease.begin_occurrence('team/task', due, $1)$$),
	($$SELECT standing FROM moment, lease.finish_occurrence('team/task', begun, 1, $1)$$),
	($$SELECT class FROM lease.begin_action('team/mail', $1, acknowledge => 'why')$$),
	($$SELECT lease.is_guarded('team', $1)$$),
	($$SELECT lease.admit('store', 1)$$),
	($$SELECT lease.occurrence_key('team/task', '2026-01-01')$$),
	($$SELECT count(*) FROM lease.due()$$),
	($$SELECT count(*) FROM lease.occurrences('* * * * *', up_to => 1)$$),
	($$SELECT lease.transaction_time() = now()$$),
	($$SELECT lease.is_fenced('pg_class', 'team')$$),
	($$SELECT ready FROM lease.maintenance$$),
	($$SELECT supported FROM lease.guarantee$$),
	($$SELECT attempts FROM lease.task t JOIN lease.task_cursor c ON c.task = name JOIN lease.occurrence o USING (task)$$),
	($$SELECT count(*) FROM lease.occurrence_attempt$$),
	($$SELECT count(*) FROM lease.misfire$$),
	($$SELECT count(*) FROM lease.action$$),
	($$SELECT count(*) FROM lease.acknowledgement$$),
	($$SELECT outcome FROM lease.decide('team', $1, 'new', 'yes')$$),
	($$SELECT outcome FROM lease.decide('team', $1, 'standing', 'yes')$$),
	($$SELECT verdict FROM lease.decision_of('team', 'standing')$$),
	($$SELECT outcome FROM lease.open_attempt('team', $1, 'new')$$),
	($$SELECT outcome FROM lease.settle_attempt('team', $1, 2, 'aborted')$$),
	($$SELECT lease.declare_destructive('team', $1, 'standing', 'delete')$$),
	($$SELECT lease.is_destructive('team', 'standing', 'delete')$$),
	($$SELECT outcome FROM lease.advance_cursor('team', $1, 'standing', '1', 'copy', '2', 'copy')$$),
	($$SELECT outcome FROM lease.take_over_cursor('team', $1, 'standing', '1', 'copy')$$),
	($$SELECT outcome FROM lease.advance_floor('team', $1, 'team/floor', 200)$$),
	($$SELECT outcome FROM lease.pin('team/floor', 150, 'q')$$),
	($$SELECT outcome FROM lease.pin('team/floor', 160, 'p')$$),
	($$SELECT outcome FROM lease.renew_pin('team/floor', 'p')$$),
	($$SELECT lease.unpin('team/floor', 'p')$$),
	($$SELECT lease.pin_renew_interval('4 s') = '1 s'$$),
	($$SELECT removed FROM lease.compact('team', $1, before => 1000)$$),
	($$SELECT verdict FROM lease.decision WHERE lease = 'team'$$),
	($$SELECT status FROM lease.attempt WHERE lease = 'team'$$),
	($$SELECT position FROM lease.cursor WHERE lease = 'team'$$),
	($$SELECT position FROM lease.floor WHERE floor = 'team/floor'$$),
	($$SELECT position FROM lease.pin_held WHERE floor = 'team/floor'$$),
	($$SELECT count(*) FROM lease.boundary$$),
	($$SELECT count(*) FROM lease.outcome WHERE lease = 'team'$$),
	($$SELECT count(*) FROM lease.record WHERE lease = 'team'$$),
	($$SELECT last_seq FROM lease.record_chain WHERE lease = 'team'$$),
	-- the same for what is not held, or does not exist
	($$SELECT outcome FROM lease.renew('team', 1)$$),
	($$SELECT lease.guard('team', 1)$$),
	($$SELECT lease.release('team', 1)$$),
	($$SELECT lease.release('none', 1)$$),
	($$SELECT outcome FROM moment, lease.begin_occurrence('team/task', due, 1)$$),
	($$SELECT lease.begin_occurrence('none', '2026-01-01', 1)$$),
	($$SELECT class FROM lease.begin_action('team/mail', 1, acknowledge => 'why')$$),
	($$SELECT lease.admit('store', 0)$$),
	($$SELECT lease.decide('team', 1, 'new', 'yes')$$),
	($$SELECT lease.open_attempt('team', 1, 'new')$$),
	($$SELECT lease.settle_attempt('team', 1, 2, 'aborted')$$),
	($$SELECT lease.declare_destructive('team', 1, 'standing', 'delete')$$),
	($$SELECT lease.advance_cursor('team', 1, 'standing', '1', 'copy', '2', 'copy')$$),
	($$SELECT lease.take_over_cursor('team', 1, 'standing', '1', 'copy')$$),
	($$SELECT lease.advance_floor('team', 1, 'team/floor', 200)$$),
	($$SELECT lease.compact('team', 1, before => 1000)$$),
	($$SELECT lease.pin('none', 1, 'p')$$),
	($$SELECT lease.acquire('none', 'a')$$),
	-- what administrators do
	($$SELECT lease.create('new')$$),
	($$SELECT lease.create('new', role => 'regress_team')$$),
	($$SELECT lease.alter('team', ttl => '1 min')$$),
	($$SELECT lease.alter('team', role => 'regress_watcher')$$),
	($$SELECT lease.drop('team', force => true)$$),
	($$SELECT lease.drop('team/free')$$),
	($$SELECT lease.revoke('team') > 0$$),
	($$SELECT lease.revoke('team/over') IS NULL$$),
	($$SELECT lease.raise_floor(1) > 0$$),
	($$SELECT lease.allow('regress_stranger')$$),
	($$SELECT lease.disallow('regress_stranger')$$),
	($$SELECT lease.create_task('new', 'team', every => '1 h')$$),
	($$SELECT lease.alter_task('team/task', enabled => false)$$),
	($$SELECT lease.drop_task('team/task')$$),
	($$SELECT lease.create_action('new', 'team', 'unfenced', 'mail server')$$),
	($$SELECT lease.drop_action('team/mail')$$),
	($$SELECT lease.prune_occurrences('-infinity')$$),
	($$SELECT verified FROM lease.verify_authority('team')$$),
	($$SELECT bool_and(digest = lease.record_digest(r)) FROM lease.record r WHERE lease = 'team'$$),
	-- what owners of tables do
	($$SELECT lease.protect('own_table', 'team', ddl => false)$$),
	($$SELECT lease.unprotect('fenced_table')$$),
	-- what nobody should have to do
	($$SELECT lease.refuses('team')$$),
	($$SELECT count(*) > 0 FROM lease.lease$$),
	($$INSERT INTO lease.lease SELECT * FROM lease.lease WHERE false$$),
	($$UPDATE lease.lease SET grace = 0$$),
	($$DELETE FROM lease.lease$$),
	($$TRUNCATE lease.lease$$),
	($$SELECT count(*) FROM lease.report$$),
	($$INSERT INTO lease.report SELECT * FROM lease.report WHERE false$$),
	($$DELETE FROM lease.heartbeat$$),
	($$SELECT lease.record_begin('team/task', due, $1) FROM moment$$),
	($$SELECT lease.record_finish('team/task', begun, 1, $1, 'done', NULL) FROM moment$$),
	($$SELECT lease.acknowledge('team/mail', $1, NULL, NULL, 'why')$$),
	($$SELECT lease.record_acknowledgement('team/mail', $1, NULL, NULL, 'why', 'regress_owner')$$),
	($$SELECT lease.record_admission('store', 1, 'regress_owner')$$),
	($$SELECT lease.define_task(t, 'drop') FROM lease.task t$$),
	($$SELECT lease.write_task(t, 'drop') FROM lease.task t$$),
	($$SELECT lease.define_action(a, 'drop') FROM lease.action a$$),
	($$SELECT lease.write_action(a, 'drop') FROM lease.action a$$),
	($$SELECT lease.pass_over(t, now(), $1) FROM lease.task t$$),
	($$SELECT lease.record_decision('team', $1, 'new', 'yes', NULL, NULL, NULL, NULL)$$),
	($$SELECT lease.record_opening('team', $1, 'new', NULL)$$),
	($$SELECT lease.record_settlement('team', $1, 2, 'aborted', NULL, NULL)$$),
	($$SELECT lease.record_declaration('team', $1, 'standing', 'delete')$$),
	($$SELECT lease.record_cursor('team', $1, 'standing', '1', 'copy', '2', 'copy', false, NULL)$$),
	($$SELECT lease.record_floor('team', $1, 'team/floor', 200)$$),
	($$SELECT lease.record_compaction('team', $1, 1000, NULL)$$),
	($$SELECT lease.lock_chain('team', $1)$$),
	($$SELECT lease.lock_records('team')$$),
	($$SELECT lease.lock_floor('team/floor', 'p')$$),
	($$SELECT lease.append_record(r, c) FROM lease.record r JOIN lease.record_chain c ON c.lease = r.lease WHERE r.lease = 'team' AND r.seq = 1$$),
	($$SELECT lease.put_pin('team/floor', 150, 'p', 1000000, 'regress_owner')$$),
	($$SELECT lease.refresh_pin('team/floor', 'p', 1000000, 'regress_owner')$$),
	($$SELECT lease.remove_pin('team/floor', 'p', 'regress_owner')$$),
	($$SELECT ((lease.hold_floor('team/floor', 200)).pin).position$$),
	($$SELECT (lease.lowest_pin('team/floor', 200)).position$$),
	($$SELECT lease.remove_records('team', 1000)$$),
	($$SELECT lease.delete_records('team', 1000)$$),
	($$SELECT count(*) FROM lease.admission$$),
	($$SELECT count(*) FROM lease.floor_pin$$),
	($$INSERT INTO lease.task SELECT * FROM lease.task WHERE false$$),
	($$UPDATE lease.task SET enabled = true$$),
	($$UPDATE lease.task_cursor SET passed_over = 0$$),
	($$UPDATE lease.occurrence SET verdict = NULL, settled_at = NULL$$),
	($$DELETE FROM lease.occurrence_attempt$$),
	($$DELETE FROM lease.acknowledgement$$),
	($$TRUNCATE lease.acknowledgement$$),
	($$DELETE FROM lease.admission$$),
	($$INSERT INTO lease.record SELECT * FROM lease.record WHERE false$$),
	($$UPDATE lease.record SET verdict = 'no'$$),
	($$DELETE FROM lease.record$$),
	($$TRUNCATE lease.record$$),
	($$UPDATE lease.record_chain SET boundary = NULL$$),
	($$DELETE FROM lease.record_chain$$),
	($$UPDATE lease.floor SET position = 1$$),
	($$DELETE FROM lease.floor$$),
	($$UPDATE lease.floor_pin SET position = 1$$),
	($$DELETE FROM lease.floor_pin$$),
	($$SELECT name FROM lease.lease WHERE name = 'team' FOR UPDATE$$),
	($$LOCK TABLE lease.lease IN ACCESS SHARE MODE$$),
	($$LOCK TABLE lease.lease IN SHARE MODE$$),
	($$SELECT last_value > 0 FROM lease.epoch$$),
	($$SELECT nextval('lease.epoch') > 0$$),
	($$SELECT setval('lease.epoch', 1, false)$$),
	($$ALTER TABLE lease.lease DISABLE TRIGGER ALL$$),
	($$ALTER SEQUENCE lease.epoch RESTART$$),
	($$DROP EXTENSION lease CASCADE$$),
	($$SET lease.clock_offset = 1000$$),
	($$SET lease.busy_timeout = 1000$$);

-- 42501 is "permission denied"; of a lease: not its member, of a function: not allowed.
SELECT replace(sql, '$1', 'epoch') AS command,
		try('regress_stranger', sql, :epoch) AS stranger,
		try('regress_watcher', sql, :epoch) AS watcher,
		try('regress_allowed', sql, :epoch) AS allowed,
		try('regress_noinherit', sql, :epoch) AS noinherit,
		try('regress_member', sql, :epoch) AS member,
		try('regress_owner', sql, :epoch) AS owner,
		try(current_user, sql, :epoch) AS superuser
	FROM command ORDER BY n;

-- The parts of the functions of records and pins that take what they are told for granted:
-- nobody may call them, also where they would come no further.  (Unlike the last one.)
SELECT proname, who FROM pg_proc, unnest('{regress_stranger,regress_watcher,regress_allowed,regress_member,regress_owner}'::text[]) AS r(who)
	WHERE pronamespace = 'lease'::regnamespace AND has_function_privilege(who, pg_proc.oid, 'EXECUTE')
		AND proname IN ('lock_chain', 'append_record', 'put_pin', 'refresh_pin', 'remove_pin', 'hold_floor', 'lowest_pin', 'remove_records', 'delete_records', 'renew_pin')
	ORDER BY proname, who;

-- Setval is not undone by a rollback, but what it did does not matter: an epoch that is
-- not above the one in the row is never issued.
SELECT lease.revoke('team') = :epoch AS revoked;
SET ROLE regress_member;
SELECT outcome, epoch > :epoch AS greater, epoch FROM lease.acquire('team', 'a') \gset
\echo :outcome :greater

-- Who does not inherit from the team has to act as the team.
SET ROLE regress_noinherit;
SELECT lease.holds('team', :epoch);
RESET ROLE;

-- To make a lease by acquiring it takes the right to create one.
SET ROLE regress_member;
SET lease.auto_create = on;
SELECT lease.acquire('typing/error', 'a');
SELECT lease.acquire_many('{team/free,typing/error}', 'a');
SET ROLE regress_owner;
SELECT outcome FROM lease.acquire('auto', 'a');
SELECT name, role FROM lease.status WHERE name = 'auto';
SELECT lease.drop('auto', force => true);
RESET lease.auto_create;
RESET ROLE;

--
-- A member with the right to administer administers its own team's leases
--

SET ROLE regress_owner;
GRANT EXECUTE ON FUNCTION lease.create, lease.alter, lease.drop, lease.revoke TO regress_member, regress_allowed;
RESET ROLE;
SET ROLE regress_member;
SELECT lease.create('team/2', role => 'regress_team');
SET lease.auto_create = on;
SELECT outcome FROM lease.acquire('mine', 'a');
RESET lease.auto_create;
SELECT lease.alter('team/2', ttl => '2 min');
SELECT lease.alter('mine', role => 'regress_team');
SELECT lease.revoke('team') = :epoch AS revoked;
SELECT lease.drop('team/2');
-- Not others', and it gives none to others.
SELECT lease.create('theirs', role => 'regress_allowed');
SELECT lease.alter('mine', role => 'regress_allowed');
SET ROLE regress_allowed;
SELECT lease.create('theirs');
SELECT lease.alter('mine', ttl => '1 min');
SELECT lease.alter('mine', role => 'regress_allowed');
SELECT lease.revoke('mine');
SELECT lease.drop('mine');
SELECT lease.acquire('mine', 'a');
SET ROLE regress_member;
SELECT outcome FROM lease.acquire('mine', 'a', reclaim => true);
SELECT lease.revoke('theirs');
RESET ROLE;
SELECT name, role FROM lease.status ORDER BY name;

--
-- The owner of a table
--

-- It may protect its tables, if it is allowed to.
SET ROLE regress_owner;
SELECT lease.allow('regress_table_owner', fences => true);
RESET ROLE;
CREATE SCHEMA regress_tables AUTHORIZATION regress_table_owner;
GRANT USAGE ON SCHEMA regress_tables TO PUBLIC;
SET ROLE regress_table_owner;
SET search_path = regress_tables;
CREATE TABLE root (id int, x text) PARTITION BY RANGE (id);
CREATE TABLE root_1 PARTITION OF root FOR VALUES FROM (0) TO (100);
SELECT lease.protect('root', 'team', ddl => false);
SELECT * FROM lease.fence ORDER BY rel::text COLLATE "C";
GRANT INSERT ON root TO regress_stranger, regress_member;

-- Another's table it cannot protect, nor release.
SELECT lease.protect('public.own_table', 'team', ddl => false);
SELECT lease.protect('pg_catalog.pg_class', 'team', ddl => false);
SELECT lease.protect('lease.lease', 'team', ddl => false);
RESET ROLE;
SELECT lease.protect('public.own_table', 'team', ddl => false);
SET ROLE regress_table_owner;
SELECT lease.unprotect('public.own_table');

-- To make partitions, and to write, it takes no right on anything of the extension.
SET ROLE regress_owner;
SELECT lease.disallow('regress_table_owner');
SET ROLE regress_table_owner;
CREATE TABLE root_2 PARTITION OF root FOR VALUES FROM (100) TO (200);
INSERT INTO root VALUES (1, 'owner');
INSERT INTO root VALUES (101, 'owner');
TRUNCATE root_1;
-- The stranger gets that far, and no further: its write carries no token.
SET ROLE regress_stranger;
INSERT INTO regress_tables.root VALUES (1, 'stranger');
SELECT lease.guard('team', 1);
-- The member writes under its grant.
SET ROLE regress_member;
BEGIN;
SELECT epoch FROM lease.acquire('team', 'a') \gset
SELECT lease.guard('team', :epoch);
INSERT INTO regress_tables.root VALUES (1, 'member');
COMMIT;
RESET ROLE;
SELECT * FROM regress_tables.root;
RESET search_path;

--
-- What is given can be taken back
--

-- By whom it was given,
SET ROLE regress_owner;
REVOKE EXECUTE ON FUNCTION lease.create, lease.alter, lease.drop, lease.revoke FROM regress_member, regress_allowed;
SELECT lease.disallow('regress_member');
SET ROLE regress_member;
SELECT lease.holds('team', :epoch);
RESET ROLE;

-- and by any other administrator: it is the extension that gives it.
SELECT lease.disallow('regress_allowed');
SET ROLE regress_allowed;
SELECT lease.holds('team', :epoch);
RESET ROLE;
SELECT lease.allow('regress_stranger');
SET ROLE regress_owner;
SELECT lease.disallow('regress_stranger');
SET ROLE regress_stranger;
SELECT lease.holds('team', :epoch);
RESET ROLE;
-- A lease has no say in who may be dropped, and no right is left that would.
SELECT lease.disallow('regress_noinherit');
SELECT DISTINCT grantee::regrole FROM (SELECT proacl FROM pg_proc WHERE pronamespace = 'lease'::regnamespace
		UNION ALL SELECT relacl FROM pg_class WHERE relnamespace = 'lease'::regnamespace
		UNION ALL SELECT nspacl FROM pg_namespace WHERE nspname = 'lease') AS a(acl), aclexplode(acl)
	WHERE grantee::regrole::text LIKE 'regress%' ORDER BY 1;

--
-- A role that no longer exists matches nobody
--

CREATE ROLE regress_gone;
SELECT lease.create('gone', ttl => '1 hour', role => 'regress_gone');
SELECT epoch FROM lease.acquire('gone', 'a') \gset
SELECT lease.holds('gone', :epoch);
DROP ROLE regress_gone;

-- Not even superusers: the grant is dead, whoever asks.
SELECT lease.holds('gone', :epoch), lease.remaining('gone', :epoch);
SELECT lease.acquire('gone', 'b');
SELECT lease.renew('gone', :epoch);
SELECT lease.release('gone', :epoch);
SELECT lease.guard('gone', :epoch);
SELECT state, role::text ~ '^[0-9]+$' AS bare_number FROM lease.status WHERE name = 'gone';

-- An administrator gives the lease to another role, or drops it.
SELECT lease.alter('gone', role => 'regress_team');
SELECT lease.holds('gone', :epoch), outcome FROM lease.renew('gone', :epoch);
SELECT lease.drop('gone', force => true);

-- There is no such role to give it to.
SELECT lease.create('gone', role => 4294967295::oid::regrole);
SELECT lease.create('gone', role => 'regress_gone');
SELECT lease.allow('regress_gone');
SELECT lease.allow('public');

--
-- The owner of the extension drops it
--

SET ROLE regress_stranger;
DROP EXTENSION lease;
SET ROLE regress_owner;
DROP EXTENSION lease;
DROP EXTENSION lease CASCADE;
RESET ROLE;
SELECT count(*) AS fences FROM pg_trigger WHERE tgname LIKE 'lease%';

ALTER DATABASE :"DBNAME" OWNER TO CURRENT_USER;
DROP SCHEMA regress_tables, regress_planted CASCADE;
DROP TABLE own_table, fenced_table, moment, command;
DROP FUNCTION try;
DROP ROLE regress_owner, regress_stranger, regress_allowed, regress_member, regress_noinherit,
	regress_team, regress_watcher, regress_table_owner;
CREATE EXTENSION lease;
