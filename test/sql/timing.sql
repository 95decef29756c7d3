--
-- timing: when a grant is over, and from when on somebody else may acquire.
--
-- Probes G5 (one clock, and waiting never lengthens anyone's authority), G6 (a
-- step of the wall clock neither ends a live grant nor prolongs one) and the
-- claim half of G7 (after expiry and grace the next acquire succeeds).
--
-- Time passes by lease.clock_offset, which shifts this session's reading of the
-- clocks, in milliseconds.  Real time passes in two places only, where the start of
-- a transaction and the present have to be apart.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
RESET client_min_messages;

-- A version of the row, to see whether it was written.
CREATE VIEW version AS SELECT name, ctid::text || ' ' || xmin::text AS version FROM lease.lease;

--
-- Expiry
--

SELECT lease.create('expiry', ttl => '1 hour');
SELECT epoch FROM lease.acquire('expiry', 'a') \gset

-- A minute before the end it is live.
SET lease.clock_offset = '3540 s';
SELECT lease.holds('expiry', :epoch), lease.remaining('expiry', :epoch) BETWEEN '0' AND '60 s' AS remaining;
SELECT outcome, epoch FROM lease.acquire('expiry', 'b');
BEGIN;
SELECT lease.guard('expiry', :epoch);
COMMIT;

-- From the end on it is over, and stays so although nobody has taken it: it is
-- neither renewed nor released nor guarded, and nothing of the row has changed.
SET lease.clock_offset = '3600 s';
SELECT version FROM version WHERE name = 'expiry' \gset
SELECT lease.holds('expiry', :epoch), lease.remaining('expiry', :epoch);
SELECT outcome, epoch, remaining FROM lease.renew('expiry', :epoch);
SELECT outcome, epoch, remaining FROM lease.renew('expiry', :epoch, '10 hours');
SELECT lease.release('expiry', :epoch);
SELECT lease.guard('expiry', :epoch);
SELECT version = :'version' AS unchanged FROM version WHERE name = 'expiry';

-- Who held it gets it back under a new epoch only.
SELECT outcome, epoch > :epoch AS greater, epoch AS next FROM lease.acquire('expiry', 'a') \gset
\echo :outcome :greater
SELECT outcome FROM lease.renew('expiry', :epoch);
SELECT outcome FROM lease.renew('expiry', :next);
RESET lease.clock_offset;

-- A session whose clock is behind finds that grant live, and its own of the past
-- superseded.
SELECT lease.holds('expiry', :next), lease.holds('expiry', :epoch);

--
-- What a renewal gives
--

-- The ttl of the lease, counted from the start of the renewing transaction.
SELECT lease.create('renewal', ttl => '1 hour');
SELECT epoch FROM lease.acquire('renewal', 'a') \gset
SET lease.clock_offset = '30 min';
BEGIN;
SELECT outcome, expires_at - now() BETWEEN '89 min 59 s' AND '90 min 1 s' AS from_now,
		remaining BETWEEN '59 min' AND '1 hour' AS remaining
	FROM lease.renew('renewal', :epoch);
COMMIT;

-- It never shortens: neither with a shorter ttl, nor when it comes from a
-- transaction that began earlier than the one that renewed before.
SELECT deadline_boot FROM lease.lease WHERE name = 'renewal' \gset
SELECT outcome, remaining > '59 min' AS remaining FROM lease.renew('renewal', :epoch, '1 min');
SET lease.clock_offset = '10 min';
SELECT outcome, remaining > '79 min' AS remaining FROM lease.renew('renewal', :epoch);
SELECT deadline_boot = :deadline_boot AS same_deadline FROM lease.lease WHERE name = 'renewal';
RESET lease.clock_offset;
SELECT lease.remaining('renewal', :epoch) > '89 min' AS remaining;

-- A longer ttl holds for that renewal, not for the next.
SELECT outcome, remaining BETWEEN '9 hours 59 min' AND '10 hours' AS remaining
	FROM lease.renew('renewal', :epoch, '10 hours');
SET lease.clock_offset = '590 min';
SELECT outcome, remaining BETWEEN '59 min' AND '60 min' AS remaining
	FROM lease.renew('renewal', :epoch);
RESET lease.clock_offset;
SELECT lease.release('renewal', :epoch);

-- The ttl of the acquire is that of its renewals, too.
SELECT epoch, remaining BETWEEN '59 s' AND '1 min' AS short FROM lease.acquire('renewal', 'a', '1 min') \gset
\echo :short
SET lease.clock_offset = '30 s';
SELECT outcome, remaining BETWEEN '59 s' AND '1 min' AS short FROM lease.renew('renewal', :epoch);
RESET lease.clock_offset;
SELECT lease.release('renewal', :epoch);
SELECT remaining BETWEEN '59 min' AND '1 hour' AS default_again, epoch FROM lease.acquire('renewal', 'a') \gset
\echo :default_again

-- What alter changes is the ttl of the next renewal; a live grant keeps its end.
SELECT lease.alter('renewal', ttl => '2 min');
SELECT lease.remaining('renewal', :epoch) > '59 min' AS kept;
SET lease.clock_offset = '59 min';
SELECT outcome, remaining BETWEEN '119 s' AND '120 s' AS shorter FROM lease.renew('renewal', :epoch);
RESET lease.clock_offset;

--
-- Grace: nobody may acquire for so long after an expiry
--

SELECT lease.create('grace', ttl => '1 hour', grace => '10 min');
SELECT epoch FROM lease.acquire('grace', 'a') \gset
SET lease.clock_offset = '3600 s';
SELECT outcome, epoch, holder FROM lease.acquire('grace', 'b');
SELECT outcome FROM lease.acquire('grace', 'a');
SELECT outcome FROM lease.acquire('grace', 'a', reclaim => true);
SELECT outcome FROM lease.renew('grace', :epoch);
SET lease.clock_offset = '4140 s';
SELECT outcome FROM lease.acquire('grace', 'b');
SET lease.clock_offset = '4200 s';
SELECT outcome, epoch > :epoch AS greater, epoch FROM lease.acquire('grace', 'b') \gset
\echo :outcome :greater

-- Not after a release,
SELECT lease.release('grace', :epoch);
SELECT outcome, epoch FROM lease.acquire('grace', 'c') \gset
\echo :outcome
-- nor after a revocation, even of a grant whose time was already over.
SET lease.clock_offset = '7801 s';
SELECT outcome FROM lease.acquire('grace', 'd');
SELECT lease.revoke('grace') = :epoch AS revoked;
SELECT outcome FROM lease.acquire('grace', 'd');
RESET lease.clock_offset;

--
-- Min_hold: after a release nobody may acquire until so long after the acquire
--

SELECT lease.create('min-hold', ttl => '1 hour', min_hold => '10 min');
SELECT epoch FROM lease.acquire('min-hold', 'a') \gset
SELECT lease.release('min-hold', :epoch);
SELECT outcome, epoch, holder FROM lease.acquire('min-hold', 'b');
SELECT outcome FROM lease.acquire('min-hold', 'a');
SET lease.clock_offset = '540 s';
SELECT outcome FROM lease.acquire('min-hold', 'b');
SET lease.clock_offset = '600 s';
SELECT outcome, epoch FROM lease.acquire('min-hold', 'b') \gset
\echo :outcome

-- A release later than that makes it free at once,
SET lease.clock_offset = '1200 s';
SELECT lease.release('min-hold', :epoch);
SELECT outcome, epoch FROM lease.acquire('min-hold', 'c') \gset
\echo :outcome
-- a revocation at any time,
SELECT lease.revoke('min-hold') = :epoch AS revoked;
SELECT outcome, epoch FROM lease.acquire('min-hold', 'd', '1 min') \gset
\echo :outcome
-- and an expiry has nothing to do with it.
SET lease.clock_offset = '1261 s';
SELECT outcome, epoch FROM lease.acquire('min-hold', 'e') \gset
\echo :outcome

-- It applies to a successor, too: nobody means nobody.
SELECT lease.release('min-hold', :epoch, 'f', '1 hour');
SELECT outcome FROM lease.acquire('min-hold', 'f');
SELECT outcome FROM lease.acquire('min-hold', 'g');
SET lease.clock_offset = '1862 s';
SELECT outcome FROM lease.acquire('min-hold', 'g');
SELECT outcome FROM lease.acquire('min-hold', 'f');
RESET lease.clock_offset;

-- Without min_hold the lease is free at the release, also for a transaction that began
-- before the grant that was released, which here means: ten seconds ago.
SELECT lease.create('no-hold', ttl => '1 hour');
SELECT epoch FROM lease.acquire('no-hold', 'a') \gset
SELECT lease.release('no-hold', :epoch);
SET lease.clock_offset = '-10 s';
SELECT state FROM lease.status WHERE name = 'no-hold';
SELECT outcome FROM lease.acquire('no-hold', 'b');
RESET lease.clock_offset;

--
-- Reserve: after a release only the successor may acquire for so long
--

SELECT lease.create('reserve', ttl => '1 hour');
SELECT epoch FROM lease.acquire('reserve', 'a') \gset
SELECT lease.release('reserve', :epoch, 'b', '10 min');
SET lease.clock_offset = '540 s';
SELECT outcome, epoch, holder FROM lease.acquire('reserve', 'c');
SELECT outcome FROM lease.acquire('reserve', 'a', reclaim => true);
SET lease.clock_offset = '600 s';
SELECT outcome, epoch FROM lease.acquire('reserve', 'c') \gset
\echo :outcome

-- By default for as long as the lease's ttl.
SELECT lease.release('reserve', :epoch, 'd');
SET lease.clock_offset = '4140 s';
SELECT outcome FROM lease.acquire('reserve', 'e');
SELECT outcome, epoch FROM lease.acquire('reserve', 'd') \gset
\echo :outcome

-- A grant to the successor ends the reservation.
SELECT lease.release('reserve', :epoch);
SELECT outcome FROM lease.acquire('reserve', 'e');
RESET lease.clock_offset;

--
-- The start of the transaction decides (G5)
--

-- A holder needs to be live at the start of its transaction and now.  A transaction
-- that began in time and idled has lost its authority.
SELECT lease.create('moment', ttl => '1 hour');
SELECT epoch FROM lease.acquire('moment', 'a') \gset
BEGIN;
SELECT lease.holds('moment', :epoch);
SET LOCAL lease.clock_offset = '3600 s';
SELECT lease.holds('moment', :epoch), lease.remaining('moment', :epoch);
SELECT outcome FROM lease.renew('moment', :epoch);
SELECT lease.release('moment', :epoch);
SELECT lease.guard('moment', :epoch);
ROLLBACK;
SELECT lease.revoke('moment') = :epoch AS revoked;

-- A taker is judged at the start of its transaction alone.  In between there is a
-- time when nobody has authority: here the grant was live when this transaction
-- began, so it is held for a taker, and it is over by now for its holder.
BEGIN;
SELECT epoch FROM lease.acquire('moment', 'a', '500 ms') \gset
DO $$ BEGIN WHILE clock_timestamp() < now() + interval '550 ms' LOOP PERFORM pg_sleep(0.01); END LOOP; END; $$;
SELECT outcome, epoch, remaining FROM lease.acquire('moment', 'b');
SELECT lease.holds('moment', :epoch), lease.remaining('moment', :epoch);
SELECT outcome FROM lease.renew('moment', :epoch);
SELECT lease.release('moment', :epoch);
SAVEPOINT before_guard;
SELECT lease.guard('moment', :epoch);
ROLLBACK TO before_guard;

-- In that same transaction a grant that would already be over is refused: it began
-- with the transaction.  A longer one is not, and it ends that much earlier.
SELECT lease.create('late', ttl => '1 min');
SAVEPOINT before_acquire;
SELECT lease.acquire('late', 'a', '500 ms');
ROLLBACK TO before_acquire;
SELECT outcome, expires_at - acquired_at AS length, acquired_at - now() < '10 ms' AS from_start,
		remaining < '59.5 s' AS remaining
	FROM lease.acquire('late', 'a');
COMMIT;

-- Only now a taker finds that the other is over.
SELECT outcome FROM lease.acquire('moment', 'b');

--
-- A step of the wall clock (G6)
--

-- The row has every instant twice: on the host's boot clock, which decides, and its
-- image on the wall clock.  An image that lies elsewhere than the boot clock says is
-- what a step of the wall clock leaves behind.
SELECT lease.create('step', ttl => '1 hour');
SELECT epoch FROM lease.acquire('step', 'a') \gset

-- A step forward by two hours: the grant is still live; the next renewal says so
-- and moves the image.
UPDATE lease.lease SET acquired_at = acquired_at - interval '2 hours', expires_at = expires_at - interval '2 hours'
	WHERE name = 'step';
SELECT expires_at < now() AS looks_over, state FROM lease.status WHERE name = 'step';
SELECT lease.holds('step', :epoch), lease.remaining('step', :epoch) > '59 min' AS remaining;
SELECT outcome FROM lease.acquire('step', 'b');
SELECT outcome, expires_at - now() BETWEEN '59 min 59 s' AND '1 hour 1 s' AS image_follows
	FROM lease.renew('step', :epoch);
SELECT outcome FROM lease.renew('step', :epoch);

-- A step backward by two hours: the grant is over when its hour is, not two hours
-- later.
UPDATE lease.lease SET acquired_at = acquired_at + interval '2 hours', expires_at = expires_at + interval '2 hours'
	WHERE name = 'step';
SELECT lease.remaining('step', :epoch) < '1 hour' AS not_prolonged;
SET lease.clock_offset = '3601 s';
SELECT expires_at > now() + interval '2 hours' AS looks_live, state FROM lease.status WHERE name = 'step';
SELECT lease.holds('step', :epoch);
SELECT outcome FROM lease.renew('step', :epoch);
SELECT outcome, epoch, expires_at - now() BETWEEN '1 hour 59 min' AND '2 hours 1 min' AS image_follows
	FROM lease.acquire('step', 'b') \gset
\echo :outcome :image_follows
RESET lease.clock_offset;

-- A step of less than a second is not worth a warning.
UPDATE lease.lease SET expires_at = expires_at + interval '900 ms' WHERE name = 'step';
SELECT outcome FROM lease.renew('step', :epoch);

--
-- Another boot, or another host
--

-- There the boot clock says nothing and the image on the wall clock decides.
SELECT lease.create('reboot', ttl => '1 hour');
SELECT epoch FROM lease.acquire('reboot', 'a') \gset
UPDATE lease.lease SET boot = 'another', acquired_boot = 1, deadline_boot = 2 WHERE name = 'reboot';
SELECT lease.holds('reboot', :epoch), lease.remaining('reboot', :epoch) BETWEEN '59 min' AND '1 hour' AS remaining;
SELECT outcome FROM lease.acquire('reboot', 'b');

-- A renewal writes the instants of this boot.
SELECT outcome FROM lease.renew('reboot', :epoch);
SELECT boot <> 'another' AS this_boot, acquired_boot > 2 AS acquired_here, deadline_boot - acquired_boot >= 3600000000 AS deadline_here
	FROM lease.lease WHERE name = 'reboot';
SELECT lease.holds('reboot', :epoch);

-- A deadline that is far away on that other boot's clock, but over on the wall clock.
UPDATE lease.lease SET boot = 'another', deadline_boot = 9000000000000000000, expires_at = now() WHERE name = 'reboot';
SELECT lease.holds('reboot', :epoch);
SELECT outcome, epoch > :epoch AS greater, remaining > '59 min' AS remaining FROM lease.acquire('reboot', 'b');

-- Times that nobody could have written do no harm, and the holder has no use of them.
UPDATE lease.lease SET boot = 'another', expires_at = '-infinity' WHERE name = 'reboot';
SELECT state, remaining FROM lease.status WHERE name = 'reboot';
SELECT outcome FROM lease.acquire('reboot', 'c');

SELECT lease.drop(name, force => true) FROM lease.status
	WHERE name IN ('expiry', 'renewal', 'grace', 'min-hold', 'no-hold', 'reserve', 'moment', 'late', 'step', 'reboot') \g /dev/null
DROP VIEW version;
