/*-------------------------------------------------------------------------
 *
 * failure.h
 *	  What a campaign makes of failures.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef FAILURE_H
#define FAILURE_H

#include "campaign.h"

extern void failure_note(Campaign *campaign, const char *message);
extern void failure_note_closed(Campaign *campaign);
extern void failure_note_error(Campaign *campaign);
extern bool failure_is_news(Campaign *campaign, const char *message);

#endif							/* FAILURE_H */
