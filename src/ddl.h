/*-------------------------------------------------------------------------
 *
 * ddl.h
 *	  Fences against DDL.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_DDL_H
#define LEASE_DDL_H

#include "lease.h"

extern void ddl_init(void);
extern void ddl_forget_transaction(void);
extern char *ddl_find_fenced_table(const char *lease);

#endif							/* LEASE_DDL_H */
