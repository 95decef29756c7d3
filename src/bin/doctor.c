/*-------------------------------------------------------------------------
 *
 * doctor.c
 *	  pg_lease doctor: what gets past fences, and what mends it.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/bin/doctor.c
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
	OPTION_SEVERITY = 1000
};

/* What the command line asks for */
typedef struct DoctorOptions
{
	const char *severity;		/* the least one that is shown */
	bool		count_notices;	/* whether the exit code tells of them, too */
	bool		json;
} DoctorOptions;

/* Columns of the query */
enum
{
	Finding_severity,
	Finding_object,
	Finding_meaning,
	Finding_remedy,
	Finding_json
};

#define FINDINGS_QUERY \
	"SELECT f.severity, f.object, f.meaning, f.remedy, row_to_json(f) FROM lease.doctor() AS f " \
	"WHERE array_position('{error,warning,notice}', f.severity)" \
	"	<= array_position('{error,warning,notice}', $1)"

/* Texts begin here, below the severity. */
#define INDENT 10

/*
 * help prints what --help is to say.
 */
static void
help(void)
{
	printf("%s doctor tells what gets past fences, and what is wrong with clocks and\n", progname);
	printf("storage, with the statements that mend it.\n\n");
	printf("Usage:\n  %s doctor [OPTION]...\n", progname);
	printf("\nOptions:\n");
	printf("  -j, --json               a JSON object for each finding, on a line of its own\n");
	printf("      --severity=SEVERITY  only findings from there on: error, warning or notice\n");
	printf("                           (the default, but then notices do not count below)\n");
	printf("  -?, --help               show this help, then exit\n");
	options_connect_help();
	printf("\nExit code: 0 if nothing was found; 1 if something was; 64: usage; 69: no\n");
	printf("connection; 70: error of the server.\n");
}

/*
 * read_options reads the command line; the session gets what is for it.
 */
static DoctorOptions
read_options(int argc, char *argv[], Session *session)
{
	static const struct option long_options[] = {
		CONNECT_LONG_OPTIONS,
		{"json", no_argument, NULL, 'j'},
		{"severity", required_argument, NULL, OPTION_SEVERITY},
		{NULL, 0, NULL, 0}
	};
	DoctorOptions options = {.severity = "notice"};
	int			c;

	while ((c = options_next("doctor", argc, argv, CONNECT_SHORT_OPTIONS "j",
							 long_options, &session->options)) != -1)
	{
		if (c == 'j')
			options.json = session->json = true;
		else if (c == OPTION_SEVERITY)
		{
			options.severity = optarg;
			options.count_notices = true;
		}
	}
	if (optind < argc)
		options_usage_error("doctor", "unexpected argument \"%s\"", argv[optind]);
	if (strcmp(options.severity, "error") != 0 && strcmp(options.severity, "warning") != 0 &&
		strcmp(options.severity, "notice") != 0)
		options_usage_error("doctor", "unrecognized severity \"%s\"", options.severity);
	return options;
}

/*
 * print_indented prints a text of one or more lines, each below the first.
 */
static void
print_indented(const char *label, const char *text)
{
	char	   *lines = pg_strdup(text);

	for (char *line = strtok(lines, "\n"); line != NULL; line = strtok(NULL, "\n"))
	{
		printf("%*s%s", INDENT, "", label);
		text_print(line);
		putchar('\n');
	}
	pg_free(lines);
}

/*
 * print_findings prints findings for people.
 */
static void
print_findings(const PGresult *findings)
{
	for (int row = 0; row < PQntuples(findings); row++)
	{
		printf("%-*s", INDENT, PQgetvalue(findings, row, Finding_severity));
		text_print(PQgetvalue(findings, row, Finding_object));
		putchar('\n');
		print_indented("", PQgetvalue(findings, row, Finding_meaning));
		print_indented("  ", PQgetvalue(findings, row, Finding_remedy));
		putchar('\n');
	}
	if (PQntuples(findings) == 0)
		printf("Nothing was found.\n");
	else
		printf("%d finding%s\n", PQntuples(findings), PQntuples(findings) == 1 ? "" : "s");
}

/*
 * count_findings counts those on which the exit code depends: all that were asked for, but
 * not notices, of which every cluster has some, unless a severity was given.
 */
static int
count_findings(const PGresult *findings, bool count_notices)
{
	int			count = 0;

	for (int row = 0; row < PQntuples(findings); row++)
	{
		if (count_notices ||
			strcmp(PQgetvalue(findings, row, Finding_severity), "notice") != 0)
			count++;
	}
	return count;
}

/*
 * doctor_main runs "pg_lease doctor".
 */
int
doctor_main(int argc, char *argv[])
{
	Session		session = {0};
	DoctorOptions options;
	PGresult   *findings;
	int			count;

	if (options_want_help(argc, argv))
	{
		help();
		return 0;
	}
	options = read_options(argc, argv, &session);

	session_open(&session);
	session_read(&session, &findings, FINDINGS_QUERY, 1, &options.severity);
	session_check(&session, findings);
	count = count_findings(findings, options.count_notices);
	if (options.json)
		table_print_lines(findings, Finding_json);
	else
		print_findings(findings);
	text_flush();
	PQclear(findings);
	session_close(&session);
	return count == 0 ? 0 : EXIT_ANSWER_NO;
}
