/*-------------------------------------------------------------------------
 *
 * await.c
 *	  Waiting in line for a lease: the procedure lease.await().
 *
 * It is a procedure so that each attempt can be a transaction of its own: a grant
 * begins with its transaction, and a claimant is judged at the start of it.  All
 * waiting is done right after a commit, in a transaction that has no snapshot and
 * holds nothing back.
 *
 * A candidate first tries as any acquire does, but lets those come first who
 * are in line already.  Then it queues (line.c).  At the head of the line it looks
 * every POLL_INTERVAL, at the instant when the grant is over (and its
 * grace), and when the session that releases the lease wakes it: so a wake-up is
 * never needed for correctness.  When its time is over, it tries once more,
 * wherever it stands: so the answer tells how the lease is then.
 *
 * Whatever ends the wait, leaves nothing behind: cancel, statement_timeout,
 * lock_timeout (which counts the whole wait), termination of the session and loss
 * of the client, for which we look ourselves, as PostgreSQL does so
 * only if client_connection_check_interval is set.
 * (transaction_timeout counts each wait for the head of the line, and ends the
 * session.)  Only a grant that has been committed stands, also if the candidate is
 * then not told any more, as when a reply is lost.
 *
 * When it has been granted the lease, the candidate commits and looks again: if it
 * was held up in between for longer than the grant lasts, it is told that, and
 * not given an epoch that is worth nothing.
 *
 * Locks: those of line.c, and while trying those of an acquire.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/await.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "access/htup_details.h"
#include "access/xact.h"
#include "acquire.h"
#include "api.h"
#include "args.h"
#include "authority.h"
#include "clock.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "line.h"
#include "lock.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "role.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "store.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timeout.h"

SQL_CALLABLE(lease_await);

/* How often the head of the line looks, in milliseconds */
#define POLL_INTERVAL	50

/* How often a sleeping candidate looks whether its client is there, likewise */
#define CLIENT_INTERVAL 200

/* How long a candidate that has stepped back lets others queue, likewise */
#define STEP_BACK		1

/* Arguments of lease.await(), as sql/leases.sql declares them */
enum
{
	Arg_name,
	Arg_holder,
	Arg_ttl,
	Arg_timeout,
	Arg_priority,
	Arg_metadata,
	Arg_waited
};

/* No instant: wait for ever */
#define NEVER	PG_INT64_MAX

/* One who waits */
typedef struct Waiter
{
	const char *name;
	AcquireRequest request;
	Place		place;
	int64		deadline;		/* timeout, on clock_moment()'s scale */
	int64		lock_deadline;	/* the user's lock_timeout, likewise */
	MemoryContext attempt_context;	/* reset before each attempt */

	/* Of the latest attempt */
	GrantResult result;
	bool		step_back;		/* somebody else comes first */
	int64		available;		/* from when on it can be had, likewise */
} Waiter;

/*
 * raise_lock_timeout raises what PostgreSQL raises after lock_timeout.
 */
pg_noreturn static void
raise_lock_timeout(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("canceling statement due to lock timeout")));
}

/*
 * milliseconds_until returns the time to an instant, rounded up.
 */
static long
milliseconds_until(int64 instant)
{
	int64		left = instant - clock_moment();

	return (long) Min(Max(left, 0) / 1000 + 1, INT_MAX);
}

/*
 * is_over tells whether the candidate has waited as long as it wanted, or
 * raises an error if it has waited as long as any lock may be waited for.
 */
static bool
is_over(const Waiter *waiter)
{
	int64		now = clock_moment();

	if (now >= waiter->deadline)
		return true;
	if (now >= waiter->lock_deadline)
		raise_lock_timeout();
	return false;
}

/*
 * look_for_client ends the session if its client is gone.
 */
static void
look_for_client(void)
{
	if (MyProcPort && client_connection_check_interval > 0)
	{
		CheckClientConnectionPending = true;
		InterruptPending = true;
	}
	CHECK_FOR_INTERRUPTS();
}

/*
 * begin_looking_for_client makes PostgreSQL look, also in the middle of a wait for
 * a lock, and returns how it did before.
 */
static int
begin_looking_for_client(void)
{
	int			interval = client_connection_check_interval;

	if (interval == 0 && MyProcPort && WaitEventSetCanReportClosed())
	{
		client_connection_check_interval = CLIENT_INTERVAL;
		enable_timeout_after(CLIENT_CONNECTION_CHECK_TIMEOUT, CLIENT_INTERVAL);
	}
	return interval;
}

/*
 * end_looking_for_client goes back to that.
 */
static void
end_looking_for_client(int interval)
{
	if (client_connection_check_interval == interval)
		return;
	client_connection_check_interval = interval;
	if (get_timeout_active(CLIENT_CONNECTION_CHECK_TIMEOUT))
		disable_timeout(CLIENT_CONNECTION_CHECK_TIMEOUT, false);
}

/*
 * sleep_until sleeps until an instant, or for a time in milliseconds if that is
 * shorter, or until somebody wakes us.
 */
static void
sleep_until(int64 instant, long at_most)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 Min(milliseconds_until(instant), at_most),
					 PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/*
 * begin_attempt begins a new transaction; also for the first attempt, as the
 * caller's may be old.
 */
static void
begin_attempt(Waiter *waiter)
{
	SPI_commit();
	MemoryContextReset(waiter->attempt_context);
}

/*
 * look decides whether the candidate should try to acquire now.
 */
static bool
look(Waiter *waiter)
{
	Reading		reading;
	const Authority *authority = &reading.authority;
	const char *holder = waiter->request.holder;
	Claim		claim;

	waiter->step_back = false;
	waiter->available = NEVER;
	if (!store_read(waiter->name, &reading))
		return true;			/* acquire knows what to do about that */
	role_check_member(GetUserId(), reading.row.role, waiter->name);

	claim = authority_claim(authority, holder, false, &reading.at);
	waiter->result.row = reading.row;
	waiter->result.outcome = grant_claim_outcome(claim);
	if (claim == CLAIM_GRANTED)
	{
		bool		is_mine = authority->state == GRANT_RELEASED &&
			authority->successor && reading.at.tx < authority->reserved_until;

		if (is_mine || !line_has_better(&waiter->place))
			return true;
		waiter->result.outcome = OUTCOME_BUSY;
		waiter->step_back = true;
		return false;
	}
	waiter->step_back = claim == CLAIM_RESERVED &&
		line_has_candidate(waiter->name, authority->successor);
	waiter->available = clock_moment() +
		(authority_available(authority) - reading.at.now);
	return false;
}

/*
 * acquire tries to acquire, in the present transaction.
 */
static void
acquire(Waiter *waiter)
{
	lock_start_budget();
	lock_limit_budget(Min(waiter->deadline, waiter->lock_deadline));
	if (look(waiter))
	{
		acquire_lease(waiter->name, &waiter->request, &waiter->result);
		waiter->step_back = false;
	}
}

/*
 * attempt does the same in a new transaction, and leaves that open.  If it was too
 * slow, or if somebody was in the way for too long, that is a failure that can pass.
 *
 * An acquire writes the version that it has read, and relies on the snapshot of the
 * statement around it to keep that from being pruned in between.
 */
static bool
attempt(Waiter *waiter)
{
	MemoryContext caller_context;

	begin_attempt(waiter);
	look_for_client();
	caller_context = MemoryContextSwitchTo(waiter->attempt_context);
	memset(&waiter->result, 0, sizeof(GrantResult));
	PG_TRY();
	{
		EnsurePortalSnapshotExists();
		acquire(waiter);
	}
	PG_CATCH();
	{
		if (geterrcode() != ERRCODE_LEASE_BUSY &&
			geterrcode() != ERRCODE_LEASE_EXPIRED)
			PG_RE_THROW();
		MemoryContextSwitchTo(waiter->attempt_context);
		FlushErrorState();
		SPI_rollback();
		if (!waiter->result.row.name)
			grant_default_row(waiter->name, &waiter->result.row);
		waiter->result.outcome = OUTCOME_BUSY;
		waiter->step_back = false;
		waiter->available = NEVER;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(caller_context);
	return waiter->result.outcome == OUTCOME_GRANTED;
}

/*
 * queue waits until the candidate is at the head of the line; false if it does not
 * want to wait any longer.
 */
static bool
queue(Waiter *waiter)
{
	MemoryContext caller_context = CurrentMemoryContext;
	int			user_timeout = LockTimeout;
	int64		until = Min(waiter->deadline, waiter->lock_deadline);
	volatile bool at_head = false;

	if (is_over(waiter))
		return false;

	PG_TRY();
	{
		LockTimeout = until == NEVER ? 0 : (int) milliseconds_until(until);
		line_join(&waiter->place);
		LockTimeout = user_timeout;
		/* A timeout that fired as the wait ended must not hit later. */
		CHECK_FOR_INTERRUPTS();
		at_head = true;
	}
	PG_CATCH();
	{
		LockTimeout = user_timeout;
		if (geterrcode() != ERRCODE_LOCK_NOT_AVAILABLE ||
			waiter->deadline > waiter->lock_deadline)
			PG_RE_THROW();
		MemoryContextSwitchTo(caller_context);
		FlushErrorState();

		/* There is nothing in the transaction but the wait that has failed. */
		line_step_back(&waiter->place);
		SPI_rollback();
	}
	PG_END_TRY();
	return at_head;
}

/*
 * wait_in_line waits until the candidate has the lease; false if it does not want
 * to wait any longer.
 */
static bool
wait_in_line(Waiter *waiter)
{
	bool		at_head;

	SPI_commit();
	at_head = queue(waiter);
	while (!attempt(waiter))
	{
		if (!at_head || is_over(waiter))
			return false;
		SPI_commit();
		if (waiter->step_back)
		{
			line_step_back(&waiter->place);
			sleep_until(NEVER, STEP_BACK);
			at_head = queue(waiter);
		}
		else
			sleep_until(Min(Min(waiter->available, waiter->deadline),
							waiter->lock_deadline),
						POLL_INTERVAL);
	}
	return true;
}

/*
 * confirm commits a grant and looks again whether it is live.  It leaves the line
 * first: whoever is held up from here on must not hold up the others.
 */
static void
confirm(Waiter *waiter)
{
	int64		epoch = waiter->result.row.epoch;
	MemoryContext caller_context;
	Reading		reading;
	Standing	standing;

	begin_attempt(waiter);
	line_leave(&waiter->place);
	caller_context = MemoryContextSwitchTo(waiter->attempt_context);
	if (!store_read(waiter->name, &reading))
	{
		grant_default_row(waiter->name, &waiter->result.row);
		waiter->result.outcome = OUTCOME_SUPERSEDED;
	}
	else
	{
		standing = authority_standing(&reading.authority, epoch, &reading.at);
		waiter->result.row = reading.row;
		if (standing != STANDING_LIVE)
			waiter->result.outcome = grant_standing_outcome(standing);
	}
	MemoryContextSwitchTo(caller_context);
}

/*
 * await waits for the lease, or for the end of the wait.
 */
static void
await(Waiter *waiter)
{
	int			interval = begin_looking_for_client();

	PG_TRY();
	{
		if (attempt(waiter) ||
			(!is_over(waiter) && wait_in_line(waiter)))
			confirm(waiter);
	}
	PG_FINALLY();
	{
		line_leave(&waiter->place);
		end_looking_for_client(interval);
	}
	PG_END_TRY();
}

/*
 * check_context raises an error unless transactions can be begun and ended here.
 */
static void
check_context(FunctionCallInfo fcinfo)
{
	if (!fcinfo->context || !IsA(fcinfo->context, CallContext) ||
		castNode(CallContext, fcinfo->context)->atomic)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("lease.await() cannot wait inside a transaction block"),
				 errdetail("A grant begins with its transaction, so that each attempt has to be a transaction of its own."),
				 errhint("CALL it outside of a transaction block (with a driver: in autocommit mode), or use lease.acquire() here, which does not wait.")));
}

/*
 * arg_priority fetches the priority of a candidate.
 */
static int
arg_priority(FunctionCallInfo fcinfo, int n)
{
	int32		priority;

	if (PG_ARGISNULL(n))
		arg_raise_null("priority");
	priority = PG_GETARG_INT32(n);
	if (priority < PG_INT16_MIN || priority > PG_INT16_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("priority must be between %d and %d, not %d",
						PG_INT16_MIN, PG_INT16_MAX, priority)));
	return priority;
}

/*
 * lease_await: lease.await(name, holder, ttl, timeout, priority, metadata, waited, ...)
 */
Datum
lease_await(PG_FUNCTION_ARGS)
{
	Waiter		waiter = {0};
	int64		now = clock_moment();
	TupleDesc	desc;
	Datum		values[REPLY_COLUMNS];
	bool		nulls[REPLY_COLUMNS];
	Datum		columns[REPLY_COLUMNS];
	bool		column_nulls[REPLY_COLUMNS];
	static const int order[REPLY_COLUMNS] = {
		Reply_name, Reply_holder, Reply_outcome, Reply_epoch,
		Reply_acquired_at, Reply_expires_at, Reply_remaining,
		Reply_handover, Reply_successor
	};

	check_context(fcinfo);
	waiter.name = arg_name(fcinfo, Arg_name);
	waiter.request.holder = arg_string(fcinfo, Arg_holder, "holder",
									   LEASE_HOLDER_MAX);
	waiter.request.ttl = arg_interval_or_zero(fcinfo, Arg_ttl, "ttl");
	waiter.request.metadata = arg_metadata_or_null(fcinfo, Arg_metadata);
	waiter.deadline = PG_ARGISNULL(Arg_timeout) ? NEVER :
		now + arg_wait(fcinfo, Arg_timeout, "timeout", 0);
	waiter.lock_deadline = LockTimeout == 0 ? NEVER :
		now + (int64) LockTimeout * 1000;
	line_choose_place(&waiter.place, waiter.name, waiter.request.holder,
					  arg_priority(fcinfo, Arg_priority),
					  arg_wait(fcinfo, Arg_waited, "waited", 0));
	arg_begin_write("lease.await()");
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE ||
		desc->natts != REPLY_COLUMNS)
		elog(ERROR, "unexpected parameters of lease.await()");
	desc = BlessTupleDesc(desc);

	/* In the portal's context, which outlives our transactions. */
	waiter.attempt_context = AllocSetContextCreate(CurrentMemoryContext,
												   "lease attempt",
												   ALLOCSET_SMALL_SIZES);
	SPI_connect_ext(SPI_OPT_NONATOMIC);
	await(&waiter);
	SPI_finish();

	api_fill_reply(&waiter.result, values, nulls);
	for (int i = 0; i < REPLY_COLUMNS; i++)
	{
		columns[i] = values[order[i]];
		column_nulls[i] = nulls[order[i]];
	}
	return HeapTupleGetDatum(heap_form_tuple(desc, columns, column_nulls));
}
