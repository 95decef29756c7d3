/*-------------------------------------------------------------------------
 *
 * run_options.h
 *	  The command line of "pg_lease run".
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef RUN_OPTIONS_H
#define RUN_OPTIONS_H

#include "campaign.h"
#include "options.h"

typedef struct RunOptions
{
	ConnectOptions connect;
	CampaignSettings campaign;
	char	  **command;		/* with its arguments */
	bool		once;			/* said so, which is the default */
	bool		keep;			/* to campaign again after the command has
								 * ended */
	int64		restart_delay;	/* how long to pause before that */
	bool		token;			/* whether the command's connections carry it */
	bool		json;
	bool		verbose;
} RunOptions;

extern void run_options_read(RunOptions *options, int argc, char *argv[]);

#endif							/* RUN_OPTIONS_H */
