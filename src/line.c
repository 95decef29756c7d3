/*-------------------------------------------------------------------------
 *
 * line.c
 *	  The line of candidates for a lease.
 *
 * Candidates wait in PostgreSQL's own lock queue, for the lock "queue" of the
 * lease: whoever holds it is at the head of the line and looks after the lease,
 * the others sleep.  When the head leaves, in whatever way, the next one is
 * awake.  All locks of the line are session-level, since each attempt is a
 * transaction of its own; so the head comes back to an empty transaction, and
 * nobody who waits holds a snapshot.  They go with the session, and nothing has
 * to be cleaned up after anybody.
 *
 * That queue knows no priorities.  So each candidate marks its place by three more
 * locks, all in share mode, which conflict with nothing and are read in the lock
 * table:
 *
 *	seat		the lease: who is in line for it
 *	rank		64 bits: first the priority, higher first, then the instant of
 *				arrival, on the boot clock; of two that are the same, the lower
 *				process number comes first, here and in lease.candidate
 *	candidate	lease and holder: to find the one for whom the lease is reserved
 *
 * A head that could have the lease, and sees that somebody in line comes before it,
 * steps back: it gives up the lock and queues again, behind all others.  So
 * the line turns until the right one is at its head; afterwards those who stepped
 * back come again before those who arrived after them, by the same rule.  Where all have
 * the same priority and nothing is reserved, the order of the queue is the right
 * one, and nobody steps back.
 *
 * Locks: these.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/line.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "clock.h"
#include "fmgr.h"
#include "funcapi.h"
#include "line.h"
#include "lock.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "store.h"
#include "utils/builtins.h"

SQL_CALLABLE(lease_read_candidates);

/*
 * Bits of the instant of arrival in a rank: microseconds, enough for 7 years up and
 * LONGEST_WAIT before that, as a candidate may have waited since before the machine
 * was started.
 */
#define RANK_TIME_BITS	48
#define RANK_TIME_MASK	((UINT64CONST(1) << RANK_TIME_BITS) - 1)
#define LONGEST_WAIT	(365 * USECS_PER_DAY)

/* Columns of lease.read_candidates(), as sql/line.sql declares them */
enum
{
	Candidate_name,
	Candidate_pid,
	Candidate_priority,
	Candidate_waits,
	Candidate_is_first,
	Candidate_columns
};

/*
 * arrival returns the instant of arrival, as ranks have it, of a candidate who has
 * waited for some microseconds.
 */
static uint64
arrival(int64 waited)
{
	return (uint64) (clock_moment() + LONGEST_WAIT - Min(waited, LONGEST_WAIT)) &
		RANK_TIME_MASK;
}

/*
 * line_choose_place decides where in the line for a lease a candidate comes, who
 * has waited for some microseconds before it arrives now.
 */
void
line_choose_place(Place *place, const char *name, const char *holder,
				  int priority, int64 waited)
{
	Assert(priority >= PG_INT16_MIN && priority <= PG_INT16_MAX);
	Assert(waited >= 0);
	place->rank = ((uint64) (PG_INT16_MAX - priority) << RANK_TIME_BITS) |
		arrival(waited);
	lock_tag_queue(&place->queue, name);
	lock_tag_seat(&place->marks[0], name);
	lock_tag_rank(&place->marks[1], place->rank);
	lock_tag_candidate(&place->marks[2], name, holder);
}

/*
 * line_join waits until the candidate is at the head of the line.  The transaction
 * is empty and has no snapshot.
 */
void
line_join(Place *place)
{
	for (int i = 0; i < (int) lengthof(place->marks); i++)
	{
		if (!lock_held_by_me(&place->marks[i], ShareLock))
			lock_take_for_session(&place->marks[i], ShareLock);
	}
	lock_take_for_session(&place->queue, ExclusiveLock);
}

/*
 * line_step_back gives up the head of the line, to queue again.
 */
void
line_step_back(Place *place)
{
	lock_drop_for_session(&place->queue, ExclusiveLock);
}

/*
 * line_leave gives up whatever there is of a place.  An error in the middle of a
 * wait may have left the lock for which it was.
 *
 * The marks go first: the next head must not step back for one who is leaving.
 */
void
line_leave(Place *place)
{
	for (int i = 0; i < (int) lengthof(place->marks); i++)
		lock_drop_for_session(&place->marks[i], ShareLock);
	lock_drop_for_session(&place->queue, ExclusiveLock);
}

/*
 * read_locks reads the lock table and keeps of it what belongs to the lines of this
 * database: mostly nothing.
 */
static LockData *
read_locks(void)
{
	LockData   *locks = GetLockStatusData();
	int			kept = 0;

	for (int i = 0; i < locks->nelements; i++)
	{
		const LOCKTAG *tag = &locks->locks[i].locktag;

		if (tag->locktag_type == LOCKTAG_ADVISORY &&
			tag->locktag_field1 == MyDatabaseId &&
			(tag->locktag_field4 == LEASE_LOCK_QUEUE ||
			 tag->locktag_field4 == LEASE_LOCK_SEAT ||
			 tag->locktag_field4 == LEASE_LOCK_RANK))
			locks->locks[kept++] = locks->locks[i];
	}
	locks->nelements = kept;
	return locks;
}

/*
 * is_rank tells whether such a lock marks a rank, and returns that.
 */
static bool
is_rank(const LockInstanceData *lock, uint64 *rank)
{
	const LOCKTAG *tag = &lock->locktag;

	*rank = ((uint64) tag->locktag_field2 << 32) | tag->locktag_field3;
	return tag->locktag_field4 == LEASE_LOCK_RANK &&
		(lock->holdMask & LOCKBIT_ON(ShareLock)) != 0;
}

/*
 * compare_pids orders process numbers.
 */
static int
compare_pids(const void *a, const void *b)
{
	return *(const int *) a < *(const int *) b ? -1 :
		*(const int *) a > *(const int *) b;
}

/*
 * find_seats returns the processes that are in line for a lease, in order.
 */
static int *
find_seats(const LockData *locks, const LOCKTAG *seat, int *count)
{
	int		   *pids = palloc(Max(locks->nelements, 1) * sizeof(int));

	*count = 0;
	for (int i = 0; i < locks->nelements; i++)
	{
		const LockInstanceData *lock = &locks->locks[i];

		if (memcmp(&lock->locktag, seat, sizeof(LOCKTAG)) == 0)
			pids[(*count)++] = lock->pid;
	}
	qsort(pids, *count, sizeof(int), compare_pids);
	return pids;
}

/*
 * is_among tells whether a process is one of them.
 */
static bool
is_among(int pid, const int *pids, int count)
{
	return count > 0 &&
		bsearch(&pid, pids, count, sizeof(int), compare_pids) != NULL;
}

/*
 * is_marked tells whether another session has set a mark.
 *
 * (GetLockConflicts would not see one that is between two transactions, as a head is
 * just when it has been woken.)
 */
static bool
is_marked(const LOCKTAG *mark)
{
	if (!lock_try(mark, ExclusiveLock))
		return true;
	lock_drop(mark, ExclusiveLock);
	return false;
}

/*
 * comes_before tells whether another session's rank puts it before the owner of a
 * place, which is this session.
 */
static bool
comes_before(uint64 rank, int pid, const Place *place)
{
	return rank != place->rank ? rank < place->rank : pid < MyProcPid;
}

/*
 * line_has_better tells whether somebody is in line who comes before the owner of
 * a place.
 */
bool
line_has_better(const Place *place)
{
	const LOCKTAG *seat = &place->marks[0];
	LockData   *locks;
	int		   *pids;
	int			count;

	/* Mostly nobody is there, and the whole lock table need not be read. */
	if (!is_marked(seat))
		return false;

	locks = read_locks();
	pids = find_seats(locks, seat, &count);
	for (int i = 0; i < locks->nelements; i++)
	{
		const LockInstanceData *lock = &locks->locks[i];
		uint64		rank;

		if (is_rank(lock, &rank) && comes_before(rank, lock->pid, place) &&
			is_among(lock->pid, pids, count))
			return true;
	}
	return false;
}

/*
 * line_has_candidate tells whether a holder is in line for a lease, in another
 * session.
 */
bool
line_has_candidate(const char *name, const char *holder)
{
	LOCKTAG		tag;

	lock_tag_candidate(&tag, name, holder);
	return is_marked(&tag);
}

/*
 * line_wake wakes the candidate at the head of the line for a lease.
 *
 * The change that it is to see has been committed: no error must escape from here.
 */
void
line_wake(const char *name)
{
	LOCKTAG		tag;
	VirtualTransactionId *head;

	lock_tag_queue(&tag, name);
	head = GetLockConflicts(&tag, ShareLock, NULL);
	for (; VirtualTransactionIdIsValid(*head); head++)
	{
		PGPROC	   *proc = lock_proc(head);

		if (proc)
			SetLatch(&proc->procLatch);
	}
}

/* What receive_lease gets */
typedef struct CandidateTarget
{
	ReturnSetInfo *set;
	LockData   *locks;
	uint64		now;			/* the same for all, so that they keep their
								 * order */
} CandidateTarget;

/*
 * put_candidate appends a candidate to the result.
 */
static void
put_candidate(CandidateTarget *target, const char *name, int pid, uint64 rank)
{
	uint64		now = target->now;
	uint64		arrived = rank & RANK_TIME_MASK;
	LOCKTAG		queue;
	bool		first = false;
	Datum		values[Candidate_columns];
	bool		nulls[Candidate_columns] = {false};

	lock_tag_queue(&queue, name);
	for (int i = 0; i < target->locks->nelements && !first; i++)
	{
		const LockInstanceData *lock = &target->locks->locks[i];

		first = lock->pid == pid && lock->holdMask != 0 &&
			memcmp(&lock->locktag, &queue, sizeof(LOCKTAG)) == 0;
	}
	values[Candidate_name] = CStringGetTextDatum(name);
	values[Candidate_pid] = Int32GetDatum(pid);
	values[Candidate_priority] =
		Int32GetDatum(PG_INT16_MAX - (int) (rank >> RANK_TIME_BITS));
	values[Candidate_waits] =
		clock_interval_datum(now > arrived ? (int64) (now - arrived) : 0);
	values[Candidate_is_first] = BoolGetDatum(first);
	tuplestore_putvalues(target->set->setResult, target->set->setDesc,
						 values, nulls);
}

/*
 * receive_lease appends the candidates for a lease to the result.
 */
static void
receive_lease(const LeaseRow *row, void *arg)
{
	CandidateTarget *target = (CandidateTarget *) arg;
	LOCKTAG		seat;
	int			count;
	int		   *pids;

	lock_tag_seat(&seat, row->name);
	pids = find_seats(target->locks, &seat, &count);
	for (int i = 0; i < target->locks->nelements && count > 0; i++)
	{
		const LockInstanceData *lock = &target->locks->locks[i];
		uint64		rank;

		if (is_rank(lock, &rank) && is_among(lock->pid, pids, count))
			put_candidate(target, row->name, lock->pid, rank);
	}
	pfree(pids);
}

/*
 * lease_read_candidates: lease.read_candidates(), of which the view is made
 */
Datum
lease_read_candidates(PG_FUNCTION_ARGS)
{
	CandidateTarget target;

	InitMaterializedSRF(fcinfo, 0);
	target.set = (ReturnSetInfo *) fcinfo->resultinfo;
	target.locks = read_locks();
	target.now = arrival(0);
	if (target.locks->nelements > 0)
		store_read_all(receive_lease, &target);
	return (Datum) 0;
}
