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
 *	- make a table a partition or a child of another one, if either is protected,
 *	  unless it is new and empty, as in CREATE TABLE ... PARTITION OF; or end
 *	  that;
 *	- take a column away, or compute one anew by changing its type or the
 *	  expression that generates it.
 *
 * Nothing of this is found in the text of commands: object_access_hook tells
 * it of the objects, under the locks of the command.  There are two
 * exceptions, of which the event triggers tell.  DETACH PARTITION CONCURRENTLY
 * commits its first half before the hook hears of it, so it is asked for
 * beforehand, by a name that is not locked yet.  And a change of type computes
 * a column anew if the table is rewritten; of an expression, the hook tells,
 * whether it is stored or not.
 *
 * Where the session acts as replication does (session_replication_role), that
 * holds for fences built with "always", as it does for writes.
 *
 * Without "ddl" these are free to the owner of the table.  PostgreSQL lets
 * whoever has TRIGGER on a table make or replace a trigger; where that belongs
 * to a fence, before or after, we ask for the owner.  Temporary tables are
 * never fenced.
 *
 * DROP EXTENSION lease CASCADE is let through: it is the end of all fences,
 * and who may do it has been decided elsewhere.  It is known by the lock that
 * it has on the extension.
 *
 * Not covered is what changes rows neither by writing nor as objects:
 * attributes of a composite type, options of a foreign table.
 *
 * The library is loaded on demand.  The event trigger lease_watch_ddl fires
 * for every command before it begins, so that the hook is there.
 *
 * The hook also notes which tables have got or lost a parent, for the event
 * trigger lease_extend_fences, which then builds what a partition does not
 * inherit (the TRUNCATE trigger) and an inheritance child not at all.
 *
 * Locks: those of reading a catalog, and what guard.c takes; commands have
 * locked the tables that they change, but for DETACH PARTITION CONCURRENTLY.
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
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_attrdef.h"
#include "catalog/pg_class.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_inherits.h"
#include "commands/event_trigger.h"
#include "commands/extension.h"
#include "ddl.h"
#include "fence.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "protection.h"
#include "storage/bufmgr.h"
#include "storage/lock.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

SQL_CALLABLE(lease_watch_ddl);
SQL_CALLABLE(lease_relinked);
SQL_CALLABLE(lease_fence_due);

/* A table that has got or lost a parent, where one of the two is protected. */
typedef struct Relinked
{
	Oid			table;
	bool		detached;		/* a partition that was detached */
	SubTransactionId subid;		/* where that was */
	SubTransactionId seen;		/* where lease_extend_fences was told */
} Relinked;

/* Columns of lease.relinked() */
enum
{
	RELINKED_REL,
	RELINKED_DETACHED,
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

/* The Relinked of this transaction, in TopTransactionContext. */
static List *relinked = NIL;

/*
 * dropping_extension tells whether this transaction is dropping the extension:
 * whether it holds the lock that only dropping it takes.
 */
static bool
dropping_extension(void)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, ExtensionRelationId,
					   get_extension_oid("lease", true), 0);
	return lock_held_by_me(&tag, AccessExclusiveLock);
}

/*
 * admit_ddl admits a change of a table with some protection, or raises an
 * error.
 */
static void
admit_ddl(Oid table, const Protection *protection)
{
	ListCell   *cell;

	foreach(cell, protection->binding)
	{
		FenceArguments *arguments = (FenceArguments *) lfirst(cell);

		if (arguments->ddl)
			fence_admit(arguments->lease, table, FENCE_DDL);
	}
}

/*
 * admit_change admits a change of a table, or raises an error.
 */
static void
admit_change(Oid table)
{
	Protection	protection;

	if (protection_is_temporary(table))
		return;
	protection_read(table, &protection);
	admit_ddl(table, &protection);
}

/*
 * check_owner raises an error unless the current user owns a table.
 */
static void
check_owner(Oid table)
{
	if (!relation_ownercheck(table, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, get_rel_name(table));
}

/*
 * find_trigger finds a trigger, and tells whether it is there and belongs to
 * the fence of a table that is not temporary.  A null snapshot is that of the
 * catalog.
 */
static bool
find_trigger(Oid oid, Snapshot snapshot, FormData_pg_trigger *trigger,
			 FenceArguments *arguments, ItemPointer tid)
{
	Relation	pg_trigger = table_open(TriggerRelationId, AccessShareLock);
	SysScanDesc scan;
	ScanKeyData key;
	HeapTuple	tuple;
	bool		found = false;

	ScanKeyInit(&key, Anum_pg_trigger_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(oid));
	scan = systable_beginscan(pg_trigger, TriggerOidIndexId, true, snapshot,
							  1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		*trigger = *(Form_pg_trigger) GETSTRUCT(tuple);
		*tid = tuple->t_self;
		found = protection_read_trigger(tuple, pg_trigger, arguments) &&
			!protection_is_temporary(trigger->tgrelid);
	}
	systable_endscan(scan);
	table_close(pg_trigger, AccessShareLock);
	return found;
}

/*
 * trigger_dropped admits that a trigger is dropped, or raises an error.
 */
static void
trigger_dropped(Oid oid)
{
	FormData_pg_trigger trigger;
	FenceArguments arguments;
	ItemPointerData tid;

	if (find_trigger(oid, NULL, &trigger, &arguments, &tid) &&
		arguments.ddl && protection_binds(&trigger) && !dropping_extension())
		fence_admit(arguments.lease, trigger.tgrelid, FENCE_DDL);
}

/*
 * trigger_made admits that a trigger is made or replaced, or raises an error.
 */
static void
trigger_made(Oid oid)
{
	FormData_pg_trigger trigger;
	FenceArguments arguments;
	ItemPointerData made;
	ItemPointerData tid;

	ItemPointerSetInvalid(&made);
	if (find_trigger(oid, SnapshotSelf, &trigger, &arguments, &made))
		check_owner(trigger.tgrelid);
	if (find_trigger(oid, NULL, &trigger, &arguments, &tid) &&
		!ItemPointerEquals(&made, &tid))
	{
		check_owner(trigger.tgrelid);
		if (arguments.ddl && protection_binds(&trigger))
			fence_admit(arguments.lease, trigger.tgrelid, FENCE_DDL);
	}
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
	Relation	rel = table_open(table, NoLock);	/* the command has locked
													 * it */
	bool		empty;

	if (rel->rd_createSubid == InvalidSubTransactionId || rel->rd_refcnt > 2)
		empty = false;			/* a statement may be writing to it */
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
 * is_weaker tells whether a fence lets something through that another does not.
 */
static bool
is_weaker(const Protection *own, const Protection *above)
{
	return !protection_is_complete(own) ||
		(above->arguments.ddl && !own->arguments.ddl) ||
		(above->always && !own->always);
}

/*
 * check_fences raises an error if a table has a fence of its own that cannot
 * stand beside that of a parent: the same rows would be under both.
 */
static void
check_fences(Oid table, const Protection *own, Oid parent,
			 const Protection *above)
{
	bool		partition = get_rel_relkind(parent) == RELKIND_PARTITIONED_TABLE;

	if (own->own && above->events != 0 &&
		(partition || is_weaker(own, above) ||
		 !protection_is_same(&own->arguments, &above->arguments)))
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("table \"%s\" is already protected by lease \"%s\"",
						get_rel_name(table), own->arguments.lease),
				 errdetail("Its parent \"%s\" is protected by lease \"%s\".",
						   get_rel_name(parent), above->arguments.lease),
				 errhint("Remove the fence of the table with lease.unprotect() first; it then gets that of its parent, as that is.")));
}

/*
 * table_relinked admits that a table gets or loses a parent, or raises an
 * error. What the command itself has done to pg_inherits is not to be seen
 * yet.
 */
static void
table_relinked(Oid child, Oid parent)
{
	MemoryContext caller_context;
	Protection	own;
	Protection	above;
	Relinked   *entry;
	bool		leaves;

	if (protection_is_temporary(child))
		return;
	protection_read(child, &own);
	protection_read(parent, &above);
	if (!protection_exists(&own) && !protection_exists(&above))
		return;

	if (!is_new_and_empty(child))
	{
		admit_ddl(parent, &above);
		admit_ddl(child, &own);
	}
	leaves = list_member_oid(find_parents(child), parent);
	if (!leaves)
		check_fences(child, &own, parent, &above);

	caller_context = MemoryContextSwitchTo(TopTransactionContext);
	entry = palloc(sizeof(Relinked));
	entry->table = child;
	entry->detached = leaves && get_rel_relispartition(child);
	entry->subid = GetCurrentSubTransactionId();
	entry->seen = InvalidSubTransactionId;
	relinked = lappend(relinked, entry);
	MemoryContextSwitchTo(caller_context);
}

/*
 * expression_dropped admits that the expression of a generated column is
 * replaced, or raises an error.  A column that becomes an ordinary one has
 * been made that before, and keeps its values.
 */
static void
expression_dropped(Oid attrdef)
{
	ObjectAddress column = GetAttrDefaultColumnAddress(attrdef);

	if (OidIsValid(column.objectId) &&
		get_attgenerated(column.objectId, (AttrNumber) column.objectSubId) != '\0')
		admit_change(column.objectId);
}

/*
 * object_accessed is told what happens to objects.
 */
static void
object_accessed(ObjectAccessType type, Oid catalog, Oid object, int subobject,
				void *arg)
{
	if (next_object_access)
		next_object_access(type, catalog, object, subobject, arg);

	if (catalog == TriggerRelationId)
	{
		if (type == OAT_POST_CREATE)
			trigger_made(object);
		else if (type == OAT_DROP)
			trigger_dropped(object);
	}
	else if (catalog == RelationRelationId && type == OAT_DROP &&
			 subobject != 0)
		admit_change(object);	/* a column */
	else if (catalog == AttrDefaultRelationId && type == OAT_DROP &&
			 !(((ObjectAccessDrop *) arg)->dropflags & PERFORM_DELETION_INTERNAL))
		expression_dropped(object); /* internally: by a change of type */
	else if (catalog == InheritsRelationId && type == OAT_POST_ALTER)
		table_relinked(object, ((ObjectAccessPostAlter *) arg)->auxiliary_id);
}

/*
 * ddl_init installs the hook.
 */
void
ddl_init(void)
{
	next_object_access = object_access_hook;
	object_access_hook = object_accessed;
}

/*
 * ddl_end_transaction forgets, at the end of a transaction, what it did.
 */
void
ddl_end_transaction(void)
{
	relinked = NIL;
}

/*
 * ddl_end_subtransaction hands what a subtransaction did to its parent, or
 * forgets it.
 */
void
ddl_end_subtransaction(SubTransactionId subid, SubTransactionId parent_subid,
					   bool committed)
{
	ListCell   *cell;

	foreach(cell, relinked)
	{
		Relinked   *entry = (Relinked *) lfirst(cell);

		/* What was done about it goes away, too. */
		if (entry->seen == subid)
			entry->seen = committed ? parent_subid : InvalidSubTransactionId;
		if (entry->subid != subid)
			continue;
		if (committed)
			entry->subid = parent_subid;
		else
		{
			pfree(entry);
			relinked = foreach_delete_current(relinked, cell);
		}
	}
}

/*
 * check_detach_concurrently admits DETACH PARTITION CONCURRENTLY, or raises an
 * error.
 */
static void
check_detach_concurrently(Node *command)
{
	ListCell   *cell;

	if (!IsA(command, AlterTableStmt))
		return;
	foreach(cell, ((AlterTableStmt *) command)->cmds)
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
	Datum		reason = DirectFunctionCall1(pg_event_trigger_table_rewrite_reason,
											 (Datum) 0);
	Datum		table = DirectFunctionCall1(pg_event_trigger_table_rewrite_oid,
											(Datum) 0);

	if (DatumGetInt32(reason) & AT_REWRITE_COLUMN_REWRITE)
		admit_change(DatumGetObjectId(table));
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
		check_detach_concurrently(event->parsetree);
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
	ListCell   *cell;

	InitMaterializedSRF(fcinfo, 0);
	foreach(cell, relinked)
	{
		Relinked   *entry = (Relinked *) lfirst(cell);
		Datum		values[RELINKED_COLUMNS];
		bool		nulls[RELINKED_COLUMNS] = {false};

		if (entry->seen != InvalidSubTransactionId)
			continue;
		entry->seen = GetCurrentSubTransactionId();

		/* The transaction may have dropped it since. */
		if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(entry->table)))
			continue;
		values[RELINKED_REL] = ObjectIdGetDatum(entry->table);
		values[RELINKED_DETACHED] = BoolGetDatum(entry->detached);
		tuplestore_putvalues(set->setResult, set->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/*
 * read_above reads the fence that a table gets from its parents, and tells
 * whether there is one.  It raises an error if they differ.
 */
static bool
read_above(Oid table, const Protection *own, Protection *above)
{
	ListCell   *cell;

	memset(above, 0, sizeof(Protection));
	foreach(cell, find_parents(table))
	{
		Oid			parent = lfirst_oid(cell);
		Protection	protection;

		protection_read(parent, &protection);
		if (protection.events == 0)
			continue;
		if (above->events != 0 &&
			!protection_is_same(&above->arguments, &protection.arguments))
			ereport(ERROR,
					(errcode(ERRCODE_DUPLICATE_OBJECT),
					 errmsg("table \"%s\" would be protected by two fences",
							get_rel_name(table)),
					 errdetail("Among its parents are some that are protected by lease \"%s\" and some by lease \"%s\".",
							   above->arguments.lease,
							   protection.arguments.lease)));

		/*
		 * What was checked for the table itself holds for those below it,
		 * too.
		 */
		check_fences(table, own, parent, &protection);
		protection.arguments.ddl |= above->arguments.ddl;
		protection.always |= above->always;
		*above = protection;
	}
	return above->events != 0;
}

/*
 * lease_fence_due: lease.fence_due(rel)
 *
 * What has to be done to the triggers of a table so that it is fenced as its
 * parent is: a row, or null.  In C because a query would look with the
 * snapshot of a REPEATABLE READ transaction.
 */
Datum
lease_fence_due(PG_FUNCTION_ARGS)
{
	Oid			table = PG_ARGISNULL(0) ? InvalidOid : PG_GETARG_OID(0);
	Protection	own;
	Protection	above;
	const FenceArguments *arguments = &above.arguments;
	const char *action = NULL;
	TupleDesc	desc;
	Datum		values[DUE_COLUMNS];
	bool		nulls[DUE_COLUMNS] = {false};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");

	protection_read(table, &own);
	if (read_above(table, &own, &above))
	{
		if (!protection_is_complete(&own))
			action = "build";
		else if (!protection_at_truncate(&own, above.arguments.lease))
		{
			action = "truncate";
			arguments = &own.arguments;
		}
	}
	else if (own.truncate != NIL && own.events == 0)
	{
		/* A partition that was detached keeps what it did not inherit. */
		action = "remove";
		arguments = &own.arguments;
	}
	if (!action)
		PG_RETURN_NULL();

	values[DUE_ACTION] = CStringGetTextDatum(action);
	values[DUE_LEASE] = CStringGetTextDatum(arguments->lease);
	protection_set_name(values, nulls, DUE_EPOCH_COLUMN, arguments->epoch_column);
	protection_set_name(values, nulls, DUE_LEASE_COLUMN, arguments->lease_column);
	values[DUE_DDL] = BoolGetDatum(arguments->ddl);
	values[DUE_ALWAYS] = BoolGetDatum(above.always);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc),
													  values, nulls)));
}
