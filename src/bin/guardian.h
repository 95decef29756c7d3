/*-------------------------------------------------------------------------
 *
 * guardian.h
 *	  The process between pg_lease and its command.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef GUARDIAN_H
#define GUARDIAN_H

#include <sys/types.h>

#include "environment.h"
#include "pg_lease.h"

/* What is to be started, and how */
typedef struct Launch
{
	char	  **command;
	Environment environment;
	bool		foreground;		/* whether the command is to have the terminal */
	int			unwanted;		/* a descriptor that is pg_lease's alone, or
								 * -1 */
	char	   *title;			/* where ps finds the arguments of the process */
	size_t		title_size;
} Launch;

/* What pg_lease tells the guardian: always all of it */
typedef struct Orders
{
	int64		term_at;		/* when to ask the command to end */
	int64		kill_at;		/* when to kill it, with all its descendants */
	int64		grace;			/* how long those have that the command leaves
								 * behind */
	int64		patience;		/* how long the guardian may take to answer */
	int64		signal;			/* to send to the command's group now, or 0 */
} Orders;

/* What the guardian tells pg_lease */
typedef enum ReportKind
{
	REPORT_STARTED,				/* value: number of the process and its group */
	REPORT_NOT_STARTED,			/* value: errno */
	REPORT_HEARD,				/* value: how many orders have been read and,
								 * as far as it is time, carried out */
	REPORT_STOPPED,				/* value: the signal that has stopped the
								 * command */
	REPORT_TERMINATED,			/* term_at has come, and the command was still
								 * there */
	REPORT_KILLED,				/* kill_at has come, and something was still
								 * there */
	REPORT_ENDED,				/* value: status of the command, as waitpid()
								 * tells it; others may be left */
	REPORT_GONE					/* nothing is left */
} ReportKind;

typedef struct Report
{
	ReportKind	kind;
	int			value;
} Report;

pg_noreturn extern void guardian_main(int channel, const Launch *launch,
									  const Orders *orders);

#endif							/* GUARDIAN_H */
