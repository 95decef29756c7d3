/*-------------------------------------------------------------------------
 *
 * history.c
 *	  pg_lease history: what has happened to a lease.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/bin/history.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "session.h"
#include "table.h"
#include "text.h"

/* Long option that has no letter */
enum
{
	OPTION_SINCE = 1000
};

/* What the command line asks for; the texts are parameters of the query */
typedef struct HistoryOptions
{
	const char *name;
	const char *since;
	const char *limit;
	bool		json;
	bool		expanded;
} HistoryOptions;

/* The latest events up to the limit, in their order */
#define EVENTS \
	" FROM (SELECT e.* FROM lease.history($1, $2) AS e" \
	"	ORDER BY e.seq DESC LIMIT $3) AS e " \
	"ORDER BY e.seq"

#define TABLE_QUERY \
	"SELECT e.seq AS \"Seq\", to_char(e.at, 'YYYY-MM-DD HH24:MI:SS.MSOF') AS \"At\"," \
	"	e.kind AS \"Event\", e.epoch AS \"Epoch\", e.holder AS \"Holder\"," \
	"	e.actor AS \"By\", e.detail AS \"Detail\"" EVENTS

#define JSON_QUERY "SELECT row_to_json(e)" EVENTS

/*
 * help prints what --help is to say.
 */
static void
help(void)
{
	printf("%s history shows what has happened to a lease, also if it was dropped.\n\n", progname);
	printf("Usage:\n  %s history [OPTION]... NAME\n", progname);
	printf("\nOptions:\n");
	printf("  -j, --json               a JSON object for each event, on a line of its own\n");
	printf("  -n, --limit=NUMBER       only the latest NUMBER events\n");
	printf("      --since=SEQ          only events after number SEQ\n");
	printf("  -x, --expanded           a line for each column\n");
	printf("  -?, --help               show this help, then exit\n");
	options_connect_help();
	printf("\nExit code: 0; 1 if there never was such a lease; 64: usage; 69: no connection;\n");
	printf("70: error of the server.\n");
}

/*
 * read_options reads the command line; the session gets what is for it.
 */
static HistoryOptions
read_options(int argc, char *argv[], Session *session)
{
	static const struct option long_options[] = {
		CONNECT_LONG_OPTIONS,
		{"json", no_argument, NULL, 'j'},
		{"limit", required_argument, NULL, 'n'},
		{"since", required_argument, NULL, OPTION_SINCE},
		{"expanded", no_argument, NULL, 'x'},
		{NULL, 0, NULL, 0}
	};
	HistoryOptions options = {.since = "0"};
	int			c;

	while ((c = options_next("history", argc, argv, CONNECT_SHORT_OPTIONS "jn:x",
							 long_options, &session->options)) != -1)
	{
		if (c == 'j')
			options.json = session->json = true;
		else if (c == 'x')
			options.expanded = true;
		else if (c == 'n')
			options.limit = psprintf(INT64_FORMAT, options_count("history", optarg, "limit", 1));
		else if (c == OPTION_SINCE)
			options.since = psprintf(INT64_FORMAT, options_count("history", optarg, "number of an event", 0));
	}
	if (argc - optind != 1)
		options_usage_error("history", "the name of one lease must be given");
	options.name = argv[optind];
	return options;
}

/*
 * history_main runs "pg_lease history".
 */
int
history_main(int argc, char *argv[])
{
	Session		session = {0};
	HistoryOptions options;
	const char *values[3];
	PGresult   *events;

	if (options_want_help(argc, argv))
	{
		help();
		return 0;
	}
	options = read_options(argc, argv, &session);
	values[0] = options.name;
	values[1] = options.since;
	values[2] = options.limit;

	session_open(&session);
	session_read(&session, &events, options.json ? JSON_QUERY : TABLE_QUERY,
				 lengthof(values), values);
	session_check(&session, events);
	if (options.json)
		table_print_lines(events, 0);
	else
		table_print(&session, events, options.expanded);
	text_flush();
	PQclear(events);
	session_close(&session);
	return 0;
}
