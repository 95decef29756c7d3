/*-------------------------------------------------------------------------
 *
 * statement.c
 *	  The statement that is being executed.
 *
 * Our triggers sometimes have to know which statement fires them, which nobody
 * tells them.  So hooks keep track of the innermost one.  The library is
 * loaded on demand: a statement that had begun before is not known here, nor
 * is what is executed without a plan, as COPY is.
 *
 * Before a statement runs, the fences that it will pass in any case are left
 * out of it; see fence_settle() in fence.c.
 *
 * This module takes no locks.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/statement.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "fence.h"
#include "statement.h"

/* The innermost statement that is being executed, or NULL. */
static const PlannedStmt *executing = NULL;

static ExecutorRun_hook_type next_ExecutorRun = NULL;
static ExecutorFinish_hook_type next_ExecutorFinish = NULL;

/*
 * statement_executing returns the innermost statement that is being executed,
 * or NULL if that is not known.
 */
const PlannedStmt *
statement_executing(void)
{
	return executing;
}

/*
 * track_ExecutorRun notes what is being executed.
 */
#if PG_VERSION_NUM >= 180000
static void
track_ExecutorRun(QueryDesc *query, ScanDirection direction, uint64 count)
#else
static void
track_ExecutorRun(QueryDesc *query, ScanDirection direction, uint64 count,
				  bool execute_once)
#endif
{
	const PlannedStmt *outer = executing;

	fence_settle(query->estate);
	executing = query->plannedstmt;
	PG_TRY();
	{
#if PG_VERSION_NUM >= 180000
		if (next_ExecutorRun)
			next_ExecutorRun(query, direction, count);
		else
			standard_ExecutorRun(query, direction, count);
#else
		if (next_ExecutorRun)
			next_ExecutorRun(query, direction, count, execute_once);
		else
			standard_ExecutorRun(query, direction, count, execute_once);
#endif
	}
	PG_CATCH();
	{
		executing = outer;
		PG_RE_THROW();
	}
	PG_END_TRY();
	executing = outer;
}

/*
 * track_ExecutorFinish does the same for what of a WITH is executed at the
 * end.
 */
static void
track_ExecutorFinish(QueryDesc *query)
{
	const PlannedStmt *outer = executing;

	executing = query->plannedstmt;
	PG_TRY();
	{
		if (next_ExecutorFinish)
			next_ExecutorFinish(query);
		else
			standard_ExecutorFinish(query);
	}
	PG_CATCH();
	{
		executing = outer;
		PG_RE_THROW();
	}
	PG_END_TRY();
	executing = outer;
}

/*
 * statement_init installs the hooks.
 */
void
statement_init(void)
{
	next_ExecutorRun = ExecutorRun_hook;
	ExecutorRun_hook = track_ExecutorRun;
	next_ExecutorFinish = ExecutorFinish_hook;
	ExecutorFinish_hook = track_ExecutorFinish;
}
