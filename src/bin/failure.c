/*-------------------------------------------------------------------------
 *
 * failure.c
 *	  What a campaign makes of failures.
 *
 * A connection may be refused or lost, and a request be answered with an error, or not
 * at all.  Most of that is tried again, at another server at once, at the same one after
 * a pause that grows.  What would come out the same each time is final, unless the
 * campaign has been further than that before.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/bin/failure.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <sys/random.h>
#include <unistd.h>

#include "campaign.h"
#include "failure.h"
#include "log.h"
#include "monotonic.h"

/* Pauses between attempts that fail: the first one, and the longest */
#define FIRST_PAUSE		(50 * MILLISECOND)
#define LONGEST_PAUSE	(5 * SECOND)

/* Pauses of a holder: the first one, and the longest as a share of the ttl */
#define FIRST_HOLDER_PAUSE	(20 * MILLISECOND)
#define HOLDER_PAUSE_SHARE	20

/* A failure that goes on is logged so often; all are that are among the first. */
#define REPEAT_MESSAGE	(60 * SECOND)
#define ALL_FAILURES	10

/*
 * fraction returns a random number from 0.5 to 1.
 */
static double
fraction(void)
{
	uint16		number = 0;

	(void) !getentropy(&number, sizeof(number));
	return 0.5 + number / 131072.0;
}

/*
 * pause_length returns how long to pause after a failure: shorter if there is a grant
 * whose end is known.
 */
static int64
pause_length(const Campaign *campaign)
{
	bool		in_hurry = campaign->ttl > 0;
	int64		pause = in_hurry ? FIRST_HOLDER_PAUSE : FIRST_PAUSE;
	int64		longest = LONGEST_PAUSE;

	if (in_hurry)
		longest = Min(longest, campaign->ttl / HOLDER_PAUSE_SHARE);
	for (int i = 1; i < campaign->failures && pause < longest; i++)
		pause *= 2;
	return (int64) (Min(pause, longest) * fraction());
}

/*
 * failure_is_news tells whether a message has to be logged: if it is not the same as
 * one of the last few, or if that was long ago.
 */
bool
failure_is_news(Campaign *campaign, const char *message)
{
	int64		now = monotonic_now();
	int			oldest = 0;

	for (int i = 0; i < MESSAGES_KEPT; i++)
	{
		if (now < campaign->messages[i].until &&
			strncmp(campaign->messages[i].content, message, MESSAGE_SIZE - 1) == 0)
			return false;
		if (campaign->messages[i].until < campaign->messages[oldest].until)
			oldest = i;
	}
	strlcpy(campaign->messages[oldest].content, message, MESSAGE_SIZE);
	campaign->messages[oldest].until = now + REPEAT_MESSAGE;
	return true;
}

/*
 * log_failure logs a failure.  To a holder the first ones are of interest, also if
 * they are all alike.
 */
static void
log_failure(Campaign *campaign, const char *message)
{
	bool		is_holder = campaign->state == CAMPAIGN_HOLDER;
	bool		is_closed = campaign->connection.state == CONNECTION_CLOSED;
	double		left = (campaign->deadline - monotonic_now()) / (double) SECOND;

	if (!failure_is_news(campaign, message) &&
		!(is_holder && campaign->failures < ALL_FAILURES))
		return;
	if (!is_holder)
		log_line(LEVEL_WARNING, is_closed ? "connection_failed" : "request_failed",
				 "will be tried again: %s", message);
	else if (campaign->request == REQUEST_RENEW || campaign->failures > 0)
		log_line(LEVEL_WARNING, "renewal_failed",
				 "renewal failed, will be repeated: %s (the lease is certain for another %.1f s)",
				 message, Max(left, 0));
	else
		log_line(LEVEL_WARNING, "connection_failed",
				 "connecting again: %s (the lease is certain for another %.1f s)",
				 message, Max(left, 0));
}

/*
 * is_hopeless tells whether the server has said something that will not change by
 * trying again.  Who has held the lease before knows that it may: --keep means for
 * ever.  Once there was a connection, a refused one may be a mishap of the moment.
 * (Poolers say 08P01 of whatever they do not like, also of a server that is starting.)
 */
static bool
is_hopeless(const Campaign *campaign, const char *sqlstate)
{
	static const char *const of_requests[] = {
		"LS005", "LS007", "0A", "22", "3F", "42"
	};
	static const char *const of_connections[] = {"28", "3D"};

	for (size_t i = 0; i < lengthof(of_requests); i++)
	{
		if (strncmp(sqlstate, of_requests[i], strlen(of_requests[i])) == 0)
			return campaign->state == CAMPAIGN_LEAVING || !campaign->ever_held;
	}
	for (size_t i = 0; i < lengthof(of_connections); i++)
	{
		if (strncmp(sqlstate, of_connections[i], strlen(of_connections[i])) == 0)
			return !campaign->connection.ever_opened;
	}
	return false;
}

/*
 * is_refused tells whether a server does not let us in, and never will.
 */
static bool
is_refused(const Campaign *campaign)
{
	const Connection *connection = &campaign->connection;

	return is_hopeless(campaign, connection->sqlstate) ||
		(connection->needs_password && !connection->ever_opened);
}

/*
 * ask_for_password asks for the password that the server wants, if there is somebody
 * to ask, and tells whether it has.
 */
static bool
ask_for_password(Connection *connection)
{
	if (!connection->needs_password || connection->ever_opened ||
		connection->options->password != NULL ||
		connection->options->prompt_password < 0 || !isatty(STDIN_FILENO))
		return false;
	options_prompt_password(connection->options);
	return true;
}

/*
 * failure_note notes that an attempt has failed, and when there is to be the next
 * one.  Other servers are tried at once.
 */
void
failure_note(Campaign *campaign, const char *message)
{
	Connection *connection = &campaign->connection;
	bool		others_left = connection->state == CONNECTION_CLOSED &&
		!connection->all_failed && connection->targets.failed > 0;

	if (campaign->request == REQUEST_ACQUIRE || campaign->request == REQUEST_AWAIT)
	{
		campaign->in_doubt = true;
		campaign->looked = false;
		campaign->slice = 0;
	}
	log_failure(campaign, message);
	campaign->request = REQUEST_NONE;
	campaign->failures++;
	campaign->tried |= !others_left;
	campaign->retry_at = others_left ? 0 : monotonic_now() + pause_length(campaign);
}

/*
 * give_up_unless_in_line ends a candidacy that does not wait when no server is left to
 * be tried.
 */
static void
give_up_unless_in_line(Campaign *campaign)
{
	if (!campaign->settings.in_line && campaign->connection.all_failed &&
		!campaign->in_doubt)
		campaign_give_up(campaign, EXIT_CONNECTION, "not_connected",
						 "no server could be reached");
}

/*
 * failure_note_closed notes that the connection has failed.
 */
void
failure_note_closed(Campaign *campaign)
{
	Connection *connection = &campaign->connection;
	bool		is_candidate = campaign->state == CAMPAIGN_CANDIDATE;

	if (is_candidate && ask_for_password(connection))
		return;
	if (is_candidate && is_refused(campaign))
	{
		campaign->request = REQUEST_NONE;
		campaign_give_up(campaign, EXIT_CONNECTION, "not_connected", connection->message);
		return;
	}
	campaign->release_sent |= campaign->request == REQUEST_RELEASE;
	failure_note(campaign, connection->message);
	if (is_candidate)
		give_up_unless_in_line(campaign);
}

/*
 * failure_note_error notes that the server has answered with an error.  A standby, or a
 * server on which nothing can be written, is no better than one that is not there.
 */
void
failure_note_error(Campaign *campaign)
{
	Connection *connection = &campaign->connection;
	const char *sqlstate = PQresultErrorField(connection->result, PG_DIAG_SQLSTATE);
	const char *primary = PQresultErrorField(connection->result, PG_DIAG_MESSAGE_PRIMARY);
	const char *detail = PQresultErrorField(connection->result, PG_DIAG_MESSAGE_DETAIL);
	const char *hint = PQresultErrorField(connection->result, PG_DIAG_MESSAGE_HINT);
	char		message[MESSAGE_SIZE];
	bool		is_candidate = campaign->state == CAMPAIGN_CANDIDATE;
	bool		is_read_only;

	if (sqlstate == NULL)
		sqlstate = "";
	snprintf(message, sizeof(message), "%s%s%s%s%s%s%s", sqlstate,
			 sqlstate[0] != '\0' ? ": " : "",
			 primary != NULL ? primary : PQresultErrorMessage(connection->result),
			 detail != NULL ? " DETAIL: " : "", detail != NULL ? detail : "",
			 hint != NULL ? " HINT: " : "", hint != NULL ? hint : "");
	is_read_only = strcmp(sqlstate, "25006") == 0;
	if (is_read_only)
		connection_reject(connection, message);
	else if (strncmp(sqlstate, "57P", 3) == 0)
		connection_close(connection);	/* the server does, too */

	if ((campaign->state == CAMPAIGN_CANDIDATE ||
		 campaign->state == CAMPAIGN_UNCONFIRMED) && is_hopeless(campaign, sqlstate))
	{
		campaign->request = REQUEST_NONE;
		campaign_give_up(campaign, EXIT_SERVER_ERROR, "refused", message);
	}
	else if (campaign->state == CAMPAIGN_HOLDER && strcmp(sqlstate, "LS005") == 0)
	{
		campaign->request = REQUEST_NONE;
		campaign_lose(campaign, message);
	}
	else if (campaign->state == CAMPAIGN_LEAVING && is_hopeless(campaign, sqlstate))
	{
		campaign->request = REQUEST_NONE;
		campaign->leave_until = 0;
		log_failure(campaign, message);
	}
	else
	{
		/* There is no doubt that nothing was granted. */
		if (is_candidate && is_read_only)
			campaign->request = REQUEST_NONE;
		failure_note(campaign, message);
		if (is_candidate && is_read_only)
			give_up_unless_in_line(campaign);
	}
}
