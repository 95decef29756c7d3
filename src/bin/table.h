/*-------------------------------------------------------------------------
 *
 * table.h
 *	  Results of queries as tables.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef TABLE_H
#define TABLE_H

#include "session.h"

extern void table_print(const Session *session, const PGresult *result, bool expanded);
extern void table_print_lines(const PGresult *result, int column);

#endif							/* TABLE_H */
