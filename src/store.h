/*-------------------------------------------------------------------------
 *
 * store.h
 *	  The rows of lease.lease.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_STORE_H
#define LEASE_STORE_H

#include "lease.h"

#include "authority.h"
#include "clock.h"
#include "storage/itemptr.h"
#include "utils/snapshot.h"

/* Which sessions a takeover may end; stored in lease.lease.evict. */
typedef enum Evict
{
	EVICT_NONE = 'n',
	EVICT_BLOCKERS = 'b',		/* that sit on an uncommitted change */
	EVICT_ALL = 'a'				/* also in transactions guarded by the old
								 * epoch */
} Evict;

/*
 * A version of a lease's row.  Strings are allocated with the row, in the
 * memory context that was current when it was read.
 */
typedef struct LeaseRow
{
	char	   *name;
	Oid			role;
	int64		ttl;
	int64		grace;
	int64		min_hold;
	bool		late_commit;
	Evict		evict;
	bool		async_renew;
	GrantState	state;
	int64		epoch;
	StoredInstant acquired;		/* these two are set if epoch is not 0 */
	StoredInstant deadline;
	StoredInstant reserved;		/* set if successor is */
	char	   *boot;			/* NULL if there was no boot clock */
	char	   *holder;			/* NULL if epoch is 0 */
	int64		grant_ttl;		/* 0: the default */
	char	   *successor;		/* NULL if not reserved */
	char	   *reason;			/* NULL if not revoked, or for no reason */
	Datum		metadata;		/* jsonb; 0 if NULL */
	TimestampTz handover_at;	/* 0 if not asked to step down */
	char	   *handover_to;	/* NULL if for nobody in particular */
	char	   *handover_reason;	/* NULL if none was given */
	int64		event_seq;		/* of the latest event */

	/* About the version, not part of it. */
	ItemPointerData tid;
	bool		replaced_here;	/* has this transaction replaced it? */
	TransactionId updater;		/* another transaction that has replaced it
								 * and is still running, or invalid */
	ItemPointerData next_tid;	/* what it replaced it by, or tid if deleted */
} LeaseRow;

/*
 * A lease as read: the row, the clock that was read after it, and what the row
 * says on the scale of that clock.
 */
typedef struct Reading
{
	LeaseRow	row;
	Clock		clock;
	Authority	authority;
	Instants	at;
} Reading;

extern bool store_read(const char *name, Reading *reading);
extern bool store_read_created(const char *name, Reading *created);
extern bool store_read_uncommitted(const LeaseRow *row, Reading *next);
extern bool store_snapshot_covers(const char *name, int64 epoch);
extern void store_read_all(void (*receive) (const LeaseRow *row, void *arg),
						   void *arg);
extern void store_read_prefix(const char *prefix,
							  void (*receive) (const LeaseRow *row, void *arg),
							  void *arg);
extern void store_insert(const LeaseRow *row);
extern bool store_update(LeaseRow *row);
extern bool store_delete(const LeaseRow *row);

extern void store_judge(Reading *reading);
extern void store_authority(const LeaseRow *row, const Clock *clock,
							Authority *authority);

#endif							/* LEASE_STORE_H */
