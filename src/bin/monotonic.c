/*-------------------------------------------------------------------------
 *
 * monotonic.c
 *	  The clock by which pg_lease keeps its deadlines.
 *
 * It is the boot clock where there is one: like the server's leases it goes on
 * while the machine is suspended, and no step of the wall clock moves it.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/bin/monotonic.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <time.h>

#include "monotonic.h"

#ifdef CLOCK_BOOTTIME
#define CLOCK	CLOCK_BOOTTIME
#else
#define CLOCK	CLOCK_MONOTONIC
#endif

/*
 * poll() measures its timeout on a clock that stands still while the machine is
 * suspended.  Never to sleep for longer than this is to notice within that time
 * that an instant has passed meanwhile.
 */
#define LONGEST_SLEEP	(500 * MILLISECOND)

/*
 * monotonic_now returns the present instant.
 */
int64
monotonic_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK, &ts);
	return ts.tv_sec * SECOND + ts.tv_nsec / 1000;
}

/*
 * monotonic_poll waits until something can be done with one of the descriptors,
 * or until an instant; it may return earlier.
 */
void
monotonic_poll(struct pollfd *descriptors, int count, int64 until)
{
	int64		left = until - monotonic_now();

	left = Min(Max(left, 0), LONGEST_SLEEP);
	if (poll(descriptors, count, (int) ((left + MILLISECOND - 1) / MILLISECOND)) < 0)
	{
		/* Interrupted: nothing is known of any of them. */
		for (int i = 0; i < count; i++)
			descriptors[i].revents = 0;
	}
}
