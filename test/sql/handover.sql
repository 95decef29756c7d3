--
-- handover: asking a holder to step down, and releasing to a successor.
--
-- Probes section 5.1 of the contract: the holder sees the request in the reply of its
-- next renewal; only the successor may acquire while a lease is reserved.  A request
-- gives nobody any authority, and takes none (G1).
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
RESET client_min_messages;

SELECT lease.create('ho', ttl => '1 hour');

-- Nobody is there who could be asked.
SELECT lease.request_handover('ho', 'b');
SELECT epoch FROM lease.acquire('ho', 'a') \gset

-- The holder is not asked as long as nobody asks.
SELECT outcome, handover, successor FROM lease.renew('ho', :epoch);
SELECT handover_at, handover_to, handover_reason FROM lease.status WHERE name = 'ho';

-- It sees who is to be next, again and again.
SELECT lease.request_handover('ho', 'b', 'b is nearer') = :epoch AS asked;
SELECT outcome, handover, successor FROM lease.renew('ho', :epoch);
SELECT outcome, handover, successor FROM lease.renew_many('{ho}', ARRAY[:epoch]);
SELECT state, holder, handover_at <= now() AS asked, handover_to, handover_reason
	FROM lease.status WHERE name = 'ho';

-- It still holds the lease, as long as it likes.
SELECT lease.holds('ho', :epoch);
SELECT outcome, epoch FROM lease.acquire('ho', 'b');

-- A later request replaces an earlier one; it need not name anybody.
SELECT lease.request_handover('ho') = :epoch AS asked;
SELECT outcome, handover, successor FROM lease.renew('ho', :epoch);
SELECT lease.request_handover('ho', 'c', 'no, c') = :epoch AS asked;
SELECT outcome, handover, successor FROM lease.renew('ho', :epoch);

-- A holder that releases has done what it was asked: the lease is reserved to that
-- successor, for the ttl.
BEGIN;
SELECT lease.release('ho', :epoch);
SELECT outcome, epoch, handover, successor FROM lease.acquire('ho', 'b');
SELECT state, successor, available_at - now() BETWEEN '59 s' AND '61 s' AS a_minute, available_at - now() BETWEEN '59 min' AND '61 min' AS the_ttl, handover_at, handover_to, handover_reason
	FROM lease.status WHERE name = 'ho';
SELECT outcome, handover, successor FROM lease.acquire('ho', 'c');
ROLLBACK;
-- Unless it knows better.
BEGIN;
SELECT lease.release('ho', :epoch, successor => 'd', reserve => '1 min');
SELECT state, successor, available_at - now() BETWEEN '59 s' AND '61 s' AS a_minute, available_at - now() BETWEEN '59 min' AND '61 min' AS the_ttl FROM lease.status WHERE name = 'ho';
ROLLBACK;
-- The time of the reserve can be given for it, too: but then with the successor.
SELECT lease.release('ho', :epoch, reserve => '1 min');
-- Many at once.
BEGIN;
SELECT * FROM lease.release_many('{ho}', ARRAY[:epoch]);
SELECT state, successor FROM lease.status WHERE name = 'ho';
ROLLBACK;
-- To whom nobody was named, anybody may follow.
BEGIN;
SELECT lease.request_handover('ho') = :epoch AS asked;
SELECT lease.release('ho', :epoch);
SELECT state, successor FROM lease.status WHERE name = 'ho';
ROLLBACK;
-- A revocation is no handover.
BEGIN;
SELECT lease.revoke('ho') = :epoch AS revoked;
SELECT state, successor, handover_at FROM lease.status WHERE name = 'ho';
ROLLBACK;

-- For a successor who does not come, an administrator opens the lease to anybody; so
-- for a min_hold that is not worth waiting for.
BEGIN;
SELECT lease.release('ho', :epoch, successor => 'typo');
SELECT outcome FROM lease.acquire('ho', 'e');
SELECT lease.revoke('ho', 'nobody of that name') = :epoch AS revoked;
SELECT state, successor, reason FROM lease.status WHERE name = 'ho';
SELECT outcome FROM lease.acquire('ho', 'e');
ROLLBACK;
BEGIN;
SELECT lease.alter('ho', min_hold => '1 day');
SELECT lease.release('ho', :epoch);
SELECT outcome FROM lease.acquire('ho', 'e');
SELECT lease.revoke('ho') = :epoch AS revoked;
SELECT lease.revoke('ho');
SELECT outcome FROM lease.acquire('ho', 'e');
ROLLBACK;

-- When the reserve is over, anybody may acquire.
SELECT lease.release('ho', :epoch, successor => 'd', reserve => '1 min');
SET lease.clock_offset = '61 s';
SELECT outcome, handover, successor FROM lease.acquire('ho', 'e');
RESET lease.clock_offset;

-- A new grant knows nothing of requests to the one before.
SELECT epoch FROM lease.acquire('ho', 'e', reclaim => true) \gset
SELECT lease.request_handover('ho', 'f') = :epoch AS asked;
SELECT epoch FROM lease.acquire('ho', 'e', reclaim => true) \gset
SELECT outcome, handover, successor FROM lease.renew('ho', :epoch);

-- What is over cannot be handed over.
SELECT lease.request_handover('ho', 'f') = :epoch AS asked;
SET lease.clock_offset = '2h';
SELECT lease.request_handover('ho', 'g');
SELECT outcome, handover, successor FROM lease.renew('ho', :epoch);
RESET lease.clock_offset;

-- Who may ask: members of the lease's role, and the owner of the extension.
SET client_min_messages = warning;
CREATE ROLE regress_lease_member;
CREATE ROLE regress_lease_stranger;
RESET client_min_messages;
SELECT lease.allow('regress_lease_member'), lease.allow('regress_lease_stranger') \g /dev/null
SELECT lease.alter('ho', role => 'regress_lease_member');
SET ROLE regress_lease_stranger;
SELECT lease.request_handover('ho', 'x');
SET ROLE regress_lease_member;
SELECT lease.request_handover('ho', 'x') = :epoch AS asked;
RESET ROLE;
SELECT handover_to FROM lease.status WHERE name = 'ho';

-- In a READ ONLY transaction nothing can be asked.
BEGIN READ ONLY;
SELECT lease.request_handover('ho', 'x');
ROLLBACK;
-- No such lease, no such name.
SELECT lease.request_handover('ho/nobody', 'x');
SELECT lease.request_handover(NULL, 'x');
SELECT lease.request_handover('ho', '');

SELECT lease.drop('ho', force => true) \g /dev/null
SELECT lease.disallow('regress_lease_member'), lease.disallow('regress_lease_stranger') \g /dev/null
DROP ROLE regress_lease_member, regress_lease_stranger;
