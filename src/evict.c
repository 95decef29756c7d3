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
 * The rule.  A session is ended only if it is in that very transaction, if the
 * transaction has an xid (or it could hold nobody up), and if it waits for its
 * client: then it is between two statements of the transaction, or in the middle of a
 * COPY, and not inside COMMIT.  Its authority is over, which the caller has
 * established.  Sessions of superusers are not ended.
 *
 * Transactions are named by virtual transaction ids, which are never used
 * twice.  That the same one still runs is checked, and the signal is sent, while
 * ProcArrayLock is held in share mode: no transaction that has an xid can end without
 * that lock in exclusive mode, nor can a subtransaction that has one be rolled back,
 * so that the signal cannot hit what the session does next.  To roll back a guard
 * takes the presence lock to be given back; so the lock on its partition of the lock
 * table is held, too.  (The session may begin to COMMIT just then.  A guarded transaction would be refused
 * in any case; a renewal may commit, and its client be left without a reply.)
 *
 * Blockers (evict_blocker) are found by the xid that has replaced the row.  Guarded
 * transactions are found by the presence lock, which each takes from the guard on,
 * before it reads the row: whoever is not found reads the new epoch.  Those of
 * superusers take it in another mode, so that they can be told apart in the
 * transaction callback, where no catalog can be read (evict_presence_mode).
 *
 * Locks: ProcArrayLock, share, and after it the lock on a partition of the lock
 * table, share, for a moment.  None of ours is taken here.
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
#include "utils/wait_event.h"

/*
 * How presence is shown: two modes that conflict with no mode that anybody takes,
 * and modes that conflict with them in which we ask who is there.
 */
#define PRESENCE			ShareLock
#define PRESENCE_SUPERUSER	AccessShareLock
#define ASK_FOR_PRESENCE	RowExclusiveLock	/* does not see superusers */

/*
 * evict_presence_mode returns the mode in which this session takes the presence
 * lock.
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
 * subtransactions of one that has overflowed PostgreSQL's cache, it cannot be told.)
 * ProcArrayLock is held.
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
	if (proc->pid == 0 || !VirtualTransactionIdEquals(running, *vxid) ||
		!TransactionIdIsValid(proc->xid))
		return false;
	waits_for = *(volatile uint32 *) &proc->wait_event_info;
	return waits_for == WAIT_EVENT_CLIENT_READ ||
		waits_for == WAIT_EVENT_CLIENT_WRITE;
}

/*
 * end_blocker ends the session that runs a transaction, if that is allowed and the
 * transaction has a change to show, and returns its pid, or 0.
 */
static int
end_blocker(const VirtualTransactionId *vxid, TransactionId change)
{
	PGPROC	   *proc = lock_proc(vxid);
	int			pid = 0;

	if (!proc)
		return 0;
	LWLockAcquire(ProcArrayLock, LW_SHARED);
	if (can_be_ended(proc, vxid) && has_made(proc, change) &&
		kill(proc->pid, SIGTERM) == 0)
		pid = proc->pid;
	LWLockRelease(ProcArrayLock);
	return pid;
}

/*
 * end_guarded ends the session that runs a transaction, if that is allowed and the
 * transaction still shows its presence, and returns its pid, or 0.  With only_look it
 * just tells whom it would end.
 *
 * It is called after COMMIT, too, and must not fail.
 */
static int
end_guarded(const VirtualTransactionId *vxid, const LOCKTAG *presence,
			bool only_look)
{
	LWLock	   *partition = LockHashPartitionLock(LockTagHashCode(presence));
	PGPROC	   *proc = lock_proc(vxid);
	int			pid = 0;

	if (!proc)
		return 0;
	LWLockAcquire(ProcArrayLock, LW_SHARED);
	LWLockAcquire(partition, LW_SHARED);
	if (can_be_ended(proc, vxid) &&
		lock_is_held_by(proc, presence, PRESENCE) &&
		(only_look || kill(proc->pid, SIGTERM) == 0))
		pid = proc->pid;
	LWLockRelease(partition);
	LWLockRelease(ProcArrayLock);
	return pid;
}

/*
 * evict_blocker ends the session that has replaced a version of a row and not
 * committed, if that is allowed, and tells its pid; false if it is not ended.  The
 * caller has found that the authority of what it has made of the row is over, too.
 */
bool
evict_blocker(const LeaseRow *row, int *pid)
{
	TransactionId xid = lock_top_transaction(row->updater);
	VirtualTransactionId vxid;
	PGPROC	   *proc;
	Oid			role;
	bool		running;

	*pid = 0;
	if (row->evict == EVICT_NONE || !TransactionIdIsValid(xid))
		return false;

	proc = BackendPidGetProc(BackendXidGetPid(xid));
	if (!proc)
		return false;

	/* Under the lock, or what is read might be of two transactions. */
	LWLockAcquire(ProcArrayLock, LW_SHARED);
	running = proc->xid == xid;
	GET_VXID_FROM_PGPROC(vxid, *proc);
	role = proc->roleId;
	LWLockRelease(ProcArrayLock);
	if (!running || !OidIsValid(role) || superuser_arg(role))
		return false;

	*pid = end_blocker(&vxid, row->updater);
	if (*pid == 0)
		return false;
	ereport(LOG,
			(errmsg("ending process %d, which stands in the way of a takeover of lease \"%s\"",
					*pid, row->name),
			 errdetail("It waits for its client, and has an uncommitted change of the lease that does not refuse the takeover.")));
	return true;
}

/*
 * evict_list_guarded appends to a list those that evict_guarded would end now.
 */
void
evict_list_guarded(const char *name, int64 epoch, StringInfo pids)
{
	LOCKTAG		tag;
	VirtualTransactionId *vxid;

	lock_tag_presence(&tag, name, epoch);
	vxid = GetLockConflicts(&tag, ASK_FOR_PRESENCE, NULL);
	for (; VirtualTransactionIdIsValid(*vxid); vxid++)
	{
		int			pid = end_guarded(vxid, &tag, true);

		if (pid != 0)
			appendStringInfo(pids, "%s%d", pids->len == 0 ? "" : ", ", pid);
	}
}

/*
 * evict_guarded ends the sessions that are in transactions guarded by an epoch
 * that has just been superseded or revoked.
 *
 * That has been committed: no error must escape from here.
 */
void
evict_guarded(const char *name, int64 epoch)
{
	LOCKTAG		tag;
	VirtualTransactionId *vxid;

	lock_tag_presence(&tag, name, epoch);
	vxid = GetLockConflicts(&tag, ASK_FOR_PRESENCE, NULL);
	for (; VirtualTransactionIdIsValid(*vxid); vxid++)
	{
		int			pid = end_guarded(vxid, &tag, false);

		if (pid != 0)
			ereport(LOG,
					(errmsg("ending process %d, which acts under epoch %lld of lease \"%s\"",
							pid, (long long) epoch, name),
					 errdetail("It waits for its client in a transaction whose COMMIT would be refused, as the epoch has been superseded or revoked.")));
	}
}
