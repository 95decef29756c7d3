/*-------------------------------------------------------------------------
 *
 * change.c
 *	  The steps of every change of a lease: the protocol.
 *
 *	1. change_begin: the lock on the table; or change_begin_transition: also
 *	   the one on the table of events, for whatever is an event.
 *	2. change_take_fence, for whatever ends or replaces a grant (acquire, release,
 *	   revoke, create, drop, and changes of role or late_commit): the lease's fence
 *	   lock, exclusively to the end of the transaction.  It is what a COMMIT under
 *	   the grant takes in share mode (guard.c).  A renewal and other changes of
 *	   settings do without: they leave the grant that is there, and any number of
 *	   renewals must not fill the lock table.
 *	3. change_read, and the decision.  If the answer is no: change_drop_fence and
 *	   change_give_up (change_give_up_transition), so that nothing is left.
 *	4. If a running transaction has replaced the version that was read:
 *	   change_drop_fence, change_await_updater, and again from 2.  Nobody keeps
 *	   the fence lock while waiting for the row: whom we wait for may have
 *	   renewed and be about to COMMIT under its grant, for which it needs that
 *	   lock, too.
 *	5. change_rebase, the new values, change_write or change_write_transition.  If
 *	   somebody was faster, again from 2.  The row's xmax is the lock between
 *	   writers of one row, and of its events.
 *
 * All waits are bounded, as lock.c describes.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/change.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog.h"
#include "change.h"
#include "clock.h"
#include "event.h"
#include "guard.h"
#include "lock.h"
#include "store.h"

/*
 * change_take_fence takes the lease's fence lock exclusively, waiting for
 * COMMITs under way with a bound, or not at all; if in vain, it tells who is in the
 * way.
 */
bool
change_take_fence(const char *name, bool nowait, int *blocker)
{
	LOCKTAG		tag;

	lock_tag_fence(&tag, name);
	if (nowait ? lock_try(&tag, ExclusiveLock) :
		lock_take_bounded(&tag, ExclusiveLock))
		return true;
	*blocker = lock_holder(&tag, ExclusiveLock);
	return false;
}

/*
 * change_drop_fence gives back the lock for a call that changed nothing.
 */
void
change_drop_fence(const char *name)
{
	LOCKTAG		tag;

	lock_tag_fence(&tag, name);
	lock_drop(&tag, ExclusiveLock);
}

/*
 * change_await_updater waits for the transaction that has replaced a version,
 * with a bound; if in vain, it tells who that is.
 */
bool
change_await_updater(const LeaseRow *row, int *blocker)
{
	if (lock_await_transaction(row->updater))
		return true;
	*blocker = lock_transaction_pid(row->updater);
	return false;
}

/*
 * lock_table calls catalog_lock_lease for lock_run_bounded.
 */
static bool
lock_table(void *arg pg_attribute_unused())
{
	(void) catalog_lock_lease(RowExclusiveLock);
	return true;
}

/*
 * lock_tables does the same for both tables.
 */
static bool
lock_tables(void *arg pg_attribute_unused())
{
	(void) catalog_lock_lease(RowExclusiveLock);
	catalog_lock_events(RowExclusiveLock);
	return true;
}

/*
 * change_begin prepares for a write: whoever has locked the whole table is
 * waited for now, with a bound, and not between the decision and the write.
 */
void
change_begin(const char *name)
{
	(void) lock_run_bounded(name, lock_table, NULL);
}

/*
 * change_begin_transition does the same for a change that is an event.
 */
void
change_begin_transition(const char *name)
{
	(void) lock_run_bounded(name, lock_tables, NULL);
}

/*
 * change_give_up ends a call that has written nothing: it keeps no lock.
 */
void
change_give_up(void)
{
	catalog_unlock_lease(RowExclusiveLock);
}

/*
 * change_give_up_transition does the same for a change that would have been an
 * event.
 */
void
change_give_up_transition(void)
{
	catalog_unlock_events(RowExclusiveLock);
	catalog_unlock_lease(RowExclusiveLock);
}

/* Arguments of read_row for lock_run_bounded */
typedef struct Lookup
{
	const char *name;
	Reading    *reading;
} Lookup;

/*
 * read_row calls store_read for lock_run_bounded.
 */
static bool
read_row(void *arg)
{
	Lookup	   *lookup = (Lookup *) arg;

	return store_read(lookup->name, lookup->reading);
}

/*
 * change_read calls store_read for whoever may hold the fence lock: whoever has locked
 * the index is waited for with a bound.
 */
bool
change_read(const char *name, Reading *reading)
{
	Lookup		lookup = {name, reading};

	return lock_run_bounded(name, read_row, &lookup);
}

/*
 * update_row calls store_update for lock_run_bounded.
 */
static bool
update_row(void *arg)
{
	return store_update((LeaseRow *) arg);
}

/*
 * delete_row calls store_delete for lock_run_bounded.
 */
static bool
delete_row(void *arg)
{
	return store_delete((LeaseRow *) arg);
}

/* Arguments of event_number for lock_run_bounded */
typedef struct Numbering
{
	EventList  *events;
	LeaseRow   *row;
} Numbering;

/*
 * number calls event_number for lock_run_bounded.
 */
static bool
number(void *arg)
{
	Numbering  *numbering = (Numbering *) arg;

	event_number(numbering->events, numbering->row);
	return true;
}

/*
 * number_events numbers events; whoever has locked the index in which the latest
 * is looked up is waited for with a bound.
 */
static void
number_events(EventList *events, LeaseRow *row)
{
	Numbering	numbering = {events, row};

	(void) lock_run_bounded(row->name, number, &numbering);
}

/*
 * write_events calls event_write for lock_run_bounded.
 */
static bool
write_events(void *arg)
{
	event_write((EventList *) arg);
	return true;
}

/*
 * change_write writes a row, or returns false if somebody was faster.
 */
bool
change_write(LeaseRow *row)
{
	if (!lock_run_bounded(row->name, update_row, row))
		return false;
	guard_note_change();
	return true;
}

/*
 * change_write_transition writes a row and what has happened to it, or returns
 * false if somebody was faster.
 */
bool
change_write_transition(LeaseRow *row, EventList *events)
{
	number_events(events, row);
	if (!change_write(row))
		return false;
	(void) lock_run_bounded(row->name, write_events, events);
	return true;
}

/*
 * change_insert inserts a row and what has happened to it.  The caller holds
 * the fence lock, and has seen that there is no such row.
 */
void
change_insert(LeaseRow *row, EventList *events)
{
	number_events(events, row);
	store_insert(row);
	guard_note_change();
	(void) lock_run_bounded(row->name, write_events, events);
}

/*
 * change_remove deletes a row and writes that, or returns false if somebody was
 * faster.
 */
bool
change_remove(LeaseRow *row, EventList *events)
{
	number_events(events, row);
	if (!lock_run_bounded(row->name, delete_row, row))
		return false;
	guard_note_change();
	(void) lock_run_bounded(row->name, write_events, events);
	return true;
}

/*
 * change_warn_of_step warns if the wall clock was stepped since a row was written.  To
 * be called by whoever is about to change it, before it takes the fence lock: the client
 * may not read the message.
 */
void
change_warn_of_step(const Reading *reading)
{
	const LeaseRow *row = &reading->row;
	int64		step;

	if (row->epoch == 0)
		return;
	step = clock_step(&reading->clock, row->boot, &row->deadline);
	if (step > CLOCK_STEP_WARNING || step < -CLOCK_STEP_WARNING)
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("the server's wall clock has been stepped by %+.3f s since lease \"%s\" was last changed",
						(double) step / USECS_PER_SEC, row->name),
				 errdetail("Grants are measured on the boot clock and are not affected; expires_at follows the stepped clock.")));
}

/*
 * change_rebase brings the instants of a row onto the present boot clock if
 * another boot wrote them, as one row knows one clock only, and their images
 * onto the wall clock if that was stepped.  To be called before any of them is
 * set.
 */
void
change_rebase(Reading *reading)
{
	const Clock *clock = &reading->clock;
	LeaseRow   *row = &reading->row;

	if (clock_is_witness(clock, row->boot))
	{
		if (row->epoch != 0)
		{
			row->acquired.wall = clock_image(clock, row->boot, &row->acquired);
			row->deadline.wall = clock_image(clock, row->boot, &row->deadline);
		}
		if (row->successor)
			row->reserved.wall = clock_image(clock, row->boot, &row->reserved);
		return;
	}
	if (row->epoch != 0)
	{
		row->acquired = clock_store(clock, reading->authority.acquired);
		row->deadline = clock_store(clock, reading->authority.deadline);
	}
	if (row->successor)
		row->reserved = clock_store(clock, reading->authority.reserved_until);
	row->boot = clock->boot ? pstrdup(clock->boot) : NULL;
}
