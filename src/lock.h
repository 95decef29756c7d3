/*-------------------------------------------------------------------------
 *
 * lock.h
 *	  The lock tags of lease, and waiting with a bound.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_LOCK_H
#define LEASE_LOCK_H

#include "lease.h"

#include "storage/lock.h"
#include "utils/relcache.h"

/*
 * Our classes of advisory locks, in the 16-bit class field of the tag.  There
 * is no registry: PostgreSQL itself uses 1 and 2 for pg_advisory_lock(), other
 * extensions small numbers; these were drawn at random above 20000.  They show
 * in pg_locks as locktype "advisory" with the class as objsubid.
 */
typedef enum LeaseLockClass
{
	LEASE_LOCK_FENCE = 27411,	/* per lease: who may change its grant */
	LEASE_LOCK_PRESENCE = 27412,	/* per grant: who acts under it */
	LEASE_LOCK_ORIGIN = 27414	/* per database: who moves the epochs */
} LeaseLockClass;

extern void lock_tag_fence(LOCKTAG *tag, const char *name);
extern void lock_tag_presence(LOCKTAG *tag, const char *name, int64 epoch);
extern void lock_tag_origin(LOCKTAG *tag);

extern void lock_start_budget(void);
extern bool lock_take_bounded(const LOCKTAG *tag, LOCKMODE mode);
extern bool lock_try(const LOCKTAG *tag, LOCKMODE mode);
extern void lock_take(const LOCKTAG *tag, LOCKMODE mode);
extern void lock_drop(const LOCKTAG *tag, LOCKMODE mode);
extern void lock_take_at_commit(const LOCKTAG *tag, LOCKMODE mode,
								const char *name);
extern bool lock_await_transaction(TransactionId xid);
extern bool lock_run_bounded(const char *name, bool (*work) (void *arg),
							 void *arg);
pg_noreturn extern void lock_report_bound(const char *name, int blocker);
extern int	lock_holder(const LOCKTAG *tag, LOCKMODE mode);
extern int	lock_transaction_pid(TransactionId xid);

#endif							/* LEASE_LOCK_H */
