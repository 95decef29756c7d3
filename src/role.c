/*-------------------------------------------------------------------------
 *
 * role.c
 *	  Who may do what with a lease.
 *
 * A lease belongs to a role.  Its members act under it; they and the owner of
 * the extension administer it.  SQL privileges decide who may call which
 * function at all (sql/roles.sql); this decides on which lease.
 *
 * A role that has been dropped matches nobody; lease.status shows such a lease
 * with a bare OID.  This module takes no locks of its own.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/role.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_extension.h"
#include "miscadmin.h"
#include "role.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/syscache.h"

/*
 * role_exists tells whether an OID is that of a role.
 */
static bool
role_exists(Oid role)
{
	return SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(role));
}

/*
 * role_is_member tells whether a user has the privileges of a lease's role.
 */
bool
role_is_member(Oid user, Oid role)
{
	return role_exists(role) && has_privs_of_role(user, role);
}

/*
 * extension_owner returns the owner of the extension, or an invalid OID.
 */
static Oid
extension_owner(void)
{
	Relation	rel = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	Oid			owner = InvalidOid;

	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber,
				F_NAMEEQ, CStringGetDatum("lease"));
	scan = systable_beginscan(rel, ExtensionNameIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		owner = ((Form_pg_extension) GETSTRUCT(tuple))->extowner;
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return owner;
}

/*
 * owns_extension tells whether a user has the privileges of the extension's
 * owner.
 */
static bool
owns_extension(Oid user)
{
	Oid			owner;

	if (superuser_arg(user))
		return true;
	owner = extension_owner();
	return OidIsValid(owner) && has_privs_of_role(user, owner);
}

/*
 * role_administers tells whether a user administers what belongs to a role.
 */
bool
role_administers(Oid user, Oid role)
{
	return role_is_member(user, role) || owns_extension(user);
}

/*
 * raise_denied raises 42501.
 */
pg_noreturn static void
raise_denied(Oid user, Oid role, const char *name)
{
	char	   *owner = GetUserNameFromId(role, true);

	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for lease \"%s\"", name),
			 owner ?
			 errdetail("The lease belongs to role \"%s\", whose privileges role \"%s\" does not have.",
					   owner, GetUserNameFromId(user, false)) :
			 errdetail("The lease belongs to a role that no longer exists."),
			 owner ?
			 errhint("Act as a member of that role, or have its administrator give the lease to another one with lease.alter().") :
			 errhint("Have the owner of the extension give it to another role with lease.alter().")));
}

/*
 * role_check_member raises 42501 unless a user may act under a lease.
 */
void
role_check_member(Oid user, Oid role, const char *name)
{
	if (!role_is_member(user, role))
		raise_denied(user, role, name);
}

/*
 * role_check_administrator raises 42501 unless a user may alter, revoke or
 * drop a lease.
 */
void
role_check_administrator(Oid user, Oid role, const char *name)
{
	if (!role_administers(user, role))
		raise_denied(user, role, name);
}

/*
 * role_check_target raises 42501 unless a user may give a lease to a role.
 */
void
role_check_target(Oid user, Oid role)
{
	if (!role_exists(role))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("role with OID %u does not exist", role)));
	if (!role_administers(user, role))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be member of role \"%s\"",
						GetUserNameFromId(role, false)),
				 errhint("Only members of a role, and the owner of the extension, may give it a lease.")));
}
