/*-------------------------------------------------------------------------
 *
 * request.h
 *	  What a campaign asks of the server, and how long it waits for it.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef REQUEST_H
#define REQUEST_H

#include "campaign.h"

extern void request_send(Campaign *campaign, Request request);
extern int64 request_connect_timeout(const Campaign *campaign);

#endif							/* REQUEST_H */
