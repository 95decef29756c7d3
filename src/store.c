/*-------------------------------------------------------------------------
 *
 * store.c
 *	  The rows of lease.lease.
 *
 * This is the only code that touches rows of lease.lease.
 *
 * Reading.  A row is found through the primary key, by a scan that returns
 * every version of it; each version is then judged under the *latest*
 * snapshot.  The transaction's own snapshot would not do: under REPEATABLE READ
 * it does not show a takeover, so a stale write would pass.  An ordinary scan
 * under an MVCC snapshot would not do either: under SERIALIZABLE it takes
 * predicate locks, and then a mere heartbeat could make a fenced writer fail
 * with 40001.  The snapshot is taken when the table has been locked, so that it
 * shows what was committed while we waited for that, but before the scan, and
 * registered, so the version that it shows cannot be missed or vacuumed away
 * meanwhile.  The latest snapshot shows one version; the transaction's own, which
 * we ask once whether it is older than a grant, may show an old one beside what we
 * have written since, and is therefore asked without that.
 *
 * Writing.  The latest version is updated in place, without an executor, at
 * every isolation level alike: a version that somebody else has replaced makes
 * the caller read and decide again, never fail with "could not serialize".
 * The row's own xmax is the lock between writers, so that renewals of thousands
 * of leases take no entries in the lock table; no row is ever locked without
 * being changed.  Whoever finds a version that a running transaction has
 * replaced (LeaseRow.updater) waits for that transaction with a bound before
 * it comes here.
 *
 * Every write is followed by CommandCounterIncrement, so that the next read in
 * this transaction sees it.
 *
 * Locks: AccessShare on table and index while reading; a reader keeps nothing.  A
 * writer has the table locked in RowExclusive mode when it comes here, by
 * change_begin; during the write it holds PostgreSQL's lock on the tuple.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/store.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "rows.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "store.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* Columns of lease.lease, as sql/schema.sql creates them */
enum
{
	Anum_lease_name = 1,
	Anum_lease_role,
	Anum_lease_ttl,
	Anum_lease_grace,
	Anum_lease_min_hold,
	Anum_lease_late_commit,
	Anum_lease_evict,
	Anum_lease_async_renew,
	Anum_lease_state,
	Anum_lease_epoch,
	Anum_lease_acquired_boot,
	Anum_lease_acquired_at,
	Anum_lease_deadline_boot,
	Anum_lease_expires_at,
	Anum_lease_reserved_boot,
	Anum_lease_reserved_until,
	Anum_lease_boot,
	Anum_lease_holder,
	Anum_lease_grant_ttl,
	Anum_lease_successor,
	Anum_lease_reason,
	Anum_lease_metadata,
	Anum_lease_handover_at,
	Anum_lease_handover_to,
	Anum_lease_handover_reason,
	Anum_lease_event_seq,
	Natts_lease = Anum_lease_event_seq
};

static const Oid column_types[Natts_lease] = {
	[Anum_lease_name - 1] = TEXTOID,
	[Anum_lease_role - 1] = REGROLEOID,
	[Anum_lease_ttl - 1] = INT8OID,
	[Anum_lease_grace - 1] = INT8OID,
	[Anum_lease_min_hold - 1] = INT8OID,
	[Anum_lease_late_commit - 1] = BOOLOID,
	[Anum_lease_evict - 1] = CHAROID,
	[Anum_lease_async_renew - 1] = BOOLOID,
	[Anum_lease_state - 1] = CHAROID,
	[Anum_lease_epoch - 1] = INT8OID,
	[Anum_lease_acquired_boot - 1] = INT8OID,
	[Anum_lease_acquired_at - 1] = TIMESTAMPTZOID,
	[Anum_lease_deadline_boot - 1] = INT8OID,
	[Anum_lease_expires_at - 1] = TIMESTAMPTZOID,
	[Anum_lease_reserved_boot - 1] = INT8OID,
	[Anum_lease_reserved_until - 1] = TIMESTAMPTZOID,
	[Anum_lease_boot - 1] = TEXTOID,
	[Anum_lease_holder - 1] = TEXTOID,
	[Anum_lease_grant_ttl - 1] = INT8OID,
	[Anum_lease_successor - 1] = TEXTOID,
	[Anum_lease_reason - 1] = TEXTOID,
	[Anum_lease_metadata - 1] = JSONBOID,
	[Anum_lease_handover_at - 1] = TIMESTAMPTZOID,
	[Anum_lease_handover_to - 1] = TEXTOID,
	[Anum_lease_handover_reason - 1] = TEXTOID,
	[Anum_lease_event_seq - 1] = INT8OID
};

/*
 * check_lease returns lease.lease if it is the table that this library was built
 * for.
 */
static Relation
check_lease(Relation rel)
{
	TupleDesc	desc = RelationGetDescr(rel);
	bool		matches = desc->natts == Natts_lease;

	for (int i = 0; matches && i < Natts_lease; i++)
		matches = TupleDescAttr(desc, i)->atttypid == column_types[i];
	if (!matches)
		catalog_raise_version();
	return rel;
}

/*
 * open_to_read opens and locks lease.lease.
 */
static Relation
open_to_read(void)
{
	return check_lease(table_open(catalog_lock_lease(AccessShareLock), NoLock));
}

/*
 * open_to_write opens lease.lease for a caller that has locked it for writing,
 * before the read that has decided what to write.
 */
static Relation
open_to_write(void)
{
	Catalog		relations;

	catalog_get(&relations);
	return check_lease(table_open(relations.lease, NoLock));
}

/*
 * find_updater sets which running transaction has replaced a version: another
 * one, or this one.  The buffer is locked.
 */
static void
find_updater(HeapTupleHeader header, LeaseRow *row)
{
	TransactionId xmax;

	row->updater = InvalidTransactionId;
	row->replaced_here = false;
	if ((header->t_infomask & HEAP_XMAX_INVALID) ||
		HEAP_XMAX_IS_LOCKED_ONLY(header->t_infomask))
		return;
	xmax = HeapTupleHeaderGetUpdateXid(header);
	if (TransactionIdIsCurrentTransactionId(xmax))
		row->replaced_here = true;
	else if (TransactionIdIsInProgress(xmax))
		row->updater = xmax;
}

/*
 * read_version judges the version in a slot and, if a snapshot shows it (or
 * without a snapshot), copies it into a row.
 */
static bool
read_version(TupleTableSlot *slot, Snapshot snapshot, LeaseRow *row)
{
	HeapTuple	tuple = rows_tuple(slot);
	Buffer		buffer = ((BufferHeapTupleTableSlot *) slot)->buffer;
	TupleDesc	desc = slot->tts_tupleDescriptor;
	HeapTuple	copy;
	Datum		values[Natts_lease];
	bool		nulls[Natts_lease];
	bool		visible;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	visible = snapshot == NULL ||
		HeapTupleSatisfiesVisibility(tuple, snapshot, buffer);
	if (visible)
	{
		row->tid = tuple->t_self;
		row->next_tid = tuple->t_data->t_ctid;
		find_updater(tuple->t_data, row);
	}
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	if (!visible)
		return false;

	/* The pin keeps the tuple's data; the copy outlives the pin. */
	copy = heap_copytuple(tuple);
	heap_deform_tuple(copy, desc, values, nulls);

#define VALUE(column)	(values[Anum_lease_ ## column - 1])
#define HAS(column)		(!nulls[Anum_lease_ ## column - 1])
#define STRING(column)	(HAS(column) ? TextDatumGetCString(VALUE(column)) : NULL)
#define INT64(column)	(HAS(column) ? DatumGetInt64(VALUE(column)) : 0)
#define INSTANT(boot, wall) \
	((StoredInstant) {INT64(boot), \
		HAS(wall) ? DatumGetTimestampTz(VALUE(wall)) : 0})

	row->name = STRING(name);
	row->role = DatumGetObjectId(VALUE(role));
	row->ttl = INT64(ttl);
	row->grace = INT64(grace);
	row->min_hold = INT64(min_hold);
	row->late_commit = DatumGetBool(VALUE(late_commit));
	row->evict = (Evict) DatumGetChar(VALUE(evict));
	row->async_renew = DatumGetBool(VALUE(async_renew));
	row->state = (GrantState) DatumGetChar(VALUE(state));
	row->epoch = INT64(epoch);
	row->acquired = INSTANT(acquired_boot, acquired_at);
	row->deadline = INSTANT(deadline_boot, expires_at);
	row->reserved = INSTANT(reserved_boot, reserved_until);
	row->boot = STRING(boot);
	row->holder = STRING(holder);
	row->grant_ttl = INT64(grant_ttl);
	row->successor = STRING(successor);
	row->reason = STRING(reason);
	row->metadata = HAS(metadata) ? VALUE(metadata) : (Datum) 0;
	row->handover_at = HAS(handover_at) ?
		DatumGetTimestampTz(VALUE(handover_at)) : 0;
	row->handover_to = STRING(handover_to);
	row->handover_reason = STRING(handover_reason);
	row->event_seq = INT64(event_seq);

#undef VALUE
#undef HAS
#undef STRING
#undef INT64
#undef INSTANT

	return true;
}

/*
 * form_tuple makes a tuple of a row.
 */
static HeapTuple
form_tuple(TupleDesc desc, const LeaseRow *row)
{
	Datum		values[Natts_lease] = {0};
	bool		nulls[Natts_lease] = {false};
	bool		granted = row->epoch != 0;
	bool		reserved = row->successor != NULL;

#define SET(column, value) \
	(values[Anum_lease_ ## column - 1] = (value))
#define SET_IF(condition, column, value) \
	do { \
		if (condition) \
			SET(column, value); \
		else \
			nulls[Anum_lease_ ## column - 1] = true; \
	} while (0)
#define SET_STRING(column) \
	SET_IF(row->column != NULL, column, CStringGetTextDatum(row->column))

	SET(name, CStringGetTextDatum(row->name));
	SET(role, ObjectIdGetDatum(row->role));
	SET(ttl, Int64GetDatum(row->ttl));
	SET(grace, Int64GetDatum(row->grace));
	SET(min_hold, Int64GetDatum(row->min_hold));
	SET(late_commit, BoolGetDatum(row->late_commit));
	SET(evict, CharGetDatum((char) row->evict));
	SET(async_renew, BoolGetDatum(row->async_renew));
	SET(state, CharGetDatum((char) row->state));
	SET(epoch, Int64GetDatum(row->epoch));
	SET_IF(granted, acquired_boot, Int64GetDatum(row->acquired.boot));
	SET_IF(granted, acquired_at, TimestampTzGetDatum(row->acquired.wall));
	SET_IF(granted, deadline_boot, Int64GetDatum(row->deadline.boot));
	SET_IF(granted, expires_at, TimestampTzGetDatum(row->deadline.wall));
	SET_IF(reserved, reserved_boot, Int64GetDatum(row->reserved.boot));
	SET_IF(reserved, reserved_until, TimestampTzGetDatum(row->reserved.wall));
	SET_STRING(boot);
	SET_STRING(holder);
	SET_IF(row->grant_ttl != 0, grant_ttl, Int64GetDatum(row->grant_ttl));
	SET_STRING(successor);
	SET_STRING(reason);
	SET_IF(row->metadata != (Datum) 0, metadata, row->metadata);
	SET_IF(row->handover_at != 0, handover_at,
		   TimestampTzGetDatum(row->handover_at));
	SET_STRING(handover_to);
	SET_STRING(handover_reason);
	SET(event_seq, Int64GetDatum(row->event_seq));

#undef SET
#undef SET_IF
#undef SET_STRING

	return heap_form_tuple(desc, values, nulls);
}

/*
 * read_created copies a version into a row if another running transaction has
 * created it, and not replaced it in turn, as one that replaces a row that is not
 * there.
 */
static bool
read_created(TupleTableSlot *slot, LeaseRow *row)
{
	HeapTuple	tuple = rows_tuple(slot);
	TransactionId xmin = HeapTupleHeaderGetXmin(tuple->t_data);

	if (TransactionIdIsCurrentTransactionId(xmin) ||
		!TransactionIdIsInProgress(xmin) ||
		!read_version(slot, NULL, row) ||
		TransactionIdIsValid(row->updater))
		return false;
	row->updater = xmin;
	row->next_tid = row->tid;
	ItemPointerSetInvalid(&row->tid);
	return true;
}

/*
 * find_version scans for the version of a lease that a snapshot shows; or without a
 * snapshot, for one that another running transaction has created.
 */
static bool
find_version(Relation rel, const char *name, Snapshot snapshot, LeaseRow *row)
{
	Relation	index;
	IndexScanDesc scan;
	ScanKeyData key;
	TupleTableSlot *slot;
	bool		found = false;

	index = index_open(primary_key_index(rel), AccessShareLock);
	slot = table_slot_create(rel, NULL);

	rows_set_name_key(&key, name);
	scan = rows_begin_scan(rel, index, &key, 1);
	while (!found && index_getnext_slot(scan, ForwardScanDirection, slot))
		found = snapshot ? read_version(slot, snapshot, row) :
			read_created(slot, row);
	index_endscan(scan);

	ExecDropSingleTupleTableSlot(slot);
	index_close(index, AccessShareLock);
	return found;
}

/*
 * store_judge reads the clock and brings a row onto its scale.
 */
void
store_judge(Reading *reading)
{
	clock_read(&reading->clock);
	store_authority(&reading->row, &reading->clock, &reading->authority);
	reading->at.tx = reading->clock.tx;
	reading->at.now = reading->clock.now;
}

/*
 * store_read reads the latest version of a lease that is committed or our own,
 * and then the clock, and tells whether the lease exists.
 *
 * Whoever has locked the table may change the row until we have the lock, so that
 * the snapshot is taken after that.
 */
bool
store_read(const char *name, Reading *reading)
{
	Relation	rel = open_to_read();
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	bool		found = find_version(rel, name, snapshot, &reading->row);

	UnregisterSnapshot(snapshot);
	table_close(rel, AccessShareLock);
	if (found)
		store_judge(reading);
	return found;
}

/*
 * store_read_created reads a lease that another running transaction has created and
 * not committed, as it stands there, and tells whether there is one; to be called when
 * store_read has found none.
 */
bool
store_read_created(const char *name, Reading *created)
{
	Relation	rel = open_to_read();
	bool		found = find_version(rel, name, NULL, &created->row);

	table_close(rel, AccessShareLock);
	if (found)
		store_judge(created);
	return found;
}

/*
 * store_read_uncommitted reads the newest version that the transaction
 * row->updater has made of a row, and tells whether there is one: not if that
 * transaction deleted the lease (and has not created it again), rolled back or has
 * just ended.
 */
bool
store_read_uncommitted(const LeaseRow *row, Reading *next)
{
	Relation	rel;
	TupleTableSlot *slot;
	LeaseRow	version = *row;
	bool		found = false;

	rel = open_to_read();
	slot = table_slot_create(rel, NULL);

	/* It may have changed the row several times, also in subtransactions. */
	while (TransactionIdIsValid(version.updater))
	{
		ItemPointerData tid = version.next_tid;

		found = false;
		if (ItemPointerIsValid(&version.tid) &&
			ItemPointerEquals(&version.tid, &tid))
		{
			/* It deleted the row. */
			found = find_version(rel, row->name, NULL, &version);
			break;
		}

		/*
		 * If it has rolled back since, the page may be gone, or hold another
		 * tuple there.  A tuple's xmin never changes, so that the pin is
		 * enough to read it.
		 */
		if (ItemPointerGetBlockNumber(&tid) >= RelationGetNumberOfBlocks(rel) ||
			!table_tuple_fetch_row_version(rel, &tid, SnapshotAny, slot) ||
			!TransactionIdEquals(HeapTupleHeaderGetXmin(rows_tuple(slot)->t_data),
								 version.updater))
			break;
		found = read_version(slot, NULL, &version);
	}

	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, AccessShareLock);
	if (found)
	{
		next->row = version;
		store_judge(next);
	}
	return found;
}

/*
 * store_snapshot_covers tells whether the snapshot that the caller works with
 * shows all that was ever committed under the epochs before the given one, which
 * is the current one.
 *
 * It does if it shows that epoch as granted: whoever made the grant had waited for
 * COMMITs under the one before.  Under READ COMMITTED that is the snapshot of the
 * statement, which matters only where one statement both acquires and guards.
 *
 * Under REPEATABLE READ and SERIALIZABLE what this transaction has done itself is
 * left out.  If it has made the grant, its snapshot will do if that shows the
 * version that was replaced, and as free: whoever released or revoked had waited,
 * too.  COMMITs under a grant that merely expired may have ended since.
 */
bool
store_snapshot_covers(const char *name, int64 epoch)
{
	Relation	rel;
	LeaseRow	row;
	Snapshot	snapshot;
	SnapshotData before;
	bool		covers;

	if (!IsolationUsesXactSnapshot() && !ActiveSnapshotSet())
		return true;

	rel = open_to_read();
	if (!IsolationUsesXactSnapshot())
		covers = find_version(rel, name, GetActiveSnapshot(), &row) &&
			row.epoch == epoch;
	else
	{
		snapshot = RegisterSnapshot(GetTransactionSnapshot());
		before = *snapshot;
		before.curcid = FirstCommandId;
		covers = find_version(rel, name, &before, &row) &&
			(row.epoch == epoch ||
			 (row.replaced_here && row.state != GRANT_MADE));
		UnregisterSnapshot(snapshot);
	}
	table_close(rel, AccessShareLock);
	return covers;
}

/*
 * store_read_all passes the latest version of every lease to a function, in
 * the order of the table.
 */
void
store_read_all(void (*receive) (const LeaseRow *row, void *arg), void *arg)
{
	Relation	rel = open_to_read();
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TableScanDesc scan;
	TupleTableSlot *slot;
	MemoryContext row_context;
	MemoryContext caller_context;

	slot = table_slot_create(rel, NULL);

	/* SnapshotAny for the same reason as in find_version. */
	scan = table_beginscan(rel, SnapshotAny, 0, NULL);

	/* From here on, what is allocated lives as long as a row. */
	row_context = AllocSetContextCreate(CurrentMemoryContext, "lease row",
										ALLOCSET_SMALL_SIZES);
	caller_context = MemoryContextSwitchTo(row_context);

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		LeaseRow	row;

		CHECK_FOR_INTERRUPTS();
		if (read_version(slot, snapshot, &row))
			receive(&row, arg);
		MemoryContextReset(row_context);
	}

	MemoryContextSwitchTo(caller_context);
	MemoryContextDelete(row_context);
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, AccessShareLock);
	UnregisterSnapshot(snapshot);
}

/*
 * store_read_prefix does the same for those whose names begin with a prefix, in the
 * order of names.
 */
void
store_read_prefix(const char *prefix,
				  void (*receive) (const LeaseRow *row, void *arg), void *arg)
{
	Relation	rel = open_to_read();
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	Relation	index = index_open(primary_key_index(rel), AccessShareLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	IndexScanDesc scan;
	ScanKeyData key;
	bool		more = true;
	MemoryContext row_context;
	MemoryContext caller_context = CurrentMemoryContext;

	ScanKeyInit(&key, 1, BTGreaterEqualStrategyNumber, F_TEXT_GE,
				CStringGetTextDatum(prefix));
	key.sk_collation = C_COLLATION_OID;
	scan = rows_begin_scan(rel, index, &key, 1);
	row_context = AllocSetContextCreate(CurrentMemoryContext, "lease row",
										ALLOCSET_SMALL_SIZES);

	/* A scan of an index may allocate what lives as long as itself. */
	while (more && index_getnext_slot(scan, ForwardScanDirection, slot))
	{
		LeaseRow	row;

		CHECK_FOR_INTERRUPTS();
		MemoryContextSwitchTo(row_context);
		if (read_version(slot, snapshot, &row))
		{
			more = strncmp(row.name, prefix, strlen(prefix)) == 0;
			if (more)
				receive(&row, arg);
		}
		MemoryContextSwitchTo(caller_context);
		MemoryContextReset(row_context);
	}

	MemoryContextDelete(row_context);
	index_endscan(scan);

	ExecDropSingleTupleTableSlot(slot);
	index_close(index, AccessShareLock);
	table_close(rel, AccessShareLock);
	UnregisterSnapshot(snapshot);
}

/*
 * store_insert inserts a new lease.  The caller holds the lease's fence lock
 * exclusively, so nobody else inserts the same name through us.
 */
void
store_insert(const LeaseRow *row)
{
	Relation	rel = open_to_write();

	rows_insert(rel, form_tuple(RelationGetDescr(rel), row));
	table_close(rel, NoLock);
	CommandCounterIncrement();
}

/*
 * write_succeeded judges the result of an update or delete: false means that
 * somebody has replaced the version meanwhile and the caller has to read and
 * decide again.
 */
static bool
write_succeeded(TM_Result result)
{
	switch (result)
	{
		case TM_Ok:
			return true;
		case TM_Updated:
		case TM_Deleted:
			return false;
		case TM_SelfModified:

			/*
			 * By hand, in a command that calls us: reading again shows no
			 * more.
			 */
			ereport(ERROR,
					(errcode(ERRCODE_TRIGGERED_DATA_CHANGE_VIOLATION),
					 errmsg("row of lease.lease was already changed by the present command")));
			break;
		case TM_Invisible:
		case TM_BeingModified:
		case TM_WouldBlock:
			break;
	}
	elog(ERROR, "unexpected result of a write to lease.lease: %d",
		 (int) result);
	return false;				/* keep compiler quiet */
}

/*
 * claim_version makes sure that no running transaction has replaced a version, and
 * that none does until release_version; or returns false.
 *
 * Between the caller's read and its write somebody may have been faster.  An
 * update would then wait, while the caller holds the fence lock, which nobody may
 * keep while waiting for the row.  All who write through us hold PostgreSQL's
 * lock on the tuple while they do; it is held for that long only.
 */
static bool
claim_version(Relation rel, ItemPointer tid)
{
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	LeaseRow	row;
	bool		free;

	LockTuple(rel, tid, ExclusiveLock);
	free = table_tuple_fetch_row_version(rel, tid, SnapshotAny, slot);
	if (free)
	{
		Buffer		buffer = ((BufferHeapTupleTableSlot *) slot)->buffer;

		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		find_updater(rows_tuple(slot)->t_data, &row);
		LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
		free = !TransactionIdIsValid(row.updater);
	}
	if (!free)
		UnlockTuple(rel, tid, ExclusiveLock);
	ExecDropSingleTupleTableSlot(slot);
	return free;
}

/*
 * release_version gives back the lock that claim_version took.
 */
static void
release_version(Relation rel, ItemPointer tid)
{
	UnlockTuple(rel, tid, ExclusiveLock);
}

/*
 * store_update replaces the version that was read into a row by what the row
 * says now.  False means that somebody else was faster.
 *
 * Only for whoever has locked the row by hand do we wait here, under the
 * lock_timeout that the caller has set for that.
 */
bool
store_update(LeaseRow *row)
{
	Relation	rel;
	TupleTableSlot *slot;
	TM_Result	result;
	TM_FailureData failure;
	LockTupleMode lockmode;
	TU_UpdateIndexes update_indexes;
	ItemPointerData tid = row->tid;
	const bool	wait = true;

	rel = open_to_write();
	if (!claim_version(rel, &tid))
	{
		table_close(rel, NoLock);
		return false;
	}
	slot = MakeSingleTupleTableSlot(RelationGetDescr(rel), &TTSOpsHeapTuple);
	ExecStoreHeapTuple(form_tuple(RelationGetDescr(rel), row), slot, true);

	result = table_tuple_update(rel, &tid, slot, GetCurrentCommandId(true),
								InvalidSnapshot, InvalidSnapshot, wait,
								&failure, &lockmode, &update_indexes);
	release_version(rel, &tid);
	if (write_succeeded(result))
	{
		if (update_indexes != TU_None)
			rows_index(rel, slot);
		row->tid = slot->tts_tid;
		CommandCounterIncrement();
	}

	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, NoLock);
	return result == TM_Ok;
}

/*
 * store_delete deletes the version that was read into a row.  False means that
 * somebody else was faster.
 */
bool
store_delete(const LeaseRow *row)
{
	Relation	rel;
	ItemPointerData tid = row->tid;
	TM_Result	result;
	TM_FailureData failure;
	const bool	wait = true;
	const bool	changing_partition = false;

	rel = open_to_write();
	if (!claim_version(rel, &tid))
	{
		table_close(rel, NoLock);
		return false;
	}
	result = table_tuple_delete(rel, &tid, GetCurrentCommandId(true),
								InvalidSnapshot, InvalidSnapshot, wait,
								&failure, changing_partition);
	release_version(rel, &tid);
	if (write_succeeded(result))
		CommandCounterIncrement();
	table_close(rel, NoLock);
	return result == TM_Ok;
}

/*
 * store_authority brings what a row says onto the scale of a clock's reading.
 */
void
store_authority(const LeaseRow *row, const Clock *clock, Authority *authority)
{
	authority->state = row->state;
	authority->epoch = row->epoch;
	authority->holder = row->holder ? row->holder : "";
	authority->acquired = clock_localize(clock, row->boot, &row->acquired);
	authority->deadline = clock_localize(clock, row->boot, &row->deadline);
	authority->successor = row->successor;
	authority->reserved_until = clock_localize(clock, row->boot, &row->reserved);
	authority->grace = row->grace;
	authority->min_hold = row->min_hold;
	authority->late_commit = row->late_commit;
}
