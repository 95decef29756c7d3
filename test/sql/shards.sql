--
-- shards: lease.acquire_any and lease.share, many leases of which any will do.
--
-- Probes G1, G8 and G10 for them, and section 5.1 of the contract: what is free is
-- granted and nothing else, each at most once; a name that is wrong is an error at every
-- call; what a pattern does not find, or the user may not have, is passed over; and that
-- shares add up to the whole.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
CREATE ROLE regress_shards_own;
CREATE ROLE regress_shards_other;
SELECT lease.allow('regress_shards_own'), lease.allow('regress_shards_other') \g /dev/null
RESET client_min_messages;

-- Where a holder begins depends on its name; so names are shown in order.
CREATE FUNCTION any_of(names text[], holder text, up_to int DEFAULT 1) RETURNS text LANGUAGE sql AS $$
	SELECT coalesce(string_agg(a.name, ' ' ORDER BY a.name COLLATE "C"), 'none')
		FROM lease.acquire_any(any_of.names, any_of.holder, any_of.up_to) AS a
$$;
CREATE FUNCTION give_back() RETURNS bigint LANGUAGE sql AS $$
	SELECT count(*) FROM lease.status s WHERE s.name ~ '^(any|shard|seat)' AND lease.release(s.name, s.epoch)
$$;

SELECT lease.create('any/' || name, ttl => '1 hour') FROM unnest('{a,b,b1,b2,c,B}'::text[]) AS name \g /dev/null
SELECT lease.create('anybody', ttl => '1 hour');

--
-- Names and patterns
--

-- One, of one or of many; a row says what acquire says.
SELECT name, outcome, epoch IS NOT NULL AS told, holder, remaining > '59 min' AS remaining, handover, successor
	FROM lease.acquire_any('{any/a}', 'h');
SELECT count(*) AS granted, bool_and(name LIKE 'any/%' AND name <> 'any/a') AS of_the_pool FROM lease.acquire_any('{any/*}', 'h');
SELECT give_back();
-- What is wanted at most, and what there is; each lease once, however often it is meant.
SELECT any_of('{any/b*}', 'h', 2) IN ('any/b any/b1', 'any/b1 any/b2', 'any/b any/b2') AS two;
SELECT give_back();
SELECT any_of('{any/b,any/b*,any/b1,any/b1,any/*,any/b*}', 'h', 1000);
SELECT give_back();
SELECT any_of('{any/b1,any/c}', 'h', 1000), any_of('{any*}', 'h', 1000);
SELECT give_back();
-- All there are; those that begin with a letter, and a case is a case.
SELECT count(*) = (SELECT count(*) FROM lease.status) AS all_of_them FROM lease.acquire_any('{*}', 'h', 1000);
SELECT count(*) = (SELECT count(*) FROM lease.status) AS all_of_them FROM lease.status WHERE lease.release(name, epoch);
SELECT any_of('{any/B*}', 'h', 5), any_of('{any/b2*}', 'h', 5), any_of('{any/b2/*}', 'h', 5), any_of('{nobody*}', 'h', 5);
SELECT give_back();
-- As long as a name may be.
SELECT any_of(ARRAY[repeat('x', 127) || '*'], 'h'), any_of('{}', 'h');

-- Settings of the grant
SELECT remaining > '59 min' AND remaining <= '1 hour' AS by_default FROM lease.acquire_any('{any/a}', 'h');
SELECT give_back();
SELECT name, remaining > '9 min' AND remaining <= '10 min' AS as_asked FROM lease.acquire_any('{any/a}', 'h', ttl => '10 min', metadata => '{"pid": 1}');
SELECT metadata FROM lease.status WHERE name = 'any/a';
SELECT give_back();

--
-- What is not free is passed over: no row, no error, no trace
--
SELECT outcome FROM lease.acquire('any/a', 'x');
SELECT epoch FROM lease.acquire('any/b', 'x') \gset
SELECT lease.release('any/b', :epoch, successor => 'next', reserve => '1 hour');
SELECT lease.alter('any/c', grace => '2 hours');
SELECT outcome FROM lease.acquire('any/c', 'x', ttl => '1 min');
-- It was released, but had not been held for as long as that.
SELECT lease.alter('any/B', min_hold => '2 hours');
-- It has expired, and is taken over.
SELECT outcome FROM lease.acquire('any/b1', 'x', ttl => '1 min');
SET lease.clock_offset = '5min';
SELECT name, state FROM lease.status WHERE name LIKE 'any/%' ORDER BY name COLLATE "C";
SELECT any_of('{any/*}', 'h', 1000);
-- Nothing is left; the one who holds them is not given them again.
SELECT any_of('{any/*}', 'h', 1000), any_of('{any/a}', 'h'), any_of('{any/b,any/B,any/c}', 'x', 3);
BEGIN;
SELECT any_of('{any/*}', 'h', 1000);
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_transaction_id, count(*) AS locks FROM pg_locks
	WHERE pid = pg_backend_pid() AND (locktype = 'advisory' OR relation IN ('lease.lease'::regclass, 'lease.event'::regclass) AND mode = 'RowExclusiveLock');
COMMIT;
-- It was reserved to somebody.
SELECT any_of('{any/*}', 'next', 1000);
SELECT kind, holder FROM lease.history('any/b1') OFFSET 1;
RESET lease.clock_offset;
-- A grant that is rolled back is none.
SELECT lease.revoke(name) > 0 AS revoked FROM lease.status WHERE name IN ('any/a', 'any/b1') ORDER BY name;
BEGIN;
SELECT any_of('{any/a,any/b1}', 'h', 2);
SAVEPOINT s;
SELECT any_of('{any/a,any/b1}', 'h', 2);
ROLLBACK TO s;
SELECT any_of('{any/a,any/b1}', 'h2', 2);
ROLLBACK;
SELECT any_of('{any/a,any/b1}', 'h2', 2);

--
-- Whose leases
--
SELECT lease.create('shard/own/' || i, role => 'regress_shards_own', ttl => '1 hour') FROM generate_series(1, 3) AS i \g /dev/null
SELECT lease.create('shard/other/' || i, role => 'regress_shards_other', ttl => '1 hour') FROM generate_series(1, 3) AS i \g /dev/null
SET ROLE regress_shards_own;
SELECT any_of('{*}', 'h', 1000);
SELECT any_of('{shard/other/*}', 'h', 1000);
SELECT any_of('{shard/other/1}', 'h');
SELECT lease.release(name, epoch) FROM lease.status WHERE name LIKE 'shard/own/%';
-- One that is named is an error, also beside others of which one would do; the others
-- are not taken then.
SELECT any_of('{shard/own/1,shard/own/2,shard/own/3,shard/other/1}', 'h');
SELECT any_of('{shard/*,shard/other/1}', 'h');
SELECT any_of('{shard/own/1,shard/own/2,shard/own/3,shard/nobody}', 'h1');
SELECT any_of('{shard/own/1,shard/own/2,shard/own/3,shard/nobody}', 'h2');
SELECT any_of('{shard/own/*}', 'h', 1000);
RESET ROLE;
SELECT give_back();
-- With lease.auto_create what is named is made, as by acquire; what is not needed is not.
SET lease.auto_create = on;
SELECT any_of('{any/new}', 'h'), any_of('{any/new,any/newer*}', 'h2');
SELECT count(*) FROM lease.status WHERE name LIKE 'any/new%';
RESET lease.auto_create;

--
-- Bad input
--
\set VERBOSITY terse
SELECT any_of('{**}', 'h');
SELECT any_of('{any/**}', 'h');
SELECT any_of('{a*b}', 'h');
SELECT any_of('{*a}', 'h');
SELECT any_of('{/*}', 'h');
SELECT any_of('{any%}', 'h');
SELECT any_of('{"any *"}', 'h');
SELECT any_of('{""}', 'h');
SELECT any_of(ARRAY[repeat('x', 128) || '*'], 'h');
SELECT any_of('{nobody}', 'h');
SELECT any_of('{any/a,NULL}', 'h');
SELECT any_of('{{any/a},{any/b}}', 'h');
SELECT any_of(NULL, 'h');
SELECT any_of('{any/a}', NULL);
SELECT any_of('{any/a}', '');
SELECT any_of('{any/a}', 'h', NULL);
SELECT any_of('{any/a}', 'h', 0);
SELECT any_of('{any/a}', 'h', -1);
SELECT any_of('{any/a}', 'h', 1001);
SELECT lease.acquire_any('{any/a}', 'h', 1, '0');
SELECT lease.acquire_any('{any/a}', 'h', 1, '1 month');
SELECT lease.acquire_any('{any/a}', 'h', 1, NULL, to_jsonb(repeat('x', 1025)));
BEGIN READ ONLY;
SELECT lease.acquire_any('{any/a}', 'h');
ROLLBACK;
\set VERBOSITY sqlstate

--
-- Each holder begins elsewhere, so that they do not all want the same
--
SELECT lease.create('shard/' || to_char(i, 'FM00'), ttl => '1 hour') FROM generate_series(1, 64) AS i \g /dev/null
SET client_min_messages = warning;
SELECT lease.drop(name, force => true) FROM lease.status WHERE name LIKE 'shard/o%' \g /dev/null
RESET client_min_messages;
CREATE TABLE begun AS SELECT h.holder, a.name, lease.release(a.name, a.epoch)
	FROM (SELECT 'h' || i AS holder FROM generate_series(1, 32) AS i) AS h, LATERAL lease.acquire_any('{shard/*}', h.holder) AS a;
SELECT count(*) AS holders, count(DISTINCT name) > 8 AS begin_at_many_places, bool_and(release) AS released FROM begun;
-- The same always begins at the same, and goes on from there.
SELECT a.name = b.name AS again, lease.release(a.name, a.epoch) FROM lease.acquire_any('{shard/*}', 'h7') a, begun b WHERE b.holder = 'h7';
WITH a AS (SELECT a.name, row_number() OVER () AS n FROM lease.acquire_any('{shard/*}', 'h7', 64) AS a)
SELECT count(*), count(DISTINCT a.name), bool_and(right(a.name, 2)::int = (right(b.name, 2)::int + a.n - 2) % 64 + 1) AS in_a_ring
	FROM a, begun b WHERE b.holder = 'h7';
SELECT give_back();

--
-- Shares
--
CREATE FUNCTION hold(holder text, count int) RETURNS bigint LANGUAGE sql AS $$
	SELECT count(*) FROM lease.acquire_any('{shard/*}', hold.holder, hold.count)
$$;
CREATE FUNCTION shares(holders text[], members int DEFAULT NULL)
RETURNS TABLE (holder text, leases bigint, held bigint, target bigint, take bigint, hand_over int) LANGUAGE sql AS $$
	SELECT h, s.leases, s.held, s.target, s.take, cardinality(s.hand_over)
		FROM unnest(shares.holders) AS h, LATERAL lease.share('shard/*', h, shares.members) AS s ORDER BY 1
$$;

-- Nobody there: all of it, or the part of a known number of members; who asks is one.
SELECT * FROM shares('{a}');
SELECT * FROM shares('{a,b}', 8);
-- 64 over 8 is 8 for each, whoever has how many.
SELECT hold('a', 20), hold('b', 9), hold('c', 8), hold('d', 1);
SELECT * FROM shares('{a,b,c,d,e}', 8);
-- What is to be handed over is what is held beyond that, the last names first to go.
SELECT cardinality(s.hand_over) AS count, s.hand_over = (SELECT array_agg(name ORDER BY name COLLATE "C") FROM
			(SELECT name, row_number() OVER (ORDER BY name COLLATE "C") AS n FROM lease.status WHERE holder = 'a' AND state = 'held') AS l WHERE n > 8) AS the_last
	FROM lease.share('shard/*', 'a', 8) AS s;
-- Without a number: those who hold something, and who asks.
SELECT * FROM shares('{a,b,c,d}');
SELECT * FROM shares('{e}');
-- And those who have said that they are there and are not stale.
SELECT lease.beat('e'), lease.beat('f'), lease.beat('a'), lease.beat('late', stale_after => '1 min') \g /dev/null
SELECT * FROM shares('{a,e,f}');
SET lease.clock_offset = '25s';
SELECT lease.beat('e'), lease.beat('f'), lease.beat('a') \g /dev/null
SET lease.clock_offset = '50s';
SELECT * FROM shares('{a,e,f,late}');
SET lease.clock_offset = '61s';
SELECT * FROM shares('{e}');
RESET lease.clock_offset;
-- A number that is given overrides that.
SELECT * FROM shares('{a,e}', 4);
SELECT lease.retire('e'), lease.retire('f'), lease.retire('a'), lease.retire('late') \g /dev/null
-- A grant that is over counts for nothing.
SET lease.clock_offset = '2h';
SELECT * FROM shares('{a,e}');
RESET lease.clock_offset;
SELECT give_back();

-- What cannot be divided stays with those who have most, then by name; shares add up
-- to the whole, and who holds its share is left alone.
SELECT hold('a', 10), hold('b', 9), hold('c', 12), hold('d', 10), hold('e', 9), hold('f', 9), hold('g', 5);
SELECT * FROM shares('{a,b,c,d,e,f,g}');
SELECT members, sum(s.target) AS targets, min(s.target), max(s.target), min(s.take - cardinality(s.hand_over) + s.held - s.target) AS exact
	FROM unnest('{a,b,c,d,e,f,g}'::text[]) AS h, (VALUES (NULL::int), (7)) AS m(members), LATERAL lease.share('shard', h, members) AS s GROUP BY 1 ORDER BY 1;
SELECT give_back();
-- More members than leases: one each for as many as there are.
SELECT hold('a', 2), hold('b', 1);
SELECT * FROM shares('{a,b,c}', 100);
SELECT give_back();

-- Of nothing, of a lease by name, with a star and without.
SELECT * FROM lease.share('nobody/*', 'a');
SELECT * FROM lease.share('shard/07', 'a');
SELECT leases FROM lease.share('shard/0*', 'a');
SELECT leases = (SELECT count(*) FROM lease.status) AS all_of_them FROM lease.share('*', 'a');
SELECT * FROM lease.share('no % pattern_', 'a');
\set VERBOSITY terse
SELECT lease.share(NULL, 'a');
SELECT lease.share('shard/*', NULL);
SELECT lease.share('shard/*', 'a', 0);
SELECT lease.share('shard/*', 'a', -1);
\set VERBOSITY sqlstate

-- Take and hand over until nothing is left to do: a round for each change is enough
-- where the members come one after another.
CREATE FUNCTION deal(members text[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	member text;
	to_do record;
	moved bigint := 0;
	done bigint;
BEGIN
	FOREACH member IN ARRAY members LOOP
		SELECT * INTO to_do FROM lease.share('shard/*', member, cardinality(members));
		SELECT count(*) INTO done FROM lease.release_many(to_do.hand_over,
			ARRAY(SELECT s.epoch FROM unnest(to_do.hand_over) WITH ORDINALITY AS h(name, i) JOIN lease.status s USING (name) ORDER BY h.i));
		moved := moved + done;
		IF to_do.take > 0 THEN
			SELECT count(*) INTO done FROM lease.acquire_any('{shard/*}', member, to_do.take::int);
			moved := moved + done;
		END IF;
	END LOOP;
	RETURN (SELECT string_agg(n::text, ' ' ORDER BY n, holder) FROM (SELECT holder, count(*) AS n FROM lease.status
		WHERE name LIKE 'shard/%' AND state = 'held' GROUP BY holder) AS h) || ', ' || moved || ' moved';
END;
$$;
SELECT deal('{a,b,c}') AS three;
SELECT deal('{a,b,c}') AS no_more;
SELECT deal('{a,b,c,d}') AS one_more;
SELECT deal('{a,b,c,d}') AS no_more;
SELECT deal('{a,b,c,d,e,f,g,h}') AS eight;
SELECT deal('{a,b,c,d,e,f,g,h}') AS no_more;
SELECT count(lease.release(name, epoch)) FROM lease.status WHERE holder = 'c' AND state = 'held';
SELECT deal('{a,b,d,e,f,g,h}') AS one_less;
SELECT deal('{a,b,d,e,f,g,h}') AS no_more;
SELECT give_back();

--
-- A semaphore of three seats
--
SELECT lease.create('seat/' || i, ttl => '1 min') FROM generate_series(1, 3) AS i \g /dev/null
SELECT h, (SELECT count(*) FROM lease.acquire_any('{seat/*}', h)) AS seats FROM unnest('{a,b,c,d}'::text[]) AS h;
SELECT lease.release(name, epoch) FROM lease.status WHERE name LIKE 'seat/%' AND holder = 'b';
SELECT h, (SELECT count(*) FROM lease.acquire_any('{seat/*}', h)) AS seats FROM unnest('{d,e}'::text[]) AS h;
SET lease.clock_offset = '2min';
SELECT count(*), count(DISTINCT holder) FROM lease.acquire_any('{seat/*}', 'f', 3);
RESET lease.clock_offset;
SELECT count(*) AS not_verified FROM lease.verify_history() WHERE NOT verified;

SET client_min_messages = warning;
SELECT lease.drop(name, force => true) FROM lease.status WHERE name ~ '^(any|shard|seat)' \g /dev/null
DROP FUNCTION any_of, give_back, hold, shares, deal;
DROP TABLE begun;
SELECT lease.disallow('regress_shards_own'), lease.disallow('regress_shards_other') \g /dev/null
DROP ROLE regress_shards_own, regress_shards_other;
