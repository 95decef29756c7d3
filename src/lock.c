/*-------------------------------------------------------------------------
 *
 * lock.c
 *	  The lock tags of lease, and waiting with a bound.
 *
 * Leases are locked with heavyweight locks under advisory tags of our own
 * classes.  They cost no WAL and no row version, their queue is fair, they are
 * watched by the deadlock detector and they are gone with the transaction.
 * The tag carries a 64-bit hash of the lease's name; a collision makes two
 * leases wait for each other, nothing else, because every decision is made on
 * the row.  Only whom to evict is read from tags of presence and guarded.
 *
 * fence	per lease.  Exclusive, to the end of the transaction, for whoever
 *			changes the grant (acquire that wins, release, revoke, drop, create,
 *			change of role or late_commit); share, to the end of the
 *			transaction, for a guarded transaction inside its COMMIT.  So a
 *			grant is replaced only while no COMMIT under it is under way, and
 *			waits for nothing else of its holder's.
 * presence per lease and epoch.  Share (superusers: access share), from the guard
 *			on: conflicts with nothing, and shows who acts under which grant.
 * guarded	per lease.  The same, whatever the grant.
 * origin	per database.  Share while an epoch is drawn, exclusive while the
 *			sequence is lifted; released before the call returns.
 *
 * sign		per lease and epoch, or peer.  Exclusive, to the end of the transaction,
 *			for whoever reports progress or a heartbeat.  Nothing is decided under
 *			it, and the wait for it is an ordinary one; see health.c.
 *
 * records	per lease.  Exclusive, to the end of the transaction, for whoever writes
 *			an authority record; see records.c.
 * floor	per floor.  Exclusive, to the end of the transaction, for whoever
 *			advances it; share for whoever makes, renews or removes a pin.
 * pin		per floor and holder.  Exclusive, to the end of the transaction, for
 *			whoever changes that pin; see pins.c.
 *
 * queue, seat, rank, candidate: of those who wait in line for a lease; see line.c.
 *
 * All locks but those of the line are transaction-level, so that no error can leave
 * one behind.
 *
 * Nobody waits longer than lease.busy_timeout for another transaction that is
 * deciding.  (Of the locks above, that leaves out origin, which nobody holds for
 * longer than a call, and sign, under which nothing is decided.)  The bound holds
 * for all the waits of a call, or of a COMMIT, together.  The wait stands in
 * PostgreSQL's own lock queue (polling would starve under load) with lock_timeout
 * set to the bound, inside an internal subtransaction, because the error by which a
 * lock timeout ends a wait would abort the caller's transaction.  A deadlock that is
 * found meanwhile ends the wait in the same way; inside COMMIT it is raised as what
 * it is.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/lock.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/subtrans.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "clock.h"
#include "common/hashfn.h"
#include "lock.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/sinvaladt.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

#if PG_VERSION_NUM < 170000
#define ProcNumberGetProc(n)	BackendIdGetProc(n)
#define vxid_proc_number(v)		((v).backendId)
#else
#define vxid_proc_number(v)		((v).procNumber)
#endif

/* What a bounded wait waits for: a lock, or the end of a transaction. */
typedef struct Wait
{
	const LOCKTAG *tag;			/* the lock, or NULL */
	LOCKMODE	mode;
	TransactionId xid;			/* the transaction, where tag is NULL */
	int			at_most;		/* milliseconds, 0: what is left of the budget */
	int64		since;			/* when the first of several waits for it
								 * began, on clock_moment()'s scale; 0: this
								 * is the first */
} Wait;

/* Longer than anybody holds a lock that is held within a call, in milliseconds */
#define MOMENT	100

/* When the waits of the present call have to be over, on clock_moment()'s scale */
static int64 budget_end = 0;

/*
 * hash_name hashes the name of a lease, differently in each database.
 */
static uint64
hash_name(const char *name)
{
	uint64		seed = hash_combine64(GetSystemIdentifier(),
									  (uint64) MyDatabaseId);

	return hash_bytes_extended((const unsigned char *) name,
							   (int) strlen(name), seed);
}

/*
 * set_tag fills a lock tag with a class and 64 bits of key.
 */
static void
set_tag(LOCKTAG *tag, LeaseLockClass class, uint64 key)
{
	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, (uint32) (key >> 32),
						 (uint32) key, class);
}

/*
 * lock_tag_fence makes the tag under which changes of a lease's grant and
 * commits under it exclude each other.
 */
void
lock_tag_fence(LOCKTAG *tag, const char *name)
{
	set_tag(tag, LEASE_LOCK_FENCE, hash_name(name));
}

/*
 * lock_tag_presence makes the tag that shows who acts under a grant.
 */
void
lock_tag_presence(LOCKTAG *tag, const char *name, int64 epoch)
{
	set_tag(tag, LEASE_LOCK_PRESENCE,
			hash_combine64(hash_name(name), (uint64) epoch));
}

/*
 * lock_tag_guarded makes the tag that shows who acts under any grant.
 */
void
lock_tag_guarded(LOCKTAG *tag, const char *name)
{
	set_tag(tag, LEASE_LOCK_GUARDED, hash_name(name));
}

/*
 * lock_tag_origin makes the tag of the database's epochs.
 */
void
lock_tag_origin(LOCKTAG *tag)
{
	set_tag(tag, LEASE_LOCK_ORIGIN, 0);
}

/*
 * lock_tag_queue makes the tag of the line for a lease.
 */
void
lock_tag_queue(LOCKTAG *tag, const char *name)
{
	set_tag(tag, LEASE_LOCK_QUEUE, hash_name(name));
}

/*
 * lock_tag_seat makes the tag that shows who is in line for a lease.
 */
void
lock_tag_seat(LOCKTAG *tag, const char *name)
{
	set_tag(tag, LEASE_LOCK_SEAT, hash_name(name));
}

/*
 * lock_tag_rank makes the tag that shows where in a line somebody comes.
 */
void
lock_tag_rank(LOCKTAG *tag, uint64 rank)
{
	set_tag(tag, LEASE_LOCK_RANK, rank);
}

/*
 * lock_tag_candidate makes the tag that shows that a holder is in line for a
 * lease.
 */
void
lock_tag_candidate(LOCKTAG *tag, const char *name, const char *holder)
{
	set_tag(tag, LEASE_LOCK_CANDIDATE,
			hash_combine64(hash_name(name), hash_name(holder)));
}

/*
 * lock_tag_records makes the tag of those who write the records of a lease.
 */
void
lock_tag_records(LOCKTAG *tag, const char *name)
{
	set_tag(tag, LEASE_LOCK_RECORDS, hash_name(name));
}

/*
 * lock_tag_floor makes the tag under which a floor and its pins are changed.
 */
void
lock_tag_floor(LOCKTAG *tag, const char *floor)
{
	set_tag(tag, LEASE_LOCK_FLOOR, hash_name(floor));
}

/*
 * lock_tag_pin makes the tag of one pin of a floor.
 */
void
lock_tag_pin(LOCKTAG *tag, const char *floor, const char *holder)
{
	set_tag(tag, LEASE_LOCK_PIN,
			hash_combine64(hash_name(floor), hash_name(holder)));
}

/*
 * take takes a lock to the end of the transaction, or tells that it is not free.
 *
 * Locks are booked on the (sub)transaction, not on the portal that happens to
 * run us: one that was taken in the subtransaction of wait_bounded is passed on to
 * the (sub)transaction around it, and whoever gives it back before the end has
 * to name the owner that has it.
 */
static bool
take(const LOCKTAG *tag, LOCKMODE mode, bool dont_wait)
{
	ResourceOwner caller_owner = CurrentResourceOwner;
	const bool	session_lock = false;
	bool		taken;

	CurrentResourceOwner = CurTransactionResourceOwner;
	taken = LockAcquire(tag, mode, session_lock, dont_wait) !=
		LOCKACQUIRE_NOT_AVAIL;
	CurrentResourceOwner = caller_owner;
	return taken;
}

/*
 * lock_try takes a lock to the end of the transaction if it is free.
 */
bool
lock_try(const LOCKTAG *tag, LOCKMODE mode)
{
	const bool	dont_wait = true;

	return take(tag, mode, dont_wait);
}

/*
 * lock_take takes a lock to the end of the transaction, however long it takes:
 * for those that nobody holds for longer than a call, and those of signs.
 */
void
lock_take(const LOCKTAG *tag, LOCKMODE mode)
{
	const bool	dont_wait = false;

	(void) take(tag, mode, dont_wait);
}

/*
 * lock_tag_sign makes the tag of the reports under a grant, or of the heartbeats of a
 * peer (epoch 0).
 */
static void
lock_tag_sign(LOCKTAG *tag, const char *name, int64 epoch)
{
	set_tag(tag, LEASE_LOCK_SIGN,
			hash_combine64(hash_name(name), (uint64) epoch));
}

/*
 * lock_take_sign takes, to the end of the transaction, the lock under which reports of
 * progress under a grant, or heartbeats of a peer (epoch 0), are written.
 */
void
lock_take_sign(const char *name, int64 epoch)
{
	LOCKTAG		tag;

	lock_tag_sign(&tag, name, epoch);
	lock_take(&tag, ExclusiveLock);
}

/*
 * lock_drop_sign gives it back for a call that wrote nothing.
 */
void
lock_drop_sign(const char *name, int64 epoch)
{
	LOCKTAG		tag;

	lock_tag_sign(&tag, name, epoch);
	lock_drop(&tag, ExclusiveLock);
}

/*
 * lock_drop releases a lock before the end of the transaction, for a call that
 * changed nothing under it.
 */
void
lock_drop(const LOCKTAG *tag, LOCKMODE mode)
{
	ResourceOwner caller_owner = CurrentResourceOwner;
	const bool	session_lock = false;

	CurrentResourceOwner = CurTransactionResourceOwner;
	if (!LockRelease(tag, mode, session_lock))
		elog(ERROR, "lock of a lease is not held");
	CurrentResourceOwner = caller_owner;
}

/*
 * lock_take_for_session takes a lock until it is given back or the session ends,
 * however long it takes.
 */
void
lock_take_for_session(const LOCKTAG *tag, LOCKMODE mode)
{
	const bool	session_lock = true;
	const bool	dont_wait = false;

	(void) LockAcquire(tag, mode, session_lock, dont_wait);
}

/*
 * lock_drop_for_session gives such a lock back, if it is held.
 */
void
lock_drop_for_session(const LOCKTAG *tag, LOCKMODE mode)
{
	const bool	session_lock = true;

	if (lock_held_by_me(tag, mode))
		(void) LockRelease(tag, mode, session_lock);
}

/*
 * lock_start_budget begins a call of ours: all its waits together may take
 * lease.busy_timeout.
 */
void
lock_start_budget(void)
{
	budget_end = clock_moment() + (int64) lease_busy_timeout * 1000;
}

/*
 * lock_limit_budget makes the waits of the present call end at a moment, if
 * that is sooner.
 */
void
lock_limit_budget(int64 moment)
{
	budget_end = Min(budget_end, moment);
}

/*
 * lock_budget_left returns what is left of it, in milliseconds: 0 if the present call
 * may not wait any more.
 */
int
lock_budget_left(void)
{
	int64		left = (budget_end - clock_moment()) / 1000;

	return (int) Max(0, Min(left, lease_busy_timeout));
}

/*
 * left_to_user returns what is left of the user's lock_timeout for a wait, in
 * milliseconds, or 0 if there is none: several waits for the same are one to the
 * user.
 */
static int
left_to_user(const Wait *wait)
{
	int64		waited;

	if (LockTimeout == 0 || wait->since == 0)
		return LockTimeout;
	waited = (clock_moment() - wait->since) / 1000;
	return (int) Max(1, LockTimeout - waited);
}

/*
 * bound returns the lock_timeout that is to be in force while waiting, in
 * milliseconds: what is left of the budget, or the user's own if that is
 * shorter.  Locks that are only held for a moment can be had when it is used up,
 * too.
 *
 * (Not inlined, or compilers warn of its variables beside PG_TRY.)
 */
pg_noinline static int
bound(int user_timeout)
{
	int			left = Max(lock_budget_left(), MOMENT);

	if (user_timeout > 0 && user_timeout < left)
		return user_timeout;
	return left;
}

/*
 * wait_is_over_bound tells whether an error that ended a wait means that the
 * wait exceeded our bound.  The user's own lock_timeout is the user's.
 */
static bool
wait_is_over_bound(int sqlerrcode, int user_timeout, int our_timeout)
{
	return sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE &&
		(user_timeout == 0 || user_timeout > our_timeout);
}

/*
 * wait_for performs a wait, with no other bound than LockTimeout.
 */
static void
wait_for(const Wait *wait)
{
	if (wait->tag)
		lock_take(wait->tag, wait->mode);
	else
		XactLockTableWait(wait->xid, NULL, NULL, XLTW_None);

	/* A timeout that fired as the wait ended must not hit the caller later. */
	CHECK_FOR_INTERRUPTS();
}

/*
 * wait_bounded waits within the budget and tells whether the wait succeeded.
 * Everything else that ends a wait (cancel, statement_timeout, the user's own
 * lock_timeout) is raised as ever.
 */
static bool
wait_bounded(const Wait *wait)
{
	MemoryContext caller_context = CurrentMemoryContext;
	ResourceOwner caller_owner = CurrentResourceOwner;
	volatile bool done = false;
	int			user_timeout = LockTimeout;
	int			user_left = left_to_user(wait);
	int			our_timeout = bound(user_left);

	if (lock_budget_left() == 0)
		return false;
	if (wait->at_most > 0 && wait->at_most < our_timeout)
		our_timeout = wait->at_most;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(caller_context);

	PG_TRY();
	{
		LockTimeout = our_timeout;
		wait_for(wait);
		LockTimeout = user_timeout;

		/* The lock passes to the caller's (sub)transaction. */
		ReleaseCurrentSubTransaction();
		done = true;
	}
	PG_CATCH();
	{
		ErrorData  *error;

		LockTimeout = user_timeout;
		MemoryContextSwitchTo(caller_context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(caller_context);
		CurrentResourceOwner = caller_owner;

		/* Of a deadlock, too, the caller may make the best; it is only busy. */
		if (error->sqlerrcode != ERRCODE_T_R_DEADLOCK_DETECTED &&
			!wait_is_over_bound(error->sqlerrcode, user_left, our_timeout))
			ReThrowError(error);
		FreeErrorData(error);
	}
	PG_END_TRY();

	MemoryContextSwitchTo(caller_context);
	CurrentResourceOwner = caller_owner;
	return done;
}

/*
 * lock_take_bounded takes a lock to the end of the transaction, waiting for at
 * most lease.busy_timeout, and tells whether it was had.
 */
bool
lock_take_bounded(const LOCKTAG *tag, LOCKMODE mode)
{
	Wait		wait = {tag, mode, InvalidTransactionId, 0, 0};

	return lock_try(tag, mode) || wait_bounded(&wait);
}

/*
 * lock_await_transaction waits for the end of a transaction that has changed
 * a row, for at most lease.busy_timeout, and tells whether it came.
 */
bool
lock_await_transaction(TransactionId xid)
{
	Wait		wait = {NULL, NoLock, xid, 0, 0};

	return wait_bounded(&wait);
}

/*
 * lock_await_transaction_again does so for a time in milliseconds at most, for
 * a caller who has waited for transactions since an instant on clock_moment()'s
 * scale, and does something in between.
 */
bool
lock_await_transaction_again(TransactionId xid, int at_most, int64 since)
{
	Wait		wait = {NULL, NoLock, xid, at_most, since};

	return wait_bounded(&wait);
}

/*
 * lock_run_bounded runs some work in which all waits for locks have to stay within
 * the budget, and raises LS006 if they do not.  There is no subtransaction, so
 * the caller's transaction is lost then; COMMIT, for one, would fail anyway.
 */
bool
lock_run_bounded(const char *name, bool (*work) (void *arg), void *arg)
{
	MemoryContext caller_context = CurrentMemoryContext;
	ResourceOwner caller_owner = CurrentResourceOwner;
	int			user_timeout = LockTimeout;
	int			our_timeout = bound(user_timeout);
	bool		result = false;

	PG_TRY();
	{
		LockTimeout = our_timeout;
		result = work(arg);
		CHECK_FOR_INTERRUPTS();
		LockTimeout = user_timeout;
	}
	PG_CATCH();
	{
		LOCKTAG		tag;

		LockTimeout = user_timeout;
		if (!wait_is_over_bound(geterrcode(), user_timeout, our_timeout))
			PG_RE_THROW();
		MemoryContextSwitchTo(caller_context);
		CurrentResourceOwner = caller_owner;
		FlushErrorState();

		/* Whoever is changing the grant is the likeliest to be in the way. */
		lock_tag_fence(&tag, name);
		lock_report_bound(name, lock_holder(&tag, ShareLock));
	}
	PG_END_TRY();
	return result;
}

/*
 * lock_take_at_commit takes a lock inside COMMIT, as part of the work of
 * lock_run_bounded.
 */
void
lock_take_at_commit(const LOCKTAG *tag, LOCKMODE mode, const char *name)
{
	Wait		wait = {tag, mode, InvalidTransactionId, 0, 0};

	if (lock_try(tag, mode))
		return;
	if (lock_budget_left() == 0)
		lock_report_bound(name, lock_holder(tag, mode));
	wait_for(&wait);
}

/*
 * lock_holder returns the pid of a process that holds a conflicting lock, or 0
 * if there is none any more.
 */
int
lock_holder(const LOCKTAG *tag, LOCKMODE mode)
{
	VirtualTransactionId *holder = GetLockConflicts(tag, mode, NULL);

	for (; VirtualTransactionIdIsValid(*holder); holder++)
	{
		PGPROC	   *proc = lock_proc(holder);

		if (proc && proc->pid != 0)
			return proc->pid;
	}
	return 0;
}

/*
 * lock_proc returns the process that runs, or has run, a virtual transaction; NULL
 * if there is none any more.
 */
PGPROC *
lock_proc(const VirtualTransactionId *vxid)
{
	return ProcNumberGetProc(vxid_proc_number(*vxid));
}

/*
 * lock_is_held_by tells whether a process holds a lock.  The lock on its partition
 * of the lock table is held.
 */
bool
lock_is_held_by(PGPROC *proc, const LOCKTAG *tag, LOCKMODE mode)
{
	int			partition = LockHashPartition(LockTagHashCode(tag));

#if PG_VERSION_NUM >= 160000
	dlist_iter	iter;

	dlist_foreach(iter, &proc->myProcLocks[partition])
	{
		PROCLOCK   *held = dlist_container(PROCLOCK, procLink, iter.cur);
#else
	SHM_QUEUE  *queue = &proc->myProcLocks[partition];

	for (PROCLOCK *held = (PROCLOCK *) SHMQueueNext(queue, queue,
													offsetof(PROCLOCK, procLink));
		 held;
		 held = (PROCLOCK *) SHMQueueNext(queue, &held->procLink,
										  offsetof(PROCLOCK, procLink)))
	{
#endif
		if (memcmp(&held->tag.myLock->tag, tag, sizeof(LOCKTAG)) == 0)
			return (held->holdMask & LOCKBIT_ON(mode)) != 0;
	}
	return false;
}

/*
 * lock_top_transaction returns the transaction of which a transaction is a part,
 * or an invalid one if it has ended.
 */
TransactionId
lock_top_transaction(TransactionId xid)
{
	/* What precedes every snapshot of ours has ended, also in pg_subtrans. */
	if (TransactionIdPrecedes(xid, TransactionXmin))
		return InvalidTransactionId;
	return SubTransGetTopmostTransaction(xid);
}

/*
 * lock_transaction_pid returns the pid of the process that runs a transaction,
 * or 0 if it has ended.
 */
int
lock_transaction_pid(TransactionId xid)
{
	TransactionId top = lock_top_transaction(xid);

	return TransactionIdIsValid(top) ? BackendXidGetPid(top) : 0;
}

/*
 * describe_process names the process that is in the way, if it is known (not 0).
 */
static char *
describe_process(int pid)
{
	return pid != 0 ? psprintf("Process %d", pid) : pstrdup("Another transaction");
}

/*
 * lock_take_or_raise takes a lock to the end of the transaction, waiting for at most
 * lease.busy_timeout, and tells whether it had to wait.  If it was not had, LS006 is
 * raised with a message, and what it is that whoever has it does.
 */
bool
lock_take_or_raise(const LOCKTAG *tag, LOCKMODE mode, const char *message,
				   const char *deed)
{
	int			blocker;

	if (lock_try(tag, mode))
		return false;
	blocker = lock_holder(tag, mode);
	if (!lock_take_bounded(tag, mode))
		ereport(ERROR,
				(errcode(ERRCODE_LEASE_BUSY),
				 errmsg_internal("%s", message),
				 errdetail("%s %s in a transaction that has not ended; lease.busy_timeout is %d ms.",
						   describe_process(blocker), deed, lease_busy_timeout),
				 errhint("Repeat the transaction. If it persists, look at that process in pg_stat_activity.")));
	return true;
}

/*
 * lock_report_bound raises LS006: another transaction is deciding about the
 * lease and has not ended within lease.busy_timeout.
 */
void
lock_report_bound(const char *name, int blocker)
{
	ereport(ERROR,
			(errcode(ERRCODE_LEASE_BUSY),
			 errmsg("lease \"%s\" is busy", name),
			 errdetail("%s has an uncommitted change of the lease, or is committing under it; lease.busy_timeout is %d ms.",
					   describe_process(blocker), lease_busy_timeout),
			 errhint("Repeat the transaction. If it persists, look at that process in pg_stat_activity.")));
}
