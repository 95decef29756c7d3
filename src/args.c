/*-------------------------------------------------------------------------
 *
 * args.c
 *	  Arguments of the SQL-callable functions.
 *
 * No function of lease is STRICT, because a NULL that is skipped in silence
 * looks like a success.  Each argument is fetched through one of these, which
 * either returns a value that can be used as it is or raises an error that
 * names the argument.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/args.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "args.h"
#include "catalog/pg_type.h"
#include "clock.h"
#include "lock.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "token.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"

/*
 * arg_raise_null raises 22004.
 */
void
arg_raise_null(const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 errmsg("%s must not be null", what)));
}

/*
 * arg_check_name raises 42602 unless a string is the name of a lease.
 */
void
arg_check_name(const char *name)
{
	if (!token_name_is_valid(name, strlen(name)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("invalid lease name: \"%.*s\"",
						pg_mbcliplen(name, (int) strlen(name), LEASE_NAME_MAX + 1),
						name),
				 errdetail("A name has 1 to %d characters out of A-Z, a-z, 0-9, \"_\", \".\", \":\", \"/\" and \"-\", and begins with a letter, a digit or \"_\".",
						   LEASE_NAME_MAX)));
}

/*
 * arg_check_epoch raises 22023 unless a number can be an epoch.
 */
void
arg_check_epoch(int64 epoch)
{
	if (epoch <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("epoch must be positive, not %lld", (long long) epoch),
				 errhint("Use the epoch that lease.acquire() returned.")));
}

/*
 * arg_name fetches the name of a lease.
 */
char *
arg_name(FunctionCallInfo fcinfo, int n)
{
	char	   *name;

	if (PG_ARGISNULL(n))
		arg_raise_null("name of the lease");
	name = text_to_cstring(PG_GETARG_TEXT_PP(n));
	arg_check_name(name);
	return name;
}

/*
 * arg_name_or_null fetches the name of a lease, or NULL if it cannot be one:
 * for functions that answer "no" to whatever does not exist.
 */
char *
arg_name_or_null(FunctionCallInfo fcinfo, int n)
{
	char	   *name;

	if (PG_ARGISNULL(n))
		return NULL;
	name = text_to_cstring(PG_GETARG_TEXT_PP(n));
	return token_name_is_valid(name, strlen(name)) ? name : NULL;
}

/*
 * arg_epoch fetches an epoch.
 */
int64
arg_epoch(FunctionCallInfo fcinfo, int n)
{
	int64		epoch;

	if (PG_ARGISNULL(n))
		arg_raise_null("epoch");
	epoch = PG_GETARG_INT64(n);
	arg_check_epoch(epoch);
	return epoch;
}

/*
 * arg_bool fetches a boolean.
 */
bool
arg_bool(FunctionCallInfo fcinfo, int n, const char *what)
{
	if (PG_ARGISNULL(n))
		arg_raise_null(what);
	return PG_GETARG_BOOL(n);
}

/*
 * check_string raises an error for a string that is empty, too long or could
 * not be shown in one line of a log.
 */
static void
check_string(const char *string, const char *what, size_t max)
{
	size_t		length = strlen(string);

	if (length == 0 || length > max)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must have 1 to %zu bytes, not %zu",
						what, max, length)));
	for (size_t i = 0; i < length; i++)
	{
		unsigned char c = (unsigned char) string[i];

		if (c < ' ' || c == 0x7f)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("%s must not contain control characters", what)));
	}
}

/*
 * arg_string fetches a string of limited length.
 */
char *
arg_string(FunctionCallInfo fcinfo, int n, const char *what, size_t max)
{
	if (PG_ARGISNULL(n))
		arg_raise_null(what);
	return arg_string_or_null(fcinfo, n, what, max);
}

/*
 * arg_string_or_null does the same where NULL has a meaning.
 */
char *
arg_string_or_null(FunctionCallInfo fcinfo, int n, const char *what,
				   size_t max)
{
	char	   *string;

	if (PG_ARGISNULL(n))
		return NULL;
	string = text_to_cstring(PG_GETARG_TEXT_PP(n));
	check_string(string, what, max);
	return string;
}

/*
 * arg_interval_or_zero fetches an interval in microseconds, 0 for NULL.
 */
int64
arg_interval_or_zero(FunctionCallInfo fcinfo, int n, const char *what)
{
	return arg_setting(fcinfo, n, what, false, 0);
}

/*
 * arg_setting fetches an interval in microseconds where zero may be allowed
 * and NULL stands for some value.
 */
int64
arg_setting(FunctionCallInfo fcinfo, int n, const char *what,
			bool zero_allowed, int64 if_null)
{
	if (PG_ARGISNULL(n))
		return if_null;
	return clock_interval(PG_GETARG_INTERVAL_P(n), what, zero_allowed);
}

/*
 * arg_wait fetches a length of time that somebody has measured, or reckoned, in
 * microseconds: unlike a setting it may be of any size from zero on.
 */
int64
arg_wait(FunctionCallInfo fcinfo, int n, const char *what, int64 if_null)
{
	const Interval *interval;

	if (PG_ARGISNULL(n))
		return if_null;
	interval = PG_GETARG_INTERVAL_P(n);
	if (interval->month == 0 && interval->day == 0 &&
		interval->time >= 0 && interval->time < LEASE_INTERVAL_MIN)
		return interval->time;
	return clock_interval(interval, what, true);
}

/*
 * arg_evict fetches which sessions a takeover may end.
 */
Evict
arg_evict(FunctionCallInfo fcinfo, int n, Evict if_null)
{
	static const Evict choices[] = {EVICT_NONE, EVICT_BLOCKERS, EVICT_ALL};
	char	   *word;

	if (PG_ARGISNULL(n))
		return if_null;
	word = text_to_cstring(PG_GETARG_TEXT_PP(n));
	for (int i = 0; i < (int) lengthof(choices); i++)
	{
		if (strcmp(word, arg_evict_name(choices[i])) == 0)
			return choices[i];
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for evict: \"%s\"", word),
			 errhint("Say none, blockers or all.")));
	return if_null;				/* keep compiler quiet */
}

/*
 * arg_evict_name returns the word for it.
 */
const char *
arg_evict_name(Evict evict)
{
	switch (evict)
	{
		case EVICT_NONE:
			return "none";
		case EVICT_BLOCKERS:
			return "blockers";
		case EVICT_ALL:
			return "all";
	}
	return NULL;				/* keep compiler quiet */
}

/*
 * arg_array takes a one-dimensional array without nulls apart.
 */
int
arg_array(FunctionCallInfo fcinfo, int n, Oid type, const char *what,
		  Datum **elements)
{
	ArrayType  *array;
	int			count;

	if (PG_ARGISNULL(n))
		arg_raise_null(what);
	array = PG_GETARG_ARRAYTYPE_P(n);
	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("%s must be a one-dimensional array", what)));
	if (array_contains_nulls(array))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not contain nulls", what)));
	if (type == TEXTOID)
		deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT,
						  elements, NULL, &count);
	else
		deconstruct_array(array, INT8OID, sizeof(int64), FLOAT8PASSBYVAL,
						  TYPALIGN_DOUBLE, elements, NULL, &count);
	return count;
}

/*
 * small_jsonb_or_null fetches a jsonb of limited length, 0 for NULL.
 */
static Datum
small_jsonb_or_null(FunctionCallInfo fcinfo, int n, const char *what, int max,
					const char *hint)
{
	Jsonb	   *value;

	if (PG_ARGISNULL(n))
		return (Datum) 0;
	value = PG_GETARG_JSONB_P(n);
	if (VARSIZE_ANY_EXHDR(value) > (size_t) max)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must have at most %d bytes as stored, not %zu",
						what, max, (size_t) VARSIZE_ANY_EXHDR(value)),
				 errhint("%s", hint)));
	return JsonbPGetDatum(value);
}

/*
 * arg_metadata_or_null fetches the metadata of a grant, 0 for NULL.
 */
Datum
arg_metadata_or_null(FunctionCallInfo fcinfo, int n)
{
	return small_jsonb_or_null(fcinfo, n, "metadata", LEASE_METADATA_MAX,
							   "Metadata is rewritten with each renewal; keep what is large in a table of your own.");
}

/*
 * arg_detail_or_null fetches the detail of a report or a heartbeat, 0 for NULL.
 */
Datum
arg_detail_or_null(FunctionCallInfo fcinfo, int n)
{
	return small_jsonb_or_null(fcinfo, n, "detail", LEASE_DETAIL_MAX,
							   "Detail is rewritten with each call; keep what is large in a table of your own.");
}

/*
 * arg_begin_write begins a call that writes, or raises 25006 where nothing
 * can be written.
 */
void
arg_begin_write(const char *function)
{
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot execute %s during recovery", function),
				 errhint("This server is a standby; connect to the primary, for example with target_session_attrs=read-write.")));
	PreventCommandIfReadOnly(function);
	PreventCommandIfParallelMode(function);
	lock_start_budget();
}
