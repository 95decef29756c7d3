/*-------------------------------------------------------------------------
 *
 * command.c
 *	  The command that pg_lease runs, as pg_lease sees it.
 *
 * The guardian (guardian.c) starts the command and ends it; here it is told when,
 * and its reports are read.  If it is killed, or does not answer when it is time to
 * kill the command, it is replaced: being the next subreaper above it, pg_lease becomes
 * the parent of all that is left, and kills it.  All children count as left over then,
 * but those that were there before anything was started: in the first process of a
 * container that includes orphans that are none of the command's.
 *
 * Which time that is depends on which orders it has read; it is asked at the earliest
 * one that it may know.  So a guardian that reads no orders any more is found out within
 * a ttl, though the lease is renewed.  While it kills it is asked again and again.  It
 * need not be done then, only be at work: what the kernel is slow to take down would be
 * no faster for us.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/bin/command.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command.h"
#include "log.h"
#include "monotonic.h"
#include "signals.h"

/* Messages are not to be run together. */
#ifdef __linux__
#define CHANNEL_TYPE	SOCK_SEQPACKET
#else
#define CHANNEL_TYPE	SOCK_STREAM
#endif

/*
 * command_prepare has to be called once, before anything is started.
 */
void
command_prepare(Command *command)
{
	const char *obstacle = processes_adopt_orphans();

	if (obstacle != NULL)
		system_failure("cannot see to it that nothing is left of the command: %s", obstacle);
	command->channel = -1;
	processes_spare_present(&command->processes);
}

/*
 * has_terminal tells whether the command is to have the terminal.  Whoever pipes our
 * output into a pager needs it for that.
 */
static bool
has_terminal(void)
{
	return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) &&
		tcgetpgrp(STDIN_FILENO) == getpgrp();
}

/*
 * reset makes everything ready for another command.
 */
static void
reset(Command *command)
{
	Processes	processes = command->processes;

	processes.group = 0;
	processes.leader_ended = false;
	processes.told.count = 0;
	memset(command, 0, sizeof(Command));
	command->processes = processes;
	command->channel = -1;
	command->due_at = NEVER;
	command->overdue_at = NEVER;
}

/*
 * open_channel makes the connection to a guardian.
 */
static bool
open_channel(int ends[2])
{
	if (socketpair(AF_UNIX, CHANNEL_TYPE, 0, ends) != 0)
		return false;
	fcntl(ends[0], F_SETFD, FD_CLOEXEC);
	fcntl(ends[1], F_SETFD, FD_CLOEXEC);
	return true;
}

/*
 * command_start starts a command under orders; false if the machine does not have
 * what it takes.
 */
bool
command_start(Command *command, Launch *launch, const Orders *orders)
{
	int			ends[2];

	reset(command);
	if (!open_channel(ends))
	{
		log_line(LEVEL_ERROR, "not_started",
				 "could not create a socket: %s", strerror(errno));
		return false;
	}
	command->foreground = launch->foreground = has_terminal();
	command->orders = *orders;
	command->due_at = orders->kill_at;

	signals_hold();
	command->guardian = fork();
	if (command->guardian == 0)
	{
		close(ends[0]);
		guardian_main(ends[1], launch, orders);
	}
	signals_let_go();
	close(ends[1]);
	if (command->guardian < 0)
	{
		log_line(LEVEL_ERROR, "not_started",
				 "could not create a process: %s", strerror(errno));
		close(ends[0]);
		command->guardian = 0;
		return false;
	}
	processes_spare(&command->processes, command->guardian);
	command->channel = ends[0];
	return true;
}

/*
 * send_orders sends the guardian orders.  If it has not read them for so long that no
 * more can be sent, it has failed.
 */
static void
send_orders(Command *command, const Orders *orders)
{
	command->sent++;
	if (command->channel >= 0 &&
		send(command->channel, orders, sizeof(Orders),
			 MSG_DONTWAIT) != sizeof(Orders) &&
		errno != EPIPE)
		command->overdue_at = 0;
}

/*
 * command_order tells the guardian what is new.  Until it answers it may know no more
 * than it did before.
 */
void
command_order(Command *command, const Orders *orders)
{
	if (command->gone || memcmp(orders, &command->orders, sizeof(Orders)) == 0)
		return;
	command->due_at = Min(command->due_at, orders->kill_at);
	command->orders = *orders;
	command->orders.signal = 0;
	send_orders(command, orders);
}

/*
 * take_answer notes how many orders the guardian has read.
 */
static void
take_answer(Command *command, int heard)
{
	int64		now = monotonic_now();

	if (heard != command->sent)
		return;
	command->overdue_at = NEVER;
	command->due_at = now < command->orders.kill_at ? command->orders.kill_at :
		now + LOOK_INTERVAL;
}

/*
 * log_stopped logs that the command has been stopped, which keeps it from its work, but
 * not from being ended.
 */
static void
log_stopped(int number)
{
	bool		wants_terminal = number == SIGTTIN || number == SIGTTOU;

	log_line(LEVEL_WARNING, "stopped", "the command has been stopped by signal %d%s",
			 number, wants_terminal ?
			 ": it has the terminal only if pg_lease reads from there and writes there" : "");
}

/*
 * take_not_started takes it that there will be no command.
 */
static void
take_not_started(Command *command, int error)
{
	log_line(LEVEL_ERROR, "not_started",
			 "could not create a process: %s", strerror(error));
	command->ended = true;
	command->status = EXIT_SYSTEM << 8;
	command->gone = true;
}

/*
 * take_report takes note of what the guardian has seen.
 */
static void
take_report(Command *command, const Report *report)
{
	switch (report->kind)
	{
		case REPORT_STARTED:
			command->pid = report->value;
			command->processes.group = report->value;
			break;
		case REPORT_NOT_STARTED:
			take_not_started(command, report->value);
			break;
		case REPORT_HEARD:
			take_answer(command, report->value);
			break;
		case REPORT_STOPPED:
			log_stopped(report->value);
			break;
		case REPORT_TERMINATED:
			command->late = true;
			break;
		case REPORT_KILLED:
			command->late |= !command->ended;
			command->killed = true;
			break;
		case REPORT_ENDED:
			command->ended = true;
			command->status = report->value;
			break;
		case REPORT_GONE:
			command->gone = true;
			break;
	}
}

/*
 * replace_guardian makes its work ours.  What we have not been told of the command we
 * may still see ourselves.
 */
static void
replace_guardian(Command *command)
{
	log_line(LEVEL_ERROR, "guardian_failed",
			 "the guardian of the command has died, or does not answer; killing the command");
	processes_end(&command->processes, command->guardian);
	close(command->channel);
	command->channel = -1;
	command->adopted = true;
	command->killed = true;
	command->processes.leader_ended |= command->ended;
	processes_adopted(&command->processes);
}

/*
 * read_reports reads what the guardian has sent.  If it has ended without reading its
 * latest orders, we are told that first, and its reports come after.
 */
static void
read_reports(Command *command)
{
	Report		report;
	ssize_t		length;

	do
	{
		length = recv(command->channel, &report, sizeof(report), MSG_DONTWAIT);
		if (length == sizeof(report))
			take_report(command, &report);
	} while (length == sizeof(report) ||
			 (length < 0 && (errno == ECONNRESET || errno == EINTR)));

	if (!command->gone && !(length < 0 && errno == EAGAIN))
		replace_guardian(command);
}

/*
 * end_all does the work of a guardian that has failed.
 */
static void
end_all(Command *command)
{
	Processes  *processes = &command->processes;

	processes_kill(processes);
	if (!processes_reap(processes))
		return;
	if (!command->ended)
	{
		command->ended = true;
		command->status = processes->leader_ended ? processes->status :
			EXIT_SYSTEM << 8;
	}
	command->gone = true;
}

/*
 * check_guardian asks the guardian for an answer when it has to kill the command, and
 * replaces it if none comes.  How long that may take counts from when we ask: we may
 * just have been stopped together.
 */
static void
check_guardian(Command *command)
{
	int64		now = monotonic_now();

	if (now >= command->overdue_at)
	{
		command->late |= !command->ended && now >= command->orders.kill_at;
		replace_guardian(command);
	}
	else if (now >= command->due_at && command->overdue_at == NEVER)
	{
		command->overdue_at = now + command->orders.patience;
		send_orders(command, &command->orders);
	}
}

/*
 * clean_up leaves nothing behind of a command that is gone.
 */
static void
clean_up(Command *command)
{
	processes_end(&command->processes, command->guardian);
	if (command->channel >= 0)
		close(command->channel);
	command->channel = -1;
	command->guardian = 0;
	if (command->foreground)
		tcsetpgrp(STDIN_FILENO, getpgrp());
}

/*
 * command_step does what is to be done now.  It also reaps children that are none of
 * ours, which the first process of a container gets.
 */
void
command_step(Command *command)
{
	if (!command->adopted)
		(void) processes_reap(&command->processes);
	if (command->guardian == 0)
		return;
	if (command->channel >= 0)
		read_reports(command);
	if (command->channel >= 0 && !command->gone)
		check_guardian(command);
	if (command->adopted && !command->gone)
		end_all(command);
	if (command->gone)
		clean_up(command);
}

/*
 * command_wakeup returns the instant at which command_step wants to be called.
 */
int64
command_wakeup(const Command *command)
{
	if (command->guardian == 0)
		return NEVER;
	if (command->adopted)
		return monotonic_now() + LOOK_INTERVAL;
	return command->overdue_at == NEVER ? command->due_at : command->overdue_at;
}

/*
 * command_exit_code returns with which code a shell would tell how the command has
 * ended.
 */
int
command_exit_code(const Command *command)
{
	if (WIFSIGNALED(command->status))
		return 128 + WTERMSIG(command->status);
	return WEXITSTATUS(command->status);
}
