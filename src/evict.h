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

#include "lib/stringinfo.h"
#include "storage/lockdefs.h"
#include "store.h"

extern LOCKMODE evict_presence_mode(void);
extern bool evict_blocker(const LeaseRow *row, int *pid);
extern void evict_list_guarded(const char *name, int64 epoch,
							   StringInfo pids);
extern void evict_guarded(const char *name, int64 epoch);

#endif							/* LEASE_EVICT_H */
