/*-------------------------------------------------------------------------
 *
 * guardian.c
 *	  The process between pg_lease and its command.
 *
 * The guardian starts the command, and ends it: at the instant that pg_lease has
 * told it last, unless it is told a later one in time, and at once if pg_lease is
 * gone.  It does nothing that could be held up: no network, no name lookup, no
 * log that somebody has to read.  So the command does not outlive the lease also if
 * pg_lease is stopped, is held up in a library, is killed, or crashes.
 *
 * It is the parent of the command, and of all descendants that have lost their own
 * parent (processes.c).  Were pg_lease that, they would be out of reach when it is
 * killed.  If the guardian itself is killed, they become children of pg_lease, which
 * then kills them (command.c); so each of the two looks after the other.
 *
 * What it knows comes down a socket: orders, which replace each other.  What it
 * sees goes back up as reports, and each order is answered with one.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/bin/guardian.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "guardian.h"
#include "log.h"
#include "monotonic.h"
#include "pg_lease.h"
#include "processes.h"
#include "signals.h"

typedef struct Guardian
{
	int			channel;		/* to pg_lease; -1 if that is gone */
	Orders		orders;
	int			heard;			/* how many orders have come, */
	int			answered;		/* and how many of them were answered */
	Processes	processes;
	bool		ending;			/* the command has been asked to end, or has
								 * ended */
	bool		killing;
	bool		ended_reported;
} Guardian;

/*
 * report tells pg_lease something.  If it cannot be told, it is gone, or it has
 * stopped reading for good.
 */
static void
report(Guardian *guardian, ReportKind kind, int value)
{
	Report		message = {kind, value};

	if (guardian->channel >= 0)
		(void) send(guardian->channel, &message, sizeof(message),
					MSG_DONTWAIT);
}

/*
 * execute becomes the command.
 */
pg_noreturn static void
execute(const Launch *launch, pid_t guardian, int64 kill_at)
{
	int			code;

	setpgid(0, 0);
	if (launch->foreground)
		tcsetpgrp(STDIN_FILENO, getpid());
#ifdef __linux__
	prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
	if (getppid() != guardian)
		_exit(EXIT_SYSTEM);
	if (!environment_set(&launch->environment))
	{
		log_line(LEVEL_ERROR, "not_executed",
				 "could not set the environment of the command: out of memory");
		_exit(EXIT_SYSTEM);
	}
	signals_restore();
	/* All of us may have been stopped since the lease was confirmed. */
	if (monotonic_now() >= kill_at)
		raise(SIGKILL);
	execvp(launch->command[0], launch->command);

	code = errno == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
	log_line(LEVEL_ERROR, "not_executed", "could not execute \"%s\": %s",
			 launch->command[0], strerror(errno));
	_exit(code);
}

/*
 * start_command starts the command in a process group of its own.  Signals are
 * held until it is ready for them.
 */
static void
start_command(Guardian *guardian, const Launch *launch)
{
	pid_t		self = getpid();
	pid_t		pid = fork();

	if (pid == 0)
		execute(launch, self, guardian->orders.kill_at);
	if (pid < 0)
	{
		report(guardian, REPORT_NOT_STARTED, errno);
		_exit(0);
	}
	setpgid(pid, pid);
	guardian->processes.group = pid;
	report(guardian, REPORT_STARTED, pid);
}

/*
 * read_orders takes what pg_lease has sent.  The end of the connection is the end
 * of pg_lease.
 */
static void
read_orders(Guardian *guardian)
{
	Orders		orders;
	ssize_t		length;

	while ((length = recv(guardian->channel, &orders, sizeof(orders),
						  MSG_DONTWAIT)) == sizeof(orders))
	{
		guardian->orders = orders;
		guardian->heard++;
		if (orders.signal != 0)
			processes_signal_group(&guardian->processes, (int) orders.signal);
	}
	if (length < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	close(guardian->channel);
	guardian->channel = -1;
	guardian->orders.kill_at = 0;
}

/*
 * next_look returns the instant at which something is to be done.
 */
static int64
next_look(const Guardian *guardian)
{
	if (guardian->ending)
		return monotonic_now() + LOOK_INTERVAL;
	return Min(guardian->orders.term_at, guardian->orders.kill_at);
}

/*
 * wait_for_news waits until something has happened, or is to be done.
 */
static void
wait_for_news(Guardian *guardian)
{
	struct pollfd descriptors[] = {
		{signals_descriptor(), POLLIN, 0},
		{guardian->channel, POLLIN, 0}
	};

	monotonic_poll(descriptors, lengthof(descriptors), next_look(guardian));
	/* All but SIGCHLD are for pg_lease, which is sent them, too. */
	while (signals_next() != 0)
		;
	if (guardian->channel >= 0)
		read_orders(guardian);
}

/*
 * note_stopped deals with a command that has been stopped.  If that was a key of the
 * terminal, it goes on: a leader must not pause.
 */
static void
note_stopped(Guardian *guardian)
{
	int			number = guardian->processes.stopped_by;

	guardian->processes.stopped_by = 0;
	if (number == SIGTSTP)
		processes_signal_group(&guardian->processes, SIGCONT);
	else
		report(guardian, REPORT_STOPPED, number);
}

/*
 * note_ended tells that the command itself has ended.  Whatever it leaves behind is
 * asked to end, too.
 */
static void
note_ended(Guardian *guardian)
{
	guardian->ended_reported = true;
	guardian->ending = true;
	report(guardian, REPORT_ENDED, guardian->processes.status);
	processes_signal_group(&guardian->processes, SIGTERM);
	guardian->orders.kill_at = Min(guardian->orders.kill_at,
								   monotonic_now() + guardian->orders.grace);
}

/*
 * carry_out_orders ends the command when it is time.
 */
static void
carry_out_orders(Guardian *guardian)
{
	int64		now = monotonic_now();

	if (now >= guardian->orders.kill_at)
	{
		if (!guardian->killing)
			report(guardian, REPORT_KILLED, 0);
		guardian->killing = true;
		guardian->ending = true;
		processes_kill(&guardian->processes);
	}
	else if (now >= guardian->orders.term_at && !guardian->ending)
	{
		guardian->ending = true;
		report(guardian, REPORT_TERMINATED, 0);
		processes_signal_group(&guardian->processes, SIGTERM);
	}
	if (guardian->ending)
		processes_terminate_orphans(&guardian->processes);
}

/*
 * answer_orders tells that orders have come, after what they ask for now was done: so
 * pg_lease knows that there is a guardian who does it.
 */
static void
answer_orders(Guardian *guardian)
{
	if (guardian->answered != guardian->heard)
		report(guardian, REPORT_HEARD, guardian->heard);
	guardian->answered = guardian->heard;
}

/*
 * stand_guard is the guardian's life: until nothing is left of the command.
 */
static void
stand_guard(Guardian *guardian)
{
	for (;;)
	{
		bool		gone = processes_reap(&guardian->processes);

		if (guardian->processes.leader_ended && !guardian->ended_reported)
			note_ended(guardian);
		if (gone)
			return;
		if (guardian->processes.stopped_by != 0)
			note_stopped(guardian);
		carry_out_orders(guardian);
		answer_orders(guardian);
		wait_for_news(guardian);
	}
}

/*
 * go_first has the guardian run before whatever else wants to run, as far as it is
 * allowed to: a command that forks all the time must not keep it from its work.  What it
 * does takes microseconds.
 */
static void
go_first(void)
{
#ifdef SCHED_RESET_ON_FORK
	struct sched_param parameters = {0};

	parameters.sched_priority = sched_get_priority_min(SCHED_RR);
	if (sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &parameters) == 0)
		return;
#endif
	(void) setpriority(PRIO_PROCESS, 0, -20);
}

/*
 * name_process makes ps show the guardian under a name of its own.
 */
static void
name_process(const Launch *launch)
{
#ifdef __linux__
	prctl(PR_SET_NAME, "lease_guardian");
	if (launch->title_size > 0)
	{
		memset(launch->title, 0, launch->title_size);
		strlcpy(launch->title, "lease_guardian", launch->title_size);
	}
#endif
}

/*
 * guardian_main is what the forked process does.  Signals are held.
 */
void
guardian_main(int channel, const Launch *launch, const Orders *orders)
{
	Guardian	guardian = {0};

	guardian.channel = channel;
	guardian.orders = *orders;
	if (launch->unwanted >= 0)
		close(launch->unwanted);

	/* What kills the group of pg_lease, or stops it, must not reach us. */
	setpgid(0, 0);
	(void) processes_adopt_orphans();
	start_command(&guardian, launch);
	go_first();
	name_process(launch);
	signals_reopen();

	stand_guard(&guardian);
	report(&guardian, REPORT_GONE, 0);
	if (guardian.channel < 0)
		log_line(LEVEL_ERROR, "abandoned",
				 "pg_lease has gone, so its command was ended, too");
	_exit(0);
}
