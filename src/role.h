/*-------------------------------------------------------------------------
 *
 * role.h
 *	  Who may do what with a lease.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_ROLE_H
#define LEASE_ROLE_H

#include "lease.h"

extern bool role_is_member(Oid user, Oid role);
extern bool role_administers(Oid user, Oid role);
extern void role_check_member(Oid user, Oid role, const char *name);
extern void role_check_administrator(Oid user, Oid role, const char *name);
extern void role_check_target(Oid user, Oid role);

#endif							/* LEASE_ROLE_H */
