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
extern void ddl_end_transaction(void);
extern void ddl_end_subtransaction(SubTransactionId subid,
								   SubTransactionId parent_subid,
								   bool committed);

#endif							/* LEASE_DDL_H */
