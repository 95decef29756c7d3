/*-------------------------------------------------------------------------
 *
 * evict.h
 *	  Ending sessions that stand in the way of a takeover.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_EVICT_H
#define LEASE_EVICT_H

#include "lease.h"

#include "nodes/pg_list.h"
#include "storage/lockdefs.h"
#include "store.h"

extern LOCKMODE evict_presence_mode(void);
extern bool evict_blocker_waits(const LeaseRow *row, bool patiently);
extern int	evict_blocker(const LeaseRow *row);
extern List *evict_list_guarded(const char *name);
extern void evict_superseded(const char *name, int64 present);
extern void evict_stragglers(const char *name, int64 present);

#endif							/* LEASE_EVICT_H */
