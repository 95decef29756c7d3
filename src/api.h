/*-------------------------------------------------------------------------
 *
 * api.h
 *	  Replies to SQL.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_API_H
#define LEASE_API_H

#include "lease.h"

#include "fmgr.h"
#include "grant.h"

/* Columns of type lease.reply */
enum
{
	Reply_name,
	Reply_outcome,
	Reply_epoch,
	Reply_holder,
	Reply_acquired_at,
	Reply_expires_at,
	Reply_remaining,
	Reply_handover,
	Reply_successor,
	REPLY_COLUMNS
};

extern void api_fill_reply(const GrantResult *result, Datum *values,
						   bool *nulls);
extern void api_put_reply(FunctionCallInfo fcinfo, const GrantResult *result);

#endif							/* LEASE_API_H */
