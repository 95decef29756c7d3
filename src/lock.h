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
#include "storage/proc.h"
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
	LEASE_LOCK_QUEUE = 27413,	/* per lease: who is at the head of the line */
	LEASE_LOCK_ORIGIN = 27414,	/* per database: who moves the epochs */
	LEASE_LOCK_SEAT = 27415,	/* per lease: who is in line */
	LEASE_LOCK_RANK = 27416,	/* of one in line: who comes first */
	LEASE_LOCK_CANDIDATE = 27417,	/* per lease and holder in line */
	LEASE_LOCK_SIGN = 27418,	/* per grant or peer: who writes its sign */
	LEASE_LOCK_GUARDED = 27419, /* per lease: who acts under any grant */
	LEASE_LOCK_RECORDS = 27420, /* per lease: who writes its records */
	LEASE_LOCK_FLOOR = 27421,	/* per floor: who advances it, or pins it */
	LEASE_LOCK_PIN = 27422		/* per floor and holder: who changes the pin */
} LeaseLockClass;

extern void lock_tag_fence(LOCKTAG *tag, const char *name);
extern void lock_tag_presence(LOCKTAG *tag, const char *name, int64 epoch);
extern void lock_tag_guarded(LOCKTAG *tag, const char *name);
extern void lock_tag_origin(LOCKTAG *tag);
extern void lock_tag_queue(LOCKTAG *tag, const char *name);
extern void lock_tag_seat(LOCKTAG *tag, const char *name);
extern void lock_tag_rank(LOCKTAG *tag, uint64 rank);
extern void lock_tag_candidate(LOCKTAG *tag, const char *name,
							   const char *holder);

extern void lock_tag_records(LOCKTAG *tag, const char *name);
extern void lock_tag_floor(LOCKTAG *tag, const char *floor);
extern void lock_tag_pin(LOCKTAG *tag, const char *floor, const char *holder);

extern void lock_start_budget(void);
extern void lock_limit_budget(int64 moment);
extern bool lock_take_bounded(const LOCKTAG *tag, LOCKMODE mode);
extern bool lock_try(const LOCKTAG *tag, LOCKMODE mode);
extern void lock_take(const LOCKTAG *tag, LOCKMODE mode);
extern void lock_take_sign(const char *name, int64 epoch);
extern void lock_drop_sign(const char *name, int64 epoch);
extern void lock_drop(const LOCKTAG *tag, LOCKMODE mode);
extern void lock_take_at_commit(const LOCKTAG *tag, LOCKMODE mode,
								const char *name);
extern void lock_take_for_session(const LOCKTAG *tag, LOCKMODE mode);
extern void lock_drop_for_session(const LOCKTAG *tag, LOCKMODE mode);
extern bool lock_await_transaction(TransactionId xid);
extern bool lock_await_transaction_again(TransactionId xid, int at_most,
										 int64 since);
extern int	lock_budget_left(void);
extern bool lock_run_bounded(const char *name, bool (*work) (void *arg),
							 void *arg);
extern bool lock_take_or_raise(const LOCKTAG *tag, LOCKMODE mode,
							   const char *message, const char *deed);
pg_noreturn extern void lock_report_bound(const char *name, int blocker);
extern int	lock_holder(const LOCKTAG *tag, LOCKMODE mode);
extern TransactionId lock_top_transaction(TransactionId xid);
extern int	lock_transaction_pid(TransactionId xid);
extern bool lock_is_held_by(PGPROC *proc, const LOCKTAG *tag, LOCKMODE mode);
extern PGPROC *lock_proc(const VirtualTransactionId *vxid);

#endif							/* LEASE_LOCK_H */
