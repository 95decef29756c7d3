/*-------------------------------------------------------------------------
 *
 * schedule.c
 *	  When the occurrences of a schedule are.
 *
 * An occurrence is an instant.  It follows from the schedule alone, so that whoever
 * computes it, and whenever, finds the same one: it is the identity of what is to be
 * done then.
 *
 * An interval is repeated in both directions from its anchor; a day of it is 24 hours.
 *
 * A cron expression gives local times (cron.c).  In a time zone, time consists of
 * stretches in which the difference from UTC stays the same, and within a stretch a local
 * time is an instant.  Where two stretches meet, local times are missing or come twice:
 *
 *	missing		(clocks go forward) they are taken as if the change had not come yet,
 *				so that 02:30 is the instant half an hour after 02:00, whatever the
 *				clocks show then; where another time of the expression is the same
 *				instant, it is one occurrence
 *	twice		(clocks go back) the first counts; but an expression that has a time
 *				in every hour goes on as if by elapsed time, and both count
 *
 * So what is daily happens once on each day, and what is hourly once in each hour.
 * What a change of the time zone database moves, moves occurrences that are yet to come.
 *
 * Locks: none.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/schedule.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "args.h"
#include "clock.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "schedule.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

SQL_CALLABLE(lease_occurrences);
SQL_CALLABLE(lease_latest_occurrence);
SQL_CALLABLE(lease_count_occurrences);
SQL_CALLABLE(lease_knows_zone);

/* Arguments of lease.occurrences(), as sql/tasks.sql declares them */
enum
{
	Arg_cron,
	Arg_time_zone,
	Arg_every,
	Arg_anchor,
	Arg_after,
	Arg_until,
	Arg_up_to
};

/* The shortest interval */
#define EVERY_MIN		USECS_PER_SEC

/* The longest expression, in bytes; one that lists everything has fewer than 400 */
#define CRON_MAX		1000

/* How far to look, in days: a 29 February on a Monday may be 40 years away */
#define HORIZON			(100 * 366)

/* The instants for which there are occurrences: years 1900 to 9999 */
#define DAYS_FROM_EPOCH(julian_day) \
	(((int64) (julian_day) - POSTGRES_EPOCH_JDATE) * USECS_PER_DAY)
#define FIRST_INSTANT	DAYS_FROM_EPOCH(2415021)
#define END_OF_INSTANTS DAYS_FROM_EPOCH(5373485)

/* No change of a zone is longer, in seconds: Samoa has left out a day. */
#define LONGEST_CHANGE	(2 * SECS_PER_DAY)

#define UNIX_EPOCH_SECONDS \
	((int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY)

/*
 * divide_down divides, rounding down.
 */
static int64
divide_down(int64 a, int64 b)
{
	return a / b - (a % b < 0 ? 1 : 0);
}

/*
 * next_repetition finds the first instant of an interval after one.
 */
static bool
next_repetition(const Schedule *schedule, TimestampTz after, TimestampTz until,
				TimestampTz *instant)
{
	int64		count = divide_down(after - schedule->anchor, schedule->every) + 1;

	*instant = schedule->anchor + count * schedule->every;
	return *instant <= until;
}

/*
 * next_at_offset finds the first time of an expression in a stretch of time, in which
 * local time is UTC plus some seconds.
 */
static bool
next_at_offset(const Cron *cron, int64 from, int64 until, long offset,
			   int64 *instant)
{
	int64		minute;

	if (from >= until ||
		!cron_next(cron, -divide_down(-(from + offset), SECS_PER_MINUTE),
				   -divide_down(-(until + offset), SECS_PER_MINUTE), &minute))
		return false;
	*instant = minute * SECS_PER_MINUTE - offset;
	return true;
}

/*
 * next_in_stretch finds the first time of an expression from an instant on in the
 * stretch between two changes of the zone; before the first one it had another offset.
 */
static bool
next_in_stretch(const Cron *cron, int64 from, int64 begin, int64 end,
				long offset, long offset_before, int64 *instant)
{
	int64		changed = begin + labs(offset - offset_before);
	int64		other;
	bool		found;

	if (offset < offset_before && !cron_runs_every_hour(cron))
		begin = changed;
	found = next_at_offset(cron, Max(from, begin), end, offset, instant);
	if (offset > offset_before &&
		next_at_offset(cron, Max(from, begin), changed, offset_before, &other))
	{
		*instant = found ? Min(*instant, other) : other;
		found = true;
	}
	return found;
}

/*
 * next_by_expression finds the first time of an expression in its zone, from an
 * instant on and before another, in seconds since 1970.
 */
static bool
next_by_expression(const Schedule *schedule, int64 from, int64 until,
				   int64 *instant)
{
	int64		begin = from - LONGEST_CHANGE;
	long		offset_before = 0;
	bool		is_first = true;

	while (begin < until)
	{
		pg_time_t	at = begin;
		pg_time_t	boundary;
		long		offset;
		long		offset_after;
		int			is_dst;
		int			changes = pg_next_dst_boundary(&at, &offset, &is_dst, &boundary,
												   &offset_after, &is_dst,
												   schedule->zone);
		int64		end = changes > 0 ? Min(boundary, until) : until;

		if (changes < 0)
			return false;
		if (next_in_stretch(&schedule->cron, from, begin, end, offset,
							is_first ? offset : offset_before, instant))
			return *instant < until;
		begin = end;
		offset_before = offset;
		is_first = false;
		CHECK_FOR_INTERRUPTS();
	}
	return false;
}

/*
 * schedule_next finds the first instant of a schedule after one, and not after
 * another.
 */
bool
schedule_next(const Schedule *schedule, TimestampTz after, TimestampTz until,
			  TimestampTz *instant)
{
	int64		seconds;

	if (schedule->every > 0)
		return next_repetition(schedule, after, until, instant);
	if (!next_by_expression(schedule,
							divide_down(after, USECS_PER_SEC) + 1 + UNIX_EPOCH_SECONDS,
							divide_down(until, USECS_PER_SEC) + 1 + UNIX_EPOCH_SECONDS,
							&seconds))
		return false;
	*instant = (seconds - UNIX_EPOCH_SECONDS) * USECS_PER_SEC;
	return true;
}

/*
 * arg_instant fetches an instant, which has to be one of the calendar.
 */
static TimestampTz
arg_instant(FunctionCallInfo fcinfo, int n, const char *what, TimestampTz if_null)
{
	TimestampTz instant;

	if (PG_ARGISNULL(n))
		return if_null;
	instant = PG_GETARG_TIMESTAMPTZ(n);
	if (instant < FIRST_INSTANT || instant >= END_OF_INSTANTS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be between the years 1900 and 9999", what)));
	return instant;
}

/*
 * arg_every fetches an interval that is to be repeated.
 */
static int64
arg_every(FunctionCallInfo fcinfo)
{
	Interval	minimum = {EVERY_MIN, 0, 0};

	if (DatumGetBool(DirectFunctionCall2(interval_lt, PG_GETARG_DATUM(Arg_every),
										 IntervalPGetDatum(&minimum))))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("every must be at least 1 second")));
	return clock_interval(PG_GETARG_INTERVAL_P(Arg_every), "every", false);
}

/*
 * arg_cron fetches a cron expression.
 */
static void
arg_cron(FunctionCallInfo fcinfo, Cron *cron)
{
	char	   *expression = text_to_cstring(PG_GETARG_TEXT_PP(Arg_cron));
	char	   *error;

	if (strlen(expression) > CRON_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("cron must not have more than %d bytes", CRON_MAX)));
	error = cron_parse(cron, expression);
	if (error)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid cron expression: \"%s\"", expression),
				 errdetail_internal("%s", error),
				 errhint("Five fields: minute, hour, day of the month, month, day of the week; for example \"30 2 * * mon-fri\".")));
}

/*
 * arg_time_zone fetches a time zone.
 */
static pg_tz *
arg_time_zone(FunctionCallInfo fcinfo)
{
	char	   *name;
	pg_tz	   *zone;

	if (PG_ARGISNULL(Arg_time_zone))
		arg_raise_null("time_zone");
	name = text_to_cstring(PG_GETARG_TEXT_PP(Arg_time_zone));
	zone = strlen(name) <= TZ_STRLEN_MAX ? pg_tzset(name) : NULL;
	if (!zone || !pg_tz_acceptable(zone))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("time zone \"%s\" not recognized", name),
				 errhint("Names are those of the view pg_timezone_names, such as UTC or Europe/Berlin.")));
	return zone;
}

/*
 * arg_schedule fetches a schedule: an expression with its zone, or an interval with
 * its anchor.
 */
static void
arg_schedule(FunctionCallInfo fcinfo, Schedule *schedule)
{
	memset(schedule, 0, sizeof(Schedule));
	if (PG_ARGISNULL(Arg_cron) == PG_ARGISNULL(Arg_every))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 PG_ARGISNULL(Arg_cron) ?
				 errmsg("cron or every must be given") :
				 errmsg("cron and every must not both be given")));
	if (PG_ARGISNULL(Arg_cron))
	{
		schedule->every = arg_every(fcinfo);
		schedule->anchor = arg_instant(fcinfo, Arg_anchor, "anchor",
									   -UNIX_EPOCH_SECONDS * USECS_PER_SEC);
		return;
	}
	arg_cron(fcinfo, &schedule->cron);
	schedule->zone = arg_time_zone(fcinfo);
}

/*
 * arg_up_to fetches how many occurrences are wanted at most.
 */
static int64
arg_up_to(FunctionCallInfo fcinfo)
{
	int32		up_to;

	if (PG_ARGISNULL(Arg_up_to))
	{
		if (PG_ARGISNULL(Arg_until))
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("until and up_to must not both be null")));
		return PG_INT64_MAX;
	}
	up_to = PG_GETARG_INT32(Arg_up_to);
	if (up_to < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("up_to must be at least 1, not %d", up_to)));
	return up_to;
}

/*
 * lease_occurrences: lease.occurrences(cron, time_zone, every, anchor, after, until,
 * up_to)
 */
Datum
lease_occurrences(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set = (ReturnSetInfo *) fcinfo->resultinfo;
	Schedule	schedule;
	TimestampTz after;
	TimestampTz until;
	TimestampTz instant;
	int64		up_to = arg_up_to(fcinfo);

	arg_schedule(fcinfo, &schedule);
	after = arg_instant(fcinfo, Arg_after, "after", clock_transaction_time());
	until = arg_instant(fcinfo, Arg_until, "until",
						Min(after + HORIZON * USECS_PER_DAY, END_OF_INSTANTS - 1));

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	for (int64 i = 0; i < up_to && schedule_next(&schedule, after, until, &instant); i++)
	{
		Datum		value = TimestampTzGetDatum(instant);
		bool		isnull = false;

		tuplestore_putvalues(set->setResult, set->setDesc, &value, &isnull);
		after = instant;
		CHECK_FOR_INTERRUPTS();
	}
	return (Datum) 0;
}

/*
 * lease_latest_occurrence: lease.latest_occurrence(cron, time_zone, every, anchor,
 * after, until)
 *
 * Looks back in longer and longer spans, as the next one is all that can be found.
 */
Datum
lease_latest_occurrence(PG_FUNCTION_ARGS)
{
	Schedule	schedule;
	TimestampTz after;
	TimestampTz until;
	TimestampTz from;
	TimestampTz latest = 0;
	TimestampTz instant;
	bool		found = false;

	arg_schedule(fcinfo, &schedule);
	after = arg_instant(fcinfo, Arg_after, "after", FIRST_INSTANT);
	until = arg_instant(fcinfo, Arg_until, "until", clock_transaction_time());
	for (int64 span = Max(schedule.every, SECS_PER_HOUR * USECS_PER_SEC);
		 !found && after < until; span *= 4)
	{
		from = Max(after, until - span);
		for (instant = from; schedule_next(&schedule, instant, until, &instant); found = true)
			latest = instant;
		if (from == after)
			break;
		CHECK_FOR_INTERRUPTS();
	}
	if (!found)
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(latest);
}

/*
 * lease_count_occurrences: lease.count_occurrences(cron, time_zone, every, anchor,
 * after, until)
 */
Datum
lease_count_occurrences(PG_FUNCTION_ARGS)
{
	Schedule	schedule;
	TimestampTz after;
	TimestampTz until;
	TimestampTz instant;
	int64		count = 0;

	arg_schedule(fcinfo, &schedule);
	after = arg_instant(fcinfo, Arg_after, "after", FIRST_INSTANT);
	until = arg_instant(fcinfo, Arg_until, "until", clock_transaction_time());
	if (schedule.every > 0 && after < until)
		PG_RETURN_INT64(divide_down(until - schedule.anchor, schedule.every) -
						divide_down(after - schedule.anchor, schedule.every));
	for (instant = after; schedule_next(&schedule, instant, until, &instant); count++)
		CHECK_FOR_INTERRUPTS();
	PG_RETURN_INT64(count);
}

/*
 * lease_knows_zone: lease.knows_zone(time_zone)
 */
Datum
lease_knows_zone(PG_FUNCTION_ARGS)
{
	char	   *name;

	if (PG_ARGISNULL(0))
		PG_RETURN_BOOL(true);
	name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	PG_RETURN_BOOL(strlen(name) <= TZ_STRLEN_MAX && pg_tzset(name) != NULL);
}
