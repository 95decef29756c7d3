/*-------------------------------------------------------------------------
 *
 * table.c
 *	  Results of queries as tables.
 *
 * They are printed as psql prints them, by the same code, which also makes
 * control characters visible.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/bin/table.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "fe_utils/print.h"
#include "table.h"
#include "text.h"

/* Values of printTableOpt.expanded */
#define EXPANDED_ALWAYS		1
#define EXPANDED_IF_WIDE	2	/* than the terminal, if it is one */

/*
 * table_print prints all columns of a result.
 */
void
table_print(const Session *session, const PGresult *result, bool expanded)
{
	printQueryOpt options;
	const bool	is_pager = false;

	memset(&options, 0, sizeof(options));
	options.topt.format = PRINT_ALIGNED;
	options.topt.expanded = expanded ? EXPANDED_ALWAYS : EXPANDED_IF_WIDE;
	options.topt.border = 1;
	options.topt.start_table = true;
	options.topt.stop_table = true;
	options.topt.encoding = PQclientEncoding(session->conn);
	printQuery(result, &options, stdout, is_pager, NULL);
}

/*
 * table_print_lines prints one column, a line for each row; for JSON.
 */
void
table_print_lines(const PGresult *result, int column)
{
	for (int row = 0; row < PQntuples(result); row++)
	{
		if (PQgetisnull(result, row, column))
			continue;
		text_print(PQgetvalue(result, row, column));
		putchar('\n');
	}
}
