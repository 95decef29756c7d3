/*-------------------------------------------------------------------------
 *
 * admin.c
 *	  pg_lease release, revoke and handover: ending a grant by hand.
 *
 * Each is one call, in a transaction of its own.  Nothing is tried again: if the
 * connection is lost on the way, only whoever asked knows whether to ask again.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/bin/admin.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "common/logging.h"
#include "session.h"
#include "text.h"

/* Long options that have no letter */
enum
{
	OPTION_SUCCESSOR = 1000,
	OPTION_RESERVE,
	OPTION_REASON
};

/* What the command lines ask for; the texts are parameters of the calls */
typedef struct ReleaseOptions
{
	const char *name;
	const char *epoch;
	const char *successor;
	const char *reserve;
} ReleaseOptions;

typedef struct RevokeOptions
{
	const char *name;
	const char *reason;
} RevokeOptions;

typedef struct HandoverOptions
{
	const char *name;
	const char *successor;
	const char *reason;
} HandoverOptions;

/*
 * help_release prints what --help is to say.
 */
static void
help_release(void)
{
	printf("%s release gives back a lease, for a holder that cannot do so itself.\n\n", progname);
	printf("Usage:\n  %s release [OPTION]... NAME EPOCH\n\n", progname);
	printf("A grant of another epoch is left alone.\n");
	printf("\nOptions:\n");
	printf("      --successor=HOLDER   reserve the lease for that holder\n");
	printf("      --reserve=DURATION   for so long (the lease's ttl)\n");
	printf("  -?, --help               show this help, then exit\n");
	options_connect_help();
	printf("\nExit code: 0 if it was released; 1 if there was no live grant of that epoch;\n");
	printf("64: usage; 69: no connection; 70: error of the server.\n");
}

/*
 * help_revoke does so, too.
 */
static void
help_revoke(void)
{
	printf("%s revoke takes back a lease at once, whoever holds it.\n\n", progname);
	printf("Usage:\n  %s revoke [OPTION]... NAME\n\n", progname);
	printf("What its holder still does on protected tables is refused from now on.  It may\n");
	printf("acquire again like anybody else.\n");
	printf("\nOptions:\n");
	printf("      --reason=TEXT        why; shown in status and history\n");
	printf("  -?, --help               show this help, then exit\n");
	options_connect_help();
	printf("\nExit code: 0 if it was revoked; 1 if there was nothing to revoke, or no such\n");
	printf("lease; 64: usage; 69: no connection; 70: error of the server.\n");
}

/*
 * help_handover does so, too.
 */
static void
help_handover(void)
{
	printf("%s handover asks the holder of a lease to step down.\n\n", progname);
	printf("Usage:\n  %s handover [OPTION]... NAME\n\n", progname);
	printf("The holder is told at its next renewal, stops its work, and releases the lease.\n");
	printf("\nOptions:\n");
	printf("      --successor=HOLDER   in favour of that holder, for whom the lease is then\n");
	printf("                           reserved\n");
	printf("      --reason=TEXT        why; shown in status and history\n");
	printf("  -?, --help               show this help, then exit\n");
	options_connect_help();
	printf("\nExit code: 0 if it was asked; 1 if nobody holds the lease, or there is none; 64:\n");
	printf("usage; 69: no connection; 70: error of the server.\n");
}

/*
 * call executes a statement that returns one value.
 */
static PGresult *
call(Session *session, const char *sql, int count, const char *const values[])
{
	PGresult   *result;

	session_open(session);
	if (!session_ask(session, &result, sql, count, values))
	{
		pg_log_error("connection lost: %s", session->error);
		pg_log_error_hint("Whether this was carried out, \"%s history\" tells.", progname);
		exit(EXIT_CONNECTION);
	}
	session_check(session, result);
	return result;
}

/*
 * tell_epoch tells what has come of a call that returns the epoch that it was about, or
 * null if there was none; it ends the session, and returns the exit code.
 */
static int
tell_epoch(Session *session, PGresult *result, const char *name,
		   const char *before, const char *after, const char *none)
{
	bool		done = !PQgetisnull(result, 0, 0);

	text_print(name);
	if (done)
		printf(": %s%s%s\n", before, PQgetvalue(result, 0, 0), after);
	else
		printf(": %s\n", none);
	text_flush();
	PQclear(result);
	session_close(session);
	return done ? 0 : EXIT_ANSWER_NO;
}

/*
 * read_release_options reads the command line; the session gets what is for it.
 */
static ReleaseOptions
read_release_options(int argc, char *argv[], Session *session)
{
	static const struct option long_options[] = {
		CONNECT_LONG_OPTIONS,
		{"successor", required_argument, NULL, OPTION_SUCCESSOR},
		{"reserve", required_argument, NULL, OPTION_RESERVE},
		{NULL, 0, NULL, 0}
	};
	ReleaseOptions options = {0};
	int			c;

	while ((c = options_next("release", argc, argv, CONNECT_SHORT_OPTIONS,
							 long_options, &session->options)) != -1)
	{
		if (c == OPTION_SUCCESSOR)
			options.successor = optarg;
		else if (c == OPTION_RESERVE)
			options.reserve = psprintf(INT64_FORMAT " microseconds",
									   options_duration("release", optarg, "--reserve"));
	}
	if (argc - optind != 2)
		options_usage_error("release", "the name of a lease and an epoch must be given");
	if (options.reserve != NULL && options.successor == NULL)
		options_usage_error("release", "--reserve needs --successor");
	options.name = argv[optind];
	options.epoch = psprintf(INT64_FORMAT, options_count("release", argv[optind + 1], "epoch", 1));
	return options;
}

/*
 * release_main runs "pg_lease release".
 */
int
release_main(int argc, char *argv[])
{
	Session		session = {0};
	ReleaseOptions options;
	const char *values[4];
	PGresult   *result;
	bool		released;

	if (options_want_help(argc, argv))
	{
		help_release();
		return 0;
	}
	options = read_release_options(argc, argv, &session);
	values[0] = options.name;
	values[1] = options.epoch;
	values[2] = options.successor;
	values[3] = options.reserve;

	result = call(&session, "SELECT lease.release($1, $2, $3, $4)",
				  lengthof(values), values);
	released = strcmp(PQgetvalue(result, 0, 0), "t") == 0;
	text_print(options.name);
	printf(released ? ": epoch %s released\n" : ": epoch %s is not held, nothing was changed\n",
		   options.epoch);
	text_flush();
	PQclear(result);
	session_close(&session);
	return released ? 0 : EXIT_ANSWER_NO;
}

/*
 * read_revoke_options reads the command line; the session gets what is for it.
 */
static RevokeOptions
read_revoke_options(int argc, char *argv[], Session *session)
{
	static const struct option long_options[] = {
		CONNECT_LONG_OPTIONS,
		{"reason", required_argument, NULL, OPTION_REASON},
		{NULL, 0, NULL, 0}
	};
	RevokeOptions options = {0};
	int			c;

	while ((c = options_next("revoke", argc, argv, CONNECT_SHORT_OPTIONS,
							 long_options, &session->options)) != -1)
	{
		if (c == OPTION_REASON)
			options.reason = optarg;
	}
	if (argc - optind != 1)
		options_usage_error("revoke", "the name of one lease must be given");
	options.name = argv[optind];
	return options;
}

/*
 * revoke_main runs "pg_lease revoke".
 */
int
revoke_main(int argc, char *argv[])
{
	Session		session = {0};
	RevokeOptions options;
	const char *values[2];
	PGresult   *result;

	if (options_want_help(argc, argv))
	{
		help_revoke();
		return 0;
	}
	options = read_revoke_options(argc, argv, &session);
	values[0] = options.name;
	values[1] = options.reason;

	result = call(&session, "SELECT lease.revoke($1, $2)",
				  lengthof(values), values);
	return tell_epoch(&session, result, options.name,
					  "epoch ", " revoked", "there is nothing to revoke");
}

/*
 * read_handover_options reads the command line; the session gets what is for it.
 */
static HandoverOptions
read_handover_options(int argc, char *argv[], Session *session)
{
	static const struct option long_options[] = {
		CONNECT_LONG_OPTIONS,
		{"successor", required_argument, NULL, OPTION_SUCCESSOR},
		{"reason", required_argument, NULL, OPTION_REASON},
		{NULL, 0, NULL, 0}
	};
	HandoverOptions options = {0};
	int			c;

	while ((c = options_next("handover", argc, argv, CONNECT_SHORT_OPTIONS,
							 long_options, &session->options)) != -1)
	{
		if (c == OPTION_SUCCESSOR)
			options.successor = optarg;
		else if (c == OPTION_REASON)
			options.reason = optarg;
	}
	if (argc - optind != 1)
		options_usage_error("handover", "the name of one lease must be given");
	options.name = argv[optind];
	return options;
}

/*
 * handover_main runs "pg_lease handover".
 */
int
handover_main(int argc, char *argv[])
{
	Session		session = {0};
	HandoverOptions options;
	const char *values[3];
	PGresult   *result;

	if (options_want_help(argc, argv))
	{
		help_handover();
		return 0;
	}
	options = read_handover_options(argc, argv, &session);
	values[0] = options.name;
	values[1] = options.successor;
	values[2] = options.reason;

	result = call(&session, "SELECT lease.request_handover($1, $2, $3)",
				  lengthof(values), values);
	return tell_epoch(&session, result, options.name,
					  "the holder of epoch ", " was asked to step down",
					  "nobody holds it");
}
