/*-------------------------------------------------------------------------
 *
 * clock.h
 *	  Transaction time, and the boot clock as its witness.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_CLOCK_H
#define LEASE_CLOCK_H

#include "lease.h"

/*
 * An instant as a row stores it: on the boot clock of the host that wrote it,
 * and its image on that host's wall clock.
 */
typedef struct StoredInstant
{
	int64		boot;			/* microseconds on the boot clock */
	TimestampTz wall;			/* image on the wall clock */
} StoredInstant;

/* A step of the wall clock that is worth a warning, in microseconds */
#define CLOCK_STEP_WARNING	USECS_PER_SEC

/*
 * One reading of the clocks.  "now" and "tx" are microseconds on the scale
 * that decides: the boot clock where there is one, else the wall clock.
 */
typedef struct Clock
{
	int64		now;			/* the moment of the reading */
	int64		tx;				/* the start of the transaction */
	TimestampTz wall_now;		/* the same two on the wall clock */
	TimestampTz wall_tx;
	const char *boot;			/* identity of the boot clock, NULL if none */
} Clock;

extern void clock_read(Clock *clock);
extern TimestampTz clock_transaction_time(void);
extern int64 clock_moment(void);
extern bool clock_is_witness(const Clock *clock, const char *boot);
extern int64 clock_localize(const Clock *clock, const char *boot,
							const StoredInstant *instant);
extern StoredInstant clock_store(const Clock *clock, int64 instant);
extern int64 clock_step(const Clock *clock, const char *boot,
						const StoredInstant *instant);
extern TimestampTz clock_image(const Clock *clock, const char *boot,
							   const StoredInstant *instant);
extern Datum clock_interval_datum(int64 microseconds);
extern int64 clock_interval(const Interval *interval, const char *argument,
							bool zero_allowed);

#endif							/* LEASE_CLOCK_H */
