--
-- findings: what lease.doctor() finds, and whether its remedies mend it.
--
-- Probes section 5.3 of the contract, and G4 where a fence has been damaged: the doctor
-- is quiet about what is whole; it has one row for each condition under which writes
-- pass that should not, or none pass at all; what it says is shown to be so by writing;
-- and what its remedy says, executed as it stands, makes it quiet and the fence whole
-- again.  One word of a remedy is for the reader to replace: another_role.  What needs
-- a configuration file, or a restart, is in t/014_logical_replication.pl.
--
\set VERBOSITY sqlstate
SET client_min_messages = error;
CREATE EXTENSION IF NOT EXISTS lease;
\pset format unaligned

CREATE SCHEMA "a doctor's";
SET search_path = "a doctor's", public;
CREATE ROLE regress_doctor_team;
CREATE ROLE regress_doctor_root SUPERUSER;
SELECT lease.create('d/1', ttl => '1 hour') \g /dev/null
SELECT epoch FROM lease.acquire('d/1', 'a') \gset
SELECT current_database() AS dbname \gset

--
-- Everything at once, before anything is fenced and afterwards
--

-- Superusers, and fsync, are as the cluster has them: of all of them only the role that
-- runs this is shown, by another name.
CREATE VIEW everything AS
	SELECT severity, replace(object, quote_ident(session_user), 'superuser') AS object, meaning, remedy
	FROM lease.doctor()
	WHERE object NOT IN ('setting fsync', 'setting full_page_writes', 'setting data_checksums', 'clock')
		AND object NOT IN (SELECT format('role %I', rolname) FROM pg_roles WHERE rolsuper AND rolname <> session_user);
SELECT * FROM everything;
CREATE TABLE work (id int, note text);
SELECT lease.protect('work', 'd/1');
SELECT * FROM everything;

-- What is found from here on is what this test makes.
CREATE TABLE standing AS SELECT object, meaning FROM lease.doctor();
PREPARE findings AS
	SELECT format(E'%s: %s\n  %s\n  %s', f.severity, f.object, f.meaning, coalesce(f.remedy, '-')) AS finding
	FROM lease.doctor() WITH ORDINALITY AS f(severity, object, meaning, remedy, n)
	WHERE (f.object, f.meaning) NOT IN (SELECT s.object, s.meaning FROM standing s) ORDER BY f.n;
PREPARE remedies AS
	SELECT replace(f.remedy, 'another_role', 'regress_doctor_root')
	FROM lease.doctor() WITH ORDINALITY AS f(severity, object, meaning, remedy, n)
	WHERE (f.object, f.meaning) NOT IN (SELECT s.object, s.meaning FROM standing s) ORDER BY f.n;

--
-- What there is to be damaged
--

-- Names that need quoting; a row that carries its epoch and names its lease
CREATE TABLE "it's %s" (id int, "e\po'ch" bigint, "Le""ase" text);
INSERT INTO "it's %s" VALUES (1, NULL, 'd/1');
SELECT lease.protect('"it''s %s"', 'd/1', epoch_column => E'e\\po''ch', lease_column => 'Le"ase');
-- One that names its lease only
CREATE TABLE named (id int, lease text);
INSERT INTO named VALUES (1, 'd/1');
SELECT lease.protect('named', 'd/1', lease_column => 'lease');
-- One that fires always
CREATE TABLE strict (id int, epoch bigint);
INSERT INTO strict VALUES (1);
SELECT lease.protect('strict', 'd/1', epoch_column => 'epoch', always => true);
-- One that is not protected against DDL
CREATE TABLE loose (id int);
INSERT INTO loose VALUES (1);
SELECT lease.protect('loose', 'd/1', ddl => false);
-- Partitions, and children
CREATE TABLE parts (id int, note text) PARTITION BY LIST (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
CREATE TABLE "Parts 2" PARTITION OF parts FOR VALUES IN (2);
INSERT INTO parts VALUES (1), (2);
CREATE TABLE mother (id int);
CREATE TABLE daughter () INHERITS (mother);
INSERT INTO daughter VALUES (1);
SELECT lease.protect('parts', 'd/1'), lease.protect('mother', 'd/1');
BEGIN;
SELECT lease.guard('d/1', :epoch);
INSERT INTO work VALUES (1);
COMMIT;

-- Writes, of which all pass in a guarded transaction and none in another one
CREATE TABLE command (rel text, sql text);
INSERT INTO command
	SELECT rel, sql || rel || rest
	FROM (VALUES ('work', ' VALUES (1)'), ('"it''s %s"', ' VALUES (1, NULL, ''d/1'')'), ('named', ' VALUES (1, ''d/1'')'),
			('strict', ' VALUES (1)'), ('loose', ' VALUES (1)'), ('parts', ' VALUES (1)'),
			('parts_1', ' VALUES (1)'), ('"Parts 2"', ' VALUES (2)'), ('daughter', ' VALUES (1)')) AS t(rel, row)
		CROSS JOIN LATERAL (VALUES ('INSERT INTO ', row), ('UPDATE ', ' SET id = id'), ('DELETE FROM ', ''),
			('TRUNCATE ', '')) AS c(sql, rest);
CREATE FUNCTION try(sql text, epoch bigint DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	IF epoch IS NOT NULL THEN
		PERFORM lease.guard('d/1', epoch);
	END IF;
	EXECUTE sql;
	RAISE 'undo' USING ERRCODE = 'UNDO0';
EXCEPTION
	WHEN SQLSTATE 'UNDO0' THEN RETURN 'ok';
	WHEN OTHERS THEN RETURN sqlstate;
END;
$$;
PREPARE wrong (bigint) AS
	SELECT w.rel, string_agg(split_part(w.sql, ' ', 1) || ' ' || w.what, ', ' ORDER BY w.sql, w.what) AS wrong
	FROM (
		SELECT rel, sql, 'passes' AS what FROM command WHERE try(sql) = 'ok'
		UNION ALL
		SELECT rel, sql, 'fails: ' || try(sql, $1) FROM command WHERE try(sql, $1) <> 'ok') AS w
	GROUP BY w.rel ORDER BY w.rel COLLATE "C";

-- All is whole.
EXECUTE findings;
EXECUTE wrong(:epoch);

--
-- Triggers of rows
--

ALTER TABLE work DISABLE TRIGGER lease_fence;
EXECUTE findings;
EXECUTE wrong(:epoch);
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;
EXECUTE wrong(:epoch);

ALTER TABLE work ENABLE REPLICA TRIGGER lease_fence;
EXECUTE findings;
EXECUTE wrong(:epoch);
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;
EXECUTE wrong(:epoch);

-- Dropped, as only a guarded transaction can: the fence is to be built again.
BEGIN;
SELECT lease.guard('d/1', :epoch);
DROP TRIGGER lease_fence ON work;
COMMIT;
EXECUTE findings;
EXECUTE wrong(:epoch);
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;
EXECUTE wrong(:epoch);
-- Where there is no fence against DDL, its owner may do so without a token, and mend it so.
DROP TRIGGER lease_fence ON loose;
EXECUTE findings;
EXECUTE wrong(:epoch);
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;
EXECUTE wrong(:epoch);
SELECT ddl FROM lease.fence WHERE rel = 'loose'::regclass;

-- One of three; and all of a table, with the one that writes epochs.
ALTER TABLE "it's %s" DISABLE TRIGGER lease_fence_update;
EXECUTE findings;
EXECUTE wrong(:epoch);
\o /dev/null
EXECUTE remedies \gexec
\o
ALTER TABLE "it's %s" DISABLE TRIGGER USER;
EXECUTE findings;
EXECUTE wrong(:epoch);
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;
EXECUTE wrong(:epoch);
BEGIN;
SELECT lease.guard('d/1', :epoch);
DROP TRIGGER lease_fence_delete ON "it's %s";
DROP TRIGGER lease_fence_truncate ON "it's %s";
COMMIT;
EXECUTE findings;
EXECUTE wrong(:epoch);
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;
EXECUTE wrong(:epoch);

-- What fired always does so again.
ALTER TABLE strict DISABLE TRIGGER lease_fence_insert;
EXECUTE findings;
\o /dev/null
EXECUTE remedies \gexec
\o
BEGIN;
SELECT lease.guard('d/1', :epoch);
DROP TRIGGER lease_fence_insert ON strict;
COMMIT;
EXECUTE findings;
\o /dev/null
EXECUTE remedies \gexec
\o
ALTER TABLE strict DISABLE TRIGGER lease_stamp;
EXECUTE findings;
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;
EXECUTE wrong(:epoch);
SELECT tgname, tgenabled FROM pg_trigger WHERE tgrelid = 'strict'::regclass ORDER BY tgname;

--
-- Triggers of TRUNCATE
--

ALTER TABLE work DISABLE TRIGGER lease_fence_truncate;
EXECUTE findings;
EXECUTE wrong(:epoch);
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;
EXECUTE wrong(:epoch);
BEGIN;
SELECT lease.guard('d/1', :epoch);
DROP TRIGGER lease_fence_truncate ON work;
COMMIT;
EXECUTE findings;
EXECUTE wrong(:epoch);
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;
EXECUTE wrong(:epoch);

--
-- Partitions and children
--

-- Disabled for one partition
ALTER TABLE "Parts 2" DISABLE TRIGGER lease_fence;
EXECUTE findings;
EXECUTE wrong(:epoch);
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;
EXECUTE wrong(:epoch);
-- Dropped by hand from one partition, and from a child
BEGIN;
SELECT lease.guard('d/1', :epoch);
DROP TRIGGER lease_fence_truncate ON "Parts 2";
DROP TRIGGER lease_fence ON daughter;
DROP TRIGGER lease_fence_truncate ON daughter;
COMMIT;
EXECUTE findings;
EXECUTE wrong(:epoch);
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;
EXECUTE wrong(:epoch);

-- Made while nobody saw to it: only a superuser can turn that off.
ALTER EVENT TRIGGER lease_extend_fences DISABLE;
CREATE TABLE parts_3 PARTITION OF parts FOR VALUES IN (3);
CREATE TABLE granddaughter () INHERITS (daughter);
INSERT INTO granddaughter VALUES (1);
EXECUTE findings;
SELECT try('INSERT INTO parts_3 VALUES (3)'), try('TRUNCATE parts_3'), try('INSERT INTO granddaughter VALUES (2)'),
	try('TRUNCATE granddaughter');
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;
EXECUTE wrong(:epoch);
SELECT try('INSERT INTO parts_3 VALUES (3)'), try('TRUNCATE parts_3'), try('INSERT INTO granddaughter VALUES (2)'),
	try('TRUNCATE granddaughter');

--
-- The trigger that writes epochs
--

ALTER TABLE "it's %s" DISABLE TRIGGER lease_stamp;
EXECUTE findings;
EXECUTE wrong(:epoch);
-- The statement may write the epoch itself, which is its token, too, but for the trigger
-- that would have taken it.
SELECT try(format($$INSERT INTO "it's %%s" VALUES (1, %s, 'd/1')$$, :epoch), :epoch),
	try(format($$INSERT INTO "it's %%s" VALUES (1, %s, 'd/1')$$, :epoch));
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;
EXECUTE wrong(:epoch);
ALTER TABLE "it's %s" ENABLE REPLICA TRIGGER lease_stamp;
EXECUTE findings;
\o /dev/null
EXECUTE remedies \gexec
\o
BEGIN;
SELECT lease.guard('d/1', :epoch);
DROP TRIGGER lease_stamp ON "it's %s";
COMMIT;
EXECUTE findings;
EXECUTE wrong(:epoch);
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;
EXECUTE wrong(:epoch);

--
-- Columns with other names than the fence knows
--

ALTER TABLE "it's %s" RENAME COLUMN "e\po'ch" TO "Epoch""";
EXECUTE findings;
EXECUTE wrong(:epoch);
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;
EXECUTE wrong(:epoch);
-- Both, and another column that has got the old name
ALTER TABLE "it's %s" RENAME COLUMN "Epoch""" TO "e\po'ch";
ALTER TABLE "it's %s" RENAME COLUMN "Le""ase" TO lease;
ALTER TABLE "it's %s" ADD COLUMN "Epoch""" bigint;
EXECUTE findings;
EXECUTE wrong(:epoch);
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;
EXECUTE wrong(:epoch);
SELECT epoch_column, lease_column FROM lease.fence WHERE rel = '"it''s %s"'::regclass;
-- Without epochs, writes go on; but it says what else does not.
ALTER TABLE named RENAME COLUMN lease TO shard;
EXECUTE findings;
EXECUTE wrong(:epoch);
SELECT try('CREATE TABLE child () INHERITS (named)');
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;
EXECUTE wrong(:epoch);
SELECT try('CREATE TABLE child () INHERITS (named)');
-- A column that is gone has taken most of the fence along; the remedy makes a new one.
BEGIN;
SELECT lease.guard('d/1', :epoch);
ALTER TABLE strict DROP COLUMN epoch CASCADE;
COMMIT;
EXECUTE findings;
EXECUTE wrong(:epoch);
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;
EXECUTE wrong(:epoch);
SELECT epoch_column, row_trigger FROM lease.fence WHERE rel = 'strict'::regclass;

--
-- Tables that a crash empties
--

BEGIN;
SELECT lease.guard('d/1', :epoch);
ALTER TABLE work SET UNLOGGED;
ALTER TABLE "Parts 2" SET UNLOGGED;
COMMIT;
EXECUTE findings;
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;
EXECUTE wrong(:epoch);

-- A partitioned table has no rows of its own to be lost (and cannot be UNLOGGED at all
-- in newer servers).
DO $$
BEGIN
	CREATE UNLOGGED TABLE above (id int) PARTITION BY LIST (id);
EXCEPTION WHEN feature_not_supported OR wrong_object_type THEN
	CREATE TABLE above (id int) PARTITION BY LIST (id);
END;
$$;
SELECT lease.protect('above', 'd/1');
EXECUTE findings;
BEGIN;
SELECT lease.guard('d/1', :epoch);
DROP TABLE above;
COMMIT;

--
-- Functions that act as replication does
--

CREATE FUNCTION "as replica"(int) RETURNS void LANGUAGE sql SET session_replication_role = replica AS 'DELETE FROM "a doctor''s".work';
EXECUTE findings;
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;
DROP FUNCTION "as replica";

--
-- A default that would be a token
--

ALTER TABLE strict ALTER COLUMN epoch SET DEFAULT 7;
EXECUTE findings;
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;

--
-- Leases that nobody can have
--

CREATE ROLE regress_doctor_gone;
CREATE TABLE orphan (id int);
SELECT lease.create('d/2', role => 'regress_doctor_gone'), lease.protect('orphan', 'd/2');
EXECUTE findings;
DROP ROLE regress_doctor_gone;
EXECUTE findings;
SELECT lease.acquire('d/2', 'a');
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;
SELECT outcome FROM lease.acquire('d/2', 'a');
SELECT lease.drop('d/2', force => true);
EXECUTE findings;
-- It is made with the settings that a lease has by default: these are for the reader to
-- look at.
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;
SELECT epoch AS other FROM lease.acquire('d/2', 'a', '1 hour') \gset
BEGIN;
SELECT lease.guard('d/2', :other);
INSERT INTO orphan VALUES (1);
DROP TABLE orphan;
COMMIT;
EXECUTE findings;

-- A trigger by hand, with no lease at all, refuses everything, which is no hole.
CREATE TABLE by_hand (id int);
CREATE TRIGGER by_hand BEFORE TRUNCATE ON by_hand FOR EACH STATEMENT EXECUTE FUNCTION lease.fence();
TRUNCATE by_hand;
EXECUTE findings;
DROP TABLE by_hand;

--
-- Event triggers
--

ALTER EVENT TRIGGER lease_watch_ddl DISABLE;
ALTER EVENT TRIGGER lease_watch_rewrites ENABLE REPLICA;
EXECUTE findings;
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;
-- By another name
ALTER EVENT TRIGGER lease_watch_ddl RENAME TO "Watch";
EXECUTE findings;
ALTER EVENT TRIGGER "Watch" DISABLE;
EXECUTE findings;
\o /dev/null
EXECUTE remedies \gexec
\o
ALTER EVENT TRIGGER "Watch" RENAME TO lease_watch_ddl;
EXECUTE findings;
-- Taken out of the extension and dropped; here undone, so that what follows has those of
-- the installation.
BEGIN;
ALTER EXTENSION lease DROP EVENT TRIGGER lease_extend_fences;
ALTER EXTENSION lease DROP EVENT TRIGGER lease_watch_rewrites;
DROP EVENT TRIGGER lease_extend_fences;
DROP EVENT TRIGGER lease_watch_rewrites;
EXECUTE findings;
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;
CREATE TABLE parts_4 PARTITION OF parts FOR VALUES IN (4);
SELECT truncate_trigger FROM lease.fence WHERE rel = 'parts_4'::regclass;
ROLLBACK;
EXECUTE findings;

--
-- Settings of roles and of the database
--

CREATE ROLE "regress_doctor Role";
ALTER ROLE "regress_doctor Role" SET session_replication_role = replica;
EXECUTE findings;
EXECUTE remedies \gexec
EXECUTE findings;
ALTER ROLE "regress_doctor Role" IN DATABASE :"dbname" SET session_replication_role = 'REPLICA';
SELECT severity, replace(object, current_database(), 'this'), replace(remedy, quote_ident(current_database()), 'this')
	FROM lease.doctor() WHERE object NOT IN (SELECT object FROM standing);
EXECUTE remedies \gexec
EXECUTE findings;
ALTER DATABASE :"dbname" SET session_replication_role = replica;
SELECT severity, replace(object, current_database(), 'this'), meaning, replace(remedy, quote_ident(current_database()), 'this')
	FROM lease.doctor() WHERE object NOT IN (SELECT object FROM standing);
EXECUTE remedies \gexec
EXECUTE findings;
ALTER ROLE ALL SET session_replication_role = replica;
EXECUTE findings;
EXECUTE remedies \gexec
EXECUTE findings;
-- Under "local" they fire.  Other settings, and those of another database, are no matter.
ALTER DATABASE :"dbname" SET session_replication_role = local;
ALTER ROLE "regress_doctor Role" SET session_replication_role = 'Origin';
ALTER ROLE "regress_doctor Role" IN DATABASE :"dbname" SET search_path = 'session_replication_role=replica';
ALTER ROLE "regress_doctor Role" IN DATABASE template1 SET session_replication_role = replica;
EXECUTE findings;
BEGIN;
SET LOCAL session_replication_role = local;
EXECUTE wrong(:epoch);
ROLLBACK;
ALTER DATABASE :"dbname" RESET session_replication_role;

--
-- Roles that get past fences
--

-- Superusers who can log in, or whom somebody else can become
CREATE ROLE "regress_doctor Super" SUPERUSER;
EXECUTE findings;
GRANT "regress_doctor Super" TO "regress_doctor Role";
EXECUTE findings;
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;
ALTER ROLE "regress_doctor Super" SUPERUSER LOGIN;
REVOKE "regress_doctor Super" FROM "regress_doctor Role";
EXECUTE findings;
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;

-- Those who may set session_replication_role: and pass it on
GRANT SET ON PARAMETER session_replication_role TO "regress_doctor Role" WITH GRANT OPTION;
SET ROLE "regress_doctor Role";
GRANT SET ON PARAMETER session_replication_role TO regress_doctor_team;
RESET ROLE;
GRANT ALTER SYSTEM ON PARAMETER session_replication_role TO regress_doctor_team;
GRANT SET ON PARAMETER work_mem TO regress_doctor_team;
EXECUTE findings;
EXECUTE remedies \gexec
EXECUTE findings;
REVOKE SET ON PARAMETER work_mem FROM regress_doctor_team;
GRANT SET ON PARAMETER session_replication_role TO PUBLIC;
EXECUTE findings;
EXECUTE remedies \gexec
EXECUTE findings;

-- Owners.  Those who are members of the lease's role are worse: they are whom a fence is
-- there to stop.
CREATE ROLE "regress_doctor Owner";
CREATE ROLE regress_doctor_app;
ALTER TABLE work OWNER TO "regress_doctor Owner";
ALTER TABLE "Parts 2" OWNER TO "regress_doctor Owner";
ALTER TABLE "it's %s" OWNER TO regress_doctor_app;
EXECUTE findings;
SELECT lease.alter('d/1', role => 'regress_doctor_team');
GRANT regress_doctor_team TO regress_doctor_app;
EXECUTE findings;
-- One who is neither, and a member of both
REVOKE regress_doctor_team FROM regress_doctor_app;
CREATE ROLE regress_doctor_both NOINHERIT;
GRANT regress_doctor_team, "regress_doctor Owner" TO regress_doctor_both;
GRANT SET ON PARAMETER session_replication_role TO regress_doctor_app;
EXECUTE findings;
GRANT regress_doctor_app TO regress_doctor_team;
EXECUTE findings;
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;
EXECUTE wrong(:epoch);

--
-- Subscriptions
--

-- Without a publisher nobody tells which tables are to be written: done by hand here.
CREATE SUBSCRIPTION "regress_doctor Sub" CONNECTION 'dbname=nowhere' PUBLICATION p
	WITH (connect = false, slot_name = NONE);
EXECUTE findings;
INSERT INTO pg_subscription_rel (srsubid, srrelid, srsubstate)
	SELECT s.oid, r, 'i' FROM pg_subscription s, unnest('{work,strict,parts,mother}'::regclass[]) AS r
	WHERE s.subname = 'regress_doctor Sub';
EXECUTE findings;
-- It fires always when mended, also for partitions.
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;
EXECUTE wrong(:epoch);
SELECT rel, row_trigger, truncate_trigger FROM lease.fence ORDER BY rel::text COLLATE "C";
-- One of the two is enough.
ALTER TABLE work ENABLE TRIGGER lease_fence_truncate;
EXECUTE findings;
\o /dev/null
EXECUTE remedies \gexec
\o
ALTER TABLE parts_1 ENABLE TRIGGER lease_fence;
EXECUTE findings;
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;
DROP SUBSCRIPTION "regress_doctor Sub";

--
-- Who may ask
--

-- With something of everything to be found
ALTER TABLE work DISABLE TRIGGER USER;
ALTER TABLE work OWNER TO "regress_doctor Owner";
ALTER ROLE ALL SET session_replication_role = replica;
GRANT SET ON PARAMETER session_replication_role TO PUBLIC;
REVOKE USAGE ON SCHEMA "a doctor's" FROM PUBLIC;
GRANT regress_doctor_team TO "regress_doctor Owner";
SELECT count(*) AS all FROM lease.doctor() \gset

SET ROLE regress_doctor_app;
SELECT count(*) FROM lease.doctor();
RESET ROLE;
SELECT lease.allow('regress_doctor_app');
SET ROLE regress_doctor_app;
SELECT count(*) FROM lease.doctor();
RESET ROLE;
SELECT lease.allow('regress_doctor_app', fences => true);
-- It finds what a superuser finds.
SET ROLE regress_doctor_app;
SELECT count(*) = :all AS "everything", count(*) > 5 AS something FROM lease.doctor();
RESET ROLE;
SELECT lease.disallow('regress_doctor_app');
GRANT pg_monitor TO "regress_doctor Role";
SET ROLE "regress_doctor Role";
SELECT count(*) = :all AS "everything", count(*) > 5 AS something FROM lease.doctor();
-- In a read-only transaction, too, and at every isolation level
BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY;
SELECT count(*) = :all AS "everything" FROM lease.doctor();
COMMIT;
RESET ROLE;
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;
EXECUTE wrong(:epoch);

-- The sequences that epochs come from
ALTER SEQUENCE lease.epoch CACHE 10;
ALTER SEQUENCE lease.epoch_floor CYCLE;
ALTER SEQUENCE lease.origin SET UNLOGGED;
EXECUTE findings;
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;

-- What keeps the history as it is
ALTER TABLE lease.event DISABLE TRIGGER lease_keep_events;
ALTER TABLE lease.pruned ENABLE TRIGGER lease_keep_events_truncate;
EXECUTE findings;
\o /dev/null
EXECUTE remedies \gexec
\o
EXECUTE findings;

-- No fence, nobody who gets past it
BEGIN;
SELECT lease.guard('d/1', :epoch);
DROP SCHEMA "a doctor's" CASCADE;
SELECT count(*) FROM lease.doctor() WHERE object LIKE 'role %' OR object LIKE 'table %';
COMMIT;
RESET search_path;
SELECT count(lease.drop(name, force => true)) FROM lease.status WHERE name LIKE 'd/%';
DROP ROLE regress_doctor_team, regress_doctor_root, "regress_doctor Role", "regress_doctor Super", "regress_doctor Owner",
	regress_doctor_app, regress_doctor_both;
