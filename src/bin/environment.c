/*-------------------------------------------------------------------------
 *
 * environment.c
 *	  What a command finds in its environment.
 *
 * Its connections carry the token in PGOPTIONS, which every program that uses
 * libpq sends when it connects.  A command may itself run another one under a
 * second lease; then connections have to carry both tokens, and as the server
 * takes the last lease.token of a connection only, the new one includes what the
 * one before had.
 *
 * What was there before may be the token of another grant: if memory runs out, there
 * must be no command rather than one that acts under that.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/bin/environment.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "environment.h"
#include "pqexpbuffer.h"

#define TOKEN_SETTING	"lease.token="

/*
 * next_option takes one word of PGOPTIONS, as the server splits them: at blanks,
 * of which a backslash takes away the meaning.  It returns false at the end.
 */
static bool
next_option(const char **options, PQExpBuffer word)
{
	const char *c = *options;

	resetPQExpBuffer(word);
	while (isspace((unsigned char) *c))
		c++;
	if (*c == '\0')
		return false;
	while (*c != '\0' && !isspace((unsigned char) *c))
	{
		if (*c == '\\' && *++c == '\0')
			break;
		appendPQExpBufferChar(word, *c++);
	}
	*options = c;
	return true;
}

/*
 * setting_in returns the setting that a word makes: "-cname=value", "--name=value",
 * or "name=value" after a word "-c".
 */
static const char *
setting_in(const char *word, bool after_c)
{
	if (after_c)
		return word;
	if (strncmp(word, "-c", 2) == 0 || strncmp(word, "--", 2) == 0)
		return word + 2;
	return "";
}

/*
 * find_tokens finds the list of tokens that PGOPTIONS has already, or returns false if
 * there is no memory.
 */
static bool
find_tokens(const char *options, PQExpBuffer tokens)
{
	PQExpBufferData word;
	bool		after_c = false;
	bool		complete = true;

	initPQExpBuffer(&word);
	while (next_option(&options, &word))
	{
		const char *setting = setting_in(word.data, after_c);

		complete &= !PQExpBufferDataBroken(word);
		after_c = !after_c && strcmp(word.data, "-c") == 0;
		if (pg_strncasecmp(setting, TOKEN_SETTING, strlen(TOKEN_SETTING)) != 0)
			continue;
		resetPQExpBuffer(tokens);
		appendPQExpBufferStr(tokens, setting + strlen(TOKEN_SETTING));
	}
	termPQExpBuffer(&word);
	return complete && !PQExpBufferBroken(tokens);
}

/*
 * append_others appends to a list those tokens of another one that are not for the
 * lease: of that only the new one counts.
 */
static void
append_others(PQExpBuffer list, const char *tokens, const char *lease)
{
	while (*tokens != '\0')
	{
		int			length = (int) strcspn(tokens, ",");
		const char *name = tokens + strspn(tokens, " ");
		size_t		name_length = strcspn(name, "=, ");

		if (length > 0 && (name_length != strlen(lease) ||
						   strncmp(name, lease, name_length) != 0))
			appendPQExpBuffer(list, ",%.*s", length, tokens);
		tokens += length;
		tokens += strspn(tokens, ",");
	}
}

/*
 * append_escaped appends a word to PGOPTIONS.
 */
static void
append_escaped(PQExpBuffer options, const char *word)
{
	for (; *word != '\0'; word++)
	{
		if (*word == '\\' || isspace((unsigned char) *word))
			appendPQExpBufferChar(options, '\\');
		appendPQExpBufferChar(options, *word);
	}
}

/*
 * length_to_append_to returns how much of PGOPTIONS stays.  The server ignores a
 * backslash at the end, which now would take away the meaning of the blank after it.
 */
static int
length_to_append_to(const char *options)
{
	int			length = (int) strlen(options);
	int			backslashes = 0;

	while (backslashes < length && options[length - 1 - backslashes] == '\\')
		backslashes++;
	return length - backslashes % 2;
}

/*
 * set_options sets PGOPTIONS to what it was, and the token, or returns false if there is
 * no memory.
 */
static bool
set_options(const Environment *environment)
{
	const char *before = getenv("PGOPTIONS");
	bool		complete = true;
	PQExpBufferData tokens;
	PQExpBufferData list;
	PQExpBufferData options;

	initPQExpBuffer(&tokens);
	initPQExpBuffer(&list);
	initPQExpBuffer(&options);
	if (before != NULL && *before != '\0')
	{
		complete = find_tokens(before, &tokens);
		appendPQExpBuffer(&options, "%.*s ", length_to_append_to(before), before);
	}
	appendPQExpBuffer(&list, TOKEN_SETTING "%s=" INT64_FORMAT,
					  environment->lease, environment->epoch);
	append_others(&list, tokens.data, environment->lease);
	appendPQExpBufferStr(&options, "-c ");
	append_escaped(&options, list.data);
	complete = complete && !PQExpBufferDataBroken(list) &&
		!PQExpBufferDataBroken(options) && setenv("PGOPTIONS", options.data, 1) == 0;
	termPQExpBuffer(&tokens);
	termPQExpBuffer(&list);
	termPQExpBuffer(&options);
	return complete;
}

/*
 * environment_set sets what the command is to find, in this process, or returns false if
 * there is no memory.
 */
bool
environment_set(const Environment *environment)
{
	char		epoch[32];

	snprintf(epoch, sizeof(epoch), INT64_FORMAT, environment->epoch);
	return setenv("LEASE_NAME", environment->lease, 1) == 0 &&
		setenv("LEASE_EPOCH", epoch, 1) == 0 &&
		setenv("LEASE_HOLDER", environment->holder, 1) == 0 &&
		(!environment->token || set_options(environment));
}
