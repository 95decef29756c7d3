/*-------------------------------------------------------------------------
 *
 * monotonic.h
 *	  The clock by which pg_lease keeps its deadlines.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef MONOTONIC_H
#define MONOTONIC_H

#include <poll.h>

/* Instants and durations are microseconds. */
#define SECOND	INT64CONST(1000000)
#define MILLISECOND INT64CONST(1000)

/* An instant that does not come */
#define NEVER	PG_INT64_MAX

extern int64 monotonic_now(void);
extern void monotonic_poll(struct pollfd *descriptors, int count, int64 until);

#endif							/* MONOTONIC_H */
