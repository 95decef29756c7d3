/*-------------------------------------------------------------------------
 *
 * await.h
 *	  Waiting in line for a lease.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_AWAIT_H
#define LEASE_AWAIT_H

#include "lease.h"

extern void await_wake(const char *name);

#endif							/* LEASE_AWAIT_H */
