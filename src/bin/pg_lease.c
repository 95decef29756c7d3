/*-------------------------------------------------------------------------
 *
 * pg_lease.c
 *	  The program pg_lease: which subcommand is to run.
 *
 * "pg_lease run" runs a command while it holds a lease; the other subcommands
 * show and administer leases, each with one or a few queries.  What they share
 * is in options.c (the command line), session.c (the connection), table.c and
 * text.c (what is printed) and follow.c (those that go on until they are
 * stopped).  "run" has a connection of its own, because it must never wait for
 * a server longer than its lease lasts.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_lease.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <locale.h>

#include "common/logging.h"
#include "options.h"
#include "pg_lease.h"

/* A subcommand */
typedef struct Subcommand
{
	const char *name;
	int			(*main) (int argc, char *argv[]);
	const char *purpose;		/* for --help */
} Subcommand;

static const Subcommand subcommands[] = {
	{"run", run_main, "run a command while holding a lease"},
	{"status", status_main, "show leases as they stand"},
	{"watch", watch_main, "print events of leases as they come"},
	{"history", history_main, "show what has happened to a lease"},
	{"release", release_main, "give back a lease, given its epoch"},
	{"revoke", revoke_main, "take back a lease from whoever holds it"},
	{"handover", handover_main, "ask whoever holds a lease to step down"},
	{"doctor", doctor_main, "tell what gets past fences"},
	{NULL, NULL, NULL}
};

const char *progname;
char	   *title_area;
size_t		title_size;

/*
 * help prints what "pg_lease --help" is to say.
 */
static void
help(void)
{
	printf("%s runs commands under leases of PostgreSQL, and shows leases.\n\n", progname);
	printf("Usage:\n  %s SUBCOMMAND [OPTION]...\n\n", progname);
	printf("Subcommands:\n");
	for (const Subcommand *s = subcommands; s->name != NULL; s++)
		printf("  %-10s %s\n", s->name, s->purpose);
	printf("\nOptions:\n");
	printf("  -V, --version    output version information, then exit\n");
	printf("  -?, --help       show this help, then exit\n");
	printf("\nMore is in \"%s SUBCOMMAND --help\" and \"man %s\".\n", progname, progname);
}

/*
 * find_subcommand returns the subcommand of that name, or else ends the program.
 */
static const Subcommand *
find_subcommand(const char *name)
{
	for (const Subcommand *s = subcommands; s->name != NULL; s++)
	{
		if (strcmp(s->name, name) == 0)
			return s;
	}
	if (name[0] == '-')
		options_usage_error(NULL, "unrecognized option \"%s\"", name);
	options_usage_error(NULL, "unrecognized subcommand \"%s\"", name);
}

/*
 * save_title finds out where ps finds the arguments of the process, from the name of
 * the program on, as far as they are one after the other.
 */
static void
save_title(int argc, char *argv[])
{
	char	   *end = argv[0] + strlen(argv[0]);

	for (int i = 1; i < argc && argv[i] == end + 1; i++)
		end = argv[i] + strlen(argv[i]);
	title_area = argv[0];
	title_size = end - argv[0];
}

/*
 * main runs the subcommand that the command line names.
 */
int
main(int argc, char *argv[])
{
	const Subcommand *subcommand;

	save_title(argc, argv);
	pg_logging_init(argv[0]);
	progname = get_progname(argv[0]);

	/* Widths of characters follow the locale; numbers that we read do not. */
	setlocale(LC_ALL, "");
	setlocale(LC_NUMERIC, "C");

	if (argc < 2)
		options_usage_error(NULL, "no subcommand was given");
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-?") == 0)
	{
		help();
		return 0;
	}
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)
	{
		printf("pg_lease (lease) %s\n", LEASE_VERSION);
		return 0;
	}

	subcommand = find_subcommand(argv[1]);
	argv[1] = psprintf("%s %s", progname, subcommand->name);
	return subcommand->main(argc - 1, argv + 1);
}
