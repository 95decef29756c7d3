/*-------------------------------------------------------------------------
 *
 * records.c
 *	  What authority records need that cannot be said in SQL.
 *
 * The records of a lease are numbered without gaps, so those who write them come one
 * after the other: whoever writes one takes a lock of the lease, to the end of its
 * transaction (sql/records.sql).  That is one of our own and not that of a row, for its
 * queue is fair, all waits of a call have one bound, and it is known who is in the
 * way.  A row is written under it all the same, so that a transaction whose snapshot is
 * older fails with 40001 instead of taking for current what is not.
 *
 * Records are durable, whatever the session says about its commits: see durability.c.
 *
 * Locks: records, exclusive, to the end of the transaction.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/records.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "args.h"
#include "durability.h"
#include "fmgr.h"
#include "lock.h"

SQL_CALLABLE(lease_lock_records);
SQL_CALLABLE(lease_commit_durably);

/*
 * lease_lock_records: lease.lock_records(lease)
 *
 * Takes the lock of those who write records of a lease, and tells whether it had to
 * wait for that.
 */
Datum
lease_lock_records(PG_FUNCTION_ARGS)
{
	char	   *name = arg_name(fcinfo, 0);
	LOCKTAG		tag;

	arg_begin_write("a function that writes records");
	lock_tag_records(&tag, name);
	lock_start_budget();
	PG_RETURN_BOOL(lock_take_or_raise(&tag, ExclusiveLock,
									  psprintf("the records of lease \"%s\" are busy", name),
									  "is at them"));
}

/*
 * lease_commit_durably: lease.commit_durably()
 */
Datum
lease_commit_durably(PG_FUNCTION_ARGS)
{
	(void) fcinfo;
	durability_require();
	PG_RETURN_VOID();
}
