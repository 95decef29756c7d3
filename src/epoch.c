/*-------------------------------------------------------------------------
 *
 * epoch.c
 *	  Epochs that survive rollback, crash, restore and failover.
 *
 * All epochs of a database come from one sequence, lease.epoch.  A sequence
 * does not roll back, so an epoch that a client was told in a transaction that
 * then aborted is never told to another.  nextval() logs 32 values ahead; an
 * epoch is told only after that record is on disk, because ForceSyncCommit
 * would come too late for an epoch told inside an open transaction.
 *
 * The history of a database can fork: promotion of a standby that missed the
 * last draws, point-in-time recovery, a copied data directory, dump and
 * restore.  The *origin* is a hash of everything that differs on another
 * branch.  A draw that finds another origin recorded than its own lifts the
 * sequence far above whatever the other branch may have drawn: by 2^32, and at
 * least to the present time in microseconds since 1970, which orders branches
 * that skip from the same value.  Only then it records its own origin.  Both
 * writes are non-transactional; a crash between them makes the next draw skip
 * again, which costs nothing.
 *
 * Locks: the origin lock, share while drawing, exclusive while lifting, because
 * setval() is no compare-and-max; released before the call returns.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/epoch.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/xlog.h"
#include "catalog.h"
#include "clock.h"
#include "commands/sequence.h"
#include "common/hashfn.h"
#include "common/int.h"
#include "epoch.h"
#include "lock.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"

/* How far a new branch of history skips. */
#define EPOCH_SKIP			(INT64CONST(1) << 32)

/* A file of the data directory that is written once, by initdb. */
#define DATA_DIRECTORY_WITNESS	"PG_VERSION"

/* What the page of a sequence says. */
typedef struct SequenceState
{
	int64		last_value;
	bool		is_called;		/* has last_value been drawn? */
	XLogRecPtr	lsn;			/* of the last change that was logged */
} SequenceState;

/*
 * read_sequence reads the state of one of our sequences.
 */
static void
read_sequence(Oid relid, SequenceState *state)
{
	Relation	rel = relation_open(relid, AccessShareLock);
	Buffer		buffer = ReadBuffer(rel, 0);
	Page		page;
	HeapTupleData tuple;
	ItemId		item;
	Form_pg_sequence_data data;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	item = PageGetItemId(page, FirstOffsetNumber);
	Assert(ItemIdIsNormal(item));
	tuple.t_data = (HeapTupleHeader) PageGetItem(page, item);
	data = (Form_pg_sequence_data) GETSTRUCT(&tuple);

	state->last_value = data->last_value;
	state->is_called = data->is_called;
	state->lsn = PageGetLSN(page);

	UnlockReleaseBuffer(buffer);
	relation_close(rel, AccessShareLock);
}

/*
 * set_sequence sets one of our sequences, as its owner: the caller need not
 * have any right on it.
 */
static void
set_sequence(Oid relid, int64 value)
{
	Relation	rel = relation_open(relid, AccessShareLock);
	Oid			owner = rel->rd_rel->relowner;
	Oid			caller;
	int			security_context;

	relation_close(rel, AccessShareLock);
	GetUserIdAndSecContext(&caller, &security_context);
	SetUserIdAndSecContext(owner,
						   security_context | SECURITY_LOCAL_USERID_CHANGE);
	DirectFunctionCall2(setval_oid, ObjectIdGetDatum(relid),
						Int64GetDatum(value));
	SetUserIdAndSecContext(caller, security_context);
}

/*
 * compute_origin hashes what tells this branch of the database's history from
 * any other: the cluster and its timeline, the database and the sequence in
 * it (a restored dump has others), and inode and change time of a file of the
 * data directory (a copy has others).  A false alarm costs one skip.
 */
static int64
compute_origin(Oid epoch_sequence)
{
	struct stat witness;
	uint64		hash;

	if (stat(DATA_DIRECTORY_WITNESS, &witness) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not stat file \"%s\": %m",
						DATA_DIRECTORY_WITNESS)));

	hash = GetSystemIdentifier();
	hash = hash_combine64(hash, (uint64) GetWALInsertionTimeLine());
	hash = hash_combine64(hash, (uint64) MyDatabaseId);
	hash = hash_combine64(hash, (uint64) epoch_sequence);
	hash = hash_combine64(hash, (uint64) witness.st_ino);
	hash = hash_combine64(hash, (uint64) witness.st_ctime);

	/* A combination is no avalanche; finish with a real hash. */
	hash = hash_bytes_extended((const unsigned char *) &hash, sizeof(hash), 0);
	hash &= (uint64) PG_INT64_MAX;
	return hash == 0 ? 1 : (int64) hash;
}

/*
 * raise_exhausted raises LS007.
 */
pg_noreturn static void
raise_exhausted(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_LEASE_EXHAUSTED),
			 errmsg("epochs are exhausted"),
			 errdetail("The sequence lease.epoch has no value left that was never used."),
			 errhint("Leases that are held remain so, but no lease of this database can be granted again; move to a new database and give its leases new names.")));
}

/*
 * next_epoch draws from the sequence.
 */
static int64
next_epoch(Oid sequence)
{
	int64		epoch = 0;
	const bool	check_permissions = false;

	PG_TRY();
	{
		epoch = nextval_internal(sequence, check_permissions);
	}
	PG_CATCH();
	{
		/* Not swallowed, only said in our words: no subtransaction needed. */
		if (geterrcode() == ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED)
		{
			FlushErrorState();
			raise_exhausted();
		}
		PG_RE_THROW();
	}
	PG_END_TRY();
	return epoch;
}

/*
 * lift moves the sequence to where no other branch of history has been, but
 * never back.  The origin lock is held exclusively.
 */
static void
lift(const Catalog *relations, const SequenceState *epochs, int64 above)
{
	Clock		clock;
	int64		target;
	int64		unix_epoch = (int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) *
	USECS_PER_DAY;

	clock_read(&clock);
	if (pg_add_s64_overflow(epochs->last_value, EPOCH_SKIP, &target))
		raise_exhausted();
	target = Max(target, clock.wall_now + unix_epoch);
	target = Max(target, above);
	set_sequence(relations->epoch, target);
}

/*
 * epoch_draw returns an epoch greater than every one that anyone was ever told
 * in this database, and greater than the given one.
 */
int64
epoch_draw(int64 above)
{
	Catalog		relations;
	SequenceState origin;
	SequenceState epochs;
	LOCKTAG		tag;
	LOCKMODE	mode = ShareLock;
	int64		here;
	int64		epoch = 0;

	catalog_get(&relations);
	here = compute_origin(relations.epoch);
	lock_tag_origin(&tag);

	lock_take(&tag, mode);
	read_sequence(relations.origin, &origin);
	if (origin.is_called && origin.last_value == here)
		epoch = next_epoch(relations.epoch);

	/* The slow path: a new branch, a first draw, or a sequence set back. */
	while (epoch <= above)
	{
		CHECK_FOR_INTERRUPTS();
		if (mode == ShareLock)
		{
			lock_drop(&tag, mode);
			mode = ExclusiveLock;
			lock_take(&tag, mode);
		}

		read_sequence(relations.origin, &origin);
		read_sequence(relations.epoch, &epochs);
		if (!origin.is_called || origin.last_value != here)
		{
			/* A fresh installation has nothing to skip. */
			if (origin.is_called || epochs.is_called)
				lift(&relations, &epochs, above);
			set_sequence(relations.origin, here);
		}
		else if (epochs.last_value <= above)
			lift(&relations, &epochs, above);
		epoch = next_epoch(relations.epoch);
	}

	/*
	 * The epoch must be on disk before anybody is told.  The page's LSN is
	 * that of the record that covers it, mostly one of the draws before.
	 */
	read_sequence(relations.epoch, &epochs);
	XLogFlush(epochs.lsn);

	lock_drop(&tag, mode);
	return epoch;
}

/*
 * epoch_raise makes sure that no epoch up to the given one is ever drawn, and
 * returns the highest that can no longer be drawn.
 */
int64
epoch_raise(int64 floor)
{
	Catalog		relations;
	SequenceState epochs;
	SequenceState origin;
	LOCKTAG		tag;
	int64		result;

	catalog_get(&relations);
	lock_tag_origin(&tag);
	lock_take(&tag, ExclusiveLock);

	read_sequence(relations.origin, &origin);
	read_sequence(relations.epoch, &epochs);
	result = epochs.is_called ? epochs.last_value : 0;
	if (floor > result)
	{
		set_sequence(relations.epoch, floor);

		/* A fresh installation is on no other branch; see epoch_draw. */
		if (!origin.is_called && !epochs.is_called)
			set_sequence(relations.origin, compute_origin(relations.epoch));
		read_sequence(relations.epoch, &epochs);
		XLogFlush(epochs.lsn);
		result = floor;
	}

	lock_drop(&tag, ExclusiveLock);
	return result;
}
