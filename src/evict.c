/*-------------------------------------------------------------------------
 *
 * evict.c
 *	  Ending sessions that stand in the way of a takeover.
 *
 * An old holder can stand in the way of its successor in two ways.  It can sit on
 * an uncommitted change of the lease (a renewal, say): then nobody can replace
 * the row.  And it can sit on row locks in the protected tables, in a transaction
 * that is guarded by the old epoch: its COMMIT can only fail, but the successor's
 * work would wait for it.  If its client is gone or stopped, that is for ever.
 *
 * The rule.  A session is ended only if it is in that very transaction, and if it
 * waits for its client: then it is between two statements of the transaction, or in
 * the middle of a COPY, and not inside COMMIT.  Its authority is over, which the
 * caller has established.  Sessions of superusers are not ended; the log tells of them.
 *
 * Blockers (evict_blocker) are found by the xid that has replaced the row.  Such a
 * transaction may have other work to commit, so that it is ended only if it has been
 * idle for a moment, and is not merely between two statements; or if there is no time
 * left.  (Of a COPY, or a result that is being sent, it cannot be told how long it
 * waits: it counts when the statement is as old as that.)
 *
 * Guarded transactions are found by two locks, which each takes from the guard on,
 * before it reads the row, and which conflict with nothing: presence, of the lease
 * and the epoch, and then guarded, of the lease.  Who shows the latter, but not
 * presence under the present grant, acts under one that has been superseded; who is
 * not found reads the new epoch.  (Who acts under both is not ended, though it cannot
 * commit.)  Superusers take the locks in another mode, so that
 * they can be told apart in the transaction callback, where no catalog can be read
 * (evict_presence_mode).  A session that executes a statement when its epoch is
 * superseded is not ended then; but it may wait for its client later.  Therefore it
 * is looked for such sessions not only then, but also at each renewal of the present
 * grant.
 *
 * Transactions are named by virtual transaction ids, which are never used
 * twice.  That the same one still runs is checked, and the signal is sent, while a lock
 * is held that it needs to end, so that the signal cannot hit what the session does
 * next.  That is ProcArrayLock, in share mode: no transaction that has an xid, as a
 * blocker has, can end without that lock in exclusive mode, nor can a subtransaction
 * that has one be rolled back.  To end a guarded transaction, or to roll back a guard,
 * takes its locks to be given back; so the locks on their partitions of the lock
 * table are held.  (The session may begin to COMMIT just then.  A guarded
 * transaction would be refused in any case; a renewal may commit, and its client be
 * left without a reply.)
 *
 * What is logged goes to the server's log only: a client that has asked for LOG messages
 * and does not read them would keep a COMMIT from giving back its locks.
 *
 * Locks: ProcArrayLock, share, and after it the locks on one or two partitions of the
 * lock table, share, for a moment.  None of ours is taken here.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/evict.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/transam.h"
#include "evict.h"
#include "lock.h"
#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/backend_status.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

/*
 * How presence is shown: two modes that conflict with no mode that anybody takes,
 * and modes that conflict with them in which we ask who is there.
 */
#define PRESENCE			ShareLock
#define PRESENCE_SUPERUSER	AccessShareLock
#define ASK_FOR_PRESENCE	RowExclusiveLock	/* does not see superusers */
#define ASK_FOR_ALL			AccessExclusiveLock

/* How long a blocker has to have been idle, in milliseconds */
#define PAUSE	50

#if PG_VERSION_NUM < 160000
#define pgstat_get_local_beentry_by_index(i)	pgstat_fetch_stat_local_beentry(i)
#endif

/*
 * evict_presence_mode returns the mode in which this session shows that it is
 * guarded.
 */
LOCKMODE
evict_presence_mode(void)
{
	Oid			role = MyProc->roleId;

	return OidIsValid(role) && !superuser_arg(role) ?
		PRESENCE : PRESENCE_SUPERUSER;
}

/*
 * has_made tells whether the change of a row by a transaction is still there: not
 * if it was made in a subtransaction that has been rolled back.  (Of the innumerable
 * subtransactions of one that has overflowed PostgreSQL's cache, it cannot be told
 * here; signal_blocker has looked just before.)  ProcArrayLock is held.
 */
static bool
has_made(const PGPROC *proc, TransactionId xid)
{
	if (TransactionIdEquals(proc->xid, xid) || proc->subxidStatus.overflowed)
		return true;
	for (int i = 0; i < proc->subxidStatus.count; i++)
	{
		if (TransactionIdEquals(proc->subxids.xids[i], xid))
			return true;
	}
	return false;
}

/*
 * can_be_ended tells whether a process runs a transaction that may be ended.
 * ProcArrayLock is held.
 */
static bool
can_be_ended(PGPROC *proc, const VirtualTransactionId *vxid)
{
	VirtualTransactionId running;
	uint32		waits_for;

	GET_VXID_FROM_PGPROC(running, *proc);
	if (proc->pid == 0 || !VirtualTransactionIdEquals(running, *vxid))
		return false;
	waits_for = *(volatile uint32 *) &proc->wait_event_info;
	return waits_for == WAIT_EVENT_CLIENT_READ ||
		waits_for == WAIT_EVENT_CLIENT_WRITE;
}

/*
 * signal_blocker returns the pid of the session that runs a transaction, if that may be
 * ended and has a change to show, and sends it a signal (0: none); or 0.
 */
static int
signal_blocker(const VirtualTransactionId *vxid, TransactionId change,
			   int signal)
{
	PGPROC	   *proc = lock_proc(vxid);
	int			pid = 0;

	if (!proc || TransactionIdDidAbort(change))
		return 0;
	LWLockAcquire(ProcArrayLock, LW_SHARED);
	if (can_be_ended(proc, vxid) && has_made(proc, change) &&
		kill(proc->pid, signal) == 0)
		pid = proc->pid;
	LWLockRelease(ProcArrayLock);
	return pid;
}

/*
 * has_paused tells whether a process has been idle, or in the statement that it
 * executes, for a moment.  Where that is not tracked (track_activities) it has; if the
 * clock was set back since, we do not know, and it has not.
 *
 * PostgreSQL gives access to a snapshot of all processes only.  A transaction that has
 * looked at pg_stat_activity before sees it anew after this.
 */
static bool
has_paused(int pid)
{
	bool		paused = false;

	pgstat_clear_backend_activity_snapshot();
	for (int i = 1; i <= pgstat_fetch_stat_numbackends(); i++)
	{
		const PgBackendStatus *status =
			&pgstat_get_local_beentry_by_index(i)->backendStatus;

		if (status->st_procpid != pid)
			continue;
		paused = TimestampDifferenceExceeds(status->st_state_start_timestamp,
											GetCurrentTimestamp(), PAUSE);
		break;
	}
	pgstat_clear_backend_activity_snapshot();
	return paused;
}

/*
 * find_blocker finds the transaction that has replaced a version of a row and not
 * committed, if its session may be ended by us at all.
 */
static bool
find_blocker(TransactionId change, VirtualTransactionId *vxid)
{
	TransactionId xid = lock_top_transaction(change);
	PGPROC	   *proc;
	Oid			role;
	bool		running;

	if (!TransactionIdIsValid(xid))
		return false;
	proc = BackendPidGetProc(BackendXidGetPid(xid));
	if (!proc)
		return false;

	/* Under the lock, or what is read might be of two transactions. */
	LWLockAcquire(ProcArrayLock, LW_SHARED);
	running = TransactionIdEquals(proc->xid, xid);
	GET_VXID_FROM_PGPROC(*vxid, *proc);
	role = proc->roleId;
	LWLockRelease(ProcArrayLock);
	return running && OidIsValid(role) && !superuser_arg(role);
}

/*
 * evict_blocker_waits tells whether the session that has replaced a version of a row
 * and not committed waits for its client and may be ended; if there is time to spare
 * who is merely between two statements, only if it has paused.
 */
bool
evict_blocker_waits(const LeaseRow *row, bool patiently)
{
	VirtualTransactionId vxid;
	int			pid = 0;

	if (find_blocker(row->updater, &vxid))
		pid = signal_blocker(&vxid, row->updater, 0);
	return pid != 0 && (!patiently || has_paused(pid));
}

/*
 * evict_blocker ends that session, if it still waits, and returns its pid, or 0.  The
 * caller has just found that the authority of what it has made of the row is over, too.
 */
int
evict_blocker(const LeaseRow *row)
{
	VirtualTransactionId vxid;
	int			pid = 0;

	if (find_blocker(row->updater, &vxid))
		pid = signal_blocker(&vxid, row->updater, SIGTERM);
	if (pid != 0)
		ereport(LOG_SERVER_ONLY,
				(errmsg("ending process %d, which stands in the way of a takeover or revocation of lease \"%s\"",
						pid, row->name),
				 errdetail("It waits for its client, and has an uncommitted change of the lease under which nobody has authority.")));
	return pid;
}

/* A search for those who act under a grant that is over */
typedef struct Search
{
	const char *name;
	LOCKTAG		guarded;		/* held by whoever acts under any grant */
	LOCKTAG		present;		/* presence under the present one */
	bool		has_present;	/* is there one? */
	VirtualTransactionId *found;	/* who acts under any */
} Search;

/*
 * begin_search begins a search for those who act under another grant of a lease than
 * the present one (0: there is none).
 */
static void
begin_search(Search *search, const char *name, int64 present, LOCKMODE mode)
{
	search->name = name;
	lock_tag_guarded(&search->guarded, name);
	lock_tag_presence(&search->present, name, present);
	search->has_present = present != 0;
	search->found = GetLockConflicts(&search->guarded, mode, NULL);
}

/*
 * lock_partitions locks the partitions of the lock table in which are the locks that
 * a search looks at, in the order in which everybody does.
 */
static void
lock_partitions(const Search *search, LWLock **first, LWLock **second)
{
	LWLock	   *guarded =
		LockHashPartitionLock(LockTagHashCode(&search->guarded));
	LWLock	   *present =
		LockHashPartitionLock(LockTagHashCode(&search->present));

	*first = Min(guarded, present);
	*second = Max(guarded, present);
	LWLockAcquire(*first, LW_SHARED);
	if (*second != *first)
		LWLockAcquire(*second, LW_SHARED);
}

/*
 * unlock_partitions gives them back.
 */
static void
unlock_partitions(LWLock *first, LWLock *second)
{
	if (second != first)
		LWLockRelease(second);
	LWLockRelease(first);
}

/*
 * is_superseded tells whether a process acts under a grant that is over, and shows
 * that in a mode.  The partitions are locked.
 */
static bool
is_superseded(const Search *search, PGPROC *proc, LOCKMODE mode)
{
	return lock_is_held_by(proc, &search->guarded, mode) &&
		!(search->has_present &&
		  (lock_is_held_by(proc, &search->present, PRESENCE) ||
		   lock_is_held_by(proc, &search->present, PRESENCE_SUPERUSER)));
}

/*
 * signal_superseded returns the pid of the session that runs a transaction, if it is
 * one that is searched for and waits for its client, and sends it a signal (0: none);
 * or 0.
 *
 * It is called after COMMIT, too, and must not fail.
 */
static int
signal_superseded(const Search *search, const VirtualTransactionId *vxid,
				  LOCKMODE mode, int signal)
{
	PGPROC	   *proc = lock_proc(vxid);
	LWLock	   *first;
	LWLock	   *second;
	int			pid = 0;

	if (!proc)
		return 0;
	LWLockAcquire(ProcArrayLock, LW_SHARED);
	lock_partitions(search, &first, &second);
	if (can_be_ended(proc, vxid) && is_superseded(search, proc, mode) &&
		kill(proc->pid, signal) == 0)
		pid = proc->pid;
	unlock_partitions(first, second);
	LWLockRelease(ProcArrayLock);
	return pid;
}

/*
 * end_superseded ends a session that is searched for.  One that is slow to end is told
 * so again, and again, but the log is not.
 */
static void
end_superseded(const Search *search, const VirtualTransactionId *vxid)
{
	static VirtualTransactionId latest = {0};
	int			pid = signal_superseded(search, vxid, PRESENCE, SIGTERM);
	bool		again = VirtualTransactionIdEquals(latest, *vxid);

	if (pid == 0)
		return;
	latest = *vxid;
	if (!again)
		ereport(LOG_SERVER_ONLY,
				(errmsg("ending process %d, which acts under a superseded or revoked grant of lease \"%s\"",
						pid, search->name),
				 errdetail("It waits for its client in a transaction whose COMMIT would be refused.")));
}

/*
 * tell_of_superuser tells of one that is searched for and that we do not end.
 */
static void
tell_of_superuser(const Search *search, const VirtualTransactionId *vxid)
{
	int			pid = signal_superseded(search, vxid, PRESENCE_SUPERUSER, 0);

	if (pid != 0)
		ereport(LOG_SERVER_ONLY,
				(errmsg("process %d acts under a superseded or revoked grant of lease \"%s\"",
						pid, search->name),
				 errdetail("It waits for its client in a transaction whose COMMIT would be refused. As the session of a superuser it is not ended."),
				 errhint("If it is in the way, call pg_terminate_backend(%d).", pid)));
}

/*
 * end_search ends the sessions that are searched for.
 */
static void
end_search(Search *search)
{
	for (const VirtualTransactionId *vxid = search->found;
		 VirtualTransactionIdIsValid(*vxid); vxid++)
	{
		end_superseded(search, vxid);
		tell_of_superuser(search, vxid);
	}
	pfree(search->found);
}

/*
 * evict_superseded ends the sessions that act under another grant of a lease than
 * the present one, which has just been made; or under any, if it has been revoked and
 * there is none (0).  Of those of superusers it only tells.
 *
 * That has been committed: no error must escape from here.
 */
void
evict_superseded(const char *name, int64 present)
{
	Search		search;

	begin_search(&search, name, present, ASK_FOR_ALL);
	end_search(&search);
}

/*
 * evict_stragglers ends the sessions that still act under another grant of a lease
 * than the present one, which cannot be replaced meanwhile: they did not wait for
 * their clients when theirs was superseded.  Superusers are not asked for.
 */
void
evict_stragglers(const char *name, int64 present)
{
	Search		search;

	begin_search(&search, name, present, ASK_FOR_PRESENCE);
	end_search(&search);
}

/*
 * evict_list_guarded lists the pids of the sessions that would be ended if the
 * present grant of a lease were over.
 */
List *
evict_list_guarded(const char *name)
{
	List	   *pids = NIL;
	Search		search;

	begin_search(&search, name, 0, ASK_FOR_PRESENCE);
	for (const VirtualTransactionId *vxid = search.found;
		 VirtualTransactionIdIsValid(*vxid); vxid++)
	{
		int			pid = signal_superseded(&search, vxid, PRESENCE, 0);

		if (pid != 0)
			pids = lappend_int(pids, pid);
	}
	pfree(search.found);
	return pids;
}
