/*-------------------------------------------------------------------------
 *
 * latest.h
 *	  Statements under the latest snapshot.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_LATEST_H
#define LEASE_LATEST_H

#include "lease.h"

#include "executor/spi.h"

/* The longest list of parameters of a statement */
#define LATEST_PARAMETERS_MAX	8

/*
 * A statement and, once it has been executed, its plan.  PostgreSQL makes that anew
 * when the table is no longer the same.
 */
typedef struct LatestStatement
{
	const char *table;			/* of our schema, that it is about */
	const char *text;
	int			parameters;
	Oid			types[LATEST_PARAMETERS_MAX];
	SPIPlanPtr	plan;
} LatestStatement;

extern Datum latest_execute(LatestStatement *statement, Datum *values,
							const char *nulls);

#endif							/* LEASE_LATEST_H */
