/*-------------------------------------------------------------------------
 *
 * acquire.c
 *	  Acquire: the making of a grant.
 *
 * The claim is decided with authority.c on what can be read, first without any
 * lock: a loser stops there and leaves no trace.  If the answer is yes, it is
 * decided again under the fence lock, and the row is written, in the steps of
 * change.c.
 *
 * Before acquire waits for anything, it looks at the row's uncommitted
 * version, if there is one: if a running transaction has made or renewed a
 * grant that is live, that is the answer.  Whoever else has replaced the row and not
 * committed it gets past as passage.c says.  Whoever has created the lease and not
 * committed (lease.auto_create) is no different: that is a version of a row that is
 * not there yet.
 *
 * After every wait both the row and the clock are read again.  Waiting never
 * lengthens anyone's authority: a deadline is counted from the start of the
 * transaction.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/acquire.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "acquire.h"
#include "authority.h"
#include "catalog/pg_proc.h"
#include "change.h"
#include "clock.h"
#include "durability.h"
#include "epoch.h"
#include "event.h"
#include "guard.h"
#include "lock.h"
#include "miscadmin.h"
#include "nodes/value.h"
#include "parser/parse_func.h"
#include "passage.h"
#include "role.h"
#include "store.h"
#include "utils/acl.h"

/*
 * raise_too_old raises LS002 for a grant that would be over before it begins.
 */
pg_noreturn static void
raise_too_old(const char *name, int64 ttl, const Clock *clock)
{
	ereport(ERROR,
			(errcode(ERRCODE_LEASE_EXPIRED),
			 errmsg("transaction is too old to acquire lease \"%s\"", name),
			 errdetail("A grant begins with its transaction, which began %.3f s ago; after %.3f s it would already be over.",
					   (double) (clock->now - clock->tx) / USECS_PER_SEC,
					   (double) ttl / USECS_PER_SEC),
			 errhint("Acquire in a new transaction, or ask for a longer ttl.")));
}

/*
 * uncommitted_refuses decides about the version that a running transaction has
 * made of a row: if that is held, it is the row of the result.  A reserve, a grace or a
 * min_hold that may never be committed keeps nobody away.
 */
static bool
uncommitted_refuses(const LeaseRow *row, const AcquireRequest *request,
					GrantResult *result)
{
	Reading		next;
	Claim		claim;

	if (!TransactionIdIsValid(row->updater) ||
		!store_read_uncommitted(row, &next))
		return false;
	claim = authority_claim(&next.authority, request->holder,
							request->reclaim, &next.at);
	if (claim != CLAIM_HELD)
		return false;
	result->outcome = OUTCOME_HELD;
	result->row = next.row;
	return true;
}

/*
 * set_busy makes a result of a request that could not be decided in time.
 */
static void
set_busy(const Reading *reading, int blocker, GrantResult *result)
{
	result->outcome = OUTCOME_BUSY;
	result->row = reading->row;
	result->blocker = blocker;
}

/*
 * draw calls epoch_draw for lock_run_bounded: it replaces an epoch by a new
 * one.
 */
static bool
draw(void *arg)
{
	int64	   *epoch = (int64 *) arg;

	*epoch = epoch_draw(*epoch);
	return true;
}

/*
 * add_end appends to the events of a new grant how the one before it ended, if
 * that is not known yet.
 */
static void
add_end(EventList *events, const Reading *reading, const Passage *passage)
{
	const LeaseRow *row = &reading->row;

	if (row->state == GRANT_MADE)
		event_add(events,
				  reading->at.tx < reading->authority.deadline ?
				  EVENT_SUPERSEDED : EVENT_EXPIRED,
				  row->epoch, row->holder, (Datum) 0);
	passage_add_event(passage, row, events);
}

/*
 * make_grant writes a new grant into the row, or returns false if somebody was
 * faster.  Every attempt draws an epoch of its own: between two of them
 * somebody may have been told a greater one, and have rolled back.
 */
static bool
make_grant(Reading *reading, const AcquireRequest *request,
		   const Passage *passage)
{
	LeaseRow   *row = &reading->row;
	int64		ttl = request->ttl != 0 ? request->ttl : row->ttl;
	int64		epoch = row->epoch;
	EventList	events;

	if (reading->at.tx + ttl <= reading->at.now)
		raise_too_old(row->name, ttl, &reading->clock);
	(void) lock_run_bounded(row->name, draw, &epoch);

	event_begin(&events, row->name);
	add_end(&events, reading, passage);
	event_add(&events, EVENT_GRANTED, epoch, request->holder, (Datum) 0);
	change_rebase(reading);
	row->state = GRANT_MADE;
	row->epoch = epoch;
	row->holder = pstrdup(request->holder);
	row->acquired = clock_store(&reading->clock, reading->at.tx);
	row->deadline = clock_store(&reading->clock, reading->at.tx + ttl);
	row->grant_ttl = request->ttl;
	row->successor = NULL;
	row->reason = NULL;
	row->metadata = request->metadata;
	grant_clear_handover(row);
	if (!change_write_transition(row, &events))
		return false;
	durability_require();
	passage_end_guarded(row, epoch);

	/* Drawing may have taken time; what is over is not given. */
	store_judge(reading);
	if (reading->at.now >= reading->authority.deadline)
		raise_too_old(row->name, ttl, &reading->clock);
	return true;
}

/*
 * check_may_create raises 42501 unless the current user may create leases.
 */
static void
check_may_create(const char *name)
{
	Oid			any_arguments[1] = {InvalidOid};
	Oid			function = LookupFuncName(list_make2(makeString("lease"),
													 makeString("create")),
										  -1, any_arguments, false);

	if (function_aclcheck(function, GetUserId()) != ACLCHECK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to create lease \"%s\"", name),
				 errdetail("It does not exist, and lease.auto_create is on."),
				 errhint("Check the name; or have the owner of the extension create the lease, or grant EXECUTE on lease.create().")));
}

/*
 * meet_creator decides about a lease that a running transaction has created, or gets
 * past that one.  False means that the result is complete.
 */
static bool
meet_creator(const Reading *created, const AcquireRequest *request,
			 Passage *passage, GrantResult *result)
{
	int			blocker = 0;

	if (uncommitted_refuses(&created->row, request, result))
		return false;
	if (passage_get_past(passage, created, &blocker))
		return true;
	set_busy(created, blocker, result);
	return false;
}

/*
 * create creates a lease with default settings, or returns false if it is busy.
 */
static bool
create(const char *name, bool nowait, int *blocker)
{
	Reading		reading;
	EventList	events;

	change_begin_transition(name);
	if (!change_take_fence(name, nowait, blocker))
	{
		change_give_up_transition();
		return false;
	}
	if (change_read(name, &reading))
	{
		/* Somebody was faster, and has committed. */
		change_drop_fence(name);
		change_give_up_transition();
		return true;
	}
	grant_default_row(name, &reading.row);
	epoch_settle(name);
	event_begin(&events, name);
	event_add(&events, EVENT_CREATED, 0, NULL, (Datum) 0);
	change_insert(&reading.row, &events);
	return true;
}

/*
 * create_if_missing creates a lease with default settings if there is none of
 * that name.  False means that the result is complete.
 *
 * Who begins to create it after it was looked for, and stays, is waited for at the
 * fence lock; the next call gets past.
 */
static bool
create_if_missing(const char *name, const AcquireRequest *request,
				  Passage *passage, GrantResult *result)
{
	Reading		reading;
	int			blocker = 0;

	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		if (change_read(name, &reading))
			return true;
		check_may_create(name);
		if (!store_read_created(name, &reading) ||
			!role_is_member(GetUserId(), reading.row.role))
			break;
		if (!meet_creator(&reading, request, passage, result))
			return false;
	}
	if (create(name, request->nowait, &blocker))
		return true;
	grant_default_row(name, &reading.row);
	set_busy(&reading, blocker, result);
	return false;
}

/*
 * may_claim tells whether the lease exists and the user may act under it.  If not,
 * that is an error, but for who has only found the lease among others: it was
 * dropped or given to another role since.
 */
static bool
may_claim(const char *name, const AcquireRequest *request, Passage *passage,
		  Reading *reading, GrantResult *result)
{
	bool		found = change_read(name, reading);

	if (!found && lease_auto_create && !request->if_there)
	{
		if (!create_if_missing(name, request, passage, result))
			return false;
		found = change_read(name, reading);
	}
	if (found && role_is_member(GetUserId(), reading->row.role))
		return true;
	if (!request->if_there)
	{
		if (!found)
			guard_raise_unknown(name);
		role_check_member(GetUserId(), reading->row.role, name);
	}
	grant_default_row(name, &result->row);
	result->outcome = found ? OUTCOME_REVOKED : OUTCOME_SUPERSEDED;
	return false;
}

/*
 * look decides about a claim on what can be read now.  False means that it is
 * refused, and the result is complete.
 */
static bool
look(const char *name, const AcquireRequest *request, Passage *passage,
	 Reading *reading, GrantResult *result)
{
	Claim		claim;

	if (!may_claim(name, request, passage, reading, result))
		return false;

	claim = authority_claim(&reading->authority, request->holder,
							request->reclaim, &reading->at);
	if (claim != CLAIM_GRANTED)
	{
		result->outcome = grant_claim_outcome(claim);
		result->row = reading->row;
		return false;
	}
	return !uncommitted_refuses(&reading->row, request, result);
}

/*
 * take_over makes the grant under the fence lock, if the claim is still good,
 * and tells whether it did.  The caller has looked.
 *
 * Whoever has replaced the row may also hold the fence lock, to the end of its
 * transaction; so the taker gets past the one before it waits for the other.
 */
static bool
take_over(const char *name, const AcquireRequest *request, Passage *passage,
		  Reading *reading, GrantResult *result)
{
	int			blocker = 0;

	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		if (TransactionIdIsValid(reading->row.updater))
		{
			if (!passage_get_past(passage, reading, &blocker))
			{
				set_busy(reading, blocker, result);
				return false;
			}
			if (!look(name, request, passage, reading, result))
				return false;
			continue;
		}
		if (!change_take_fence(name, request->nowait, &blocker))
		{
			/* Whoever has it may have made a grant meanwhile. */
			if (look(name, request, passage, reading, result))
				set_busy(reading, blocker, result);
			return false;
		}
		if (!look(name, request, passage, reading, result))
		{
			change_drop_fence(name);
			return false;
		}
		if (!TransactionIdIsValid(reading->row.updater) &&
			make_grant(reading, request, passage))
			break;
		change_drop_fence(name);
	}
	result->outcome = OUTCOME_GRANTED;
	result->row = reading->row;
	return true;
}

/*
 * acquire_lease grants a lease to a holder, or tells why not.
 */
void
acquire_lease(const char *name, const AcquireRequest *request,
			  GrantResult *result)
{
	Reading		reading;
	Passage		passage;
	const bool	revokes = false;

	/* The first look: a plain read.  A loser stops here. */
	passage_begin(&passage, request->nowait, revokes);
	if (!look(name, request, &passage, &reading, result))
		return;

	change_warn_of_step(&reading);
	change_begin_transition(name);
	if (!take_over(name, request, &passage, &reading, result))
		change_give_up_transition();
}
