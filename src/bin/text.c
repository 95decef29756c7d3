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
control_length(const char *text)
{
	const unsigned char *c = (const unsigned char *) text;

	if (c[0] == 0xc2 && c[1] >= 0x80 && c[1] <= 0x9f)
		return 2;
	return c[0] < 0x20 || c[0] == 0x7f ? 1 : 0;
}

/*
 * append_piece appends the first byte of a text, or the escape of the control character
 * there, and returns how many bytes of the text that was.
 */
static int
append_piece(PQExpBuffer buffer, const char *text)
{
	int			length = control_length(text);

	if (length == 0)
	{
		appendPQExpBufferChar(buffer, *text);
		return 1;
	}
	if (*text == '\n')
		appendPQExpBufferStr(buffer, "\\n");
	else
		appendPQExpBuffer(buffer, "\\u%04X", (unsigned char) text[length - 1]);
	return length;
}

/*
 * text_append appends a text with its control characters as escapes.
 */
void
text_append(PQExpBuffer buffer, const char *text)
{
	while (*text !='\0')
		text	  +=append_piece(buffer, text);
}

/*
 * text_append_json appends a text as a string of JSON.
 */
void
text_append_json(PQExpBuffer buffer, const char *text)
{
	appendPQExpBufferChar(buffer, '"');
	while (*text !='\0')
	{
		if (*text == '"' || *text == '\\')
			appendPQExpBufferChar(buffer, '\\');
		text	  +=append_piece(buffer, text);
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
 * text_print prints a text, which may be JSON, with its control characters as escapes.
 */
void
text_print(const char *text)
{
	PQExpBufferData buffer;

	initPQExpBuffer(&buffer);
	text_append(&buffer, text);
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
