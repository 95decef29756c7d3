/*-------------------------------------------------------------------------
 *
 * api.c
 *	  The functions that SQL calls to act under a lease.
 *
 * They fetch and check arguments, call grant.c or guard.c, and make the reply.
 * The rule of a reply: its epoch is not null only if the epoch is the caller's,
 * so that nobody walks off with somebody else's token.
 *
 * The forms for many leases sort the names, so that two of them never wait for
 * each other in a circle, and do everything in the caller's one transaction.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/api.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "acquire.h"
#include "api.h"
#include "args.h"
#include "authority.h"
#include "catalog/pg_type.h"
#include "clock.h"
#include "fmgr.h"
#include "funcapi.h"
#include "guard.h"
#include "lock.h"
#include "miscadmin.h"
#include "role.h"
#include "store.h"
#include "utils/builtins.h"

SQL_CALLABLE(lease_acquire);
SQL_CALLABLE(lease_acquire_many);
SQL_CALLABLE(lease_renew);
SQL_CALLABLE(lease_renew_many);
SQL_CALLABLE(lease_release);
SQL_CALLABLE(lease_release_many);
SQL_CALLABLE(lease_revoke);
SQL_CALLABLE(lease_request_handover);
SQL_CALLABLE(lease_holds);
SQL_CALLABLE(lease_remaining);
SQL_CALLABLE(lease_guard);

/* A lease named in one of the forms for many */
typedef struct BatchItem
{
	char	   *name;
	int64		epoch;			/* 0 where there is none */
} BatchItem;

/*
 * live_for returns how long the grant in a row is still live, at this moment.
 */
static int64
live_for(const LeaseRow *row)
{
	Reading		reading;

	if (row->state != GRANT_MADE)
		return 0;
	reading.row = *row;
	store_judge(&reading);
	return Max(reading.authority.deadline - reading.at.now, 0);
}

/*
 * api_fill_reply makes the columns of a reply.  To be called last: "remaining" is
 * measured here, so that a client may add it to the instant of sending.
 */
void
api_fill_reply(const GrantResult *result, Datum *values, bool *nulls)
{
	const LeaseRow *row = &result->row;
	bool		yours = result->outcome == OUTCOME_GRANTED ||
		result->outcome == OUTCOME_RENEWED;
	bool		granted = row->epoch != 0;
	const char *successor = row->state == GRANT_MADE ?
		row->handover_to : row->successor;
	Clock		clock;

#define SET_IF(condition, column, value) \
	do { \
		nulls[Reply_ ## column] = !(condition); \
		if (condition) \
			values[Reply_ ## column] = (value); \
	} while (0)

	clock_read(&clock);
	SET_IF(true, name, CStringGetTextDatum(row->name));
	SET_IF(true, outcome, CStringGetTextDatum(grant_outcome_name(result->outcome)));
	SET_IF(yours, epoch, Int64GetDatum(row->epoch));
	SET_IF(granted, holder, CStringGetTextDatum(row->holder));
	SET_IF(granted, acquired_at,
		   TimestampTzGetDatum(clock_image(&clock, row->boot, &row->acquired)));
	SET_IF(granted, expires_at,
		   TimestampTzGetDatum(clock_image(&clock, row->boot, &row->deadline)));
	SET_IF(true, handover, BoolGetDatum(row->handover_at != 0));
	SET_IF(successor != NULL, successor, CStringGetTextDatum(successor));
	SET_IF(true, remaining, clock_interval_datum(live_for(row)));

#undef SET_IF
}

/*
 * reply_datum makes a reply of type lease.reply.
 */
static Datum
reply_datum(FunctionCallInfo fcinfo, const GrantResult *result)
{
	TupleDesc	desc;
	Datum		values[REPLY_COLUMNS];
	bool		nulls[REPLY_COLUMNS];

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE ||
		desc->natts != REPLY_COLUMNS)
		elog(ERROR, "return type must be lease.reply");
	desc = BlessTupleDesc(desc);
	api_fill_reply(result, values, nulls);
	return HeapTupleGetDatum(heap_form_tuple(desc, values, nulls));
}

/*
 * api_put_reply appends a reply to a result set.
 */
void
api_put_reply(FunctionCallInfo fcinfo, const GrantResult *result)
{
	ReturnSetInfo *set = (ReturnSetInfo *) fcinfo->resultinfo;
	Datum		values[REPLY_COLUMNS];
	bool		nulls[REPLY_COLUMNS];

	api_fill_reply(result, values, nulls);
	tuplestore_putvalues(set->setResult, set->setDesc, values, nulls);
}

/*
 * compare_items orders leases by name.
 */
static int
compare_items(const void *a, const void *b)
{
	return strcmp(((const BatchItem *) a)->name, ((const BatchItem *) b)->name);
}

/*
 * batch_arguments fetches the leases of one of the forms for many, sorted by
 * name: argument 0 has their names, argument 1 (if with_epochs) their epochs.
 * "lenient" lets names and epochs pass that no lease can have.
 */
static int
batch_arguments(FunctionCallInfo fcinfo, bool with_epochs, bool lenient,
				BatchItem **items)
{
	Datum	   *names;
	Datum	   *epochs = NULL;
	int			count;

	count = arg_array(fcinfo, 0, TEXTOID, "names", &names);
	if (with_epochs &&
		arg_array(fcinfo, 1, INT8OID, "epochs", &epochs) != count)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("names and epochs must have the same number of elements")));

	*items = palloc(Max(count, 1) * sizeof(BatchItem));
	for (int i = 0; i < count; i++)
	{
		(*items)[i].name = TextDatumGetCString(names[i]);
		(*items)[i].epoch = epochs ? DatumGetInt64(epochs[i]) : 0;
		if (lenient)
			continue;
		arg_check_name((*items)[i].name);
		if (epochs)
			arg_check_epoch((*items)[i].epoch);
	}
	qsort(*items, count, sizeof(BatchItem), compare_items);
	for (int i = 1; i < count; i++)
	{
		if (strcmp((*items)[i - 1].name, (*items)[i].name) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("lease \"%s\" is named twice", (*items)[i].name)));
	}
	return count;
}

/*
 * check_batch_size raises an error for more leases than there should be locks.
 */
static void
check_batch_size(int count)
{
	if (count > LEASE_BATCH_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many leases in one call: %d", count),
				 errdetail("Each takes a lock to the end of the transaction; at most %d are allowed.",
						   LEASE_BATCH_MAX),
				 errhint("Call several times.")));
}

/*
 * acquire_arguments fetches what acquire and acquire_many have in common.
 */
static void
acquire_arguments(FunctionCallInfo fcinfo, AcquireRequest *request)
{
	request->holder = arg_string(fcinfo, 1, "holder", LEASE_HOLDER_MAX);
	request->ttl = arg_interval_or_zero(fcinfo, 2, "ttl");
	request->reclaim = arg_bool(fcinfo, 3, "reclaim");
	request->metadata = arg_metadata_or_null(fcinfo, 4);
	request->nowait = false;
	request->if_there = false;
}

/*
 * lease_acquire: lease.acquire(name, holder, ttl, reclaim, metadata)
 */
Datum
lease_acquire(PG_FUNCTION_ARGS)
{
	char	   *name = arg_name(fcinfo, 0);
	AcquireRequest request;
	GrantResult result;

	acquire_arguments(fcinfo, &request);
	arg_begin_write("lease.acquire()");
	acquire_lease(name, &request, &result);
	if (result.outcome == OUTCOME_BUSY)
		lock_report_bound(name, result.blocker);
	PG_RETURN_DATUM(reply_datum(fcinfo, &result));
}

/*
 * lease_acquire_many: lease.acquire_many(names, holder, ttl, reclaim, metadata)
 */
Datum
lease_acquire_many(PG_FUNCTION_ARGS)
{
	BatchItem  *items;
	int			count = batch_arguments(fcinfo, false, false, &items);
	AcquireRequest request;

	check_batch_size(count);
	acquire_arguments(fcinfo, &request);
	arg_begin_write("lease.acquire_many()");
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < count; i++)
	{
		GrantResult result;

		acquire_lease(items[i].name, &request, &result);
		api_put_reply(fcinfo, &result);
	}
	return (Datum) 0;
}

/*
 * lease_renew: lease.renew(name, epoch, ttl)
 */
Datum
lease_renew(PG_FUNCTION_ARGS)
{
	char	   *name = arg_name(fcinfo, 0);
	int64		epoch = arg_epoch(fcinfo, 1);
	int64		ttl = arg_interval_or_zero(fcinfo, 2, "ttl");
	GrantResult result;

	arg_begin_write("lease.renew()");
	grant_renew(name, epoch, ttl, false, &result);
	PG_RETURN_DATUM(reply_datum(fcinfo, &result));
}

/*
 * lease_renew_many: lease.renew_many(names, epochs, ttl)
 */
Datum
lease_renew_many(PG_FUNCTION_ARGS)
{
	BatchItem  *items;
	int			count = batch_arguments(fcinfo, true, false, &items);
	int64		ttl = arg_interval_or_zero(fcinfo, 2, "ttl");
	MemoryContext item_context;
	MemoryContext caller_context;

	arg_begin_write("lease.renew_many()");
	InitMaterializedSRF(fcinfo, 0);

	/* There may be many thousands. */
	item_context = AllocSetContextCreate(CurrentMemoryContext, "lease renewal",
										 ALLOCSET_DEFAULT_SIZES);
	caller_context = MemoryContextSwitchTo(item_context);
	for (int i = 0; i < count; i++)
	{
		GrantResult result;

		grant_renew(items[i].name, items[i].epoch, ttl, true, &result);
		api_put_reply(fcinfo, &result);
		MemoryContextReset(item_context);
	}
	MemoryContextSwitchTo(caller_context);
	MemoryContextDelete(item_context);
	return (Datum) 0;
}

/*
 * release_arguments fetches what release and release_many have in common.
 */
static void
release_arguments(FunctionCallInfo fcinfo, ReleaseRequest *request)
{
	request->successor = arg_string_or_null(fcinfo, 2, "successor",
											LEASE_HOLDER_MAX);
	request->reserve = arg_interval_or_zero(fcinfo, 3, "reserve");
	if (request->reserve != 0 && !request->successor)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("reserve requires a successor"),
				 errhint("Name the holder for whom the lease is to be reserved.")));
}

/*
 * lease_release: lease.release(name, epoch, successor, reserve)
 *
 * Releasing what is not held is false, whatever name and epoch are.
 */
Datum
lease_release(PG_FUNCTION_ARGS)
{
	char	   *name = arg_name_or_null(fcinfo, 0);
	ReleaseRequest request;

	release_arguments(fcinfo, &request);
	arg_begin_write("lease.release()");
	if (!name || PG_ARGISNULL(1))
		PG_RETURN_BOOL(false);
	PG_RETURN_BOOL(grant_release(name, PG_GETARG_INT64(1), &request));
}

/*
 * lease_release_many: lease.release_many(names, epochs, successor, reserve)
 */
Datum
lease_release_many(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set = (ReturnSetInfo *) fcinfo->resultinfo;
	BatchItem  *items;
	int			count = batch_arguments(fcinfo, true, true, &items);
	ReleaseRequest request;

	check_batch_size(count);
	release_arguments(fcinfo, &request);
	arg_begin_write("lease.release_many()");
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < count; i++)
	{
		Datum		values[2];
		bool		nulls[2] = {false, false};

		values[0] = CStringGetTextDatum(items[i].name);
		values[1] = BoolGetDatum(grant_release(items[i].name, items[i].epoch,
											   &request));
		tuplestore_putvalues(set->setResult, set->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/*
 * lease_revoke: lease.revoke(name, reason)
 */
Datum
lease_revoke(PG_FUNCTION_ARGS)
{
	char	   *name = arg_name(fcinfo, 0);
	char	   *reason = arg_string_or_null(fcinfo, 1, "reason",
											LEASE_REASON_MAX);
	int64		epoch;

	arg_begin_write("lease.revoke()");
	if (!grant_revoke(name, reason, &epoch))
		PG_RETURN_NULL();
	PG_RETURN_INT64(epoch);
}

/*
 * lease_request_handover: lease.request_handover(name, successor, reason)
 */
Datum
lease_request_handover(PG_FUNCTION_ARGS)
{
	char	   *name = arg_name(fcinfo, 0);
	char	   *successor = arg_string_or_null(fcinfo, 1, "successor",
											   LEASE_HOLDER_MAX);
	char	   *reason = arg_string_or_null(fcinfo, 2, "reason",
											LEASE_REASON_MAX);
	int64		epoch;

	arg_begin_write("lease.request_handover()");
	if (!grant_request_handover(name, successor, reason, &epoch))
		PG_RETURN_NULL();
	PG_RETURN_INT64(epoch);
}

/*
 * held_for returns how long the grant of an epoch is still live, 0 if it is not
 * or if the caller could not act under it.
 */
static int64
held_for(FunctionCallInfo fcinfo)
{
	char	   *name = arg_name_or_null(fcinfo, 0);
	Reading		reading;

	/* The latest snapshot cannot be had there. */
	PreventCommandIfParallelMode("lease.holds()");

	if (!name || PG_ARGISNULL(1) || !store_read(name, &reading) ||
		!role_is_member(GetUserId(), reading.row.role) ||
		authority_standing(&reading.authority, PG_GETARG_INT64(1),
						   &reading.at) != STANDING_LIVE)
		return 0;
	return reading.authority.deadline - reading.at.now;
}

/*
 * lease_holds: lease.holds(name, epoch)
 */
Datum
lease_holds(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(held_for(fcinfo) > 0);
}

/*
 * lease_remaining: lease.remaining(name, epoch)
 */
Datum
lease_remaining(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATUM(clock_interval_datum(held_for(fcinfo)));
}

/*
 * lease_guard: lease.guard(name, epoch)
 */
Datum
lease_guard(PG_FUNCTION_ARGS)
{
	char	   *name = arg_name(fcinfo, 0);
	int64		epoch = arg_epoch(fcinfo, 1);

	PreventCommandIfParallelMode("lease.guard()");
	guard_declare(name, epoch, GetUserId());
	PG_RETURN_VOID();
}
