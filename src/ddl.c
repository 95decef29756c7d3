/*-------------------------------------------------------------------------
 *
 * ddl.c
 *	  Fences against DDL: what takes rows out of a protected table, or brings
 *	  some in, without writing any.
 *
 * Retention drops or detaches a partition, so a superseded holder must not.
 * Where a fence was built with "ddl", only a guarded transaction may
 *
 *	- drop a fence's trigger, and with it the table, the partition, the schema
 *	  that it is in, or whatever else takes the trigger along; DETACH of a
 *	  partition drops the triggers that it has from its parent;
 *	- make a table a partition or a child of another one, or end that, if either
 *	  is protected; unless the table is new and empty, as in CREATE TABLE ...
 *	  PARTITION OF;
 *	- take a column away, or compute one anew by changing its type.
 *
 * Nothing of this is found in the text of commands: object_access_hook tells it
 * of the objects, under the locks of the command.  There are two exceptions, of
 * which the event triggers tell: DETACH PARTITION CONCURRENTLY commits its first
 * half before the hook hears of it, and a change of type is one that rewrites
 * the table.
 *
 * DROP EXTENSION lease CASCADE is let through: it is the end of all fences, and
 * who may do it has been decided elsewhere.
 *
 * The library is loaded on demand.  The event trigger lease_watch_ddl fires for
 * every command before it begins, so that the hook is there.
 *
 * The hook also notes which tables have got or lost a parent, for the event
 * trigger lease_extend_fences, which then builds what a partition does not
 * inherit (the TRUNCATE trigger) and an inheritance child not at all.
 *
 * Locks: none; commands have locked the tables that they change.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/ddl.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_trigger.h"
#include "commands/event_trigger.h"
#include "commands/trigger.h"
#include "ddl.h"
#include "fence.h"
#include "fmgr.h"
#include "funcapi.h"
#include "nodes/parsenodes.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

SQL_CALLABLE(lease_watch_ddl);
SQL_CALLABLE(lease_relinked);
SQL_CALLABLE(lease_fence_due);

/* The fence of one table, as its triggers say. */
typedef struct TableFence
{
	bool		rows;			/* has it row triggers? */
	bool		own;			/* ... that come from no partitioned table? */
	bool		truncate;		/* has it a TRUNCATE trigger? */
	bool		always;			/* do the row triggers fire always? */
	FenceArguments arguments;
} TableFence;

/* Columns of lease.fence_due() */
enum
{
	DUE_ACTION,
	DUE_LEASE,
	DUE_EPOCH_COLUMN,
	DUE_LEASE_COLUMN,
	DUE_DDL,
	DUE_ALWAYS,
	DUE_COLUMNS
};

static object_access_hook_type next_object_access = NULL;

/* Is DROP EXTENSION lease the command that has begun last? */
static bool dropping_extension = false;

/*
 * Tables that have got or lost a parent in this transaction, where one of the
 * two is protected; in TopTransactionContext.
 */
static List *relinked = NIL;

/*
 * is_fence tells whether a trigger belongs to a fence of ours.
 */
static bool
is_fence(const FormData_pg_trigger *trigger)
{
	char	   *function;

	if (trigger->tgisinternal)
		return false;
	function = get_func_name(trigger->tgfoid);
	return function &&
		(strcmp(function, "fence") == 0 || strcmp(function, "stamp") == 0) &&
		catalog_is_member(ProcedureRelationId, trigger->tgfoid);
}

/*
 * begin_scan begins a scan of the triggers of a table.
 */
static SysScanDesc
begin_scan(Relation pg_trigger, Oid table)
{
	ScanKeyData key;

	ScanKeyInit(&key, Anum_pg_trigger_tgrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(table));
	return systable_beginscan(pg_trigger, TriggerRelidNameIndexId, true, NULL,
							  1, &key);
}

/*
 * read_fence reads the fence of a table.
 */
static void
read_fence(Oid table, TableFence *fence)
{
	Relation	pg_trigger = table_open(TriggerRelationId, AccessShareLock);
	SysScanDesc scan = begin_scan(pg_trigger, table);
	HeapTuple	tuple;

	memset(fence, 0, sizeof(TableFence));
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_trigger trigger = (Form_pg_trigger) GETSTRUCT(tuple);

		if (!is_fence(trigger) ||
			!fence_read_arguments(tuple, pg_trigger, &fence->arguments))
			continue;
		if (TRIGGER_FOR_TRUNCATE(trigger->tgtype))
			fence->truncate = true;
		else if (TRIGGER_FOR_AFTER(trigger->tgtype))
		{
			fence->rows = true;
			fence->own |= !OidIsValid(trigger->tgparentid);
			fence->always |= trigger->tgenabled == TRIGGER_FIRES_ALWAYS;
		}
	}
	systable_endscan(scan);
	table_close(pg_trigger, AccessShareLock);
}

/*
 * is_fenced tells whether a table has a fence, or something that is left of one.
 */
static bool
is_fenced(Oid table)
{
	TableFence	fence;

	read_fence(table, &fence);
	return fence.rows || fence.truncate;
}

/*
 * admit_change admits a change of a table, or raises an error.
 */
static void
admit_change(Oid table)
{
	TableFence	fence;

	read_fence(table, &fence);
	if ((fence.rows || fence.truncate) && fence.arguments.ddl)
		fence_admit(fence.arguments.lease, table, FENCE_DDL);
}

/*
 * trigger_dropped admits that a trigger is dropped, or raises an error.
 */
static void
trigger_dropped(Oid oid)
{
	Relation	pg_trigger = table_open(TriggerRelationId, AccessShareLock);
	SysScanDesc scan;
	ScanKeyData key;
	HeapTuple	tuple;
	FenceArguments arguments;
	Oid			table = InvalidOid;

	ScanKeyInit(&key, Anum_pg_trigger_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(oid));
	scan = systable_beginscan(pg_trigger, TriggerOidIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple) &&
		is_fence((Form_pg_trigger) GETSTRUCT(tuple)) &&
		fence_read_arguments(tuple, pg_trigger, &arguments) && arguments.ddl)
		table = ((Form_pg_trigger) GETSTRUCT(tuple))->tgrelid;
	systable_endscan(scan);
	table_close(pg_trigger, AccessShareLock);

	if (OidIsValid(table))
		fence_admit(arguments.lease, table, FENCE_DDL);
}

/*
 * is_new_and_empty tells whether this transaction has made a table and nobody
 * has put anything into it.
 */
static bool
is_new_and_empty(Oid table)
{
	Relation	rel = table_open(table, NoLock);
	bool		empty;

	if (rel->rd_createSubid == InvalidSubTransactionId)
		empty = false;
	else if (rel->rd_rel->relkind == RELKIND_RELATION)
		empty = RelationGetNumberOfBlocks(rel) == 0 && !has_subclass(table);
	else if (rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
		empty = !has_subclass(table);
	else
		empty = false;			/* who knows what a foreign table has */
	table_close(rel, NoLock);
	return empty;
}

/*
 * table_relinked admits that a table gets or loses a parent, or raises an error.
 */
static void
table_relinked(Oid child, Oid parent)
{
	MemoryContext caller_context;

	if (!is_fenced(child) && !is_fenced(parent))
		return;
	if (!is_new_and_empty(child))
	{
		admit_change(parent);
		admit_change(child);
	}
	caller_context = MemoryContextSwitchTo(TopTransactionContext);
	relinked = list_append_unique_oid(relinked, child);
	MemoryContextSwitchTo(caller_context);
}

/*
 * object_access is told what happens to objects.
 */
static void
object_access(ObjectAccessType access, Oid class, Oid object, int subobject,
			  void *arg)
{
	if (next_object_access)
		next_object_access(access, class, object, subobject, arg);

	if (access == OAT_DROP && !dropping_extension)
	{
		if (class == TriggerRelationId)
			trigger_dropped(object);
		else if (class == RelationRelationId && subobject != 0)
			admit_change(object);
	}
	else if (access == OAT_POST_ALTER && class == InheritsRelationId)
		table_relinked(object, ((ObjectAccessPostAlter *) arg)->auxiliary_id);
}

/*
 * ddl_init installs the hook.
 */
void
ddl_init(void)
{
	next_object_access = object_access_hook;
	object_access_hook = object_access;
}

/*
 * ddl_forget_transaction forgets, at the end of a transaction, what it did.
 */
void
ddl_forget_transaction(void)
{
	relinked = NIL;
	dropping_extension = false;
}

/*
 * drops_extension tells whether a command is DROP EXTENSION lease.
 */
static bool
drops_extension(Node *command)
{
	ListCell   *cell;

	if (!IsA(command, DropStmt) ||
		((DropStmt *) command)->removeType != OBJECT_EXTENSION)
		return false;
	foreach(cell, ((DropStmt *) command)->objects)
	{
		if (strcmp(strVal(lfirst(cell)), "lease") == 0)
			return true;
	}
	return false;
}

/*
 * check_detach_concurrently admits DETACH PARTITION CONCURRENTLY, or raises an
 * error.  The names are looked up without a lock; should they be others' in a
 * moment, the hook finds that before the second half.
 */
static void
check_detach_concurrently(Node *command)
{
	AlterTableStmt *alter = (AlterTableStmt *) command;
	ListCell   *cell;

	if (!IsA(command, AlterTableStmt))
		return;
	foreach(cell, alter->cmds)
	{
		AlterTableCmd *step = lfirst_node(AlterTableCmd, cell);
		PartitionCmd *detach = (PartitionCmd *) step->def;
		Oid			child;

		if (step->subtype != AT_DetachPartition || !detach->concurrent)
			continue;
		child = RangeVarGetRelid(detach->name, NoLock, true);
		if (OidIsValid(child))
			admit_change(child);
	}
}

/*
 * check_rewrite admits that a table is rewritten, or raises an error.
 */
static void
check_rewrite(void)
{
	int32		reason = DatumGetInt32(DirectFunctionCall1(pg_event_trigger_table_rewrite_reason,
														   (Datum) 0));

	if (reason & AT_REWRITE_COLUMN_REWRITE)
		admit_change(DatumGetObjectId(DirectFunctionCall1(pg_event_trigger_table_rewrite_oid,
														  (Datum) 0)));
}

/*
 * lease_watch_ddl: lease.watch_ddl(), an event trigger's function
 */
Datum
lease_watch_ddl(PG_FUNCTION_ARGS)
{
	EventTriggerData *event = (EventTriggerData *) fcinfo->context;

	if (!CALLED_AS_EVENT_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_EVENT_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("lease.watch_ddl() was not called by an event trigger manager")));

	if (strcmp(event->event, "table_rewrite") == 0)
		check_rewrite();
	else
	{
		dropping_extension = drops_extension(event->parsetree);
		check_detach_concurrently(event->parsetree);
	}
	PG_RETURN_NULL();
}

/*
 * lease_relinked: lease.relinked()
 *
 * The tables that have got or lost a parent since it was asked last.
 */
Datum
lease_relinked(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set = (ReturnSetInfo *) fcinfo->resultinfo;
	List	   *tables = relinked;
	ListCell   *cell;

	relinked = NIL;
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	foreach(cell, tables)
	{
		Datum		value = ObjectIdGetDatum(lfirst_oid(cell));
		bool		isnull = false;

		/* A savepoint that was rolled back may have taken it away. */
		if (SearchSysCacheExists1(RELOID, value))
			tuplestore_putvalues(set->setResult, set->setDesc, &value, &isnull);
	}
	return (Datum) 0;
}

/*
 * find_parents returns the parents of a table.
 */
static List *
find_parents(Oid table)
{
	Relation	pg_inherits = table_open(InheritsRelationId, AccessShareLock);
	SysScanDesc scan;
	ScanKeyData key;
	HeapTuple	tuple;
	List	   *parents = NIL;

	ScanKeyInit(&key, Anum_pg_inherits_inhrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(table));
	scan = systable_beginscan(pg_inherits, InheritsRelidSeqnoIndexId, true, NULL,
							  1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		parents = lappend_oid(parents,
							  ((Form_pg_inherits) GETSTRUCT(tuple))->inhparent);
	systable_endscan(scan);
	table_close(pg_inherits, AccessShareLock);
	return parents;
}

/*
 * same_column tells whether two names of columns, or absences of one, are equal.
 */
static bool
same_column(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

/*
 * same_fence tells whether two tables are fenced in the same way.
 */
static bool
same_fence(const FenceArguments *a, const FenceArguments *b)
{
	return strcmp(a->lease, b->lease) == 0 &&
		same_column(a->epoch_column, b->epoch_column) &&
		same_column(a->lease_column, b->lease_column);
}

/*
 * read_fence_above reads the fence that a table gets from its parents, and tells
 * whether there is one.  It raises an error if they differ, or if the table has
 * another one of its own: the same rows would be under both.
 */
static bool
read_fence_above(Oid table, const TableFence *own, TableFence *above)
{
	ListCell   *cell;

	memset(above, 0, sizeof(TableFence));
	foreach(cell, find_parents(table))
	{
		TableFence	fence;

		read_fence(lfirst_oid(cell), &fence);
		if (!fence.rows)
			continue;
		if (above->rows && !same_fence(&above->arguments, &fence.arguments))
			ereport(ERROR,
					(errcode(ERRCODE_DUPLICATE_OBJECT),
					 errmsg("table \"%s\" would be protected by two fences",
							get_rel_name(table)),
					 errdetail("Among its parents are some that are protected by lease \"%s\" and some by lease \"%s\".",
							   above->arguments.lease, fence.arguments.lease)));
		if (own->own && (get_rel_relispartition(table) ||
						 !same_fence(&own->arguments, &fence.arguments)))
			ereport(ERROR,
					(errcode(ERRCODE_DUPLICATE_OBJECT),
					 errmsg("table \"%s\" is already protected by lease \"%s\"",
							get_rel_name(table), own->arguments.lease),
					 errdetail("Its parent \"%s\" is protected by lease \"%s\".",
							   get_rel_name(lfirst_oid(cell)),
							   fence.arguments.lease),
					 errhint("Remove the fence of the table with lease.unprotect() first; it then gets that of its parent.")));
		*above = fence;
	}
	return above->rows;
}

/*
 * lease_fence_due: lease.fence_due(rel)
 *
 * What has to be done to the triggers of a table so that it is fenced as its
 * parent is: a row, or null.  In C because a query would look with the snapshot
 * of a REPEATABLE READ transaction.
 */
Datum
lease_fence_due(PG_FUNCTION_ARGS)
{
	Oid			table = PG_GETARG_OID(0);
	TableFence	own;
	TableFence	above;
	const FenceArguments *arguments = &above.arguments;
	const char *action = NULL;
	TupleDesc	desc;
	Datum		values[DUE_COLUMNS];
	bool		nulls[DUE_COLUMNS] = {false};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");

	read_fence(table, &own);
	if (read_fence_above(table, &own, &above))
	{
		if (!own.rows)
			action = "build";
		else if (!own.truncate)
			action = "truncate";
	}
	else if (own.truncate && !own.rows)
	{
		/* A partition that was detached keeps what it did not inherit. */
		action = "remove";
		arguments = &own.arguments;
	}
	if (!action)
		PG_RETURN_NULL();

	values[DUE_ACTION] = CStringGetTextDatum(action);
	values[DUE_LEASE] = CStringGetTextDatum(arguments->lease);
	values[DUE_EPOCH_COLUMN] = (Datum) 0;
	nulls[DUE_EPOCH_COLUMN] = arguments->epoch_column == NULL;
	if (arguments->epoch_column)
		values[DUE_EPOCH_COLUMN] = DirectFunctionCall1(namein, CStringGetDatum(arguments->epoch_column));
	values[DUE_LEASE_COLUMN] = (Datum) 0;
	nulls[DUE_LEASE_COLUMN] = arguments->lease_column == NULL;
	if (arguments->lease_column)
		values[DUE_LEASE_COLUMN] = DirectFunctionCall1(namein, CStringGetDatum(arguments->lease_column));
	values[DUE_DDL] = BoolGetDatum(arguments->ddl);
	values[DUE_ALWAYS] = BoolGetDatum(above.always);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc),
													  values, nulls)));
}

/*
 * ddl_find_fenced_table returns the name of a table that is protected by a
 * lease, or NULL if there is none.
 */
char *
ddl_find_fenced_table(const char *lease)
{
	Relation	pg_trigger = table_open(TriggerRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(pg_trigger, InvalidOid, false, NULL,
										  0, NULL);
	char	   *table = NULL;
	HeapTuple	tuple;

	while (table == NULL && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_trigger trigger = (Form_pg_trigger) GETSTRUCT(tuple);
		FenceArguments arguments;

		if (is_fence(trigger) &&
			fence_read_arguments(tuple, pg_trigger, &arguments) &&
			strcmp(arguments.lease, lease) == 0)
			table = get_rel_name(trigger->tgrelid);
	}
	systable_endscan(scan);
	table_close(pg_trigger, AccessShareLock);
	return table;
}
