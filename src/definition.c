/*-------------------------------------------------------------------------
 *
 * definition.c
 *	  Tasks, actions and the like, written on behalf of whoever may.
 *
 * A task and an action belong to a lease.  Who administers that may define, change and
 * drop them, and has no rights on the tables.  So the user is checked here, and the rest
 * is left to functions in plain SQL (sql/tasks.sql, sql/actions.sql) that nobody may
 * call; they run as the owner of the tables.  A SECURITY DEFINER function could not
 * tell who has called it.
 *
 * What is written under a grant needs none of this: such functions are SECURITY
 * DEFINER, and ask whether the transaction is guarded, which is decided when the guard
 * is made.
 *
 * A resource of lease.admit() belongs to a role, too, and an acknowledgement is that of
 * a role, and so is a pin (src/pins.c); the functions behind these are told which.
 *
 * Locks: RowExclusive on the table; those of the functions.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/definition.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "args.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "definition.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "guard.h"
#include "miscadmin.h"
#include "role.h"
#include "store.h"
#include "utils/builtins.h"
#include "utils/rel.h"

SQL_CALLABLE(lease_define_task);
SQL_CALLABLE(lease_define_action);
SQL_CALLABLE(lease_acknowledge);
SQL_CALLABLE(lease_admit);
SQL_CALLABLE(lease_is_guarded);

/*
 * definition_execute calls a function as the owner of a table, and returns what that
 * has returned: a row if it has several columns.  Should it fail, PostgreSQL makes this
 * user the current one again.
 */
Datum
definition_execute(const char *table, const char *call, int count, Oid *types,
				   Datum *values, const char *nulls)
{
	Relation	rel = table_open(catalog_lock_member(table, RowExclusiveLock), NoLock);
	const bool	read_only = false;
	Oid			caller;
	int			security_context;
	int			result;
	bool		isnull;
	Form_pg_attribute column;
	Datum		value;

	GetUserIdAndSecContext(&caller, &security_context);
	SetUserIdAndSecContext(rel->rd_rel->relowner,
						   security_context | SECURITY_LOCAL_USERID_CHANGE);
	table_close(rel, NoLock);

	SPI_connect();
	result = SPI_execute_with_args(call, count, types, values, nulls,
								   read_only, 1);
	if (result != SPI_OK_SELECT)
		elog(ERROR, "SPI_execute_with_args failed: %s", SPI_result_code_string(result));
	column = TupleDescAttr(SPI_tuptable->tupdesc, 0);
	if (SPI_tuptable->tupdesc->natts > 1)
		value = PointerGetDatum(SPI_returntuple(SPI_tuptable->vals[0],
												SPI_tuptable->tupdesc));
	else
	{
		value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
		value = isnull ? (Datum) 0 : SPI_datumTransfer(value, column->attbyval, column->attlen);
	}
	SPI_finish();

	SetUserIdAndSecContext(caller, security_context);
	return value;
}

/*
 * check_user raises an error unless the user administers the lease that a row belongs
 * to.  What a lease has left behind that is gone, the owner of the extension drops.
 */
static void
check_user(HeapTupleHeader row, bool drop)
{
	bool		isnull;
	Datum		value = GetAttributeByName(row, "lease", &isnull);
	char	   *name;
	Reading		reading;

	if (isnull)
		arg_raise_null("lease");
	name = TextDatumGetCString(value);
	arg_check_name(name);
	if (store_read(name, &reading))
		role_check_administrator(GetUserId(), reading.row.role, name);
	else if (!drop || !role_administers(GetUserId(), InvalidOid))
		guard_raise_unknown(name);
}

/*
 * define has a row written, or removed.
 */
static void
define(FunctionCallInfo fcinfo, const char *function, const char *table,
	   const char *call)
{
	HeapTupleHeader row;
	Oid			types[2];
	Datum		values[2];

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		arg_raise_null(table);
	arg_begin_write(function);
	row = PG_GETARG_HEAPTUPLEHEADER(0);
	check_user(row, strcmp(text_to_cstring(PG_GETARG_TEXT_PP(1)), "drop") == 0);
	types[0] = HeapTupleHeaderGetTypeId(row);
	values[0] = PG_GETARG_DATUM(0);
	types[1] = TEXTOID;
	values[1] = PG_GETARG_DATUM(1);
	definition_execute(table, call, lengthof(types), types, values, NULL);
}

/*
 * lease_define_task: lease.define_task(task, verb)
 */
Datum
lease_define_task(PG_FUNCTION_ARGS)
{
	define(fcinfo, "lease.define_task()", "task",
		   "SELECT lease.write_task($1, $2)");
	PG_RETURN_VOID();
}

/*
 * lease_define_action: lease.define_action(action, verb)
 */
Datum
lease_define_action(PG_FUNCTION_ARGS)
{
	define(fcinfo, "lease.define_action()", "action",
		   "SELECT lease.write_action($1, $2)");
	PG_RETURN_VOID();
}

/*
 * lease_acknowledge: lease.acknowledge(action, epoch, task, due_at, reason)
 */
Datum
lease_acknowledge(PG_FUNCTION_ARGS)
{
	Oid			types[] = {TEXTOID, INT8OID, TEXTOID, TIMESTAMPTZOID, TEXTOID, REGROLEOID};
	Datum		values[lengthof(types)];
	char		nulls[lengthof(types)];

	for (int i = 0; i < PG_NARGS(); i++)
	{
		values[i] = PG_GETARG_DATUM(i);
		nulls[i] = PG_ARGISNULL(i) ? 'n' : ' ';
	}
	values[PG_NARGS()] = ObjectIdGetDatum(GetUserId());
	nulls[PG_NARGS()] = ' ';
	arg_begin_write("lease.acknowledge()");
	definition_execute("acknowledgement",
					   "SELECT lease.record_acknowledgement($1, $2, $3, $4, $5, $6)",
					   lengthof(types), types, values, nulls);
	PG_RETURN_VOID();
}

/*
 * lease_admit: lease.admit(resource, epoch)
 */
Datum
lease_admit(PG_FUNCTION_ARGS)
{
	char	   *resource = arg_string(fcinfo, 0, "resource", LEASE_HOLDER_MAX);
	Oid			types[] = {TEXTOID, INT8OID, REGROLEOID};
	Datum		values[] = {
		CStringGetTextDatum(resource),
		Int64GetDatum(arg_epoch(fcinfo, 1)),
		ObjectIdGetDatum(GetUserId())
	};

	arg_begin_write("lease.admit()");
	definition_execute("admission", "SELECT lease.record_admission($1, $2, $3)",
					   lengthof(types), types, values, NULL);
	PG_RETURN_VOID();
}

/*
 * lease_is_guarded: lease.is_guarded(lease, epoch)
 */
Datum
lease_is_guarded(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		PG_RETURN_BOOL(false);
	PG_RETURN_BOOL(guard_rely(text_to_cstring(PG_GETARG_TEXT_PP(0)),
							  PG_GETARG_INT64(1)));
}
