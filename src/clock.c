/*-------------------------------------------------------------------------
 *
 * clock.c
 *	  Transaction time, and the boot clock as its witness.
 *
 * The instant that decides about a lease is the start of the transaction, on
 * the database server's clock.  It is measured on the host's boot clock
 * (CLOCK_BOOTTIME), which no step of the wall clock moves: a row stores its
 * instants on that clock together with the identity of the boot, and their
 * images on the wall clock.  While the identity matches, the boot clock alone
 * decides; after a reboot or on another host the images do.
 *
 * Every instant that is read is first brought onto the scale of the present
 * reading (clock_localize), so that nothing else has to know which clock it
 * came from.  Where there is no boot clock, that scale is the wall clock.
 *
 * Nothing else in lease reads a clock.  This module takes no locks.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/clock.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "access/xact.h"
#include "clock.h"
#include "common/int.h"
#include "storage/fd.h"

/* Where Linux tells which boot this is, and whose clocks a process sees. */
#define BOOT_ID_FILE		"/proc/sys/kernel/random/boot_id"
#define TIME_NAMESPACE_LINK "/proc/self/ns/time"

/* Both clocks are read at the same time, give or take so many microseconds. */
#define READ_TOLERANCE		INT64CONST(1000)
#define READ_ATTEMPTS		10

/*
 * The start of the transaction on the boot clock, and on the wall clock, by
 * which it is known: reckoned once in each transaction, so that all its
 * decisions are made at the same instant.  If a clock that was set back ever
 * gave two transactions the same start, the later one would look older than it
 * is, which gains nobody anything.
 */
static int64 transaction_boot = 0;
static TimestampTz transaction_wall = 0;

/* Neither changes while a process runs. */
static bool boot_identified = false;
static char boot_identity[128] = "";

#ifdef CLOCK_BOOTTIME
/*
 * read_boot_id reads the kernel's identifier of this boot into a buffer and
 * returns its length, or 0 where there is none.
 *
 * A failure that may pass is an error: it must not make this session judge by
 * another clock than the rest.
 */
static size_t
read_boot_id(char *buffer, size_t size)
{
	int			fd;
	ssize_t		length;

	fd = OpenTransientFile(BOOT_ID_FILE, O_RDONLY);
	if (fd < 0)
	{
		if (errno == ENOENT || errno == EACCES)
			return 0;
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not open file \"%s\": %m", BOOT_ID_FILE)));
	}
	length = read(fd, buffer, size - 1);
	if (length < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read file \"%s\": %m", BOOT_ID_FILE)));
	CloseTransientFile(fd);
	while (length > 0 && buffer[length - 1] == '\n')
		length--;
	buffer[length] = '\0';
	return (size_t) length;
}
#endif

/*
 * boot_clock_identity returns the identity of this host's boot clock: boot id
 * and time namespace, because a container may see a shifted clock.  NULL
 * means that there is no boot clock whose values mean anything to another
 * process.
 */
static const char *
boot_clock_identity(void)
{
	if (!boot_identified)
	{
#ifdef CLOCK_BOOTTIME
		char		boot_id[64];
		char		namespace[32];
		struct timespec ts;

		if (clock_gettime(CLOCK_BOOTTIME, &ts) == 0 &&
			read_boot_id(boot_id, sizeof(boot_id)) > 0)
		{
			ssize_t		length;

			/* Kernels before 5.6 have no time namespaces, and no link. */
			length = readlink(TIME_NAMESPACE_LINK, namespace,
							  sizeof(namespace) - 1);
			namespace[Max(length, 0)] = '\0';
			snprintf(boot_identity, sizeof(boot_identity), "%s %s",
					 boot_id, namespace);
		}
#endif
		boot_identified = true;
	}
	return boot_identity[0] != '\0' ? boot_identity : NULL;
}

/*
 * boot_clock_now returns the boot clock in microseconds.
 */
static int64
boot_clock_now(void)
{
#ifdef CLOCK_BOOTTIME
	struct timespec ts;

	if (clock_gettime(CLOCK_BOOTTIME, &ts) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("could not read the boot clock: %m")));
	return (int64) ts.tv_sec * USECS_PER_SEC + ts.tv_nsec / 1000;
#else
	pg_unreachable();
#endif
}

/*
 * clock_read reads both clocks.
 *
 * The wall clock is read between two readings of the boot clock, again if this
 * process was held up in between: "now" is the later one, and the
 * transaction's start is reckoned back from the earlier one by the time that
 * has passed on the wall clock since, so that a pause here makes nobody's
 * authority longer.
 *
 * A forward step of the wall clock since the transaction's start makes it look
 * older, a backward one never makes it look younger than the present: a taker
 * is judged at that instant and a holder at the present too, so that neither
 * gains by a step.
 */
void
clock_read(Clock *clock)
{
	int64		offset = (int64) lease_clock_offset * 1000;
	TimestampTz wall_tx = GetCurrentTransactionStartTimestamp();
	TimestampTz wall_now = 0;
	int64		before = 0;
	int64		after = 0;

	clock->boot = boot_clock_identity();
	if (clock->boot)
	{
		for (int i = 0; i < READ_ATTEMPTS; i++)
		{
			before = boot_clock_now();
			wall_now = GetCurrentTimestamp();
			after = boot_clock_now();
			if (after - before < READ_TOLERANCE)
				break;
		}
		if (transaction_wall != wall_tx)
		{
			transaction_boot = before - Max(0, wall_now - wall_tx);
			transaction_wall = wall_tx;
		}
		clock->now = after + offset;
		clock->tx = transaction_boot + offset;
	}
	else
	{
		wall_now = GetCurrentTimestamp();
		clock->now = wall_now + offset;
		clock->tx = Min(wall_tx, wall_now) + offset;
	}
	clock->wall_now = wall_now + offset;
	clock->wall_tx = wall_tx + offset;
}

/*
 * clock_transaction_time returns the instant at which the transaction began, on the wall
 * clock as we reckon it.
 */
TimestampTz
clock_transaction_time(void)
{
	Clock		clock;

	clock_read(&clock);
	return clock.wall_tx;
}

/*
 * clock_moment returns the present in microseconds, for measuring how long a
 * wait takes; no step of the wall clock shortens or prolongs it where there is
 * a boot clock.
 */
int64
clock_moment(void)
{
	return boot_clock_identity() ? boot_clock_now() : GetCurrentTimestamp();
}

/*
 * clock_is_witness tells whether the clock of a reading is the one by which an
 * instant was stored, and is none that can be stepped.
 */
bool
clock_is_witness(const Clock *clock, const char *boot)
{
	return clock->boot && boot && strcmp(clock->boot, boot) == 0;
}

/*
 * clock_localize brings a stored instant onto the scale of a reading.  On the
 * boot that stored it that is the stored value itself; elsewhere it lies as
 * far from the present as its image lies from the present wall clock.
 */
int64
clock_localize(const Clock *clock, const char *boot,
			   const StoredInstant *instant)
{
	int64		distance;
	int64		result;

	if (clock_is_witness(clock, boot))
		result = instant->boot;
	else if (pg_sub_s64_overflow(instant->wall, clock->wall_now, &distance) ||
			 pg_add_s64_overflow(clock->now, distance, &result))
		result = instant->wall < clock->wall_now ? PG_INT64_MIN : PG_INT64_MAX;

	/* Leave room, so that a caller may add intervals and subtract instants. */
	return Max(PG_INT64_MIN / 4, Min(result, PG_INT64_MAX / 4));
}

/*
 * clock_store gives the stored form of an instant on the scale of a reading.
 */
StoredInstant
clock_store(const Clock *clock, int64 instant)
{
	StoredInstant result;

	result.boot = instant;
	result.wall = clock->wall_now + (instant - clock->now);
	return result;
}

/*
 * clock_step returns by how much the wall clock has been stepped since an
 * instant was stored (positive: forward), in microseconds.  It is 0 where no
 * boot clock can bear witness.
 */
int64
clock_step(const Clock *clock, const char *boot, const StoredInstant *instant)
{
	if (!clock_is_witness(clock, boot))
		return 0;
	return (clock->wall_now - clock->now) - (instant->wall - instant->boot);
}

/*
 * clock_image returns where a stored instant lies on the present wall clock.
 * What is less than a step is left alone, so that the image does not tremble
 * with every reading.
 */
TimestampTz
clock_image(const Clock *clock, const char *boot, const StoredInstant *instant)
{
	int64		step = clock_step(clock, boot, instant);

	if (step > CLOCK_STEP_WARNING || step < -CLOCK_STEP_WARNING)
		return instant->wall + step;
	return instant->wall;
}

/*
 * clock_interval turns an interval into microseconds, a day being 24 hours.
 * Months have no fixed length and are refused, as is everything below a
 * millisecond (but zero, where that has a meaning) and beyond a century.
 */
int64
clock_interval(const Interval *interval, const char *argument,
			   bool zero_allowed)
{
	int64		days;
	int64		result;

	/* The infinite intervals of PostgreSQL 17 have INT_MAX months, too. */
	if (interval->month != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not contain months or years or be infinite",
						argument),
				 errhint("Give it in days, hours, minutes, seconds or milliseconds; a day counts as 24 hours.")));

	if (pg_mul_s64_overflow(interval->day, USECS_PER_DAY, &days) ||
		pg_add_s64_overflow(days, interval->time, &result))
		result = interval->day < 0 ? PG_INT64_MIN : PG_INT64_MAX;
	if (result > LEASE_INTERVAL_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is too long", argument),
				 errdetail("The longest interval is %d days.",
						   (int) (LEASE_INTERVAL_MAX / USECS_PER_DAY))));

	if (result < LEASE_INTERVAL_MIN && !(zero_allowed && result == 0))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be at least 1 ms", argument),
				 zero_allowed ? errdetail("Zero is allowed, too.") : 0));
	return result;
}

/*
 * clock_interval_datum turns microseconds into an interval.
 */
Datum
clock_interval_datum(int64 microseconds)
{
	Interval   *interval = palloc0(sizeof(Interval));

	interval->time = microseconds;
	return IntervalPGetDatum(interval);
}
