--
-- batches: acquire_many, renew_many and release_many.
--
-- Each lease on its own terms, in one transaction, sorted by name: one row for each,
-- in the order of names.  Probes G1, G2, G8 and G9 for the forms for many, and that
-- names in any order are taken in one order, so that two batches cannot deadlock.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
RESET client_min_messages;

SELECT count(lease.create(name, ttl => '1 hour')) FROM unnest('{a,B,b,c,d,e}'::text[]) AS name;

--
-- Order
--

-- Whatever the order of the arguments, byte by byte: capitals first.  Later names
-- have later epochs, since the leases are taken in that order.
SELECT name, outcome, holder, epoch > lag(epoch, 1, 0::bigint) OVER () AS rising
	FROM lease.acquire_many('{c,a,b,B}', 'x');
SELECT array_agg(name ORDER BY name COLLATE "C" DESC) AS names, array_agg(epoch ORDER BY name COLLATE "C" DESC) AS epochs
	FROM lease.status WHERE state = 'held' \gset

-- The same, by position: the n-th epoch belongs to the n-th name.
SELECT :'names' AS names;
SELECT r.name, r.outcome, r.epoch = s.epoch AS same
	FROM lease.renew_many(:'names', :'epochs') r JOIN lease.status s USING (name)
	ORDER BY r.name COLLATE "C";
SELECT name, outcome, epoch FROM lease.renew_many(:'names', (SELECT array_agg(e ORDER BY i DESC) FROM unnest(:'epochs'::bigint[]) WITH ORDINALITY u(e, i)));

--
-- Some of them only
--

-- Those that are free are granted, the others are rows that say why not.
SELECT name, outcome, epoch IS NOT NULL AS told, holder, remaining > '59 min' AS remaining
	FROM lease.acquire_many('{a,b,d,e}', 'y', metadata => '{"batch": 1}');
SELECT epoch AS a FROM lease.status WHERE name = 'a' \gset
SELECT epoch AS d FROM lease.status WHERE name = 'd' \gset
SELECT epoch AS e FROM lease.status WHERE name = 'e' \gset
SELECT name, metadata FROM lease.status WHERE holder = 'y' ORDER BY name;

-- All kinds of answers in one batch.
SELECT lease.release('d', :d), lease.revoke('e') = :e AS revoked;
SELECT lease.alter('c', grace => '10 min');
SELECT name, outcome, epoch FROM lease.renew_many(ARRAY['a','b','d','e'], ARRAY[:a, 1, :d, :e]::bigint[])
	WHERE name <> 'a';
SELECT name, released FROM lease.release_many(ARRAY['e','d','b','a'], ARRAY[:e, :d, 1, :a]::bigint[]);
SET lease.clock_offset = '3600 s';
SELECT name, outcome, remaining FROM lease.renew_many('{B,b,c}', (SELECT array_agg(epoch ORDER BY name COLLATE "C") FROM lease.status WHERE name IN ('B', 'b', 'c')));
SELECT name, released FROM lease.release_many('{B,b,c}', (SELECT array_agg(epoch ORDER BY name COLLATE "C") FROM lease.status WHERE name IN ('B', 'b', 'c')));
SELECT name, outcome FROM lease.acquire_many('{B,a,b,c,d,e}', 'z', '1 min');
RESET lease.clock_offset;
SELECT count(lease.revoke(name)) FROM unnest('{B,a,b,c,d,e}'::text[]) AS name;

-- With a ttl for all, which their renewals keep; and with another.
SELECT name, outcome, remaining BETWEEN '59 s' AND '1 min' AS minute FROM lease.acquire_many('{a,b}', 'x', ttl => '1 min');
SELECT array_agg(epoch ORDER BY name) AS epochs FROM lease.status WHERE name IN ('a', 'b') \gset
SET lease.clock_offset = '30 s';
SELECT name, outcome, remaining BETWEEN '59 s' AND '1 min' AS minute FROM lease.renew_many('{a,b}', :'epochs');
SELECT name, outcome, remaining BETWEEN '119 s' AND '2 min' AS two_minutes FROM lease.renew_many('{a,b}', :'epochs', '2 min');
RESET lease.clock_offset;

-- Reclaim applies to each that has that holder.
SELECT lease.release('b', (:'epochs'::bigint[])[2]);
SELECT outcome FROM lease.acquire('b', 'other');
SELECT name, outcome, epoch > (:'epochs'::bigint[])[1] AS greater FROM lease.acquire_many('{a,b,c}', 'x', reclaim => true);
SELECT lease.holds('a', (:'epochs'::bigint[])[1]);

-- Successor and reserve, too.
SELECT array_agg(epoch ORDER BY name) AS epochs FROM lease.status WHERE name IN ('a', 'c') \gset
SELECT * FROM lease.release_many('{a,c}', :'epochs', 'heir', '10 min');
SELECT name, outcome FROM lease.acquire_many('{a,b,c}', 'x');
SELECT name, outcome FROM lease.acquire_many('{a,b,c}', 'heir');

--
-- All or nothing where something cannot be
--

-- A lease that does not exist is an error for acquire: the batch is undone.
SELECT count(lease.revoke(name)) FROM unnest('{a,b,c}'::text[]) AS name;
SELECT * FROM lease.acquire_many('{a,nobody-created-this}', 'x');
SELECT name, state FROM lease.status WHERE name = 'a';
-- A heartbeat for many must not stop because one of them is gone.
SELECT * FROM lease.renew_many('{nobody-created-this}', '{1}');

-- Releasing what is not held is false, also if there is no such lease (G9).
SELECT * FROM lease.release_many('{a,nobody-created-this}', '{1,1}');

-- Nothing is renewed if the transaction rolls back.
SELECT epoch FROM lease.acquire('a', 'x', '1 min') \gset
BEGIN;
SELECT name, outcome FROM lease.renew_many('{a}', ARRAY[:epoch]::bigint[], '2 hours');
ROLLBACK;
SELECT lease.remaining('a', :epoch) < '1 min' AS not_renewed;

--
-- Arguments
--

-- None at all.
SELECT * FROM lease.acquire_many('{}', 'x');
SELECT * FROM lease.renew_many('{}', '{}');
SELECT * FROM lease.release_many('{}', '{}');

-- Twice the same, nulls, lists of different lengths, two dimensions, names that
-- cannot be, epochs that cannot be.
SELECT * FROM lease.acquire_many('{a,b,a}', 'x');
SELECT * FROM lease.renew_many('{a,a}', ARRAY[:epoch, :epoch]::bigint[]);
SELECT * FROM lease.release_many('{a,a}', ARRAY[:epoch, :epoch]::bigint[]);
SELECT * FROM lease.acquire_many('{a,NULL}', 'x');
SELECT * FROM lease.acquire_many(NULL, 'x');
SELECT * FROM lease.renew_many('{a,b}', '{1,NULL}');
SELECT * FROM lease.renew_many('{a}', NULL);
SELECT * FROM lease.renew_many(NULL, '{1}');
SELECT * FROM lease.renew_many('{a,b}', '{1}');
SELECT * FROM lease.renew_many('{a}', '{}');
SELECT * FROM lease.release_many('{a}', '{1,2}');
SELECT * FROM lease.acquire_many('{{a,b},{c,d}}', 'x');
SELECT * FROM lease.renew_many('{a}', '{{1}}');
SELECT * FROM lease.acquire_many('{a,"b c"}', 'x');
SELECT * FROM lease.acquire_many('{a,""}', 'x');
SELECT * FROM lease.renew_many('{a}', '{0}');
SELECT * FROM lease.renew_many('{a}', '{-1}');
SELECT * FROM lease.acquire_many('{b}', NULL);
SELECT * FROM lease.acquire_many('{b}', 'x', '1 month');
SELECT * FROM lease.release_many('{a}', '{1}', reserve => '1 min');

-- The lower bound of an array is of no interest.
SELECT name, outcome FROM lease.renew_many('[5:5]={a}', ARRAY[:epoch]::bigint[]);

-- As many as there may be locks: 1000.  Renewals take none, and may be more.
SELECT count(lease.create('many-' || i)) FROM generate_series(1, 1200) i;
SELECT * FROM lease.acquire_many((SELECT array_agg('many-' || i) FROM generate_series(1, 1001) i), 'x');
SELECT * FROM lease.release_many((SELECT array_agg('many-' || i) FROM generate_series(1, 1001) i), (SELECT array_agg(1) FROM generate_series(1, 1001) i));
SELECT outcome, count(*), count(DISTINCT epoch) AS epochs, count(DISTINCT acquired_at) <= 1000 AS one_transaction
	FROM lease.acquire_many((SELECT array_agg('many-' || i) FROM generate_series(1, 1000) i), 'x') GROUP BY outcome;
SELECT outcome, count(*) FROM lease.acquire_many((SELECT array_agg('many-' || i) FROM generate_series(1001, 1200) i), 'x') GROUP BY outcome;

-- So many renewals in one commit, without a lock on any of them.
BEGIN;
SELECT outcome, count(*), min(remaining) > '1 min 59 s' AS remaining
	FROM lease.renew_many((SELECT array_agg(name) FROM lease.status WHERE name LIKE 'many-%'),
		(SELECT array_agg(epoch) FROM lease.status WHERE name LIKE 'many-%'), '2 min') GROUP BY outcome;
SELECT count(*) AS advisory_locks FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory';
COMMIT;
-- A second renewal of the same in that same transaction sees the first.
BEGIN;
SELECT outcome, count(*), min(remaining) > '2 min 59 s' AS remaining
	FROM generate_series(1, 3) i, LATERAL lease.renew_many((SELECT array_agg(name) FROM lease.status WHERE name LIKE 'many-%'),
		(SELECT array_agg(epoch) FROM lease.status WHERE name LIKE 'many-%'), interval '3 min' + i * interval '1 s') GROUP BY outcome;
COMMIT;
SELECT released, count(*) FROM lease.release_many((SELECT array_agg(name) FROM lease.status WHERE name LIKE 'many-%' AND length(name) < 9),
		(SELECT array_agg(epoch) FROM lease.status WHERE name LIKE 'many-%' AND length(name) < 9)) GROUP BY released;
SELECT state, count(*) FROM lease.status WHERE name LIKE 'many-%' GROUP BY state ORDER BY state;

-- A refused batch of so many keeps no lock (G8).
BEGIN;
SELECT outcome, count(*) FROM lease.acquire_many((SELECT array_agg(name) FROM lease.status WHERE name LIKE 'many-%' AND state = 'held'), 'y') GROUP BY outcome;
SELECT count(*) AS locks FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory';
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;

-- In the select list of a query they work as well.
SELECT lease.release_many('{a}', ARRAY[:epoch]::bigint[]);
SELECT (r).outcome FROM (SELECT lease.acquire_many('{a,b}', 'x') AS r OFFSET 0) AS s;

SELECT count(lease.drop(name, force => true)) FROM lease.status
	WHERE name LIKE 'many-%' OR name IN ('a', 'B', 'b', 'c', 'd', 'e');
