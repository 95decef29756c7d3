/*-------------------------------------------------------------------------
 *
 * pool.c
 *	  Many leases of which any will do: lease.acquire_any().
 *
 * A pool is a set of leases, named one by one or by the beginning of their names:
 * the shards of a table, or the seats of a semaphore.  Who wants some of them
 * takes the first that are free and that nobody else is deciding about; it never
 * waits, so that many can take from one pool at the same time without standing in
 * each other's way.  Each holder begins at another place of the pool.
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

#include "api.h"
#include "args.h"
#include "authority.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "fmgr.h"
#include "funcapi.h"
#include "grant.h"
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

/* The leases of a pool */
typedef struct Pool
{
	const char **names;
	int			count;
	int			size;			/* of the array */
} Pool;

/*
 * add_name appends a lease to a pool.
 */
static void
add_name(Pool *pool, const char *name)
{
	if (pool->count == pool->size)
	{
		pool->size = Max(pool->size * 2, 64);
		pool->names = pool->names ?
			repalloc(pool->names, pool->size * sizeof(char *)) :
			palloc(pool->size * sizeof(char *));
	}
	pool->names[pool->count++] = name;
}

/*
 * receive_lease appends a lease whose name has the right beginning, if the user may
 * act under it.
 */
static void
receive_lease(const LeaseRow *row, void *arg)
{
	if (role_is_member(GetUserId(), row->role))
		add_name((Pool *) arg, pstrdup(row->name));
}

/*
 * compare_names orders names.
 */
static int
compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *) a, *(const char *const *) b);
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
		arg_check_name(name);
		add_name(pool, name);
	}

	if (pool->count > 0)
		qsort(pool->names, pool->count, sizeof(char *), compare_names);
	for (int i = 0; i < pool->count; i++)
	{
		if (distinct == 0 ||
			strcmp(pool->names[distinct - 1], pool->names[i]) != 0)
			pool->names[distinct++] = pool->names[i];
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
	Pool		pool = {0};
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
	for (int i = 0; i < pool.count && up_to > 0; i++)
	{
		GrantResult result;

		grant_acquire(pool.names[(start % pool.count + i) % pool.count],
					  &request, &result);
		if (result.outcome != OUTCOME_GRANTED)
			continue;
		api_put_reply(fcinfo, &result);
		up_to--;
	}
	return (Datum) 0;
}
