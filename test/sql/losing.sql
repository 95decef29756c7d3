--
-- losing: a call that is refused leaves no trace.
--
-- Probes G8: a refused acquire assigns no transaction id, leaves no row version and no
-- lock, and writes no WAL; nor does a refused renewal or release.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
RESET client_min_messages;

-- One lease for each reason to lose.
SELECT lease.create('l/' || reason, ttl => '1 hour', grace => '1 hour') FROM unnest('{held,grace,reserved,released,revoked}'::text[]) AS reason \g /dev/null
SELECT epoch AS held FROM lease.acquire('l/held', 'a') \gset
SET lease.clock_offset = '-4000 s';
SELECT epoch AS grace FROM lease.acquire('l/grace', 'a') \gset
RESET lease.clock_offset;
SELECT epoch AS reserved FROM lease.acquire('l/reserved', 'a') \gset
SELECT lease.release('l/reserved', :reserved, 'successor');
SELECT epoch AS released FROM lease.acquire('l/released', 'a') \gset
SELECT lease.release('l/released', :released);
SELECT epoch AS revoked FROM lease.acquire('l/revoked', 'a') \gset
SELECT lease.revoke('l/revoked') IS NOT NULL AS revoked;

-- What this transaction has left behind so far: a transaction id, advisory locks,
-- locks on the relations of the extension.
CREATE VIEW trace AS
	SELECT pg_current_xact_id_if_assigned() IS NOT NULL AS xid,
			count(*) FILTER (WHERE locktype = 'advisory') AS advisory_locks,
			count(*) FILTER (WHERE relation IN (SELECT oid FROM pg_class WHERE relnamespace = 'lease'::regnamespace)) AS relation_locks,
			count(*) FILTER (WHERE locktype = 'transactionid') AS xid_locks
		FROM pg_locks WHERE pid = pg_backend_pid();
CREATE VIEW version AS
	SELECT md5(string_agg(name || ctid::text || xmin::text || xmax::text || l::text, ',' ORDER BY name)) AS version
		FROM lease.lease l WHERE name LIKE 'l/%';
SELECT version FROM version \gset
SELECT last_value FROM lease.epoch \gset
-- An epoch that was never granted.
\set never 9223372036854775807

--
-- No transaction id, no lock
--

BEGIN;
SELECT outcome FROM lease.acquire('l/held', 'b');
SELECT outcome FROM lease.acquire('l/held', 'a');
SELECT outcome FROM lease.acquire('l/held', 'b', reclaim => true);
SELECT outcome FROM lease.acquire('l/grace', 'b');
SELECT outcome FROM lease.acquire('l/reserved', 'b');
SELECT name, outcome FROM lease.acquire_many('{l/held,l/reserved,l/grace}', 'b');
SELECT * FROM trace;
COMMIT;

-- The same with auto_create, for a lease that exists.
SET lease.auto_create = on;
BEGIN;
SELECT outcome FROM lease.acquire('l/held', 'b');
SELECT * FROM trace;
COMMIT;
RESET lease.auto_create;

BEGIN;
SELECT outcome FROM lease.renew('l/held', :never);
SELECT outcome FROM lease.renew('l/grace', :grace);
SELECT outcome FROM lease.renew('l/released', :released);
SELECT outcome FROM lease.renew('l/revoked', :revoked);
SELECT outcome FROM lease.renew_many('{l/held,l/grace}', ARRAY[:never, :grace]::bigint[]);
SELECT * FROM trace;
COMMIT;

BEGIN;
SELECT lease.release('l/held', :never), lease.release('l/grace', :grace), lease.release('l/released', :released), lease.release('no', :never);
SELECT * FROM lease.release_many('{l/held,l/revoked}', ARRAY[:never, :revoked]::bigint[]);
SELECT lease.revoke('l/revoked');
SELECT * FROM trace;
COMMIT;

BEGIN;
SELECT lease.holds('l/held', :held), lease.remaining('l/held', :held) > '0' AS remaining;
SELECT count(*) FROM lease.read_status() WHERE name LIKE 'l/%';
SELECT * FROM trace;
COMMIT;

-- A guard takes two locks that conflict with nothing, and no transaction id.
BEGIN;
SELECT lease.guard('l/held', :held);
SELECT * FROM trace;
COMMIT;

--
-- No row version, no epoch
--

SELECT outcome, count(*)
	FROM (SELECT (lease.acquire('l/held', 'b')).outcome FROM generate_series(1, 200)) AS a GROUP BY outcome;
SELECT outcome, count(*)
	FROM (SELECT (lease.renew('l/held', :never)).outcome FROM generate_series(1, 200)) AS a GROUP BY outcome;
SELECT version = :'version' AS same_versions FROM version;
SELECT last_value = :last_value AS no_epoch_drawn FROM lease.epoch;

--
-- As a cross-check: one that wins
--

-- It leaves all of them.
BEGIN;
SELECT outcome FROM lease.acquire('l/released', 'a');
SELECT xid, advisory_locks, relation_locks > 0 AS relation_locks, xid_locks FROM trace;
ROLLBACK;

-- In that transaction an acquire that is refused gives back the lock that it took, and
-- not the one of the acquire that won.
BEGIN;
SELECT outcome FROM lease.acquire('l/revoked', 'a');
SELECT advisory_locks FROM trace;
SELECT outcome FROM lease.acquire('l/revoked', 'b');
SELECT outcome FROM lease.acquire('l/held', 'b');
SELECT advisory_locks FROM trace;
ROLLBACK;

--
-- No WAL
--

-- 200 refused calls, each in a transaction of its own, on a vacuumed table.  What other
-- processes write meanwhile is measured with it, so it is measured up to 20 times and
-- the least counts: nobody can make it less than it is.
CREATE PROCEDURE measure(sql text, INOUT bytes numeric) LANGUAGE plpgsql AS $$
DECLARE
	start pg_lsn;
BEGIN
	FOR attempt IN 1..20 LOOP
		start := pg_current_wal_insert_lsn();
		FOR i IN 1..200 LOOP
			EXECUTE sql;
			COMMIT;
		END LOOP;
		bytes := least(bytes, pg_current_wal_insert_lsn() - start);
		EXIT WHEN bytes = 0;
	END LOOP;
END;
$$;
VACUUM lease.lease;
CALL measure($$SELECT lease.acquire('l/held', 'b')$$, 1e9);
CALL measure($$SELECT lease.acquire('l/grace', 'b')$$, 1e9);
CALL measure($$SELECT lease.acquire('l/reserved', 'b')$$, 1e9);
CALL measure($$SELECT count(*) FROM lease.acquire_many('{l/held,l/reserved,l/grace}', 'b')$$, 1e9);
CALL measure($$SELECT lease.renew('l/held', 9223372036854775807)$$, 1e9);
CALL measure($$SELECT lease.release('l/held', 9223372036854775807)$$, 1e9);
CALL measure($$SELECT lease.holds('l/held', 9223372036854775807)$$, 1e9);
-- A call that changes something writes some, or this would measure nothing.
SET synchronous_commit = off;
CALL measure($$SELECT lease.renew(name, epoch) FROM lease.status WHERE name = 'l/held'$$, 1e9) \gset
SELECT :bytes > 0 AS renewals_write;
RESET synchronous_commit;

DROP VIEW trace, version;
DROP PROCEDURE measure;
SELECT lease.drop(name, force => true) FROM lease.status WHERE name LIKE 'l/%' \g /dev/null
