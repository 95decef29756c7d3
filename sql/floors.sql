-- Floors and pins: what may be removed, and who still needs it.  See sql/records.sql, and
-- for how the two are kept from missing each other src/pins.c.
--
-- A floor is a position, a number that means something to those who use it: below it
-- things may be gone.  The leader of the lease that it belongs to advances it, and then
-- removes what is below.  Whoever reads at a position pins it before.  A pin is for a
-- time, and is renewed by the process that made it; while it is live the floor does not
-- pass it, and there is no pin below the floor.
--
-- A floor is made by the first lease.advance_floor().  The records of a lease have one of
-- their own, of the name of the lease with #records: see lease.compact().

CREATE TABLE lease.floor (
	floor text COLLATE "C" PRIMARY KEY,
	lease text COLLATE "C" NOT NULL,
	position bigint NOT NULL,
	seq bigint,
	epoch bigint,
	holder text,
	advanced_at timestamptz
) WITH (fillfactor = 50);
COMMENT ON TABLE lease.floor IS 'positions below which things may be gone; written by the functions of the extension only';
COMMENT ON COLUMN lease.floor.floor IS 'name of the floor; with #records: that of the records of the lease';
COMMENT ON COLUMN lease.floor.lease IS 'the lease whose holder advances it';
COMMENT ON COLUMN lease.floor.position IS 'where it is: there is no pin below';
COMMENT ON COLUMN lease.floor.seq IS 'number of the record of that';
COMMENT ON COLUMN lease.floor.epoch IS 'under which epoch it was advanced last';
COMMENT ON COLUMN lease.floor.holder IS 'by whom';
COMMENT ON COLUMN lease.floor.advanced_at IS 'when, by the transaction time';

CREATE TABLE lease.floor_pin (
	floor text COLLATE "C" NOT NULL,
	holder text COLLATE "C" NOT NULL,
	role regrole NOT NULL,
	position bigint NOT NULL,
	ttl bigint NOT NULL CHECK (ttl > 0),
	pinned_boot bigint NOT NULL,
	pinned_at timestamptz NOT NULL,
	boot text,
	first_pinned_at timestamptz NOT NULL,
	PRIMARY KEY (floor, holder)
) WITH (fillfactor = 50);
COMMENT ON TABLE lease.floor_pin IS 'pins, also those that have lapsed; written by the functions of the extension only; read lease.pin_held instead';
COMMENT ON COLUMN lease.floor_pin.floor IS 'the floor';
COMMENT ON COLUMN lease.floor_pin.holder IS 'who holds it: a process incarnation';
COMMENT ON COLUMN lease.floor_pin.role IS 'the role that made it; only its members may renew, move and remove it';
COMMENT ON COLUMN lease.floor_pin.position IS 'what is needed: this and all above it';
COMMENT ON COLUMN lease.floor_pin.ttl IS 'for how many microseconds it holds';
COMMENT ON COLUMN lease.floor_pin.pinned_boot IS 'since when, on the boot clock';
COMMENT ON COLUMN lease.floor_pin.pinned_at IS 'its image on the wall clock';
COMMENT ON COLUMN lease.floor_pin.boot IS 'identity of the boot clock; null if there was none';
COMMENT ON COLUMN lease.floor_pin.first_pinned_at IS 'when it was made, by the transaction time';

SELECT pg_catalog.pg_extension_config_dump('lease.floor', '');
SELECT pg_catalog.pg_extension_config_dump('lease.floor_pin', '');

CREATE FUNCTION lease.floor_of(
	floor text)
RETURNS SETOF lease.floor
LANGUAGE sql STABLE PARALLEL UNSAFE ROWS 1
SET search_path = pg_catalog, pg_temp
AS $$
	SELECT f.* FROM lease.floor f WHERE f.floor = floor_of.floor;
$$;
COMMENT ON FUNCTION lease.floor_of(text) IS
'where a floor is: a row of lease.floor, or none if there is no such floor';

CREATE FUNCTION lease.start(
	OUT boot text,
	OUT boot_at bigint,
	OUT at timestamptz)
RETURNS record
AS 'MODULE_PATHNAME', 'lease_start'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.start() IS
'a part of lease.pin(): the start of the transaction, on the boot clock and on the wall clock';

CREATE FUNCTION lease.is_live(
	boot text,
	boot_at bigint,
	at timestamptz,
	ttl bigint)
RETURNS boolean
AS 'MODULE_PATHNAME', 'lease_is_live'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.is_live(text, bigint, timestamptz, bigint) IS
'a part of lease.pin_held: whether what began then, and lasts for so many microseconds, is not over at this moment; false for null';

CREATE FUNCTION lease.was_live(
	boot text,
	boot_at bigint,
	at timestamptz,
	ttl bigint)
RETURNS boolean
AS 'MODULE_PATHNAME', 'lease_was_live'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.was_live(text, bigint, timestamptz, bigint) IS
'a part of lease.advance_floor(): whether what began then, and lasts for so many microseconds, was not over at the start of the transaction; true for null';

CREATE VIEW lease.pin_held AS
	SELECT p.floor, p.holder, p.role, p.position, p.ttl * interval '1 microsecond' AS ttl,
		p.first_pinned_at AS held_since,
		greatest(p.ttl * interval '1 microsecond' - lease.elapsed(p.boot, p.pinned_boot, p.pinned_at), '0') AS remaining,
		f.lease, f.position AS floor_position
	FROM lease.floor_pin p
		LEFT JOIN lease.floor f ON f.floor = p.floor
	WHERE lease.is_live(p.boot, p.pinned_boot, p.pinned_at, p.ttl);
COMMENT ON VIEW lease.pin_held IS 'the pins that are live at this moment';
COMMENT ON COLUMN lease.pin_held.floor IS 'the floor that it holds back';
COMMENT ON COLUMN lease.pin_held.holder IS 'who holds it';
COMMENT ON COLUMN lease.pin_held.role IS 'the role that made it; a bare number if the role has been dropped';
COMMENT ON COLUMN lease.pin_held.position IS 'what is needed: this and all above it';
COMMENT ON COLUMN lease.pin_held.ttl IS 'for how long it holds, from each renewal';
COMMENT ON COLUMN lease.pin_held.held_since IS 'when it was made, by the transaction time';
COMMENT ON COLUMN lease.pin_held.remaining IS 'for how long it is still live';
COMMENT ON COLUMN lease.pin_held.lease IS 'the lease of the floor';
COMMENT ON COLUMN lease.pin_held.floor_position IS 'where that is';

--
-- Pins
--

CREATE FUNCTION lease.lock_floor(
	floor text,
	holder text)
RETURNS void
AS 'MODULE_PATHNAME', 'lease_lock_floor'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.lock_floor(text, text) IS
'a part of lease.advance_floor(), and with a holder of lease.pin() and the like: locks a floor, or a pin, to the end of the transaction';

CREATE FUNCTION lease.current_floor(
	floor text)
RETURNS lease.floor
AS 'MODULE_PATHNAME', 'lease_current_floor'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.current_floor(text) IS
'a part of lease.pin() and lease.advance_floor(): a floor that is locked, as it is now';

CREATE FUNCTION lease.check_pin_role(
	pin lease.floor_pin,
	role regrole)
RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF NOT EXISTS (SELECT FROM pg_roles r WHERE r.oid = pin.role AND pg_has_role(check_pin_role.role, r.oid, 'USAGE')) THEN
		RAISE insufficient_privilege USING
			MESSAGE = format('permission denied for the pin of "%s" on floor "%s"', pin.holder, pin.floor),
			DETAIL = format('It belongs to role %s.', pin.role),
			HINT = 'A pin belongs to the role that made it. Give every process a holder of its own.';
	END IF;
END;
$$;
COMMENT ON FUNCTION lease.check_pin_role(lease.floor_pin, regrole) IS
'a part of lease.pin() and the like: raises 42501 unless the pin is the role''s';

CREATE FUNCTION lease.put_pin(
	floor text,
	at_position bigint,
	holder text,
	ttl bigint,
	role regrole,
	OUT outcome text,
	OUT pinned_position bigint,
	OUT floor_position bigint,
	OUT remaining interval)
RETURNS record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	f lease.floor;
	p lease.floor_pin;
	start record;
BEGIN
	-- From here to the end of the transaction the floor stays.
	PERFORM lease.lock_floor(put_pin.floor, put_pin.holder);
	f := lease.current_floor(put_pin.floor);
	IF f.floor IS NULL THEN
		RAISE undefined_object USING
			MESSAGE = format('floor "%s" does not exist', put_pin.floor),
			HINT = 'The holder of a lease makes it with lease.advance_floor(); that of the records of a lease is there from the first of them on.';
	END IF;
	floor_position := f.position;
	IF put_pin.at_position < f.position THEN
		outcome := 'below';
		RETURN;
	END IF;
	SELECT x.* INTO start FROM lease.start() AS x;
	SELECT x.* INTO p FROM lease.floor_pin x
		WHERE x.floor = put_pin.floor AND x.holder = put_pin.holder FOR UPDATE;
	IF NOT FOUND THEN
		-- There may be one that an older snapshot does not show: 40001.
		INSERT INTO lease.floor_pin VALUES (put_pin.floor, put_pin.holder, put_pin.role, put_pin.at_position,
				put_pin.ttl, start.boot_at, start.at, start.boot, start.at)
			ON CONFLICT DO NOTHING;
	ELSE
		-- One that has lapsed is nobody's any more.
		IF lease.is_live(p.boot, p.pinned_boot, p.pinned_at, p.ttl) THEN
			PERFORM lease.check_pin_role(p, put_pin.role);
		ELSE
			p.first_pinned_at := start.at;
		END IF;
		UPDATE lease.floor_pin x SET role = put_pin.role, position = put_pin.at_position, ttl = put_pin.ttl,
				pinned_boot = start.boot_at, pinned_at = start.at, boot = start.boot,
				first_pinned_at = p.first_pinned_at
			WHERE x.floor = put_pin.floor AND x.holder = put_pin.holder;
	END IF;
	remaining := put_pin.ttl * interval '1 microsecond' - lease.elapsed(start.boot, start.boot_at, start.at);
	IF remaining <= interval '0' THEN
		RAISE EXCEPTION USING ERRCODE = 'LS002',
			MESSAGE = format('this transaction is too old to pin floor "%s"', put_pin.floor),
			DETAIL = format('It began more than %s ago, so that the pin would be over.', put_pin.ttl * interval '1 microsecond'),
			HINT = 'Pin in a transaction of its own.';
	END IF;
	PERFORM lease.commit_durably();
	outcome := 'pinned';
	pinned_position := put_pin.at_position;
END;
$$;
COMMENT ON FUNCTION lease.put_pin(text, bigint, text, bigint, regrole) IS
'a part of lease.pin(), which is the function to use';

CREATE FUNCTION lease.pin(
	floor text,
	at_position bigint,
	holder text,
	ttl interval DEFAULT '30 s',
	OUT outcome text,
	OUT pinned_position bigint,
	OUT floor_position bigint,
	OUT remaining interval)
RETURNS record
AS 'MODULE_PATHNAME', 'lease_pin'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.pin(text, bigint, text, interval) IS
'says that a process needs what is at a position of a floor and above, for a time (null: 30 s) from the start of the transaction on, unless it renews; a pin that it has on the floor is moved. outcome: pinned, and for how long that still holds; below, the floor, which the row says, is higher. Holds from the COMMIT on: read after that. Advancing the floor waits until the transaction has ended. Raises 42704 (no such floor), 42501 (the pin belongs to another role), LS002 (the transaction is older than the ttl), LS006 (another transaction is advancing the floor), 22004, 22023';

CREATE FUNCTION lease.refresh_pin(
	floor text,
	holder text,
	ttl bigint,
	role regrole,
	OUT outcome text,
	OUT pinned_position bigint,
	OUT floor_position bigint,
	OUT remaining interval)
RETURNS record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	p lease.floor_pin;
	start record;
	new_ttl bigint;
	is_longer boolean;
BEGIN
	PERFORM lease.lock_floor(refresh_pin.floor, refresh_pin.holder);
	SELECT x.* INTO p FROM lease.floor_pin x
		WHERE x.floor = refresh_pin.floor AND x.holder = refresh_pin.holder FOR UPDATE;
	floor_position := (lease.current_floor(refresh_pin.floor)).position;
	IF p.floor IS NULL OR NOT lease.is_live(p.boot, p.pinned_boot, p.pinned_at, p.ttl) THEN
		outcome := 'lapsed';
		RETURN;
	END IF;
	PERFORM lease.check_pin_role(p, refresh_pin.role);
	-- A renewal never shortens.  (Two calls of elapsed are compared only where the clocks are
	-- not the same: between them time passes, for which a renewal may be left out.)
	SELECT x.* INTO start FROM lease.start() AS x;
	new_ttl := coalesce(nullif(refresh_pin.ttl, 0), p.ttl);
	remaining := p.ttl * interval '1 microsecond' - lease.elapsed(p.boot, p.pinned_boot, p.pinned_at);
	is_longer := CASE WHEN start.boot = p.boot THEN start.boot_at + new_ttl > p.pinned_boot + p.ttl
		ELSE new_ttl * interval '1 microsecond' - lease.elapsed(start.boot, start.boot_at, start.at) > remaining END;
	IF is_longer THEN
		UPDATE lease.floor_pin x SET ttl = new_ttl,
				pinned_boot = start.boot_at, pinned_at = start.at, boot = start.boot
			WHERE x.floor = refresh_pin.floor AND x.holder = refresh_pin.holder;
		remaining := new_ttl * interval '1 microsecond' - lease.elapsed(start.boot, start.boot_at, start.at);
	END IF;
	pinned_position := p.position;
	PERFORM lease.commit_durably();
	outcome := 'renewed';
END;
$$;
COMMENT ON FUNCTION lease.refresh_pin(text, text, bigint, regrole) IS
'a part of lease.renew_pin(), which is the function to use';

CREATE FUNCTION lease.renew_pin(
	floor text,
	holder text,
	ttl interval DEFAULT NULL,
	OUT outcome text,
	OUT pinned_position bigint,
	OUT floor_position bigint,
	OUT remaining interval)
RETURNS record
AS 'MODULE_PATHNAME', 'lease_renew_pin'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.renew_pin(text, text, interval) IS
'renews the pin of exactly this holder, if it is live, for a time (null: as before) from the start of the transaction on; it is never shortened. outcome: renewed, and for how long it still holds; lapsed: stop reading, and pin again, which may be below the floor then. Raises 42501 (it belongs to another role), LS006 (another transaction is at it, or is advancing the floor), 22004, 22023';

CREATE FUNCTION lease.pin_renew_interval(
	ttl interval DEFAULT '30 s')
RETURNS interval
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN lease.task_interval(coalesce(pin_renew_interval.ttl, '30 s'), 'ttl', '1 ms') / 4;
END;
$$;
COMMENT ON FUNCTION lease.pin_renew_interval(interval) IS
'how often to renew a pin of that ttl (null: 30 s): four times in it, so that two renewals may fail; raises 22023';

CREATE FUNCTION lease.remove_pin(
	floor text,
	holder text,
	role regrole)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	p lease.floor_pin;
	was_live boolean;
BEGIN
	PERFORM lease.lock_floor(remove_pin.floor, remove_pin.holder);
	SELECT x.* INTO p FROM lease.floor_pin x
		WHERE x.floor = remove_pin.floor AND x.holder = remove_pin.holder FOR UPDATE;
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	was_live := lease.is_live(p.boot, p.pinned_boot, p.pinned_at, p.ttl);
	-- One that has lapsed is nobody's any more.  The owner of the extension may clear away what
	-- somebody renews for ever.
	IF was_live AND NOT pg_has_role(remove_pin.role,
		(SELECT e.extowner FROM pg_extension e WHERE e.extname = 'lease'), 'USAGE')
	THEN
		PERFORM lease.check_pin_role(p, remove_pin.role);
	END IF;
	DELETE FROM lease.floor_pin x WHERE x.floor = remove_pin.floor AND x.holder = remove_pin.holder;
	RETURN was_live;
END;
$$;
COMMENT ON FUNCTION lease.remove_pin(text, text, regrole) IS
'a part of lease.unpin(), which is the function to use';

CREATE FUNCTION lease.unpin(
	floor text,
	holder text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'lease_unpin'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.unpin(text, text) IS
'gives back the pin of exactly this holder; whether it was live: if not, or if it has none, false. Raises 42501 unless the role that made it, or the owner of the extension, calls it, LS006 (another transaction is at it), 22004, 22023';

--
-- Floors
--

CREATE FUNCTION lease.lowest_pin(
	floor text,
	below bigint)
RETURNS lease.floor_pin
AS 'MODULE_PATHNAME', 'lease_lowest_pin'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.lowest_pin(text, bigint) IS
'a part of lease.advance_floor(): removes the pins of a floor that have lapsed, and returns the lowest of the others below a position';

CREATE FUNCTION lease.hold_floor(
	floor text,
	requested bigint,
	OUT standing lease.floor,
	OUT pin lease.floor_pin)
RETURNS record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM lease.lock_floor(hold_floor.floor, NULL);
	standing := lease.current_floor(hold_floor.floor);
	IF standing.position < hold_floor.requested THEN
		pin := lease.lowest_pin(hold_floor.floor, hold_floor.requested);
	END IF;
END;
$$;
COMMENT ON FUNCTION lease.hold_floor(text, bigint) IS
'a part of lease.advance_floor() and lease.compact(): locks a floor to the end of the transaction, and finds what holds it back from a position';

CREATE FUNCTION lease.record_floor(
	name text,
	epoch bigint,
	floor text,
	to_position bigint,
	OUT outcome text,
	OUT standing lease.floor,
	OUT pin lease.floor_pin)
RETURNS record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	chain lease.record_chain;
	held record;
	new lease.record;
BEGIN
	PERFORM lease.require_text(record_floor.floor, 'floor', 127);
	IF record_floor.floor LIKE '%#records' THEN
		RAISE invalid_parameter_value USING
			MESSAGE = format('invalid name of a floor: "%s"', record_floor.floor),
			HINT = 'The floor of the records of a lease is advanced by lease.compact().';
	END IF;
	PERFORM lease.check_name(record_floor.floor, 'a floor');
	IF record_floor.to_position IS NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = 'to_position must not be null';
	END IF;
	chain := lease.lock_chain(record_floor.name, record_floor.epoch);
	held := lease.hold_floor(record_floor.floor, record_floor.to_position);
	standing := held.standing;
	pin := held.pin;
	IF standing.lease <> record_floor.name THEN
		RAISE insufficient_privilege USING
			MESSAGE = format('floor "%s" belongs to lease "%s", not "%s"', standing.floor, standing.lease, record_floor.name);
	END IF;
	new.position := least(record_floor.to_position, pin.position);
	outcome := CASE WHEN pin.position IS NOT NULL THEN 'held'
		WHEN standing.position >= record_floor.to_position THEN 'unchanged'
		ELSE 'advanced' END;
	IF standing.position >= new.position::bigint THEN
		RETURN;
	END IF;
	new.lease := record_floor.name;
	new.kind := 'floor';
	new.subject := record_floor.floor;
	new.from_position := standing.position;
	new.epoch := record_floor.epoch;
	new := lease.append_record(new, chain);
	IF standing.floor IS NULL THEN
		INSERT INTO lease.floor VALUES (new.subject, new.lease, new.position::bigint, new.seq, new.epoch, new.holder, new.at)
			RETURNING * INTO standing;
		RETURN;
	END IF;
	UPDATE lease.floor f SET position = new.position::bigint, seq = new.seq, epoch = new.epoch,
			holder = new.holder, advanced_at = new.at
		WHERE f.floor = new.subject
		RETURNING f.* INTO standing;
END;
$$;
COMMENT ON FUNCTION lease.record_floor(text, bigint, text, bigint) IS
'a part of lease.advance_floor(), which is the function to use';

CREATE FUNCTION lease.advance_floor(
	name text,
	epoch bigint,
	floor text,
	to_position bigint,
	OUT outcome text,
	OUT floor_position bigint,
	OUT held_by text,
	OUT held_for interval)
RETURNS record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	answer record;
	standing lease.floor;
	pin lease.floor_pin;
BEGIN
	PERFORM lease.guard(advance_floor.name, advance_floor.epoch);
	SELECT r.* INTO answer FROM lease.record_floor(advance_floor.name, advance_floor.epoch, advance_floor.floor,
		advance_floor.to_position) AS r;
	outcome := answer.outcome;
	standing := answer.standing;
	pin := answer.pin;
	floor_position := standing.position;
	held_by := pin.holder;
	IF held_by IS NOT NULL THEN
		held_for := greatest(pin.ttl * interval '1 microsecond' - lease.elapsed(pin.boot, pin.pinned_boot, pin.pinned_at), '0');
	END IF;
END;
$$;
COMMENT ON FUNCTION lease.advance_floor(text, bigint, text, bigint) IS
'advances a floor to a position, but not beyond the lowest live pin, under the epoch of the lease, and guards the transaction; it never goes back; one that does not exist is made, and belongs to the lease from then on. outcome: advanced; held, a pin holds it back, floor_position says where, held_by whose, held_for for how long unless it is renewed; unchanged, it is there, or higher. What is below floor_position may be removed when this has been committed. Use a transaction of its own: whoever pins waits for it. Raises 42501 (the floor belongs to another lease), LS006 (a pin, or another record of this lease, is being written in a transaction that has not ended), 22004, 22023, and what lease.guard() raises';
