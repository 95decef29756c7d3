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

/* One thing to do */
typedef struct Deed
{
	struct Deed *next;
	SubTransactionId subid;		/* where it was put here */
	bool		evicts;			/* end sessions; or else wake a candidate */
	int64		spared;			/* the epoch whose sessions are not ended */
	char		name[FLEXIBLE_ARRAY_MEMBER];
} Deed;

/* What there is to do, in TopTransactionContext. */
static Deed *deeds = NULL;

/*
 * add appends a thing to do.
 */
static void
add(const char *name, bool evicts, int64 spared)
{
	Deed	   *deed = MemoryContextAlloc(TopTransactionContext,
										  offsetof(Deed, name) + strlen(name) + 1);

	deed->subid = GetCurrentSubTransactionId();
	deed->evicts = evicts;
	deed->spared = spared;
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
	add(name, false, 0);
}

/*
 * aftermath_evict has the sessions ended that act under any epoch of a lease but one,
 * which is that of the present grant, or 0 if there is none.
 */
void
aftermath_evict(const char *name, int64 spared)
{
	add(name, true, spared);
}

/*
 * aftermath_evicts tells whether that is to be done for a lease.
 */
bool
aftermath_evicts(const char *name)
{
	for (const Deed *deed = deeds; deed; deed = deed->next)
	{
		if (deed->evicts && strcmp(deed->name, name) == 0)
			return true;
	}
	return false;
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
			if (deed->evicts)
				evict_superseded(deed->name, deed->spared);
			else
				line_wake(deed->name);
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
