/*-------------------------------------------------------------------------
 *
 * instants.c
 *	  The clocks, for what is written in SQL.
 *
 * Views and functions in SQL judge heartbeats, occurrences and pins by the same clocks
 * as the C code judges leases (src/clock.c).  An instant is stored as the identity of
 * the boot clock, the instant on that, and its image on the wall clock.
 *
 * Locks: none.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/instants.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "clock.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"

SQL_CALLABLE(lease_boot_clock);
SQL_CALLABLE(lease_transaction_time);
SQL_CALLABLE(lease_start);
SQL_CALLABLE(lease_elapsed);
SQL_CALLABLE(lease_is_live);
SQL_CALLABLE(lease_was_live);

/* The first three arguments of those that are given a stored instant */
enum
{
	Arg_boot,
	Arg_boot_at,
	Arg_at
};

/*
 * arg_localized fetches a stored instant, on the scale of a clock.
 */
static int64
arg_localized(FunctionCallInfo fcinfo, const Clock *clock)
{
	const char *boot = NULL;
	StoredInstant instant = {0};

	instant.wall = PG_GETARG_TIMESTAMPTZ(Arg_at);
	if (!PG_ARGISNULL(Arg_boot) && !PG_ARGISNULL(Arg_boot_at))
	{
		boot = text_to_cstring(PG_GETARG_TEXT_PP(Arg_boot));
		instant.boot = PG_GETARG_INT64(Arg_boot_at);
	}
	return clock_localize(clock, boot, &instant);
}

/*
 * lease_boot_clock: lease.boot_clock()
 *
 * The identity of the clock by which leases are judged, or null if there is
 * only the wall clock.
 */
Datum
lease_boot_clock(PG_FUNCTION_ARGS)
{
	Clock		clock;

	clock_read(&clock);
	if (!clock.boot)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(clock.boot));
}

/*
 * lease_transaction_time: lease.transaction_time()
 */
Datum
lease_transaction_time(PG_FUNCTION_ARGS)
{
	(void) fcinfo;
	PG_RETURN_TIMESTAMPTZ(clock_transaction_time());
}

/*
 * lease_start: lease.start()
 *
 * The start of the transaction, to be stored.
 */
Datum
lease_start(PG_FUNCTION_ARGS)
{
	Clock		clock;
	StoredInstant start;
	TupleDesc	desc;
	Datum		values[3];
	bool		nulls[3] = {false};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	clock_read(&clock);
	start = clock_store(&clock, clock.tx);
	if (clock.boot)
		values[Arg_boot] = CStringGetTextDatum(clock.boot);
	else
		nulls[Arg_boot] = true;
	values[Arg_boot_at] = Int64GetDatum(start.boot);
	values[Arg_at] = TimestampTzGetDatum(start.wall);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc),
													  values, nulls)));
}

/*
 * lease_elapsed: lease.elapsed(boot, boot_at, at), of which views are made
 *
 * How long ago a stored instant is: by the boot clock where that is the one by which
 * it was stored, else by its image on the wall clock; never negative.
 */
Datum
lease_elapsed(PG_FUNCTION_ARGS)
{
	Clock		clock;

	if (PG_ARGISNULL(Arg_at))
		PG_RETURN_NULL();
	clock_read(&clock);
	return clock_interval_datum(Max(clock.now - arg_localized(fcinfo, &clock), 0));
}

/*
 * lease_is_live: lease.is_live(boot, boot_at, at, ttl)
 *
 * Is what began at a stored instant, and lasts for some microseconds, not over at this
 * moment?  Nor was it, then, at the start of the transaction.
 */
Datum
lease_is_live(PG_FUNCTION_ARGS)
{
	Clock		clock;

	if (PG_ARGISNULL(Arg_at) || PG_ARGISNULL(3))
		PG_RETURN_BOOL(false);
	clock_read(&clock);
	PG_RETURN_BOOL(arg_localized(fcinfo, &clock) + PG_GETARG_INT64(3) > clock.now);
}

/*
 * lease_was_live: lease.was_live(boot, boot_at, at, ttl)
 *
 * Was it not over at the start of the transaction?
 */
Datum
lease_was_live(PG_FUNCTION_ARGS)
{
	Clock		clock;

	if (PG_ARGISNULL(Arg_at) || PG_ARGISNULL(3))
		PG_RETURN_BOOL(true);
	clock_read(&clock);
	PG_RETURN_BOOL(arg_localized(fcinfo, &clock) + PG_GETARG_INT64(3) > clock.tx);
}
