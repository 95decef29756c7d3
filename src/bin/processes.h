/*-------------------------------------------------------------------------
 *
 * processes.h
 *	  The processes that a command has started.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef PROCESSES_H
#define PROCESSES_H

#include <sys/types.h>

/* How often to look again for what is left, once the command is to end */
#define LOOK_INTERVAL	(20 * MILLISECOND)

/* A set of processes */
typedef struct PidSet
{
	pid_t	   *members;
	int			count;
	int			size;
} PidSet;

/* What is known of a command and its descendants */
typedef struct Processes
{
	pid_t		group;			/* the command's; 0 if it has not been started */
	bool		leader_ended;	/* the command has ended and has been reaped */
	int			status;			/* then, as waitpid() tells it */
	int			stopped_by;		/* a signal that has just stopped it, or 0 */
	PidSet		told;			/* those outside of the group that have been
								 * asked to end */
	PidSet		spared;			/* children of ours that are none of the
								 * command's */
} Processes;

extern const char *processes_adopt_orphans(void);
extern void processes_spare_present(Processes *processes);
extern void processes_spare(Processes *processes, pid_t pid);
extern void processes_end(Processes *processes, pid_t pid);
extern void processes_adopted(Processes *processes);
extern bool processes_reap(Processes *processes);
extern void processes_signal_group(Processes *processes, int number);
extern void processes_terminate_orphans(Processes *processes);
extern void processes_kill(Processes *processes);

#endif							/* PROCESSES_H */
