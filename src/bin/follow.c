/*-------------------------------------------------------------------------
 *
 * follow.c
 *	  What the subcommands share that go on until they are stopped.
 *
 * SIGINT and SIGTERM are the ordinary way to stop them, so they end the program
 * with 0: at once if it waits, for the server or for time to pass; after the
 * present output if it is writing, so that no line is left half written.  A
 * second one does not wait for that.
 *
 * The program also ends when whoever read its output has gone, which it notices
 * while it waits, and not only when there is something to be written.
 *
 * A connection that is lost is made again, however long that takes.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/bin/follow.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <signal.h>
#include <unistd.h>

#include "common/logging.h"
#include "follow.h"
#include "monotonic.h"
#include "text.h"

/* A server that does not answer for so many seconds counts as lost. */
#define PATIENCE 20

/* The pause before another attempt to connect doubles from the first to the last. */
#define FIRST_PAUSE (100 * MILLISECOND)
#define LAST_PAUSE	(5 * SECOND)

static volatile sig_atomic_t writing = false;
static volatile sig_atomic_t interrupted = false;

/*
 * on_interrupt handles SIGINT and SIGTERM.
 */
static void
on_interrupt(int signo pg_attribute_unused())
{
	if (!writing || interrupted)
		_exit(0);
	interrupted = true;
}

/*
 * follow_start prepares for going on until the program is stopped, and connects.
 */
void
follow_start(Session *session)
{
	session->patience = PATIENCE;
	session_open(session);
	srandom((unsigned int) (monotonic_now() ^ getpid()));

	/* A reader that has gone shows as EPIPE, also where SIGPIPE was ignored. */
	pqsignal(SIGPIPE, SIG_IGN);
	pqsignal(SIGINT, on_interrupt);
	pqsignal(SIGTERM, on_interrupt);
}

/*
 * follow_begin_output goes before what must not be cut off in the middle.
 */
void
follow_begin_output(void)
{
	writing = true;
}

/*
 * follow_end_output writes it out, and ends the program if it was to end meanwhile.
 */
void
follow_end_output(void)
{
	text_flush();
	writing = false;
	if (interrupted)
		exit(0);
}

/*
 * drain_notifications tells whether there were notifications, and forgets them:
 * they are hints to look, and may be forged.
 */
static bool
drain_notifications(Session *session)
{
	PGnotify   *notification;
	bool		any = false;

	while ((notification = PQnotifies(session->conn)) != NULL)
	{
		PQfreemem(notification);
		any = true;
	}
	return any;
}

/*
 * follow_wait waits for that time, or until there is a notification, or until the
 * connection is lost, which closes it.
 */
void
follow_wait(Session *session, int64 microseconds)
{
	int64		until = monotonic_now() + microseconds;

	while (monotonic_now() < until)
	{
		struct pollfd pollfds[] = {
			{.fd = STDOUT_FILENO},
			{.fd = session->conn != NULL ? PQsocket(session->conn) : -1,.events = POLLIN},
		};

		if (session->conn != NULL && drain_notifications(session))
			return;
		monotonic_poll(pollfds, lengthof(pollfds), until);
		if (pollfds[0].revents != 0)
			exit(0);
		if (pollfds[1].revents != 0 && !PQconsumeInput(session->conn))
		{
			session_lose(session, PQerrorMessage(session->conn));
			return;
		}
	}
}

/*
 * follow_read reads like session_read, where a temporary error closes the
 * connection and counts as its loss, and any other ends the program.
 */
bool
follow_read(Session *session, PGresult **result, const char *sql,
			int count, const char *const values[])
{
	if (session->conn == NULL || !session_read(session, result, sql, count, values))
		return false;
	if (PQresultStatus(*result) == PGRES_FATAL_ERROR && session_is_temporary(*result))
	{
		session_lose(session, PQresultErrorField(*result, PG_DIAG_MESSAGE_PRIMARY));
		PQclear(*result);
		*result = NULL;
		return false;
	}
	session_check(session, *result);
	return true;
}

/*
 * follow_reconnect connects again, and says so.
 */
void
follow_reconnect(Session *session)
{
	int64		pause = FIRST_PAUSE;
	char	   *said = pg_strdup(session->error);

	pg_log_warning("connection lost: %s", said);
	for (;;)
	{
		/* The jitter keeps many of us from coming all at once. */
		follow_wait(session, pause / 2 + pause * (random() % 1024) / 1024);
		if (session_connect(session))
			break;
		pause = Min(pause * 2, LAST_PAUSE);
		if (strcmp(said, session->error) != 0)
			pg_log_warning("no connection yet: %s", session->error);
		pg_free(said);
		said = pg_strdup(session->error);
	}
	pg_free(said);
	pg_log_info("connected again");
}
