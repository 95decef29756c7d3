/*-------------------------------------------------------------------------
 *
 * catalog.c
 *	  The relations and functions of the extension.
 *
 * They are looked up by name, once in a session, and are only ours if they are
 * members of the extension.  The cache is kept true by invalidations, which
 * are processed when a lock is taken; so whoever opens lease.lease locks it
 * first and looks again if that told it that something has changed.  The other
 * relations are used only under a lock on that table, with which they come and
 * go.
 *
 * The functions are looked up without a lock: who asks holds one on a table
 * whose triggers depend on them.
 *
 * Locks: those on lease.lease and lease.event that the callers ask for.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/catalog.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#define LEASE_SCHEMA	"lease"

/*
 * Our relations, looked up once and forgotten when one of them or a schema
 * changes: DROP EXTENSION and a new CREATE EXTENSION may happen in between.
 */
static Catalog catalog;
static bool catalog_known = false;

/* The functions that fences call, in the same way. */
static CatalogFunctions fence_functions;
static bool functions_known = false;

/* Counts what may have made a look-up under way worthless. */
static uint64 invalidations = 0;

/*
 * forget_relation is called for invalidations of relcache entries.
 */
static void
forget_relation(Datum arg pg_attribute_unused(), Oid relid)
{
	if (!catalog_known ||
		!OidIsValid(relid) ||
		relid == catalog.lease ||
		relid == catalog.event ||
		relid == catalog.epoch ||
		relid == catalog.origin ||
		relid == catalog.floor)
	{
		catalog_known = false;
		invalidations++;
	}
}

/*
 * forget_schema is called when any schema was created, dropped or renamed.
 */
static void
forget_schema(Datum arg pg_attribute_unused(),
			  int cacheid pg_attribute_unused(),
			  uint32 hashvalue pg_attribute_unused())
{
	catalog_known = false;
	functions_known = false;
	invalidations++;
}

/*
 * forget_function is called when any function was created, changed or dropped.
 */
static void
forget_function(Datum arg pg_attribute_unused(),
				int cacheid pg_attribute_unused(),
				uint32 hashvalue pg_attribute_unused())
{
	functions_known = false;
	invalidations++;
}

/*
 * catalog_init registers the callbacks that keep the cache true.
 */
void
catalog_init(void)
{
	CacheRegisterRelcacheCallback(forget_relation, (Datum) 0);
	CacheRegisterSyscacheCallback(NAMESPACEOID, forget_schema, (Datum) 0);
	CacheRegisterSyscacheCallback(PROCOID, forget_function, (Datum) 0);
}

/*
 * find_member looks up a relation of the extension by name.
 *
 * The name alone proves nothing: after DROP EXTENSION anybody who may create a
 * schema can make relations of these names, with whatever in them.
 */
static Oid
find_member(Oid extension, const char *name, Oid schema)
{
	Oid			relid = get_relname_relid(name, schema);

	if (OidIsValid(relid) &&
		getExtensionOfObject(RelationRelationId, relid) != extension)
		return InvalidOid;
	return relid;
}

/*
 * find_relations looks up the relations of the extension and tells whether
 * they are all there.
 */
static bool
find_relations(Catalog *relations)
{
	Oid			extension = get_extension_oid("lease", true);
	Oid			schema = get_namespace_oid(LEASE_SCHEMA, true);

	if (!OidIsValid(extension) || !OidIsValid(schema))
		return false;
	relations->lease = find_member(extension, "lease", schema);
	relations->event = find_member(extension, "event", schema);
	relations->epoch = find_member(extension, "epoch", schema);
	relations->origin = find_member(extension, "origin", schema);
	relations->floor = find_member(extension, "epoch_floor", schema);
	return OidIsValid(relations->lease) &&
		OidIsValid(relations->event) &&
		OidIsValid(relations->epoch) &&
		OidIsValid(relations->origin) &&
		OidIsValid(relations->floor);
}

/*
 * raise_missing raises an error for relations that are not there.
 */
pg_noreturn static void
raise_missing(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("extension \"lease\" is not installed in this database"),
			 errdetail("Its tables are missing, so nothing can be decided about any lease."),
			 errhint("DROP EXTENSION in a transaction that is guarded by no lease, or run CREATE EXTENSION lease.")));
}

/*
 * catalog_get looks up the relations of the extension or raises an error: a
 * state that cannot be read is a refusal.
 */
void
catalog_get(Catalog *relations)
{
	uint64		before = invalidations;

	if (catalog_known)
	{
		*relations = catalog;
		return;
	}
	if (!find_relations(relations))
		raise_missing();

	/* What has changed while we looked must not be remembered. */
	if (invalidations == before)
	{
		catalog = *relations;
		catalog_known = true;
	}
}

/*
 * catalog_lock_lease locks lease.lease and tells which relation that is.  It
 * may have been dropped, and made again, since we looked it up; that becomes
 * known with the lock, and nothing more can happen to it then.
 */
Oid
catalog_lock_lease(LOCKMODE mode)
{
	Catalog		relations;

	for (;;)
	{
		Catalog		locked;

		catalog_get(&relations);
		LockRelationOid(relations.lease, mode);
		catalog_get(&locked);
		if (locked.lease == relations.lease)
			return relations.lease;
		UnlockRelationOid(relations.lease, mode);
	}
}

/*
 * catalog_unlock_lease gives that lock back.
 */
void
catalog_unlock_lease(LOCKMODE mode)
{
	Catalog		relations;

	catalog_get(&relations);
	UnlockRelationOid(relations.lease, mode);
}

/*
 * catalog_lock_events locks lease.event for a caller that has locked
 * lease.lease.
 */
void
catalog_lock_events(LOCKMODE mode)
{
	Catalog		relations;

	catalog_get(&relations);
	LockRelationOid(relations.event, mode);
}

/*
 * catalog_unlock_events gives that lock back.
 */
void
catalog_unlock_events(LOCKMODE mode)
{
	Catalog		relations;

	catalog_get(&relations);
	UnlockRelationOid(relations.event, mode);
}

/*
 * catalog_raise_version raises 55000: a table is not the one that this library
 * was built for.
 */
void
catalog_raise_version(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("extension \"lease\" and its library are of different versions"),
			 errhint("Run ALTER EXTENSION lease UPDATE, and reconnect.")));
}

/*
 * find_member_now looks up a relation of the extension, or returns an invalid OID.
 */
static Oid
find_member_now(const char *name)
{
	Oid			extension = get_extension_oid("lease", true);
	Oid			schema = get_namespace_oid(LEASE_SCHEMA, true);

	if (!OidIsValid(extension) || !OidIsValid(schema))
		return InvalidOid;
	return find_member(extension, name, schema);
}

/*
 * catalog_lock_member locks a relation of the extension that no decision
 * depends on, and which therefore is not among those that are remembered.
 */
Oid
catalog_lock_member(const char *name, LOCKMODE mode)
{
	for (;;)
	{
		Oid			relid = find_member_now(name);

		if (!OidIsValid(relid))
			raise_missing();
		LockRelationOid(relid, mode);
		if (find_member_now(name) == relid)
			return relid;
		UnlockRelationOid(relid, mode);
	}
}

/*
 * find_function looks up a function of the extension by name and argument
 * types.
 */
static Oid
find_function(Oid extension, Oid schema, const char *name, const Oid *types,
			  int count)
{
	Oid			function;

	function = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid,
							   CStringGetDatum(name),
							   PointerGetDatum(buildoidvector(types, count)),
							   ObjectIdGetDatum(schema));
	if (OidIsValid(function) &&
		getExtensionOfObject(ProcedureRelationId, function) != extension)
		return InvalidOid;
	return function;
}

/*
 * catalog_get_functions looks up the functions that fences call and tells
 * whether they are there.
 */
bool
catalog_get_functions(CatalogFunctions *functions)
{
	static const Oid types[] = {TEXTOID, REGCLASSOID, INT8OID};
	uint64		before = invalidations;
	Oid			extension;
	Oid			schema;

	if (functions_known)
	{
		*functions = fence_functions;
		return true;
	}
	extension = get_extension_oid("lease", true);
	schema = get_namespace_oid(LEASE_SCHEMA, true);
	if (!OidIsValid(extension) || !OidIsValid(schema))
		return false;

	functions->fence = find_function(extension, schema, "fence", NULL, 0);
	functions->stamp = find_function(extension, schema, "stamp", NULL, 0);
	functions->refuses =
		find_function(extension, schema, "refuses", types, 2);
	functions->refuses_stamp =
		find_function(extension, schema, "refuses_stamp", types, 3);
	functions->refuses_older =
		find_function(extension, schema, "refuses_older", types, 3);
	if (!OidIsValid(functions->fence))
		return false;

	if (invalidations == before)
	{
		fence_functions = *functions;
		functions_known = true;
	}
	return true;
}
