/*-------------------------------------------------------------------------
 *
 * run_options.c
 *	  The command line of "pg_lease run".
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/bin/run_options.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <time.h>
#include <sys/random.h>
#include <unistd.h>

#include "monotonic.h"
#include "run_options.h"

#define HOLDER_MAX		255		/* bytes of a holder that the server takes */
#define RESTART_DELAY	(1 * SECOND)

/* A shorter grant is over before a command could be ended. */
#define SHORTEST_TTL	(1 * SECOND)

/* Long options that have no letter */
enum
{
	OPTION_TTL = 1000,
	OPTION_HOLDER,
	OPTION_WAIT,
	OPTION_NO_WAIT,
	OPTION_ONCE,
	OPTION_KEEP,
	OPTION_GRACE_STOP,
	OPTION_RESTART_DELAY,
	OPTION_PRIORITY,
	OPTION_NO_TOKEN,
	OPTION_LOG_FORMAT
};

static const struct option long_options[] = {
	CONNECT_LONG_OPTIONS,
	{"lease", required_argument, NULL, 'l'},
	{"ttl", required_argument, NULL, OPTION_TTL},
	{"holder", required_argument, NULL, OPTION_HOLDER},
	{"wait", required_argument, NULL, OPTION_WAIT},
	{"no-wait", no_argument, NULL, OPTION_NO_WAIT},
	{"once", no_argument, NULL, OPTION_ONCE},
	{"keep", no_argument, NULL, OPTION_KEEP},
	{"grace-stop", required_argument, NULL, OPTION_GRACE_STOP},
	{"restart-delay", required_argument, NULL, OPTION_RESTART_DELAY},
	{"priority", required_argument, NULL, OPTION_PRIORITY},
	{"no-token", no_argument, NULL, OPTION_NO_TOKEN},
	{"log-format", required_argument, NULL, OPTION_LOG_FORMAT},
	{"verbose", no_argument, NULL, 'v'},
	{NULL, 0, NULL, 0}
};

/*
 * help prints what --help is to say.
 */
static void
help(void)
{
	printf("%s run runs a command while it holds a lease.\n\n", progname);
	printf("Usage:\n  %s run [OPTION]... --lease=NAME [--] COMMAND [ARGUMENT]...\n", progname);
	printf("\nOptions:\n");
	printf("  -l, --lease=NAME         the lease, which must exist\n");
	printf("      --ttl=TIME           length of a grant (default: the lease's)\n");
	printf("      --holder=TEXT        name of this process (default: host/pid/start time/random)\n");
	printf("      --wait=TIME          wait at most so long for the lease (default: for ever)\n");
	printf("      --no-wait            do not wait for it\n");
	printf("      --priority=NUMBER    place in line, higher ones first (default: 0)\n");
	printf("      --once               end after the command, or when the lease is lost (default)\n");
	printf("      --keep               then wait for the lease again\n");
	printf("      --restart-delay=TIME with --keep: pause after a command has ended by itself,\n"
		   "                           longer if it goes on failing soon, or after a handover\n"
		   "                           (default: 1s)\n");
	printf("      --grace-stop=TIME    how long the command may take to end before it is killed\n"
		   "                           (default: a fifth of the ttl; at most a third)\n");
	printf("      --no-token           do not put the token into PGOPTIONS\n");
	printf("      --log-format=FORMAT  text or json (default: text)\n");
	printf("  -v, --verbose            also log renewals\n");
	printf("  -?, --help               show this help, then exit\n");
	options_connect_help();
	printf("\nTimes are like 15s, 500ms, 2min, 1h; a plain number means seconds.\n");
	printf("\nThe command finds LEASE_NAME, LEASE_EPOCH and LEASE_HOLDER in its environment, and in\n"
		   "PGOPTIONS what makes its connections carry the token.\n");
	printf("\nExit codes: that of the command, or %d: wrong usage, %d: no connection,\n"
		   "%d: an error of the server, %d: of this machine, %d: not acquired,\n"
		   "%d: the lease was lost.\n",
		   EXIT_USAGE, EXIT_CONNECTION, EXIT_SERVER_ERROR, EXIT_SYSTEM, EXIT_NOT_ACQUIRED,
		   EXIT_LOST);
}

/*
 * default_holder makes a name that no other process has.
 */
static const char *
default_holder(void)
{
	char		host[100] = "";
	char		started[64];
	time_t		now = time(NULL);
	struct tm	tm;
	uint32		number = 0;

	gethostname(host, sizeof(host) - 1);
	gmtime_r(&now, &tm);
	strftime(started, sizeof(started), "%Y-%m-%dT%H:%M:%SZ", &tm);
	(void) !getentropy(&number, sizeof(number));
	return psprintf("%s/%d/%s/%08x", host, (int) getpid(), started, number);
}

/*
 * read_priority checks a priority, which the server is given as it is.
 */
static const char *
read_priority(const char *text)
{
	char	   *end;
	long		number;

	errno = 0;
	number = strtol(text, &end, 10);
	if (end == text ||*end != '\0' || errno != 0 ||
		number < PG_INT16_MIN || number > PG_INT16_MAX)
		options_usage_error("run", "priority must be a number between %d and %d, not \"%s\"",
							PG_INT16_MIN, PG_INT16_MAX, text);
	return pg_strdup(text);
}

/*
 * read_log_format tells whether a log format is JSON.
 */
static bool
read_log_format(const char *text)
{
	if (strcmp(text, "json") != 0 && strcmp(text, "text") != 0)
		options_usage_error("run", "log format must be text or json, not \"%s\"", text);
	return strcmp(text, "json") == 0;
}

/*
 * read_wait takes an option about waiting, of which there can be one.  To wait for no
 * time is not to wait.
 */
static void
read_wait(CampaignSettings *settings, const char *wait)
{
	if (!settings->in_line || settings->wait != NEVER)
		options_usage_error("run", "give one of --wait and --no-wait, and once");
	settings->wait = wait != NULL ? options_duration("run", wait, "--wait") : 0;
	settings->in_line = settings->wait > 0;
}

/*
 * read_option takes one option.  What the guardian may need is copied: it overwrites the
 * arguments of its process.
 */
static void
read_option(RunOptions *options, int c)
{
	CampaignSettings *settings = &options->campaign;

	switch (c)
	{
		case 'l':
			settings->lease = pg_strdup(optarg);
			break;
		case OPTION_TTL:
			settings->ttl = options_duration("run", optarg, "--ttl");
			if (settings->ttl < SHORTEST_TTL)
				options_usage_error("run", "--ttl must be at least 1s");
			break;
		case OPTION_HOLDER:
			settings->holder = pg_strdup(optarg);
			break;
		case OPTION_WAIT:
			read_wait(settings, optarg);
			break;
		case OPTION_NO_WAIT:
			read_wait(settings, NULL);
			break;
		case OPTION_ONCE:
			options->once = true;
			break;
		case OPTION_KEEP:
			options->keep = true;
			break;
		case OPTION_GRACE_STOP:
			settings->grace = options_duration("run", optarg, "--grace-stop");
			break;
		case OPTION_RESTART_DELAY:
			options->restart_delay = options_duration("run", optarg, "--restart-delay");
			break;
		case OPTION_PRIORITY:
			settings->priority = read_priority(optarg);
			break;
		case OPTION_NO_TOKEN:
			options->token = false;
			break;
		case OPTION_LOG_FORMAT:
			options->json = read_log_format(optarg);
			break;
		case 'v':
			options->verbose = true;
			break;
		default:
			if (!options_connect(&options->connect, c, optarg))
				options_unrecognized("run");
	}
}

/*
 * check looks whether the options make sense together.
 */
static void
check(const RunOptions *options)
{
	const CampaignSettings *settings = &options->campaign;

	if (settings->lease == NULL)
		options_usage_error("run", "no lease was given");
	if (options->command[0] == NULL)
		options_usage_error("run", "no command was given");
	if (settings->holder[0] == '\0' || strlen(settings->holder) > HOLDER_MAX)
		options_usage_error("run", "holder must have 1 to %d bytes", HOLDER_MAX);
	if (options->once && options->keep)
		options_usage_error("run", "give one of --once and --keep");
	if (settings->ttl > 0 && settings->grace > settings->ttl / 3)
		options_usage_error("run", "--grace-stop must not be longer than a third of --ttl");
}

/*
 * run_options_read reads the command line; what is wrong with it ends the program.
 * Options end where the command begins.
 */
void
run_options_read(RunOptions *options, int argc, char *argv[])
{
	int			c;

	if (options_want_help(argc, argv))
	{
		help();
		exit(0);
	}
	memset(options, 0, sizeof(RunOptions));
	options->campaign.wait = NEVER;
	options->campaign.in_line = true;
	options->campaign.grace = -1;
	options->campaign.priority = "0";
	options->restart_delay = RESTART_DELAY;
	options->token = true;
	while ((c = getopt_long(argc, argv, "+" CONNECT_SHORT_OPTIONS "l:v",
							long_options, NULL)) != -1)
		read_option(options, c);
	options->command = argv + optind;
	if (options->campaign.holder == NULL)
		options->campaign.holder = default_holder();
	check(options);
	if (options->connect.prompt_password > 0)
		options_prompt_password(&options->connect);
}
