/*-------------------------------------------------------------------------
 *
 * log.c
 *	  What "pg_lease run" tells on standard error.
 *
 * One line for each transition, for people or, as one JSON object, for programs.
 * The keys of the object and the names of the events are an interface.
 *
 * A line is never waited for: whoever should read it may have stopped reading,
 * and the lease must not be lost for that.  What cannot be written at once is
 * left out, and the next line that can be says how many were.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/bin/log.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <poll.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "mb/pg_wchar.h"
#include "monotonic.h"
#include "pqexpbuffer.h"
#include "text.h"

/* A pipe that is writable at all takes so many bytes without waiting. */
#define LINE_MAX_BYTES	4096

#define JSON_TIME		"%Y-%m-%dT%H:%M:%S"

static const char *const level_names[] = {"debug", "info", "warning", "error"};
static const char *const level_titles[] = {"DEBUG", "INFO", "WARNING", "ERROR"};

static bool as_json = false;
static bool with_debug = false;
static const char *subject_lease = "";
static const char *subject_holder = "";
static int64 subject_epoch = 0;
static int64 subject_generation = 0;
static int64 subject_deadline = 0;
static int	left_out = 0;

/*
 * log_configure says in which form lines are to be written, and which.
 */
void
log_configure(bool json, bool verbose)
{
	as_json = json;
	with_debug = verbose;
}

/*
 * log_subject says what all lines are about.
 */
void
log_subject(const char *lease, const char *holder)
{
	subject_lease = lease;
	subject_holder = holder;
}

/*
 * log_grant says which candidacy the following lines are about, and under which
 * epoch it holds the lease, 0 for none.
 */
void
log_grant(int64 epoch, int64 generation)
{
	subject_epoch = epoch;
	subject_generation = generation;
	subject_deadline = 0;
}

/*
 * log_deadline says until when it certainly holds it.
 */
void
log_deadline(int64 deadline)
{
	subject_deadline = deadline;
}

/*
 * append_time appends the time that it will be after a while, on the wall clock: it
 * is for people.
 */
static void
append_time(PQExpBuffer line, const char *format, int64 after)
{
	struct timeval now;
	struct tm	tm;
	char		seconds[64];
	int64		instant;
	time_t		whole;

	gettimeofday(&now, NULL);
	instant = now.tv_sec * SECOND + now.tv_usec + after;
	whole = (time_t) (instant / SECOND);
	gmtime_r(&whole, &tm);
	strftime(seconds, sizeof(seconds), format, &tm);
	appendPQExpBuffer(line, "%s.%03d", seconds, (int) (instant % SECOND / MILLISECOND));
}

/*
 * append_json appends a key and a string.
 */
static void
append_json(PQExpBuffer line, const char *key, const char *string)
{
	appendPQExpBuffer(line, ",\"%s\":", key);
	text_append_json(line, string);
}

/*
 * append_deadline appends until when the lease is certain: the time, and for those
 * who measure the instant on the boot clock, in seconds.
 */
static void
append_deadline(PQExpBuffer line)
{
	if (subject_deadline == 0)
	{
		appendPQExpBufferStr(line, ",\"certain_until\":null,\"deadline\":null");
		return;
	}
	appendPQExpBufferStr(line, ",\"certain_until\":\"");
	append_time(line, JSON_TIME, subject_deadline - monotonic_now());
	appendPQExpBuffer(line, "Z\",\"deadline\":%.6f", subject_deadline / (double) SECOND);
}

/*
 * append_object appends the line for programs.
 */
static void
append_object(PQExpBuffer line, LogLevel level, const char *event,
			  const char *message)
{
	appendPQExpBufferStr(line, "{\"time\":\"");
	append_time(line, JSON_TIME, 0);
	appendPQExpBufferStr(line, "Z\"");
	append_json(line, "level", level_names[level]);
	append_json(line, "event", event);
	append_json(line, "lease", subject_lease);
	append_json(line, "holder", subject_holder);
	appendPQExpBuffer(line, ",\"pid\":%d,\"generation\":" INT64_FORMAT,
					  (int) getpid(), subject_generation);
	if (subject_epoch > 0)
		appendPQExpBuffer(line, ",\"epoch\":" INT64_FORMAT, subject_epoch);
	else
		appendPQExpBufferStr(line, ",\"epoch\":null");
	append_deadline(line);
	append_json(line, "message", message);
	appendPQExpBufferChar(line, '}');
}

/*
 * make_utf8 replaces what is no UTF-8 by question marks: JSON is nothing else.
 */
static void
make_utf8(char *string)
{
	size_t		left = strlen(string);

	while (left > 0)
	{
		int			length = pg_encoding_verifymbchar(PG_UTF8, string, (int) Min(left, 4));

		if (length <= 0)
		{
			*string = '?';
			length = 1;
		}
		string += length;
		left -= length;
	}
}

/*
 * append_text appends the line for people, on which messages of several lines
 * become one.
 */
static void
append_text(PQExpBuffer line, LogLevel level, char *message)
{
	append_time(line, "%Y-%m-%d %H:%M:%S", 0);
	appendPQExpBuffer(line, " UTC [%d] %s:  lease \"", (int) getpid(),
					  level_titles[level]);
	text_append(line, subject_lease);
	appendPQExpBufferChar(line, '"');
	if (subject_epoch > 0)
		appendPQExpBuffer(line, ", epoch " INT64_FORMAT, subject_epoch);
	if (subject_deadline > 0)
	{
		appendPQExpBufferStr(line, ", certain until ");
		append_time(line, "%H:%M:%S", subject_deadline - monotonic_now());
	}
	appendPQExpBufferStr(line, ": ");
	for (char *c = message; (c = strpbrk(c, "\n\t")) != NULL;)
		*c = ' ';
	text_append(line, message);
}

/*
 * write_line writes a line if that can be done without waiting.
 */
static void
write_line(PQExpBuffer line)
{
	struct pollfd standard_error = {STDERR_FILENO, POLLOUT, 0};

	if (poll(&standard_error, 1, 0) != 1 ||
		(standard_error.revents & POLLOUT) == 0 ||
		write(STDERR_FILENO, line->data, line->len) != (ssize_t) line->len)
		left_out++;
	else
		left_out = 0;
}

/*
 * log_line writes one line.
 */
void
log_line(LogLevel level, const char *event, const char *format,...)
{
	PQExpBufferData line;
	char		message[LINE_MAX_BYTES / 4];
	size_t		length;
	va_list		arguments;

	if (level == LEVEL_DEBUG && !with_debug)
		return;

	va_start(arguments, format);
	vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);

	/* Messages of libpq end with a newline. */
	length = strlen(message);
	while (length > 0 && message[length - 1] == '\n')
		message[--length] = '\0';
	if (left_out > 0)
		snprintf(message + length, sizeof(message) - length,
				 " (%d lines could not be written)", left_out);

	initPQExpBuffer(&line);
	if (as_json)
	{
		append_object(&line, level, event, message);
		make_utf8(line.data);
	}
	else
		append_text(&line, level, message);
	appendPQExpBufferChar(&line, '\n');
	if (!PQExpBufferDataBroken(line))
		write_line(&line);
	termPQExpBuffer(&line);
}
