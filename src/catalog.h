/*-------------------------------------------------------------------------
 *
 * catalog.h
 *	  The relations and functions of the extension.
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
	Oid			event;			/* the table lease.event */
	Oid			epoch;			/* the sequences */
	Oid			origin;
	Oid			floor;
} Catalog;

/* OIDs of the functions that fences call */
typedef struct CatalogFunctions
{
	Oid			fence;			/* the trigger functions */
	Oid			stamp;
	Oid			refuses;		/* the conditions */
	Oid			refuses_stamp;
	Oid			refuses_older;
} CatalogFunctions;

extern void catalog_init(void);
extern bool catalog_get_functions(CatalogFunctions *functions);
extern void catalog_get(Catalog *relations);
extern Oid	catalog_lock_lease(LOCKMODE mode);
extern void catalog_unlock_lease(LOCKMODE mode);
extern void catalog_lock_events(LOCKMODE mode);
extern void catalog_unlock_events(LOCKMODE mode);
pg_noreturn extern void catalog_raise_version(void);
extern Oid	catalog_lock_member(const char *name, LOCKMODE mode);

#endif							/* LEASE_CATALOG_H */
