/*-------------------------------------------------------------------------
 *
 * health.c
 *	  Progress of holders and heartbeats of peers.
 *
 * That a lease is held says nothing about whether its holder works: whatever
 * renews it may be a thread that has outlived the rest.  So a holder reports its
 * progress apart from that, and a scheduler instance, which may hold nothing at
 * all, that it is there.  Both are signs, written down with the moment at which they
 * came.  Nothing in lease decides by them; they are for whoever looks.
 *
 * A report belongs to one grant.  One that comes under the latest epoch after the
 * grant is over is recorded, too, as that: somebody works without holding.  One
 * under another epoch is not.  Since epochs never come back, a report that was left
 * behind by an earlier grant, or by a lease of the same name that was dropped, counts
 * for nothing; it is removed by the first to report later, if nobody is changing it.
 *
 * Ages are measured as leases are: on the boot clock of the host where that is the
 * clock by which the sign was stored, else by its image on the wall clock.  An age
 * is never negative.
 *
 * Rows are read and written as those of lease.lease are, and for the same reasons
 * (see store.c): every version is judged under the latest snapshot and updated in
 * place, so that a report from within a REPEATABLE READ or SERIALIZABLE transaction
 * neither fails with 40001 nor makes others fail.
 *
 * Locks: RowExclusive on the table, to the end of the transaction; PostgreSQL's lock
 * on the tuple while it is written.  Whoever inserts a row holds the lock on page 0
 * from looking whether there is one until it is there; an unfinished transaction that
 * has inserted the same is then waited for, with a bound, without that lock.  The
 * wait is for another report of the same grant, or heartbeat of the same peer, never
 * for an earlier holder.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/health.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/multixact.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "args.h"
#include "authority.h"
#include "catalog.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "clock.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "funcapi.h"
#include "guard.h"
#include "health.h"
#include "lock.h"
#include "miscadmin.h"
#include "role.h"
#include "status.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "store.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

SQL_CALLABLE(lease_progress);
SQL_CALLABLE(lease_beat);
SQL_CALLABLE(lease_retire);
SQL_CALLABLE(lease_read_grants);
SQL_CALLABLE(lease_read_reports);
SQL_CALLABLE(lease_read_heartbeats);

/* After how long without a heartbeat a peer is stale, if it does not say */
#define DEFAULT_STALE_AFTER	(INT64CONST(30) * USECS_PER_SEC)

#if PG_VERSION_NUM >= 180000
#define try_lock_tuple(rel, tid, mode)	ConditionalLockTuple(rel, tid, mode, false)
#else
#define try_lock_tuple(rel, tid, mode)	ConditionalLockTuple(rel, tid, mode)
#endif

/*
 * Columns of lease.report and lease.heartbeat, as sql/health.sql creates them.
 * The second tells what the sign belongs to: a grant, or a role.  The others are the
 * same in both.
 */
enum
{
	Anum_sign_name = 1,
	Anum_sign_owner,
	Anum_sign_at_boot,
	Anum_sign_at,
	Anum_sign_boot,
	Anum_sign_within,
	Anum_sign_count,
	Anum_sign_detail,
	Anum_sign_live,				/* of a report only */
	Natts_sign = Anum_sign_live
};

static const Oid column_types[Natts_sign] = {
	[Anum_sign_name - 1] = TEXTOID,
	[Anum_sign_owner - 1] = INT8OID,	/* of a report */
	[Anum_sign_at_boot - 1] = INT8OID,
	[Anum_sign_at - 1] = TIMESTAMPTZOID,
	[Anum_sign_boot - 1] = TEXTOID,
	[Anum_sign_within - 1] = INT8OID,
	[Anum_sign_count - 1] = INT8OID,
	[Anum_sign_detail - 1] = JSONBOID,
	[Anum_sign_live - 1] = BOOLOID
};

/* The two kinds of sign */
typedef struct SignKind
{
	const char *table;			/* name of the table in our schema */
	int			natts;
	Oid			owner_type;		/* type of the second column */
} SignKind;

static const SignKind report_kind = {"report", Anum_sign_live, INT8OID};
static const SignKind heartbeat_kind = {"heartbeat", Anum_sign_detail, REGROLEOID};

/*
 * A sign: the last that came under a name, and the count of all.
 */
typedef struct Sign
{
	char	   *name;			/* of the lease or the peer */
	int64		epoch;			/* of a report */
	Oid			role;			/* of a heartbeat */
	StoredInstant at;			/* when it came */
	char	   *boot;			/* by which boot clock, or NULL */
	int64		within;			/* when the next is due, in microseconds */
	int64		count;
	Datum		detail;			/* jsonb; 0 if NULL */
	bool		live;			/* of a report: was the grant live? */

	/* About the version, not part of it. */
	ItemPointerData tid;
	TransactionId updater;		/* another transaction that has replaced it
								 * and is still running, or invalid */
} Sign;

/*
 * A scan of the signs under a name, or of all.
 */
typedef struct SignScan
{
	const SignKind *kind;
	Relation	index;
	IndexScanDesc scan;
	Snapshot	snapshot;
	TupleTableSlot *slot;
	TransactionId writer;		/* a running transaction that has made the
								 * version that was read last, and which
								 * therefore is not to be seen yet */
	MemoryContext row_context;	/* where a sign lives until the next is read;
								 * or NULL: for as long as the scan */
} SignScan;

/*
 * What a search for one sign finds besides it.
 */
typedef struct SignSearch
{
	TransactionId inserter;		/* a running transaction that has inserted
								 * that very sign, or invalid */
	bool		older;			/* are there reports under earlier epochs? */
} SignSearch;

/*
 * open_signs opens and locks a table, if it is the one that this library was
 * built for.
 */
static Relation
open_signs(const SignKind *kind, LOCKMODE mode)
{
	Relation	rel = table_open(catalog_lock_member(kind->table, mode), NoLock);
	TupleDesc	desc = RelationGetDescr(rel);
	bool		matches = desc->natts == kind->natts;

	for (int i = 0; matches && i < kind->natts; i++)
		matches = TupleDescAttr(desc, i)->atttypid ==
			(i == Anum_sign_owner - 1 ? kind->owner_type : column_types[i]);
	if (!matches)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("extension \"lease\" and its library are of different versions"),
				 errhint("Run ALTER EXTENSION lease UPDATE, and reconnect.")));
	return rel;
}

/*
 * slot_tuple returns the tuple in a buffer slot, still in its page.
 */
static HeapTuple
slot_tuple(TupleTableSlot *slot)
{
	Assert(TTS_IS_BUFFERTUPLE(slot));
	return ((BufferHeapTupleTableSlot *) slot)->base.tuple;
}

/*
 * slot_buffer returns the buffer of that page.
 */
static Buffer
slot_buffer(TupleTableSlot *slot)
{
	return ((BufferHeapTupleTableSlot *) slot)->buffer;
}

/*
 * running_updater returns the running transaction, other than this one, that has
 * replaced or deleted a version.  The buffer is locked.
 */
static TransactionId
running_updater(HeapTupleHeader header)
{
	TransactionId xmax;

	if ((header->t_infomask & HEAP_XMAX_INVALID) ||
		HEAP_XMAX_IS_LOCKED_ONLY(header->t_infomask))
		return InvalidTransactionId;
	xmax = HeapTupleHeaderGetUpdateXid(header);
	if (TransactionIdIsCurrentTransactionId(xmax) ||
		!TransactionIdIsInProgress(xmax))
		return InvalidTransactionId;
	return xmax;
}

/*
 * is_touched tells whether a running transaction, other than this one, has locked,
 * replaced or deleted a version, so that a delete might have to wait.  The buffer
 * is locked.
 */
static bool
is_touched(HeapTupleHeader header)
{
	TransactionId xmax = HeapTupleHeaderGetRawXmax(header);

	if (header->t_infomask & HEAP_XMAX_INVALID)
		return false;
	if (header->t_infomask & HEAP_XMAX_IS_MULTI)
		return MultiXactIdIsRunning(xmax,
									HEAP_XMAX_IS_LOCKED_ONLY(header->t_infomask));
	return !TransactionIdIsCurrentTransactionId(xmax) &&
		TransactionIdIsInProgress(xmax);
}

/*
 * scan_begin begins a scan of the signs under a name, or of all if that is NULL.
 */
static void
scan_begin(SignScan *scan, const SignKind *kind, Relation rel, const char *name)
{
	ScanKeyData key;
	int			keys = name ? 1 : 0;

	scan->kind = kind;
	scan->row_context = NULL;
	scan->snapshot = RegisterSnapshot(GetLatestSnapshot());
	scan->index = index_open(primary_key_index(rel), AccessShareLock);
	scan->slot = table_slot_create(rel, NULL);
	if (name)
	{
		/* The key column is COLLATE "C": another collation would miss rows. */
		ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_TEXTEQ,
					CStringGetTextDatum(name));
		key.sk_collation = C_COLLATION_OID;
	}

	/* Every version is wanted: an MVCC scan would take predicate locks. */
#if PG_VERSION_NUM >= 180000
	scan->scan = index_beginscan(rel, scan->index, SnapshotAny, NULL, keys, 0);
#else
	scan->scan = index_beginscan(rel, scan->index, SnapshotAny, keys, 0);
#endif
	index_rescan(scan->scan, name ? &key : NULL, keys, NULL, 0);
}

/*
 * scan_end ends it.
 */
static void
scan_end(SignScan *scan)
{
	index_endscan(scan->scan);
	ExecDropSingleTupleTableSlot(scan->slot);
	index_close(scan->index, AccessShareLock);
	UnregisterSnapshot(scan->snapshot);
}

/*
 * is_shown tells whether the snapshot of a scan shows the version in its slot, and
 * by whom it is being replaced; or, if it does not, by whom it is being made.
 */
static bool
is_shown(SignScan *scan, Sign *sign)
{
	HeapTuple	tuple = slot_tuple(scan->slot);
	HeapTupleHeader header = tuple->t_data;
	Buffer		buffer = slot_buffer(scan->slot);
	bool		shown;

	scan->writer = InvalidTransactionId;
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	shown = HeapTupleSatisfiesVisibility(tuple, scan->snapshot, buffer);
	if (shown)
	{
		sign->tid = tuple->t_self;
		sign->updater = running_updater(header);
	}
	else if (!HeapTupleHeaderXminFrozen(header) &&
			 !HeapTupleHeaderXminInvalid(header))
	{
		TransactionId xmin = HeapTupleHeaderGetRawXmin(header);

		/* It may have ended since the snapshot: then look again. */
		if (!TransactionIdIsCurrentTransactionId(xmin) &&
			XidInMVCCSnapshot(xmin, scan->snapshot))
			scan->writer = xmin;
	}
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	return shown;
}

/*
 * read_version copies the version in the slot of a scan into a sign.
 */
static void
read_version(const SignScan *scan, Sign *sign)
{
	HeapTuple	copy = heap_copytuple(slot_tuple(scan->slot));
	Datum		values[Natts_sign];
	bool		nulls[Natts_sign];

	/* The pin kept the tuple's data; the copy outlives the pin. */
	heap_deform_tuple(copy, scan->slot->tts_tupleDescriptor, values, nulls);

#define VALUE(column)	(values[Anum_sign_ ## column - 1])
#define HAS(column)		(!nulls[Anum_sign_ ## column - 1])

	sign->name = TextDatumGetCString(VALUE(name));
	sign->epoch = 0;
	sign->role = InvalidOid;
	sign->live = false;
	if (scan->kind == &report_kind)
	{
		sign->epoch = DatumGetInt64(VALUE(owner));
		sign->live = DatumGetBool(VALUE(live));
	}
	else
		sign->role = DatumGetObjectId(VALUE(owner));
	sign->at.boot = DatumGetInt64(VALUE(at_boot));
	sign->at.wall = DatumGetTimestampTz(VALUE(at));
	sign->boot = HAS(boot) ? TextDatumGetCString(VALUE(boot)) : NULL;
	sign->within = DatumGetInt64(VALUE(within));
	sign->count = DatumGetInt64(VALUE(count));
	sign->detail = HAS(detail) ? VALUE(detail) : (Datum) 0;

#undef VALUE
#undef HAS
}

/*
 * scan_version reads the next version, of which those that are neither shown nor
 * being made are of no interest.
 */
static bool
scan_version(SignScan *scan, Sign *sign, bool *shown)
{
	while (index_getnext_slot(scan->scan, ForwardScanDirection, scan->slot))
	{
		CHECK_FOR_INTERRUPTS();
		*shown = is_shown(scan, sign);
		if (*shown || TransactionIdIsValid(scan->writer))
		{
			MemoryContext scan_context = CurrentMemoryContext;

			/* What the scan itself allocates has to outlive the row. */
			if (scan->row_context)
			{
				MemoryContextReset(scan->row_context);
				MemoryContextSwitchTo(scan->row_context);
			}
			read_version(scan, sign);
			MemoryContextSwitchTo(scan_context);
			return true;
		}
	}
	return false;
}

/*
 * scan_next reads the next sign that the latest snapshot shows.
 */
static bool
scan_next(SignScan *scan, Sign *sign)
{
	bool		shown;

	while (scan_version(scan, sign, &shown))
	{
		if (shown)
			return true;
	}
	return false;
}

/*
 * form_tuple makes a tuple of a sign.
 */
static HeapTuple
form_tuple(const SignKind *kind, TupleDesc desc, const Sign *sign)
{
	Datum		values[Natts_sign] = {0};
	bool		nulls[Natts_sign] = {false};

#define SET(column, value)	(values[Anum_sign_ ## column - 1] = (value))
#define SET_NULL(column)	(nulls[Anum_sign_ ## column - 1] = true)

	SET(name, CStringGetTextDatum(sign->name));
	if (kind == &report_kind)
	{
		SET(owner, Int64GetDatum(sign->epoch));
		SET(live, BoolGetDatum(sign->live));
	}
	else
		SET(owner, ObjectIdGetDatum(sign->role));
	SET(at_boot, Int64GetDatum(sign->at.boot));
	SET(at, TimestampTzGetDatum(sign->at.wall));
	if (sign->boot)
		SET(boot, CStringGetTextDatum(sign->boot));
	else
		SET_NULL(boot);
	SET(within, Int64GetDatum(sign->within));
	SET(count, Int64GetDatum(sign->count));
	if (sign->detail != (Datum) 0)
		SET(detail, sign->detail);
	else
		SET_NULL(detail);

#undef SET
#undef SET_NULL

	return heap_form_tuple(desc, values, nulls);
}

/*
 * find_sign finds the sign under a name (and, of a report, an epoch).
 */
static bool
find_sign(const SignKind *kind, Relation rel, const char *name, int64 epoch,
		  Sign *sign, SignSearch *search)
{
	SignScan	scan;
	bool		found = false;
	bool		shown;

	search->inserter = InvalidTransactionId;
	search->older = false;
	scan_begin(&scan, kind, rel, name);

	/* In the order of the index: reports under earlier epochs come first. */
	while (!found && scan_version(&scan, sign, &shown))
	{
		if (sign->epoch != epoch)
			search->older = search->older || (shown && sign->epoch < epoch);
		else if (shown)
			found = true;
		else
			search->inserter = scan.writer;
	}
	scan_end(&scan);
	return found;
}

/*
 * insert_index_entries makes index entries for a new version.  Most updates are
 * HOT and need none.
 */
static void
insert_index_entries(Relation rel, TupleTableSlot *slot)
{
	EState	   *estate = CreateExecutorState();
	ResultRelInfo *info = makeNode(ResultRelInfo);

	InitResultRelInfo(info, rel, 0, NULL, 0);
	ExecOpenIndices(info, false);
#if PG_VERSION_NUM >= 160000
	(void) ExecInsertIndexTuples(info, slot, estate, false, false, NULL, NIL,
								 false);
#else
	(void) ExecInsertIndexTuples(info, slot, estate, false, false, NULL, NIL);
#endif
	ExecCloseIndices(info);
	FreeExecutorState(estate);
}

/*
 * insert_sign inserts the first sign of its kind, or returns false if somebody was
 * faster, and then who that was if it is still running.
 */
static bool
insert_sign(const SignKind *kind, Relation rel, const Sign *sign,
			TransactionId *inserter)
{
	TupleTableSlot *slot;
	Sign		other;
	SignSearch	search;
	bool		found;

	LockPage(rel, 0, ExclusiveLock);
	found = find_sign(kind, rel, sign->name, sign->epoch, &other, &search);
	*inserter = search.inserter;
	if (found || TransactionIdIsValid(search.inserter))
	{
		UnlockPage(rel, 0, ExclusiveLock);
		return false;
	}
	slot = MakeSingleTupleTableSlot(RelationGetDescr(rel), &TTSOpsHeapTuple);
	ExecStoreHeapTuple(form_tuple(kind, RelationGetDescr(rel), sign), slot, true);
	table_tuple_insert(rel, slot, GetCurrentCommandId(true), 0, NULL);
	insert_index_entries(rel, slot);
	ExecDropSingleTupleTableSlot(slot);
	UnlockPage(rel, 0, ExclusiveLock);
	CommandCounterIncrement();
	return true;
}

/*
 * claim_version makes sure that no running transaction has replaced a version, and
 * that none does until the lock on the tuple is given back; or returns false.
 * With "dont_wait" also none that only locks it, so that a delete waits for nobody.
 */
static bool
claim_version(Relation rel, ItemPointer tid, bool dont_wait)
{
	TupleTableSlot *slot;
	bool		free;

	if (!dont_wait)
		LockTuple(rel, tid, ExclusiveLock);
	else if (!try_lock_tuple(rel, tid, ExclusiveLock))
		return false;
	slot = table_slot_create(rel, NULL);
	free = table_tuple_fetch_row_version(rel, tid, SnapshotAny, slot);
	if (free)
	{
		HeapTupleHeader header = slot_tuple(slot)->t_data;

		LockBuffer(slot_buffer(slot), BUFFER_LOCK_SHARE);
		free = dont_wait ? !is_touched(header) :
			!TransactionIdIsValid(running_updater(header));
		LockBuffer(slot_buffer(slot), BUFFER_LOCK_UNLOCK);
	}
	ExecDropSingleTupleTableSlot(slot);
	if (!free)
		UnlockTuple(rel, tid, ExclusiveLock);
	return free;
}

/*
 * update_sign replaces the version that was read into a sign, or returns false if
 * somebody was faster.
 */
static bool
update_sign(const SignKind *kind, Relation rel, Sign *sign)
{
	TupleTableSlot *slot;
	TM_Result	result;
	TM_FailureData failure;
	LockTupleMode lockmode;
	TU_UpdateIndexes update_indexes;
	ItemPointerData tid = sign->tid;
	const bool	wait = true;

	if (!claim_version(rel, &tid, false))
		return false;
	slot = MakeSingleTupleTableSlot(RelationGetDescr(rel), &TTSOpsHeapTuple);
	ExecStoreHeapTuple(form_tuple(kind, RelationGetDescr(rel), sign), slot, true);
	result = table_tuple_update(rel, &tid, slot, GetCurrentCommandId(true),
								InvalidSnapshot, InvalidSnapshot, wait,
								&failure, &lockmode, &update_indexes);
	UnlockTuple(rel, &tid, ExclusiveLock);
	if (result == TM_Ok && update_indexes != TU_None)
		insert_index_entries(rel, slot);
	ExecDropSingleTupleTableSlot(slot);
	if (result == TM_Ok)
		CommandCounterIncrement();
	else if (result != TM_Updated && result != TM_Deleted)
		elog(ERROR, "unexpected result of an update of lease.%s: %d",
			 kind->table, (int) result);
	return result == TM_Ok;
}

/*
 * delete_sign deletes the version that was read into a sign, or returns false if
 * somebody was faster; with "dont_wait" also if somebody is at it.
 */
static bool
delete_sign(const SignKind *kind, Relation rel, const Sign *sign, bool dont_wait)
{
	ItemPointerData tid = sign->tid;
	TM_Result	result;
	TM_FailureData failure;
	const bool	wait = true;
	const bool	changing_partition = false;

	if (!claim_version(rel, &tid, dont_wait))
		return false;
	result = table_tuple_delete(rel, &tid, GetCurrentCommandId(true),
								InvalidSnapshot, InvalidSnapshot, wait,
								&failure, changing_partition);
	UnlockTuple(rel, &tid, ExclusiveLock);
	if (result == TM_Ok)
		CommandCounterIncrement();
	else if (result != TM_Updated && result != TM_Deleted)
		elog(ERROR, "unexpected result of a delete from lease.%s: %d",
			 kind->table, (int) result);
	return result == TM_Ok;
}

/*
 * await_writer waits for another transaction that has written a sign under the same name,
 * with a bound.
 */
static void
await_writer(const SignKind *kind, const char *name, TransactionId xid)
{
	int			pid;

	if (lock_await_transaction(xid, 0))
		return;
	pid = lock_transaction_pid(xid);
	ereport(ERROR,
			(errcode(ERRCODE_LEASE_BUSY),
			 kind == &report_kind ?
			 errmsg("another transaction is reporting progress of lease \"%s\"", name) :
			 errmsg("another transaction is writing the heartbeat of peer \"%s\"", name),
			 errdetail("%s has not committed it; lease.busy_timeout is %d ms.",
					   pid != 0 ? psprintf("Process %d", pid) : "It",
					   lease_busy_timeout),
			 errhint("Report in transactions of their own.")));
}

/*
 * put_sign writes a sign after the one that was read, if any, or returns false if
 * the caller has to read again.
 */
static bool
put_sign(const SignKind *kind, Relation rel, bool found, Sign *sign)
{
	TransactionId inserter;

	if (found)
	{
		if (TransactionIdIsValid(sign->updater))
		{
			await_writer(kind, sign->name, sign->updater);
			return false;
		}
		return update_sign(kind, rel, sign);
	}
	if (insert_sign(kind, rel, sign, &inserter))
		return true;
	if (TransactionIdIsValid(inserter))
		await_writer(kind, sign->name, inserter);
	return false;
}

/*
 * set_moment notes that a sign has come now.
 */
static void
set_moment(Sign *sign)
{
	Clock		clock;

	clock_read(&clock);
	sign->at = clock_store(&clock, clock.now);
	sign->boot = clock.boot ? pstrdup(clock.boot) : NULL;
	sign->count++;
}

/*
 * forget_before removes the reports of a lease under epochs before the given one,
 * except those that somebody is at: the next to report will.
 */
static void
forget_before(Relation rel, const char *name, int64 epoch)
{
	SignScan	scan;
	Sign		sign;
	const bool	dont_wait = true;

	scan_begin(&scan, &report_kind, rel, name);
	while (scan_next(&scan, &sign))
	{
		if (sign.epoch < epoch)
			(void) delete_sign(&report_kind, rel, &sign, dont_wait);
	}
	scan_end(&scan);
}

/*
 * health_forget removes what was reported of a lease that is being dropped.
 */
void
health_forget(const char *name)
{
	Relation	rel = open_signs(&report_kind, RowExclusiveLock);

	forget_before(rel, name, PG_INT64_MAX);
	table_close(rel, NoLock);
}

/*
 * lease_progress: lease.progress(name, epoch, detail, within)
 */
Datum
lease_progress(PG_FUNCTION_ARGS)
{
	char	   *name = arg_name(fcinfo, 0);
	int64		epoch = arg_epoch(fcinfo, 1);
	Datum		detail = arg_detail_or_null(fcinfo, 2);
	int64		within = arg_interval_or_zero(fcinfo, 3, "within");
	Relation	rel = NULL;
	Sign		sign;
	SignSearch	search;
	bool		found;

	arg_begin_write("lease.progress()");
	do
	{
		Reading		reading;

		CHECK_FOR_INTERRUPTS();
		if (!store_read(name, &reading))
			guard_raise_unknown(name);
		role_check_member(GetUserId(), reading.row.role, name);
		if (reading.row.epoch != epoch)
		{
			if (rel)
				table_close(rel, RowExclusiveLock);
			PG_RETURN_BOOL(false);
		}

		if (!rel)
			rel = open_signs(&report_kind, RowExclusiveLock);
		found = find_sign(&report_kind, rel, name, epoch, &sign, &search);
		if (!found)
		{
			sign.name = name;
			sign.epoch = epoch;
			sign.count = 0;
		}
		sign.live = authority_standing(&reading.authority, epoch,
									   &reading.at) == STANDING_LIVE;
		sign.within = within != 0 ? within :
			reading.row.grant_ttl != 0 ? reading.row.grant_ttl : reading.row.ttl;
		sign.detail = detail;
		set_moment(&sign);
	} while (!put_sign(&report_kind, rel, found, &sign));

	if (search.older)
		forget_before(rel, name, epoch);
	table_close(rel, NoLock);
	PG_RETURN_BOOL(sign.live);
}

/*
 * raise_not_yours raises 42501 for a peer that another role has made.
 */
pg_noreturn static void
raise_not_yours(const Sign *sign)
{
	char	   *owner = GetUserNameFromId(sign->role, true);

	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for peer \"%s\"", sign->name),
			 owner ?
			 errdetail("The peer belongs to role \"%s\", whose privileges role \"%s\" does not have.",
					   owner, GetUserNameFromId(GetUserId(), false)) :
			 errdetail("The peer belongs to a role that no longer exists."),
			 errhint("A peer is one process incarnation and belongs to the role that beat first. The owner of the extension may remove it with lease.retire().")));
}

/*
 * lease_beat: lease.beat(peer, detail, stale_after)
 */
Datum
lease_beat(PG_FUNCTION_ARGS)
{
	char	   *peer = arg_string(fcinfo, 0, "peer", LEASE_HOLDER_MAX);
	Datum		detail = arg_detail_or_null(fcinfo, 1);
	int64		stale_after = arg_setting(fcinfo, 2, "stale_after", false,
										  DEFAULT_STALE_AFTER);
	Relation	rel;
	Sign		sign;
	bool		found;

	arg_begin_write("lease.beat()");
	rel = open_signs(&heartbeat_kind, RowExclusiveLock);
	do
	{
		SignSearch	search;

		CHECK_FOR_INTERRUPTS();
		found = find_sign(&heartbeat_kind, rel, peer, 0, &sign, &search);
		if (!found)
		{
			sign.name = peer;
			sign.epoch = 0;
			sign.role = GetUserId();
			sign.count = 0;
		}
		else if (!role_is_member(GetUserId(), sign.role))
			raise_not_yours(&sign);
		sign.within = stale_after;
		sign.detail = detail;
		set_moment(&sign);
	} while (!put_sign(&heartbeat_kind, rel, found, &sign));

	table_close(rel, NoLock);
	PG_RETURN_VOID();
}

/*
 * lease_retire: lease.retire(peer)
 */
Datum
lease_retire(PG_FUNCTION_ARGS)
{
	char	   *peer = arg_string(fcinfo, 0, "peer", LEASE_HOLDER_MAX);
	Relation	rel;
	Sign		sign;
	const bool	dont_wait = false;

	arg_begin_write("lease.retire()");
	rel = open_signs(&heartbeat_kind, RowExclusiveLock);
	for (;;)
	{
		SignSearch	search;

		CHECK_FOR_INTERRUPTS();
		if (!find_sign(&heartbeat_kind, rel, peer, 0, &sign, &search))
		{
			table_close(rel, RowExclusiveLock);
			PG_RETURN_BOOL(false);
		}
		if (!role_administers(GetUserId(), sign.role))
			raise_not_yours(&sign);
		if (TransactionIdIsValid(sign.updater))
			await_writer(&heartbeat_kind, peer, sign.updater);
		else if (delete_sign(&heartbeat_kind, rel, &sign, dont_wait))
			break;
	}
	table_close(rel, NoLock);
	PG_RETURN_BOOL(true);
}

/* Columns of lease.read_grants(), as sql/health.sql declares them */
enum
{
	Grants_name,
	Grants_role,
	Grants_state,
	Grants_held,
	Grants_epoch,
	Grants_holder,
	Grants_remaining,
	Grants_last_end,
	Grants_granted_ago,
	Grants_expired_ago,
	Grants_columns
};

/* What receive_grant gets */
typedef struct GrantsTarget
{
	ReturnSetInfo *set;
	Clock		clock;
} GrantsTarget;

/*
 * since_datum makes the time since an instant, which is never negative.
 */
static Datum
since_datum(const Clock *clock, int64 instant)
{
	return clock_interval_datum(Max(clock->now - instant, 0));
}

/*
 * receive_grant appends a lease to the result of lease.read_grants().
 */
static void
receive_grant(const LeaseRow *row, void *arg)
{
	GrantsTarget *target = (GrantsTarget *) arg;
	const Clock *clock = &target->clock;
	Instants	at = {clock->tx, clock->now};
	Authority	authority;
	bool		granted = row->epoch != 0;
	const char *end;
	Datum		values[Grants_columns] = {0};
	bool		nulls[Grants_columns] = {false};

	store_authority(row, clock, &authority);
	switch (authority_standing(&authority, row->epoch, &at))
	{
		case STANDING_EXPIRED:
			end = "expired";
			break;
		case STANDING_RELEASED:
			end = "released";
			break;
		case STANDING_REVOKED:
			end = "revoked";
			break;
		default:
			end = NULL;
	}

	values[Grants_name] = CStringGetTextDatum(row->name);
	values[Grants_role] = ObjectIdGetDatum(row->role);
	values[Grants_state] =
		CStringGetTextDatum(status_phase_name(authority_phase(&authority,
															  at.tx)));
	values[Grants_held] = BoolGetDatum(granted && !end);
	nulls[Grants_epoch] = nulls[Grants_holder] = nulls[Grants_granted_ago] = !granted;
	if (granted)
	{
		values[Grants_epoch] = Int64GetDatum(row->epoch);
		values[Grants_holder] = CStringGetTextDatum(row->holder);
		values[Grants_granted_ago] = since_datum(clock, authority.acquired);
	}
	values[Grants_remaining] =
		clock_interval_datum(granted && !end ? authority.deadline - at.now : 0);
	nulls[Grants_last_end] = end == NULL;
	if (end)
		values[Grants_last_end] = CStringGetTextDatum(end);
	nulls[Grants_expired_ago] = !end || row->state != GRANT_MADE;
	if (!nulls[Grants_expired_ago])
		values[Grants_expired_ago] = since_datum(clock, authority.deadline);

	tuplestore_putvalues(target->set->setResult, target->set->setDesc,
						 values, nulls);
}

/*
 * lease_read_grants: lease.read_grants(), of which views are made
 */
Datum
lease_read_grants(PG_FUNCTION_ARGS)
{
	GrantsTarget target;

	InitMaterializedSRF(fcinfo, 0);
	target.set = (ReturnSetInfo *) fcinfo->resultinfo;
	clock_read(&target.clock);
	store_read_all(receive_grant, &target);
	return (Datum) 0;
}

/* Columns of lease.read_reports() and lease.read_heartbeats() */
enum
{
	Signs_name,
	Signs_owner,
	Signs_at,
	Signs_age,
	Signs_within,
	Signs_count,
	Signs_detail,
	Signs_live,					/* of reports only */
	Signs_columns
};

/*
 * read_signs returns all signs of a kind.
 */
static void
read_signs(FunctionCallInfo fcinfo, const SignKind *kind)
{
	ReturnSetInfo *set = (ReturnSetInfo *) fcinfo->resultinfo;
	Relation	rel;
	SignScan	scan;
	Sign		sign;
	Clock		clock;

	InitMaterializedSRF(fcinfo, 0);
	rel = open_signs(kind, AccessShareLock);
	scan_begin(&scan, kind, rel, NULL);
	clock_read(&clock);
	scan.row_context = AllocSetContextCreate(CurrentMemoryContext, "lease sign",
											 ALLOCSET_SMALL_SIZES);
	while (scan_next(&scan, &sign))
	{
		Datum		values[Signs_columns] = {0};
		bool		nulls[Signs_columns] = {false};
		MemoryContext caller_context;

		caller_context = MemoryContextSwitchTo(scan.row_context);
		values[Signs_name] = CStringGetTextDatum(sign.name);
		values[Signs_owner] = kind == &report_kind ?
			Int64GetDatum(sign.epoch) : ObjectIdGetDatum(sign.role);
		values[Signs_at] =
			TimestampTzGetDatum(clock_image(&clock, sign.boot, &sign.at));
		values[Signs_age] =
			since_datum(&clock, clock_localize(&clock, sign.boot, &sign.at));
		values[Signs_within] = clock_interval_datum(sign.within);
		values[Signs_count] = Int64GetDatum(sign.count);
		nulls[Signs_detail] = sign.detail == (Datum) 0;
		values[Signs_detail] = sign.detail;
		values[Signs_live] = BoolGetDatum(sign.live);
		tuplestore_putvalues(set->setResult, set->setDesc, values, nulls);
		MemoryContextSwitchTo(caller_context);
	}
	MemoryContextDelete(scan.row_context);
	scan_end(&scan);
	table_close(rel, AccessShareLock);
}

/*
 * lease_read_reports: lease.read_reports(), of which views are made
 */
Datum
lease_read_reports(PG_FUNCTION_ARGS)
{
	read_signs(fcinfo, &report_kind);
	return (Datum) 0;
}

/*
 * lease_read_heartbeats: lease.read_heartbeats(), of which views are made
 */
Datum
lease_read_heartbeats(PG_FUNCTION_ARGS)
{
	read_signs(fcinfo, &heartbeat_kind);
	return (Datum) 0;
}
