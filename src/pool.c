/*-------------------------------------------------------------------------
 *
 * pool.c
 *	  Many leases of which any will do: lease.acquire_any().
 *
 * A pool is a set of leases, named one by one or by the beginning of their names:
 * the shards of a table, or the seats of a semaphore.  Who wants some of them
 * takes the first that are free and that nobody else is deciding about; it never
 * waits, so that many can take from one pool at the same time without standing in
 * each other's way.  Each holder begins at another place of the pool.  Whoever sits
 * on a lease that is free is ended like by any taker, if that is allowed; it is had
 * by the next call.
 *
 * How many each member of a pool should hold, is computed in sql/pools.sql.
 *
 * Locks: those of an acquire, none of which is waited for.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/pool.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "acquire.h"
#include "api.h"
#include "args.h"
#include "authority.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "fmgr.h"
#include "funcapi.h"
#include "guard.h"
#include "miscadmin.h"
#include "role.h"
#include "store.h"
#include "utils/builtins.h"

SQL_CALLABLE(lease_acquire_any);

/* Arguments of lease.acquire_any(), as sql/pools.sql declares them */
enum
{
	Arg_names,
	Arg_holder,
	Arg_up_to,
	Arg_ttl,
	Arg_metadata
};

/* The end of a pattern for the beginning of names */
#define WILDCARD	'*'

/* A lease of a pool */
typedef struct PoolLease
{
	const char *name;
	bool		found;			/* by a pattern, not named itself */
} PoolLease;

/* The leases of a pool */
typedef struct Pool
{
	MemoryContext context;		/* of the array and the names */
	PoolLease  *leases;
	int			count;
	int			size;			/* of the array */
} Pool;

/*
 * add_lease appends a lease to a pool.
 */
static void
add_lease(Pool *pool, const char *name, bool found)
{
	if (pool->count == pool->size)
	{
		pool->size = Max(pool->size * 2, 64);
		pool->leases = pool->leases ?
			repalloc(pool->leases, pool->size * sizeof(PoolLease)) :
			MemoryContextAlloc(pool->context,
							   pool->size * sizeof(PoolLease));
	}
	pool->leases[pool->count].name = name;
	pool->leases[pool->count].found = found;
	pool->count++;
}

/*
 * receive_lease appends a lease whose name has the right beginning, if the user may
 * act under it.
 */
static void
receive_lease(const LeaseRow *row, void *arg)
{
	Pool	   *pool = (Pool *) arg;

	if (role_is_member(GetUserId(), row->role))
		add_lease(pool, MemoryContextStrdup(pool->context, row->name), true);
}

/*
 * compare_leases orders leases by name; one that was named comes before the same
 * one that was found.
 */
static int
compare_leases(const void *a, const void *b)
{
	const PoolLease *first = a;
	const PoolLease *second = b;
	int			order = strcmp(first->name, second->name);

	return order != 0 ? order : (int) first->found - (int) second->found;
}

/*
 * check_named raises an error for a lease that was named and that there is not, or
 * under which the user may not act: at every call, not only at those that do not
 * find enough before they come to it.
 */
static void
check_named(const char *name)
{
	Reading		reading;

	arg_check_name(name);
	if (store_read(name, &reading))
		role_check_member(GetUserId(), reading.row.role, name);
	else if (!lease_auto_create)
		guard_raise_unknown(name);
}

/*
 * read_pool makes a pool of names and of patterns for the beginning of names,
 * each lease once, in order.
 */
static void
read_pool(const Datum *elements, int count, Pool *pool)
{
	int			distinct = 0;

	for (int i = 0; i < count; i++)
	{
		char	   *name = TextDatumGetCString(elements[i]);
		size_t		length = strlen(name);

		if (length > 0 && name[length - 1] == WILDCARD)
		{
			name[length - 1] = '\0';
			if (length > 1)
				arg_check_name(name);
			store_read_prefix(name, receive_lease, pool);
			continue;
		}
		check_named(name);
		add_lease(pool, name, false);
	}

	if (pool->count > 0)
		qsort(pool->leases, pool->count, sizeof(PoolLease), compare_leases);
	for (int i = 0; i < pool->count; i++)
	{
		if (distinct == 0 ||
			strcmp(pool->leases[distinct - 1].name, pool->leases[i].name) != 0)
			pool->leases[distinct++] = pool->leases[i];
	}
	pool->count = distinct;
}

/*
 * arg_up_to fetches how many leases are wanted.
 */
static int
arg_up_to(FunctionCallInfo fcinfo)
{
	int32		up_to;

	if (PG_ARGISNULL(Arg_up_to))
		arg_raise_null("up_to");
	up_to = PG_GETARG_INT32(Arg_up_to);
	if (up_to < 1 || up_to > LEASE_BATCH_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("up_to must be between 1 and %d, not %d",
						LEASE_BATCH_MAX, up_to)));
	return up_to;
}

/*
 * take acquires a lease of a pool, if it can be had, and returns the reply.
 */
static bool
take(FunctionCallInfo fcinfo, const char *name, const AcquireRequest *request)
{
	GrantResult result;

	acquire_lease(name, request, &result);
	if (result.outcome != OUTCOME_GRANTED)
		return false;
	api_put_reply(fcinfo, &result);
	return true;
}

/*
 * lease_acquire_any: lease.acquire_any(names, holder, up_to, ttl, metadata)
 */
Datum
lease_acquire_any(PG_FUNCTION_ARGS)
{
	Datum	   *elements;
	int			element_count = arg_array(fcinfo, Arg_names, TEXTOID, "names",
										  &elements);
	AcquireRequest request = {0};
	int			up_to = arg_up_to(fcinfo);
	Pool		pool = {.context = CurrentMemoryContext};
	MemoryContext lease_context;
	MemoryContext caller_context;
	uint32		start;

	request.holder = arg_string(fcinfo, Arg_holder, "holder",
								LEASE_HOLDER_MAX);
	request.ttl = arg_interval_or_zero(fcinfo, Arg_ttl, "ttl");
	request.metadata = arg_metadata_or_null(fcinfo, Arg_metadata);
	request.nowait = true;
	arg_begin_write("lease.acquire_any()");
	read_pool(elements, element_count, &pool);

	InitMaterializedSRF(fcinfo, 0);
	start = hash_bytes((const unsigned char *) request.holder,
					   (int) strlen(request.holder));
	lease_context = AllocSetContextCreate(CurrentMemoryContext, "lease of pool",
										  ALLOCSET_SMALL_SIZES);
	caller_context = MemoryContextSwitchTo(lease_context);
	for (int i = 0; i < pool.count && up_to > 0; i++)
	{
		const PoolLease *lease =
			&pool.leases[(start % pool.count + i) % pool.count];

		CHECK_FOR_INTERRUPTS();
		request.if_there = lease->found;
		if (take(fcinfo, lease->name, &request))
			up_to--;
		MemoryContextReset(lease_context);
	}
	MemoryContextSwitchTo(caller_context);
	MemoryContextDelete(lease_context);
	return (Datum) 0;
}
