/*-------------------------------------------------------------------------
 *
 * status.c
 *	  What lease.status shows.
 *
 * The rows are read as everywhere in lease, under the latest snapshot and
 * without predicate locks, so that somebody who watches leases in a
 * SERIALIZABLE transaction is no reason for a heartbeat to fail, and they are
 * judged at the transaction time.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/status.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "args.h"
#include "authority.h"
#include "clock.h"
#include "fmgr.h"
#include "funcapi.h"
#include "store.h"
#include "utils/builtins.h"

SQL_CALLABLE(lease_read_status);

/* Columns of lease.read_status(), as sql/status.sql declares them */
enum
{
	Status_name,
	Status_role,
	Status_state,
	Status_epoch,
	Status_holder,
	Status_acquired_at,
	Status_expires_at,
	Status_remaining,
	Status_available_at,
	Status_last_end,
	Status_successor,
	Status_reason,
	Status_handover_at,
	Status_handover_to,
	Status_handover_reason,
	Status_metadata,
	Status_ttl,
	Status_grace,
	Status_min_hold,
	Status_late_commit,
	Status_evict,
	Status_async_renew,
	Status_events,
	Status_clock_step,
	Status_columns
};

/* What receive_row gets */
typedef struct StatusTarget
{
	ReturnSetInfo *set;
	Clock		clock;
} StatusTarget;

/*
 * phase_name returns the word for a phase.
 */
static const char *
phase_name(Phase phase)
{
	switch (phase)
	{
		case PHASE_FREE:
			return "free";
		case PHASE_HELD:
			return "held";
		case PHASE_EXPIRED:
			return "expired";
		case PHASE_GRACE:
			return "grace";
		case PHASE_RESERVED:
			return "reserved";
	}
	return NULL;				/* keep compiler quiet */
}

/*
 * end_name returns the word for what became of the latest grant, or NULL if
 * there is none or it has not ended.
 */
static const char *
end_name(GrantState state, Phase phase)
{
	switch (state)
	{
		case GRANT_NONE:
			return NULL;
		case GRANT_MADE:
			return phase == PHASE_HELD ? NULL : "expired";
		case GRANT_RELEASED:
			return "released";
		case GRANT_REVOKED:
			return "revoked";
	}
	return NULL;				/* keep compiler quiet */
}

/*
 * receive_row appends a lease to the result.
 */
static void
receive_row(const LeaseRow *row, void *arg)
{
	StatusTarget *target = (StatusTarget *) arg;
	Authority	authority;
	Phase		phase;
	bool		held;
	int64		available;
	const char *end;
	Datum		values[Status_columns] = {0};
	bool		nulls[Status_columns];

	store_authority(row, &target->clock, &authority);
	phase = authority_phase(&authority, target->clock.tx);
	held = phase == PHASE_HELD;
	available = authority_available(&authority);
	end = end_name(row->state, phase);

#define SET_IF(condition, column, value) \
	do { \
		nulls[Status_ ## column] = !(condition); \
		if (condition) \
			values[Status_ ## column] = (value); \
	} while (0)

	SET_IF(true, name, CStringGetTextDatum(row->name));
	SET_IF(true, role, ObjectIdGetDatum(row->role));
	SET_IF(true, state, CStringGetTextDatum(phase_name(phase)));
	SET_IF(row->epoch != 0, epoch, Int64GetDatum(row->epoch));
	SET_IF(row->epoch != 0, holder, CStringGetTextDatum(row->holder));
	SET_IF(row->epoch != 0, acquired_at,
		   TimestampTzGetDatum(clock_image(&target->clock, row->boot, &row->acquired)));
	SET_IF(row->epoch != 0, expires_at,
		   TimestampTzGetDatum(clock_image(&target->clock, row->boot, &row->deadline)));
	SET_IF(true, remaining,
		   clock_interval_datum(held ? Max(authority.deadline - target->clock.now, 0) : 0));
	SET_IF(available != PG_INT64_MIN, available_at,
		   TimestampTzGetDatum(clock_image(&target->clock, row->boot, &row->deadline) +
							   (available - authority.deadline)));
	SET_IF(end != NULL, last_end, CStringGetTextDatum(end));
	SET_IF(row->successor != NULL, successor,
		   CStringGetTextDatum(row->successor));
	SET_IF(row->reason != NULL, reason, CStringGetTextDatum(row->reason));
	SET_IF(row->handover_at != 0, handover_at,
		   TimestampTzGetDatum(row->handover_at));
	SET_IF(row->handover_to != NULL, handover_to,
		   CStringGetTextDatum(row->handover_to));
	SET_IF(row->handover_reason != NULL, handover_reason,
		   CStringGetTextDatum(row->handover_reason));
	SET_IF(row->metadata != (Datum) 0, metadata, row->metadata);
	SET_IF(true, ttl, clock_interval_datum(row->ttl));
	SET_IF(true, grace, clock_interval_datum(row->grace));
	SET_IF(true, min_hold, clock_interval_datum(row->min_hold));
	SET_IF(true, late_commit, BoolGetDatum(row->late_commit));
	SET_IF(true, evict, CStringGetTextDatum(arg_evict_name(row->evict)));
	SET_IF(true, async_renew, BoolGetDatum(row->async_renew));
	SET_IF(true, events, Int64GetDatum(row->event_seq));
	SET_IF(row->epoch != 0 &&
		   clock_is_witness(&target->clock, row->boot), clock_step,
		   clock_interval_datum(clock_step(&target->clock, row->boot,
										   &row->deadline)));

#undef SET_IF

	tuplestore_putvalues(target->set->setResult, target->set->setDesc,
						 values, nulls);
}

/*
 * lease_read_status: lease.read_status(), of which the view is made
 */
Datum
lease_read_status(PG_FUNCTION_ARGS)
{
	StatusTarget target;

	InitMaterializedSRF(fcinfo, 0);
	target.set = (ReturnSetInfo *) fcinfo->resultinfo;
	clock_read(&target.clock);
	store_read_all(receive_row, &target);
	return (Datum) 0;
}
