/*-------------------------------------------------------------------------
 *
 * guard.c
 *	  Guards of the present transaction, and the transaction callback.
 *
 * A guard is a transaction's declaration "I act under lease L at epoch E".  It
 * is checked when it is made and again inside COMMIT.  Between the two nothing
 * of the holder's stands in the way of a takeover; what the guard leaves
 * behind is an entry in a list and two locks that show it and conflict with
 * nothing.
 *
 * The check at commit, for each guard in the order of names:
 *
 *	1. Read the row.  If the epoch is not current or the grant is over, refuse
 *	   at once: waiting on behalf of a lost cause could deadlock with the work
 *	   of the successor, who waits for our row locks.
 *	2. Take the fence lock in share mode, and keep it to the end of the
 *	   transaction.  Whoever replaces a grant holds it exclusively until that
 *	   change is visible; so after this no later grant can be made until our
 *	   COMMIT has ended.
 *	3. Read the row again, under a snapshot taken after the lock, and decide.
 *
 * A guard that was made in a savepoint is forgotten when that is rolled back,
 * as is whatever was concluded from it: entries carry the SubTransactionId,
 * and everybody who caches "this transaction is guarded" compares the
 * generation, which changes whenever a guard goes away.
 *
 * PREPARE TRANSACTION is refused: the check would be made at PREPARE and the
 * writes land at COMMIT PREPARED, after any number of takeovers.
 *
 * There is one transaction callback in lease, so that the order of things is
 * written in one place.  In its PRE_COMMIT event there is no active snapshot,
 * and the current memory context may be anybody's.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/guard.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "aftermath.h"
#include "authority.h"
#include "catalog.h"
#include "ddl.h"
#include "durability.h"
#include "evict.h"
#include "guard.h"
#include "lock.h"
#include "miscadmin.h"
#include "role.h"
#include "store.h"
#include "utils/inval.h"
#include "utils/memutils.h"

/* One guard of the present transaction. */
typedef struct Guard
{
	struct Guard *next;			/* in the order of names, then epochs */
	SubTransactionId subid;		/* where it was made */
	SubTransactionId released;	/* where this transaction released the grant */
	int64		epoch;
	Oid			user;			/* on whose behalf */
	Oid			relation;		/* lease.lease, as it was */
	char		name[FLEXIBLE_ARRAY_MEMBER];
} Guard;

/* The guards of the present transaction, in TopTransactionContext. */
static Guard *guards = NULL;

/* Changes whenever a guard goes away; never 0. */
static uint64 generation = 1;

/*
 * The lowest nesting level at which this transaction has changed a lease, or
 * 0. Changes at deeper levels go away with theirs or come down to this one.
 */
static int	changed_level = 0;

/* Has a function relied on its guards, so that they are not useless? */
static bool relied_on = false;

/* Has the check at commit been made, or that PREPARE may go on? */
static bool commit_checked = false;
static bool prepare_checked = false;

/*
 * guard_generation returns what a cached conclusion about guards has to be
 * compared with.
 */
uint64
guard_generation(void)
{
	return generation;
}

/*
 * guard_exists_any tells whether this transaction is guarded at all.
 */
bool
guard_exists_any(void)
{
	return guards != NULL;
}

/*
 * guard_exists tells whether this transaction is guarded by a lease.
 */
bool
guard_exists(const char *name)
{
	for (const Guard *guard = guards; guard; guard = guard->next)
	{
		if (strcmp(guard->name, name) == 0)
			return true;
	}
	return false;
}

/*
 * guard_exists_at tells whether this transaction is guarded by a lease at an
 * epoch.
 */
bool
guard_exists_at(const char *name, int64 epoch)
{
	for (const Guard *guard = guards; guard; guard = guard->next)
	{
		if (guard->epoch == epoch && strcmp(guard->name, name) == 0)
			return true;
	}
	return false;
}

/*
 * guard_rely tells the same to a function that acts upon it.
 */
bool
guard_rely(const char *name, int64 epoch)
{
	bool		exists = guard_exists_at(name, epoch);

	relied_on |= exists;
	return exists;
}

/*
 * guard_epoch returns the latest epoch of a lease at which this transaction is
 * guarded, or 0.
 */
int64
guard_epoch(const char *name)
{
	int64		epoch = 0;

	for (const Guard *guard = guards; guard; guard = guard->next)
	{
		if (strcmp(guard->name, name) == 0)
			epoch = guard->epoch;	/* they are in the order of epochs */
	}
	return epoch;
}

/*
 * guard_note_release records that this (sub)transaction has released a grant
 * under which the transaction acts: its work and its release belong together.
 */
void
guard_note_release(const char *name, int64 epoch)
{
	for (Guard *guard = guards; guard; guard = guard->next)
	{
		if (guard->epoch == epoch && strcmp(guard->name, name) == 0)
			guard->released = GetCurrentSubTransactionId();
	}
}

/*
 * raise_prepared raises 0A000.
 */
pg_noreturn static void
raise_prepared(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 guards ?
			 errmsg("cannot PREPARE a transaction that is guarded by lease \"%s\"",
					guards->name) :
			 errmsg("cannot PREPARE a transaction that has changed a lease"),
			 errdetail("Its COMMIT PREPARED could come after any number of takeovers."),
			 errhint("Use COMMIT.")));
}

/*
 * guard_note_change records that this (sub)transaction has changed a lease.
 */
void
guard_note_change(void)
{
	int			level = GetCurrentTransactionNestLevel();

	/* Another extension's callback may call us after ours has run. */
	if (prepare_checked)
		raise_prepared();
	if (changed_level == 0 || level < changed_level)
		changed_level = level;
}

/*
 * format_time writes an instant for a message.
 */
static char *
format_time(TimestampTz instant)
{
	return pstrdup(timestamptz_to_str(instant));
}

/*
 * describe_grant says in a sentence or two what the latest grant is.
 */
static char *
describe_grant(const LeaseRow *row)
{
	switch (row->state)
	{
		case GRANT_NONE:
			return pstrdup("The lease has never been granted.");
		case GRANT_MADE:
			return psprintf("The current epoch is %lld, granted to \"%s\" at %s until %s.",
							(long long) row->epoch, row->holder,
							format_time(row->acquired.wall),
							format_time(row->deadline.wall));
		case GRANT_RELEASED:
			return psprintf("The latest epoch is %lld, granted to \"%s\" at %s and released.",
							(long long) row->epoch, row->holder,
							format_time(row->acquired.wall));
		case GRANT_REVOKED:
			return psprintf("The latest epoch is %lld, granted to \"%s\" at %s and revoked%s%s.",
							(long long) row->epoch, row->holder,
							format_time(row->acquired.wall),
							row->reason ? ": " : "",
							row->reason ? row->reason : "");
	}
	return pstrdup("");
}

/*
 * guard_describe_lease says in a sentence or two how a lease stands, for the
 * error of somebody who has no token, and tells whether it exists.  Who may
 * not act under it is not told more.
 */
char *
guard_describe_lease(const char *name, bool *exists)
{
	Reading		reading;

	*exists = store_read(name, &reading);
	if (!*exists)
		return psprintf("Lease \"%s\" does not exist.", name);
	if (!role_is_member(GetUserId(), reading.row.role))
		return psprintf("You may not act under lease \"%s\".", name);
	return describe_grant(&reading.row);
}

/*
 * raise_refusal raises the error for a guard whose grant does not stand, or
 * for an epoch that was presented to make one.
 */
pg_noreturn static void
raise_refusal(Standing standing, const LeaseRow *row, int64 epoch,
			  bool presented, const Clock *clock)
{
	const char *claim = psprintf(presented ? "Epoch %lld was presented." :
								 "This transaction acts under epoch %lld.",
								 (long long) epoch);
	const char *hint = "Stop all work that was begun under this epoch; its writes are refused. To lead again, call lease.acquire(), which gives a new epoch.";
	long long	expected = (long long) epoch;

	switch (standing)
	{
		case STANDING_LIVE:
			break;
		case STANDING_SUPERSEDED:
			ereport(ERROR,
					(errcode(ERRCODE_LEASE_SUPERSEDED),
					 errmsg("epoch %lld of lease \"%s\" has been superseded",
							expected, row->name),
					 errdetail("%s %s", claim, describe_grant(row)),
					 errhint("%s", hint)));
			break;
		case STANDING_EXPIRED:
			ereport(ERROR,
					(errcode(ERRCODE_LEASE_EXPIRED),
					 errmsg("the grant of lease \"%s\" under epoch %lld has expired",
							row->name, expected),
					 errdetail("Epoch %lld was granted to \"%s\" at %s and expired at %s; this transaction began at %s, and it is %s now.",
							   expected, row->holder,
							   format_time(row->acquired.wall),
							   format_time(row->deadline.wall),
							   format_time(clock->wall_tx),
							   format_time(clock->wall_now)),
					 errhint("Renew at least every third of the ttl, and keep transactions shorter than that. %s",
							 hint)));
			break;
		case STANDING_RELEASED:
		case STANDING_REVOKED:
			ereport(ERROR,
					(errcode(ERRCODE_LEASE_NOT_HELD),
					 errmsg("epoch %lld of lease \"%s\" is not held any more",
							expected, row->name),
					 errdetail("%s %s", claim, describe_grant(row)),
					 errhint("%s", hint)));
			break;
		case STANDING_UNKNOWN:
			ereport(ERROR,
					(errcode(ERRCODE_LEASE_NOT_HELD),
					 errmsg("epoch %lld of lease \"%s\" was never granted",
							expected, row->name),
					 errdetail("%s %s", claim, describe_grant(row)),
					 errhint("Use the epoch that lease.acquire() returned.")));
			break;
	}
	elog(ERROR, "unexpected standing of lease \"%s\": %d", row->name,
		 (int) standing);
}

/*
 * guard_raise_unknown raises LS005.
 */
void
guard_raise_unknown(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_LEASE_UNKNOWN),
			 errmsg("lease \"%s\" does not exist", name),
			 errhint("Check the name in lease.status, or create the lease with lease.create().")));
}

/*
 * decide_commit decides about a guard inside COMMIT, or raises the refusal.
 * True means that the grant is over and only late_commit admits it.
 */
static bool
decide_commit(const Guard *guard, bool admit_late)
{
	Reading		reading;
	bool		released = guard->released != InvalidSubTransactionId;
	Standing	standing;

	/* With the lock comes the news that it is another table by now. */
	if (catalog_lock_lease(AccessShareLock) != guard->relation ||
		!store_read(guard->name, &reading))
		guard_raise_unknown(guard->name);
	catalog_unlock_lease(AccessShareLock);

	/* A transaction that had the lock already has not heard of roles, either. */
	AcceptInvalidationMessages();
	role_check_member(guard->user, reading.row.role, guard->name);
	reading.authority.late_commit &= admit_late;
	standing = authority_commit(&reading.authority, guard->epoch, released,
								&reading.at);
	if (standing != STANDING_LIVE)
		raise_refusal(standing, &reading.row, guard->epoch, false,
					  &reading.clock);
	return reading.at.now >= reading.authority.deadline ||
		reading.at.tx >= reading.authority.deadline;
}

/*
 * commit_context adds to an error that it is COMMIT that was refused.
 */
static void
commit_context(void *arg)
{
	const Guard *guard = (const Guard *) arg;

	errcontext("COMMIT of a transaction guarded by lease \"%s\" at epoch %lld",
			   guard->name, (long long) guard->epoch);
}

/*
 * check_guard makes the second check of a guard; see the head of the file.
 */
static bool
check_guard(void *arg)
{
	const Guard *guard = (const Guard *) arg;
	LOCKTAG		tag;
	bool		late = decide_commit(guard, true);

	lock_tag_fence(&tag, guard->name);

	/*
	 * Never wait on behalf of a grant that is over, either: if somebody is
	 * taking it over, refuse, unless it has been renewed meanwhile.
	 */
	if (late && !lock_try(&tag, ShareLock))
		late = decide_commit(guard, false);
	if (!late)
		lock_take_at_commit(&tag, ShareLock, guard->name);
	(void) decide_commit(guard, true);
	return true;
}

/*
 * check_at_commit makes the second check of a guard inside COMMIT.
 *
 * statement_timeout does not run there, so that every wait, also for somebody
 * who has locked our table, is bounded by lease.busy_timeout.
 */
static void
check_at_commit(Guard *guard)
{
	ErrorContextCallback context;

	context.callback = commit_context;
	context.arg = guard;
	context.previous = error_context_stack;
	error_context_stack = &context;

	(void) lock_run_bounded(guard->name, check_guard, guard);

	error_context_stack = context.previous;
}

/*
 * add_guard puts a guard into the list, unless it is there.
 */
static Guard *
add_guard(const char *name, int64 epoch, Oid user)
{
	Guard	  **link = &guards;
	Guard	   *guard;
	Catalog		relations;

	catalog_get(&relations);
	for (; *link; link = &(*link)->next)
	{
		int			order = strcmp((*link)->name, name);

		if (order == 0 && (*link)->epoch == epoch && (*link)->user == user)
			return *link;
		if (order > 0 || (order == 0 && (*link)->epoch > epoch))
			break;
	}

	guard = MemoryContextAlloc(TopTransactionContext,
							   offsetof(Guard, name) + strlen(name) + 1);
	guard->subid = GetCurrentSubTransactionId();
	guard->released = InvalidSubTransactionId;
	guard->epoch = epoch;
	guard->user = user;
	guard->relation = relations.lease;
	strcpy(guard->name, name);
	guard->next = *link;
	*link = guard;
	return guard;
}

/*
 * guard_declare makes this transaction act under an epoch of a lease, on
 * behalf of a user, or raises an error.
 */
void
guard_declare(const char *name, int64 epoch, Oid user)
{
	Reading		reading;
	Standing	standing;
	LOCKTAG		tag;
	Guard	   *guard;

	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot guard a transaction during recovery"),
				 errhint("This server is a standby; connect to the primary, for example with target_session_attrs=read-write.")));

	/*
	 * Before the read, so that whoever supersedes the epoch either is seen or
	 * sees; and in this order (evict.c).
	 */
	lock_tag_presence(&tag, name, epoch);
	(void) lock_try(&tag, evict_presence_mode());	/* conflicts with nothing */
	lock_tag_guarded(&tag, name);
	(void) lock_try(&tag, evict_presence_mode());	/* nor does this */

	if (!store_read(name, &reading))
		guard_raise_unknown(name);
	role_check_member(user, reading.row.role, name);
	standing = authority_standing(&reading.authority, epoch, &reading.at);
	if (standing != STANDING_LIVE)
		raise_refusal(standing, &reading.row, epoch, true, &reading.clock);

	/*
	 * A snapshot that is older than the grant does not show what the
	 * predecessor committed; work on it would be work under a false premise.
	 */
	if (!store_snapshot_covers(name, epoch))
		ereport(ERROR,
				(errcode(ERRCODE_LEASE_EXPIRED),
				 IsolationUsesXactSnapshot() ?
				 errmsg("transaction is too old to act under epoch %lld of lease \"%s\"",
						(long long) epoch, name) :
				 errmsg("statement is too old to act under epoch %lld of lease \"%s\"",
						(long long) epoch, name),
				 errdetail("Its snapshot was taken before the grant was committed, so it may not see what was committed under the previous epoch. %s",
						   describe_grant(&reading.row)),
				 IsolationUsesXactSnapshot() ?
				 errhint("Begin a new transaction, and call lease.guard() in it first; under REPEATABLE READ and SERIALIZABLE, take over in a transaction of its own.") :
				 errhint("Acquire and guard in separate statements.")));

	guard = add_guard(name, epoch, user);

	/* Another extension's callback may still write after ours has run. */
	if (prepare_checked)
		raise_prepared();
	if (commit_checked)
	{
		lock_start_budget();
		check_at_commit(guard);
	}
}

/*
 * warn_useless warns when a guard stands alone: a statement of its own outside
 * a transaction block, so that it is over before anything was written.
 *
 * To be called before COMMIT takes locks: the client may not read the message.
 */
static void
warn_useless(void)
{
	if (!relied_on && !IsTransactionBlock() &&
		!TransactionIdIsValid(GetTopTransactionIdIfAny()))
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("guard of lease \"%s\" guarded nothing", guards->name),
				 errdetail("The transaction ended with this statement, and the guard with it."),
				 errhint("Call lease.guard() inside a transaction block: BEGIN; SELECT lease.guard(...); ...; COMMIT.")));
}

/*
 * pre_commit makes the second check of every guard.
 */
static void
pre_commit(void)
{
	durability_pre_commit();
	if (guards)
	{
		MemoryContext context = AllocSetContextCreate(TopTransactionContext,
													  "lease commit",
													  ALLOCSET_SMALL_SIZES);
		MemoryContext caller_context = MemoryContextSwitchTo(context);

		warn_useless();
		lock_start_budget();
		for (Guard *guard = guards; guard; guard = guard->next)
			check_at_commit(guard);

		MemoryContextSwitchTo(caller_context);
		MemoryContextDelete(context);
	}
	commit_checked = true;
}

/*
 * refuse_prepare raises an error if this transaction must not be prepared.
 */
static void
refuse_prepare(void)
{
	if (guards || changed_level > 0)
		raise_prepared();
	prepare_checked = true;
}

/*
 * forget_transaction resets everything at the end of a transaction.  The list
 * itself goes with TopTransactionContext.
 */
static void
forget_transaction(void)
{
	if (guards)
		generation++;
	guards = NULL;
	changed_level = 0;
	relied_on = false;
	commit_checked = false;
	prepare_checked = false;
	durability_forget();
	aftermath_forget();
	ddl_end_transaction();
}

/*
 * transaction_callback is the one transaction callback of lease.
 */
static void
transaction_callback(XactEvent event, void *arg pg_attribute_unused())
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			pre_commit();
			break;
		case XACT_EVENT_PRE_PREPARE:
			refuse_prepare();
			break;
		case XACT_EVENT_COMMIT:
			aftermath_commit();
			forget_transaction();
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			forget_transaction();
			break;
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
			/* Our functions are PARALLEL UNSAFE: workers have no guards. */
			break;
	}
}

/*
 * subtransaction_callback hands the guards of a subtransaction to its parent,
 * or forgets them.
 */
static void
subtransaction_callback(SubXactEvent event, SubTransactionId subid,
						SubTransactionId parent_subid,
						void *arg pg_attribute_unused())
{
	int			level = GetCurrentTransactionNestLevel();
	Guard	  **link = &guards;

	switch (event)
	{
		case SUBXACT_EVENT_START_SUB:
		case SUBXACT_EVENT_PRE_COMMIT_SUB:
			break;

		case SUBXACT_EVENT_COMMIT_SUB:
			for (Guard *guard = guards; guard; guard = guard->next)
			{
				if (guard->subid == subid)
					guard->subid = parent_subid;
				if (guard->released == subid)
					guard->released = parent_subid;
			}
			if (changed_level == level)
				changed_level = level - 1;
			aftermath_end_subtransaction(subid, parent_subid, true);
			ddl_end_subtransaction(subid, parent_subid, true);
			break;

		case SUBXACT_EVENT_ABORT_SUB:
			while (*link)
			{
				if ((*link)->subid == subid)
				{
					*link = (*link)->next;
					generation++;
					continue;
				}
				if ((*link)->released == subid)
					(*link)->released = InvalidSubTransactionId;
				link = &(*link)->next;
			}
			if (changed_level >= level)
				changed_level = 0;
			aftermath_end_subtransaction(subid, parent_subid, false);
			ddl_end_subtransaction(subid, parent_subid, false);
			break;
	}
}

/*
 * guard_init registers the callbacks.
 */
void
guard_init(void)
{
	RegisterXactCallback(transaction_callback, NULL);
	RegisterSubXactCallback(subtransaction_callback, NULL);
}
