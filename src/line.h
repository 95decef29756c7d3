/*-------------------------------------------------------------------------
 *
 * line.h
 *	  The line of candidates for a lease.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_LINE_H
#define LEASE_LINE_H

#include "lease.h"

#include "storage/lock.h"

/* A place in the line for a lease */
typedef struct Place
{
	uint64		rank;			/* the lower, the sooner */
	LOCKTAG		queue;
	LOCKTAG		marks[3];		/* seat, rank and candidate */
} Place;

extern void line_choose_place(Place *place, const char *name,
							  const char *holder, int priority,
							  int64 waited);
extern void line_join(Place *place);
extern void line_leave(Place *place);
extern void line_step_back(Place *place);
extern bool line_has_better(const Place *place);
extern bool line_has_candidate(const char *name, const char *holder);
extern void line_wake(const char *name);

#endif							/* LEASE_LINE_H */
