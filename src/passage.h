/*-------------------------------------------------------------------------
 *
 * passage.h
 *	  Getting past those who are in the way of a takeover or a revocation.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_PASSAGE_H
#define LEASE_PASSAGE_H

#include "lease.h"

#include "event.h"
#include "nodes/pg_list.h"
#include "store.h"

/* One call's way past all who are in its way */
typedef struct Passage
{
	bool		nowait;			/* end who may be ended, but wait for nobody */
	bool		revokes;		/* it ends whatever authority there is */
	List	   *ended;			/* pids of those whose sessions it has ended */
	TransactionId latest;		/* the change of the last of them */
	int64		since;			/* when the wait began, on clock_moment()'s
								 * scale; 0: not yet */
} Passage;

extern void passage_begin(Passage *passage, bool nowait, bool revokes);
extern bool passage_get_past(Passage *passage, const Reading *reading,
							 int *blocker);
extern void passage_add_event(const Passage *passage, const LeaseRow *row,
							  EventList *events);
extern void passage_end_guarded(const LeaseRow *row, int64 present);

#endif							/* LEASE_PASSAGE_H */
