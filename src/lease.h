/*-------------------------------------------------------------------------
 *
 * lease.h
 *	  Names, limits, error codes and version shims shared by all of lease.
 *
 * The argument why a superseded holder cannot write is in lease.c; each
 * module's header says what the module owns.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_H
#define LEASE_H

#include "postgres.h"

#include "fmgr.h"
#include "utils/timestamp.h"

#if PG_VERSION_NUM < 150000
#error "lease requires PostgreSQL 15 or later"
#endif

/*
 * Limits.  The row of a lease has to stay small enough that several versions
 * of it fit on one page, or renewals would not be HOT.
 */
#define LEASE_NAME_MAX		127 /* bytes of a lease's name */
#define LEASE_HOLDER_MAX	255 /* bytes of a holder or a successor */
#define LEASE_REASON_MAX	255 /* bytes of the reason of a revocation or of a
								 * request to hand over */
#define LEASE_METADATA_MAX	1024	/* bytes of metadata, as stored */
#define LEASE_DETAIL_MAX	2048	/* bytes of the detail of a report or a
									 * heartbeat, as stored */
#define LEASE_BATCH_MAX		1000	/* leases in one acquire_many or
									 * release_many, each with a lock */

/* The shortest interval that is accepted: one millisecond, in microseconds. */
#define LEASE_INTERVAL_MIN	INT64CONST(1000)

/* The longest: 36525 days (100 years); far from any overflow. */
#define LEASE_INTERVAL_MAX	(INT64CONST(36525) * USECS_PER_DAY)

/*
 * SQLSTATEs.  Class LS is ours; the standard assigns no class that starts
 * with a letter from I to Z.
 */
#define ERRCODE_LEASE_SUPERSEDED	MAKE_SQLSTATE('L','S','0','0','1')
#define ERRCODE_LEASE_EXPIRED		MAKE_SQLSTATE('L','S','0','0','2')
#define ERRCODE_LEASE_NOT_HELD		MAKE_SQLSTATE('L','S','0','0','3')
#define ERRCODE_LEASE_NO_TOKEN		MAKE_SQLSTATE('L','S','0','0','4')
#define ERRCODE_LEASE_UNKNOWN		MAKE_SQLSTATE('L','S','0','0','5')
#define ERRCODE_LEASE_BUSY			MAKE_SQLSTATE('L','S','0','0','6')
#define ERRCODE_LEASE_EXHAUSTED		MAKE_SQLSTATE('L','S','0','0','7')

/* GUC variables; their meaning is given where they are defined, in lease.c */
extern char *lease_token;
extern int	lease_busy_timeout;
extern bool lease_auto_create;
extern bool lease_notify;
extern int	lease_clock_offset;

/*
 * Version shims: the code is written against the newest spelling.
 */
#if PG_VERSION_NUM < 160000
typedef bool TU_UpdateIndexes;
#define TU_None false
#endif

#if PG_VERSION_NUM < 170000
#define lock_held_by_me(tag, mode)	LockHeldByMe(tag, mode)
#else
#define lock_held_by_me(tag, mode)	LockHeldByMe(tag, mode, false)
#endif

#if PG_VERSION_NUM < 180000
#define pg_noreturn pg_attribute_noreturn()
#define primary_key_index(rel)	RelationGetPrimaryKeyIndex(rel)
#else
#define primary_key_index(rel)	RelationGetPrimaryKeyIndex(rel, false)
#endif

#if PG_VERSION_NUM < 160000
#define function_aclcheck(function, user) \
	pg_proc_aclcheck(function, user, ACL_EXECUTE)
#define relation_ownercheck(relation, user) \
	pg_class_ownercheck(relation, user)

/*
 * We hide all that is not PGDLLEXPORT.  Before 16 that says nothing about
 * visibility, and PG_FUNCTION_INFO_V1 does not say it of the function.
 */
#undef PGDLLEXPORT
#define PGDLLEXPORT __attribute__((visibility("default")))
#define SQL_CALLABLE(function) \
	extern PGDLLEXPORT Datum function(PG_FUNCTION_ARGS); \
	PG_FUNCTION_INFO_V1(function)
#else
#define SQL_CALLABLE(function)	PG_FUNCTION_INFO_V1(function)
#define function_aclcheck(function, user) \
	object_aclcheck(ProcedureRelationId, function, user, ACL_EXECUTE)
#define relation_ownercheck(relation, user) \
	object_ownercheck(RelationRelationId, relation, user)
#endif

#endif							/* LEASE_H */
