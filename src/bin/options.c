/*-------------------------------------------------------------------------
 *
 * options.c
 *	  What the subcommands of pg_lease read alike from the command line.
 *
 * Whatever is wrong with a command line ends the program with EXIT_USAGE before
 * it has connected to anything.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/bin/options.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <math.h>

#include "common/logging.h"
#include "common/string.h"
#include "options.h"

/* No duration is longer: 100 years, which is what the server accepts. */
#define DURATION_MAX (36525.0 * 86400.0 * 1e6)

/* Units of durations, in microseconds, as PostgreSQL's settings write them */
typedef struct DurationUnit
{
	const char *name;
	double		microseconds;
} DurationUnit;

static const DurationUnit duration_units[] = {
	{"", 1e6},
	{"us", 1},
	{"ms", 1e3},
	{"s", 1e6},
	{"min", 60e6},
	{"h", 3600e6},
	{"d", 86400e6}
};

/*
 * options_connect takes one option, as getopt_long returned it, if it is one of
 * those for the connection, and tells whether it was.
 */
bool
options_connect(ConnectOptions *options, int c, const char *argument)
{
	switch (c)
	{
		case 'd':
			options->dbname = argument;
			return true;
		case 'h':
			options->host = argument;
			return true;
		case 'p':
			options->port = argument;
			return true;
		case 'U':
			options->user = argument;
			return true;
		case 'w':
			options->prompt_password = -1;
			return true;
		case 'W':
			options->prompt_password = 1;
			return true;
		default:
			return false;
	}
}

/*
 * options_next returns the next option of a subcommand that is none of those for the
 * connection, which it takes itself; -1 if there is none.  What is no option at all
 * ends the program.
 */
int
options_next(const char *subcommand, int argc, char *argv[],
			 const char *short_options, const struct option *long_options,
			 ConnectOptions *connect)
{
	int			c;

	while ((c = getopt_long(argc, argv, short_options, long_options, NULL)) != -1)
	{
		if (c == '?')
			options_unrecognized(subcommand);
		if (!options_connect(connect, c, optarg))
			break;
	}
	return c;
}

/*
 * options_connect_help prints the part of --help about these options.
 */
void
options_connect_help(void)
{
	printf("\nConnection options:\n");
	printf("  -d, --dbname=DBNAME      database, connection string or URI\n");
	printf("  -h, --host=HOSTNAME      database server host or socket directory\n");
	printf("  -p, --port=PORT          database server port\n");
	printf("  -U, --username=USERNAME  user name to connect as\n");
	printf("  -w, --no-password        never prompt for password\n");
	printf("  -W, --password           force password prompt\n");
}

/*
 * options_prompt_password asks for the password at the terminal.
 */
void
options_prompt_password(ConnectOptions *options)
{
	free(options->password);
	options->password = simple_prompt("Password: ", false);
}

/*
 * options_keywords fills the arrays that PQconnectdbParams and PQconnectStartParams
 * take, with expand_dbname; there must be room for OPTIONS_KEYWORDS_MAX entries.
 *
 * The database comes last but for the password, so that what a connection string
 * says prevails over the other options, as it does in psql.
 */
void
options_keywords(const ConnectOptions *options,
				 const char *keywords[], const char *values[])
{
	const char *entries[][2] = {
		{"host", options->host},
		{"port", options->port},
		{"user", options->user},
		{"dbname", options->dbname},
		{"password", options->password},
		{"fallback_application_name", "pg_lease"},
	};
	int			n = 0;

	StaticAssertStmt(lengthof(entries) < OPTIONS_KEYWORDS_MAX,
					 "an entry for the end must be left");
	for (size_t i = 0; i < lengthof(entries); i++)
	{
		if (entries[i][1] == NULL)
			continue;
		keywords[n] = entries[i][0];
		values[n++] = entries[i][1];
	}
	keywords[n] = NULL;
	values[n] = NULL;
}

/*
 * options_duration reads a duration, such as "15s", "500 ms", "1.5h" or a plain
 * number of seconds, and returns it in microseconds.
 */
int64
options_duration(const char *subcommand, const char *text, const char *option)
{
	size_t		length = strspn(text, "0123456789.");
	const char *unit = text +length;
	char	   *end;
	double		number;

	number = strtod(text, &end);
	if (length == 0 || end != unit)
		unit = "?";
	unit += strspn(unit, " ");
	for (size_t i = 0; i < lengthof(duration_units); i++)
	{
		if (strcmp(unit, duration_units[i].name) != 0)
			continue;
		number = rint(number * duration_units[i].microseconds);
		if (number > DURATION_MAX)
			options_usage_error(subcommand, "duration \"%s\" of %s is longer than 100 years",
								text, option);
		return (int64) number;
	}
	options_usage_error(subcommand, "\"%s\" of %s is not a duration, such as 15s, 500ms, 2min or 1h",
						text, option);
}

/*
 * options_count reads a whole number that is not smaller than the minimum, 0 or 1.
 */
int64
options_count(const char *subcommand, const char *text, const char *what, int64 minimum)
{
	size_t		length = strspn(text, "0123456789");
	int64		number;

	errno = 0;
	number = strtoll(text, NULL, 10);
	if (length == 0 || text[length] != '\0' || errno != 0 || number < minimum)
		options_usage_error(subcommand, "\"%s\" is not a valid %s, which is a whole number from " INT64_FORMAT " on",
							text, what, minimum);
	return number;
}

/*
 * options_want_help tells whether the first option asks for help.
 */
bool
options_want_help(int argc, char *argv[])
{
	return argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-?") == 0);
}

/*
 * options_unrecognized ends the program after getopt_long has said what is wrong.
 */
void
options_unrecognized(const char *subcommand)
{
	pg_log_error_hint("Try \"%s %s --help\" for more information.", progname, subcommand);
	exit(EXIT_USAGE);
}

/*
 * options_usage_error says what is wrong with the command line and ends the program.
 * subcommand is NULL if it is not known.
 */
void
options_usage_error(const char *subcommand, const char *format,...)
{
	va_list		arguments;

	va_start(arguments, format);
	pg_log_generic_v(PG_LOG_ERROR, PG_LOG_PRIMARY, format, arguments);
	va_end(arguments);
	pg_log_error_hint("Try \"%s%s%s --help\" for more information.", progname,
					  subcommand != NULL ? " " : "",
					  subcommand != NULL ? subcommand : "");
	exit(EXIT_USAGE);
}
