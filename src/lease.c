/*-------------------------------------------------------------------------
 *
 * lease.c
 *	  Fenced leases: module entry and settings.
 *
 * A lease is a named authority that at most one holder has at a time.  Holders
 * are processes: they get paused, outlive their authority and wake up in the
 * middle of a write.  This is why such a write does not land.
 *
 * Every grant has an epoch, greater than all before it (epoch.c).  A protected
 * table admits a row only in a transaction that has declared under which epoch
 * it acts (fence.c, guard.c).  Let transaction T be guarded by (L, E), and let
 * G be a transaction that grants L under a later epoch.  Then T does not
 * commit after G:
 *
 *	- G holds the fence lock of L exclusively from before its decision until
 *	  after its commit is visible to every later snapshot, because PostgreSQL
 *	  releases locks after it has marked the transaction as ended (change.c).
 *	- T takes the same lock in share mode inside its COMMIT, reads the row of L
 *	  under a snapshot taken after that, and fails unless E is current and its
 *	  grant live.  It holds the lock until its COMMIT has ended (guard.c).
 *	- So either T has the lock first: then G decides after T has ended, and T
 *	  precedes G in commit order.  Or G has it first: then T reads what G wrote,
 *	  or G has rolled back.
 *
 * Nothing in this depends on clocks, on the isolation level, on what the
 * client does or when it wakes up, or on the session: a pooler may interleave
 * transactions as it likes.  Clocks decide only when a taker may begin
 * (clock.c and authority.c), which is a question of liveness and of what a
 * holder may believe about itself.
 *
 * A takeover waits for transactions that are inside their COMMIT, and for
 * nothing else: before COMMIT a guarded transaction holds nothing that G
 * needs. An acquire that does not win reads one row and leaves no trace.
 *
 *		api.c		the functions that SQL calls, and their arguments
 *		admin.c		the same for create, alter and drop
 *		status.c	the view lease.status
 *		health.c	progress and heartbeats, on which nothing depends
 *		acquire.c	acquire: the making of a grant
 *		passage.c	getting past those who are in its way
 *		grant.c		renew, release, revoke
 *		change.c	the steps of every change of a lease: the protocol
 *		guard.c		guards, and the one transaction callback
 *		fence.c		the trigger that admits a row
 *		stamp.c		the trigger for tokens that rows carry
 *		ddl.c		the fence against DDL
 *		protection.c	how tables are protected, as the catalogs say
 *		statement.c	the statement that is being executed
 *		await.c		waiting for a lease
 *		line.c		the line of those who wait
 *		pool.c		many leases of which any will do
 *		evict.c		ending sessions that stand in the way
 *		aftermath.c	what is done after a commit
 *		durability.c	how durably a transaction commits
 *		authority.c	the decisions, as pure functions
 *		event.c		the history, and NOTIFY
 *		store.c		the rows of leases
 *		rows.c		reading and writing rows
 *		catalog.c	which relations are ours
 *		epoch.c		the epochs
 *		clock.c		the time
 *		lock.c		the locks
 *		role.c		who may
 *		args.c		arguments
 *		token.c		the syntax of names and tokens
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/lease.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "catalog.h"
#include "ddl.h"
#include "guard.h"
#include "lease.h"
#include "statement.h"
#include "utils/guc.h"

#ifdef PG_MODULE_MAGIC_EXT
PG_MODULE_MAGIC_EXT(.name = "lease",.version = LEASE_VERSION);
#else
PG_MODULE_MAGIC;
#endif

/* Bounds of lease.busy_timeout, in milliseconds */
#define BUSY_TIMEOUT_DEFAULT	2000
#define BUSY_TIMEOUT_MAX		600000

/*---- GUC variables ----*/

/*
 * lease.token: tokens under which every transaction of the connection acts, as
 * "planner=42,other=7".  Only the start-up of a connection can set it: a value
 * that SET could change would leak to the next client of a pooled connection.
 */
char	   *lease_token = NULL;

/*
 * lease.busy_timeout: how long a call or a COMMIT waits for another
 * transaction that is deciding about the same lease.
 */
int			lease_busy_timeout = BUSY_TIMEOUT_DEFAULT;

/*
 * lease.auto_create: whether acquire creates a lease that does not exist.
 * Off, because a typing error would make a second leader.
 */
bool		lease_auto_create = false;

/*
 * lease.notify: whether events are also sent as notifications.  Off, because
 * PostgreSQL lets only one transaction that notifies commit at a time, in the whole
 * cluster.
 */
bool		lease_notify = false;

/*
 * lease.clock_offset: shifts this session's reading of both clocks.  For
 * tests; superusers only, because whoever is ahead may take what is not over.
 */
int			lease_clock_offset = 0;

PGDLLEXPORT void _PG_init(void);

/*
 * check_token lets only the start-up of a connection set lease.token: in a
 * configuration file it would be everybody's.
 *
 * The context PGC_BACKEND would refuse SET, too, but before this is asked,
 * with no more than a bare message.  RESET goes back to what the start-up has
 * set, and asks nobody.
 */
static bool
check_token(char **newval pg_attribute_unused(),
			void **extra pg_attribute_unused(), GucSource source)
{
	if (source == PGC_S_CLIENT || source == PGC_S_DEFAULT)
		return true;
	GUC_check_errcode(ERRCODE_CANT_CHANGE_RUNTIME_PARAM);
	GUC_check_errmsg("parameter \"lease.token\" can only be set by a client that connects");
	GUC_check_errdetail("A value that could be set later would be a token of the next client of a pooled connection.");
	GUC_check_errhint("Connect with the start-up option, for example PGOPTIONS='-c lease.token=planner=42', or call lease.guard() in each transaction.");
	return false;
}

/*
 * _PG_init is the module's load callback.  The library is loaded on demand, by
 * the first call or the first write to a protected table of a session.
 */
void
_PG_init(void)
{
	DefineCustomStringVariable("lease.token",
							   "Sets the tokens under which every transaction of the connection acts.",
							   "A list of lease=epoch, separated by commas; can be set at connection start only.",
							   &lease_token,
							   "",
							   PGC_USERSET,
							   0,
							   check_token, NULL, NULL);

	DefineCustomIntVariable("lease.busy_timeout",
							"Sets the longest wait for another transaction that is deciding about the same lease.",
							"Zero means not to wait at all.",
							&lease_busy_timeout,
							BUSY_TIMEOUT_DEFAULT, 0, BUSY_TIMEOUT_MAX,
							PGC_USERSET,
							GUC_UNIT_MS,
							NULL, NULL, NULL);

	DefineCustomBoolVariable("lease.auto_create",
							 "Selects whether acquiring a lease that does not exist creates it.",
							 NULL,
							 &lease_auto_create,
							 false,
							 PGC_USERSET,
							 0,
							 NULL, NULL, NULL);

	DefineCustomBoolVariable("lease.notify",
							 "Selects whether events of leases are also sent as notifications.",
							 "Transactions that notify commit one after another, in the whole cluster.",
							 &lease_notify,
							 false,
							 PGC_USERSET,
							 0,
							 NULL, NULL, NULL);

	DefineCustomIntVariable("lease.clock_offset",
							"Shifts this session's reading of the clocks, for tests.",
							NULL,
							&lease_clock_offset,
							0, INT_MIN, INT_MAX,
							PGC_SUSET,
							GUC_UNIT_MS | GUC_NOT_IN_SAMPLE,
							NULL, NULL, NULL);

	MarkGUCPrefixReserved("lease");

	catalog_init();
	guard_init();
	statement_init();
	ddl_init();
}
