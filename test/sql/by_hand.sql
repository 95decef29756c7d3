--
-- by_hand: a superuser who changes lease.lease with SQL.
--
-- Probes G7 (every call returns).  A command that changes a lease's row and also calls a
-- function that does cannot succeed: the version that the function has to replace was
-- already replaced by the command, in which it will never see another.  That is an error
-- (27000), as in a trigger that changes the row of its own command, and no reason to try
-- for ever.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
RESET client_min_messages;

SELECT lease.create('bh', ttl => '1 hour');
SELECT epoch FROM lease.acquire('bh', 'a') \gset

-- Instead of an endless loop there would be 57014.
SET statement_timeout = '5 s';
UPDATE lease.lease SET ttl = ttl WHERE name = 'bh' RETURNING (lease.renew('bh', :epoch)).outcome;
UPDATE lease.lease SET ttl = ttl WHERE name = 'bh' RETURNING (lease.acquire('bh', 'a', reclaim => true)).outcome;
UPDATE lease.lease SET ttl = ttl WHERE name = 'bh' RETURNING lease.release('bh', :epoch);
UPDATE lease.lease SET ttl = ttl WHERE name = 'bh' RETURNING lease.revoke('bh');
UPDATE lease.lease SET ttl = ttl WHERE name = 'bh' RETURNING lease.alter('bh', ttl => '1 min');
UPDATE lease.lease SET ttl = ttl WHERE name = 'bh' RETURNING lease.alter('bh', late_commit => true);
UPDATE lease.lease SET ttl = ttl WHERE name = 'bh' RETURNING lease.drop('bh', force => true);
DELETE FROM lease.lease WHERE name = 'bh' RETURNING (lease.renew('bh', :epoch)).outcome;

-- The other way round the command finds the row replaced in the same command, and leaves it.
UPDATE lease.lease SET grace = 1, reason = (lease.renew('bh', :epoch)).outcome WHERE name = 'bh' RETURNING name;
RESET statement_timeout;

-- Nothing is lost, and nothing is held.
SELECT lease.holds('bh', :epoch), late_commit, ttl, grace, reason FROM lease.status WHERE name = 'bh';
SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory';

-- In separate commands each sees what the other did.
BEGIN;
UPDATE lease.lease SET grace = 1000000 WHERE name = 'bh';
SELECT outcome FROM lease.renew('bh', :epoch);
UPDATE lease.lease SET ttl = 60000000 WHERE name = 'bh';
SELECT lease.guard('bh', :epoch);
COMMIT;
SELECT lease.holds('bh', :epoch), grace, ttl FROM lease.status WHERE name = 'bh';

SELECT lease.drop('bh', force => true);
