/*-------------------------------------------------------------------------
 *
 * stamp.c
 *	  Tokens that rows carry: the trigger that reads and writes them.
 *
 * A table may be protected with an epoch_column.  A trigger BEFORE INSERT OR
 * UPDATE, made by lease.protect(), then
 *
 *	- takes a value that the statement has set as a token, and guards the
 *	  transaction with it;
 *	- and otherwise writes the epoch of the transaction's guard there: a NULL
 *	  of an INSERT, or what an UPDATE that does not mention the column has
 *	  inherited from the old row.  What was inherited is nobody's token.
 *
 * That the row carries such an epoch at last, and that it carried no later one
 * before, is checked by the conditions in fence.c, behind all other triggers.
 *
 * PostgreSQL tells which columns a statement sets.  In a MERGE it says that of
 * the columns that any of its actions sets, also when another one is carried
 * out.  So in a MERGE with an action that does not set the column, a value
 * that stays the same counts as inherited.  Which statement has fired a
 * trigger is known to statement.c.  The library is loaded on demand, possibly
 * by the trigger itself: that statement is looked up in its portal, and where
 * it is not there, since a function executes it, a value that stays the same
 * is refused.
 *
 * This module takes no locks but what guard.c takes for it.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/stamp.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/sysattr.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "fence.h"
#include "guard.h"
#include "nodes/plannodes.h"
#include "parser/parsetree.h"
#include "replication/logicalworker.h"
#include "statement.h"
#include "tcop/pquery.h"
#include "token.h"
#include "utils/memutils.h"
#include "utils/rel.h"

SQL_CALLABLE(lease_stamp);

/* Where a row has the value of its column from. */
typedef enum Source
{
	SOURCE_STATEMENT,			/* the statement: it is a token */
	SOURCE_INHERITED,			/* the old row, or nowhere */
	SOURCE_UNKNOWN				/* either */
} Source;

/* What is found out once in a query; in fn_extra. */
typedef struct StampColumns
{
	int			epoch;			/* the columns' numbers */
	int			lease;			/* 0 if rows do not name their leases */
	bool		same_known;
	Source		same;			/* of a value that stays the same */
} StampColumns;

/*
 * merge_may_inherit tells whether a plan is a MERGE with an action that
 * updates a table and does not set a column of it.
 */
static bool
merge_may_inherit(const Plan *plan, const List *range_table, Oid table,
				  int column)
{
	const ModifyTable *merge = (const ModifyTable *) plan;
	ListCell   *target;
	ListCell   *actions;

	if (!plan || !IsA(plan, ModifyTable) || merge->operation != CMD_MERGE)
		return false;

	forboth(target, merge->resultRelations, actions, merge->mergeActionLists)
	{
		ListCell   *cell;

		if (rt_fetch(lfirst_int(target), range_table)->relid != table)
			continue;
		foreach(cell, (List *) lfirst(actions))
		{
			MergeAction *action = lfirst_node(MergeAction, cell);

			if (action->commandType == CMD_UPDATE &&
				!list_member_int(action->updateColnos, column))
				return true;
		}
	}
	return false;
}

/*
 * may_inherit tells whether a statement may update a table without setting a
 * column that it is said to set.
 */
static bool
may_inherit(const PlannedStmt *statement, Oid table, int column)
{
	ListCell   *cell;

	if (merge_may_inherit(statement->planTree, statement->rtable, table, column))
		return true;
	foreach(cell, statement->subplans)
	{
		if (merge_may_inherit((Plan *) lfirst(cell), statement->rtable, table,
							  column))
			return true;
	}
	return false;
}

/*
 * raise_unknown raises LS004 for a statement of which we do not know what it
 * is.
 */
pg_noreturn static void
raise_unknown(Relation rel, int column)
{
	ereport(ERROR,
			(errcode(ERRCODE_LEASE_NO_TOKEN),
			 errmsg("cannot tell whether the statement presents the epoch in column \"%s\" of table \"%s\"",
					NameStr(TupleDescAttr(RelationGetDescr(rel), column - 1)->attname),
					RelationGetRelationName(rel)),
			 errdetail("It is the same as before, and a function has executed the statement before the library of lease was loaded in this session."),
			 errhint("Repeat the transaction. Call lease.guard() first in functions, or set session_preload_libraries to 'lease'."),
			 errtable(rel)));
}

/*
 * source_of_same tells where an UPDATE has a value from that is the same as
 * before and in a column that it is said to set.
 */
static Source
source_of_same(const FmgrInfo *trigger, Oid table, int column)
{
	const PlannedStmt *statement = statement_executing();
	ListCell   *cell;

	if (statement)
		return may_inherit(statement, table, column) ? SOURCE_INHERITED : SOURCE_STATEMENT;

	/* The statement has begun before we were loaded. */
	if (!ActivePortal)
		return IsLogicalWorker() ? SOURCE_STATEMENT : SOURCE_UNKNOWN;
	if (MemoryContextGetParent(trigger->fn_mcxt) != ActivePortal->portalContext)
		return SOURCE_UNKNOWN;
	foreach(cell, ActivePortal->stmts)
	{
		statement = lfirst_node(PlannedStmt, cell);
		if (statement->commandType == CMD_UTILITY)
			return SOURCE_UNKNOWN;	/* EXPLAIN ANALYZE, or EXECUTE */
		if (may_inherit(statement, table, column))
			return SOURCE_INHERITED;
	}
	return SOURCE_STATEMENT;
}

/*
 * source_of tells where the row has its value in a column from.
 */
static Source
source_of(FunctionCallInfo fcinfo, StampColumns *columns, Datum value,
		  bool isnull)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	int			column = columns->epoch;
	Datum		old;

	if (isnull)
		return SOURCE_INHERITED;
	if (TRIGGER_FIRED_BY_INSERT(trigger->tg_event))
		return SOURCE_STATEMENT;
	if (!bms_is_member(column - FirstLowInvalidHeapAttributeNumber,
					   trigger->tg_updatedcols))
		return SOURCE_INHERITED;
	old = heap_getattr(trigger->tg_trigtuple, column,
					   RelationGetDescr(trigger->tg_relation), &isnull);
	if (isnull || DatumGetInt64(old) != DatumGetInt64(value))
		return SOURCE_STATEMENT;
	if (!columns->same_known)
	{
		columns->same = source_of_same(fcinfo->flinfo,
									   RelationGetRelid(trigger->tg_relation),
									   column);
		columns->same_known = true;
	}
	return columns->same;
}

/*
 * find_column returns the number of a column, or raises an error: it may have
 * been renamed.
 */
static int
find_column(Relation rel, const char *name, Oid type)
{
	int			column = SPI_fnumber(RelationGetDescr(rel), name);

	if (column <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of table \"%s\" does not exist",
						name, RelationGetRelationName(rel)),
				 errdetail("The fence of the table expects it."),
				 errhint("If it was renamed, build the fence again with lease.unprotect() and lease.protect().")));
	if (OidIsValid(type) && SPI_gettypeid(RelationGetDescr(rel), column) != type)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" of table \"%s\" is not of type bigint",
						name, RelationGetRelationName(rel)),
				 errdetail("The fence of the table expects epochs in it.")));
	return column;
}

/*
 * find_columns returns where a fence's columns are, looked up once in a query.
 */
static StampColumns *
find_columns(FunctionCallInfo fcinfo, Relation rel,
			 const FenceArguments *arguments)
{
	StampColumns *columns = (StampColumns *) fcinfo->flinfo->fn_extra;

	if (columns)
		return columns;
	columns = MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt,
									 sizeof(StampColumns));
	columns->epoch = find_column(rel, arguments->epoch_column, INT8OID);
	if (arguments->lease_column)
		columns->lease = find_column(rel, arguments->lease_column, InvalidOid);
	fcinfo->flinfo->fn_extra = columns;
	return columns;
}

/*
 * row_lease returns the name of a new row's lease.
 */
static const char *
row_lease(Relation rel, HeapTuple tuple, const FenceArguments *arguments,
		  const StampColumns *columns)
{
	char	   *lease;

	if (columns->lease == 0)
		return arguments->lease;
	lease = SPI_getvalue(tuple, RelationGetDescr(rel), columns->lease);
	if (!lease || !token_name_is_valid(lease, strlen(lease)))
		fence_raise_not_a_lease(RelationGetRelid(rel), lease);
	return lease;
}

/*
 * lease_stamp: lease.stamp(), the trigger function
 */
Datum
lease_stamp(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	Relation	rel;
	HeapTuple	tuple;
	FenceArguments arguments;
	StampColumns *columns;
	const char *lease;
	Source		source;
	Datum		value;
	bool		isnull;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("lease.stamp() was not called by a trigger manager")));
	if (!TRIGGER_FIRED_BEFORE(trigger->tg_event) ||
		!TRIGGER_FIRED_FOR_ROW(trigger->tg_event) ||
		TRIGGER_FIRED_BY_DELETE(trigger->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("lease.stamp() must be fired before INSERT or UPDATE of each row")));
	fence_parse_arguments(trigger->tg_trigger, &arguments);
	if (!arguments.epoch_column)
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("lease.stamp() must be given the name of a column"),
				 errhint("Use lease.protect() to create the triggers of a fence.")));

	rel = trigger->tg_relation;
	tuple = TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ?
		trigger->tg_newtuple : trigger->tg_trigtuple;
	columns = find_columns(fcinfo, rel, &arguments);
	lease = row_lease(rel, tuple, &arguments, columns);
	value = heap_getattr(tuple, columns->epoch, RelationGetDescr(rel), &isnull);

	source = source_of(fcinfo, columns, value, isnull);
	if (source == SOURCE_UNKNOWN && !fence_has_token(lease))
		raise_unknown(rel, columns->epoch);
	if (source == SOURCE_STATEMENT)
		fence_present(lease, RelationGetRelid(rel), arguments.epoch_column,
					  DatumGetInt64(value));
	else
	{
		int64		epoch;

		fence_admit(lease, RelationGetRelid(rel), FENCE_WRITE);
		epoch = guard_epoch(lease);
		if (isnull || DatumGetInt64(value) != epoch)
		{
			value = Int64GetDatum(epoch);
			isnull = false;
			tuple = heap_modify_tuple_by_cols(tuple, RelationGetDescr(rel),
											  1, &columns->epoch, &value,
											  &isnull);
		}
	}
	return PointerGetDatum(tuple);
}
