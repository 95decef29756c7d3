/*-------------------------------------------------------------------------
 *
 * signals.c
 *	  Signals as something that an event loop can wait for.
 *
 * The handler writes the number of the signal into a pipe, and the loop reads it
 * there.  What a signal did when the program was started is remembered, so that
 * the command finds it as if it had been started directly: in particular what
 * nohup or a shell has set to be ignored stays so, for us, too.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/bin/signals.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "pg_lease.h"
#include "signals.h"

/* Signals of which we want to know, or that must not end or stop us */
static const int catches[] = {
	SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2,
	SIGPIPE,
	SIGTTOU						/* of taking a terminal back, in the
								 * background */
};

/* What was to be done about them, and was blocked, at the start */
static struct sigaction actions_before[lengthof(catches)];
static sigset_t mask_before;
static int	ends[2] = {-1, -1};

/*
 * remember notes that a signal has come.  If the pipe is full, so many are in it
 * that one more tells nothing new.
 */
static void
remember(int number)
{
	int			saved_errno = errno;
	unsigned char byte = (unsigned char) number;

	(void) !write(ends[1], &byte, 1);
	errno = saved_errno;
}

/*
 * open_pipe makes the pipe.
 */
static void
open_pipe(void)
{
	if (pipe(ends) != 0)
		system_failure("could not create a pipe: %s", strerror(errno));
	for (int i = 0; i < 2; i++)
	{
		fcntl(ends[i], F_SETFD, FD_CLOEXEC);
		fcntl(ends[i], F_SETFL, O_NONBLOCK);
	}
}

/*
 * catch begins to catch a signal, or to ignore it, and notes what was to be done about
 * it before.
 */
static void
catch(int number, struct sigaction *before)
{
	struct sigaction action = {0};

	sigaction(number, NULL, before);
	if (number != SIGCHLD && before->sa_handler == SIG_IGN)
		return;
	action.sa_handler = number == SIGPIPE || number == SIGTTOU ? SIG_IGN : remember;
	action.sa_flags = SA_RESTART;
	sigemptyset(&action.sa_mask);
	sigaction(number, &action, NULL);
}

/*
 * signals_open begins to catch signals.
 */
void
signals_open(void)
{
	open_pipe();
	sigprocmask(SIG_SETMASK, NULL, &mask_before);
	for (size_t i = 0; i < lengthof(catches); i++)
		catch(catches[i], &actions_before[i]);
	signals_let_go();
}

/*
 * signals_reopen gives a forked process, which was forked while signals were held,
 * a pipe of its own.
 */
void
signals_reopen(void)
{
	close(ends[0]);
	close(ends[1]);
	open_pipe();
	signals_let_go();
}

/*
 * signals_descriptor returns what is readable when a signal has come.
 */
int
signals_descriptor(void)
{
	return ends[0];
}

/*
 * signals_next returns the next signal that has come, or 0.
 */
int
signals_next(void)
{
	unsigned char byte;

	return read(ends[0], &byte, 1) == 1 ? byte : 0;
}

/*
 * signals_hold keeps signals from being delivered, around a fork.
 */
void
signals_hold(void)
{
	sigset_t	all;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
}

/*
 * signals_let_go has those that we catch delivered, also if our parent had blocked
 * them.
 */
void
signals_let_go(void)
{
	sigset_t	mask = mask_before;

	for (size_t i = 0; i < lengthof(catches); i++)
		sigdelset(&mask, catches[i]);
	sigprocmask(SIG_SETMASK, &mask, NULL);
}

/*
 * signals_restore makes everything as it was at the start, for the command.
 */
void
signals_restore(void)
{
	for (size_t i = 0; i < lengthof(catches); i++)
		sigaction(catches[i], &actions_before[i], NULL);
	sigprocmask(SIG_SETMASK, &mask_before, NULL);
}
