/*-------------------------------------------------------------------------
 *
 * fence.h
 *	  Fences: their triggers' arguments, and the admission of what they guard.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_FENCE_H
#define LEASE_FENCE_H

#include "lease.h"

#include "nodes/execnodes.h"
#include "utils/reltrigger.h"

/* The arguments of a fence's triggers; see lease.protect(). */
typedef struct FenceArguments
{
	const char *lease;			/* protects the table as a whole */
	bool		ddl;			/* also its DROP, DETACH and ATTACH */
	const char *epoch_column;	/* whose values are tokens, or NULL */
	const char *lease_column;	/* names the lease of each row, or NULL */
} FenceArguments;

/* How many those can be */
#define FENCE_ARGS	4

/* What is to be admitted. */
typedef enum FenceAction
{
	FENCE_WRITE,
	FENCE_DDL
} FenceAction;

extern void fence_parse_arguments(const Trigger *trigger,
								  FenceArguments *arguments);
extern bool fence_set_arguments(FenceArguments *arguments, int nargs,
								const char *const *args);
extern void fence_settle(EState *estate);
extern bool fence_has_token(const char *lease);
extern void fence_admit(const char *lease, Oid table, FenceAction action);
extern void fence_present(const char *lease, Oid table, const char *column,
						  int64 epoch);
pg_noreturn extern void fence_raise_not_a_lease(Oid table, const char *name);

#endif							/* LEASE_FENCE_H */
