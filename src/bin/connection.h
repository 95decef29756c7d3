/*-------------------------------------------------------------------------
 *
 * connection.h
 *	  A connection to the server that never waits longer than it is told.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef CONNECTION_H
#define CONNECTION_H

#include <poll.h>

#include "libpq-fe.h"
#include "options.h"
#include "targets.h"

typedef enum ConnectionState
{
	CONNECTION_CLOSED,
	CONNECTION_OPENING,
	CONNECTION_IDLE,
	CONNECTION_ASKED			/* a request is under way */
} ConnectionState;

/* What has happened */
typedef enum ConnectionNews
{
	NEWS_NONE,
	NEWS_OPENED,
	NEWS_FAILED,				/* it is closed; message and sqlstate say why */
	NEWS_ANSWERED				/* result is the answer to the request */
} ConnectionNews;

typedef struct Connection
{
	ConnectOptions *options;
	Targets		targets;
	int64		connect_timeout;	/* as the options have it, or NEVER */
	int			keepalive_idle; /* each 0 if the options say something about
								 * it */
	int			keepalive_interval;
	int			keepalive_count;

	ConnectionState state;
	PGconn	   *conn;
	PostgresPollingStatusType polling;
	bool		unsent;			/* some of the request */
	int64		until;			/* when to give up what is under way */
	PGresult   *result;			/* of the latest request */

	char		message[1024];	/* why the latest failure was */
	char		sqlstate[6];	/* likewise; empty if the server did not say */
	bool		needs_password;
	bool		all_failed;		/* no server is left that has not been tried */
	bool		ever_opened;
} Connection;

extern void connection_prepare(Connection *connection, ConnectOptions *options);
extern void connection_open(Connection *connection, int64 timeout);
extern void connection_ask(Connection *connection, const char *query, int count,
						   const char *const values[], int64 timeout);
extern ConnectionNews connection_step(Connection *connection);
extern void connection_hurry(Connection *connection, int64 timeout);
extern void connection_close(Connection *connection);
extern void connection_reject(Connection *connection, const char *why);
extern struct pollfd connection_descriptor(const Connection *connection);
extern int64 connection_wakeup(const Connection *connection);
extern const char *connection_value(const Connection *connection, const char *column);

#endif							/* CONNECTION_H */
