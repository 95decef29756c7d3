/*-------------------------------------------------------------------------
 *
 * digest.h
 *	  Digests of rows.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_DIGEST_H
#define LEASE_DIGEST_H

#include "lease.h"

#include "access/tupdesc.h"

extern Datum digest_row(Datum previous, TupleDesc desc, const Datum *values,
						const bool *nulls, AttrNumber digest_column);

#endif							/* LEASE_DIGEST_H */
