/*-------------------------------------------------------------------------
 *
 * grant.c
 *	  Renew, release, revoke; what the answers are called.
 *
 * Each operation reads the row, decides with authority.c and, if the answer is
 * yes, writes the row, in the steps of change.c.  If the answer is no, it
 * leaves no trace: no transaction id, no row version, no lock.
 *
 * After every wait both the row and the clock are read again.  A revocation also
 * ends the sessions that are in its way, as passage.c says.  A renewal looks for
 * sessions that act under an earlier grant and could not be ended when that was
 * superseded.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/grant.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "aftermath.h"
#include "authority.h"
#include "change.h"
#include "clock.h"
#include "durability.h"
#include "event.h"
#include "evict.h"
#include "grant.h"
#include "guard.h"
#include "lock.h"
#include "miscadmin.h"
#include "passage.h"
#include "role.h"
#include "store.h"

/* Settings of a lease that is created without any, in microseconds */
#define DEFAULT_TTL			(INT64CONST(30) * USECS_PER_SEC)

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
	if (!change_read(name, reading))
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
 * grant_clear_handover forgets that the holder was asked to step down.
 */
void
grant_clear_handover(LeaseRow *row)
{
	row->handover_at = 0;
	row->handover_to = NULL;
	row->handover_reason = NULL;
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
 * look_for_stragglers ends the sessions that act under an earlier grant, if that is
 * allowed.  What the present one has superseded must have been committed; it cannot be
 * superseded in turn before this transaction ends, as it has replaced the row.
 */
static void
look_for_stragglers(const LeaseRow *row)
{
	if (row->evict == EVICT_ALL && !aftermath_has_superseded(row->name))
		evict_stragglers(row->name, row->epoch);
}

/*
 * may_renew tells whether the lease exists and the user may act under it.  If
 * not, that is an error, or in a batch an outcome: one lease that was dropped
 * or given to another role must not cost its holder the thousand others.
 */
static bool
may_renew(const char *name, bool batch, Reading *reading, GrantResult *result)
{
	if (!change_read(name, reading))
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
		change_warn_of_step(&reading);
		if (prolong(&reading, ttl))
		{
			look_for_stragglers(row);
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
set_ended(Reading *reading, const EndRequest *request, const Passage *passage,
		  EventList *events)
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
		passage_add_event(passage, row, events);

	row->state = request->how;
	row->successor = NULL;
	if (request->reason)
		row->reason = pstrdup(request->reason);
	grant_clear_handover(row);
	if (request->how == GRANT_RELEASED)
	{
		if (request->release->successor)
			successor = request->release->successor;
		if (successor)
			reserve_for(reading, successor, request->release->reserve, events);
	}
}

/*
 * await_updater waits for the transaction that has replaced the row of a grant that is
 * to be ended, or raises LS006.
 */
static void
await_updater(const Reading *reading, const EndRequest *request,
			  Passage *passage)
{
	int			blocker = 0;

	if (!(request->how == GRANT_REVOKED ?
		  passage_get_past(passage, reading, &blocker) :
		  change_await_updater(&reading->row, &blocker)))
		lock_report_bound(reading->row.name, blocker);
}

/*
 * try_end ends the grant in a row under the fence lock, or returns false if the caller
 * has to read and decide anew.
 */
static bool
try_end(const char *name, const EndRequest *request, const Passage *passage,
		Reading *reading)
{
	EventList	events;
	int			blocker = 0;
	const bool	nowait = false;

	if (!change_take_fence(name, nowait, &blocker))
		lock_report_bound(name, blocker);
	if (change_read(name, reading) && may_end(reading, request) &&
		!TransactionIdIsValid(reading->row.updater))
	{
		set_ended(reading, request, passage, &events);
		if (change_write_transition(&reading->row, &events))
			return true;
	}
	change_drop_fence(name);
	return false;
}

/*
 * end_grant ends a grant and tells which it was, or returns false if there is
 * none to end.
 *
 * As in acquire, whoever has replaced the row comes before whoever has the fence
 * lock.
 */
static bool
end_grant(const char *name, const EndRequest *request, int64 *epoch)
{
	Reading		reading;
	Passage		passage;
	const bool	nowait = false;
	const bool	revokes = request->how == GRANT_REVOKED;

	/* The first look: where there is nothing to end, no lock is taken. */
	if (!change_read(name, &reading) || !may_end(&reading, request))
		return false;

	change_warn_of_step(&reading);
	change_begin_transition(name);
	passage_begin(&passage, nowait, revokes);
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		if (TransactionIdIsValid(reading.row.updater))
			await_updater(&reading, request, &passage);
		else if (try_end(name, request, &passage, &reading))
			break;
		if (!change_read(name, &reading) || !may_end(&reading, request))
		{
			change_give_up_transition();
			return false;
		}
	}
	*epoch = reading.row.epoch;
	if (revokes)
		passage_end_guarded(&reading.row, 0);
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
		change_warn_of_step(&reading);
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
	durability_require();
	return true;
}
