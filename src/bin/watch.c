/*-------------------------------------------------------------------------
 *
 * watch.c
 *	  pg_lease watch: events of leases as they come.
 *
 * The truth is lease.watch(), which gives all events after the numbers that it is
 * told.  We keep the number of the last event that was printed of each lease, ask
 * for what comes after, and so print each event once, in the order of its lease,
 * whatever happens to the connection in between.  Events of one lease become visible
 * in their order, without gaps.
 *
 * Notifications (lease.notify) only say that it is time to look.  They may be off,
 * get lost, be forged, and do not pass a pooler in transaction mode, so we also look
 * at intervals.
 *
 * Of leases that nobody asked for the numbers are kept as well, so that their
 * events are not sent again and again.
 *
 * The numbers mean nothing on another branch of the database's history: a standby
 * that missed the last events, a restored backup.  That shows if a history is shorter
 * than it was, or than --since says; it is then read on from its end, with a warning.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/bin/watch.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "common/logging.h"
#include "follow.h"
#include "session.h"
#include "text.h"

#define SHORTEST_INTERVAL	INT64CONST(10000)
#define DEFAULT_INTERVAL	INT64CONST(1000000)

/* Long option that has no letter */
enum
{
	OPTION_SINCE = 1000
};

/* Up to where a lease's events are known */
typedef struct Position
{
	char	   *name;
	int64		seq;
} Position;

/* Positions of leases, sorted by name */
typedef struct Positions
{
	Position   *items;
	int			count;
	int			allocated;
} Positions;

/* What the command line asks for, and how far it has been done */
typedef struct Watch
{
	char	  **names;			/* leases, */
	int			name_count;		/* none: all */
	char	   *name_list;		/* the same as an array of JSON, or NULL */
	bool		has_since;		/* whether there was any --since */
	const char *since_map;		/* the one that was JSON, or NULL */
	const char *since_number;	/* the one that was a number, or NULL */
	Positions	since;			/* those that named a lease */
	bool		json;
	int64		interval;		/* between two looks, in microseconds */
	Positions	positions;
} Watch;

#define POSITIONS_QUERY \
	"SELECT e.name, max(e.seq) FROM lease.event AS e GROUP BY e.name"

#define SINCE_QUERY \
	"SELECT j.key, j.value FROM jsonb_each($1) AS j"

/* The text is null for a lease that was not asked for. */
#define EVENTS_QUERY(text) \
	"SELECT e.name, e.seq, CASE WHEN $2::jsonb IS NULL" \
	"	OR e.name IN (SELECT jsonb_array_elements_text($2)) THEN " text " END " \
	"FROM lease.watch($1) AS e"

/* What may hold any character is quoted as in JSON. */
#define LINES_QUERY EVENTS_QUERY( \
	"concat_ws('  ', to_char(e.at, 'YYYY-MM-DD HH24:MI:SS.MSOF')," \
	"	e.name || ' #' || e.seq, e.kind, 'epoch ' || e.epoch," \
	"	'holder ' || to_json(e.holder), 'by ' || to_json(e.actor), e.detail)")

#define JSON_QUERY EVENTS_QUERY("row_to_json(e)::text")

/*
 * help prints what --help is to say.
 */
static void
help(void)
{
	printf("%s watch prints events of leases as they come, each exactly once.\n\n", progname);
	printf("Usage:\n  %s watch [OPTION]... [NAME]...\n\n", progname);
	printf("Without a NAME, all leases are watched.\n");
	printf("\nOptions:\n");
	printf("  -i, --interval=INTERVAL  look every INTERVAL (1s), and when notified\n");
	printf("  -j, --json               a JSON object for each event, on a line of its own\n");
	printf("      --since=SEQ          go on after event number SEQ of the one NAME; 0, also\n");
	printf("                           without a NAME: from the beginning\n");
	printf("      --since=NAME=SEQ     go on after that event; may be repeated\n");
	printf("      --since={\"NAME\": SEQ, ...}\n");
	printf("                           the same for several leases\n");
	printf("  -?, --help               show this help, then exit\n");
	options_connect_help();
	printf("\nWithout --since, only new events are printed; with it, a lease that it does not\n");
	printf("name is read from its beginning.\n");
	printf("\nExit code: 0 when interrupted; 64: usage; 69: no connection at the beginning;\n");
	printf("70: error of the server.\n");
}

/*
 * find_position returns where a lease is, or would be, in sorted positions.
 */
static int
find_position(const Positions *positions, const char *name)
{
	int			low = 0;
	int			high = positions->count;

	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (strcmp(positions->items[middle].name, name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/*
 * is_at tells whether the lease stands at that place.
 */
static bool
is_at(const Positions *positions, int place, const char *name)
{
	return place < positions->count && strcmp(positions->items[place].name, name) == 0;
}

/*
 * set_position notes up to where the events of a lease are known.
 */
static void
set_position(Positions *positions, const char *name, int64 seq)
{
	int			place = find_position(positions, name);

	if (!is_at(positions, place, name))
	{
		if (positions->count == positions->allocated)
		{
			positions->allocated = Max(64, 2 * positions->allocated);
			positions->items = pg_realloc(positions->items,
										  positions->allocated * sizeof(Position));
		}
		memmove(positions->items + place + 1, positions->items + place,
				(positions->count - place) * sizeof(Position));
		positions->items[place].name = pg_strdup(name);
		positions->count++;
	}
	positions->items[place].seq = seq;
}

/*
 * get_position returns up to where the events of a lease are known; 0 if none is.
 */
static int64
get_position(const Positions *positions, const char *name)
{
	int			place = find_position(positions, name);

	return is_at(positions, place, name) ? positions->items[place].seq : 0;
}

/*
 * format_positions appends the positions as the argument of lease.watch().
 */
static void
format_positions(PQExpBuffer buffer, const Positions *positions)
{
	appendPQExpBufferChar(buffer, '{');
	for (int i = 0; i < positions->count; i++)
	{
		if (i > 0)
			appendPQExpBufferChar(buffer, ',');
		text_append_json(buffer, positions->items[i].name);
		appendPQExpBuffer(buffer, ":" INT64_FORMAT, positions->items[i].seq);
	}
	appendPQExpBufferChar(buffer, '}');
	if (PQExpBufferBroken(buffer))
		pg_fatal("out of memory");
}

/*
 * is_wanted tells whether a lease is one of those that were asked for.
 */
static bool
is_wanted(const Watch *watch, const char *name)
{
	for (int i = 0; i < watch->name_count; i++)
	{
		if (strcmp(watch->names[i], name) == 0)
			return true;
	}
	return watch->name_count == 0;
}

/*
 * read_since reads one --since.
 */
static void
read_since(Watch *watch, char *text)
{
	char	   *equals = strrchr(text, '=');

	watch->has_since = true;
	if (text[0] == '{')
		watch->since_map = text;

	else if (equals == NULL)
	{
		options_count("watch", text, "number of an event", 0);
		watch->since_number = text;
	}
	else
	{
		*equals = '\0';
		set_position(&watch->since, text,
					 options_count("watch", equals + 1, "number of an event", 0));
	}
}

/*
 * apply_since_number gives a number without a name to the one lease that it is for.
 */
static void
apply_since_number(Watch *watch)
{
	int64		seq;

	if (watch->since_number == NULL)
		return;
	seq = options_count("watch", watch->since_number, "number of an event", 0);
	if (watch->name_count == 1)
		set_position(&watch->since, watch->names[0], seq);
	else if (seq != 0)
		options_usage_error("watch", "--since=%s needs the name of one lease: write --since=NAME=%s",
							watch->since_number, watch->since_number);
}

/*
 * read_options reads the command line; the session gets what is for it.
 */
static Watch
read_options(int argc, char *argv[], Session *session)
{
	static const struct option long_options[] = {
		CONNECT_LONG_OPTIONS,
		{"interval", required_argument, NULL, 'i'},
		{"json", no_argument, NULL, 'j'},
		{"since", required_argument, NULL, OPTION_SINCE},
		{NULL, 0, NULL, 0}
	};
	Watch		watch = {.interval = DEFAULT_INTERVAL};
	int			c;

	while ((c = options_next("watch", argc, argv, CONNECT_SHORT_OPTIONS "i:j",
							 long_options, &session->options)) != -1)
	{
		if (c == 'i')
			watch.interval = options_duration("watch", optarg, "--interval");
		else if (c == 'j')
			watch.json = session->json = true;
		else if (c == OPTION_SINCE)
			read_since(&watch, optarg);
	}
	if (watch.interval < SHORTEST_INTERVAL)
		options_usage_error("watch", "the interval must be at least 10ms");
	watch.names = argv + optind;
	watch.name_count = argc - optind;
	watch.name_list = text_json_list(watch.names, watch.name_count);
	apply_since_number(&watch);
	return watch;
}

/*
 * listen_to_events asks for notifications.  A standby refuses that, and needs none.
 */
static void
listen_to_events(Session *session)
{
	PGresult   *result;

	if (session_ask(session, &result, "LISTEN lease", 0, NULL))
		PQclear(result);
}

/*
 * insist reads, however often the connection is lost.
 */
static PGresult *
insist(Session *session, const char *sql, int count, const char *const values[])
{
	PGresult   *result;

	while (!follow_read(session, &result, sql, count, values))
		follow_reconnect(session);
	return result;
}

/*
 * read_since_map adds what a --since in JSON says; the server reads it.
 */
static void
read_since_map(Watch *watch, Session *session)
{
	PGresult   *result;
	const char *values[] = {watch->since_map};

	if (watch->since_map == NULL)
		return;
	if (session_read(session, &result, SINCE_QUERY, 1, values) &&
		session_is_of_class(result, "22"))
		options_usage_error("watch", "--since is not valid JSON: %s", watch->since_map);
	session_check(session, result);
	for (int row = 0; row < PQntuples(result); row++)
		set_position(&watch->since, PQgetvalue(result, row, 0),
					 options_count("watch", PQgetvalue(result, row, 1), "number of an event", 0));
	PQclear(result);
}

/*
 * read_positions returns where histories end, from the answer to POSITIONS_QUERY.
 */
static Positions
read_positions(PGresult *result)
{
	Positions	ends = {0};

	for (int row = 0; row < PQntuples(result); row++)
		set_position(&ends, PQgetvalue(result, row, 0),
					 strtoll(PQgetvalue(result, row, 1), NULL, 10));
	PQclear(result);
	return ends;
}

/*
 * free_positions frees them.
 */
static void
free_positions(Positions *positions)
{
	for (int i = 0; i < positions->count; i++)
		pg_free(positions->items[i].name);
	pg_free(positions->items);
}

/*
 * go_back lets a history that ends before what is known of it be read on from its end,
 * with a warning.
 */
static void
go_back(Watch *watch, const Positions *ends)
{
	for (int i = 0; i < watch->positions.count; i++)
	{
		Position   *position = &watch->positions.items[i];
		int64		end = get_position(ends, position->name);

		if (end >= position->seq)
			continue;
		if (is_wanted(watch, position->name))
		{
			pg_log_warning("the history of lease \"%s\" ends at number " INT64_FORMAT ", but was known up to number " INT64_FORMAT,
						   position->name, end, position->seq);
			pg_log_warning_detail("This is another branch of the database's history, or a standby that is behind; events may be missing here, or come twice.");
		}
		position->seq = end;
	}
}

/*
 * find_beginning determines what counts as known at the beginning: of the leases
 * that are wanted, what --since says, if there was one; else everything.
 */
static void
find_beginning(Watch *watch, Session *session)
{
	Positions	ends = read_positions(insist(session, POSITIONS_QUERY, 0, NULL));

	for (int i = 0; i < ends.count; i++)
	{
		if (!watch->has_since || !is_wanted(watch, ends.items[i].name))
			set_position(&watch->positions, ends.items[i].name, ends.items[i].seq);
	}
	for (int i = 0; i < watch->name_count; i++)
	{
		if (get_position(&ends, watch->names[i]) == 0)
			pg_log_warning("there is no lease \"%s\" yet", watch->names[i]);
	}
	for (int i = 0; i < watch->since.count; i++)
	{
		if (is_wanted(watch, watch->since.items[i].name))
			set_position(&watch->positions, watch->since.items[i].name, watch->since.items[i].seq);
	}
	go_back(watch, &ends);
	free_positions(&ends);
}

/*
 * check_positions looks whether a history has become shorter than it was.
 */
static void
check_positions(Watch *watch, Session *session)
{
	PGresult   *result;
	Positions	ends;

	if (!follow_read(session, &result, POSITIONS_QUERY, 0, NULL))
		return;
	ends = read_positions(result);
	go_back(watch, &ends);
	free_positions(&ends);
}

/*
 * print_events prints events that are wanted, and notes that they are known.
 */
static void
print_events(Watch *watch, const PGresult *events)
{
	follow_begin_output();
	for (int row = 0; row < PQntuples(events); row++)
	{
		set_position(&watch->positions, PQgetvalue(events, row, 0),
					 strtoll(PQgetvalue(events, row, 1), NULL, 10));
		if (PQgetisnull(events, row, 2))
			continue;
		text_print(PQgetvalue(events, row, 2));
		putchar('\n');
		text_flush();
	}
	follow_end_output();
}

/*
 * look prints the events that have come, if the connection is there.
 */
static void
look(Watch *watch, Session *session)
{
	PQExpBufferData since;
	const char *values[2];
	PGresult   *events;

	initPQExpBuffer(&since);
	format_positions(&since, &watch->positions);
	values[0] = since.data;
	values[1] = watch->name_list;
	if (follow_read(session, &events, watch->json ? JSON_QUERY : LINES_QUERY,
					lengthof(values), values))
	{
		print_events(watch, events);
		PQclear(events);
	}
	termPQExpBuffer(&since);
}

/*
 * watch_main runs "pg_lease watch".
 */
int
watch_main(int argc, char *argv[])
{
	Session		session = {0};
	Watch		watch;

	if (options_want_help(argc, argv))
	{
		help();
		return 0;
	}
	watch = read_options(argc, argv, &session);

	follow_start(&session);
	listen_to_events(&session);
	read_since_map(&watch, &session);
	find_beginning(&watch, &session);
	for (;;)
	{
		if (session.conn == NULL)
		{
			follow_reconnect(&session);
			listen_to_events(&session);
			check_positions(&watch, &session);
		}
		look(&watch, &session);
		follow_wait(&session, session.conn != NULL ? watch.interval : 0);
	}
}
