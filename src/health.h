/*-------------------------------------------------------------------------
 *
 * health.h
 *	  Progress of holders and heartbeats of peers.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_HEALTH_H
#define LEASE_HEALTH_H

#include "lease.h"

extern void health_forget(const char *name, int64 epoch);

#endif							/* LEASE_HEALTH_H */
