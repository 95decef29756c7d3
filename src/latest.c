/*-------------------------------------------------------------------------
 *
 * latest.c
 *	  Statements under the latest snapshot.
 *
 * They see what has been committed up to now, also in a REPEATABLE READ or SERIALIZABLE
 * transaction, in the manner of the checks of foreign keys (ri_triggers.c): what is
 * found is to be compared with a lock that the caller has, and not with the snapshot of
 * his transaction.  They are executed as the owner of the table, on which nobody else
 * need have rights, and parsed with the caller's search_path, so all names and
 * operators in them are qualified.
 *
 * Locks: RowExclusive on the table, and those of the statements.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/latest.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog.h"
#include "latest.h"
#include "miscadmin.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/*
 * latest_execute executes a statement, and returns the first column of the first row that
 * it returns, or 0 if there is none or that is null.  Should it fail, PostgreSQL makes
 * this user the current one again.
 */
Datum
latest_execute(LatestStatement *statement, Datum *values, const char *nulls)
{
	Relation	rel = table_open(catalog_lock_member(statement->table,
													 RowExclusiveLock), NoLock);
	Datum		value = (Datum) 0;
	Oid			caller;
	int			security_context;
	int			result;
	bool		isnull;
	const bool	read_only = false;
	const bool	fire_triggers = true;

	GetUserIdAndSecContext(&caller, &security_context);
	SetUserIdAndSecContext(rel->rd_rel->relowner,
						   security_context | SECURITY_LOCAL_USERID_CHANGE |
						   SECURITY_NOFORCE_RLS);
	table_close(rel, NoLock);

	SPI_connect();
	if (!statement->plan)
	{
		SPIPlanPtr	plan = SPI_prepare(statement->text, statement->parameters,
									   statement->types);

		if (!plan || SPI_keepplan(plan) != 0)
			elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
		statement->plan = plan;
	}
	result = SPI_execute_snapshot(statement->plan, values, nulls,
								  GetLatestSnapshot(), InvalidSnapshot,
								  read_only, fire_triggers, 0);
	if (result < 0)
		elog(ERROR, "SPI_execute_snapshot failed: %s", SPI_result_code_string(result));
	if (SPI_tuptable && SPI_processed > 0)
	{
		Form_pg_attribute column = TupleDescAttr(SPI_tuptable->tupdesc, 0);

		value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
		value = isnull ? (Datum) 0 :
			SPI_datumTransfer(value, column->attbyval, column->attlen);
	}
	SPI_finish();

	SetUserIdAndSecContext(caller, security_context);
	return value;
}
