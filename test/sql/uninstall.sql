--
-- uninstall: DROP EXTENSION, with everything that may depend on it, and back.
--
-- Runs last.  The library stays loaded in a session that has used it, so that it has to
-- notice that its relations are gone, or others.  Probes G3 (a guarded transaction whose
-- state cannot be read any more does not commit) and G10.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
RESET client_min_messages;

SELECT lease.create('u', ttl => '1 hour');
SELECT epoch FROM lease.acquire('u', 'a') \gset
CREATE TABLE guarded (x text);
SELECT lease.protect('guarded', 'u', ddl => false);

-- Everything below is done in one session, which remembers as much as it can.
PREPARE holds AS SELECT lease.holds($1, $2);
PREPARE acquire AS SELECT outcome, epoch FROM lease.acquire($1, $2);
PREPARE write AS INSERT INTO guarded VALUES ($1);
CREATE FUNCTION guard_and_write(epoch bigint, x text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM lease.guard('u', epoch);
	INSERT INTO guarded VALUES (x);
END;
$$;
EXECUTE holds('u', :epoch);
EXECUTE acquire('u', 'b');
EXECUTE write('no token');
SELECT guard_and_write(:epoch, 'before');
SELECT lease.progress('u', :epoch), lease.beat('a');

--
-- Not while something depends on it
--

-- Neither the whole nor a part, while a table is protected.
DROP EXTENSION lease;
DROP SCHEMA lease CASCADE;
DROP FUNCTION lease.fence();
DROP FUNCTION lease.refuses(text, regclass);
DROP TABLE lease.lease;
DROP SEQUENCE lease.epoch;
DROP VIEW lease.status;
SELECT lease.holds('u', :epoch);

-- Nor while somebody's view reads its.
SELECT lease.unprotect('guarded');
CREATE VIEW watch AS SELECT name, state FROM lease.status;
DROP EXTENSION lease;
DROP VIEW watch;
SELECT lease.protect('guarded', 'u', ddl => false);

--
-- Not in a transaction that is guarded
--

-- What it guards could not be checked at COMMIT.
BEGIN;
SELECT lease.guard('u', :epoch);
INSERT INTO guarded VALUES ('dropped meanwhile');
SET LOCAL client_min_messages = warning;
DROP EXTENSION lease CASCADE;
INSERT INTO guarded VALUES ('no fence any more');
COMMIT;
SELECT lease.holds('u', :epoch);
SELECT count(*) FROM guarded WHERE x <> 'before';

-- Also if it is there again at COMMIT: not the same lease.
BEGIN;
SELECT lease.guard('u', :epoch);
INSERT INTO guarded VALUES ('dropped meanwhile');
SET LOCAL client_min_messages = warning;
DROP EXTENSION lease CASCADE;
CREATE EXTENSION lease;
SELECT lease.holds('u', :epoch);
COMMIT;
BEGIN;
SELECT lease.guard('u', :epoch);
SET LOCAL client_min_messages = warning;
DROP EXTENSION lease CASCADE;
CREATE EXTENSION lease;
SELECT lease.create('u');
COMMIT;
SELECT lease.holds('u', :epoch);

-- Nor if somebody has put something in its place.
BEGIN;
SELECT lease.guard('u', :epoch);
INSERT INTO guarded VALUES ('dropped meanwhile');
SET LOCAL client_min_messages = warning;
CREATE TABLE planted AS SELECT * FROM lease.lease;
DROP EXTENSION lease CASCADE;
CREATE SCHEMA lease;
ALTER TABLE planted SET SCHEMA lease;
ALTER TABLE lease.planted RENAME TO lease;
ALTER TABLE lease.lease ADD CONSTRAINT lease_pkey PRIMARY KEY (name);
CREATE SEQUENCE lease.epoch;
CREATE SEQUENCE lease.origin;
CREATE SEQUENCE lease.epoch_floor;
COMMIT;
SELECT lease.holds('u', :epoch);

-- A drop that is rolled back has not happened.
BEGIN;
SET LOCAL client_min_messages = warning;
DROP EXTENSION lease CASCADE;
SAVEPOINT s;
SELECT lease.holds('u', :epoch);
ROLLBACK TO s;
CREATE EXTENSION lease;
SELECT lease.create('u');
SELECT outcome FROM lease.acquire('u', 'z');
ROLLBACK;
EXECUTE holds('u', :epoch);
EXECUTE write('no token');
SELECT guard_and_write(:epoch, 'after the rollback');

--
-- CASCADE removes the fences
--

SET client_min_messages = warning;
DROP EXTENSION lease CASCADE;
RESET client_min_messages;
SELECT count(*) AS triggers FROM pg_trigger WHERE tgrelid = 'guarded'::regclass;
EXECUTE write('free for all');
EXECUTE holds('u', :epoch);
EXECUTE acquire('u', 'b');
SELECT guard_and_write(:epoch, 'without extension');
SELECT lease.create('u');
SELECT count(*) AS schemas FROM pg_namespace WHERE nspname = 'lease';

-- The library is still loaded and does no harm.
SHOW lease.busy_timeout;
SET lease.token = 'u=1';
BEGIN;
INSERT INTO guarded VALUES ('in a transaction');
SAVEPOINT s;
ROLLBACK TO s;
COMMIT;
SELECT x FROM guarded ORDER BY x COLLATE "C";

--
-- And back, in the same session
--

-- Nothing of what was remembered is mistaken for something that exists now.
CREATE EXTENSION lease;
EXECUTE holds('u', :epoch);
EXECUTE acquire('u', 'a');
SELECT lease.create('u', ttl => '1 hour');
EXECUTE holds('u', :epoch);
SELECT lease.protect('guarded', 'u', ddl => false);
EXECUTE write('no token');
SELECT outcome, epoch FROM lease.acquire('u', 'a') \gset again_
\echo :again_outcome
EXECUTE acquire('u', 'b');
EXECUTE holds('u', :again_epoch);
SELECT guard_and_write(:again_epoch, 'and back');
SELECT lease.progress('u', :again_epoch), lease.progress('u', :again_epoch), lease.beat('a');
SELECT reports, beats FROM lease.health, lease.peer;
SELECT guard_and_write(:again_epoch + 1, 'wrong epoch');
SELECT outcome FROM lease.renew('u', :again_epoch);
SELECT name, state FROM lease.status;
SELECT rel, lease FROM lease.fence;

-- Several times over, each in a transaction of its own.
SET client_min_messages = warning;
DO $$
DECLARE
	granted lease.reply;
BEGIN
	FOR i IN 1..5 LOOP
		DROP EXTENSION lease CASCADE;
		CREATE EXTENSION lease;
		PERFORM lease.create('u');
		PERFORM lease.protect('guarded', 'u', ddl => false);
		SELECT * INTO granted FROM lease.acquire('u', 'a');
		PERFORM lease.guard('u', granted.epoch);
		INSERT INTO guarded VALUES ('time ' || i);
		COMMIT;
	END LOOP;
END;
$$;
RESET client_min_messages;
SELECT count(*) FROM guarded WHERE x LIKE 'time%';

--
-- For good
--

SELECT lease.unprotect('guarded');
DROP EXTENSION lease;
INSERT INTO guarded VALUES ('free for all');
SELECT count(*) FROM pg_namespace WHERE nspname = 'lease';
SELECT count(*) FROM pg_proc WHERE probin = '$libdir/lease';
SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'lease%';
DROP TABLE guarded;
DROP FUNCTION guard_and_write;
