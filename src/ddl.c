/*-------------------------------------------------------------------------
 *
 * ddl.c
 *	  Fences against DDL: what takes rows out of a protected table, or brings
 *	  some in, without writing any.
 *
 * Retention drops or detaches a partition, so a superseded holder must not.
 * Where a fence was built with "ddl", only a guarded transaction may
 *
 *	- drop or replace a fence's trigger; and so drop the table, the partition,
 *	  the schema that it is in, or whatever else takes the trigger along; DETACH
 *	  of a partition drops the triggers that it has from its parent;
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
 * Where the session acts as replication does (session_replication_role), that
 * holds for fences built with "always", as it does for writes.
 *
 * Without "ddl" these are free to the owner of the table; replacing a trigger, for
 * which PostgreSQL asks for less, is too, and for nobody else.  Temporary tables
 * are nobody else's business and never fenced.
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
#include "args.h"
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
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
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
SQL_CALLABLE(lease_own_triggers);

/* The fence of one table, as its triggers say. */
typedef struct TableFence
{
	bool		rows;			/* has it row triggers? */
	bool		own;			/* ... that come from no partitioned table? */
	bool		truncate;		/* has it a TRUNCATE trigger? */
	bool		always;			/* do the row triggers fire always? */
	FenceArguments arguments;	/* of the row triggers, else of the others */
	List	   *binding;		/* FenceArguments of all that bind this
								 * session */
} TableFence;

/* A table that has got or lost a parent. */
typedef struct Relinked
{
	Oid			table;
	bool		left;			/* a partition that was detached */
} Relinked;

/* Columns of lease.relinked() */
enum
{
	RELINKED_REL,
	RELINKED_LEFT,
	RELINKED_COLUMNS
};

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

/* ... or CREATE OR REPLACE TRIGGER? */
static bool replacing_trigger = false;

/*
 * What has got or lost a parent in this transaction, where one of the two is
 * protected; in TopTransactionContext.
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
 * is_made_by_protect tells whether a row trigger has a name that lease.protect()
 * gives; a table has one of the two.
 */
static bool
is_made_by_protect(const FormData_pg_trigger *trigger)
{
	return strcmp(NameStr(trigger->tgname), "lease_fence") == 0 ||
		strcmp(NameStr(trigger->tgname), "lease_fence_insert") == 0;
}

/*
 * binds tells whether a trigger binds this session: like the fence against writes,
 * an ordinary one does not where the session acts as replication does.  A trigger
 * that is disabled is a fence that its owner has opened for writes, and not more.
 */
static bool
binds(const FormData_pg_trigger *trigger)
{
	return SessionReplicationRole != SESSION_REPLICATION_ROLE_REPLICA ||
		trigger->tgenabled == TRIGGER_FIRES_ALWAYS ||
		trigger->tgenabled == TRIGGER_FIRES_ON_REPLICA;
}

/*
 * is_temporary tells whether a table is temporary, or does not exist.
 */
static bool
is_temporary(Oid table)
{
	return get_rel_persistence(table) == RELPERSISTENCE_TEMP;
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
		FenceArguments *arguments;

		if (!is_fence(trigger))
			continue;
		arguments = palloc(sizeof(FenceArguments));
		if (!fence_read_arguments(tuple, pg_trigger, arguments))
			continue;

		if (binds(trigger))
			fence->binding = lappend(fence->binding, arguments);
		if (TRIGGER_FOR_TRUNCATE(trigger->tgtype))
		{
			fence->truncate = true;
			if (!fence->rows)
				fence->arguments = *arguments;
		}
		else if (TRIGGER_FOR_AFTER(trigger->tgtype))
		{
			/* Beside those that protect() makes there may be others. */
			if (!fence->rows || is_made_by_protect(trigger))
				fence->arguments = *arguments;
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

	if (is_temporary(table))
		return false;
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
	ListCell   *cell;

	if (is_temporary(table))
		return;
	read_fence(table, &fence);
	foreach(cell, fence.binding)
	{
		FenceArguments *arguments = (FenceArguments *) lfirst(cell);

		if (arguments->ddl)
			fence_admit(arguments->lease, table, FENCE_DDL);
	}
}

/*
 * trigger_goes admits that a trigger is dropped or replaced, or raises an error.
 * One that is being replaced is still found as it was.
 */
static void
trigger_goes(Oid oid, bool replaced)
{
	Relation	pg_trigger = table_open(TriggerRelationId, AccessShareLock);
	SysScanDesc scan;
	ScanKeyData key;
	HeapTuple	tuple;
	FenceArguments arguments;
	bool		binding = false;
	Oid			table = InvalidOid;

	ScanKeyInit(&key, Anum_pg_trigger_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(oid));
	scan = systable_beginscan(pg_trigger, TriggerOidIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple) &&
		is_fence((Form_pg_trigger) GETSTRUCT(tuple)) &&
		fence_read_arguments(tuple, pg_trigger, &arguments))
	{
		table = ((Form_pg_trigger) GETSTRUCT(tuple))->tgrelid;
		binding = binds((Form_pg_trigger) GETSTRUCT(tuple));
	}
	systable_endscan(scan);
	table_close(pg_trigger, AccessShareLock);

	if (!OidIsValid(table) || is_temporary(table))
		return;
	if (replaced && !relation_ownercheck(table, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, get_rel_name(table));
	if (arguments.ddl && binding)
		fence_admit(arguments.lease, table, FENCE_DDL);
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
 * raise_two_fences raises 42710.
 */
pg_noreturn static void
raise_two_fences(Oid table, const FenceArguments *own, Oid parent,
				 const FenceArguments *above)
{
	ereport(ERROR,
			(errcode(ERRCODE_DUPLICATE_OBJECT),
			 errmsg("table \"%s\" is already protected by lease \"%s\"",
					get_rel_name(table), own->lease),
			 errdetail("Its parent \"%s\" is protected by lease \"%s\".",
					   get_rel_name(parent), above->lease),
			 errhint("Remove the fence of the table with lease.unprotect() first; it then gets that of its parent.")));
}

/*
 * check_own_fence raises an error if a table has a fence of its own that cannot
 * stand beside that of a parent: the same rows would be under both.
 */
static void
check_own_fence(Oid table, const TableFence *own, Oid parent,
				const TableFence *above)
{
	bool		partition = get_rel_relkind(parent) == RELKIND_PARTITIONED_TABLE;

	if (above->rows && own->own &&
		(partition || !same_fence(&own->arguments, &above->arguments)))
		raise_two_fences(table, &own->arguments, parent, &above->arguments);
}

/*
 * is_child tells whether a table is a child of another one.
 */
static bool
is_child(Oid child, Oid parent)
{
	return list_member_oid(find_parents(child), parent);
}

/*
 * table_relinked admits that a table gets or loses a parent, or raises an error.
 * What the command itself has done to pg_inherits is not to be seen yet.
 */
static void
table_relinked(Oid child, Oid parent)
{
	MemoryContext caller_context;
	Relinked   *entry;
	bool		leaves;

	if (is_temporary(child) || (!is_fenced(child) && !is_fenced(parent)))
		return;
	leaves = is_child(child, parent);
	if (!is_new_and_empty(child))
	{
		admit_change(parent);
		admit_change(child);
	}
	if (!leaves)
	{
		TableFence	own;
		TableFence	above;

		read_fence(child, &own);
		read_fence(parent, &above);
		check_own_fence(child, &own, parent, &above);
	}

	caller_context = MemoryContextSwitchTo(TopTransactionContext);
	entry = palloc(sizeof(Relinked));
	entry->table = child;
	entry->left = leaves && get_rel_relispartition(child);
	relinked = lappend(relinked, entry);
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

	if (access == OAT_POST_CREATE && replacing_trigger &&
		class == TriggerRelationId)
		trigger_goes(object, true);
	else if (access == OAT_DROP && !dropping_extension)
	{
		if (class == TriggerRelationId)
			trigger_goes(object, false);
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
	replacing_trigger = false;
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
		replacing_trigger = IsA(event->parsetree, CreateTrigStmt) &&
			((CreateTrigStmt *) event->parsetree)->replace;
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
	InitMaterializedSRF(fcinfo, 0);
	foreach(cell, tables)
	{
		Relinked   *entry = (Relinked *) lfirst(cell);
		Datum		values[RELINKED_COLUMNS];
		bool		nulls[RELINKED_COLUMNS] = {false};

		/* A savepoint that was rolled back may have taken it away. */
		if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(entry->table)))
			continue;
		values[RELINKED_REL] = ObjectIdGetDatum(entry->table);
		values[RELINKED_LEFT] = BoolGetDatum(entry->left);
		tuplestore_putvalues(set->setResult, set->setDesc, values, nulls);
	}
	return (Datum) 0;
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
		check_own_fence(table, own, lfirst_oid(cell), &fence);
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
	Oid			table = PG_ARGISNULL(0) ? InvalidOid : PG_GETARG_OID(0);
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
 * lease_own_triggers: lease.own_triggers(rel, lease)
 *
 * The names of the triggers of a table that belong to its fence by a lease and
 * come from no partitioned table.  In C for the same reason.
 */
Datum
lease_own_triggers(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set = (ReturnSetInfo *) fcinfo->resultinfo;
	char	   *lease;
	Relation	pg_trigger;
	SysScanDesc scan;
	HeapTuple	tuple;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		arg_raise_null("table and lease");
	lease = text_to_cstring(PG_GETARG_TEXT_PP(1));

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	pg_trigger = table_open(TriggerRelationId, AccessShareLock);
	scan = begin_scan(pg_trigger, PG_GETARG_OID(0));
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_trigger trigger = (Form_pg_trigger) GETSTRUCT(tuple);
		FenceArguments arguments;
		Datum		value;
		bool		isnull = false;

		if (!is_fence(trigger) || OidIsValid(trigger->tgparentid) ||
			!fence_read_arguments(tuple, pg_trigger, &arguments) ||
			strcmp(arguments.lease, lease) != 0)
			continue;
		value = NameGetDatum(&trigger->tgname);
		tuplestore_putvalues(set->setResult, set->setDesc, &value, &isnull);
	}
	systable_endscan(scan);
	table_close(pg_trigger, AccessShareLock);
	return (Datum) 0;
}

/*
 * ddl_find_fenced_table returns the name of a table that is protected by a
 * lease, the one that was made first, or NULL if there is none.
 */
char *
ddl_find_fenced_table(const char *lease)
{
	Relation	pg_trigger = table_open(TriggerRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(pg_trigger, InvalidOid, false, NULL,
										  0, NULL);
	Oid			table = InvalidOid;
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_trigger trigger = (Form_pg_trigger) GETSTRUCT(tuple);
		FenceArguments arguments;

		if (is_fence(trigger) && !is_temporary(trigger->tgrelid) &&
			fence_read_arguments(tuple, pg_trigger, &arguments) &&
			strcmp(arguments.lease, lease) == 0 &&
			(!OidIsValid(table) || trigger->tgrelid < table))
			table = trigger->tgrelid;
	}
	systable_endscan(scan);
	table_close(pg_trigger, AccessShareLock);
	return OidIsValid(table) ? get_rel_name(table) : NULL;
}
