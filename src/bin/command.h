/*-------------------------------------------------------------------------
 *
 * command.h
 *	  The command that pg_lease runs, as pg_lease sees it.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef COMMAND_H
#define COMMAND_H

#include "guardian.h"
#include "processes.h"

typedef struct Command
{
	pid_t		guardian;		/* 0 if no command runs */
	int			channel;		/* to the guardian, or -1 */
	bool		foreground;		/* the command was given the terminal */
	Orders		orders;			/* the latest */
	int			sent;			/* how often orders were sent */
	int64		due_at;			/* when the guardian, whichever orders it has
								 * read, has to kill the command */
	int64		overdue_at;		/* when it will have been silent for too long */

	pid_t		pid;			/* of the command; 0 if not known yet */
	bool		late;			/* it was there when the time was over */
	bool		killed;			/* something of it was */
	bool		ended;			/* it has; others may be left */
	int			status;			/* then, as waitpid() tells it */
	bool		gone;			/* nothing is left */

	bool		adopted;		/* the guardian has failed: we do its work */
	Processes	processes;		/* our children */
} Command;

extern void command_prepare(Command *command);
extern bool command_start(Command *command, Launch *launch,
						  const Orders *orders);
extern void command_order(Command *command, const Orders *orders);
extern void command_step(Command *command);
extern int64 command_wakeup(const Command *command);
extern int	command_exit_code(const Command *command);

#endif							/* COMMAND_H */
