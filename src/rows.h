/*-------------------------------------------------------------------------
 *
 * rows.h
 *	  Reading and writing rows of our tables without an executor.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_ROWS_H
#define LEASE_ROWS_H

#include "lease.h"

#include "access/genam.h"
#include "access/htup.h"
#include "executor/tuptable.h"
#include "utils/rel.h"
#include "utils/snapshot.h"

extern IndexScanDesc rows_begin_scan(Relation rel, Relation index,
									 ScanKey keys, int count);
extern void rows_set_name_key(ScanKey key, const char *name);
extern HeapTuple rows_tuple(TupleTableSlot *slot);
extern bool rows_are_visible(TupleTableSlot *slot, Snapshot snapshot);
extern void rows_insert(Relation rel, HeapTuple tuple);
extern void rows_index(Relation rel, TupleTableSlot *slot);

#endif							/* LEASE_ROWS_H */
