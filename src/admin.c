/*-------------------------------------------------------------------------
 *
 * admin.c
 *	  The functions that set leases and fences up: create, alter, drop,
 *	  raise_floor, descendants.
 *
 * Create, drop and those changes of settings on which a COMMIT or a takeover
 * under way may rely (role, late_commit) take the lease's fence lock, like
 * everything that ends a grant; see change.c.  Other changes of settings are
 * plain updates, like a renewal.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/admin.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "aftermath.h"
#include "args.h"
#include "authority.h"
#include "catalog/pg_inherits.h"
#include "change.h"
#include "durability.h"
#include "epoch.h"
#include "event.h"
#include "fmgr.h"
#include "funcapi.h"
#include "grant.h"
#include "guard.h"
#include "health.h"
#include "lock.h"
#include "miscadmin.h"
#include "protection.h"
#include "role.h"
#include "storage/lmgr.h"
#include "store.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

SQL_CALLABLE(lease_create);
SQL_CALLABLE(lease_alter);
SQL_CALLABLE(lease_drop);
SQL_CALLABLE(lease_raise_floor);
SQL_CALLABLE(lease_descendants);

/*
 * settings_arguments puts the settings that create and alter have in common
 * into a row; what is null leaves the row as it is.  They are arguments 1 to 7:
 * ttl, grace, min_hold, role, late_commit, evict, async_renew.
 */
static void
settings_arguments(FunctionCallInfo fcinfo, LeaseRow *row)
{
	row->ttl = arg_setting(fcinfo, 1, "ttl", false, row->ttl);
	row->grace = arg_setting(fcinfo, 2, "grace", true, row->grace);
	row->min_hold = arg_setting(fcinfo, 3, "min_hold", true, row->min_hold);
	if (!PG_ARGISNULL(4))
	{
		row->role = PG_GETARG_OID(4);
		role_check_target(GetUserId(), row->role);
	}
	if (!PG_ARGISNULL(5))
		row->late_commit = PG_GETARG_BOOL(5);
	row->evict = arg_evict(fcinfo, 6, row->evict);
	if (!PG_ARGISNULL(7))
		row->async_renew = PG_GETARG_BOOL(7);
}

/*
 * settings_detail tells, for an event, what is given in those arguments.
 */
static Datum
settings_detail(FunctionCallInfo fcinfo, const LeaseRow *row)
{
	StringInfoData detail;

	initStringInfo(&detail);
	if (!PG_ARGISNULL(1))
		event_detail_seconds(&detail, "ttl", row->ttl);
	if (!PG_ARGISNULL(2))
		event_detail_seconds(&detail, "grace", row->grace);
	if (!PG_ARGISNULL(3))
		event_detail_seconds(&detail, "min_hold", row->min_hold);
	if (!PG_ARGISNULL(4))
		event_detail_string(&detail, "role",
							GetUserNameFromId(row->role, false));
	if (!PG_ARGISNULL(5))
		event_detail_raw(&detail, "late_commit",
						 row->late_commit ? "true" : "false");
	if (!PG_ARGISNULL(6))
		event_detail_string(&detail, "evict", arg_evict_name(row->evict));
	if (!PG_ARGISNULL(7))
		event_detail_raw(&detail, "async_renew",
						 row->async_renew ? "true" : "false");
	return event_detail(&detail);
}

/*
 * create_lease creates a lease, unless it is busy.  That it exists is an error.
 */
static bool
create_lease(LeaseRow *row, Datum settings, int *blocker)
{
	const bool	nowait = false;
	Reading		existing;
	EventList	events;

	/* Under this lock nobody else creates it. */
	if (!change_take_fence(row->name, nowait, blocker))
		return false;
	if (change_read(row->name, &existing))
	{
		change_drop_fence(row->name);
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("lease \"%s\" already exists", row->name),
				 errhint("Change its settings with lease.alter().")));
	}
	epoch_settle(row->name);
	event_begin(&events, row->name);
	event_add(&events, EVENT_CREATED, 0, NULL, settings);
	change_insert(row, &events);
	return true;
}

/*
 * lease_create: lease.create(name, ttl, grace, min_hold, role, late_commit, evict,
 *		async_renew)
 */
Datum
lease_create(PG_FUNCTION_ARGS)
{
	char	   *name = arg_name(fcinfo, 0);
	LeaseRow	row;
	int			blocker = 0;

	/* Their defaults are in the declaration; only role means something. */
	if (PG_ARGISNULL(1))
		arg_raise_null("ttl");
	if (PG_ARGISNULL(2))
		arg_raise_null("grace");
	if (PG_ARGISNULL(3))
		arg_raise_null("min_hold");
	if (PG_ARGISNULL(5))
		arg_raise_null("late_commit");
	if (PG_ARGISNULL(6))
		arg_raise_null("evict");
	if (PG_ARGISNULL(7))
		arg_raise_null("async_renew");

	arg_begin_write("lease.create()");
	grant_default_row(name, &row);
	settings_arguments(fcinfo, &row);
	change_begin_transition(name);
	if (!create_lease(&row, settings_detail(fcinfo, &row), &blocker))
		lock_report_bound(name, blocker);
	PG_RETURN_VOID();
}

/*
 * read_for_change reads a lease that the caller is about to change, after
 * whoever is changing it has ended; under the fence lock if that is asked for,
 * which is not kept while waiting.
 */
static void
read_for_change(const char *name, bool fence, Reading *reading)
{
	const bool	nowait = false;
	int			blocker = 0;

	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		if (fence && !change_take_fence(name, nowait, &blocker))
			lock_report_bound(name, blocker);
		if (!change_read(name, reading))
			guard_raise_unknown(name);
		role_check_administrator(GetUserId(), reading->row.role, name);
		if (!TransactionIdIsValid(reading->row.updater))
			return;
		if (fence)
			change_drop_fence(name);
		if (!change_await_updater(&reading->row, &blocker))
			lock_report_bound(name, blocker);
	}
}

/*
 * lease_alter: lease.alter(name, ttl, grace, min_hold, role, late_commit, evict,
 *		async_renew)
 */
Datum
lease_alter(PG_FUNCTION_ARGS)
{
	char	   *name = arg_name(fcinfo, 0);
	bool		fence = !PG_ARGISNULL(4) || !PG_ARGISNULL(5);
	Reading		reading;
	LeaseRow   *row = &reading.row;
	EventList	events;

	arg_begin_write("lease.alter()");

	change_begin_transition(name);
	for (;;)
	{
		/* Whoever may not, or asks for what cannot be, takes no fence lock. */
		read_for_change(name, false, &reading);
		settings_arguments(fcinfo, row);
		if (fence)
		{
			read_for_change(name, true, &reading);
			settings_arguments(fcinfo, row);
		}
		event_begin(&events, name);
		event_add(&events, EVENT_ALTERED, row->epoch, row->holder,
				  settings_detail(fcinfo, row));
		if (change_write_transition(row, &events))
			break;
		if (fence)
			change_drop_fence(name);
	}
	PG_RETURN_VOID();
}

/*
 * check_droppable raises an error if somebody relies on a lease.
 */
static void
check_droppable(const Reading *reading)
{
	const LeaseRow *row = &reading->row;
	char	   *table;

	if (authority_phase(&reading->authority, reading->at.tx) == PHASE_HELD)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("cannot drop lease \"%s\" because it is held",
						row->name),
				 errdetail("Epoch %lld was granted to \"%s\" until %s.",
						   (long long) row->epoch, row->holder,
						   timestamptz_to_str(row->deadline.wall)),
				 errhint("Let the holder release it, take it back with lease.revoke(), or drop it with force => true.")));

	table = protection_find_table(row->name);
	if (table)
		ereport(ERROR,
				(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				 errmsg("cannot drop lease \"%s\" because table \"%s\" is protected by it",
						row->name, table),
				 errhint("Remove the fence with lease.unprotect(); or drop the lease with force => true, after which nobody can write to the table until the lease is created and acquired again.")));
}

/*
 * forget_reports calls health_forget for lock_run_bounded.
 */
static bool
forget_reports(void *arg)
{
	health_forget((const char *) arg, PG_INT64_MAX);
	return true;
}

/*
 * lease_drop: lease.drop(name, force)
 */
Datum
lease_drop(PG_FUNCTION_ARGS)
{
	char	   *name = arg_name(fcinfo, 0);
	bool		force = arg_bool(fcinfo, 1, "force");
	Reading		reading;
	LeaseRow   *row = &reading.row;
	EventList	events;

	arg_begin_write("lease.drop()");
	change_begin_transition(name);
	read_for_change(name, false, &reading);
	for (;;)
	{
		read_for_change(name, true, &reading);
		if (!force)
			check_droppable(&reading);
		event_begin(&events, name);
		event_add(&events, EVENT_DROPPED, row->epoch, row->holder, (Datum) 0);
		if (change_remove(row, &events))
			break;
		change_drop_fence(name);
	}

	/* Whoever waits for it has to be told that there is no such lease. */
	aftermath_wake(name);
	(void) lock_run_bounded(name, forget_reports, name);

	/* A holder must not find its grant alive again after a crash. */
	durability_require();
	PG_RETURN_VOID();
}

/*
 * lease_raise_floor: lease.raise_floor(epoch)
 */
Datum
lease_raise_floor(PG_FUNCTION_ARGS)
{
	int64		epoch = arg_epoch(fcinfo, 0);

	/* Like a grant, it must not be forgotten by a crash or a failover. */
	arg_begin_write("lease.raise_floor()");
	durability_require();
	PG_RETURN_INT64(epoch_raise(epoch));
}

/*
 * check_table raises an error unless a table exists and is the current user's.
 */
static void
check_table(Oid table)
{
	if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(table)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", table)));
	if (!relation_ownercheck(table, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, get_rel_name(table));
}

/*
 * lease_descendants: lease.descendants(rel)
 *
 * All tables below a table, and itself, locked against writes; for the owner.  In C because a
 * query would look with the snapshot of a REPEATABLE READ transaction, and miss
 * a partition that was made since.
 */
Datum
lease_descendants(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set = (ReturnSetInfo *) fcinfo->resultinfo;
	Oid			table;
	List	   *tables;
	ListCell   *cell;

	if (PG_ARGISNULL(0))
		arg_raise_null("table");
	table = PG_GETARG_OID(0);
	check_table(table);

	InitMaterializedSRF(fcinfo, 0);
	LockRelationOid(table, ShareRowExclusiveLock);
	check_table(table);			/* it may have been dropped meanwhile */
	tables = find_all_inheritors(table, ShareRowExclusiveLock, NULL);
	foreach(cell, tables)
	{
		Oid			descendant = lfirst_oid(cell);
		Datum		values[2];
		bool		nulls[2] = {false, false};

		/*
		 * A temporary child, possibly of another session, is nobody's
		 * business.
		 */
		if (protection_is_temporary(descendant))
			continue;
		values[0] = ObjectIdGetDatum(descendant);
		values[1] = BoolGetDatum(descendant != table &&
								 get_rel_relispartition(descendant));
		tuplestore_putvalues(set->setResult, set->setDesc, values, nulls);
	}
	return (Datum) 0;
}
