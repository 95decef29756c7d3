/*-------------------------------------------------------------------------
 *
 * cron.c
 *	  Cron expressions: five fields that say at which local times.
 *
 * They mean what they mean to cron(8).  A field is a list of values, ranges and "*",
 * the latter two with a step if that is wanted; months and days of the week have
 * names, too.  "L" is the last day of the month, and "5L" its last Friday.  Where both
 * days are restricted, which a field with a "*" in it is not, a day on which one
 * of them is right will do; else both have to be.
 *
 * What cron(8) takes although it means nothing, or not what it seems to, is an error
 * here: a range that goes backwards, a step that leads out of its range at once (90
 * minutes, which is every hour), and a date that there never is, even if a day
 * of the week stands beside it.
 *
 * Local times are counted in minutes since 1970-01-01 00:00, whatever the zone.
 * What they are in one is for schedule.c to say.  No locks, no tables, no clocks.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/cron.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "cron.h"
#include "datatype/timestamp.h"
#include "port/pg_bitutils.h"
#include "utils/datetime.h"

#define MINUTES_PER_DAY (HOURS_PER_DAY * MINS_PER_HOUR)
#define DAYS_PER_WEEK	7

/* After so many days, 400 years, the calendar begins anew. */
#define CALENDAR_DAYS	146097

/* What a field may contain */
typedef struct Field
{
	const char *what;
	int			low;
	int			high;
	const char *const *names;	/* of the values from low on, or NULL */
	int			name_count;
} Field;

enum
{
	FIELD_MINUTE,
	FIELD_HOUR,
	FIELD_DAY,
	FIELD_MONTH,
	FIELD_WEEKDAY,
	FIELD_COUNT
};

static const char *const month_names[] = {
	"jan", "feb", "mar", "apr", "may", "jun",
	"jul", "aug", "sep", "oct", "nov", "dec"
};
static const char *const weekday_names[] = {
	"sun", "mon", "tue", "wed", "thu", "fri", "sat"
};
static const Field fields[FIELD_COUNT] = {
	[FIELD_MINUTE] = {"minute", 0, 59, NULL, 0},
	[FIELD_HOUR] = {"hour", 0, 23, NULL, 0},
	[FIELD_DAY] = {"day of the month", 1, 31, NULL, 0},
	[FIELD_MONTH] = {"month", 1, 12, month_names, lengthof(month_names)},
	[FIELD_WEEKDAY] = {"day of the week", 0, 7, weekday_names, lengthof(weekday_names)}
};

/* Where in an expression the parser is */
typedef struct Parser
{
	const char *at;
	const Field *field;
	char	   *error;			/* what is wrong, or NULL */

	/* What the field has been found to contain */
	uint64		values;
	uint8		last_weekdays;
	bool		last_day;
	bool		star;
} Parser;

/*
 * is_end tells whether an item of a list ends with a character.
 */
static bool
is_end(char c)
{
	return c == '\0' || c == ',' || c == ' ' || c == '\t';
}

/*
 * fail notes what is wrong with the item that begins at some place.
 */
static bool
fail(Parser *parser, const char *item, const char *why)
{
	int			length = 0;

	while (!is_end(item[length]))
		length++;
	parser->error = psprintf("\"%.*s\" is no %s: %s.", length, item,
							 parser->field->what, why);
	return false;
}

/*
 * fail_range notes that a value is none that the field may have.
 */
static bool
fail_range(Parser *parser, const char *item)
{
	const Field *field = parser->field;

	return fail(parser, item,
				psprintf("it takes values from %d to %d%s, ranges, \"*\", steps (\"*/5\", \"8-18/2\") and lists of them",
						 field->low, field->high,
						 field->names ? " or the first three letters of names" : ""));
}

/*
 * accept_char goes past a character if it comes next.
 */
static bool
accept_char(Parser *parser, char c)
{
	if (*parser->at != c)
		return false;
	parser->at++;
	return true;
}

/*
 * accept_name goes past a name if one comes next.
 */
static bool
accept_name(Parser *parser, int *value)
{
	const Field *field = parser->field;

	for (int i = 0; i < field->name_count; i++)
	{
		if (pg_strncasecmp(parser->at, field->names[i], 3) == 0)
		{
			*value = field->low + i;
			parser->at += 3;
			return true;
		}
	}
	return false;
}

/*
 * accept_number goes past a number of one or two digits if one comes next.
 */
static bool
accept_number(Parser *parser, int *value)
{
	int			digits = 0;

	*value = 0;
	while (parser->at[digits] >= '0' && parser->at[digits] <= '9' && digits < 3)
		*value = *value * 10 + (parser->at[digits++] - '0');
	parser->at += digits;
	return digits == 1 || digits == 2;
}

/*
 * accept_value goes past a value of the field.
 */
static bool
accept_value(Parser *parser, int *value)
{
	return accept_name(parser, value) ||
		(accept_number(parser, value) &&
		 *value >= parser->field->low && *value <= parser->field->high);
}

/*
 * accept_range goes past "*", a value, or a range, without its step.
 */
static bool
accept_range(Parser *parser, const char *item, int *low, int *high)
{
	const Field *field = parser->field;

	if (accept_char(parser, '*'))
	{
		parser->star = true;
		*low = field->low;
		/* Sunday is not to be there twice. */
		*high = field == &fields[FIELD_WEEKDAY] ? field->high - 1 : field->high;
		return true;
	}
	if (!accept_value(parser, low))
		return fail_range(parser, item);
	*high = *low;
	if (!accept_char(parser, '-'))
		return true;
	if (!accept_value(parser, high))
		return fail_range(parser, item);
	/* From Monday to Sunday */
	if (field == &fields[FIELD_WEEKDAY] && *high == 0 && *low > 0)
		*high = DAYS_PER_WEEK;
	if (*high < *low)
		return fail(parser, item, "the range goes backwards; write it as a list of two");
	return true;
}

/*
 * accept_step goes past the step of a range, if it has one.
 */
static bool
accept_step(Parser *parser, const char *item, int low, int high, int *step)
{
	*step = 1;
	if (!accept_char(parser, '/'))
		return true;
	if (low == high)
		return fail(parser, item, "a step needs a range or \"*\" before it");
	if (!accept_number(parser, step) || *step == 0)
		return fail(parser, item, "a step is a number from 1 on");
	if (*step > high - low)
		return fail(parser, item,
					psprintf("a step of %d leads out of the range from %d to %d at once",
							 *step, low, high));
	return true;
}

/*
 * parse_item parses an item of a list.
 */
static bool
parse_item(Parser *parser)
{
	const char *item = parser->at;
	bool		is_day = parser->field == &fields[FIELD_DAY];
	bool		is_weekday = parser->field == &fields[FIELD_WEEKDAY];
	int			low;
	int			high;
	int			step;

	if (is_day && (accept_char(parser, 'L') || accept_char(parser, 'l')))
	{
		parser->last_day = true;
		return is_end(*parser->at) || fail_range(parser, item);
	}
	if (!accept_range(parser, item, &low, &high))
		return false;
	if (is_weekday && low == high &&
		(accept_char(parser, 'L') || accept_char(parser, 'l')))
	{
		parser->last_weekdays |= 1 << (low % DAYS_PER_WEEK);
		return is_end(*parser->at) || fail_range(parser, item);
	}
	if (!accept_step(parser, item, low, high, &step))
		return false;
	for (int value = low; value <= high; value += step)
		parser->values |= UINT64CONST(1) << (is_weekday ? value % DAYS_PER_WEEK : value);
	return is_end(*parser->at) || fail_range(parser, item);
}

/*
 * parse_field parses a field.
 */
static bool
parse_field(Parser *parser, const Field *field)
{
	parser->field = field;
	parser->values = 0;
	parser->star = false;
	parser->at += strspn(parser->at, " \t");
	do
	{
		if (!parse_item(parser))
			return false;
	} while (accept_char(parser, ','));
	return true;
}

/*
 * count_fields returns how many fields an expression has.
 */
static int
count_fields(const char *expression)
{
	int			count = 0;

	for (const char *c = expression; *c != '\0'; c++)
	{
		if (strchr(" \t", *c) == NULL && (c == expression || strchr(" \t", c[-1]) != NULL))
			count++;
	}
	return count;
}

/*
 * has_dates tells whether there ever are such days of the month in such months.
 */
static bool
has_dates(const Cron *cron)
{
	Cron		any = *cron;
	int64		minute;

	any.any_weekday = true;
	any.weekdays = (1 << DAYS_PER_WEEK) - 1;
	return cron_next(&any, 0, (int64) CALENDAR_DAYS * MINUTES_PER_DAY, &minute);
}

/*
 * cron_parse parses a cron expression, and returns NULL, or what is wrong with it.
 */
char *
cron_parse(Cron *cron, const char *expression)
{
	Parser		parser = {0};
	uint64		values[FIELD_COUNT];
	int			count;
	int64		minute;

	memset(cron, 0, sizeof(Cron));
	count = count_fields(expression);
	if (count != FIELD_COUNT)
		return psprintf("It has %d field%s and must have %d: there are none for seconds and years, and no abbreviations.",
						count, count == 1 ? "" : "s", FIELD_COUNT);
	parser.at = expression;

	for (int i = 0; i < FIELD_COUNT; i++)
	{
		if (!parse_field(&parser, &fields[i]))
			return parser.error;
		values[i] = parser.values;
		if (i == FIELD_DAY)
			cron->any_day = parser.star;
		else if (i == FIELD_WEEKDAY)
			cron->any_weekday = parser.star;
	}
	cron->minutes = values[FIELD_MINUTE];
	cron->hours = (uint32) values[FIELD_HOUR];
	cron->days = (uint32) values[FIELD_DAY];
	cron->months = (uint16) values[FIELD_MONTH];
	cron->weekdays = (uint8) values[FIELD_WEEKDAY];
	cron->last_weekdays = parser.last_weekdays;
	cron->last_day = parser.last_day;
	if (!has_dates(cron) ||
		!cron_next(cron, 0, (int64) CALENDAR_DAYS * MINUTES_PER_DAY, &minute))
		return pstrdup("There is no such date in any year.");
	return NULL;
}

/*
 * cron_runs_every_hour tells whether each hour of the day has a time in it.
 */
bool
cron_runs_every_hour(const Cron *cron)
{
	return cron->hours == (1 << HOURS_PER_DAY) - 1;
}

/*
 * is_right_day tells whether a day is one of an expression.
 */
static bool
is_right_day(const Cron *cron, int64 day)
{
	int			julian = (int) day + UNIX_EPOCH_JDATE;
	int			year;
	int			month;
	int			day_of_month;
	int			last;
	int			weekday = j2day(julian);
	bool		by_day;
	bool		by_weekday;

	j2date(julian, &year, &month, &day_of_month);
	if ((cron->months & (1 << month)) == 0)
		return false;
	last = day_tab[isleap(year)][month - 1];
	by_day = (cron->days & ((uint32) 1 << day_of_month)) != 0 ||
		(cron->last_day && day_of_month == last);
	by_weekday = (cron->weekdays & (1 << weekday)) != 0 ||
		((cron->last_weekdays & (1 << weekday)) != 0 &&
		 day_of_month + DAYS_PER_WEEK > last);
	return cron->any_day || cron->any_weekday ?
		by_day && by_weekday : by_day || by_weekday;
}

/*
 * next_time finds the first time of day of an expression from some minute of the day on.
 */
static bool
next_time(const Cron *cron, int from, int *time)
{
	for (int hour = from / MINS_PER_HOUR; hour < HOURS_PER_DAY; hour++)
	{
		int			minute = hour == from / MINS_PER_HOUR ? from % MINS_PER_HOUR : 0;
		uint64		left = cron->minutes >> minute;

		if ((cron->hours & (1 << hour)) == 0 || left == 0)
			continue;
		*time = hour * MINS_PER_HOUR + minute + pg_rightmost_one_pos64(left);
		return true;
	}
	return false;
}

/*
 * cron_next finds the first local time of an expression from one on and before
 * another.
 */
bool
cron_next(const Cron *cron, int64 from, int64 until, int64 *minute)
{
	int64		day = from / MINUTES_PER_DAY;
	int			time;

	if (from % MINUTES_PER_DAY < 0)
		day--;
	for (; day * MINUTES_PER_DAY < until; day++)
	{
		int			begin = (int) Max(from - day * MINUTES_PER_DAY, 0);

		if (!is_right_day(cron, day) || !next_time(cron, begin, &time))
			continue;
		*minute = day * MINUTES_PER_DAY + time;
		return *minute < until;
	}
	return false;
}
