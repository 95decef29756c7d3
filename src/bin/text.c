/*-------------------------------------------------------------------------
 *
 * text.c
 *	  Text that goes to the server as JSON, to the output, and to the log.
 *
 * Names of holders and reasons may be anything, and whoever is allowed to acquire
 * a lease chooses them: no control character of theirs may reach a terminal or
 * break a line in two.  They are written as JSON escapes them everywhere: the server
 * does not escape all of them in its JSON, where they can only be in strings.
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
 * control_length returns how many bytes the control character has that begins there,
 * 0 if there is none: of ASCII, or, in UTF-8, U+0080 to U+009F, which terminals obey
 * as well.
 */
static int
control_length(const char *string)
{
	const unsigned char *c = (const unsigned char *) string;

	if (c[0] == 0xc2 && c[1] >= 0x80 && c[1] <= 0x9f)
		return 2;
	return c[0] < 0x20 || c[0] == 0x7f ? 1 : 0;
}

/*
 * append_piece appends the first byte of a string, or the escape of the control character
 * there, and returns how many bytes of the text that was.
 */
static int
append_piece(PQExpBuffer buffer, const char *string)
{
	int			length = control_length(string);

	if (length == 0)
	{
		appendPQExpBufferChar(buffer, *string);
		return 1;
	}
	if (*string == '\n')
		appendPQExpBufferStr(buffer, "\\n");
	else
		appendPQExpBuffer(buffer, "\\u%04X", (unsigned char) string[length - 1]);
	return length;
}

/*
 * text_append appends a text with its control characters as escapes.
 */
void
text_append(PQExpBuffer buffer, const char *string)
{
	while (*string != '\0')
		string += append_piece(buffer, string);
}

/*
 * text_append_json appends a text as a string of JSON.
 */
void
text_append_json(PQExpBuffer buffer, const char *string)
{
	appendPQExpBufferChar(buffer, '"');
	while (*string != '\0')
	{
		if (*string == '"' || *string == '\\')
			appendPQExpBufferChar(buffer, '\\');
		string += append_piece(buffer, string);
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
 * text_print prints a string, which may be JSON, with its control characters as escapes.
 */
void
text_print(const char *string)
{
	PQExpBufferData buffer;

	initPQExpBuffer(&buffer);
	text_append(&buffer, string);
	if (PQExpBufferDataBroken(buffer))
		pg_fatal("out of memory");
	fputs(buffer.data, stdout);
	termPQExpBuffer(&buffer);
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
