/*-------------------------------------------------------------------------
 *
 * catalog.h
 *	  The relations of the extension.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_CATALOG_H
#define LEASE_CATALOG_H

#include "lease.h"

#include "storage/lockdefs.h"

/* OIDs of the relations of the extension */
typedef struct Catalog
{
	Oid			lease;			/* the table lease.lease */
	Oid			epoch;			/* the sequences */
	Oid			origin;
} Catalog;

extern void catalog_init(void);
extern bool catalog_is_member(Oid class, Oid object);
extern void catalog_get(Catalog *relations);
extern Oid	catalog_lock_lease(LOCKMODE mode);
extern void catalog_unlock_lease(LOCKMODE mode);

#endif							/* LEASE_CATALOG_H */
