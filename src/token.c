/*-------------------------------------------------------------------------
 *
 * token.c
 *	  The syntax of names, epochs and token lists.
 *
 * Pure functions over strings, so that they can be fuzzed by themselves.  They
 * are strict: a token list validates as a whole or not at all, since a list
 * that was cut off or mistyped says nothing reliable about any lease.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/token.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/int.h"
#include "token.h"

/*
 * is_alphanumeric knows letters and digits of ASCII, whatever the locale.
 */
static bool
is_alphanumeric(char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
		(c >= '0' && c <= '9');
}

/*
 * token_name_is_valid tells whether a string is the name of a lease:
 * [A-Za-z0-9_][A-Za-z0-9_.:/-]{0,126}
 */
bool
token_name_is_valid(const char *name, size_t length)
{
	if (length < 1 || length > LEASE_NAME_MAX)
		return false;
	for (size_t i = 0; i < length; i++)
	{
		char		c = name[i];

		if (is_alphanumeric(c) || c == '_')
			continue;
		if (i > 0 && (c == '.' || c == ':' || c == '/' || c == '-'))
			continue;
		return false;
	}
	return true;
}

/*
 * parse_epoch reads a positive decimal number that fills a string.
 */
static bool
parse_epoch(const char *string, size_t length, int64 *epoch)
{
	*epoch = 0;
	if (length == 0)
		return false;
	for (size_t i = 0; i < length; i++)
	{
		if (string[i] < '0' || string[i] > '9' ||
			pg_mul_s64_overflow(*epoch, 10, epoch) ||
			pg_add_s64_overflow(*epoch, string[i] - '0', epoch))
			return false;
	}
	return *epoch > 0;
}

/*
 * trim narrows a string to what is between spaces.
 */
static void
trim(const char **string, size_t *length)
{
	while (*length > 0 && **string == ' ')
	{
		(*string)++;
		(*length)--;
	}
	while (*length > 0 && (*string)[*length - 1] == ' ')
		(*length)--;
}

/*
 * token_search looks for a lease in a list like "planner=42,other=7".  A lease
 * that is named twice makes the list malformed: it could mean either epoch.
 */
TokenSearch
token_search(const char *list, const char *name, int64 *epoch)
{
	bool		found = false;
	bool		last = false;

	while (!last)
	{
		size_t		length = strcspn(list, ",");
		const char *item = list;
		const char *equals = memchr(item, '=', length);
		const char *item_epoch;
		size_t		name_length;
		size_t		epoch_length;
		int64		value;

		last = list[length] == '\0';
		list += length + 1;

		if (!equals)
			return TOKEN_MALFORMED;
		name_length = equals - item;
		item_epoch = equals + 1;
		epoch_length = length - name_length - 1;
		trim(&item, &name_length);
		trim(&item_epoch, &epoch_length);
		if (!token_name_is_valid(item, name_length) ||
			!parse_epoch(item_epoch, epoch_length, &value))
			return TOKEN_MALFORMED;

		if (name_length == strlen(name) &&
			memcmp(item, name, name_length) == 0)
		{
			if (found)
				return TOKEN_MALFORMED;
			found = true;
			*epoch = value;
		}
	}
	return found ? TOKEN_FOUND : TOKEN_ABSENT;
}
