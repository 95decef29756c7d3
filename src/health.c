/*-------------------------------------------------------------------------
 *
 * health.c
 *	  Progress of holders and heartbeats of peers.
 *
 * That a lease is held says nothing about whether its holder works: whatever
 * renews it may be a thread that has outlived the rest.  So a holder reports its
 * progress apart from that, and a scheduler instance, which may hold nothing at
 * all, that it is there.  Both are signs, written down with the moment at which they
 * came.  Nothing in lease decides by them; they are for whoever looks, and looks with
 * plain SQL (sql/health.sql).
 *
 * A report belongs to one grant.  One that comes under the latest epoch after the
 * grant is over is recorded, too, as that: somebody works without holding.  One
 * under another epoch is not.  Since epochs never come back, a report that was left
 * behind by an earlier grant, or by a lease of the same name that was dropped, counts
 * for nothing; reports that come later remove it, unless somebody is changing it.
 *
 * The latest epoch, and who the user is, are checked here.  The rest is left to
 * statements under the latest snapshot (latest.c), so that a report from a REPEATABLE
 * READ or SERIALIZABLE transaction does not fail with 40001.
 *
 * Locks: one of our own (lock.c), exclusive to the end of the transaction, on the
 * sign: a grant's reports, or a peer's heartbeats.  It is taken before anything is
 * read, so that no statement finds a row changed since its snapshot, which would be
 * 40001 again, and so that nothing has to be read a second time after a wait.
 * Whoever waits for it waits for another transaction that writes the same sign, never
 * for an earlier holder, and as for any row that another transaction has changed:
 * until lock_timeout or statement_timeout.  It is one entry of the lock table for
 * each sign, so that a transaction cannot write tens of thousands of them.
 * RowExclusive on the table.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/health.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "args.h"
#include "authority.h"
#include "catalog/pg_type.h"
#include "clock.h"
#include "fmgr.h"
#include "guard.h"
#include "health.h"
#include "latest.h"
#include "lock.h"
#include "miscadmin.h"
#include "role.h"
#include "store.h"
#include "utils/builtins.h"

SQL_CALLABLE(lease_progress);
SQL_CALLABLE(lease_beat);
SQL_CALLABLE(lease_retire);

/* After how long without a heartbeat a peer is stale, if it does not say */
#define DEFAULT_STALE_AFTER	(INT64CONST(30) * USECS_PER_SEC)

static LatestStatement put_report = {
	"report",
	"INSERT INTO lease.report AS r"
	" (name, epoch, reported_boot, reported_at, boot, within, detail, live, reports)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 1)"
	" ON CONFLICT (name, epoch) DO UPDATE SET reported_boot = excluded.reported_boot,"
	"  reported_at = excluded.reported_at, boot = excluded.boot, within = excluded.within,"
	"  detail = excluded.detail, live = excluded.live, reports = r.reports OPERATOR(pg_catalog.+) 1",
	8, {TEXTOID, INT8OID, INT8OID, TIMESTAMPTZOID, TEXTOID, INT8OID, JSONBOID, BOOLOID},
	NULL
};

static LatestStatement forget_reports = {
	"report",
	"DELETE FROM lease.report AS r WHERE r.ctid OPERATOR(pg_catalog.=) ANY (ARRAY("
	"SELECT o.ctid FROM lease.report AS o"
	" WHERE o.name OPERATOR(pg_catalog.=) $1 AND o.epoch OPERATOR(pg_catalog.<) $2"
	" FOR UPDATE SKIP LOCKED))",
	2, {TEXTOID, INT8OID},
	NULL
};

static LatestStatement put_heartbeat = {
	"heartbeat",
	"INSERT INTO lease.heartbeat AS h"
	" (peer, role, beat_boot, beat_at, boot, stale_after, detail, beats)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, 1)"
	" ON CONFLICT (peer) DO UPDATE SET beat_boot = excluded.beat_boot,"
	"  beat_at = excluded.beat_at, boot = excluded.boot, stale_after = excluded.stale_after,"
	"  detail = excluded.detail, beats = h.beats OPERATOR(pg_catalog.+) 1"
	" RETURNING h.role",
	7, {TEXTOID, REGROLEOID, INT8OID, TIMESTAMPTZOID, TEXTOID, INT8OID, JSONBOID},
	NULL
};

static LatestStatement remove_heartbeat = {
	"heartbeat",
	"DELETE FROM lease.heartbeat AS h WHERE h.peer OPERATOR(pg_catalog.=) $1"
	" RETURNING h.role",
	1, {TEXTOID},
	NULL
};

/*
 * set_sign fills the parameters that both kinds of sign have in common: the moment,
 * until when the next is due, and detail (0: none).
 */
static void
set_sign(const Clock *clock, int64 within, Datum detail, Datum *values, char *nulls)
{
	StoredInstant now = clock_store(clock, clock->now);

	memset(nulls, ' ', LATEST_PARAMETERS_MAX);
	values[2] = Int64GetDatum(now.boot);
	values[3] = TimestampTzGetDatum(now.wall);
	if (clock->boot)
		values[4] = CStringGetTextDatum(clock->boot);
	else
		nulls[4] = 'n';
	values[5] = Int64GetDatum(within);
	values[6] = detail;
	if (detail == (Datum) 0)
		nulls[6] = 'n';
}

/*
 * health_forget removes the reports of a lease under epochs before the given one,
 * except those that somebody is at.
 */
void
health_forget(const char *name, int64 epoch)
{
	Datum		values[] = {CStringGetTextDatum(name), Int64GetDatum(epoch)};

	(void) latest_execute(&forget_reports, values, NULL);
}

/*
 * lease_progress: lease.progress(name, epoch, detail, within)
 */
Datum
lease_progress(PG_FUNCTION_ARGS)
{
	char	   *name = arg_name(fcinfo, 0);
	int64		epoch = arg_epoch(fcinfo, 1);
	Datum		detail = arg_detail_or_null(fcinfo, 2);
	int64		within = arg_interval_or_zero(fcinfo, 3, "within");
	Reading		reading;
	bool		live;
	Datum		values[LATEST_PARAMETERS_MAX] = {0};
	char		nulls[LATEST_PARAMETERS_MAX];

	arg_begin_write("lease.progress()");
	lock_take_sign(name, epoch);
	if (!store_read(name, &reading))
		guard_raise_unknown(name);
	role_check_member(GetUserId(), reading.row.role, name);
	if (reading.row.epoch != epoch)
	{
		lock_drop_sign(name, epoch);	/* it may be a later grant's */
		PG_RETURN_BOOL(false);
	}
	live = authority_standing(&reading.authority, epoch,
							  &reading.at) == STANDING_LIVE;
	if (within == 0)
		within = reading.row.grant_ttl != 0 ? reading.row.grant_ttl : reading.row.ttl;

	values[0] = CStringGetTextDatum(name);
	values[1] = Int64GetDatum(epoch);
	set_sign(&reading.clock, within, detail, values, nulls);
	values[7] = BoolGetDatum(live);
	(void) latest_execute(&put_report, values, nulls);

	/*
	 * At the higher levels, two that remove the same rows would make each
	 * other fail, and so would two that look for any under SERIALIZABLE.  Let
	 * somebody else do it; if nobody does, they stay until the lease is
	 * dropped.
	 */
	if (!IsolationUsesXactSnapshot())
		health_forget(name, epoch);
	PG_RETURN_BOOL(live);
}

/*
 * raise_not_yours raises 42501 for a peer that another role has made.
 */
pg_noreturn static void
raise_not_yours(const char *peer, Oid role)
{
	char	   *owner = GetUserNameFromId(role, true);

	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for peer \"%s\"", peer),
			 owner ?
			 errdetail("The peer belongs to role \"%s\", whose privileges role \"%s\" does not have.",
					   owner, GetUserNameFromId(GetUserId(), false)) :
			 errdetail("The peer belongs to a role that no longer exists."),
			 errhint("A peer is one process incarnation and belongs to the role that beat first. The owner of the extension may remove it with lease.retire().")));
}

/*
 * lease_beat: lease.beat(peer, detail, stale_after)
 *
 * Whose peer it is comes to light with the write, which an error undoes: to look first
 * would take a predicate lock.
 */
Datum
lease_beat(PG_FUNCTION_ARGS)
{
	char	   *peer = arg_string(fcinfo, 0, "peer", LEASE_HOLDER_MAX);
	Datum		detail = arg_detail_or_null(fcinfo, 1);
	int64		stale_after = arg_setting(fcinfo, 2, "stale_after", false,
										  DEFAULT_STALE_AFTER);
	Clock		clock;
	Oid			role;
	Datum		values[LATEST_PARAMETERS_MAX] = {0};
	char		nulls[LATEST_PARAMETERS_MAX];

	arg_begin_write("lease.beat()");
	lock_take_sign(peer, 0);
	clock_read(&clock);

	values[0] = CStringGetTextDatum(peer);
	values[1] = ObjectIdGetDatum(GetUserId());
	set_sign(&clock, stale_after, detail, values, nulls);
	role = DatumGetObjectId(latest_execute(&put_heartbeat, values, nulls));
	if (!role_is_member(GetUserId(), role))
		raise_not_yours(peer, role);
	PG_RETURN_VOID();
}

/*
 * lease_retire: lease.retire(peer)
 */
Datum
lease_retire(PG_FUNCTION_ARGS)
{
	char	   *peer = arg_string(fcinfo, 0, "peer", LEASE_HOLDER_MAX);
	Datum		values[] = {CStringGetTextDatum(peer)};
	Oid			role;

	arg_begin_write("lease.retire()");
	lock_take_sign(peer, 0);
	role = DatumGetObjectId(latest_execute(&remove_heartbeat, values, NULL));
	if (!OidIsValid(role))
	{
		lock_drop_sign(peer, 0);
		PG_RETURN_BOOL(false);
	}
	if (!role_administers(GetUserId(), role))
		raise_not_yours(peer, role);
	PG_RETURN_BOOL(true);
}
