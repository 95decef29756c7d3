--
-- lifecycle: the life of a grant: acquire, renew, release, revoke, reclaim.
--
-- Probes G1 (one live grant at a time), G2 (a new grant has a greater epoch),
-- G9 (releasing what is not held is false and changes nothing) and G10
-- (ambiguity resolves against the claimant).
--
-- Errors are shown by their SQLSTATE; the test "messages" shows what they say.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
RESET client_min_messages;

SELECT lease.create('planner', ttl => '1 hour');

-- Where a row is and who wrote it: equal means that it is byte by byte the same.
CREATE VIEW planner AS
	SELECT ctid, xmin, l.* FROM lease.lease l WHERE name = 'planner';

--
-- Acquire (G1)
--

-- A lease that was never granted is free.  The grant begins with the transaction
-- and lasts for the ttl; "remaining" is measured a little later.
SELECT name, outcome, epoch > 0 AS has_epoch, holder,
		acquired_at - now() BETWEEN '-1 s' AND '1 s' AS from_transaction_start,
		expires_at - acquired_at AS ttl,
		remaining > '59 min' AND remaining < '1 hour' AS remaining_is_less,
		epoch AS first_epoch
	FROM lease.acquire('planner', 'host-a/100/1') \gset first_
\echo :first_name :first_outcome :first_has_epoch :first_holder :first_from_transaction_start :first_ttl :first_remaining_is_less
\set first :first_first_epoch

-- Another holder loses.  That is a row and not an error, it tells whose the lease
-- is, and it has no epoch, so that nobody walks off with another's token.
SELECT name, outcome, epoch, holder, acquired_at IS NOT NULL AS acquired,
		remaining > '59 min' AS shows_remaining
	FROM lease.acquire('planner', 'host-b/200/1');

-- Also a second process that calls itself by the same name (three leaders on one
-- host, because the identity was the host name).
SELECT outcome, epoch FROM lease.acquire('planner', 'host-a/100/1');

-- Asking for the lease again and again changes nothing of it.
SELECT ctid AS ctid, xmin AS xmin FROM planner \gset before_
SELECT outcome, count(*)
	FROM (SELECT (lease.acquire('planner', 'host-' || i)).outcome FROM generate_series(1, 20) i) AS a
	GROUP BY outcome;
SELECT ctid = :'before_ctid' AND xmin::text = :'before_xmin' AS same_version FROM planner;

--
-- Renew: by the exact epoch, nothing else
--

SELECT outcome, epoch = :first AS same_epoch, holder FROM lease.renew('planner', :first);

-- Again, because the answer to that was lost on its way: a renewal changes nothing that
-- its holder would have to know.
SELECT outcome, epoch = :first AS same_epoch FROM lease.renew('planner', :first);

-- Any other epoch has lost, and the row is left byte by byte as it was: whether it was
-- never granted or, further down, is over.  (A system elsewhere let any node renew the
-- leader's row.)
SELECT md5(p::text) AS row FROM planner p \gset before_
SELECT outcome, epoch, holder FROM lease.renew('planner', :first + 1);
SELECT outcome, epoch, holder FROM lease.renew('planner', 9223372036854775807);
SELECT md5(p::text) = :'before_row' AS unchanged FROM planner p;

-- Whoever holds is known by the epoch alone.
SELECT lease.holds('planner', :first), lease.remaining('planner', :first) > '59 min' AS remaining;
SELECT lease.holds('planner', :first + 1), lease.remaining('planner', :first + 1);

--
-- Release (G9)
--

-- What is not held cannot be released; the answer is false, whatever is missing,
-- and nothing has changed.
SELECT lease.release('planner', :first + 1) AS other_epoch,
		lease.release('planner', 0) AS zero,
		lease.release('planner', -:first) AS negative,
		lease.release('planner', NULL) AS no_epoch,
		lease.release(NULL, :first) AS no_name,
		lease.release('', :first) AS empty_name,
		lease.release('no such name', :first) AS impossible_name,
		lease.release('nobody-created-this', :first) AS unknown_name,
		lease.release('PLANNER', :first) AS other_case;
SELECT md5(p::text) = :'before_row' AS unchanged FROM planner p;

-- What is held can, once.
SELECT lease.release('planner', :first);
SELECT md5(p::text) AS row FROM planner p \gset before_
SELECT lease.release('planner', :first);
SELECT md5(p::text) = :'before_row' AS unchanged FROM planner p;

-- It is over at once.
SELECT lease.holds('planner', :first), lease.remaining('planner', :first);
SELECT outcome, epoch, holder, remaining FROM lease.renew('planner', :first);
SELECT lease.guard('planner', :first);

--
-- Acquire again (G2)
--

-- The same holder gets a greater epoch, and the old one is superseded.
SELECT outcome, epoch > :first AS greater, epoch FROM lease.acquire('planner', 'host-a/100/1') \gset second_
\echo :second_outcome :second_greater
SELECT outcome, epoch, holder FROM lease.renew('planner', :first);
SELECT lease.release('planner', :first), lease.holds('planner', :first);
SELECT lease.guard('planner', :first);

-- A hundred cycles: each epoch is greater than the one before.
CREATE TABLE cycle (n int, epoch bigint);
SELECT lease.release('planner', :second_epoch);
DO $$
DECLARE
	granted lease.reply;
BEGIN
	FOR i IN 1..100 LOOP
		granted := lease.acquire('planner', 'host-a/100/1');
		INSERT INTO cycle VALUES (i, granted.epoch);
		PERFORM lease.release('planner', granted.epoch);
		COMMIT;
	END LOOP;
END;
$$;
SELECT count(*) AS cycles, min(epoch) > :second_epoch AS greater_than_before,
		bool_and(rises) AS rising
	FROM (SELECT epoch, epoch > lag(epoch, 1, 0::bigint) OVER (ORDER BY n) AS rises FROM cycle) c;

--
-- Reclaim: the same incarnation has lost its token
--

SELECT epoch FROM lease.acquire('planner', 'host-a/100/2') \gset lost_

-- The answer to that did not arrive.  Nobody else can reclaim, and who does not say
-- that it has lost its token does not get another one.
SELECT outcome, epoch FROM lease.acquire('planner', 'host-b/200/1', reclaim => true);
SELECT outcome, epoch FROM lease.acquire('planner', 'host-a/100/1', reclaim => true);
SELECT outcome, epoch FROM lease.acquire('planner', 'host-a/100/2');

-- It gets a new epoch; the lost one, should it turn up, is dead.
SELECT outcome, epoch > :lost_epoch AS greater, epoch
	FROM lease.acquire('planner', 'host-a/100/2', reclaim => true) \gset reclaimed_
\echo :reclaimed_outcome :reclaimed_greater
SELECT outcome FROM lease.renew('planner', :lost_epoch);
SELECT outcome FROM lease.renew('planner', :reclaimed_epoch);

-- On a lease that is free, reclaim makes no difference.
SELECT lease.release('planner', :reclaimed_epoch);
SELECT outcome, epoch > :reclaimed_epoch AS greater, epoch
	FROM lease.acquire('planner', 'host-b/200/1', reclaim => true) \gset free_
\echo :free_outcome :free_greater

--
-- Revoke: an administrator takes it back
--

-- It returns the epoch that it ended, and then there is none to end.
SELECT lease.revoke('planner', 'maintenance') = :free_epoch AS ended;
SELECT lease.revoke('planner', 'maintenance');
SELECT outcome, epoch, holder, remaining FROM lease.renew('planner', :free_epoch);
SELECT lease.release('planner', :free_epoch), lease.holds('planner', :free_epoch);
SELECT lease.guard('planner', :free_epoch);

-- Anybody may acquire at once, the old holder, too.
SELECT outcome, epoch > :free_epoch AS greater, epoch FROM lease.acquire('planner', 'host-b/200/1') \gset last_
\echo :last_outcome :last_greater

--
-- Release to a successor
--

-- A successor needs no time, but a time needs a successor.
SELECT lease.release('planner', :last_epoch, reserve => '10 min');
SELECT lease.release('planner', :last_epoch, 'host-c/300/1');
SELECT outcome, epoch, holder FROM lease.acquire('planner', 'host-b/200/1');
SELECT outcome, epoch > :last_epoch AS greater, holder FROM lease.acquire('planner', 'host-c/300/1');
SELECT lease.revoke('planner') > :last_epoch AS revoked;

-- Who gives it to itself may have it back.
SELECT epoch FROM lease.acquire('planner', 'host-b/200/1') \gset
SELECT lease.release('planner', :epoch, 'host-b/200/1', '10 min');
SELECT outcome FROM lease.acquire('planner', 'host-c/300/1');
SELECT outcome FROM lease.acquire('planner', 'host-b/200/1');
SELECT lease.revoke('planner') IS NOT NULL AS revoked;

--
-- What does not exist (G10)
--

-- A typing error must not make a second leader: it is an error to acquire, renew,
-- revoke and guard a lease that does not exist.  To ask about it is not.
SELECT lease.acquire('planer', 'host-a/100/1');
SELECT lease.renew('planer', 1);
SELECT lease.revoke('planer');
SELECT lease.guard('planer', 1);
SELECT lease.release('planer', 1), lease.holds('planer', 1), lease.remaining('planer', 1);

-- A lease that exists but was never granted.
SELECT lease.create('newborn');
SELECT outcome, epoch, holder, acquired_at, expires_at, remaining FROM lease.renew('newborn', 1);
SELECT lease.release('newborn', 1), lease.holds('newborn', 1), lease.remaining('newborn', 1);
SELECT lease.revoke('newborn');
SELECT lease.guard('newborn', 1);

-- Missing, zero and negative epochs are never those of a grant.
SELECT epoch FROM lease.acquire('newborn', 'host-a/100/1') \gset
SELECT lease.holds('newborn', NULL), lease.holds('newborn', 0), lease.holds('newborn', -1),
		lease.holds(NULL, :epoch), lease.holds('', :epoch), lease.holds(NULL, NULL);
SELECT lease.remaining('newborn', NULL) AS a, lease.remaining('newborn', 0) AS b,
		lease.remaining(NULL, :epoch) AS c;
SELECT lease.guard('newborn', NULL);
SELECT lease.guard('newborn', 0);
SELECT lease.guard('newborn', -1);
SELECT lease.guard('newborn', 9223372036854775807);
SELECT lease.guard(NULL, :epoch);
SELECT lease.guard('', :epoch);
SELECT lease.guard('newborn', 'abc');

--
-- One transaction after another, and all in one
--

-- Everything above in a single transaction: each call sees what the one before did.
BEGIN;
SELECT lease.create('whole-life', ttl => '1 min');
SELECT epoch FROM lease.acquire('whole-life', 'me') \gset
SELECT lease.holds('whole-life', :epoch);
SELECT outcome, epoch FROM lease.acquire('whole-life', 'you');
SELECT outcome, epoch = :epoch AS same FROM lease.renew('whole-life', :epoch);
SELECT lease.release('whole-life', :epoch);
SELECT outcome, epoch > :epoch AS greater FROM lease.acquire('whole-life', 'you');
SELECT lease.revoke('whole-life') > :epoch AS revoked;
SELECT lease.drop('whole-life');
SELECT lease.holds('whole-life', :epoch);
COMMIT;

-- A hundred grants, each released and followed by the next at once.
SELECT lease.create('relay');
DO $$
DECLARE
	granted lease.reply;
BEGIN
	FOR i IN 1..100 LOOP
		granted := lease.acquire('relay', 'runner ' || i);
		ASSERT granted.outcome = 'granted', i || ': ' || granted.outcome;
		ASSERT lease.release('relay', granted.epoch), i || ' not released';
	END LOOP;
END;
$$;
SELECT state, holder FROM lease.status WHERE name = 'relay';

-- Several calls in one statement, too.
SELECT lease.create('one-statement');
SELECT a.outcome, r.outcome, lease.release('one-statement', r.epoch), b.outcome, b.epoch > a.epoch AS greater
	FROM lease.acquire('one-statement', 'a') AS a,
		lease.renew('one-statement', a.epoch) AS r,
		LATERAL (SELECT lease.release('one-statement', r.epoch) OFFSET 0) AS s(released),
		lease.acquire('one-statement', CASE WHEN s.released THEN 'b' END) AS b;

SELECT lease.drop('planner', force => true), lease.drop('newborn', force => true),
		lease.drop('one-statement', force => true), lease.drop('relay');
DROP VIEW planner;
DROP TABLE cycle;
