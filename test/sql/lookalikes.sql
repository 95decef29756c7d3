--
-- lookalikes: relations that only bear the names of the extension's.
--
-- Probes G3 and G10.  After DROP EXTENSION whoever may create a schema can make a schema
-- "lease" with tables of these names, of any shape and with anything in them, while the
-- library is still loaded and has a guard to check at COMMIT.  The library asks whether
-- they belong to the extension; if not, nothing can be decided, and that is a refusal
-- (42704).  It neither believes what they say nor reads one type as another.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
DROP EXTENSION lease;

-- The owner of the database, who is no superuser.
CREATE ROLE regress_lease_owner;
SELECT datdba::regrole AS owner FROM pg_database WHERE datname = current_database() \gset
ALTER DATABASE :"DBNAME" OWNER TO regress_lease_owner;
CREATE TABLE guarded (x text);
ALTER TABLE guarded OWNER TO regress_lease_owner;

-- fake makes a table lease.lease that says that epoch 1 is live.  Each column of it is of
-- the type that the library expects, except where the argument says otherwise.
CREATE FUNCTION fake(other jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	shape CONSTANT text[] := '{{name,"text COLLATE \"C\"",x},{role,regrole,regress_lease_owner},{ttl,bigint,1000000},{grace,bigint,0},{min_hold,bigint,0},{late_commit,boolean,t},{state,"\"char\"",g},{epoch,bigint,1},{acquired_boot,bigint,1},{acquired_at,timestamptz,2000-01-01},{deadline_boot,bigint,9000000000000000000},{expires_at,timestamptz,3000-01-01},{reserved_boot,bigint,NULL},{reserved_until,timestamptz,NULL},{boot,text,NULL},{holder,text,h},{grant_ttl,bigint,NULL},{successor,text,NULL},{reason,text,NULL},{metadata,jsonb,NULL}}';
	columns text[] := '{}';
	entries text[] := '{}';
BEGIN
	FOR i IN 1..array_length(shape, 1) LOOP
		CONTINUE WHEN other->>shape[i][1] = 'missing';
		columns := columns || format('%s %s %s', shape[i][1], coalesce(other->shape[i][1]->>0, shape[i][2]),
			CASE i WHEN 1 THEN 'CONSTRAINT lease_pkey PRIMARY KEY' END);
		entries := entries || coalesce(quote_literal(coalesce(other->shape[i][1]->>1, shape[i][3])), 'NULL');
	END LOOP;
	CREATE SCHEMA lease;
	EXECUTE format('CREATE TABLE lease.lease (%s)', array_to_string(columns, ', '));
	EXECUTE format('INSERT INTO lease.lease VALUES (%s)', array_to_string(entries, ', '));
	CREATE SEQUENCE lease.epoch;
	CREATE SEQUENCE lease.origin;
	CREATE SEQUENCE lease.epoch_floor;
END;
$$;

SET ROLE regress_lease_owner;
CREATE EXTENSION lease;
SELECT lease.create('x', ttl => '1 hour');
SELECT outcome, epoch FROM lease.acquire('x', 'h') \gset
\echo :outcome :epoch
SELECT lease.protect('guarded', 'x', ddl => false);

-- swap begins a guarded transaction and replaces the extension in it.
\set swap 'BEGIN; SELECT lease.guard(''x'', :epoch) \\g /dev/null\\\\ INSERT INTO guarded VALUES (''guarded''); DROP EXTENSION lease CASCADE;'

-- Nothing in its place.
:swap
COMMIT;
-- Right in all respects but that.
:swap
SELECT fake('{}');
COMMIT;
-- A holder that is a number, which as a string would be an address.
:swap
SELECT fake('{"holder": ["bigint", "94000000000000"]}');
COMMIT;
-- A name that is one, too.
:swap
SELECT fake('{"boot": ["bigint", "94000000000000"], "name": ["bigint", "1"]}');
COMMIT;
-- Columns that are missing.
:swap
SELECT fake('{"metadata": "missing", "reason": "missing"}');
COMMIT;
-- Tables where there were sequences, a view where there was a table.
:swap
SELECT fake('{}');
DROP SEQUENCE lease.epoch, lease.origin, lease.epoch_floor;
CREATE TABLE lease.epoch (i int);
CREATE TABLE lease.origin (i int);
CREATE TABLE lease.epoch_floor (i int);
COMMIT;
:swap
CREATE SCHEMA lease;
CREATE VIEW lease.lease AS SELECT 'x'::text AS name;
CREATE SEQUENCE lease.epoch;
CREATE SEQUENCE lease.origin;
CREATE SEQUENCE lease.epoch_floor;
COMMIT;
-- A schema with nothing in it.
:swap
CREATE SCHEMA lease;
COMMIT;

-- The session is still there; everything was undone.
SELECT count(*) FROM guarded;
SELECT lease.holds('x', :epoch);
SELECT lease.unprotect('guarded');
RESET ROLE;

--
-- A part of the extension that is not in it any more
--

-- Somebody who may has taken a relation out, or has put another in its place.  In
-- sessions that remember nothing yet.
CREATE FUNCTION what_happens(sql text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	EXECUTE sql INTO answer;
	RETURN answer;
EXCEPTION WHEN OTHERS THEN
	RETURN sqlstate;
END;
$$;
CREATE VIEW calls AS
	SELECT what_happens(format('SELECT lease.holds(''x'', %s)', :epoch)) AS holds,
		what_happens(format('SELECT lease.guard(''x'', %s)', :epoch)) AS guard,
		what_happens(format('SELECT outcome FROM lease.renew(''x'', %s)', :epoch)) AS renew,
		what_happens('SELECT outcome FROM lease.acquire(''x'', ''h'', reclaim => true)') AS acquire,
		what_happens('SELECT count(*) FROM lease.status') AS status;
\c
BEGIN;
ALTER EXTENSION lease DROP TABLE lease.lease;
SELECT * FROM calls;
ROLLBACK;
\c
BEGIN;
ALTER EXTENSION lease DROP SEQUENCE lease.epoch;
SELECT * FROM calls;
ROLLBACK;
\c
BEGIN;
ALTER TABLE lease.lease RENAME TO was_lease;
CREATE TABLE lease.lease (LIKE lease.was_lease INCLUDING ALL);
INSERT INTO lease.lease SELECT * FROM lease.was_lease;
SELECT * FROM calls;
ROLLBACK;
-- Also in one that remembers.
SELECT lease.holds('x', :epoch);
BEGIN;
ALTER TABLE lease.lease RENAME TO was_lease;
CREATE TABLE lease.lease (LIKE lease.was_lease INCLUDING ALL);
INSERT INTO lease.lease SELECT * FROM lease.was_lease;
SELECT * FROM calls;
ROLLBACK;
SELECT state FROM lease.status;
-- Pins, which are written as the owner of their table.
SELECT outcome FROM lease.decide('x', :epoch, 'subject', 'yes');
SELECT what_happens($$SELECT outcome FROM lease.pin('x#records', 1, 'h')$$) AS pin;
BEGIN;
ALTER EXTENSION lease DROP TABLE lease.floor_pin;
SELECT what_happens($$SELECT outcome FROM lease.pin('x#records', 1, 'h')$$) AS pin, what_happens($$SELECT outcome FROM lease.renew_pin('x#records', 'h')$$) AS renew,
	what_happens($$SELECT lease.unpin('x#records', 'h')$$) AS unpin;
ROLLBACK;
BEGIN;
ALTER TABLE lease.floor_pin RENAME TO was_floor_pin;
CREATE TABLE lease.floor_pin (LIKE lease.was_floor_pin INCLUDING ALL);
ALTER TABLE lease.floor_pin OWNER TO regress_lease_owner;
SELECT what_happens($$SELECT outcome FROM lease.pin('x#records', 1, 'h')$$) AS pin, what_happens($$SELECT outcome FROM lease.renew_pin('x#records', 'h')$$) AS renew,
	what_happens($$SELECT lease.unpin('x#records', 'h')$$) AS unpin;
ROLLBACK;
SELECT what_happens($$SELECT outcome FROM lease.renew_pin('x#records', 'h')$$) AS renew;

SET client_min_messages = warning;
DROP EXTENSION lease;
DROP TABLE guarded;
DROP VIEW calls;
DROP FUNCTION what_happens, fake;
ALTER DATABASE :"DBNAME" OWNER TO :"owner";
DROP ROLE regress_lease_owner;
