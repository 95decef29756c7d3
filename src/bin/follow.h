/*-------------------------------------------------------------------------
 *
 * follow.h
 *	  What the subcommands share that go on until they are stopped.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef FOLLOW_H
#define FOLLOW_H

#include "session.h"

extern void follow_start(Session *session);
extern void follow_begin_output(void);
extern void follow_end_output(void);
extern void follow_wait(Session *session, int64 microseconds);
extern bool follow_read(Session *session, PGresult **result, const char *sql,
						int count, const char *const values[]);
extern void follow_reconnect(Session *session);

#endif							/* FOLLOW_H */
