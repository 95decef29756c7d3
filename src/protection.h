/*-------------------------------------------------------------------------
 *
 * protection.h
 *	  How tables are protected, as the catalogs say.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_PROTECTION_H
#define LEASE_PROTECTION_H

#include "lease.h"

#include "access/htup.h"
#include "catalog/pg_trigger.h"
#include "fence.h"
#include "nodes/pg_list.h"
#include "utils/rel.h"

/* The fence of one table. */
typedef struct Protection
{
	int			events;			/* of a row, that ask before they are admitted */
	bool		own;			/* do some come from no partitioned table? */
	List	   *truncate;		/* FenceArguments of what asks at TRUNCATE */
	bool		always;			/* does some row trigger fire always? */
	FenceArguments arguments;	/* of the row triggers, or else of that one */
	List	   *binding;		/* FenceArguments of all that bind this
								 * session */
} Protection;

extern bool protection_read_trigger(HeapTuple tuple, Relation pg_trigger,
									FenceArguments *arguments);
extern bool protection_binds(const FormData_pg_trigger *trigger);
extern void protection_read(Oid table, Protection *protection);
extern bool protection_exists(const Protection *protection);
extern bool protection_is_complete(const Protection *protection);
extern bool protection_at_truncate(const Protection *protection,
								   const char *lease);
extern bool protection_is_same(const FenceArguments *a,
							   const FenceArguments *b);
extern bool protection_is_temporary(Oid table);
extern char *protection_find_table(const char *lease);
extern void protection_set_name(Datum *values, bool *nulls, int n,
								const char *name);

#endif							/* LEASE_PROTECTION_H */
