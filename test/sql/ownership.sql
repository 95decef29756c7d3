--
-- ownership: whose tables, whose leases.
--
-- Probes sections 5.2 and 5.7 of the contract.  To make a lease by acquiring it takes the
-- same right as to create it.  Whoever may build fences locks, and gets to know the
-- partitions of, his own tables only.  Taking a fence away takes away no other lease's.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
RESET client_min_messages;

CREATE ROLE regress_lease_scheduler;
CREATE ROLE regress_lease_fencer;
SELECT lease.allow('regress_lease_scheduler'), lease.allow('regress_lease_fencer', fences => true) \g /dev/null

--
-- lease.auto_create
--

-- What is granted to a scheduler does not include it, in any of its forms.
SET lease.auto_create = on;
SET ROLE regress_lease_scheduler;
SELECT has_function_privilege('lease.create(text, interval, interval, interval, regrole, boolean, text, boolean)', 'EXECUTE');
SELECT lease.acquire('ow/typo', 'a');
SELECT lease.acquire('ow/typo', 'a', reclaim => true);
SELECT * FROM lease.acquire_many('{ow/typo}', 'a');
SET search_path = lease;
SELECT acquire('ow/typo', 'a');
RESET search_path;
-- Nothing is there, and no lock is left in a transaction that goes on.
BEGIN;
SAVEPOINT s;
SELECT lease.acquire('ow/typo', 'a');
ROLLBACK TO s;
SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory';
COMMIT;
RESET ROLE;
SELECT count(*) FROM lease.status WHERE name LIKE 'ow%';

-- Granted, it works, and the lease is the scheduler's.
GRANT EXECUTE ON FUNCTION lease.create TO regress_lease_scheduler;
SET ROLE regress_lease_scheduler;
SELECT outcome FROM lease.acquire('ow/1', 'a');
SELECT name, outcome FROM lease.acquire_many('{ow/1,ow/2}', 'a');
RESET ROLE;
SELECT name, role, state FROM lease.status WHERE name LIKE 'ow%' ORDER BY name;
-- Taken back, it still acquires what is there.
REVOKE EXECUTE ON FUNCTION lease.create FROM regress_lease_scheduler;
SET ROLE regress_lease_scheduler;
SELECT outcome FROM lease.acquire('ow/1', 'b');
SELECT outcome FROM lease.acquire('ow/3', 'b');
RESET ROLE;
RESET lease.auto_create;

--
-- lease.descendants
--

CREATE TABLE theirs (i int) PARTITION BY LIST (i);
CREATE TABLE theirs_1 PARTITION OF theirs FOR VALUES IN (1);
CREATE TABLE its_own (i int) PARTITION BY LIST (i);
CREATE TABLE its_own_1 PARTITION OF its_own FOR VALUES IN (1);
ALTER TABLE its_own OWNER TO regress_lease_fencer;
ALTER TABLE its_own_1 OWNER TO regress_lease_fencer;
-- Locks that keep writers away.
CREATE VIEW table_lock AS
	SELECT relation::regclass AS rel, mode FROM pg_locks
		WHERE pid = pg_backend_pid() AND locktype = 'relation' AND mode = 'ShareRowExclusiveLock'
		ORDER BY relation::regclass::text COLLATE "C";
GRANT SELECT ON table_lock TO PUBLIC;
CREATE FUNCTION look(rel regclass) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	RETURN (SELECT string_agg(d.descendant::text, ', ') FROM lease.descendants(rel) d);
EXCEPTION WHEN OTHERS THEN
	RETURN sqlstate;
END;
$$;

SET ROLE regress_lease_fencer;
BEGIN;
SELECT * FROM lease.descendants('its_own');
SELECT * FROM table_lock;
COMMIT;
-- Others' tables; those of the system; none.  (race_table_owner shows that it does not even
-- wait for a lock on them.)
SELECT look('theirs'), look('theirs_1'), look('pg_class'), look('pg_authid'),
	look('lease.lease'), look('table_lock'), look('pg_class_oid_index'),
	look(1), look(NULL);
-- Nor by way of the functions that use it.
SELECT lease.protect('theirs', 'ow/1', ddl => false);
SELECT lease.unprotect('theirs');
RESET ROLE;

--
-- Fences of several leases in one tree
--

CREATE TABLE mother (i int);
CREATE TABLE daughter () INHERITS (mother);
CREATE TABLE granddaughter () INHERITS (daughter);
CREATE TABLE other_daughter (i int);
SELECT lease.protect('mother', 'ow/1', ddl => false);
SELECT lease.protect('other_daughter', 'ow/2', ddl => false);
-- A table is under one lease, also as a child: it gets the fence of its mother, unless
-- it has another one.
ALTER TABLE other_daughter INHERIT mother;
SELECT lease.unprotect('other_daughter');
ALTER TABLE other_daughter INHERIT mother;
SELECT rel, lease, row_trigger, truncate_trigger FROM lease.fence ORDER BY rel::text COLLATE "C";
SELECT lease.protect('other_daughter', 'ow/2', ddl => false);
SELECT lease.unprotect('mother');
SELECT rel, lease FROM lease.fence ORDER BY rel::text COLLATE "C";
INSERT INTO mother VALUES (1);
INSERT INTO granddaughter VALUES (1);
UPDATE mother SET i = 2;
TRUNCATE other_daughter;
-- Where one stands, none can be built around it.
SELECT lease.protect('other_daughter', 'ow/2', ddl => false);
INSERT INTO mother VALUES (1);
INSERT INTO other_daughter VALUES (1);
SELECT lease.protect('mother', 'ow/1', ddl => false);
SELECT lease.unprotect('other_daughter');

DROP TABLE mother, daughter, granddaughter, other_daughter, theirs, its_own;
DROP VIEW table_lock;
DROP FUNCTION look;
SELECT lease.drop(name, force => true) FROM lease.status WHERE name LIKE 'ow%' \g /dev/null
SELECT lease.disallow('regress_lease_scheduler'), lease.disallow('regress_lease_fencer') \g /dev/null
DROP ROLE regress_lease_scheduler, regress_lease_fencer;
