/*-------------------------------------------------------------------------
 *
 * guard.h
 *	  Guards of the present transaction, and the transaction callback.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_GUARD_H
#define LEASE_GUARD_H

#include "lease.h"

extern void guard_init(void);
extern void guard_declare(const char *name, int64 epoch, Oid user);
extern bool guard_exists_any(void);
extern bool guard_exists(const char *name);
extern bool guard_exists_at(const char *name, int64 epoch);
extern bool guard_rely(const char *name, int64 epoch);
extern int64 guard_epoch(const char *name);
extern char *guard_describe_lease(const char *name, bool *exists);
extern uint64 guard_generation(void);
extern void guard_note_release(const char *name, int64 epoch);
extern void guard_note_change(void);
pg_noreturn extern void guard_raise_unknown(const char *name);

#endif							/* LEASE_GUARD_H */
