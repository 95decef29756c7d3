/*-------------------------------------------------------------------------
 *
 * status.c
 *	  pg_lease status: leases as they stand.
 *
 * The table is for whoever is woken at night: who holds it and for how long
 * still, whether work is done under it, who waits, and what is out of the
 * ordinary.  Everything else is in the JSON.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/bin/status.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <time.h>
#include <unistd.h>

#include "common/logging.h"
#include "follow.h"
#include "session.h"
#include "table.h"
#include "text.h"

/* Moves the cursor home and clears what was on the screen. */
#define CLEAR_SCREEN "\033[H\033[2J\033[3J"

/* Redrawing more often than this helps nobody. */
#define SHORTEST_INTERVAL	INT64CONST(100000)
#define DEFAULT_INTERVAL	INT64CONST(2000000)

/* Long option that has no letter */
enum
{
	OPTION_WATCH = 1000
};

/* What the command line asks for */
typedef struct StatusOptions
{
	char	   *names;			/* array of JSON, or NULL for all leases */
	bool		json;
	bool		expanded;
	bool		watch;
	int64		interval;		/* between two looks, in microseconds */
} StatusOptions;

/* What reads, and tells whether the connection has lasted until then */
typedef bool (*Reader) (Session *session, PGresult **result, const char *sql,
						int count, const char *const values[]);

/* A duration as hours, minutes and seconds; there may be more than 24 hours */
#define AS_CLOCK(duration) \
	"to_char(make_interval(secs => extract(epoch FROM " duration ")::float8), 'HH24:MI:SS')"

/* Leases that were asked for by name and are not there */
#define MISSING_QUERY \
	"SELECT n.name FROM jsonb_array_elements_text($1) AS n(name)" \
	" WHERE NOT EXISTS (SELECT FROM lease.status AS s WHERE s.name = n.name)" \
	" ORDER BY n.name"

#define TABLE_QUERY \
	"WITH line AS (" \
	"	SELECT c.name, count(*) AS waiting, max(c.waits) AS longest" \
	"	FROM lease.candidate AS c GROUP BY c.name" \
	"), state AS (" \
	"	SELECT s.*, h.held, h.working, h.reports, h.silence, h.expired_ago," \
	"		CASE WHEN s.state = 'held' AND NOT h.held THEN 'expired' ELSE s.state END AS now_is" \
	"	FROM lease.status AS s JOIN lease.health AS h ON h.name = s.name" \
	"	WHERE $1::jsonb IS NULL OR s.name IN (SELECT jsonb_array_elements_text($1))" \
	") " \
	"SELECT s.name AS \"Lease\", s.now_is AS \"State\"," \
	AS_CLOCK("CASE s.now_is WHEN 'held' THEN now() - s.acquired_at" \
			 "	WHEN 'expired' THEN s.expired_ago END") " AS \"For\"," \
	AS_CLOCK("CASE WHEN s.now_is = 'held' THEN s.remaining" \
			 "	WHEN s.now_is IN ('grace', 'reserved') THEN s.available_at - now() END") " AS \"Left\"," \
	"	s.epoch AS \"Epoch\"," \
	"	CASE WHEN s.now_is = 'reserved' THEN s.successor" \
	"		WHEN s.now_is <> 'free' THEN s.holder END AS \"Holder\"," \
	"	CASE WHEN s.reports = 0 THEN NULL" \
	"		WHEN s.working THEN 'progress ' || " AS_CLOCK("s.silence") " || ' ago'" \
	"		WHEN s.now_is = 'held' THEN 'none for ' || " AS_CLOCK("s.silence") " END AS \"Work\"," \
	"	l.waiting || ', ' || " AS_CLOCK("l.longest") " AS \"Waiting\"," \
	"	nullif(concat_ws('; '," \
	"		CASE WHEN s.working AND NOT s.held THEN 'works without holding it' END," \
	"		CASE WHEN s.held AND s.handover_at IS NOT NULL THEN" \
	"			'asked ' || " AS_CLOCK("now() - s.handover_at") " || ' ago to step down'" \
	"			|| coalesce(' for ' || s.handover_to, '') || coalesce(': ' || s.handover_reason, '') END," \
	"		CASE WHEN s.last_end = 'revoked' THEN 'revoked' || coalesce(': ' || s.reason, '') END," \
	"		CASE WHEN s.clock_step NOT BETWEEN '-1 s' AND '1 s' THEN" \
	"			'wall clock stepped by ' || s.clock_step END," \
	"		CASE WHEN NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.oid = s.role) THEN" \
	"			'its role was dropped' END), '') AS \"Remarks\" " \
	"FROM state AS s LEFT JOIN line AS l ON l.name = s.name " \
	"ORDER BY s.name"

/* Durations are seconds here: how intervals look is a setting. */
#define JSON_QUERY \
	"SELECT s.name, json_build_object(" \
	"	'now', now(), 'name', s.name, 'state', s.state, 'held', h.held," \
	"	'epoch', s.epoch, 'holder', s.holder, 'acquired_at', s.acquired_at," \
	"	'expires_at', s.expires_at, 'remaining', extract(epoch FROM h.remaining)," \
	"	'expired_ago', extract(epoch FROM h.expired_ago)," \
	"	'available_at', s.available_at, 'last_end', s.last_end, 'successor', s.successor," \
	"	'reason', s.reason, 'handover_at', s.handover_at, 'handover_to', s.handover_to," \
	"	'handover_reason', s.handover_reason, 'metadata', s.metadata," \
	"	'working', h.working, 'reports', h.reports," \
	"	'progress_age', extract(epoch FROM h.progress_age)," \
	"	'progress_within', extract(epoch FROM h.progress_within)," \
	"	'progress_detail', h.progress_detail," \
	"	'silence', extract(epoch FROM h.silence), 'verdict', h.verdict," \
	"	'candidates', coalesce(c.candidates, '[]')," \
	"	'role', s.role, 'ttl', extract(epoch FROM s.ttl), 'grace', extract(epoch FROM s.grace)," \
	"	'min_hold', extract(epoch FROM s.min_hold), 'late_commit', s.late_commit," \
	"	'evict', s.evict, 'async_renew', s.async_renew, 'events', s.events," \
	"	'clock_step', extract(epoch FROM s.clock_step)) " \
	"FROM lease.status AS s JOIN lease.health AS h ON h.name = s.name" \
	"	LEFT JOIN (SELECT c.name, json_agg(json_build_object('place', c.place, 'pid', c.pid," \
	"			'priority', c.priority, 'waits', extract(epoch FROM c.waits)," \
	"			'is_first', c.is_first) ORDER BY c.place) AS candidates" \
	"		FROM lease.candidate AS c GROUP BY c.name) AS c ON c.name = s.name " \
	"WHERE $1::jsonb IS NULL OR s.name IN (SELECT jsonb_array_elements_text($1)) " \
	"ORDER BY s.name"

/*
 * help prints what --help is to say.
 */
static void
help(void)
{
	printf("%s status shows leases as they stand.\n\n", progname);
	printf("Usage:\n  %s status [OPTION]... [NAME]...\n\n", progname);
	printf("Without a NAME, all leases are shown.\n");
	printf("\nOptions:\n");
	printf("  -j, --json               a JSON object for each lease, on a line of its own\n");
	printf("  -x, --expanded           a line for each column\n");
	printf("      --watch[=INTERVAL]   look again every INTERVAL (2s), until interrupted\n");
	printf("  -?, --help               show this help, then exit\n");
	options_connect_help();
	printf("\nExit code: 0; 1 if there is no lease of a NAME; 64: usage; 69: no connection;\n");
	printf("70: error of the server.\n");
}

/*
 * read_options reads the command line; the session gets what is for it.
 */
static StatusOptions
read_options(int argc, char *argv[], Session *session)
{
	static const struct option long_options[] = {
		CONNECT_LONG_OPTIONS,
		{"json", no_argument, NULL, 'j'},
		{"expanded", no_argument, NULL, 'x'},
		{"watch", optional_argument, NULL, OPTION_WATCH},
		{NULL, 0, NULL, 0}
	};
	StatusOptions options = {.interval = DEFAULT_INTERVAL};
	int			c;

	while ((c = options_next("status", argc, argv, CONNECT_SHORT_OPTIONS "jx",
							 long_options, &session->options)) != -1)
	{
		if (c == 'j')
			options.json = session->json = true;
		else if (c == 'x')
			options.expanded = true;
		else if (c == OPTION_WATCH)
		{
			options.watch = true;
			if (optarg != NULL)
				options.interval = options_duration("status", optarg, "--watch");
			if (options.interval < SHORTEST_INTERVAL)
				options_usage_error("status", "the interval of --watch must be at least 100ms");
		}
	}
	options.names = text_json_list(argv + optind, argc - optind);
	return options;
}

/*
 * read_once reads as a Reader does that ends the program if that fails.
 */
static bool
read_once(Session *session, PGresult **result, const char *sql,
		  int count, const char *const values[])
{
	session_read(session, result, sql, count, values);
	session_check(session, *result);
	return true;
}

/*
 * look reads the leases, and those that are missing, and tells whether the
 * connection has lasted until then.
 */
static bool
look(Session *session, const StatusOptions *options, Reader read,
	 PGresult **leases, PGresult **missing)
{
	const char *values[] = {options->names};

	*missing = NULL;
	if (!read(session, leases, options->json ? JSON_QUERY : TABLE_QUERY, 1, values))
		return false;
	if (options->names != NULL && !read(session, missing, MISSING_QUERY, 1, values))
	{
		PQclear(*leases);
		return false;
	}
	return true;
}

/*
 * show prints the leases, and returns the exit code.
 */
static int
show(Session *session, const StatusOptions *options, const PGresult *leases,
	 const PGresult *missing)
{
	if (options->json)
		table_print_lines(leases, 1);
	else if (PQntuples(leases) > 0)
		table_print(session, leases, options->expanded);
	else if (options->names == NULL)
		puts("There are no leases.");

	fflush(stdout);
	for (int i = 0; missing != NULL && i < PQntuples(missing); i++)
		pg_log_error("lease \"%s\" does not exist", PQgetvalue(missing, i, 0));
	return missing != NULL && PQntuples(missing) > 0 ? EXIT_ANSWER_NO : 0;
}

/*
 * show_heading begins a new picture: on a terminal in place of the one before.
 */
static void
show_heading(const Session *session, const StatusOptions *options)
{
	char		now[64];
	time_t		seconds = time(NULL);

	if (options->json)
		return;
	if (isatty(STDOUT_FILENO))
		fputs(CLEAR_SCREEN, stdout);
	strftime(now, sizeof(now), "%Y-%m-%d %H:%M:%S", localtime(&seconds));
	if (session->conn != NULL)
		printf("%s, leases of database \"%s\", every %g s\n\n", now,
			   PQdb(session->conn), options->interval / 1e6);
	else
		printf("%s, no connection since then:\n%s\n", now, session->error);
}

/*
 * keep_showing shows the leases again and again.  If the connection is lost, nothing
 * is left on the screen that looks like the present.
 */
static void
keep_showing(Session *session, const StatusOptions *options)
{
	for (;;)
	{
		PGresult   *leases;
		PGresult   *missing;
		bool		seen = look(session, options, follow_read, &leases, &missing);

		follow_begin_output();
		show_heading(session, options);
		if (seen)
			show(session, options, leases, missing);
		follow_end_output();
		if (seen)
		{
			PQclear(leases);
			PQclear(missing);
			follow_wait(session, options->interval);
		}
		else
			follow_reconnect(session);
	}
}

/*
 * status_main runs "pg_lease status".
 */
int
status_main(int argc, char *argv[])
{
	Session		session = {0};
	StatusOptions options;
	PGresult   *leases;
	PGresult   *missing;
	int			code;

	if (options_want_help(argc, argv))
	{
		help();
		return 0;
	}
	options = read_options(argc, argv, &session);
	if (options.watch)
	{
		follow_start(&session);
		keep_showing(&session, &options);
	}

	session_open(&session);
	look(&session, &options, read_once, &leases, &missing);
	code = show(&session, &options, leases, missing);
	text_flush();
	session_close(&session);
	return code;
}
