/*-------------------------------------------------------------------------
 *
 * definition.h
 *	  What is written on behalf of whoever may.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_DEFINITION_H
#define LEASE_DEFINITION_H

#include "lease.h"

extern Datum definition_execute(const char *table, const char *call, int count,
								Oid *types, Datum *values, const char *nulls);

#endif							/* LEASE_DEFINITION_H */
