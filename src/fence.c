/*-------------------------------------------------------------------------
 *
 * fence.c
 *	  The fence: writes to a protected table need a guarded transaction.
 *
 * A protected table carries the trigger
 *
 *		AFTER INSERT OR UPDATE OR DELETE ... FOR EACH ROW
 *			WHEN (lease.refuses('planner', 'the_table'))
 *			EXECUTE FUNCTION lease.fence('planner')
 *
 * The condition does the work: it is evaluated for each row as it will stand,
 * inside the statement, and either raises an error or is false, so that no
 * trigger event is ever queued.  Within a query it remembers that the
 * transaction is guarded, together with the generation of the guards; so a row
 * costs a comparison, and a savepoint that is rolled back costs a new look.
 *
 * The trigger function makes the same check, for TRUNCATE, whose triggers fire
 * once per statement, and for whoever creates the trigger without its
 * condition.
 *
 * A transaction without a guard for the lease may still carry a token in the
 * connection's start-up option lease.token; it is guarded with that at its
 * first protected write, on behalf of the session user, who made the
 * connection.
 *
 * Both functions are executable by PUBLIC, because whoever creates a partition
 * needs them; they give nothing away, and validate their arguments.
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

#include "commands/trigger.h"
#include "fmgr.h"
#include "guard.h"
#include "miscadmin.h"
#include "token.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

SQL_CALLABLE(lease_refuses);
SQL_CALLABLE(lease_fence);

/* What a query remembers about its last check, in fn_extra. */
typedef struct FenceMemory
{
	uint64		generation;		/* of the guards; 0: nothing yet */
	size_t		length;
	char		name[LEASE_NAME_MAX + 1];
} FenceMemory;

/* The write that is being admitted, for error messages. */
typedef struct ProtectedWrite
{
	const char *lease;
	const char *schema;			/* of the table, or NULL */
	const char *table;			/* NULL if it is not known */
} ProtectedWrite;

/*
 * write_context adds to an error which write was refused.
 */
static void
write_context(void *arg)
{
	const ProtectedWrite *write = (const ProtectedWrite *) arg;

	if (write->table)
		errcontext("write to table \"%s\", which is protected by lease \"%s\"",
				   write->table, write->lease);
}

/*
 * raise_no_token raises LS004.
 */
pg_noreturn static void
raise_no_token(const ProtectedWrite *write)
{
	ereport(ERROR,
			(errcode(ERRCODE_LEASE_NO_TOKEN),
			 write->table ?
			 errmsg("write to table \"%s\" carries no token for lease \"%s\"",
					write->table, write->lease) :
			 errmsg("write to a protected table carries no token for lease \"%s\"",
					write->lease),
			 errdetail("The table is protected: only a transaction that is guarded by the lease may write to it."),
			 errhint("Call lease.guard('%s', epoch) first in the same transaction, with the epoch that lease.acquire() returned; or connect with the start-up option lease.token='%s=epoch'.",
					 write->lease, write->lease),
			 write->table ? err_generic_string(PG_DIAG_SCHEMA_NAME, write->schema) : 0,
			 write->table ? err_generic_string(PG_DIAG_TABLE_NAME, write->table) : 0));
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
 * admit admits a write under a lease, or raises an error.
 */
static void
admit(const char *lease, Oid table)
{
	ProtectedWrite write = {lease, NULL, NULL};
	ErrorContextCallback context;
	TokenSearch search = TOKEN_ABSENT;
	int64		epoch = 0;

	if (guard_exists(lease))
		return;

	/* Now, because an error context must not look into the catalogs. */
	write.table = get_rel_name(table);
	if (write.table)
		write.schema = get_namespace_name(get_rel_namespace(table));

	if (lease_token && lease_token[0] != '\0')
		search = token_search(lease_token, lease, &epoch);
	if (search == TOKEN_ABSENT)
		raise_no_token(&write);

	context.callback = write_context;
	context.arg = &write;
	context.previous = error_context_stack;
	error_context_stack = &context;

	if (search == TOKEN_MALFORMED)
		raise_malformed();
	guard_declare(lease, epoch, GetSessionUserId());

	error_context_stack = context.previous;
}

/*
 * lease_refuses is the condition of the row trigger.  It is false, or raises
 * an error.
 */
Datum
lease_refuses(PG_FUNCTION_ARGS)
{
	FenceMemory *memory = (FenceMemory *) fcinfo->flinfo->fn_extra;
	Oid			table = PG_ARGISNULL(1) ? InvalidOid : PG_GETARG_OID(1);
	text	   *lease;
	size_t		length;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("lease of a fence must not be null")));

	lease = PG_GETARG_TEXT_PP(0);
	length = VARSIZE_ANY_EXHDR(lease);
	if (memory && memory->generation == guard_generation() &&
		memory->length == length &&
		memcmp(memory->name, VARDATA_ANY(lease), length) == 0)
		PG_RETURN_BOOL(false);

	if (!token_name_is_valid(VARDATA_ANY(lease), length))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("invalid name of a lease in a fence")));

	if (!memory)
	{
		memory = MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt,
										sizeof(FenceMemory));
		fcinfo->flinfo->fn_extra = memory;
	}
	memory->generation = 0;
	memory->length = length;
	memcpy(memory->name, VARDATA_ANY(lease), length);
	memory->name[length] = '\0';
	admit(memory->name, table);

	/* Only now: what admit() raises must not be remembered as admitted. */
	memory->generation = guard_generation();
	PG_RETURN_BOOL(false);
}

/*
 * lease_fence is the trigger function; its one argument is the lease's name.
 */
Datum
lease_fence(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	const char *lease;

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

	if (trigger->tg_trigger->tgnargs != 1 ||
		!token_name_is_valid(trigger->tg_trigger->tgargs[0],
							 strlen(trigger->tg_trigger->tgargs[0])))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("lease.fence() must be given the name of a lease"),
				 errhint("Use lease.protect() to create the trigger.")));

	lease = trigger->tg_trigger->tgargs[0];
	admit(lease, RelationGetRelid(trigger->tg_relation));
	PG_RETURN_POINTER(NULL);
}
