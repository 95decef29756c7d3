--
-- isolation_levels: the same result at every isolation level.
--
-- Rows are read with the latest snapshot and never with the transaction's own, so that
-- READ COMMITTED, REPEATABLE READ and SERIALIZABLE transactions get the same answers.
-- There is one exception, at the end of the scenario: a guard is refused where the
-- transaction's snapshot may not show what was committed under the epoch before.
-- (Transactions that run at the same time are left to the isolation tests.)
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
RESET client_min_messages;

CREATE TABLE guarded (x int);
CREATE TABLE answer (n int, level text, question text, answer text);

-- Puts a question, each in a transaction of its own.
CREATE FUNCTION put(n int, question text, sql text, variadic args bigint[] DEFAULT '{}') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	BEGIN
		EXECUTE sql INTO answer USING args[1], args[2];
	EXCEPTION WHEN OTHERS THEN
		answer := sqlstate;
	END;
	INSERT INTO answer VALUES (n, current_setting('transaction_isolation'), question, answer);
	RETURN answer;
END;
$$;

-- A transaction's level is set before its first query; so each begins with a COMMIT of
-- the one before.  The lease is named after the level.
CREATE PROCEDURE scenario(level text) LANGUAGE plpgsql AS $$
DECLARE
	il CONSTANT text := 'il/' || translate(level, ' ', '-');
	first bigint;
	second bigint;
	n int := 0;
BEGIN
	PERFORM set_config('default_transaction_isolation', level, false);
	COMMIT;
	PERFORM put(1, 'create', format('SELECT lease.create(%L, ttl => ''1 hour'')', il));
	PERFORM lease.protect('guarded', il, ddl => false);
	COMMIT;
	PERFORM put(2, 'acquire', format('SELECT outcome FROM lease.acquire(%L, ''a'')', il));
	COMMIT;
	first := (SELECT epoch FROM lease.status s WHERE s.name = il);
	COMMIT;
	PERFORM put(3, 'acquire by another', format('SELECT outcome FROM lease.acquire(%L, ''b'')', il));
	COMMIT;
	PERFORM put(4, 'renew', format('SELECT outcome FROM lease.renew(%L, $1)', il), first);
	COMMIT;
	PERFORM put(5, 'renew another epoch', format('SELECT outcome FROM lease.renew(%L, $1)', il), first + 1);
	COMMIT;
	PERFORM put(6, 'write without token', 'INSERT INTO guarded VALUES (1) RETURNING x');
	COMMIT;
	PERFORM put(7, 'guard and write', format('WITH g AS MATERIALIZED (SELECT lease.guard(%L, $1)) INSERT INTO guarded SELECT 2 FROM g RETURNING x', il), first);
	COMMIT;
	PERFORM put(8, 'reclaim', format('SELECT outcome FROM lease.acquire(%L, ''a'', reclaim => true)', il));
	COMMIT;
	second := (SELECT epoch FROM lease.status s WHERE s.name = il);
	COMMIT;
	PERFORM put(9, 'guard of the old epoch', format('SELECT lease.guard(%L, $1)', il), first);
	COMMIT;
	PERFORM put(10, 'renew of the old epoch', format('SELECT outcome FROM lease.renew(%L, $1)', il), first);
	COMMIT;
	PERFORM put(11, 'holds old, new', format('SELECT (lease.holds(%1$L, $1), lease.holds(%1$L, $2))', il), first, second);
	COMMIT;
	PERFORM put(12, 'release of the old epoch', format('SELECT lease.release(%L, $1)', il), first);
	COMMIT;
	PERFORM put(13, 'release', format('SELECT lease.release(%L, $1)', il), second);
	COMMIT;
	PERFORM put(14, 'state', format('SELECT state FROM lease.status WHERE name = %L', il));
	COMMIT;
	-- Everything in one transaction, after its snapshot has been taken.  The lease was
	-- free by then, so that nothing was committed under the epoch before since.
	PERFORM put(15, 'snapshot', 'SELECT count(*) FROM guarded WHERE x = 2');
	PERFORM put(16, 'acquire', format('SELECT outcome FROM lease.acquire(%L, ''a'')', il));
	PERFORM put(17, 'guard of the own grant', format('SELECT lease.guard(%1$L, epoch) IS NOT NULL FROM lease.status WHERE name = %1$L', il));
	PERFORM put(18, 'write', 'INSERT INTO guarded VALUES (3) RETURNING x');
	PERFORM put(19, 'renew', format('SELECT r.outcome FROM lease.status s, lease.renew(s.name, s.epoch) r WHERE s.name = %L', il));
	PERFORM put(20, 'release', format('SELECT lease.release(s.name, s.epoch) FROM lease.status s WHERE s.name = %L', il));
	COMMIT;
	PERFORM put(21, 'written', 'SELECT array_agg(x ORDER BY x) FROM guarded');
	COMMIT;
	PERFORM put(22, 'revoke', format('SELECT lease.revoke(%L)', il));
	COMMIT;
	PERFORM put(23, 'alter', format('SELECT lease.alter(%L, ttl => ''1 min'')', il));
	COMMIT;
	PERFORM put(24, 'drop', format('SELECT lease.drop(%L)', il));
	COMMIT;
	-- A takeover after expiry in such a transaction: work of the old holder may have been
	-- committed after the snapshot, for all that it shows.  That is the exception.
	PERFORM set_config('lease.clock_offset', '-7200 s', false);
	PERFORM lease.acquire(il, 'a');
	COMMIT;
	PERFORM set_config('lease.clock_offset', '0', false);
	COMMIT;
	PERFORM put(25, 'snapshot', 'SELECT count(*) FROM guarded WHERE x = 2');
	PERFORM put(26, 'take over', format('SELECT outcome FROM lease.acquire(%L, ''b'')', il));
	PERFORM put(27, 'guard of the own grant', format('SELECT lease.guard(%1$L, epoch) IS NOT NULL FROM lease.status WHERE name = %1$L', il));
	COMMIT;
	PERFORM put(28, 'guard in the next one', format('SELECT lease.guard(%1$L, epoch) IS NOT NULL FROM lease.status WHERE name = %1$L', il));
	COMMIT;
	PERFORM put(29, 'revoke', format('SELECT lease.revoke(%L) IS NOT NULL', il));
	COMMIT;
	PERFORM lease.unprotect('guarded');
	PERFORM put(30, 'drop', format('SELECT lease.drop(%L)', il));
	COMMIT;
	TRUNCATE guarded;
END;
$$;

CALL scenario('read committed');
CALL scenario('repeatable read');
CALL scenario('serializable');
RESET default_transaction_isolation;

SELECT question,
		max(answer) FILTER (WHERE level = 'read committed') AS read_committed,
		max(answer) FILTER (WHERE level = 'repeatable read') AS repeatable_read,
		max(answer) FILTER (WHERE level = 'serializable') AS serializable
	FROM answer GROUP BY n, question ORDER BY n;

-- Reading leases takes no predicate locks, nor does reporting progress, so that a
-- heartbeat is no reason for a serializable transaction to fail.
SELECT lease.create('il', ttl => '1 hour');
SELECT epoch FROM lease.acquire('il', 'a') \gset
SELECT lease.protect('guarded', 'il', ddl => false);
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT lease.guard('il', :epoch);
SELECT lease.holds('il', :epoch), outcome FROM lease.acquire('il', 'b');
SELECT state FROM lease.status WHERE name = 'il';
SELECT outcome FROM lease.renew('il', :epoch);
SELECT outcome FROM lease.renew('il', :epoch + 1);
SELECT lease.progress('il', :epoch), lease.beat('a');
SELECT lease.progress('il', :epoch), lease.beat('a');
INSERT INTO guarded VALUES (1);
PREPARE predicate_locks AS SELECT count(*) > 0 AS predicate_locks FROM pg_locks l
	WHERE l.pid = pg_backend_pid() AND l.mode = 'SIReadLock'
		AND l.relation IN (SELECT c.oid FROM pg_class c WHERE c.relnamespace = 'lease'::regnamespace);
EXECUTE predicate_locks;
-- An ordinary query of the table would have taken one.
SELECT count(*) FROM lease.lease;
EXECUTE predicate_locks;
COMMIT;

-- SERIALIZABLE READ ONLY DEFERRABLE, as pg_dump uses it.
BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE;
SELECT state, lease.holds('il', :epoch) FROM lease.status WHERE name = 'il';
SELECT count(*) FROM guarded;
COMMIT;

DROP TABLE guarded, answer;
DROP PROCEDURE scenario;
DROP FUNCTION put;
SELECT lease.drop('il', force => true), lease.retire('a');
