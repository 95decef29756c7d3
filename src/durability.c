/*-------------------------------------------------------------------------
 *
 * durability.c
 *	  How durably the present transaction has to commit.
 *
 * A transaction that has granted a lease, or taken one back, commits
 * synchronously, whatever the session says: a grant must not be forgotten by a
 * crash or, with synchronous standbys, by a failover.  So does one that has written an
 * authority record, or a pin: what was acknowledged stays decided.
 *
 * A transaction that has done nothing but renew leases with async_renew commits
 * asynchronously, whatever the session says: so much was chosen for those leases.
 * But what else a transaction has written was not; so this is done only if it has
 * written no WAL but that of the renewals.
 *
 * No locks.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/durability.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "durability.h"
#include "executor/instrument.h"
#include "utils/guc.h"

/* Must this transaction commit synchronously? */
static bool required = false;

/* What this transaction has written, as far as a renewal has looked. */
static enum
{
	WRITTEN_NOTHING,			/* nothing yet that we know of */
	WRITTEN_RENEWALS,			/* asynchronous renewals, and nothing else */
	WRITTEN_MORE
}			written = WRITTEN_NOTHING;

/* How many records of WAL this process had written after the latest renewal */
static int64 renewal_end = 0;

/*
 * durability_require records that this transaction must commit durably.
 */
void
durability_require(void)
{
	required = true;
	ForceSyncCommit();
}

/*
 * durability_before_renewal prepares for a renewal.  To be called before the row is
 * read: that may prune its page, which writes WAL, too.
 */
void
durability_before_renewal(void)
{
	if (written == WRITTEN_NOTHING &&
		TransactionIdIsValid(GetTopTransactionIdIfAny()))
		written = WRITTEN_MORE;
	else if (written == WRITTEN_RENEWALS &&
			 pgWalUsage.wal_records != renewal_end)
		written = WRITTEN_MORE;
}

/*
 * durability_after_renewal records that a renewal has been written, or has not
 * come about.
 */
void
durability_after_renewal(bool renewed, bool async)
{
	if (renewed && !async)
		written = WRITTEN_MORE;
	else if (renewed && written == WRITTEN_NOTHING)
		written = WRITTEN_RENEWALS;
	renewal_end = pgWalUsage.wal_records;
}

/*
 * set_synchronous_commit sets synchronous_commit for the rest of the transaction.
 */
static void
set_synchronous_commit(const char *value)
{
	(void) set_config_option("synchronous_commit", value,
							 PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_LOCAL, true, 0, false);
}

/*
 * durability_pre_commit decides how the transaction commits.
 */
void
durability_pre_commit(void)
{
	/* ForceSyncCommit waits for our own disk only. */
	if (required)
	{
		if (synchronous_commit < SYNCHRONOUS_COMMIT_ON)
			set_synchronous_commit("on");
	}
	else if (written == WRITTEN_RENEWALS &&
			 pgWalUsage.wal_records == renewal_end &&
			 synchronous_commit > SYNCHRONOUS_COMMIT_OFF)
		set_synchronous_commit("off");
}

/*
 * durability_forget resets everything at the end of a transaction.
 */
void
durability_forget(void)
{
	required = false;
	written = WRITTEN_NOTHING;
}
