/*-------------------------------------------------------------------------
 *
 * acquire.h
 *	  Acquire: the making of a grant.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_ACQUIRE_H
#define LEASE_ACQUIRE_H

#include "lease.h"

#include "grant.h"

/* What an acquire asks for. */
typedef struct AcquireRequest
{
	const char *holder;
	int64		ttl;			/* 0: the lease's default */
	bool		reclaim;
	Datum		metadata;		/* jsonb; 0 if none */
	bool		nowait;			/* end who may be ended, but wait for nobody */
	bool		if_there;		/* no error if there is none for the user */
} AcquireRequest;

extern void acquire_lease(const char *name, const AcquireRequest *request,
						  GrantResult *result);

#endif							/* LEASE_ACQUIRE_H */
