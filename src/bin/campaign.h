/*-------------------------------------------------------------------------
 *
 * campaign.h
 *	  Getting a lease, keeping it, and giving it back.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef CAMPAIGN_H
#define CAMPAIGN_H

#include "connection.h"

typedef enum CampaignState
{
	CAMPAIGN_CANDIDATE,			/* it wants the lease */
	CAMPAIGN_UNCONFIRMED,		/* it was granted it, and has to make sure */
	CAMPAIGN_HOLDER,			/* it has the lease, until deadline */
	CAMPAIGN_LOST,				/* it has had it */
	CAMPAIGN_LEAVING,			/* it gives back what it has, or may have */
	CAMPAIGN_OVER				/* it has nothing */
} CampaignState;

/* Messages that are remembered, so that they are not logged over and over */
#define MESSAGE_SIZE	1024
#define MESSAGES_KEPT	4

/* What can be asked of the server */
typedef enum Request
{
	REQUEST_NONE,
	REQUEST_LOOK,				/* do I hold it without knowing? */
	REQUEST_GIVE_BACK,			/* release what I did not know of */
	REQUEST_ACQUIRE,
	REQUEST_AWAIT,
	REQUEST_RENEW,
	REQUEST_RELEASE
} Request;

/* What is wanted; microseconds */
typedef struct CampaignSettings
{
	const char *lease;
	const char *holder;
	int64		ttl;			/* 0: the lease's */
	int64		wait;			/* how long at most; NEVER: for ever */
	bool		in_line;		/* or else one attempt */
	const char *priority;
	int64		grace;			/* how long the command may take to end; -1: a
								 * share of the ttl */
} CampaignSettings;

typedef struct Campaign
{
	CampaignSettings settings;
	Connection	connection;
	char		incarnation[33];	/* of this process: nobody else has it */

	CampaignState state;
	int64		generation;		/* counts candidacies */
	bool		ever_held;		/* the lease, in any of them */
	Request		request;		/* what is under way */
	int64		sent;			/* when it was sent */
	int64		retry_at;		/* not to do anything before */
	int			failures;		/* in a row */

	/* Of a candidate */
	int64		began_at;
	int64		wait_until;
	int64		slice;			/* how long to wait in line before asking
								 * anew: at first not at all, to be answered
								 * at once */
	bool		tried;			/* an attempt has come to its end */
	bool		in_doubt;		/* an acquire of ours had no answer */
	bool		looked;			/* what came of it has been looked up */
	int64		stray_epoch;	/* what it was, if it was granted */
	bool		reserved;		/* the lease is reserved for us */
	struct
	{
		char		content[MESSAGE_SIZE];
		int64		until;		/* it need not be logged again before */
	}			messages[MESSAGES_KEPT];	/* that were logged latest */

	/* Of a grant */
	int64		epoch;			/* 0: none */
	int			late;			/* how often it was confirmed too late */
	int64		ttl;			/* as the server has told it; 0: not yet */
	int64		margin;			/* between deadline and the end of the grant */
	int64		deadline;
	int64		lead;			/* how long before it the command is killed */
	int64		grace;			/* how long it has before that to end by
								 * itself */
	int64		renew_at;
	bool		handover;		/* it has been asked to step down */
	char		successor[256]; /* in whose favour */

	/* Of one who leaves */
	int64		leave_until;
	bool		release_sent;	/* without an answer so far */
	bool		not_held;		/* the server knew of nothing to release */
	int			exit_code;		/* why a candidate has given up */
} Campaign;

extern void campaign_prepare(Campaign *campaign, const CampaignSettings *settings,
							 ConnectOptions *options);
extern void campaign_begin(Campaign *campaign);
extern void campaign_step(Campaign *campaign);
extern bool campaign_has_time(const Campaign *campaign);
extern void campaign_confirm(Campaign *campaign);
extern void campaign_leave(Campaign *campaign);
extern void campaign_end(Campaign *campaign);
extern int64 campaign_wakeup(const Campaign *campaign);

/* For request.c and failure.c */
extern int64 campaign_stop_at(const Campaign *campaign);
extern void campaign_give_up(Campaign *campaign, int exit_code,
							 const char *event, const char *why);
extern void campaign_lose(Campaign *campaign, const char *why);

#endif							/* CAMPAIGN_H */
