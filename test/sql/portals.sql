--
-- portals: a lock of a lease lasts as long as the change that it protects.
--
-- Probes G1 and G3.  A cursor that fails gives up what was booked on it, although what
-- its earlier rows did is not undone.  So the fence lock, which keeps COMMITs under the
-- old grant out until the new one is visible, belongs to the (sub)transaction in which
-- it was taken, and not to the cursor: it stays if the cursor fails, and it goes with
-- the savepoint whose rollback undoes the change.  (See also race_portal.)
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
RESET client_min_messages;

SELECT lease.create('po', ttl => '1 hour'), lease.create('po/2', ttl => '1 hour') \g /dev/null
SELECT epoch FROM lease.acquire('po', 'a') \gset

-- What this session holds in the lock classes of leases.
CREATE VIEW lease_lock AS
	SELECT CASE objsubid WHEN 27411 THEN 'fence' WHEN 27412 THEN 'presence' WHEN 27419 THEN 'guarded' ELSE objsubid::text END AS class, mode, count(*)
		FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'
		GROUP BY 1, 2 ORDER BY 1;

--
-- The cursor fails, and the change stays
--

-- The first row is a grant, the second an error.
BEGIN;
DECLARE c CURSOR FOR SELECT (lease.acquire('po', 'a', reclaim => true)).outcome
	UNION ALL SELECT (1 / (i - 1))::text FROM generate_series(1, 1) i;
FETCH 1 FROM c;
SELECT * FROM lease_lock;
SAVEPOINT s;
FETCH 1 FROM c;
ROLLBACK TO s;
SELECT epoch > :epoch AS granted FROM lease.status WHERE name = 'po';
SELECT * FROM lease_lock;
RELEASE s;
SELECT * FROM lease_lock;
ROLLBACK;
SELECT * FROM lease_lock;
SELECT lease.holds('po', :epoch);

-- A guard stays, too, and shows.
BEGIN;
DECLARE c CURSOR FOR SELECT lease.guard('po', :epoch)::text
	UNION ALL SELECT (1 / (i - 1))::text FROM generate_series(1, 1) i;
FETCH 1 FROM c;
SAVEPOINT s;
FETCH 1 FROM c;
ROLLBACK TO s;
SELECT lease.refuses('po');
SELECT * FROM lease_lock;
COMMIT;

-- The same with everything that takes the fence lock, in PL/pgSQL: what is held after
-- the cursor has failed in a block, and then after the change is undone.
CREATE FUNCTION fail_later(change text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	c refcursor;
	answer text;
	held text;
BEGIN
	BEGIN
		OPEN c FOR EXECUTE change || ' UNION ALL SELECT (1 / (i - 1))::text FROM generate_series(1, 1) i';
		FETCH c INTO answer;
		BEGIN
			FETCH c INTO answer;
		EXCEPTION WHEN division_by_zero THEN
			answer := answer || ', failed';
		END;
		held := (SELECT string_agg(class || ' ' || mode, ', ') FROM lease_lock);
		RAISE 'undo' USING ERRCODE = 'UNDO0';
	EXCEPTION WHEN SQLSTATE 'UNDO0' THEN
		NULL;
	END;
	RETURN format('%s: %s; then %s', answer, coalesce(held, 'nothing'),
		coalesce((SELECT string_agg(class || ' ' || mode, ', ') FROM lease_lock), 'nothing'));
END;
$$;
SELECT fail_later($$SELECT (lease.acquire('po', 'a', reclaim => true)).outcome$$);
SELECT fail_later($$SELECT outcome FROM lease.acquire_many('{po}', 'a', reclaim => true)$$);
SELECT fail_later(format($$SELECT lease.release('po', %s)::text$$, :epoch));
SELECT fail_later(format($$SELECT released::text FROM lease.release_many('{po}', '{%s}')$$, :epoch));
SELECT fail_later(format($$SELECT (lease.revoke('po') = %s)::text$$, :epoch));
SELECT fail_later($$SELECT 'altered' || lease.alter('po', late_commit => true)::text$$);
SELECT fail_later($$SELECT 'created' || lease.create('po/3')::text$$);
SELECT fail_later($$SELECT 'dropped' || lease.drop('po', force => true)::text$$);
-- A renewal takes none, and neither does whoever loses.
SELECT fail_later(format($$SELECT (lease.renew('po', %s)).outcome$$, :epoch));
SELECT fail_later($$SELECT (lease.acquire('po', 'b')).outcome$$);
SELECT fail_later($$SELECT lease.release('po', 9223372036854775807)::text$$);
SELECT lease.holds('po', :epoch);

--
-- The cursor lives on, and the change is undone
--

-- The first row is fetched outside of the savepoint, the second in it.
BEGIN;
DECLARE c CURSOR FOR SELECT n, (lease.acquire(n, 'a', reclaim => true)).outcome FROM unnest('{po,po/2}'::text[]) n;
FETCH 1 FROM c;
SELECT * FROM lease_lock;
SAVEPOINT s;
FETCH 1 FROM c;
SELECT * FROM lease_lock;
ROLLBACK TO s;
SELECT * FROM lease_lock;
SELECT name, state FROM lease.status WHERE name LIKE 'po%' ORDER BY name;
ROLLBACK;
SELECT * FROM lease_lock;

-- Released, the savepoint hands them up; a closed cursor takes nothing along.
BEGIN;
SAVEPOINT s;
DECLARE c CURSOR FOR SELECT n, (lease.acquire(n, 'a', reclaim => true)).outcome FROM unnest('{po,po/2}'::text[]) n;
FETCH ALL FROM c;
CLOSE c;
RELEASE s;
SELECT * FROM lease_lock;
ROLLBACK;
SELECT * FROM lease_lock;

DROP VIEW lease_lock CASCADE;
DROP FUNCTION fail_later;
SELECT lease.drop('po', force => true), lease.drop('po/2', force => true) \g /dev/null
