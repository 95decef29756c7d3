/*-------------------------------------------------------------------------
 *
 * grant.c
 *	  Acquire, renew, release, revoke.
 *
 * Each operation reads the row, decides with authority.c and, if the answer is
 * yes, writes the row, in the steps of change.c.  If the answer is no, it
 * leaves no trace: no transaction id, no row version, no lock.
 *
 * Before acquire waits for anything, it looks at the row's uncommitted
 * version, if there is one: if a running transaction has made or renewed a
 * grant that is live, that is the answer.  It waits, with a bound, only for a
 * transaction whose change is over, too.
 *
 * After every wait both the row and the clock are read again.  Waiting never
 * lengthens anyone's authority: a deadline is counted from the start of the
 * transaction.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/grant.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "aftermath.h"
#include "authority.h"
#include "catalog/pg_proc.h"
#include "change.h"
#include "clock.h"
#include "durability.h"
#include "epoch.h"
#include "event.h"
#include "evict.h"
#include "grant.h"
#include "guard.h"
#include "lock.h"
#include "miscadmin.h"
#include "nodes/value.h"
#include "parser/parse_func.h"
#include "role.h"
#include "store.h"
#include "utils/acl.h"

/* Settings of a lease that is created without any, in microseconds */
#define DEFAULT_TTL			(INT64CONST(30) * USECS_PER_SEC)

/* How often a taker looks whether who is in its way can be ended, in milliseconds */
#define EVICTION_INTERVAL	50

/* How a taker gets past those who have replaced the row and not committed */
typedef struct Passage
{
	StringInfoData evicted;		/* the pids of those whose sessions it has
								 * ended */
	TransactionId latest;		/* the change of the last of them */
	int64		since;			/* when it began, on clock_moment()'s scale */
} Passage;

/*
 * grant_outcome_name returns the word for an outcome.
 */
const char *
grant_outcome_name(Outcome outcome)
{
	switch (outcome)
	{
		case OUTCOME_GRANTED:
			return "granted";
		case OUTCOME_RENEWED:
			return "renewed";
		case OUTCOME_HELD:
			return "held";
		case OUTCOME_RESERVED:
			return "reserved";
		case OUTCOME_GRACE:
			return "grace";
		case OUTCOME_BUSY:
			return "busy";
		case OUTCOME_SUPERSEDED:
			return "superseded";
		case OUTCOME_EXPIRED:
			return "expired";
		case OUTCOME_RELEASED:
			return "released";
		case OUTCOME_REVOKED:
			return "revoked";
	}
	return NULL;				/* keep compiler quiet */
}

/*
 * grant_claim_outcome translates the refusal of a claim.
 */
Outcome
grant_claim_outcome(Claim claim)
{
	switch (claim)
	{
		case CLAIM_GRANTED:
			return OUTCOME_GRANTED;
		case CLAIM_HELD:
			return OUTCOME_HELD;
		case CLAIM_GRACE:
			return OUTCOME_GRACE;
		case CLAIM_RESERVED:
			return OUTCOME_RESERVED;
	}
	return OUTCOME_HELD;		/* keep compiler quiet */
}

/*
 * grant_standing_outcome translates the standing of a grant that is not live.  To a
 * holder whose epoch the lease has never had, another one is the current one.
 */
Outcome
grant_standing_outcome(Standing standing)
{
	switch (standing)
	{
		case STANDING_LIVE:
			return OUTCOME_RENEWED;
		case STANDING_SUPERSEDED:
		case STANDING_UNKNOWN:
			return OUTCOME_SUPERSEDED;
		case STANDING_EXPIRED:
			return OUTCOME_EXPIRED;
		case STANDING_RELEASED:
			return OUTCOME_RELEASED;
		case STANDING_REVOKED:
			return OUTCOME_REVOKED;
	}
	return OUTCOME_SUPERSEDED;	/* keep compiler quiet */
}

/*
 * read_known_lease reads a lease that must exist.
 */
static void
read_known_lease(const char *name, Reading *reading)
{
	if (!store_read(name, reading))
		guard_raise_unknown(name);
}

/*
 * grant_default_row makes the row of a lease that nobody has set up.
 */
void
grant_default_row(const char *name, LeaseRow *row)
{
	memset(row, 0, sizeof(LeaseRow));
	row->name = pstrdup(name);
	row->role = GetUserId();
	row->ttl = DEFAULT_TTL;
	row->evict = EVICT_ALL;
	row->state = GRANT_NONE;
}

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
 * made of a row, and if that refuses, makes it the row of the result.
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
	if (claim == CLAIM_GRANTED)
		return false;
	result->outcome = grant_claim_outcome(claim);
	result->row = next.row;
	return true;
}

/*
 * may_claim tells whether the lease exists and the user may act under it.  If not,
 * that is an error, but for who has only found the lease among others: it was
 * dropped or given to another role since.
 */
static bool
may_claim(const char *name, const AcquireRequest *request, Reading *reading,
		  GrantResult *result)
{
	bool		found = store_read(name, reading);

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
look(const char *name, const AcquireRequest *request, Reading *reading,
	 GrantResult *result)
{
	Claim		claim;

	if (!may_claim(name, request, reading, result))
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
 * clear_handover forgets that the holder was asked to step down.
 */
static void
clear_handover(LeaseRow *row)
{
	row->handover_at = 0;
	row->handover_to = NULL;
	row->handover_reason = NULL;
}

/*
 * epoch_to_evict returns the epoch whose sessions are to be ended when another
 * grant takes the place of the one in a row, or when it is taken back; 0 if there is
 * none.  That a grant was released does not mean that nobody acts under it any more.
 */
static int64
epoch_to_evict(const LeaseRow *row)
{
	return row->evict == EVICT_ALL ? row->epoch : 0;
}

/*
 * add_eviction appends to the events of a takeover or revocation which sessions
 * it ends: blockers, whose pids are given and who are gone, and those who act
 * under the epoch, as far as they are there by now.
 */
static void
add_eviction(EventList *events, const LeaseRow *row, const char *blockers)
{
	StringInfoData detail;
	StringInfoData guarded;

	initStringInfo(&detail);
	initStringInfo(&guarded);
	if (blockers[0] != '\0')
		event_detail_raw(&detail, "blockers", psprintf("[%s]", blockers));
	if (epoch_to_evict(row) != 0)
		evict_list_guarded(row->name, row->epoch, &guarded);
	if (guarded.len > 0)
		event_detail_raw(&detail, "guarded", psprintf("[%s]", guarded.data));
	if (detail.len > 0)
		event_add(events, EVENT_EVICTED, row->epoch, row->holder,
				  event_detail(&detail));
}

/*
 * add_end appends to the events of a new grant how the one before it ended, if
 * that is not known yet.
 */
static void
add_end(EventList *events, const Reading *reading, const char *blockers)
{
	const LeaseRow *row = &reading->row;

	if (row->state == GRANT_MADE)
		event_add(events,
				  reading->at.tx < reading->authority.deadline ?
				  EVENT_SUPERSEDED : EVENT_EXPIRED,
				  row->epoch, row->holder, (Datum) 0);
	add_eviction(events, row, blockers);
}

/*
 * make_grant writes a new grant into the row, or returns false if somebody was
 * faster.  Every attempt draws an epoch of its own: between two of them
 * somebody may have been told a greater one, and have rolled back.
 */
static bool
make_grant(Reading *reading, const AcquireRequest *request,
		   const char *blockers)
{
	LeaseRow   *row = &reading->row;
	int64		ttl = request->ttl != 0 ? request->ttl : row->ttl;
	int64		epoch = row->epoch;
	int64		superseded = epoch_to_evict(row);
	EventList	events;

	if (reading->at.tx + ttl <= reading->at.now)
		raise_too_old(row->name, ttl, &reading->clock);
	(void) lock_run_bounded(row->name, draw, &epoch);

	event_begin(&events, row->name);
	add_end(&events, reading, blockers);
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
	clear_handover(row);
	if (!change_write_transition(row, &events))
		return false;
	durability_note_grant();
	if (superseded != 0)
		aftermath_evict(row->name, superseded);

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
 * create_if_missing creates a lease with default settings if there is none of
 * that name, and returns false if it cannot tell because the lease is busy.
 */
static bool
create_if_missing(const char *name, bool nowait, int *blocker)
{
	Reading		reading;
	EventList	events;

	if (store_read(name, &reading))
		return true;
	check_may_create(name);
	change_begin_transition(name);
	if (!change_take_fence(name, nowait, blocker))
	{
		change_give_up_transition();
		return false;
	}
	if (store_read(name, &reading))
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
 * get_past_updater waits for the transaction that has replaced a version, and whose
 * authority is over, for a while; or ends its session, if that may be done and it
 * waits for its client.  False means that it is still there and must not be waited
 * for any longer.
 *
 * It may begin to wait for its client at any time; so the caller decides anew and
 * comes back after a moment.  Nor is a session gone at once that has been ended.
 */
static bool
get_past_updater(const LeaseRow *row, Passage *passage, int *blocker)
{
	StringInfo	evicted = &passage->evicted;
	int			pid;

	if (row->evict == EVICT_NONE)
		return change_await_updater(row, blocker);
	if (passage->since == 0)
		passage->since = clock_moment();
	if (row->updater != passage->latest && evict_blocker(row, &pid))
	{
		appendStringInfo(evicted, "%s%d", evicted->len == 0 ? "" : ", ", pid);
		passage->latest = row->updater;
	}
	if (lock_await_transaction_again(row->updater, EVICTION_INTERVAL,
									 passage->since) ||
		!lock_budget_is_spent())
		return true;
	*blocker = lock_transaction_pid(row->updater);
	return false;
}

/*
 * take_over makes the grant under the fence lock, if the claim is still good,
 * and tells whether it did.  The caller has looked.
 *
 * Whoever has replaced the row may also hold the fence lock, to the end of its
 * transaction; so the taker gets past the one before it waits for the other.
 */
static bool
take_over(const char *name, const AcquireRequest *request, Reading *reading,
		  GrantResult *result)
{
	int			blocker = 0;
	Passage		passage = {.latest = InvalidTransactionId};

	initStringInfo(&passage.evicted);
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		if (TransactionIdIsValid(reading->row.updater))
		{
			if (request->nowait ||
				!get_past_updater(&reading->row, &passage, &blocker))
			{
				set_busy(reading, blocker, result);
				return false;
			}
			if (!look(name, request, reading, result))
				return false;
			continue;
		}
		if (!change_take_fence(name, request->nowait, &blocker))
		{
			/* Whoever has it may have made a grant meanwhile. */
			if (look(name, request, reading, result))
				set_busy(reading, blocker, result);
			return false;
		}
		if (!look(name, request, reading, result))
		{
			change_drop_fence(name);
			return false;
		}
		if (!TransactionIdIsValid(reading->row.updater) &&
			make_grant(reading, request, passage.evicted.data))
			break;
		change_drop_fence(name);
	}
	result->outcome = OUTCOME_GRANTED;
	result->row = reading->row;
	return true;
}

/*
 * grant_acquire grants a lease to a holder, or tells why not.
 */
void
grant_acquire(const char *name, const AcquireRequest *request,
			  GrantResult *result)
{
	Reading		reading;
	int			blocker = 0;

	if (lease_auto_create && !request->if_there &&
		!create_if_missing(name, request->nowait, &blocker))
	{
		grant_default_row(name, &reading.row);
		set_busy(&reading, blocker, result);
		return;
	}

	/* The first look: a plain read.  A loser stops here. */
	if (!look(name, request, &reading, result))
		return;

	change_begin_transition(name);
	if (!take_over(name, request, &reading, result))
		change_give_up_transition();
}

/*
 * raise_lapsed raises LS002 for a renewal that was decided in time but written
 * too late: a grant that is over is never renewed, even if nobody took it.
 */
pg_noreturn static void
raise_lapsed(const LeaseRow *row)
{
	ereport(ERROR,
			(errcode(ERRCODE_LEASE_EXPIRED),
			 errmsg("the grant of lease \"%s\" under epoch %lld has expired while it was being renewed",
					row->name, (long long) row->epoch),
			 errhint("Renew at least every third of the ttl. To lead again, call lease.acquire(), which gives a new epoch.")));
}

/*
 * prolong writes a renewal, or returns false if somebody was faster.
 */
static bool
prolong(Reading *reading, int64 ttl)
{
	LeaseRow   *row = &reading->row;
	int64		old_deadline = reading->authority.deadline;

	if (ttl == 0)
		ttl = row->grant_ttl != 0 ? row->grant_ttl : row->ttl;
	change_rebase(reading);
	row->deadline = clock_store(&reading->clock,
								authority_renewed(&reading->authority, ttl,
												  &reading->at));
	if (!change_write(row))
		return false;
	store_judge(reading);
	if (reading->at.now >= old_deadline)
		raise_lapsed(row);
	return true;
}

/*
 * may_renew tells whether the lease exists and the user may act under it.  If
 * not, that is an error, or in a batch an outcome: one lease that was dropped
 * or given to another role must not cost its holder the thousand others.
 */
static bool
may_renew(const char *name, bool batch, Reading *reading, GrantResult *result)
{
	if (!store_read(name, reading))
	{
		if (!batch)
			guard_raise_unknown(name);
		grant_default_row(name, &reading->row);
		result->outcome = OUTCOME_SUPERSEDED;
		return false;
	}
	if (!role_is_member(GetUserId(), reading->row.role))
	{
		if (!batch)
			role_check_member(GetUserId(), reading->row.role, name);
		grant_default_row(name, &reading->row);
		result->outcome = OUTCOME_REVOKED;
		return false;
	}
	return true;
}

/*
 * grant_renew prolongs a live grant, or tells why not.
 */
void
grant_renew(const char *name, int64 epoch, int64 ttl, bool batch,
			GrantResult *result)
{
	Reading		reading;
	LeaseRow   *row = &reading.row;

	change_begin(name);
	durability_before_renewal();
	for (;;)
	{
		Standing	standing;

		CHECK_FOR_INTERRUPTS();
		if (!may_renew(name, batch, &reading, result))
			break;

		standing = authority_standing(&reading.authority, epoch, &reading.at);
		if (standing != STANDING_LIVE)
		{
			result->outcome = grant_standing_outcome(standing);
			break;
		}
		if (TransactionIdIsValid(row->updater))
		{
			if (change_await_updater(row, &result->blocker))
				continue;
			result->outcome = OUTCOME_BUSY;
			break;
		}
		if (prolong(&reading, ttl))
		{
			result->outcome = OUTCOME_RENEWED;
			break;
		}
	}
	durability_after_renewal(result->outcome == OUTCOME_RENEWED,
							 row->async_renew);
	if (result->outcome != OUTCOME_RENEWED)
		change_give_up();
	result->row = *row;
}

/* A request to end a grant: a release or a revocation */
typedef struct EndRequest
{
	GrantState	how;			/* GRANT_RELEASED or GRANT_REVOKED */
	int64		epoch;			/* of a release */
	const ReleaseRequest *release;	/* of a release */
	const char *reason;			/* of a revocation, or NULL */
} EndRequest;

/*
 * may_end tells whether there is a grant to end, or raises an error if the
 * user may not end it.
 *
 * A release ends a live grant of its epoch.  A revocation also ends one that
 * is over but was not taken: late_commit might still admit its commit, and
 * grace is not worth waiting for any more; nor are, after a release, min_hold and a
 * successor who does not come.
 */
static bool
may_end(const Reading *reading, const EndRequest *request)
{
	const LeaseRow *row = &reading->row;

	if (request->how == GRANT_REVOKED)
	{
		role_check_administrator(GetUserId(), row->role, row->name);
		return row->state == GRANT_MADE ||
			(row->state == GRANT_RELEASED &&
			 authority_available(&reading->authority) > reading->at.tx);
	}
	if (authority_standing(&reading->authority, request->epoch,
						   &reading->at) != STANDING_LIVE)
		return false;
	role_check_member(GetUserId(), row->role, row->name);
	return true;
}

/*
 * reserve_for makes a row of a grant that has been released reserved to a
 * successor.
 */
static void
reserve_for(Reading *reading, const char *successor, int64 reserve,
			EventList *events)
{
	LeaseRow   *row = &reading->row;
	StringInfoData detail;

	if (reserve == 0)
		reserve = row->ttl;
	row->successor = pstrdup(successor);
	row->reserved = clock_store(&reading->clock, reading->at.tx + reserve);

	initStringInfo(&detail);
	event_detail_seconds(&detail, "reserve", reserve);
	event_add(events, EVENT_RESERVED, row->epoch, row->successor,
			  event_detail(&detail));
}

/*
 * set_ended makes the row of a grant that has ended, and the events.
 *
 * A holder that was asked to step down in favour of somebody, and releases
 * without naming a successor, has done what it was asked.
 */
static void
set_ended(Reading *reading, const EndRequest *request, EventList *events)
{
	LeaseRow   *row = &reading->row;
	const char *successor = row->handover_to;
	StringInfoData detail;

	change_rebase(reading);
	initStringInfo(&detail);
	event_detail_string(&detail, "reason", request->reason);
	event_begin(events, row->name);
	event_add(events, request->how == GRANT_REVOKED ?
			  EVENT_REVOKED : EVENT_RELEASED,
			  row->epoch, row->holder, event_detail(&detail));
	if (request->how == GRANT_REVOKED)
		add_eviction(events, row, "");

	row->state = request->how;
	row->successor = NULL;
	if (request->reason)
		row->reason = pstrdup(request->reason);
	clear_handover(row);
	if (request->how == GRANT_RELEASED)
	{
		if (request->release->successor)
			successor = request->release->successor;
		if (successor)
			reserve_for(reading, successor, request->release->reserve, events);
	}
}

/*
 * end_grant ends a grant and tells which it was, or returns false if there is
 * none to end.
 */
static bool
end_grant(const char *name, const EndRequest *request, int64 *epoch)
{
	Reading		reading;
	EventList	events;
	int64		revoked = 0;
	int			blocker = 0;
	const bool	nowait = false;

	/* The first look: where there is nothing to end, no lock is taken. */
	if (!store_read(name, &reading) || !may_end(&reading, request))
		return false;

	change_begin_transition(name);
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		if (!change_take_fence(name, nowait, &blocker))
			lock_report_bound(name, blocker);
		if (!store_read(name, &reading) || !may_end(&reading, request))
		{
			change_drop_fence(name);
			change_give_up_transition();
			return false;
		}
		if (!TransactionIdIsValid(reading.row.updater))
		{
			if (request->how == GRANT_REVOKED)
				revoked = epoch_to_evict(&reading.row);
			set_ended(&reading, request, &events);
			if (change_write_transition(&reading.row, &events))
				break;
		}

		change_drop_fence(name);
		if (TransactionIdIsValid(reading.row.updater) &&
			!change_await_updater(&reading.row, &blocker))
			lock_report_bound(name, blocker);
	}
	*epoch = reading.row.epoch;
	if (revoked != 0)
		aftermath_evict(name, revoked);
	aftermath_wake(name);
	return true;
}

/*
 * grant_release gives back a grant.  Releasing what is not held is false, and
 * changes nothing.
 */
bool
grant_release(const char *name, int64 epoch, const ReleaseRequest *request)
{
	EndRequest	end = {GRANT_RELEASED, epoch, request, NULL};

	if (!end_grant(name, &end, &epoch))
		return false;
	guard_note_release(name, epoch);
	return true;
}

/*
 * grant_request_handover asks the holder of a live grant to step down and tells
 * its epoch, or returns false if there is no live grant.
 *
 * The grant stays as it is, so that no fence lock is taken.
 */
bool
grant_request_handover(const char *name, const char *successor,
					   const char *reason, int64 *epoch)
{
	Reading		reading;
	LeaseRow   *row = &reading.row;
	StringInfoData detail;
	EventList	events;
	int			blocker = 0;

	change_begin_transition(name);
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		read_known_lease(name, &reading);
		role_check_administrator(GetUserId(), row->role, name);
		if (authority_standing(&reading.authority, row->epoch, &reading.at) !=
			STANDING_LIVE)
		{
			change_give_up_transition();
			return false;
		}
		if (TransactionIdIsValid(row->updater))
		{
			if (!change_await_updater(row, &blocker))
				lock_report_bound(name, blocker);
			continue;
		}

		initStringInfo(&detail);
		event_detail_string(&detail, "successor", successor);
		event_detail_string(&detail, "reason", reason);
		event_begin(&events, name);
		event_add(&events, EVENT_HANDOVER, row->epoch, row->holder,
				  event_detail(&detail));
		change_rebase(&reading);
		row->handover_at = reading.clock.wall_tx;
		row->handover_to = successor ? pstrdup(successor) : NULL;
		row->handover_reason = reason ? pstrdup(reason) : NULL;
		if (change_write_transition(row, &events))
			break;
	}
	*epoch = row->epoch;
	return true;
}

/*
 * grant_revoke takes back the latest grant of a lease and tells its epoch, or
 * returns false if there is none.
 */
bool
grant_revoke(const char *name, const char *reason, int64 *epoch)
{
	EndRequest	end = {GRANT_REVOKED, 0, NULL, reason};
	Reading		reading;

	read_known_lease(name, &reading);
	if (!end_grant(name, &end, epoch))
		return false;
	durability_note_grant();
	return true;
}
