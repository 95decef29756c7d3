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
 * sequence far above whatever any other branch may have drawn: to the present
 * time in microseconds since 1970.  No branch that has been lifted so ever
 * draws one epoch per microsecond, so all of them stay behind the clock, and
 * whoever skips later is above them, however often its history has forked.
 * Only then it records its own origin.  Both writes are non-transactional; a
 * crash between them makes the next draw skip again, which costs nothing.
 *
 * Where the sequence is ahead of the clock (it was raised by hand, or the
 * clock was set back), a skip is by 2^32 and by the present time, which orders
 * those that skip from the same value.
 *
 * The origin is recorded before the first lease is created, so that there is
 * none whose history can fork unnoticed.  A dump contains it, but not the
 * sequence of epochs: what is restored into another database finds a foreign
 * origin there, and what is restored over the database that it was made of, in
 * whatever order, does not set the sequence back.  The *floor* is to what the
 * sequence was last lifted or raised; a dump contains it for the sake of
 * sequences that are ahead of the clock.
 *
 * Locks: the origin lock, share while drawing, exclusive while lifting,
 * because setval() is no compare-and-max; released before the call returns.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/epoch.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/xlog.h"
#include "catalog.h"
#include "commands/sequence.h"
#include "common/hashfn.h"
#include "common/int.h"
#include "epoch.h"
#include "lock.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

/* How far a new branch of history skips. */
#define EPOCH_SKIP			(INT64CONST(1) << 32)

/*
 * Files of the data directory: one that is written once, by initdb, and one
 * that is only ever written in place, but differs from that in any copy, so
 * that who restores a copy over it and leaves alone what is the same replaces
 * it.
 */
#define DATA_DIRECTORY_WITNESS	"PG_VERSION"
#define DATA_DIRECTORY_REPLACED	"global/pg_control"

/* What the page of a sequence says. */
typedef struct SequenceState
{
	int64		last_value;
	bool		is_called;		/* has last_value been drawn? */
	XLogRecPtr	lsn;			/* of the last change that was logged */
} SequenceState;

/*
 * read_sequence reads the state of one of our sequences, which has to be one
 * that a crash does not set back.
 */
static void
read_sequence(Oid relid, SequenceState *state)
{
	Relation	rel = relation_open(relid, AccessShareLock);
	Buffer		buffer;
	Page		page;
	HeapTupleData tuple;
	ItemId		item;
	Form_pg_sequence_data data;

	if (rel->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("sequence lease.%s is not logged",
						RelationGetRelationName(rel)),
				 errdetail("After a crash, epochs that were told would be told again."),
				 errhint("ALTER SEQUENCE lease.%s SET LOGGED.",
						 RelationGetRelationName(rel))));

	buffer = ReadBuffer(rel, 0);
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
 * stat_witness reads what the file system says of a file of the data
 * directory.
 */
static void
stat_witness(const char *path, struct stat *witness)
{
	if (stat(path, witness) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not stat file \"%s\": %m", path)));
}

/*
 * compute_origin hashes what tells this branch of the database's history from
 * any other: the cluster and its timeline, the database and the sequence in
 * it (a restored dump has others), and inodes and change time of files of the
 * data directory (a copy has others).  A false alarm costs one skip.
 */
static int64
compute_origin(Oid epoch_sequence)
{
	struct stat witness;
	struct stat replaced;
#ifdef STATX_BTIME
	struct statx birth;
#endif
	uint64		hash;

	stat_witness(DATA_DIRECTORY_WITNESS, &witness);
	stat_witness(DATA_DIRECTORY_REPLACED, &replaced);

	hash = GetSystemIdentifier();
	hash = hash_combine64(hash, (uint64) GetWALInsertionTimeLine());
	hash = hash_combine64(hash, (uint64) MyDatabaseId);
	hash = hash_combine64(hash, (uint64) epoch_sequence);
	hash = hash_combine64(hash, (uint64) witness.st_ino);
	hash = hash_combine64(hash, (uint64) witness.st_ctime);
	hash = hash_combine64(hash, (uint64) replaced.st_ino);
#ifdef STATX_BTIME
	/* The number of an inode is soon used again. */
	if (statx(AT_FDCWD, DATA_DIRECTORY_REPLACED, 0, STATX_BTIME, &birth) == 0 &&
		(birth.stx_mask & STATX_BTIME) != 0)
	{
		hash = hash_combine64(hash, (uint64) birth.stx_btime.tv_sec);
		hash = hash_combine64(hash, (uint64) birth.stx_btime.tv_nsec);
	}
#endif

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
 * is_home tells whether the last epoch was drawn, or the first lease created,
 * on this branch of history.
 */
static bool
is_home(const SequenceState *origin, int64 here)
{
	return origin->is_called && origin->last_value == here;
}

/*
 * raise_sequence sets the sequence to a value above its own.  The floor comes
 * first: after a crash in between it is too high, which does no harm; and it
 * is never set back, as it may be all that a restored dump says.  The origin
 * lock is held exclusively.
 */
static void
raise_sequence(const Catalog *relations, int64 value)
{
	SequenceState floor;

	read_sequence(relations->floor, &floor);
	if (floor.last_value < value)
		set_sequence(relations->floor, value);
	set_sequence(relations->epoch, value);
}

/*
 * lift moves the sequence to where no other branch of history has been, and
 * above the given epoch, but never back.  The origin lock is held exclusively.
 */
static void
lift(const Catalog *relations, int64 above)
{
	SequenceState floor;
	SequenceState epochs;
	int64		unix_epoch = (int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) *
		USECS_PER_DAY;
	int64		now = GetCurrentTimestamp() + unix_epoch;
	int64		target;

	read_sequence(relations->floor, &floor);
	read_sequence(relations->epoch, &epochs);
	target = Max(Max(floor.last_value, epochs.last_value), above);

	if (target < now)
		target = now;
	else if (pg_add_s64_overflow(target, EPOCH_SKIP, &target) ||
			 pg_add_s64_overflow(target, Max(now, 0), &target))
		raise_exhausted();
	raise_sequence(relations, target);
}

/*
 * is_fresh tells whether nothing has ever happened in this database, nor in
 * the one of which it is a dump: there is nothing to skip.
 */
static bool
is_fresh(const Catalog *relations)
{
	SequenceState origin;
	SequenceState floor;
	SequenceState epochs;

	read_sequence(relations->origin, &origin);
	read_sequence(relations->floor, &floor);
	read_sequence(relations->epoch, &epochs);
	return !origin.is_called && !floor.is_called && !epochs.is_called;
}

/*
 * settle makes this branch of history the home of the sequence, and tells
 * whether it was not.  The origin lock is held exclusively.
 */
static bool
settle(const Catalog *relations, int64 here, int64 above)
{
	SequenceState origin;

	read_sequence(relations->origin, &origin);
	if (is_home(&origin, here))
		return false;

	if (!is_fresh(relations))
	{
		lift(relations, above);
		ereport(LOG_SERVER_ONLY,
				(errmsg("epochs of leases skip ahead"),
				 errdetail("The history of this database has forked, or was restored, since the last epoch was drawn.")));
	}
	set_sequence(relations->origin, here);
	return true;
}

/*
 * settle_first calls settle for lock_run_bounded.
 */
static bool
settle_first(void *arg pg_attribute_unused())
{
	Catalog		relations;
	LOCKTAG		tag;

	catalog_get(&relations);
	lock_tag_origin(&tag);
	lock_take(&tag, ExclusiveLock);
	(void) settle(&relations, compute_origin(relations.epoch), 0);
	lock_drop(&tag, ExclusiveLock);
	return true;
}

/*
 * epoch_settle records where the history of the first lease begins, which is
 * to have the given name.
 */
void
epoch_settle(const char *name)
{
	Catalog		relations;
	SequenceState origin;

	catalog_get(&relations);
	read_sequence(relations.origin, &origin);
	if (!origin.is_called)
		(void) lock_run_bounded(name, settle_first, NULL);
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
	if (is_home(&origin, here))
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

		if (!settle(&relations, here, above))
		{
			read_sequence(relations.epoch, &epochs);
			if (epochs.last_value <= above)
				lift(&relations, above);
		}
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
	LOCKTAG		tag;
	int64		here;
	int64		result;

	catalog_get(&relations);
	here = compute_origin(relations.epoch);
	lock_tag_origin(&tag);
	lock_take(&tag, ExclusiveLock);

	read_sequence(relations.epoch, &epochs);
	result = epochs.is_called ? epochs.last_value : 0;
	if (floor > result)
	{
		if (is_fresh(&relations))
			set_sequence(relations.origin, here);
		raise_sequence(&relations, floor);
		read_sequence(relations.epoch, &epochs);
		result = floor;
	}
	XLogFlush(epochs.lsn);

	lock_drop(&tag, ExclusiveLock);
	return result;
}
