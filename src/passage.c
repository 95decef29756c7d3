/*-------------------------------------------------------------------------
 *
 * passage.c
 *	  Getting past those who are in the way of a takeover or a revocation.
 *
 * Whoever has replaced a lease's row and not committed keeps everybody else from
 * it.  Who wants to take the lease, or to take it back, waits for that transaction
 * with a bound; and if the lease's setting "evict" allows it, and the authority of
 * what the transaction has made of the row is over, its session is ended
 * (evict.c).  A revocation ends whatever authority there is, so that it may end
 * any such session.
 *
 * What a session has made of the row can be read while it is not committed, and
 * can change at any time, as can what the session does; so both are looked at
 * again every now and then, until it is gone or time is up.
 *
 * Those who act under a grant that has been superseded or revoked are ended when
 * that has been committed (aftermath.c).
 *
 * No locks of its own.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/passage.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "aftermath.h"
#include "authority.h"
#include "change.h"
#include "clock.h"
#include "evict.h"
#include "lock.h"
#include "passage.h"

/* How often it is looked at who is in the way, in milliseconds */
#define LOOK_INTERVAL	50

/* How long to spare who is merely between two statements, likewise */
#define PATIENCE		250

/*
 * How often it is looked when there is no time to spare: who goes from one statement
 * to the next waits for its client for less than a tenth of this, again and again
 */
#define HASTY_INTERVAL	2

/*
 * passage_begin begins a way on which nobody has been met yet.
 */
void
passage_begin(Passage *passage, bool nowait, bool revokes)
{
	passage->nowait = nowait;
	passage->revokes = revokes;
	passage->ended = NIL;
	passage->latest = InvalidTransactionId;
	passage->since = 0;
}

/*
 * is_live tells whether somebody has authority under what was read.
 */
static bool
is_live(const Reading *reading)
{
	return authority_standing(&reading->authority, reading->row.epoch,
							  &reading->at) == STANDING_LIVE;
}

/*
 * is_over tells whether nobody has authority, neither under a row nor under what a
 * running transaction has made of it.  (If the row is live, this is a reclaim by its
 * holder, for whom nobody is ended.)
 */
static bool
is_over(const Reading *reading)
{
	Reading		next;

	return !is_live(reading) &&
		!(store_read_uncommitted(&reading->row, &next) && is_live(&next));
}

/*
 * is_patient tells whether there is time to spare who is merely between two
 * statements.
 */
static bool
is_patient(const Passage *passage)
{
	return passage->since == 0 ||
		clock_moment() - passage->since < PATIENCE * 1000 ||
		lock_budget_left() > PATIENCE;
}

/*
 * end_updater ends the session that has replaced a row, if that may be done and has
 * not been done yet.  Whether its authority is over is asked last, as it may have
 * changed the row once more.
 */
static void
end_updater(Passage *passage, const Reading *reading)
{
	const LeaseRow *row = &reading->row;
	int			pid;

	if (TransactionIdEquals(row->updater, passage->latest) ||
		!evict_blocker_waits(row, is_patient(passage)) ||
		!(passage->revokes || is_over(reading)))
		return;
	pid = evict_blocker(row);
	if (pid == 0)
		return;
	passage->ended = lappend_int(passage->ended, pid);
	passage->latest = row->updater;
}

/*
 * await_updater_for_a_while waits until the next look, and tells whether to look again.
 */
static bool
await_updater_for_a_while(Passage *passage, TransactionId updater)
{
	if (passage->since == 0)
		passage->since = clock_moment();
	return lock_await_transaction_again(updater,
										is_patient(passage) ? LOOK_INTERVAL : HASTY_INTERVAL,
										passage->since) ||
		lock_budget_left() > 0;
}

/*
 * passage_get_past waits for a while for the transaction that has replaced the
 * version that was read, or ends its session.  False means that it is still there
 * and must not be waited for any longer.
 *
 * Otherwise it may be there, too: the caller reads and decides anew.
 */
bool
passage_get_past(Passage *passage, const Reading *reading, int *blocker)
{
	const LeaseRow *row = &reading->row;

	if (row->evict == EVICT_NONE && !passage->nowait)
		return change_await_updater(row, blocker);
	if (row->evict != EVICT_NONE)
		end_updater(passage, reading);
	if (!passage->nowait &&
		await_updater_for_a_while(passage, row->updater))
		return true;
	*blocker = lock_transaction_pid(row->updater);
	return false;
}

/*
 * add_pids appends a list of pids to the detail of an event, unless it is empty.
 */
static void
add_pids(StringInfo detail, const char *key, const List *pids)
{
	StringInfoData json;
	ListCell   *cell;

	if (pids == NIL)
		return;
	initStringInfo(&json);
	foreach(cell, pids)
		appendStringInfo(&json, "%s%d", json.len == 0 ? "[" : ", ",
						 lfirst_int(cell));
	appendStringInfoChar(&json, ']');
	event_detail_raw(detail, key, json.data);
}

/*
 * passage_add_event appends to the events of a takeover or revocation which
 * sessions it ends: those that it has met on its way, and, as far as they are there
 * by now, those that act under any grant up to the one in the row.
 */
void
passage_add_event(const Passage *passage, const LeaseRow *row,
				  EventList *events)
{
	StringInfoData detail;
	List	   *guarded = NIL;

	if (row->evict == EVICT_ALL && row->epoch != 0)
		guarded = evict_list_guarded(row->name);
	initStringInfo(&detail);
	add_pids(&detail, "blockers", passage->ended);
	add_pids(&detail, "guarded", guarded);
	if (detail.len > 0)
		event_add(events, EVENT_EVICTED, row->epoch, row->holder,
				  event_detail(&detail));
}

/*
 * passage_end_guarded has the sessions ended that act under any grant of a lease but
 * the present one (0: there is none), when this has been committed.
 */
void
passage_end_guarded(const LeaseRow *row, int64 present)
{
	aftermath_supersede(row->name, present, row->evict == EVICT_ALL);
}
