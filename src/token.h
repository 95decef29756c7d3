/*-------------------------------------------------------------------------
 *
 * token.h
 *	  The syntax of names, epochs and token lists.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_TOKEN_H
#define LEASE_TOKEN_H

#include "lease.h"

/* What a token list says about a lease. */
typedef enum TokenSearch
{
	TOKEN_FOUND,
	TOKEN_ABSENT,
	TOKEN_MALFORMED
} TokenSearch;

extern bool token_name_is_valid(const char *name, size_t length);
extern TokenSearch token_search(const char *list, const char *name,
								int64 *epoch);

#endif							/* LEASE_TOKEN_H */
