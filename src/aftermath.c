/*-------------------------------------------------------------------------
 *
 * aftermath.c
 *	  What is done when a change of leases has been committed.
 *
 * Two things can only be done when it is certain, and visible to others, that a
 * grant has ended: ending the sessions that act under it (evict.c), and waking
 * the candidate that is first in line (line.c).  Until then they are kept in a
 * list; what a subtransaction has put there is forgotten if that is rolled back.
 *
 * They are done in the transaction callback, after the commit, while our locks
 * are still held.  No catalog can be read there, and no error may escape.
 *
 * No locks of its own.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/aftermath.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "aftermath.h"
#include "evict.h"
#include "line.h"
#include "miscadmin.h"
#include "utils/memutils.h"

/* What there is to do */
typedef enum DeedKind
{
	DEED_WAKE,					/* wake who is first in line */
	DEED_EVICT,					/* end who acts under another grant */
	DEED_SPARE					/* not even that: the lease is set up so */
} DeedKind;

/* One thing to do */
typedef struct Deed
{
	struct Deed *next;			/* an earlier one */
	SubTransactionId subid;		/* where it was put here */
	DeedKind	kind;
	int64		present;		/* the grant that there is now, or 0 */
	char		name[FLEXIBLE_ARRAY_MEMBER];
} Deed;

/* What there is to do, in TopTransactionContext. */
static Deed *deeds = NULL;

/*
 * add appends a thing to do.
 */
static void
add(const char *name, DeedKind kind, int64 present)
{
	Deed	   *deed = MemoryContextAlloc(TopTransactionContext,
										  offsetof(Deed, name) + strlen(name) + 1);

	deed->subid = GetCurrentSubTransactionId();
	deed->kind = kind;
	deed->present = present;
	strcpy(deed->name, name);
	deed->next = deeds;
	deeds = deed;
}

/*
 * aftermath_wake has the candidate woken that is first in line for a lease.
 */
void
aftermath_wake(const char *name)
{
	add(name, DEED_WAKE, 0);
}

/*
 * aftermath_supersede notes that all grants of a lease are over but the present one (0:
 * there is none), and has the sessions ended that act under them, if those may be.
 */
void
aftermath_supersede(const char *name, int64 present, bool evicts)
{
	add(name, evicts ? DEED_EVICT : DEED_SPARE, present);
}

/*
 * find_superseding finds the latest of these notes about a lease in a list, or NULL.
 */
static const Deed *
find_superseding(const Deed *list, const char *name)
{
	for (const Deed *deed = list; deed; deed = deed->next)
	{
		if (deed->kind != DEED_WAKE && strcmp(deed->name, name) == 0)
			return deed;
	}
	return NULL;
}

/*
 * aftermath_has_superseded tells whether this transaction has made or ended a grant of
 * a lease.
 */
bool
aftermath_has_superseded(const char *name)
{
	return find_superseding(deeds, name) != NULL;
}

/*
 * do_deed does one thing.  Of several grants that were made or ended in this
 * transaction, only the latest counts: somebody may already act under it.
 */
static void
do_deed(const Deed *deed)
{
	if (deed->kind == DEED_WAKE)
		line_wake(deed->name);
	else if (deed->kind == DEED_EVICT &&
			 find_superseding(deeds, deed->name) == deed)
		evict_superseded(deed->name, deed->present);
}

/*
 * aftermath_commit does what there is to do.
 */
void
aftermath_commit(void)
{
	MemoryContext caller_context = CurrentMemoryContext;
	uint32		held_off = InterruptHoldoffCount;

	for (const Deed *volatile deed = deeds; deed; deed = deed->next)
	{
		PG_TRY();
		{
			do_deed(deed);
		}
		PG_CATCH();
		{
			/* Out of memory, if anything.  It cannot be undone any more. */
			MemoryContextSwitchTo(caller_context);
			FlushErrorState();

			/* COMMIT holds off interrupts, which an error has undone. */
			InterruptHoldoffCount = held_off;
		}
		PG_END_TRY();
	}
}

/*
 * aftermath_end_subtransaction hands what a subtransaction has put into the list
 * to its parent, or forgets it.
 */
void
aftermath_end_subtransaction(SubTransactionId subid,
							 SubTransactionId parent_subid, bool committed)
{
	for (Deed **link = &deeds; *link;)
	{
		if ((*link)->subid == subid)
		{
			if (!committed)
			{
				*link = (*link)->next;
				continue;
			}
			(*link)->subid = parent_subid;
		}
		link = &(*link)->next;
	}
}

/*
 * aftermath_forget resets everything at the end of a transaction.
 */
void
aftermath_forget(void)
{
	deeds = NULL;
}
