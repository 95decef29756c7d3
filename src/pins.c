/*-------------------------------------------------------------------------
 *
 * pins.c
 *	  Pins, and the floors that they hold back.
 *
 * A floor is a position below which a leader may remove things; a pin says that
 * somebody still needs what is at a position and above.  Whoever advances a floor takes
 * the lock of the floor exclusively, and whoever makes, renews or removes a pin takes it
 * in share mode, both to the end of the transaction; so one of the two sees what the
 * other has done.  A pin is also locked by itself.  It holds the floor back while it is
 * live:
 *
 *	- To renew it takes that it is live at this moment, under the lock.  Its time then
 *	  begins at the start of the transaction that renews it.
 *
 *	- To take it for lapsed takes that it was over at the start of the transaction that
 *	  advances the floor, under the lock.  It is removed before the floor passes it.
 *
 * All times are measured as those of leases are, on the boot clock (src/clock.c).
 *
 * Both look at what there is under the latest snapshot (latest.c), since their own may be older
 * than the lock.  What is then written to a row that was changed since their own fails
 * with 40001 in a REPEATABLE READ or SERIALIZABLE transaction.
 *
 * A pin belongs to the role that made it.  So the user is told to the functions behind
 * these, in plain SQL, as in src/definition.c.
 *
 * Locks: floor, and pin, to the end of the transaction; RowExclusive on the table.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/pins.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "args.h"
#include "catalog/pg_type.h"
#include "definition.h"
#include "fmgr.h"
#include "latest.h"
#include "lock.h"
#include "miscadmin.h"
#include "utils/builtins.h"

SQL_CALLABLE(lease_pin);
SQL_CALLABLE(lease_renew_pin);
SQL_CALLABLE(lease_unpin);
SQL_CALLABLE(lease_lock_floor);
SQL_CALLABLE(lease_current_floor);
SQL_CALLABLE(lease_lowest_pin);

/* For how long a pin holds if it does not say */
#define DEFAULT_PIN_TTL	(INT64CONST(30) * USECS_PER_SEC)

/* What whoever has a lock of a floor does */
#define BUSY_WITH	"advances it, or has made, renewed or removed a pin"

static LatestStatement get_floor = {
	"floor",
	"SELECT f FROM lease.floor AS f WHERE f.floor OPERATOR(pg_catalog.=) $1",
	1, {TEXTOID},
	NULL
};

static LatestStatement remove_lapsed = {
	"floor_pin",
	"DELETE FROM lease.floor_pin AS p WHERE p.floor OPERATOR(pg_catalog.=) $1"
	" AND NOT lease.was_live(p.boot, p.pinned_boot, p.pinned_at, p.ttl)",
	1, {TEXTOID},
	NULL
};

static LatestStatement get_lowest = {
	"floor_pin",
	"SELECT p FROM lease.floor_pin AS p"
	" WHERE p.floor OPERATOR(pg_catalog.=) $1 AND p.position OPERATOR(pg_catalog.<) $2"
	" ORDER BY p.position, p.holder LIMIT 1",
	2, {TEXTOID, INT8OID},
	NULL
};

/*
 * lease_pin: lease.pin(floor, position, holder, ttl)
 */
Datum
lease_pin(PG_FUNCTION_ARGS)
{
	Oid			types[] = {TEXTOID, INT8OID, TEXTOID, INT8OID, REGROLEOID};
	Datum		values[lengthof(types)];

	if (PG_ARGISNULL(0))
		arg_raise_null("floor");
	if (PG_ARGISNULL(1))
		arg_raise_null("at_position");
	values[0] = PG_GETARG_DATUM(0);
	values[1] = PG_GETARG_DATUM(1);
	values[2] = CStringGetTextDatum(arg_string(fcinfo, 2, "holder", LEASE_HOLDER_MAX));
	values[3] = Int64GetDatum(arg_setting(fcinfo, 3, "ttl", false, DEFAULT_PIN_TTL));
	values[4] = ObjectIdGetDatum(GetUserId());
	arg_begin_write("lease.pin()");
	return definition_execute("floor_pin",
							  "SELECT * FROM lease.put_pin($1, $2, $3, $4, $5)",
							  lengthof(types), types, values, NULL);
}

/*
 * lease_renew_pin: lease.renew_pin(floor, holder, ttl)
 */
Datum
lease_renew_pin(PG_FUNCTION_ARGS)
{
	Oid			types[] = {TEXTOID, TEXTOID, INT8OID, REGROLEOID};
	Datum		values[lengthof(types)];

	if (PG_ARGISNULL(0))
		arg_raise_null("floor");
	values[0] = PG_GETARG_DATUM(0);
	values[1] = CStringGetTextDatum(arg_string(fcinfo, 1, "holder", LEASE_HOLDER_MAX));
	values[2] = Int64GetDatum(arg_interval_or_zero(fcinfo, 2, "ttl"));
	values[3] = ObjectIdGetDatum(GetUserId());
	arg_begin_write("lease.renew_pin()");
	return definition_execute("floor_pin",
							  "SELECT * FROM lease.refresh_pin($1, $2, $3, $4)",
							  lengthof(types), types, values, NULL);
}

/*
 * lease_unpin: lease.unpin(floor, holder)
 */
Datum
lease_unpin(PG_FUNCTION_ARGS)
{
	Oid			types[] = {TEXTOID, TEXTOID, REGROLEOID};
	Datum		values[lengthof(types)];

	if (PG_ARGISNULL(0))
		arg_raise_null("floor");
	values[0] = PG_GETARG_DATUM(0);
	values[1] = CStringGetTextDatum(arg_string(fcinfo, 1, "holder", LEASE_HOLDER_MAX));
	values[2] = ObjectIdGetDatum(GetUserId());
	arg_begin_write("lease.unpin()");
	return definition_execute("floor_pin", "SELECT lease.remove_pin($1, $2, $3)",
							  lengthof(types), types, values, NULL);
}

/*
 * lease_lock_floor: lease.lock_floor(floor, holder)
 *
 * Locks a floor for whoever advances it, or, with a holder, for a change of his pin.
 */
Datum
lease_lock_floor(PG_FUNCTION_ARGS)
{
	char	   *floor;
	char	   *holder;
	char	   *busy;
	LOCKTAG		tag;

	if (PG_ARGISNULL(0))
		arg_raise_null("floor");
	floor = text_to_cstring(PG_GETARG_TEXT_PP(0));
	busy = psprintf("floor \"%s\" is busy", floor);
	holder = arg_string_or_null(fcinfo, 1, "holder", LEASE_HOLDER_MAX);
	lock_start_budget();
	lock_tag_floor(&tag, floor);
	lock_take_or_raise(&tag, holder ? ShareLock : ExclusiveLock, busy, BUSY_WITH);
	if (holder)
	{
		lock_tag_pin(&tag, floor, holder);
		lock_take_or_raise(&tag, ExclusiveLock, busy, BUSY_WITH);
	}
	PG_RETURN_VOID();
}

/*
 * lease_current_floor: lease.current_floor(floor)
 *
 * The row of a floor as it is now.  The caller has locked the floor.
 */
Datum
lease_current_floor(PG_FUNCTION_ARGS)
{
	Datum		values[1];
	Datum		floor;

	if (PG_ARGISNULL(0))
		arg_raise_null("floor");
	values[0] = PG_GETARG_DATUM(0);
	floor = latest_execute(&get_floor, values, NULL);
	if (floor == (Datum) 0)
		PG_RETURN_NULL();
	PG_RETURN_DATUM(floor);
}

/*
 * lease_lowest_pin: lease.lowest_pin(floor, below)
 *
 * Removes the pins of a floor that have lapsed, and returns the lowest that is left
 * below a position.  The caller has locked the floor exclusively.
 */
Datum
lease_lowest_pin(PG_FUNCTION_ARGS)
{
	Datum		values[2];
	Datum		pin;

	if (PG_ARGISNULL(0))
		arg_raise_null("floor");
	if (PG_ARGISNULL(1))
		arg_raise_null("below");
	values[0] = PG_GETARG_DATUM(0);
	values[1] = PG_GETARG_DATUM(1);
	(void) latest_execute(&remove_lapsed, values, NULL);
	pin = latest_execute(&get_lowest, values, NULL);
	if (pin == (Datum) 0)
		PG_RETURN_NULL();
	PG_RETURN_DATUM(pin);
}
