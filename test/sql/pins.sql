--
-- pins: who needs what is at a position holds the floor back.
--
-- A floor never goes back, and never passes a live pin; there is no pin below it.  A pin
-- lives for its ttl on the clock of the database, and is renewed by exactly its holder
-- while it does.  Who advances the floor takes it for lapsed only if it was over at the
-- start of his transaction; who renews it takes it to be live only if it is at this
-- moment.  Probes G3, G5, G6 and G10.
--
-- Time passes by lease.clock_offset, and in one place really, where the start of a
-- transaction and the present have to be apart.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
RESET client_min_messages;

SELECT lease.create('pin', ttl => '10 days'), lease.create('pin/other', ttl => '10 days') \g /dev/null
SELECT epoch AS a FROM lease.acquire('pin', 'A') \gset
SELECT epoch AS other FROM lease.acquire('pin/other', 'A') \gset
CREATE VIEW pins AS SELECT holder, position, ttl, remaining > '0' AS remaining, lease, floor_position FROM lease.pin_held WHERE floor = 'pin/log' ORDER BY position, holder;

--
-- A floor
--

SELECT * FROM lease.pin('pin/log', 100, 'r1');
SELECT * FROM lease.advance_floor('pin', :a, 'pin/log', 100);
SELECT floor, lease, position, seq, epoch = :a AS under_a, holder, advanced_at <= now() AS advanced FROM lease.floor WHERE floor = 'pin/log';
-- It never goes back; to be where it is, or higher, is no record.
SELECT * FROM lease.advance_floor('pin', :a, 'pin/log', 100);
SELECT * FROM lease.advance_floor('pin', :a, 'pin/log', 99);
SELECT * FROM lease.advance_floor('pin', :a, 'pin/log', -9223372036854775808);
SELECT seq, kind, subject, from_position, position FROM lease.record WHERE lease = 'pin';
-- A position is any number.
SELECT * FROM lease.advance_floor('pin', :a, 'pin/signed', -9223372036854775808);
SELECT * FROM lease.advance_floor('pin', :a, 'pin/signed', -5);
SELECT * FROM lease.advance_floor('pin', :a, 'pin/signed', -10);
SELECT * FROM lease.pin('pin/signed', -6, 'r1');
SELECT outcome, pinned_position, floor_position FROM lease.pin('pin/signed', 9223372036854775807, 'r1', '1 h');
SELECT outcome, floor_position FROM lease.advance_floor('pin', :a, 'pin/signed', 9223372036854775807);
-- It belongs to one lease.
SELECT * FROM lease.advance_floor('pin/other', :other, 'pin/log', 200);
SELECT :'LAST_ERROR_MESSAGE' AS message;
SELECT * FROM lease.advance_floor('pin/other', :other, 'pin/log', 1);
-- That of the records is made with the first of them, and not advanced by hand.
SELECT floor, lease, position FROM lease.floor WHERE floor LIKE 'pin%#records';
SELECT lease.advance_floor('pin', :a, 'pin#records', 10);
SELECT * FROM lease.pin('pin/other#records', 1, 'r1');
SELECT outcome, pinned_position, floor_position FROM lease.pin('pin#records', 1, 'r1');
SELECT * FROM lease.pin('pin#records', 0, 'r1');
SELECT lease.unpin('pin#records', 'r1');
-- What is no name, and no position
SELECT lease.advance_floor('pin', :a, NULL, 1);
SELECT lease.advance_floor('pin', :a, '', 1);
SELECT lease.advance_floor('pin', :a, 'b d', 1);
SELECT lease.advance_floor('pin', :a, E'pin\n', 1);
SELECT lease.advance_floor('pin', :a, '-pin', 1);
SELECT lease.advance_floor('pin', :a, repeat('f', 128), 1);
SELECT outcome FROM lease.advance_floor('pin', :a, repeat('f', 127), 1);
SELECT lease.advance_floor('pin', :a, 'pin/log', NULL);

--
-- A pin
--

-- Not below the floor
SELECT * FROM lease.pin('pin/log', 99, 'r1');
SELECT count(*) FROM pins;
-- At the floor, and above; both again, as after a reply that was lost.
SELECT outcome, pinned_position, floor_position, remaining BETWEEN '29 s' AND '30 s' AS remaining FROM lease.pin('pin/log', 100, 'r1');
SELECT outcome, pinned_position, floor_position, remaining BETWEEN '59 min' AND '1 h' AS remaining FROM lease.pin('pin/log', 120, 'r2', '1 h');
SELECT outcome, pinned_position, floor_position FROM lease.pin('pin/log', 120, 'r2', '1 h');
SELECT outcome, pinned_position, floor_position FROM lease.pin('pin/log', 150, 'r3', NULL);
SELECT * FROM pins;
SELECT outcome FROM unnest('{r1,r3}'::text[], '{100,150}'::bigint[]) AS h(holder, at), lease.pin('pin/log', at, holder, '1 h');
SELECT floor, holder, role = current_user::regrole AS mine, held_since <= now() AS held, remaining <= ttl AS within FROM lease.pin_held WHERE floor LIKE 'pin%' ORDER BY floor, holder;

-- The lowest holds the floor, to where it stands: here it cannot move at all.
SELECT outcome, floor_position, held_by, held_for BETWEEN '59 min' AND '1 h' AS held_for FROM lease.advance_floor('pin', :a, 'pin/log', 200);
SELECT outcome, floor_position, held_by FROM lease.advance_floor('pin', :a, 'pin/log', 101);
SELECT outcome, floor_position, held_by FROM lease.advance_floor('pin', :a, 'pin/log', 100);
SELECT last_seq AS before FROM lease.record_chain WHERE lease = 'pin' \gset
-- When that is gone, the next, to which it goes; and the next.
SELECT lease.unpin('pin/log', 'r1');
SELECT lease.unpin('pin/log', 'r1');
SELECT outcome, floor_position, held_by, held_for BETWEEN '59 min' AND '1 h' AS held_for FROM lease.advance_floor('pin', :a, 'pin/log', 200);
SELECT outcome, floor_position, held_by FROM lease.advance_floor('pin', :a, 'pin/log', 200);
SELECT * FROM lease.pin('pin/log', 119, 'r1');
SELECT outcome, floor_position, held_by FROM lease.advance_floor('pin', :a, 'pin/log', 119);
SELECT lease.unpin('pin/log', 'r2');
SELECT outcome, floor_position, held_by FROM lease.advance_floor('pin', :a, 'pin/log', 150);
SELECT outcome, floor_position, held_by FROM lease.advance_floor('pin', :a, 'pin/log', 151);
-- Of two at the same position the one of the lower name is told.
SELECT outcome FROM lease.pin('pin/log', 150, 'r0');
SELECT outcome, floor_position, held_by FROM lease.advance_floor('pin', :a, 'pin/log', 200);
SELECT seq - :before AS next, subject, from_position, position FROM lease.record WHERE lease = 'pin' AND seq > :before ORDER BY seq;
SELECT lease.unpin('pin/log', 'r0'), lease.unpin('pin/log', 'nobody'), lease.unpin('pin/none', 'r0');

-- A pin that is moved, up and down, is the same pin; below the floor it stays where it was.
SELECT held_since AS since FROM lease.pin_held WHERE floor = 'pin/log' AND holder = 'r3' \gset
SELECT outcome, pinned_position, floor_position FROM lease.pin('pin/log', 170, 'r3', '1 h');
SELECT outcome, pinned_position, floor_position FROM lease.pin('pin/log', 160, 'r3', '2 h');
SELECT * FROM lease.pin('pin/log', 149, 'r3');
SELECT * FROM pins;
SELECT held_since = :'since' AS the_same FROM lease.pin_held WHERE floor = 'pin/log' AND holder = 'r3';
SELECT outcome, floor_position, held_by FROM lease.advance_floor('pin', :a, 'pin/log', 200);

-- What is missing, empty or out of range
SELECT lease.pin(NULL, 200, 'r1');
SELECT lease.pin('', 200, 'r1');
SELECT lease.pin('pin/none', 200, 'r1');
SELECT lease.pin('pin/log', NULL, 'r1');
SELECT lease.pin('pin/log', 200, NULL);
SELECT lease.pin('pin/log', 200, '');
SELECT lease.pin('pin/log', 200, repeat('h', 256));
SELECT lease.pin('pin/log', 200, 'r1', '0');
SELECT lease.pin('pin/log', 200, 'r1', '-1 s');
SELECT lease.pin('pin/log', 200, 'r1', '1 month');
SELECT lease.renew_pin(NULL, 'r3');
SELECT lease.renew_pin('pin/log', NULL);
SELECT lease.renew_pin('pin/log', 'r3', '-1 s');
SELECT lease.unpin(NULL, 'r3');
SELECT lease.unpin('pin/log', NULL);
SELECT lease.unpin('pin/log', '');
SELECT * FROM pins;

--
-- Renewal, and lapse
--

SELECT lease.pin_renew_interval(), lease.pin_renew_interval('1 min'), lease.pin_renew_interval('1 ms');
SELECT lease.pin_renew_interval(NULL);
SELECT lease.pin_renew_interval('0');
SELECT lease.pin_renew_interval('1 month');

-- From the start of the renewing transaction, for the ttl as before.
SELECT lease.unpin('pin/log', 'r3');
SELECT outcome FROM lease.pin('pin/log', 160, 'r1', '60 min');
SET lease.clock_offset = '50 min';
SELECT outcome, pinned_position, floor_position, remaining BETWEEN '59 min' AND '60 min' AS remaining FROM lease.renew_pin('pin/log', 'r1');
SET lease.clock_offset = '100 min';
SELECT * FROM pins;
-- For a longer one, and never for a shorter one.
SELECT outcome, remaining BETWEEN '9 h 59 min' AND '10 h' AS remaining FROM lease.renew_pin('pin/log', 'r1', '10 h');
SELECT outcome, remaining BETWEEN '9 h 59 min' AND '10 h' AS remaining FROM lease.renew_pin('pin/log', 'r1', '1 s');
RESET lease.clock_offset;
-- (Nor by one that began before the one that has renewed it: here, by a session whose
-- clock is behind.)
SELECT outcome FROM lease.renew_pin('pin/log', 'r1');
SET lease.clock_offset = '690 min';
SELECT outcome, remaining BETWEEN '9 h 59 min' AND '10 h' AS remaining FROM lease.renew_pin('pin/log', 'r1');

-- While it is live it holds; from the end on it does not, and cannot be renewed.
SET lease.clock_offset = '1280 min';
SELECT outcome, floor_position, held_by, held_for <= '10 min' AS held_for FROM lease.advance_floor('pin', :a, 'pin/log', 200);
SET lease.clock_offset = '1290 min';
SELECT count(*) FROM pins;
SELECT * FROM lease.renew_pin('pin/log', 'r1');
SELECT * FROM lease.renew_pin('pin/log', 'r1', '100 h');
SELECT * FROM lease.renew_pin('pin/log', 'nobody');
SELECT * FROM lease.renew_pin('pin/none', 'r1');
SELECT lease.unpin('pin/log', 'r1');
SELECT outcome FROM lease.pin('pin/log', 170, 'r1', '60 min');
SELECT outcome FROM lease.pin('pin/log', 250, 'r2', '60 min');
SELECT held_since AS since FROM lease.pin_held WHERE floor = 'pin/log' AND holder = 'r2' \gset
SET lease.clock_offset = '1350 min';
-- A pin that has lapsed and is made again is another one; one that is live is left where it is.
SELECT outcome FROM lease.pin('pin/log', 250, 'r2', '60 min');
SELECT held_since > :'since' AS another FROM lease.pin_held WHERE floor = 'pin/log' AND holder = 'r2';
SELECT * FROM lease.advance_floor('pin', :a, 'pin/log', 200);
SELECT holder, position FROM lease.floor_pin WHERE floor = 'pin/log';
SELECT * FROM lease.renew_pin('pin/log', 'r1');
SELECT * FROM lease.pin('pin/log', 170, 'r1');
-- The clock of a session that is behind brings nothing back.
RESET lease.clock_offset;
SELECT * FROM lease.renew_pin('pin/log', 'r1');
SELECT * FROM lease.pin('pin/log', 170, 'r1');
SET lease.clock_offset = '1350 min';
SELECT lease.unpin('pin/log', 'r2');
-- One that has lapsed is removed also where the floor does not come to.
SELECT outcome FROM lease.pin('pin/log', 300, 'r2', '1 min');
SET lease.clock_offset = '1352 min';
SELECT * FROM lease.advance_floor('pin', :a, 'pin/log', 201);
SELECT holder, position FROM lease.floor_pin WHERE floor = 'pin/log';
RESET lease.clock_offset;

-- Here the pin is over at this moment, but was not when this transaction began: to who
-- renews it has lapsed, to who advances it is live.  A pin that would be over is none.
BEGIN;
SELECT outcome FROM lease.pin('pin/log', 210, 'r1', '500 ms');
DO $$ BEGIN WHILE clock_timestamp() < now() + interval '550 ms' LOOP PERFORM pg_sleep(0.01); END LOOP; END; $$;
SELECT count(*) FROM pins;
SELECT * FROM lease.renew_pin('pin/log', 'r1');
SELECT * FROM lease.advance_floor('pin', :a, 'pin/log', 220);
SAVEPOINT s;
SELECT lease.pin('pin/log', 230, 'r2', '500 ms');
ROLLBACK TO s;
SELECT outcome, remaining BETWEEN '59 min' AND '59 min 59.5 s' AS remaining FROM lease.pin('pin/log', 230, 'r2', '60 min');
COMMIT;
SELECT * FROM lease.pin_held WHERE floor = 'pin/log' AND holder = 'r1';
SELECT outcome, floor_position, held_by FROM lease.advance_floor('pin', :a, 'pin/log', 240);
SELECT holder FROM lease.floor_pin WHERE floor = 'pin/log';

-- On another boot, or another host, the image on the wall clock decides.
UPDATE lease.floor_pin SET boot = 'another', pinned_boot = 9000000000000000000, ttl = 3600000000, pinned_at = now() WHERE floor = 'pin/log';
SELECT holder, remaining BETWEEN '59 min' AND '60 min' AS remaining FROM lease.pin_held WHERE floor = 'pin/log';
SELECT outcome FROM lease.renew_pin('pin/log', 'r2');
SELECT boot = lease.boot_clock() AS this_boot, pinned_boot < 9000000000000000000 AS here FROM lease.floor_pin WHERE floor = 'pin/log';
-- Here the boot clock does, whatever the wall clock has been set to.
UPDATE lease.floor_pin SET pinned_at = pinned_at - interval '1 day' WHERE floor = 'pin/log';
SELECT count(*) FROM pins;
UPDATE lease.floor_pin SET pinned_at = pinned_at + interval '2 days' WHERE floor = 'pin/log';
SET lease.clock_offset = '61 min';
SELECT count(*) FROM pins;
RESET lease.clock_offset;
UPDATE lease.floor_pin SET boot = 'another', pinned_at = now() - interval '60 min' WHERE floor = 'pin/log';
SELECT count(*) FROM pins;
SELECT outcome, floor_position, held_by FROM lease.advance_floor('pin', :a, 'pin/log', 240);

-- What the parts of this say of what is missing: nobody holds it, and it holds.
SELECT lease.is_live(NULL, NULL, NULL, 1), lease.is_live(NULL, NULL, now(), NULL), lease.was_live(NULL, NULL, NULL, 1), lease.was_live(NULL, NULL, now(), NULL);
SELECT lease.is_live(NULL, NULL, now(), 3600000000), lease.is_live(NULL, NULL, now(), -3600000000), lease.was_live(NULL, NULL, now(), 3600000000), lease.was_live(NULL, NULL, now(), -3600000000);
SELECT lease.is_live(boot, boot_at, at, 3600000000), lease.is_live(boot, boot_at - 3600000000, at, 3600000000)
	FROM lease.start();

--
-- Transactions
--

-- Rolled back, and in savepoints
BEGIN;
SELECT outcome FROM lease.pin('pin/log', 250, 'r1', '1 h');
SELECT outcome, floor_position FROM lease.advance_floor('pin', :a, 'pin/log', 245);
SELECT outcome FROM lease.advance_floor('pin', :a, 'pin/undone', 1);
ROLLBACK;
SELECT floor, position FROM lease.floor WHERE lease = 'pin' AND floor IN ('pin/log', 'pin/undone');
SELECT count(*) FROM pins;
BEGIN;
SELECT outcome FROM lease.pin('pin/log', 250, 'r1', '1 h');
SAVEPOINT s;
SELECT outcome FROM lease.pin('pin/log', 240, 'r1', '1 h');
SELECT outcome, floor_position, held_by FROM lease.advance_floor('pin', :a, 'pin/log', 260);
ROLLBACK TO s;
SELECT outcome, floor_position, held_by FROM lease.advance_floor('pin', :a, 'pin/log', 260);
SELECT * FROM lease.pin('pin/log', 240, 'r2', '1 h');
COMMIT;
SELECT * FROM pins;
-- At the other levels of isolation: what the transaction itself has pinned, or not any more.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT outcome FROM lease.pin('pin/log', 255, 'r2', '1 h');
SELECT outcome FROM lease.renew_pin('pin/log', 'r2');
SELECT lease.unpin('pin/log', 'r1');
SELECT outcome, floor_position, held_by FROM lease.advance_floor('pin', :a, 'pin/log', 260);
SELECT lease.unpin('pin/log', 'r2');
SELECT outcome, floor_position, held_by FROM lease.advance_floor('pin', :a, 'pin/log', 260);
SELECT * FROM lease.pin('pin/log', 259, 'r2', '1 h');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT outcome FROM lease.pin('pin/log', 260, 'r1', '1 h');
SELECT outcome, floor_position, held_by FROM lease.advance_floor('pin', :a, 'pin/log', 270);
COMMIT;
BEGIN READ ONLY;
SAVEPOINT s;
SELECT lease.pin('pin/log', 260, 'r2', '1 h');
ROLLBACK TO s;
SELECT lease.renew_pin('pin/log', 'r1');
ROLLBACK TO s;
SELECT lease.unpin('pin/log', 'r1');
ROLLBACK TO s;
SELECT holder FROM pins;
COMMIT;

-- A thousand times
SELECT last_seq AS before FROM lease.record_chain WHERE lease = 'pin' \gset
CREATE TABLE answer (call text, outcome text, floor_position bigint);
DO $$
DECLARE
	mine CONSTANT bigint := (SELECT epoch FROM lease.status WHERE name = 'pin');
BEGIN
	FOR i IN 1..1000 LOOP
		INSERT INTO answer SELECT 'pin', p.outcome, p.floor_position FROM lease.pin('pin/log', 270, 'r1', '1 h') AS p;
		INSERT INTO answer SELECT 'renew', p.outcome, p.floor_position FROM lease.renew_pin('pin/log', 'r1') AS p;
		INSERT INTO answer SELECT 'advance', f.outcome, f.floor_position FROM lease.advance_floor('pin', mine, 'pin/log', 280) AS f;
		COMMIT;
	END LOOP;
END;
$$;
SELECT call, outcome, floor_position, count(*) FROM answer GROUP BY call, outcome, floor_position ORDER BY call, outcome;
SELECT last_seq - :before AS records FROM lease.record_chain WHERE lease = 'pin';
SELECT count(*) FROM lease.floor_pin WHERE floor = 'pin/log';

--
-- Whose pin it is
--

CREATE ROLE regress_pins_one;
CREATE ROLE regress_pins_two;
CREATE ROLE regress_pins_team;
GRANT regress_pins_team TO regress_pins_two;
SELECT lease.allow('regress_pins_one'), lease.allow('regress_pins_two'), lease.allow('regress_pins_team') \g /dev/null
-- To pin takes no lease, and no other right.
SET ROLE regress_pins_one;
SELECT outcome FROM lease.pin('pin/log', 275, 'one', '1 h');
SET ROLE regress_pins_two;
SELECT lease.pin('pin/log', 300, 'one');
SELECT :'LAST_ERROR_MESSAGE' AS message;
SELECT lease.renew_pin('pin/log', 'one');
SELECT lease.unpin('pin/log', 'one');
SELECT lease.unpin('pin/log', 'r1');
SELECT outcome FROM lease.pin('pin/log', 276, 'two', '1 h');
SELECT holder, nullif(role::text, session_user) AS role, position FROM lease.pin_held WHERE floor = 'pin/log' ORDER BY holder;
-- What has lapsed belongs to nobody; a member may do what its role may.
SET ROLE regress_pins_team;
SELECT outcome FROM lease.pin('pin/log', 277, 'team', '1 h');
SELECT lease.renew_pin('pin/log', 'two');
SET ROLE regress_pins_two;
SELECT outcome FROM lease.renew_pin('pin/log', 'team');
SELECT outcome FROM lease.pin('pin/log', 278, 'team', '1 h');
RESET ROLE;
SET lease.clock_offset = '2 h';
GRANT SET ON PARAMETER lease.clock_offset TO regress_pins_two;
SET ROLE regress_pins_two;
SELECT outcome FROM lease.renew_pin('pin/log', 'one');
SELECT outcome FROM lease.pin('pin/log', 290, 'one', '1 h');
RESET ROLE;
RESET lease.clock_offset;
SELECT holder, nullif(role::text, session_user) AS role, position FROM lease.pin_held WHERE floor = 'pin/log' ORDER BY holder;
-- The pin of a role that is gone is nobody's; the owner of the extension clears it away.
REVOKE SET ON PARAMETER lease.clock_offset FROM regress_pins_two;
SELECT lease.disallow('regress_pins_one'), lease.disallow('regress_pins_two'), lease.disallow('regress_pins_team') \g /dev/null
DROP ROLE regress_pins_one, regress_pins_two, regress_pins_team;
SELECT holder, role::text ~ '^[0-9]+$' AS bare_number FROM lease.pin_held WHERE floor = 'pin/log' AND holder = 'one';
SELECT lease.renew_pin('pin/log', 'one');
SELECT lease.pin('pin/log', 300, 'one');
SELECT lease.unpin('pin/log', 'one'), lease.unpin('pin/log', 'two'), lease.unpin('pin/log', 'team'), lease.unpin('pin/log', 'r1');
SELECT outcome, floor_position, held_by FROM lease.advance_floor('pin', :a, 'pin/log', 300);

--
-- Not without holding the lease
--

SELECT last_seq AS before FROM lease.record_chain WHERE lease = 'pin' \gset
BEGIN;
SELECT outcome FROM lease.advance_floor('pin', :a, 'pin/log', 310);
SELECT lease.revoke('pin') = :a AS revoked;
COMMIT;
SELECT lease.release('pin', :a);
SELECT lease.advance_floor('pin', :a, 'pin/log', 310);
SELECT epoch AS b FROM lease.acquire('pin', 'B') \gset
SELECT lease.advance_floor('pin', :a, 'pin/log', 310);
SELECT lease.advance_floor('pin', :a, 'pin/log', 1);
SET lease.clock_offset = '11 d';
SELECT lease.advance_floor('pin', :b, 'pin/log', 310);
RESET lease.clock_offset;
SELECT lease.record_floor('pin', :b, 'pin/log', 310);
BEGIN;
SELECT lease.guard('pin', :b), lease.guard('pin/other', :other);
SAVEPOINT s;
SELECT lease.record_floor('pin', :a, 'pin/log', 310);
ROLLBACK TO s;
SELECT lease.record_floor('pin/other', :b, 'pin/log', 310);
ROLLBACK TO s;
SELECT lease.record_floor('pin/other', :other, 'pin/log', 310);
COMMIT;
SELECT last_seq - :before AS records FROM lease.record_chain WHERE lease = 'pin';

-- The next leader goes on from where it is; pins do not care who leads.
SELECT outcome FROM lease.pin('pin/log', 305, 'r1', '1 h');
SELECT outcome, floor_position, held_by FROM lease.advance_floor('pin', :b, 'pin/log', 310);
SELECT floor, position, epoch = :b AS under_b, holder FROM lease.floor WHERE floor = 'pin/log';
SELECT bool_and(position::bigint > from_position::bigint) AS never_back, bool_and(from_position IS NOT DISTINCT FROM was) AS each_from_the_one_before
	FROM (SELECT position, from_position, lag(position) OVER (PARTITION BY subject ORDER BY seq) AS was FROM lease.record WHERE lease = 'pin' AND kind = 'floor') AS f;
SELECT verified, problem FROM lease.verify_authority('pin');

-- Floors and records stay; the doctor of a later test would find those of leases that do not.
SET client_min_messages = warning;
DROP TABLE answer;
DROP VIEW pins;
DROP EXTENSION lease;
CREATE EXTENSION lease;
