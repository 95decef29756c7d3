/*-------------------------------------------------------------------------
 *
 * protection.c
 *	  How tables are protected, as the catalogs say.
 *
 * A fence is its triggers, and what they were given as arguments is all that
 * is recorded of it; there is no copy that could differ.  A row trigger
 * belongs to a fence if it asks for the lease that it names: if it has no
 * condition, so that its function does, or if its condition is one of ours,
 * alone or beside others of which one suffices.
 *
 * The catalogs are read as they are, and not as the transaction's snapshot
 * shows them.
 *
 * This module takes no locks but those of reading a catalog; who changes a
 * fence has locked its table.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/protection.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "args.h"
#include "catalog.h"
#include "catalog/pg_class.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "funcapi.h"
#include "nodes/primnodes.h"
#include "optimizer/optimizer.h"
#include "protection.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

SQL_CALLABLE(lease_read_trigger);
SQL_CALLABLE(lease_own_triggers);

/* All events of a row */
#define ROW_EVENTS \
	(TRIGGER_TYPE_INSERT | TRIGGER_TYPE_UPDATE | TRIGGER_TYPE_DELETE)

/* Columns of lease.read_trigger() */
enum
{
	TRIGGER_LEASE,
	TRIGGER_DDL,
	TRIGGER_EPOCH_COLUMN,
	TRIGGER_LEASE_COLUMN,
	TRIGGER_COLUMNS
};

/*
 * asks_for_lease tells whether a call of one of our conditions asks for the
 * lease of a fence: by its name or, where rows name their leases, by something
 * that is in the row.
 */
static bool
asks_for_lease(const FuncExpr *call, const FenceArguments *arguments)
{
	Node	   *lease = (Node *) linitial(call->args);
	ListCell   *cell;

	foreach(cell, call->args)
	{
		NamedArgExpr *named = (NamedArgExpr *) lfirst(cell);

		if (IsA(named, NamedArgExpr) && named->argnumber == 0)
			lease = (Node *) named->arg;
	}
	if (!IsA(lease, Const))
		return arguments->lease_column != NULL && contain_var_clause(lease);
	return !((Const *) lease)->constisnull &&
		strcmp(TextDatumGetCString(((Const *) lease)->constvalue),
			   arguments->lease) == 0;
}

/*
 * condition_asks tells whether the condition of a trigger asks for a guard.
 */
static bool
condition_asks(const Node *condition, const CatalogFunctions *functions,
			   const FenceArguments *arguments)
{
	ListCell   *cell;

	if (condition == NULL)
		return false;
	if (IsA(condition, FuncExpr))
	{
		const FuncExpr *call = (const FuncExpr *) condition;

		return (call->funcid == functions->refuses ||
				call->funcid == functions->refuses_stamp ||
				call->funcid == functions->refuses_older) &&
			asks_for_lease(call, arguments);
	}
	if (IsA(condition, BoolExpr) &&
		((const BoolExpr *) condition)->boolop == OR_EXPR)
	{
		foreach(cell, ((const BoolExpr *) condition)->args)
		{
			if (condition_asks((const Node *) lfirst(cell), functions,
							   arguments))
				return true;
		}
	}
	return false;
}

/*
 * trigger_asks tells whether a trigger, whose function is ours, asks for a
 * guard.
 */
static bool
trigger_asks(HeapTuple tuple, Relation pg_trigger,
			 const FenceArguments *arguments)
{
	CatalogFunctions functions;
	Datum		condition;
	bool		isnull;

	condition = heap_getattr(tuple, Anum_pg_trigger_tgqual,
							 RelationGetDescr(pg_trigger), &isnull);
	if (isnull)
		return true;
	return catalog_get_functions(&functions) &&
		condition_asks((Node *) stringToNode(TextDatumGetCString(condition)),
					   &functions, arguments);
}

/*
 * protection_read_trigger tells whether a trigger calls one of our functions,
 * and interprets its arguments, in the current memory context; whether its
 * condition asks for a guard is another question.
 */
bool
protection_read_trigger(HeapTuple tuple, Relation pg_trigger,
						FenceArguments *arguments)
{
	Form_pg_trigger trigger = (Form_pg_trigger) GETSTRUCT(tuple);
	CatalogFunctions functions;
	const char *args[FENCE_ARGS];
	const char *next;
	Datum		value;
	bool		isnull;

	if (trigger->tgisinternal || trigger->tgnargs > FENCE_ARGS ||
		!catalog_get_functions(&functions) ||
		(trigger->tgfoid != functions.fence &&
		 trigger->tgfoid != functions.stamp))
		return false;
	value = heap_getattr(tuple, Anum_pg_trigger_tgargs,
						 RelationGetDescr(pg_trigger), &isnull);
	if (isnull)
		return false;

	/* They are stored with a zero byte after each. */
	next = VARDATA_ANY(DatumGetByteaPCopy(value));
	for (int i = 0; i < trigger->tgnargs; i++)
	{
		args[i] = next;
		next += strlen(next) + 1;
	}
	return fence_set_arguments(arguments, trigger->tgnargs, args);
}

/*
 * protection_binds tells whether a trigger binds this session: like the fence
 * against writes, an ordinary one does not where the session acts as
 * replication does.  A trigger that is disabled is a fence that its owner has
 * opened for writes, and for nothing more.
 */
bool
protection_binds(const FormData_pg_trigger *trigger)
{
	return SessionReplicationRole != SESSION_REPLICATION_ROLE_REPLICA ||
		trigger->tgenabled == TRIGGER_FIRES_ALWAYS ||
		trigger->tgenabled == TRIGGER_FIRES_ON_REPLICA;
}

/*
 * is_made_by_protect tells whether a row trigger has one of the two names that
 * lease.protect() gives to that of INSERT.  Triggers of other fences, made by
 * hand, may stand beside it; they are asked as well, but the table's fence is
 * this one.
 */
static bool
is_made_by_protect(const FormData_pg_trigger *trigger)
{
	return strcmp(NameStr(trigger->tgname), "lease_fence") == 0 ||
		strcmp(NameStr(trigger->tgname), "lease_fence_insert") == 0;
}

/*
 * begin_scan begins a scan of the triggers of a table, in the order of names.
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
 * protection_read reads the fence of a table.
 */
void
protection_read(Oid table, Protection *protection)
{
	Relation	pg_trigger = table_open(TriggerRelationId, AccessShareLock);
	SysScanDesc scan = begin_scan(pg_trigger, table);
	HeapTuple	tuple;

	memset(protection, 0, sizeof(Protection));
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_trigger trigger = (Form_pg_trigger) GETSTRUCT(tuple);
		FenceArguments read;
		FenceArguments *arguments;
		int			events;

		if (!protection_read_trigger(tuple, pg_trigger, &read))
			continue;
		arguments = palloc(sizeof(FenceArguments));
		*arguments = read;
		if (protection_binds(trigger))
			protection->binding = lappend(protection->binding, arguments);

		if (TRIGGER_FOR_TRUNCATE(trigger->tgtype))
		{
			protection->truncate = lappend(protection->truncate, arguments);
			if (protection->events == 0)
				protection->arguments = *arguments;
			continue;
		}
		if (!TRIGGER_FOR_ROW(trigger->tgtype) ||
			!TRIGGER_FOR_AFTER(trigger->tgtype) ||
			!trigger_asks(tuple, pg_trigger, arguments))
			continue;
		if (protection->events == 0 || is_made_by_protect(trigger))
			protection->arguments = *arguments;
		events = trigger->tgtype & ROW_EVENTS;
		if (trigger->tgattr.dim1 > 0)
			events &= ~TRIGGER_TYPE_UPDATE; /* of some columns only */
		protection->events |= events;
		protection->own |= !OidIsValid(trigger->tgparentid);
		protection->always |= trigger->tgenabled == TRIGGER_FIRES_ALWAYS;
	}
	systable_endscan(scan);
	table_close(pg_trigger, AccessShareLock);
}

/*
 * protection_exists tells whether there is a fence, or something left of one.
 */
bool
protection_exists(const Protection *protection)
{
	return protection->events != 0 || protection->truncate != NIL;
}

/*
 * protection_at_truncate tells whether TRUNCATE asks for a lease.
 */
bool
protection_at_truncate(const Protection *protection, const char *lease)
{
	ListCell   *cell;

	foreach(cell, protection->truncate)
	{
		if (strcmp(((FenceArguments *) lfirst(cell))->lease, lease) == 0)
			return true;
	}
	return false;
}

/*
 * protection_is_complete tells whether every event of a row asks.
 */
bool
protection_is_complete(const Protection *protection)
{
	return protection->events == ROW_EVENTS;
}

/*
 * same_column tells whether two names of columns, or absences of one, are
 * equal.
 */
static bool
same_column(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

/*
 * protection_is_same tells whether the rows of two tables are fenced in the
 * same way; ddl and always may differ.
 */
bool
protection_is_same(const FenceArguments *a, const FenceArguments *b)
{
	return strcmp(a->lease, b->lease) == 0 &&
		same_column(a->epoch_column, b->epoch_column) &&
		same_column(a->lease_column, b->lease_column);
}

/*
 * protection_is_temporary tells whether a table is temporary, which is nobody
 * else's business, or is not there any more.
 */
bool
protection_is_temporary(Oid table)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(table));
	bool		temporary = true;

	if (HeapTupleIsValid(tuple))
	{
		temporary = ((Form_pg_class) GETSTRUCT(tuple))->relpersistence ==
			RELPERSISTENCE_TEMP;
		ReleaseSysCache(tuple);
	}
	return temporary;
}

/*
 * protection_find_table returns the name of a table that is protected by a
 * lease, the one with the lowest OID, or NULL if there is none.
 */
char *
protection_find_table(const char *lease)
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

		if (protection_read_trigger(tuple, pg_trigger, &arguments) &&
			strcmp(arguments.lease, lease) == 0 &&
			!protection_is_temporary(trigger->tgrelid) &&
			(!OidIsValid(table) || trigger->tgrelid < table))
			table = trigger->tgrelid;
	}
	systable_endscan(scan);
	table_close(pg_trigger, AccessShareLock);
	return OidIsValid(table) ? get_rel_name(table) : NULL;
}

/*
 * protection_set_name sets a column of a result to a name, or to null.
 */
void
protection_set_name(Datum *values, bool *nulls, int n, const char *name)
{
	nulls[n] = name == NULL;
	values[n] = name ? DirectFunctionCall1(namein, CStringGetDatum(name)) :
		(Datum) 0;
}

/*
 * lease_read_trigger: lease.read_trigger(trigger)
 *
 * What the arguments of a trigger of a fence say, or null if it is none or
 * asks nobody; for the view lease.fence.
 */
Datum
lease_read_trigger(PG_FUNCTION_ARGS)
{
	Relation	pg_trigger;
	SysScanDesc scan;
	ScanKeyData key;
	HeapTuple	tuple;
	FenceArguments arguments;
	TupleDesc	desc;
	Datum		values[TRIGGER_COLUMNS];
	bool		nulls[TRIGGER_COLUMNS] = {false};
	bool		found;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");

	pg_trigger = table_open(TriggerRelationId, AccessShareLock);
	ScanKeyInit(&key, Anum_pg_trigger_oid, BTEqualStrategyNumber, F_OIDEQ,
				PG_GETARG_DATUM(0));
	scan = systable_beginscan(pg_trigger, TriggerOidIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	found = HeapTupleIsValid(tuple) &&
		protection_read_trigger(tuple, pg_trigger, &arguments) &&
		trigger_asks(tuple, pg_trigger, &arguments);
	systable_endscan(scan);
	table_close(pg_trigger, AccessShareLock);
	if (!found)
		PG_RETURN_NULL();

	values[TRIGGER_LEASE] = CStringGetTextDatum(arguments.lease);
	values[TRIGGER_DDL] = BoolGetDatum(arguments.ddl);
	protection_set_name(values, nulls, TRIGGER_EPOCH_COLUMN,
						arguments.epoch_column);
	protection_set_name(values, nulls, TRIGGER_LEASE_COLUMN,
						arguments.lease_column);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc),
													  values, nulls)));
}

/*
 * lease_own_triggers: lease.own_triggers(rel)
 *
 * The names of the triggers of a table's fence, but for those that come from a
 * partitioned table.  In C because a query would look with the snapshot of a
 * REPEATABLE READ transaction.
 */
Datum
lease_own_triggers(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set = (ReturnSetInfo *) fcinfo->resultinfo;
	Relation	pg_trigger;
	SysScanDesc scan;
	HeapTuple	tuple;

	if (PG_ARGISNULL(0))
		arg_raise_null("table");

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	pg_trigger = table_open(TriggerRelationId, AccessShareLock);
	scan = begin_scan(pg_trigger, PG_GETARG_OID(0));
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_trigger trigger = (Form_pg_trigger) GETSTRUCT(tuple);
		FenceArguments arguments;
		Datum		value = NameGetDatum(&trigger->tgname);
		bool		isnull = false;

		if (!OidIsValid(trigger->tgparentid) &&
			protection_read_trigger(tuple, pg_trigger, &arguments))
			tuplestore_putvalues(set->setResult, set->setDesc, &value, &isnull);
	}
	systable_endscan(scan);
	table_close(pg_trigger, AccessShareLock);
	return (Datum) 0;
}
