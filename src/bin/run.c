/*-------------------------------------------------------------------------
 *
 * run.c
 *	  "pg_lease run": run a command while holding a lease.
 *
 * One process, one loop: it waits for signals, for the server (campaign.c), for the
 * guardian of the command (command.c), and for the instant at which something is to be
 * done.  Nothing else is waited for, but for what connection.c says of libraries, and
 * for the end of a guardian that has done its work or was killed.
 *
 * The times of a grant, from when the renewal was sent that was confirmed last:
 *
 *	  a third of the ttl		the next renewal; if it fails, it is repeated
 *	  deadline - lead - grace	the command is asked to end
 *	  deadline - lead			it is killed, with all that it has started
 *	  deadline					all of it is gone
 *	  deadline + margin			the server may grant the lease to somebody else
 *
 * If the lease is lost before, or is asked for, or we are told to end, the command is
 * asked to end at once, and has the grace, but not longer than until it would be
 * killed anyway.  Except after a loss the lease is renewed meanwhile.  It is released
 * when nothing is left of the command.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/bin/run.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "campaign.h"
#include "command.h"
#include "log.h"
#include "monotonic.h"
#include "run_options.h"
#include "signals.h"

/*
 * A signal that comes again so soon was sent twice for the same reason, to us and to
 * our group, as timeout(1) does.
 */
#define SAME_SIGNAL		(200 * MILLISECOND)

/* A command that has run for so long does not fail at once. */
#define LONG_RUN		(10 * SECOND)

/* Pauses between commands that fail at once, unless other ones are asked for: the
 * second is at least so long, and the longest */
#define SECOND_REST		(100 * MILLISECOND)
#define LONGEST_REST	(30 * SECOND)

typedef enum Phase
{
	PHASE_CANDIDATE,
	PHASE_RUNNING,				/* also while the command is being ended */
	PHASE_LEAVING,
	PHASE_RESTING,				/* before another candidacy */
	PHASE_DONE
} Phase;

/* Why the command is to end, or has ended */
typedef enum Cause
{
	CAUSE_NONE,
	CAUSE_ENDED,				/* by itself */
	CAUSE_SIGNAL,				/* we were told to end */
	CAUSE_HANDOVER,
	CAUSE_LATE,					/* no renewal was confirmed for too long */
	CAUSE_LOST
} Cause;

typedef struct Run
{
	RunOptions	options;
	Campaign	campaign;
	Command		command;
	Launch		launch;

	Phase		phase;
	Cause		cause;
	int64		cause_since;
	bool		start_logged;
	int64		started_at;
	int			short_runs;		/* that have failed, in a row */
	int64		rest_until;
	int			signal;			/* that has told us to end, or 0 */
	int64		signal_since;
	bool		kill_now;		/* told so twice */
	int			exit_code;
} Run;

/*
 * orders_now returns what the guardian has to know.
 */
static Orders
orders_now(const Run *run)
{
	const Campaign *campaign = &run->campaign;
	Orders		orders = {0};

	orders.grace = campaign->grace;
	orders.patience = campaign->lead / 3;
	orders.kill_at = campaign->deadline - campaign->lead;
	orders.term_at = orders.kill_at - campaign->grace;
	if (run->cause != CAUSE_NONE)
	{
		orders.kill_at = Min(orders.kill_at, run->cause_since + campaign->grace);
		orders.term_at = run->cause == CAUSE_LOST || run->cause == CAUSE_HANDOVER ?
			run->cause_since : NEVER;
	}
	if (run->kill_now)
		orders.kill_at = 0;
	return orders;
}

/*
 * give_orders tells the guardian what is new, and has it send a signal.
 */
static void
give_orders(Run *run, int signal)
{
	Orders		orders = orders_now(run);

	orders.signal = signal;
	command_order(&run->command, &orders);
}

/*
 * leave begins to give the lease back.
 */
static void
leave(Run *run, int exit_code)
{
	run->exit_code = exit_code;
	run->phase = PHASE_LEAVING;
	campaign_leave(&run->campaign);
}

/*
 * start starts the command.
 */
static void
start(Run *run)
{
	Orders		orders;

	/* We may have been stopped since it was confirmed: ask again. */
	if (!campaign_has_time(&run->campaign))
	{
		campaign_confirm(&run->campaign);
		return;
	}
	run->cause = CAUSE_NONE;
	run->start_logged = false;
	run->started_at = monotonic_now();
	run->launch.environment.epoch = run->campaign.epoch;
	run->launch.unwanted = connection_descriptor(&run->campaign.connection).fd;
	orders = orders_now(run);
	if (command_start(&run->command, &run->launch, &orders))
		run->phase = PHASE_RUNNING;
	else
		leave(run, EXIT_SYSTEM);
}

/*
 * stop begins to end the command, for the first cause that there is.
 */
static void
stop(Run *run, Cause cause)
{
	if (run->cause != CAUSE_NONE)
		return;
	run->cause = cause;
	run->cause_since = monotonic_now();
}

/*
 * seconds_to_kill returns in how many seconds the command will be killed.
 */
static double
seconds_to_kill(const Run *run)
{
	return Max(orders_now(run).kill_at - monotonic_now(), 0) / (double) SECOND;
}

/*
 * look_for_cause finds out whether the command is to end, or has ended.
 */
static void
look_for_cause(Run *run)
{
	Campaign   *campaign = &run->campaign;

	if (run->command.late)
	{
		stop(run, CAUSE_LATE);
		log_line(LEVEL_ERROR, "stopping",
				 "no renewal was confirmed for so long that the command has to end; it will be killed in %.1f s",
				 seconds_to_kill(run));
	}
	else if (run->command.ended)
		stop(run, CAUSE_ENDED);
	else if (campaign->state == CAMPAIGN_LOST)
	{
		stop(run, CAUSE_LOST);
		log_line(LEVEL_WARNING, "stopping",
				 "ending the command; it will be killed in %.1f s", seconds_to_kill(run));
	}
	else if (campaign->handover)
	{
		stop(run, CAUSE_HANDOVER);
		log_line(LEVEL_INFO, "handover",
				 "asked to step down%s%s: ending the command; it will be killed in %.1f s",
				 campaign->successor[0] != '\0' ? " in favour of " : "",
				 campaign->successor, seconds_to_kill(run));
	}
}

/*
 * log_end logs how the command has ended.
 */
static void
log_end(const Run *run)
{
	int			status = run->command.status;
	const char *how = run->command.killed ? " (something of it had to be killed)" : "";

	if (WIFSIGNALED(status))
		log_line(LEVEL_INFO, "ended", "the command has ended by signal %d%s",
				 WTERMSIG(status), how);
	else
		log_line(LEVEL_INFO, "ended", "the command has ended with code %d%s",
				 WEXITSTATUS(status), how);
}

/*
 * code_of_end returns the exit code after a command.
 */
static int
code_of_end(const Run *run)
{
	if (run->cause == CAUSE_ENDED || run->cause == CAUSE_SIGNAL)
		return command_exit_code(&run->command);
	return EXIT_LOST;
}

/*
 * note_interrupt takes it for our own if a key of the terminal has ended the command:
 * only that was sent the signal.
 */
static void
note_interrupt(Run *run)
{
	int			status = run->command.status;

	if (run->launch.foreground && run->signal == 0 && WIFSIGNALED(status) &&
		(WTERMSIG(status) == SIGINT || WTERMSIG(status) == SIGQUIT))
		run->signal = WTERMSIG(status);
}

/*
 * go_on_running looks after the command.
 */
static void
go_on_running(Run *run)
{
	if (run->command.pid != 0 && !run->start_logged)
	{
		run->start_logged = true;
		log_line(LEVEL_INFO, "started", "started the command, process %d",
				 (int) run->command.pid);
	}
	if (run->cause == CAUSE_NONE)
		look_for_cause(run);
	if (run->command.gone)
	{
		if (run->command.pid != 0)
			log_end(run);
		note_interrupt(run);
		leave(run, code_of_end(run));
	}
	else
		give_orders(run, 0);
}

/*
 * rest_length returns how long to pause before the next candidacy.  Who was asked to
 * step down lets others come first; a command that fails at once, again and again, is
 * started more and more rarely.
 */
static int64
rest_length(Run *run)
{
	int64		rest = run->options.restart_delay;

	if (run->cause == CAUSE_LATE || run->cause == CAUSE_LOST)
		return 0;
	if (run->cause == CAUSE_HANDOVER)
		return rest;
	if (run->exit_code == 0 || monotonic_now() - run->started_at >= LONG_RUN)
		run->short_runs = 0;
	else
		run->short_runs++;
	for (int i = 1; i < run->short_runs && rest < LONGEST_REST; i++)
		rest = Max(2 * rest, SECOND_REST);
	return Max(Min(rest, LONGEST_REST), run->options.restart_delay);
}

/*
 * go_on_after decides what comes after a candidacy.
 */
static void
go_on_after(Run *run)
{
	if (run->exit_code == 0 && run->cause == CAUSE_ENDED && run->campaign.not_held)
		run->exit_code = EXIT_LOST;
	if (run->signal != 0 || !run->options.keep || run->campaign.exit_code != 0)
	{
		run->phase = PHASE_DONE;
		return;
	}
	run->phase = PHASE_RESTING;
	run->rest_until = monotonic_now() + rest_length(run);
}

/*
 * begin begins a candidacy.
 */
static void
begin(Run *run)
{
	run->phase = PHASE_CANDIDATE;
	run->cause = CAUSE_NONE;
	campaign_begin(&run->campaign);
	log_line(LEVEL_INFO, "candidate", run->options.campaign.in_line ?
			 "waiting for the lease" : "trying to acquire the lease");
}

/*
 * go_on does what is to be done in the present phase, and tells whether that has led
 * to another one.
 */
static bool
go_on(Run *run)
{
	Phase		before = run->phase;

	switch (run->phase)
	{
		case PHASE_CANDIDATE:
			if (run->campaign.state == CAMPAIGN_HOLDER)
				start(run);
			else if (run->campaign.state == CAMPAIGN_LEAVING ||
					 run->campaign.state == CAMPAIGN_OVER)
			{
				run->phase = PHASE_LEAVING;
				run->exit_code = run->campaign.exit_code;
			}
			break;
		case PHASE_RUNNING:
			go_on_running(run);
			break;
		case PHASE_LEAVING:
			if (run->campaign.state == CAMPAIGN_OVER)
				go_on_after(run);
			break;
		case PHASE_RESTING:
			if (monotonic_now() >= run->rest_until)
				begin(run);
			break;
		case PHASE_DONE:
			break;
	}
	return run->phase != before;
}

/*
 * take_end_signal is told to end, which is what most signals mean.  To be told twice
 * is to be in a hurry.
 */
static void
take_end_signal(Run *run, int number)
{
	int64		now = monotonic_now();
	bool		again = run->signal != 0;

	if (again && now - run->signal_since < SAME_SIGNAL)
		return;
	if (!again)
	{
		run->signal = number;
		run->signal_since = now;
	}
	log_line(LEVEL_INFO, "signal", "received signal %d%s", number,
			 again ? " once more" : "");
	switch (run->phase)
	{
		case PHASE_RUNNING:
			run->kill_now = again;
			stop(run, CAUSE_SIGNAL);
			give_orders(run, number);
			break;
		case PHASE_LEAVING:
			if (again)
				run->campaign.leave_until = 0;
			break;
		case PHASE_CANDIDATE:
			leave(run, 128 + number);
			break;
		default:
			run->exit_code = 128 + number;
			run->phase = PHASE_DONE;
			break;
	}
}

/*
 * take_signals takes the signals that have come.  The same one twice, for the command,
 * is one, as it is for any process.
 */
static void
take_signals(Run *run)
{
	int			number;
	bool		to_hand_on[2] = {false, false};

	while ((number = signals_next()) != 0)
	{
		if (number == SIGUSR1 || number == SIGUSR2)
			to_hand_on[number == SIGUSR2] = true;
		else if (number != SIGCHLD)
			take_end_signal(run, number);
	}
	if (to_hand_on[0] && run->phase == PHASE_RUNNING)
		give_orders(run, SIGUSR1);
	if (to_hand_on[1] && run->phase == PHASE_RUNNING)
		give_orders(run, SIGUSR2);
}

/*
 * wait_for_news waits until something has happened, or is to be done.
 */
static void
wait_for_news(const Run *run)
{
	struct pollfd descriptors[] = {
		{signals_descriptor(), POLLIN, 0},
		{run->command.channel, POLLIN, 0},
		connection_descriptor(&run->campaign.connection)
	};
	int64		until = Min(campaign_wakeup(&run->campaign),
							command_wakeup(&run->command));

	if (run->phase == PHASE_RESTING)
		until = Min(until, run->rest_until);
	monotonic_poll(descriptors, lengthof(descriptors), until);
}

/*
 * live runs until there is nothing left to do.
 */
static void
live(Run *run)
{
	begin(run);
	while (run->phase != PHASE_DONE)
	{
		take_signals(run);
		command_step(&run->command);
		campaign_step(&run->campaign);
		if (!go_on(run))
			wait_for_news(run);
	}
}

/*
 * open_standard_descriptors opens those of the standard descriptors that are closed, so
 * that none of ours takes their numbers and gets into the hands of the command.
 */
static void
open_standard_descriptors(void)
{
	int			descriptor;

	while ((descriptor = open(DEVNULL, O_RDWR)) >= 0 && descriptor <= STDERR_FILENO)
		;
	if (descriptor > STDERR_FILENO)
		close(descriptor);
}

/*
 * run_main is "pg_lease run".
 */
int
run_main(int argc, char *argv[])
{
	static Run	run;

	run_options_read(&run.options, argc, argv);
	run.launch.command = run.options.command;
	run.launch.environment.lease = run.options.campaign.lease;
	run.launch.environment.holder = run.options.campaign.holder;
	run.launch.environment.token = run.options.token;
	/* "pkill -f pg_lease" must not hit the guardian as well. */
	run.launch.title = title_area;
	run.launch.title_size = title_size;
	log_configure(run.options.json, run.options.verbose);
	log_subject(run.options.campaign.lease, run.options.campaign.holder);

	open_standard_descriptors();
	signals_open();
	command_prepare(&run.command);
	campaign_prepare(&run.campaign, &run.options.campaign, &run.options.connect);
	live(&run);
	campaign_end(&run.campaign);
	return run.exit_code;
}
