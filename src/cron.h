/*-------------------------------------------------------------------------
 *
 * cron.h
 *	  Cron expressions: five fields that say at which local times.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_CRON_H
#define LEASE_CRON_H

#include "lease.h"

/* A cron expression; each set has a bit for each value that is in it */
typedef struct Cron
{
	uint64		minutes;
	uint32		hours;
	uint32		days;			/* of the month */
	uint16		months;
	uint8		weekdays;		/* from Sunday, 0, on */
	uint8		last_weekdays;	/* the last of the month */
	bool		last_day;		/* of the month */
	bool		any_day;		/* the field of the day has a "*" in it */
	bool		any_weekday;	/* likewise */
} Cron;

extern char *cron_parse(Cron *cron, const char *expression);
extern bool cron_next(const Cron *cron, int64 from, int64 until, int64 *minute);
extern bool cron_runs_every_hour(const Cron *cron);

#endif							/* LEASE_CRON_H */
