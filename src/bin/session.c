/*-------------------------------------------------------------------------
 *
 * session.c
 *	  A connection for the subcommands that ask and show.
 *
 * Nothing of a session is changed that a pooler in transaction mode would hand
 * on to somebody else.  What reads does so in a READ ONLY transaction whose
 * search_path is the system's, so that no operator of a query can be replaced.
 * What changes a lease is a single call of a function, in a transaction of its
 * own, and has no operators.  Parameters are always sent apart from the SQL.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/bin/session.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "common/logging.h"
#include "common/string.h"
#include "monotonic.h"
#include "session.h"

/* Entries that set_keywords puts before and after those of options_keywords */
#define OWN_KEYWORDS_MAX 8

#define BEGIN_READING "BEGIN READ ONLY; SET LOCAL search_path = pg_catalog, pg_temp"

/*
 * set_error notes why something failed, without the end of the line.
 */
static void
set_error(Session *session, const char *message)
{
	char	   *copy = pg_strdup(message);

	pg_strip_crlf(copy);
	pg_free(session->error);
	session->error = copy;
}

/*
 * session_is_of_class tells whether a result is an error whose SQLSTATE begins so.
 */
bool
session_is_of_class(const PGresult *result, const char *class)
{
	const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	return sqlstate != NULL && strncmp(sqlstate, class, strlen(class)) == 0;
}

/*
 * message_of returns the message of an error without anything around it.
 */
static const char *
message_of(const PGresult *result)
{
	const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

	return message != NULL ? message : PQresultErrorMessage(result);
}

/*
 * receive_notice takes what the server says without being asked: warnings, and why
 * it ends the connection.
 */
static void
receive_notice(void *arg, const PGresult *notice)
{
	Session    *session = arg;
	const char *severity = PQresultErrorField(notice, PG_DIAG_SEVERITY_NONLOCALIZED);

	if (session_is_of_class(notice, "57P"))
	{
		pg_free(session->farewell);
		session->farewell = pg_strdup(message_of(notice));
	}
	else if (severity != NULL && strcmp(severity, "WARNING") == 0)
		pg_log_warning("%s", message_of(notice));
}

/*
 * set_keywords fills the arrays for PQconnectdbParams.  What stands before the
 * database gives way to a connection string, what comes after does not.
 */
static void
set_keywords(const Session *session, const char *keywords[], const char *values[])
{
	const char *defaults[][2] = {
		{"connect_timeout", getenv("PGCONNECT_TIMEOUT") == NULL ? "10" : NULL},
		{"keepalives_idle", "10"},
		{"keepalives_interval", "5"},
		{"keepalives_count", "3"},
		{"tcp_user_timeout", "20000"},
	};
	int			n = 0;

	for (size_t i = 0; session->patience > 0 && i < lengthof(defaults); i++)
	{
		if (defaults[i][1] == NULL)
			continue;
		keywords[n] = defaults[i][0];
		values[n++] = defaults[i][1];
	}
	if (!session->json && getenv("PGCLIENTENCODING") == NULL)
	{
		keywords[n] = "client_encoding";
		values[n++] = "auto";
	}
	options_keywords(&session->options, keywords + n, values + n);
	while (keywords[n] != NULL)
		n++;
	if (session->json)
	{
		keywords[n] = "client_encoding";
		values[n++] = "UTF8";
	}
	keywords[n] = NULL;
	values[n] = NULL;
}

/*
 * session_connect connects, asking for a password where one is needed, and tells
 * whether that succeeded.
 */
bool
session_connect(Session *session)
{
	const char *keywords[OPTIONS_KEYWORDS_MAX + OWN_KEYWORDS_MAX];
	const char *values[OPTIONS_KEYWORDS_MAX + OWN_KEYWORDS_MAX];
	const int	expand_dbname = 1;

	if (session->options.prompt_password > 0 && session->options.password == NULL)
		options_prompt_password(&session->options);
	for (;;)
	{
		session_close(session);
		set_keywords(session, keywords, values);
		session->conn = PQconnectdbParams(keywords, values, expand_dbname);
		if (PQstatus(session->conn) == CONNECTION_OK)
		{
			PQsetNoticeReceiver(session->conn, receive_notice, session);
			return true;
		}
		if (!PQconnectionNeedsPassword(session->conn) ||
			session->options.password != NULL || session->options.prompt_password < 0)
			break;
		options_prompt_password(&session->options);
	}
	set_error(session, PQerrorMessage(session->conn));
	session_close(session);
	return false;
}

/*
 * session_open connects, or else ends the program.
 */
void
session_open(Session *session)
{
	if (session_connect(session))
		return;
	pg_log_error("%s", session->error);
	exit(EXIT_CONNECTION);
}

/*
 * session_close ends the connection, if there is one.
 */
void
session_close(Session *session)
{
	PQfinish(session->conn);
	session->conn = NULL;
}

/*
 * session_lose closes a connection that is of no use any more, and notes why: what
 * the server said at last, or else the first line of the message.
 */
void
session_lose(Session *session, const char *message)
{
	char	   *line = pnstrdup(message, strcspn(message, "\n"));

	set_error(session, session->farewell != NULL ? session->farewell : line);
	pg_free(line);
	pg_free(session->farewell);
	session->farewell = NULL;
	session_close(session);
}

/*
 * wait_while_busy waits until libpq has a result, and tells whether it came in
 * time.
 */
static bool
wait_while_busy(Session *session)
{
	int64		until = session->patience > 0 ?
		monotonic_now() + session->patience * SECOND : NEVER;

	while (PQisBusy(session->conn))
	{
		struct pollfd pollfd = {.fd = PQsocket(session->conn),.events = POLLIN};

		if (monotonic_now() >= until)
			return false;
		monotonic_poll(&pollfd, 1, until);
		if (pollfd.revents != 0 && !PQconsumeInput(session->conn))
			return true;		/* which leaves a result, of the failure */
	}
	return true;
}

/*
 * collect returns the first result that is an error, or else the last one; or
 * NULL if the server is too slow.
 */
static PGresult *
collect(Session *session)
{
	PGresult   *kept = NULL;
	PGresult   *result;

	for (;;)
	{
		if (!wait_while_busy(session))
		{
			PQclear(kept);
			return NULL;
		}
		result = PQgetResult(session->conn);
		if (result == NULL)
			return kept;
		if (kept != NULL && PQresultStatus(kept) == PGRES_FATAL_ERROR)
			PQclear(result);
		else
		{
			PQclear(kept);
			kept = result;
		}
	}
}

/*
 * send_query sends a statement; without parameters it may be several.
 */
static bool
send_query(Session *session, const char *sql, int count, const char *const values[])
{
	if (values == NULL)
		return PQsendQuery(session->conn, sql) == 1;
	return PQsendQueryParams(session->conn, sql, count, NULL, values, NULL, NULL, 0) == 1;
}

/*
 * session_ask executes a statement, and tells whether the server has answered:
 * *result is then its answer, which may be an error.  If not, the connection is
 * closed, and the error says why.
 */
bool
session_ask(Session *session, PGresult **result, const char *sql,
			int count, const char *const values[])
{
	*result = NULL;
	if (session->conn == NULL)
		return false;
	if (!send_query(session, sql, count, values))
		session_lose(session, PQerrorMessage(session->conn));
	else if ((*result = collect(session)) == NULL)
		session_lose(session, psprintf("no answer for %d s", session->patience));
	else if (PQstatus(session->conn) == CONNECTION_OK)
		return true;
	else
		session_lose(session, message_of(*result));

	PQclear(*result);
	*result = NULL;
	return false;
}

/*
 * session_read does the same for a query that only reads; see the head of this
 * file.
 */
bool
session_read(Session *session, PGresult **result, const char *sql,
			 int count, const char *const values[])
{
	PGresult   *end;

	if (!session_ask(session, result, BEGIN_READING, 0, NULL))
		return false;
	if (PQresultStatus(*result) == PGRES_FATAL_ERROR)
		return true;
	PQclear(*result);
	if (!session_ask(session, result, sql, count, values))
		return false;
	if (!session_ask(session, &end, "COMMIT", 0, NULL))
	{
		PQclear(*result);
		*result = NULL;
		return false;
	}
	PQclear(end);
	return true;
}

/*
 * report prints an error of the server.
 */
static void
report(const Session *session, const PGresult *result)
{
	const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	const char *detail = PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL);
	const char *hint = PQresultErrorField(result, PG_DIAG_MESSAGE_HINT);

	if (sqlstate == NULL || message == NULL)
	{
		pg_log_error("%s", PQresultErrorMessage(result));
		return;
	}
	pg_log_error("%s (SQLSTATE %s)", message, sqlstate);
	if (detail != NULL)
		pg_log_error_detail("%s", detail);

	/* no such schema, relation, function */
	if (session_is_of_class(result, "3F000") || session_is_of_class(result, "42P01") ||
		session_is_of_class(result, "42883"))
		pg_log_error_hint("Does database \"%s\" have the extension? If not: CREATE EXTENSION lease.",
						  PQdb(session->conn));
	else if (hint != NULL)
		pg_log_error_hint("%s", hint);
}

/*
 * session_check ends the program unless a result has come and is none of an
 * error.
 */
void
session_check(Session *session, PGresult *result)
{
	if (result == NULL)
	{
		pg_log_error("connection lost: %s", session->error);
		exit(EXIT_CONNECTION);
	}
	if (PQresultStatus(result) == PGRES_TUPLES_OK || PQresultStatus(result) == PGRES_COMMAND_OK)
		return;
	report(session, result);
	exit(session_is_of_class(result, "LS005") ? EXIT_ANSWER_NO : EXIT_SERVER_ERROR);
}

/*
 * session_is_temporary tells whether an error is one of those that may go away by
 * themselves: of the connection, a conflict with recovery on a standby, too few
 * resources, an administrator who intervenes.
 */
bool
session_is_temporary(const PGresult *result)
{
	return session_is_of_class(result, "08") || session_is_of_class(result, "40") ||
		session_is_of_class(result, "53") || session_is_of_class(result, "57");
}
