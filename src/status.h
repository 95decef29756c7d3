/*-------------------------------------------------------------------------
 *
 * status.h
 *	  The words that views use for how a lease stands.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_STATUS_H
#define LEASE_STATUS_H

#include "lease.h"

#include "authority.h"

extern const char *status_phase_name(Phase phase);

#endif							/* LEASE_STATUS_H */
