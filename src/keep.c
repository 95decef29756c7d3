/*-------------------------------------------------------------------------
 *
 * keep.c
 *	  Tables to which rows are only added.
 *
 * The history of leases, what has been pruned of it, what somebody has acknowledged,
 * and the records of a lease stay as they were written.  A trigger, which fires for
 * replication, too, refuses UPDATE, DELETE and TRUNCATE, whoever asks.  It lets
 * through what the functions here do, of which those are made that remove what is
 * old: lease.prune(), lease.prune_occurrences() and lease.compact(), each of which
 * first puts on record what it removes where that has to be proved.
 *
 * Who may execute these functions is a matter of privileges (sql/roles.sql): they are
 * for the extension itself.  A superuser can disable the trigger; what he then alters
 * or removes of events and records is found by their digests.
 *
 * Locks: those of the statements.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/keep.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "args.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/rel.h"

SQL_CALLABLE(lease_keep_events);
SQL_CALLABLE(lease_remove_events);
SQL_CALLABLE(lease_remove_acknowledgements);
SQL_CALLABLE(lease_remove_records);

/* What is said of a table that somebody has tried to change */
typedef struct Kept
{
	const char *table;
	const char *what;
	const char *remover;
} Kept;

static const Kept kept[] = {
	{"acknowledgement", "What was acknowledged", "lease.prune_occurrences()"},
	{"record", "What is on record", "lease.compact()"},
	{NULL, "The history of leases", "lease.prune()"}
};

/* Is one of our functions at work? */
static bool removing = false;

/*
 * lease_keep_events: the trigger lease_keep_events
 */
Datum
lease_keep_events(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	const Kept *it = kept;
	const char *table;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" was not called by trigger manager",
						"lease.keep_events")));
	if (!removing)
	{
		table = RelationGetRelationName(data->tg_relation);
		while (it->table && strcmp(it->table, table) != 0)
			it++;
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot change what is in table \"lease.%s\"", table),
				 errdetail("%s is append-only.", it->what),
				 errhint("Call %s to remove what is old.", it->remover)));
	}
	if (TRIGGER_FIRED_BY_UPDATE(data->tg_event))
		PG_RETURN_POINTER(data->tg_newtuple);
	PG_RETURN_POINTER(data->tg_trigtuple);
}

/*
 * run_removal executes a statement past the trigger, and returns how many rows that
 * were; or, of a SELECT, the number that it returns.
 */
static int64
run_removal(const char *statement, int count, Oid *types, Datum *values)
{
	const bool	read_only = false;
	int			result;
	int64		removed;
	bool		isnull;

	removing = true;
	PG_TRY();
	{
		result = SPI_execute_with_args(statement, count, types, values, NULL,
									   read_only, 0);
	}
	PG_FINALLY();
	{
		removing = false;
	}
	PG_END_TRY();
	if (result < 0)
		elog(ERROR, "SPI_execute_with_args failed: %s",
			 SPI_result_code_string(result));
	removed = (int64) SPI_processed;
	if (result == SPI_OK_SELECT)
		removed = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0],
											  SPI_tuptable->tupdesc, 1, &isnull));
	return removed;
}

/*
 * lease_remove_events: lease.remove_events(name, seq)
 *
 * Removes the events of a lease up to a number, records that, and returns how many
 * they were.  A part of lease.prune(), which decides up to which.
 */
Datum
lease_remove_events(PG_FUNCTION_ARGS)
{
	char	   *name = arg_name(fcinfo, 0);
	Oid			types[] = {TEXTOID, INT8OID};
	Datum		values[lengthof(types)];
	int64		removed;

	if (PG_ARGISNULL(1))
		arg_raise_null("seq");
	arg_begin_write("lease.prune()");
	values[0] = CStringGetTextDatum(name);
	values[1] = PG_GETARG_DATUM(1);
	SPI_connect();

	/* What is not on record is not removed. */
	removed = run_removal("INSERT INTO lease.pruned AS p"
						  " SELECT e.name, (SELECT pg_catalog.count(*) FROM lease.event AS c"
						  "  WHERE c.name OPERATOR(pg_catalog.=) $1 AND c.seq OPERATOR(pg_catalog.<=) $2),"
						  "  e.seq, e.at, e.digest, pg_catalog.now()"
						  " FROM lease.event AS e"
						  " WHERE e.name OPERATOR(pg_catalog.=) $1 AND e.seq OPERATOR(pg_catalog.=) $2"
						  " ON CONFLICT (name) DO UPDATE SET events = p.events OPERATOR(pg_catalog.+) excluded.events,"
						  "  last_seq = excluded.last_seq, last_at = excluded.last_at,"
						  "  digest = excluded.digest, pruned_at = excluded.pruned_at",
						  lengthof(types), types, values);
	if (removed > 0)
		removed = run_removal("DELETE FROM lease.event AS e"
							  " WHERE e.name OPERATOR(pg_catalog.=) $1 AND e.seq OPERATOR(pg_catalog.<=) $2",
							  lengthof(types), types, values);
	SPI_finish();
	PG_RETURN_INT64(removed);
}

/*
 * lease_remove_acknowledgements: lease.remove_acknowledgements(before)
 *
 * Removes what was acknowledged before an instant, and returns how many there were.  A
 * part of lease.prune_occurrences().
 */
Datum
lease_remove_acknowledgements(PG_FUNCTION_ARGS)
{
	Oid			types[] = {TIMESTAMPTZOID};
	Datum		values[lengthof(types)];
	int64		removed;

	if (PG_ARGISNULL(0))
		arg_raise_null("before");
	values[0] = PG_GETARG_DATUM(0);
	arg_begin_write("lease.prune_occurrences()");
	SPI_connect();
	removed = run_removal("DELETE FROM lease.acknowledgement AS a"
						  " WHERE a.at OPERATOR(pg_catalog.<) $1",
						  lengthof(types), types, values);
	SPI_finish();
	PG_RETURN_INT64(removed);
}

/*
 * lease_remove_records: lease.remove_records(lease, up_to)
 *
 * Removes the records of a lease up to a number that nothing needs any more, and
 * returns how many there were.  A part of lease.compact(), which decides up to which;
 * which are not needed is for lease.delete_records() (sql/inventory.sql).
 */
Datum
lease_remove_records(PG_FUNCTION_ARGS)
{
	char	   *name = arg_name(fcinfo, 0);
	Oid			types[] = {TEXTOID, INT8OID};
	Datum		values[lengthof(types)];
	int64		removed;

	if (PG_ARGISNULL(1))
		arg_raise_null("up_to");
	arg_begin_write("lease.compact()");
	values[0] = CStringGetTextDatum(name);
	values[1] = PG_GETARG_DATUM(1);
	SPI_connect();
	removed = run_removal("SELECT lease.delete_records($1, $2)",
						  lengthof(types), types, values);
	SPI_finish();
	PG_RETURN_INT64(removed);
}
