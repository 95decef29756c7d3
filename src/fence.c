/*-------------------------------------------------------------------------
 *
 * fence.c
 *	  The fence: writes to a protected table need a guarded transaction.
 *
 * A protected table carries the trigger
 *
 *		AFTER INSERT OR UPDATE OR DELETE ... FOR EACH ROW
 *			WHEN (lease.refuses('planner', 'the_table'))
 *			EXECUTE FUNCTION lease.fence('planner', 'ddl', '', '')
 *
 * The condition does the work: it is evaluated for each row as it will stand,
 * inside the statement, and either raises an error or is false, so that no
 * trigger event is ever queued.  Within a query it remembers that the
 * transaction is guarded, together with the generation of the guards; so a row
 * costs a comparison, and a savepoint that is rolled back costs a new look.
 *
 * What makes such a trigger dear is that PostgreSQL reads each row once more
 * that is updated or deleted, before it looks at the condition.  So where the
 * transaction is guarded already when a statement begins to run, the trigger
 * is left out of that statement.  Its condition would be false for every row:
 * a guard goes away only with the subtransaction that made it, and no
 * statement that writes outlives the one in which it runs.
 *
 * Where a column of the row names its lease, or carries its token, there is
 * one such trigger for each of INSERT, UPDATE and DELETE, because a condition
 * may mention the old and the new row only where there is one:
 *
 *		lease.refuses(lease, table)			every row, old and new
 *		lease.refuses_stamp(lease, table, epoch)	a new row, which must carry
 *			the epoch of a guard; so that it does whatever triggers have run
 *			after stamp.c, which has put it there
 *		lease.refuses_older(lease, table, epoch)	an old row, which must not
 *			carry a later epoch than the transaction's
 *
 * The trigger function makes the check of lease.refuses, for TRUNCATE, whose
 * triggers fire once per statement, and for whoever creates the trigger
 * without its condition.
 *
 * A transaction without a guard for the lease may still carry a token in the
 * connection's start-up option lease.token; it is guarded with that at its
 * first protected write, on behalf of the session user, who made the
 * connection.
 *
 * All are executable by PUBLIC, because whoever creates a partition needs
 * them; they give nothing away, and validate their arguments.
 *
 * This module takes no locks but what guard.c takes for it.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/fence.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "args.h"
#include "catalog.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "fence.h"
#include "fmgr.h"
#include "guard.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "nodes/primnodes.h"
#include "token.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

SQL_CALLABLE(lease_refuses);
SQL_CALLABLE(lease_refuses_stamp);
SQL_CALLABLE(lease_refuses_older);
SQL_CALLABLE(lease_row_lease);
SQL_CALLABLE(lease_fence);

/* Positions of the arguments of a fence's triggers */
#define FENCE_ARG_LEASE			0
#define FENCE_ARG_DDL			1
#define FENCE_ARG_EPOCH_COLUMN	2
#define FENCE_ARG_LEASE_COLUMN	3

/* What a query remembers about its last check, in fn_extra. */
typedef struct FenceMemory
{
	uint64		generation;		/* of the guards; 0: nothing yet */
	int64		epoch;			/* of the guard, where a row has one */
	size_t		length;
	char		name[LEASE_NAME_MAX + 1];
} FenceMemory;

/* What is being admitted, for error messages. */
typedef struct Admission
{
	const char *lease;
	const char *schema;			/* of the table, or NULL */
	const char *table;			/* NULL if it is not known */
	const char *column;			/* in which a row carries the token, or NULL */
	FenceAction action;
} Admission;

/*
 * fence_set_arguments interprets the arguments of a fence's trigger and tells
 * whether they are any.  A trigger that was made by hand may have just the
 * first.
 */
bool
fence_set_arguments(FenceArguments *arguments, int nargs, const char *const *args)
{
	if (nargs < 1 || nargs > FENCE_ARGS ||
		!token_name_is_valid(args[FENCE_ARG_LEASE],
							 strlen(args[FENCE_ARG_LEASE])))
		return false;
	if (nargs > FENCE_ARG_DDL && args[FENCE_ARG_DDL][0] != '\0' &&
		strcmp(args[FENCE_ARG_DDL], "ddl") != 0)
		return false;

	memset(arguments, 0, sizeof(FenceArguments));
	arguments->lease = args[FENCE_ARG_LEASE];
	arguments->ddl = nargs > FENCE_ARG_DDL && args[FENCE_ARG_DDL][0] != '\0';
	if (nargs > FENCE_ARG_EPOCH_COLUMN && args[FENCE_ARG_EPOCH_COLUMN][0])
		arguments->epoch_column = args[FENCE_ARG_EPOCH_COLUMN];
	if (nargs > FENCE_ARG_LEASE_COLUMN && args[FENCE_ARG_LEASE_COLUMN][0])
		arguments->lease_column = args[FENCE_ARG_LEASE_COLUMN];
	return true;
}

/*
 * fence_parse_arguments interprets the arguments of a trigger that fires, or
 * raises an error.
 */
void
fence_parse_arguments(const Trigger *trigger, FenceArguments *arguments)
{
	if (!fence_set_arguments(arguments, trigger->tgnargs,
							 (const char *const *) trigger->tgargs))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("trigger \"%s\" must be given the arguments of a fence",
						trigger->tgname),
				 errhint("Use lease.protect() to create the triggers of a fence.")));
}

/*
 * begin_admission collects what errors will say about an admission.
 *
 * It does so beforehand, because an error context must not look into the
 * catalogs.
 */
static void
begin_admission(Admission *admission, const char *lease, Oid table,
				FenceAction action)
{
	admission->lease = lease;
	admission->action = action;
	admission->column = NULL;
	admission->schema = NULL;
	admission->table = get_rel_name(table);
	if (admission->table)
		admission->schema = get_namespace_name(get_rel_namespace(table));
}

/*
 * name_table puts the table into the fields of an error.
 */
static int
name_table(const Admission *admission)
{
	if (admission->table)
	{
		err_generic_string(PG_DIAG_SCHEMA_NAME, admission->schema);
		err_generic_string(PG_DIAG_TABLE_NAME, admission->table);
	}
	return 0;
}

/*
 * admission_context adds to an error what was refused.
 */
static void
admission_context(void *arg)
{
	const Admission *admission = (const Admission *) arg;

	if (!admission->table)
		return;
	name_table(admission);
	if (admission->column)
		errcontext("write to table \"%s\", which is protected by lease \"%s\", with the token that the row carries in column \"%s\"",
				   admission->table, admission->lease, admission->column);
	else if (admission->action == FENCE_DDL)
		errcontext("change of table \"%s\", which is protected by lease \"%s\", with the token of the start-up option lease.token",
				   admission->table, admission->lease);
	else
		errcontext("write to table \"%s\", which is protected by lease \"%s\", with the token of the start-up option lease.token",
				   admission->table, admission->lease);
}

/*
 * push_context has errors say what was refused, until it is taken off.
 */
static void
push_context(ErrorContextCallback *context, Admission *admission)
{
	context->callback = admission_context;
	context->arg = admission;
	context->previous = error_context_stack;
	error_context_stack = context;
}

/*
 * raise_no_token raises LS004.
 */
pg_noreturn static void
raise_no_token(const Admission *admission)
{
	const char *lease = admission->lease;
	bool		exists;
	const char *standing = guard_describe_lease(lease, &exists);

	ereport(ERROR,
			(errcode(ERRCODE_LEASE_NO_TOKEN),
			 !admission->table ?
			 errmsg("write to a protected table carries no token for lease \"%s\"",
					lease) :
			 admission->action == FENCE_DDL ?
			 errmsg("change of table \"%s\" carries no token for lease \"%s\"",
					admission->table, lease) :
			 errmsg("write to table \"%s\" carries no token for lease \"%s\"",
					admission->table, lease),
			 admission->action == FENCE_DDL ?
			 errdetail("The table is protected: only a transaction that is guarded by the lease may drop, detach, attach or inherit it, take a column away or compute one anew, or change its fence. %s",
					   standing) :
			 errdetail("The table is protected: only a transaction that is guarded by the lease may write to it. %s",
					   standing),
			 exists ?
			 errhint("Call lease.guard('%s', epoch) first in the same transaction, with the epoch that lease.acquire() returned; or connect with the start-up option lease.token='%s=epoch'.",
					 lease, lease) :
			 errhint("Check the name of the lease. If it was dropped, create it again with lease.create('%s', role => ...), with the role of its holders, acquire it, and call lease.guard('%s', epoch) first in the same transaction.",
					 lease, lease),
			 name_table(admission)));
}

/*
 * raise_malformed raises 22023 for the start-up option.
 */
pg_noreturn static void
raise_malformed(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("malformed start-up option lease.token"),
			 errdetail("It is \"%s\".", lease_token),
			 errhint("Connect with names and epochs, each lease once, as in lease.token='planner=42,other=7'.")));
}

/*
 * option_token looks for a lease in the connection's start-up option.
 */
static TokenSearch
option_token(const char *lease, int64 *epoch)
{
	if (!lease_token || lease_token[0] == '\0')
		return TOKEN_ABSENT;
	return token_search(lease_token, lease, epoch);
}

/*
 * fence_admit admits a write to a table, or a change of it, under a lease, or
 * raises an error.
 */
void
fence_admit(const char *lease, Oid table, FenceAction action)
{
	Admission	admission;
	ErrorContextCallback context;
	TokenSearch search;
	int64		epoch = 0;

	if (guard_exists(lease))
		return;

	begin_admission(&admission, lease, table, action);
	search = option_token(lease, &epoch);
	if (search == TOKEN_ABSENT)
		raise_no_token(&admission);

	push_context(&context, &admission);
	if (search == TOKEN_MALFORMED)
		raise_malformed();
	guard_declare(lease, epoch, GetSessionUserId());
	error_context_stack = context.previous;
}

/*
 * fence_has_token tells whether the transaction or the connection has a token
 * for a lease, whatever that is worth.
 */
bool
fence_has_token(const char *lease)
{
	int64		epoch;

	return guard_exists(lease) || option_token(lease, &epoch) != TOKEN_ABSENT;
}

/*
 * fence_present admits a write whose row carries the token in a column, or
 * raises an error.
 */
void
fence_present(const char *lease, Oid table, const char *column, int64 epoch)
{
	Admission	admission;
	ErrorContextCallback context;
	int64		own;

	/* The connection's own token is not overruled by what a row carries. */
	if (option_token(lease, &own) != TOKEN_ABSENT)
		fence_admit(lease, table, FENCE_WRITE);
	if (guard_exists_at(lease, epoch))
		return;
	begin_admission(&admission, lease, table, FENCE_WRITE);
	admission.column = column;
	push_context(&context, &admission);
	arg_check_epoch(epoch);
	if (epoch < guard_epoch(lease))
		ereport(ERROR,
				(errcode(ERRCODE_LEASE_SUPERSEDED),
				 errmsg("row presents epoch %lld of lease \"%s\", and the transaction acts under epoch %lld",
						(long long) epoch, lease,
						(long long) guard_epoch(lease)),
				 errhint("Set the column to the epoch under which the transaction acts, or leave it out. Do not write back what was read from the row.")));
	guard_declare(lease, epoch, GetUserId());
	error_context_stack = context.previous;
}

/*
 * table_argument returns the table of a condition, its second argument.
 */
static Oid
table_argument(FunctionCallInfo fcinfo)
{
	return PG_ARGISNULL(1) ? InvalidOid : PG_GETARG_OID(1);
}

/*
 * fence_raise_not_a_lease raises an error for a row that does not name its
 * lease.
 */
pg_noreturn void
fence_raise_not_a_lease(Oid table, const char *name)
{
	Admission	admission;

	begin_admission(&admission, "", table, FENCE_WRITE);
	if (name)
		name = pnstrdup(name, pg_mbcliplen(name, strlen(name), LEASE_NAME_MAX));
	ereport(ERROR,
			(errcode(name ? ERRCODE_INVALID_NAME : ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 name ?
			 errmsg("row of table \"%s\" names no lease: \"%s\"",
					admission.table ? admission.table : "?", name) :
			 errmsg("row of table \"%s\" names no lease: null",
					admission.table ? admission.table : "?"),
			 errhint("Each row has to name the lease to which it belongs, in the column that lease.fence tells."),
			 name_table(&admission)));
}

/*
 * admit_row admits a row under the lease that is the first argument of a
 * condition, on the table that is the second, or raises an error; it returns
 * what the query remembers about that.
 */
static FenceMemory *
admit_row(FunctionCallInfo fcinfo)
{
	FenceMemory *memory = (FenceMemory *) fcinfo->flinfo->fn_extra;
	text	   *lease;
	const char *name;
	size_t		length;

	if (PG_ARGISNULL(0))
		fence_raise_not_a_lease(table_argument(fcinfo), NULL);

	lease = PG_GETARG_TEXT_PP(0);
	name = VARDATA_ANY(lease);
	length = VARSIZE_ANY_EXHDR(lease);
	if (memory && memory->generation == guard_generation() &&
		memory->length == length && memcmp(memory->name, name, length) == 0)
		return memory;

	if (!token_name_is_valid(name, length))
		fence_raise_not_a_lease(table_argument(fcinfo),
								pnstrdup(name, length));
	if (!memory)
	{
		memory = MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt,
										sizeof(FenceMemory));
		fcinfo->flinfo->fn_extra = memory;
	}
	memory->generation = 0;
	memory->length = length;
	memcpy(memory->name, name, length);
	memory->name[length] = '\0';
	fence_admit(memory->name, table_argument(fcinfo),
				FENCE_WRITE);

	/* Only now: what raises an error must not be remembered as admitted. */
	memory->epoch = guard_epoch(memory->name);
	memory->generation = guard_generation();
	return memory;
}

/*
 * lease_refuses: lease.refuses(lease, rel)
 *
 * The condition that the transaction is guarded.  Like the other two it is
 * false or raises an error.
 */
Datum
lease_refuses(PG_FUNCTION_ARGS)
{
	(void) admit_row(fcinfo);
	PG_RETURN_BOOL(false);
}

/*
 * is_settled tells whether the condition of a trigger will be false for every
 * row of a statement, as the transaction is guarded already: whether it is
 * lease.refuses() of a constant.
 */
static bool
is_settled(const Trigger *trigger, Oid refuses)
{
	Node	   *condition;
	Node	   *lease;

	if (trigger->tgenabled == TRIGGER_DISABLED ||
		!TRIGGER_FOR_ROW(trigger->tgtype) ||
		!TRIGGER_FOR_AFTER(trigger->tgtype) ||
		!trigger->tgqual)
		return false;

	condition = (Node *) stringToNode(trigger->tgqual);
	if (!IsA(condition, FuncExpr) ||
		((FuncExpr *) condition)->funcid != refuses)
		return false;
	lease = (Node *) linitial(((FuncExpr *) condition)->args);
	return IsA(lease, Const) && !((Const *) lease)->constisnull &&
		guard_exists(TextDatumGetCString(((Const *) lease)->constvalue));
}

/*
 * fires_after tells whether a trigger is left that fires after an event of a
 * row.
 */
static bool
fires_after(const TriggerDesc *triggers, int16 event)
{
	for (int i = 0; i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (trigger->tgenabled != TRIGGER_DISABLED &&
			TRIGGER_TYPE_MATCHES(trigger->tgtype, TRIGGER_TYPE_ROW,
								 TRIGGER_TYPE_AFTER, event))
			return true;
	}
	return false;
}

/*
 * fence_settle leaves out of a statement that begins to run the triggers whose
 * condition will be false for every row.  The statement has its own copy of
 * what triggers there are.
 */
void
fence_settle(EState *estate)
{
	MemoryContext caller_context;
	CatalogFunctions functions;
	ListCell   *cell;

	if (estate->es_opened_result_relations == NIL || !guard_exists_any() ||
		!catalog_get_functions(&functions))
		return;

	caller_context = MemoryContextSwitchTo(estate->es_query_cxt);
	foreach(cell, estate->es_opened_result_relations)
	{
		TriggerDesc *triggers = ((ResultRelInfo *) lfirst(cell))->ri_TrigDesc;
		bool		settled = false;

		for (int i = 0; triggers && i < triggers->numtriggers; i++)
		{
			if (is_settled(&triggers->triggers[i], functions.refuses))
			{
				triggers->triggers[i].tgenabled = TRIGGER_DISABLED;
				settled = true;
			}
		}
		if (settled)
		{
			triggers->trig_insert_after_row = fires_after(triggers, TRIGGER_TYPE_INSERT);
			triggers->trig_update_after_row = fires_after(triggers, TRIGGER_TYPE_UPDATE);
			triggers->trig_delete_after_row = fires_after(triggers, TRIGGER_TYPE_DELETE);
		}
	}
	MemoryContextSwitchTo(caller_context);
}

/*
 * lease_refuses_stamp: lease.refuses_stamp(lease, rel, epoch)
 *
 * The condition that a row carries the epoch of a guard.
 */
Datum
lease_refuses_stamp(PG_FUNCTION_ARGS)
{
	FenceMemory *memory = admit_row(fcinfo);
	Admission	admission;

	if (!PG_ARGISNULL(2))
	{
		int64		epoch = PG_GETARG_INT64(2);

		if (epoch == memory->epoch)
			PG_RETURN_BOOL(false);
		if (guard_exists_at(memory->name, epoch))
		{
			memory->epoch = epoch;
			PG_RETURN_BOOL(false);
		}
	}

	begin_admission(&admission, memory->name,
					table_argument(fcinfo),
					FENCE_WRITE);
	ereport(ERROR,
			(errcode(ERRCODE_LEASE_NO_TOKEN),
			 errmsg("row of table \"%s\" does not carry the epoch of lease \"%s\" under which it is written",
					admission.table ? admission.table : "?", memory->name),
			 PG_ARGISNULL(2) ?
			 errdetail("It carries none, and this transaction acts under epoch %lld.",
					   (long long) memory->epoch) :
			 errdetail("It carries epoch %lld, and this transaction acts under epoch %lld.",
					   (long long) PG_GETARG_INT64(2),
					   (long long) memory->epoch),
			 errhint("Something has changed the row after the trigger lease_stamp: look for triggers of the table that fire later, and in lease.fence whether that one is enabled."),
			 name_table(&admission)));
}

/*
 * lease_refuses_older: lease.refuses_older(lease, rel, epoch)
 *
 * The condition that a row was not written under a later epoch.
 */
Datum
lease_refuses_older(PG_FUNCTION_ARGS)
{
	FenceMemory *memory = admit_row(fcinfo);
	Admission	admission;
	bool		exists;

	if (PG_ARGISNULL(2) || PG_GETARG_INT64(2) <= memory->epoch ||
		PG_GETARG_INT64(2) <= guard_epoch(memory->name))
		PG_RETURN_BOOL(false);

	begin_admission(&admission, memory->name,
					table_argument(fcinfo),
					FENCE_WRITE);
	ereport(ERROR,
			(errcode(ERRCODE_LEASE_SUPERSEDED),
			 errmsg("row of table \"%s\" was written under a later epoch of lease \"%s\"",
					admission.table ? admission.table : "?", memory->name),
			 errdetail("The row carries epoch %lld, and this transaction acts under epoch %lld. %s",
					   (long long) PG_GETARG_INT64(2),
					   (long long) guard_epoch(memory->name),
					   guard_describe_lease(memory->name, &exists)),
			 errhint("Stop all work that was begun under this epoch. If it is the current one, the row comes from another history of the database: call lease.raise_floor() with the epoch of the row, and acquire again."),
			 name_table(&admission)));
}

/*
 * lease_row_lease: lease.row_lease(lease, fallback)
 *
 * The lease under which a row is that was there before: the one that it names,
 * or that of the table.  Before its table was protected, a row may have come
 * to name none, or something that is no name.
 */
Datum
lease_row_lease(PG_FUNCTION_ARGS)
{
	if (!PG_ARGISNULL(0))
	{
		text	   *lease = PG_GETARG_TEXT_PP(0);

		if (token_name_is_valid(VARDATA_ANY(lease), VARSIZE_ANY_EXHDR(lease)))
			PG_RETURN_TEXT_P(lease);
	}
	if (PG_ARGISNULL(1))
		PG_RETURN_NULL();
	PG_RETURN_DATUM(PG_GETARG_DATUM(1));
}

/*
 * lease_fence: lease.fence(), the trigger function
 */
Datum
lease_fence(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	FenceArguments arguments;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("lease.fence() was not called by a trigger manager")));

	if (TRIGGER_FIRED_BY_TRUNCATE(trigger->tg_event))
	{
		if (!TRIGGER_FIRED_BEFORE(trigger->tg_event))
			ereport(ERROR,
					(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
					 errmsg("lease.fence() must be fired before TRUNCATE")));
	}
	else if (!TRIGGER_FIRED_AFTER(trigger->tg_event) ||
			 !TRIGGER_FIRED_FOR_ROW(trigger->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("lease.fence() must be fired after each row")));

	fence_parse_arguments(trigger->tg_trigger, &arguments);

	/* What a row itself says is judged by the conditions only. */
	if (TRIGGER_FIRED_FOR_ROW(trigger->tg_event) &&
		(arguments.epoch_column || arguments.lease_column))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("trigger \"%s\" lacks the condition of a fence",
						trigger->tg_trigger->tgname),
				 errhint("Use lease.protect() to create the triggers of a fence.")));

	fence_admit(arguments.lease, RelationGetRelid(trigger->tg_relation),
				FENCE_WRITE);
	PG_RETURN_POINTER(NULL);
}
