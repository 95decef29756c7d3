/*-------------------------------------------------------------------------
 *
 * epoch.h
 *	  Epochs that survive rollback, crash, restore and failover.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_EPOCH_H
#define LEASE_EPOCH_H

#include "lease.h"

extern void epoch_settle(const char *name);
extern int64 epoch_draw(int64 above);
extern int64 epoch_raise(int64 floor);

#endif							/* LEASE_EPOCH_H */
