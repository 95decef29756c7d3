/*-------------------------------------------------------------------------
 *
 * session.h
 *	  A connection for the subcommands that ask and show.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef SESSION_H
#define SESSION_H

#include "libpq-fe.h"
#include "options.h"

/* What connects and asks; all but the options may start as zeros */
typedef struct Session
{
	ConnectOptions options;
	bool		json;			/* the output is to be UTF-8 */
	int			patience;		/* seconds after which a server that does not
								 * answer counts as lost; 0: none */
	PGconn	   *conn;
	char	   *error;			/* why the last attempt failed */
	char	   *farewell;		/* what the server said when it ended the
								 * connection, or NULL */
} Session;

extern void session_open(Session *session);
extern bool session_connect(Session *session);
extern void session_close(Session *session);
extern void session_lose(Session *session, const char *message);
extern bool session_ask(Session *session, PGresult **result, const char *sql,
						int count, const char *const values[]);
extern bool session_read(Session *session, PGresult **result, const char *sql,
						 int count, const char *const values[]);
extern void session_check(Session *session, PGresult *result);
extern bool session_is_of_class(const PGresult *result, const char *class);
extern bool session_is_temporary(const PGresult *result);

#endif							/* SESSION_H */
