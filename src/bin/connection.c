/*-------------------------------------------------------------------------
 *
 * connection.c
 *	  A connection to the server that never waits longer than it is told.
 *
 * Only those functions of libpq are used that do not block, and everything that is
 * under way has a deadline of our own: a server that hangs and a network that drops
 * everything look the same as one that is slow, until then.  A connection on which
 * a request was not answered in time is given up, as the answer could still come;
 * so an answer always belongs to the latest request.  Nothing on a connection depends
 * on an earlier one, nor on its session: a pooler may be in between.
 *
 * What can still block is a lookup of names and, with Kerberos, its library.  The
 * guardian sees to it that the command does not outlive its lease for that.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/bin/connection.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "connection.h"
#include "log.h"
#include "monotonic.h"

/*
 * Unless the options say otherwise, a peer that is gone is noticed after so many
 * seconds of silence and so many probes, two seconds apart: while it waits in line
 * a candidate hears nothing for long.
 */
#define KEEPALIVE_IDLE		5
#define KEEPALIVE_INTERVAL	2
#define KEEPALIVE_COUNT		3

/* What libpq is asked with about its options, so that it does not connect */
#define REFUSED_VALUE	"no-connection-wanted"

/* Entries by which options are overruled, at most */
#define MORE_MAX	3

/*
 * option_value returns a copy of the value of one of libpq's options, or NULL.
 */
static char *
option_value(const PQconninfoOption *options, const char *keyword)
{
	for (; options->keyword != NULL; options++)
	{
		if (strcmp(options->keyword, keyword) == 0)
			return options->val != NULL && options->val[0] != '\0' ?
				pg_strdup(options->val) : NULL;
	}
	return NULL;
}

/*
 * unless_given returns a setting of ours, or 0 if the options have one.
 */
static int
unless_given(const PQconninfoOption *options, const char *keyword, int setting)
{
	char	   *given = option_value(options, keyword);

	if (given == NULL)
		return setting;
	free(given);
	return 0;
}

/*
 * read_options takes from libpq's options what we have to know.
 */
static void
read_options(Connection *connection, const PQconninfoOption *options)
{
	char	   *hosts = option_value(options, "host");
	char	   *addresses = option_value(options, "hostaddr");
	char	   *ports = option_value(options, "port");
	char	   *timeout = option_value(options, "connect_timeout");

	targets_read(&connection->targets, hosts, addresses, ports);
	connection->connect_timeout = NEVER;
	if (timeout != NULL && atoi(timeout) > 0)
		connection->connect_timeout = atoi(timeout) * SECOND;
	connection->keepalive_idle = unless_given(options, "keepalives_idle",
											  KEEPALIVE_IDLE);
	connection->keepalive_interval = unless_given(options, "keepalives_interval",
												  KEEPALIVE_INTERVAL);
	connection->keepalive_count = unless_given(options, "keepalives_count",
											   KEEPALIVE_COUNT);
	free(hosts);
	free(addresses);
	free(ports);
	free(timeout);
}

/*
 * fill_keywords makes the arrays for libpq, with some entries that overrule what is
 * in the options.
 */
static void
fill_keywords(const Connection *connection, const char *keywords[],
			  const char *values[], const char *more[][2], int more_count)
{
	int			n = 0;

	options_keywords(connection->options, keywords, values);
	while (keywords[n] != NULL)
		n++;
	for (int i = 0; i < more_count; i++)
	{
		if (more[i][1] == NULL)
			continue;
		keywords[n] = more[i][0];
		values[n++] = more[i][1];
	}
	keywords[n] = NULL;
	values[n] = NULL;
}

/*
 * check_ports ends the program if a port is not one, which libpq would tell only when
 * it connects.
 */
static void
check_ports(const Targets *targets)
{
	for (int i = 0; i < targets->named_count; i++)
	{
		const char *port = targets->named[i].port;
		int			number = port != NULL ? atoi(port) : 1;

		if (number < 1 || number > 65535 ||
			(port != NULL && port[strspn(port, "0123456789 ")] != '\0'))
			options_usage_error("run", "invalid port: \"%s\"", port);
	}
}

/*
 * ask_about_options has libpq look at its options, with some that overrule them, of
 * which it refuses one.  If it finds fault with another one before, that ends the
 * program.
 */
static PGconn *
ask_about_options(const Connection *connection, const char *more[][2], int more_count)
{
	const char *keywords[OPTIONS_KEYWORDS_MAX + MORE_MAX];
	const char *values[OPTIONS_KEYWORDS_MAX + MORE_MAX];
	PGconn	   *conn;

	fill_keywords(connection, keywords, values, more, more_count);
	conn = PQconnectStartParams(keywords, values, true);
	if (conn == NULL)
		system_failure("out of memory");
	if (strstr(PQerrorMessage(conn), REFUSED_VALUE) == NULL)
		options_usage_error("run", "%s", PQerrorMessage(conn));
	return conn;
}

/*
 * connection_prepare finds out which servers the options name, and whether libpq has
 * anything against them, which ends the program.
 *
 * libpq tells what it has made of its options, with those from the environment and
 * from a service file, only of a connection.  So it is asked for two that it refuses
 * before it does anything about them: one for an option that is none of those that we
 * have to know, and one for an address that is none, at which it looks when it has
 * checked all options.
 */
void
connection_prepare(Connection *connection, ConnectOptions *options)
{
	const char *refused_option[][2] = {{"target_session_attrs", REFUSED_VALUE}};
	const char *refused_address[][2] = {
		{"host", "localhost"},
		{"hostaddr", REFUSED_VALUE},
		{"port", DEF_PGPORT_STR}
	};
	PGconn	   *conn;
	PQconninfoOption *all;

	connection->options = options;
	conn = ask_about_options(connection, refused_option, lengthof(refused_option));
	all = PQconninfo(conn);
	if (all == NULL)
		system_failure("out of memory");
	read_options(connection, all);
	check_ports(&connection->targets);
	PQconninfoFree(all);
	PQfinish(conn);
	PQfinish(ask_about_options(connection, refused_address, lengthof(refused_address)));
}

/*
 * connection_hurry does not wait for what is under way for longer than that.
 */
void
connection_hurry(Connection *connection, int64 timeout)
{
	connection->until = Min(connection->until, monotonic_now() + timeout);
}

/*
 * connection_close closes the connection, whatever is under way.
 */
void
connection_close(Connection *connection)
{
	if (connection->conn != NULL)
		PQfinish(connection->conn);
	connection->conn = NULL;
	connection->unsent = false;
	connection->state = CONNECTION_CLOSED;
	connection->until = NEVER;
	connection->all_failed = false;
}

/*
 * read_sqlstate finds the SQLSTATE in a message in which libpq was asked to give it.
 * Of a connection that was refused it does not tell it otherwise.
 */
static void
read_sqlstate(Connection *connection)
{
	static const char alphabet[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
	const char *found = connection->message;

	connection->sqlstate[0] = '\0';
	while ((found = strstr(found, ":  ")) != NULL)
	{
		found += 3;
		if (strspn(found, alphabet) == 5 && strncmp(found + 5, ": ", 2) == 0)
			strlcpy(connection->sqlstate, found, sizeof(connection->sqlstate));
	}
}

/*
 * fail closes the connection and keeps why, in one line.  A server to which there was
 * no connection is not tried again before all others.
 */
static ConnectionNews
fail(Connection *connection, const char *why)
{
	bool		was_opening = connection->state == CONNECTION_OPENING;
	const char *location = strstr(why, "\nLOCATION:");
	int			length = location != NULL ? (int) (location - why) : (int) strlen(why);

	snprintf(connection->message, sizeof(connection->message), "%.*s", length, why);
	read_sqlstate(connection);
	connection->needs_password = connection->conn != NULL &&
		PQconnectionNeedsPassword(connection->conn);
	connection_close(connection);
	connection->all_failed = was_opening && targets_next(&connection->targets);
	return NEWS_FAILED;
}

/*
 * fail_as_libpq_says is the same with libpq's own message.
 */
static ConnectionNews
fail_as_libpq_says(Connection *connection)
{
	char	   *why;

	if (connection->conn == NULL)
		return fail(connection, "out of memory");
	why = pg_strdup(PQerrorMessage(connection->conn));
	fail(connection, why);
	free(why);
	return NEWS_FAILED;
}

/*
 * connection_reject closes a connection to a server that cannot do what it is wanted
 * for; another one may.
 */
void
connection_reject(Connection *connection, const char *why)
{
	(void) fail(connection, why);
	connection->all_failed = targets_next(&connection->targets);
}

/*
 * log_notice logs what the server remarks, such as a step of its clock.
 */
static void
log_notice(void *arg, const PGresult *result)
{
	const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
	bool		is_warning = severity != NULL && strcmp(severity, "WARNING") == 0;

	(void) arg;
	log_line(is_warning ? LEVEL_WARNING : LEVEL_DEBUG, "server_notice",
			 "the server says: %s", PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY));
}

/*
 * connection_open begins to connect to the current target.
 */
void
connection_open(Connection *connection, int64 timeout)
{
	const Target *target = targets_current(&connection->targets);
	const char *more[][2] = {
		{"host", target->host},
		{"hostaddr", target->address},
		{"port", target->port}
	};
	const char *keywords[OPTIONS_KEYWORDS_MAX + MORE_MAX];
	const char *values[OPTIONS_KEYWORDS_MAX + MORE_MAX];
	char	   *twice = NULL;

	/* An empty address overrules a list only as a list, which has two items. */
	if (target->address == NULL && connection->targets.with_addresses)
	{
		twice = psprintf("%s,%s", target->host, target->host);
		more[0][1] = twice;
		more[1][1] = ",";
	}
	fill_keywords(connection, keywords, values, more, lengthof(more));
	connection->until = monotonic_now() + Min(timeout, connection->connect_timeout);
	connection->state = CONNECTION_OPENING;
	connection->polling = PGRES_POLLING_WRITING;
	connection->conn = PQconnectStartParams(keywords, values, true);
	free(twice);
	if (connection->conn == NULL)
		return;
	PQsetErrorVerbosity(connection->conn, PQERRORS_VERBOSE);
	PQsetNoticeReceiver(connection->conn, log_notice, NULL);
	if (PQstatus(connection->conn) == CONNECTION_BAD)
		connection->polling = PGRES_POLLING_FAILED;
}

#ifdef TCP_KEEPIDLE
/*
 * set_number sets an option of TCP, unless it is 0.
 */
static void
set_number(int socket, int option, int number)
{
	if (number > 0)
		setsockopt(socket, IPPROTO_TCP, option, &number, sizeof(number));
}
#endif

/*
 * keep_alive lets the kernel look whether the peer is still there.
 */
static void
keep_alive(const Connection *connection)
{
#ifdef TCP_KEEPIDLE
	struct sockaddr_storage address;
	socklen_t	length = sizeof(address);
	int			socket = PQsocket(connection->conn);

	if (getsockname(socket, (struct sockaddr *) &address, &length) != 0 ||
		address.ss_family == AF_UNIX)
		return;
	set_number(socket, TCP_KEEPIDLE, connection->keepalive_idle);
	set_number(socket, TCP_KEEPINTVL, connection->keepalive_interval);
	set_number(socket, TCP_KEEPCNT, connection->keepalive_count);
#else
	(void) connection;
#endif
}

/*
 * note_opened notes that the connection is there.
 */
static ConnectionNews
note_opened(Connection *connection)
{
	PQsetnonblocking(connection->conn, 1);
	PQsetErrorVerbosity(connection->conn, PQERRORS_DEFAULT);
	keep_alive(connection);
	connection->state = CONNECTION_IDLE;
	connection->until = NEVER;
	connection->ever_opened = true;
	return NEWS_OPENED;
}

/*
 * is_ready tells whether something can be read from the server or, if that is what is
 * waited for, be written.
 */
static bool
is_ready(const Connection *connection)
{
	struct pollfd descriptor = connection_descriptor(connection);

	return descriptor.fd < 0 || poll(&descriptor, 1, 0) > 0;
}

/*
 * go_on_opening goes on connecting.
 */
static ConnectionNews
go_on_opening(Connection *connection)
{
	if (connection->conn == NULL)
		return fail_as_libpq_says(connection);
	if (connection->polling != PGRES_POLLING_FAILED && is_ready(connection))
		connection->polling = PQconnectPoll(connection->conn);
	switch (connection->polling)
	{
		case PGRES_POLLING_OK:
			return note_opened(connection);
		case PGRES_POLLING_FAILED:
			return fail_as_libpq_says(connection);
		default:
			return NEWS_NONE;
	}
}

/*
 * flush sends what could not be sent before; false if that cannot be sent at all.
 */
static bool
flush(Connection *connection)
{
	int			left = PQflush(connection->conn);

	connection->unsent = left > 0;
	return left >= 0;
}

/*
 * connection_ask sends a request.  If that fails, the next step tells, which is then
 * wanted at once.
 */
void
connection_ask(Connection *connection, const char *query, int count,
			   const char *const values[], int64 timeout)
{
	PQclear(connection->result);
	connection->result = NULL;
	connection->state = CONNECTION_ASKED;
	connection->until = monotonic_now() + timeout;
	if (PQsendQueryParams(connection->conn, query, count, NULL, values,
						  NULL, NULL, 0) != 1 ||
		!flush(connection))
		connection->until = 0;
}

/*
 * take_results takes what has come of the answer, and tells whether it is complete.
 * The first of several results is the answer.
 */
static bool
take_results(Connection *connection)
{
	while (!PQisBusy(connection->conn))
	{
		PGresult   *result = PQgetResult(connection->conn);

		if (result == NULL)
			return true;
		if (connection->result == NULL)
			connection->result = result;
		else
			PQclear(result);
	}
	return false;
}

/*
 * listen_to_server goes on with what is under way on an open connection.
 */
static ConnectionNews
listen_to_server(Connection *connection)
{
	if (is_ready(connection) && !PQconsumeInput(connection->conn))
		return fail_as_libpq_says(connection);
	if (connection->state == CONNECTION_ASKED)
	{
		if (!flush(connection))
			return fail_as_libpq_says(connection);
		if (take_results(connection))
		{
			if (connection->result == NULL)
				return fail_as_libpq_says(connection);
			connection->state = CONNECTION_IDLE;
			connection->until = NEVER;
			return NEWS_ANSWERED;
		}
	}
	if (PQstatus(connection->conn) == CONNECTION_BAD)
		return fail_as_libpq_says(connection);
	return NEWS_NONE;
}

/*
 * connection_step does what can be done now, and tells what has come of it.
 */
ConnectionNews
connection_step(Connection *connection)
{
	ConnectionNews news;

	if (connection->state == CONNECTION_CLOSED)
		return NEWS_NONE;
	news = connection->state == CONNECTION_OPENING ?
		go_on_opening(connection) : listen_to_server(connection);
	if (news == NEWS_NONE && monotonic_now() >= connection->until)
		return fail(connection, connection->state == CONNECTION_OPENING ?
					"the server did not take the connection in time" :
					"the server did not answer in time");
	return news;
}

/*
 * connection_descriptor returns what to wait for.
 */
struct pollfd
connection_descriptor(const Connection *connection)
{
	struct pollfd descriptor = {-1, POLLIN, 0};

	if (connection->conn == NULL)
		return descriptor;
	descriptor.fd = PQsocket(connection->conn);
	if (connection->state == CONNECTION_OPENING)
		descriptor.events = connection->polling == PGRES_POLLING_WRITING ? POLLOUT : POLLIN;
	else if (connection->unsent)
		descriptor.events |= POLLOUT;
	return descriptor;
}

/*
 * connection_wakeup returns the instant at which connection_step wants to be called.
 */
int64
connection_wakeup(const Connection *connection)
{
	if (connection->state == CONNECTION_OPENING &&
		(connection->conn == NULL || connection->polling == PGRES_POLLING_FAILED))
		return 0;
	return connection->until;
}

/*
 * connection_value returns a value of the answer, or NULL if it is null, or if there
 * is none.
 */
const char *
connection_value(const Connection *connection, const char *column)
{
	int			number = PQfnumber(connection->result, column);

	if (number < 0 || PQntuples(connection->result) == 0 ||
		PQgetisnull(connection->result, 0, number))
		return NULL;
	return PQgetvalue(connection->result, 0, number);
}
