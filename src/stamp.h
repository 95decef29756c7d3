/*-------------------------------------------------------------------------
 *
 * stamp.h
 *	  Tokens that rows carry.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_STAMP_H
#define LEASE_STAMP_H

extern void stamp_init(void);

#endif							/* LEASE_STAMP_H */
