/*-------------------------------------------------------------------------
 *
 * durability.h
 *	  How durably the present transaction has to commit.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_DURABILITY_H
#define LEASE_DURABILITY_H

#include "lease.h"

extern void durability_require(void);
extern void durability_before_renewal(void);
extern void durability_after_renewal(bool renewed, bool async);
extern void durability_pre_commit(void);
extern void durability_forget(void);

#endif							/* LEASE_DURABILITY_H */
