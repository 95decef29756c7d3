/*-------------------------------------------------------------------------
 *
 * statement.h
 *	  The statement that is being executed.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_STATEMENT_H
#define LEASE_STATEMENT_H

#include "lease.h"

#include "nodes/plannodes.h"

extern void statement_init(void);
extern const PlannedStmt *statement_executing(void);

#endif							/* LEASE_STATEMENT_H */
