/*-------------------------------------------------------------------------
 *
 * aftermath.h
 *	  What is done when a change of leases has been committed.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_AFTERMATH_H
#define LEASE_AFTERMATH_H

#include "lease.h"

extern void aftermath_wake(const char *name);
extern void aftermath_supersede(const char *name, int64 present, bool evicts);
extern bool aftermath_has_superseded(const char *name);
extern void aftermath_commit(void);
extern void aftermath_end_subtransaction(SubTransactionId subid,
										 SubTransactionId parent_subid,
										 bool committed);
extern void aftermath_forget(void);

#endif							/* LEASE_AFTERMATH_H */
