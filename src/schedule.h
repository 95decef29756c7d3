/*-------------------------------------------------------------------------
 *
 * schedule.h
 *	  When the occurrences of a schedule are.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_SCHEDULE_H
#define LEASE_SCHEDULE_H

#include "lease.h"

#include "cron.h"
#include "pgtime.h"

/* A schedule: an interval that is repeated, or a cron expression in a time zone */
typedef struct Schedule
{
	int64		every;			/* microseconds; 0: by the expression */
	TimestampTz anchor;			/* one of the instants of an interval */
	Cron		cron;
	pg_tz	   *zone;
} Schedule;

extern bool schedule_next(const Schedule *schedule, TimestampTz after,
						  TimestampTz until, TimestampTz *instant);

#endif							/* LEASE_SCHEDULE_H */
