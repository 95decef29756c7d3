/*-------------------------------------------------------------------------
 *
 * text.c
 *	  Text that goes to the server as JSON, and to the output.
 *
 * Names of holders and reasons may be anything, and whoever is allowed to acquire
 * a lease chooses them: no control character of theirs may reach a terminal or
 * break a line in two.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/bin/text.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "common/logging.h"
#include "pg_lease.h"
#include "text.h"

/*
 * text_append_json appends a text as a string of JSON.
 */
void
text_append_json(PQExpBuffer buffer, const char *text)
{
	appendPQExpBufferChar(buffer, '"');
	for (const char *c = text; *c != '\0'; c++)
	{
		if (*c == '"' || *c == '\\')
			appendPQExpBufferChar(buffer, '\\');
		if ((unsigned char) *c < ' ')
			appendPQExpBuffer(buffer, "\\u%04x", (unsigned char) *c);
		else
			appendPQExpBufferChar(buffer, *c);
	}
	appendPQExpBufferChar(buffer, '"');
}

/*
 * text_json_list returns texts as an array of JSON, or NULL if there are none.
 */
char *
text_json_list(char *const texts[], int count)
{
	PQExpBufferData buffer;

	if (count == 0)
		return NULL;
	initPQExpBuffer(&buffer);
	for (int i = 0; i < count; i++)
	{
		appendPQExpBufferChar(&buffer, i == 0 ? '[' : ',');
		text_append_json(&buffer, texts[i]);
	}
	appendPQExpBufferChar(&buffer, ']');
	if (PQExpBufferDataBroken(buffer))
		pg_fatal("out of memory");
	return buffer.data;
}

/*
 * is_control_at tells whether a control character begins there: of ASCII, or, in
 * UTF-8, U+0080 to U+009F, which terminals obey as well.
 */
static bool
is_control_at(const char *text)
{
	const unsigned char *c = (const unsigned char *) text;

	return c[0] < 0x20 || c[0] == 0x7f || (c[0] == 0xc2 && c[1] >= 0x80 && c[1] <= 0x9f);
}

/*
 * text_print prints a text with its control characters made visible.
 */
void
text_print(const char *text)
{
	for (const char *c = text; *c != '\0'; c++)
	{
		if (!is_control_at(c))
			putchar(*c);
		else if (*c == '\n')
			fputs("\\n", stdout);
		else
			printf("\\x%02X", *c == '\xc2' ? (unsigned char) *++c : (unsigned char) *c);
	}
}

/*
 * text_flush writes out what was printed.  Nobody is left to be told if the
 * reader has gone; anything else is an error.
 */
void
text_flush(void)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return;
	if (errno == EPIPE)
		exit(0);
	pg_log_error("could not write to the output: %m");
	exit(EXIT_OUTPUT);
}
