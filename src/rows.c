/*-------------------------------------------------------------------------
 *
 * rows.c
 *	  Reading and writing rows of our tables without an executor.
 *
 * Scans return every version of a row, dead ones too; the caller judges each
 * under a snapshot of its choice, which it has registered before the scan.  An
 * ordinary scan under an MVCC snapshot would take predicate locks in a SERIALIZABLE
 * transaction, and make others fail that have nothing to do with it.
 *
 * Our tables are read and written by primary keys that begin with the name of a
 * lease, COLLATE "C".
 *
 * Locks: those that the callers have taken on table and index; the lock on a page
 * while a version in it is judged.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/rows.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_collation.h"
#include "executor/executor.h"
#include "rows.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"

/*
 * rows_begin_scan begins a scan that returns every version.
 */
IndexScanDesc
rows_begin_scan(Relation rel, Relation index, ScanKey keys, int count)
{
	IndexScanDesc scan;

#if PG_VERSION_NUM >= 180000
	scan = index_beginscan(rel, index, SnapshotAny, NULL, count, 0);
#else
	scan = index_beginscan(rel, index, SnapshotAny, count, 0);
#endif
	index_rescan(scan, keys, count, NULL, 0);
	return scan;
}

/*
 * rows_set_name_key makes the scan key for the name of a lease.  The column is
 * COLLATE "C": with another collation the scan would miss rows.
 */
void
rows_set_name_key(ScanKey key, const char *name)
{
	ScanKeyInit(key, 1, BTEqualStrategyNumber, F_TEXTEQ,
				CStringGetTextDatum(name));
	key->sk_collation = C_COLLATION_OID;
}

/*
 * rows_tuple returns the tuple in a buffer slot, still in its page.
 */
HeapTuple
rows_tuple(TupleTableSlot *slot)
{
	Assert(TTS_IS_BUFFERTUPLE(slot));
	return ((BufferHeapTupleTableSlot *) slot)->base.tuple;
}

/*
 * rows_are_visible tells whether a snapshot shows the version in a slot.
 */
bool
rows_are_visible(TupleTableSlot *slot, Snapshot snapshot)
{
	Buffer		buffer = ((BufferHeapTupleTableSlot *) slot)->buffer;
	bool		visible;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	visible = HeapTupleSatisfiesVisibility(rows_tuple(slot), snapshot, buffer);
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	return visible;
}

/*
 * rows_index makes index entries for a new version.  An update that is HOT
 * needs none.
 */
void
rows_index(Relation rel, TupleTableSlot *slot)
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
 * rows_insert inserts a row.
 */
void
rows_insert(Relation rel, HeapTuple tuple)
{
	TupleTableSlot *slot;

	slot = MakeSingleTupleTableSlot(RelationGetDescr(rel), &TTSOpsHeapTuple);
	ExecStoreHeapTuple(tuple, slot, true);
	table_tuple_insert(rel, slot, GetCurrentCommandId(true), 0, NULL);
	rows_index(rel, slot);
	ExecDropSingleTupleTableSlot(slot);
}
