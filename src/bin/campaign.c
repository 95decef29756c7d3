/*-------------------------------------------------------------------------
 *
 * campaign.c
 *	  Getting a lease, keeping it, and giving it back.
 *
 * The deadline.  A grant is certain to be live until the instant at which the last
 * renewal that was confirmed had been sent, plus what the server then said was left,
 * on this machine's boot clock.  A margin is taken off for clocks that do not run at
 * the same rate.  A renewal is due after a third of that time; one that fails, or
 * has no answer, is repeated until the deadline.  Any answer will do, since each is
 * reckoned from when its own request was sent.
 *
 * lease.await() may have been asked for long before it grants, so that nothing is
 * certain before the grant has been renewed once.
 *
 * Generations.  A candidacy begins with no epoch, and whatever ends it forgets the
 * epoch and closes a connection on which something is under way.  So neither an
 * epoch nor an answer can get from one candidacy into the next.
 *
 * Doubt.  If there was no answer to an acquire, the lease may be ours under an epoch
 * that we were never told, and may become ours later, when a COMMIT that is held up
 * ends.  Each process has a random incarnation, which the metadata of its grants
 * carry.  So before each further attempt a candidate in doubt looks for a live grant of
 * its own incarnation, gives exactly that epoch back, reserved for itself, and
 * acquires anew.  The holder's name would not do to recognize it by: another process
 * may use the same one.  An epoch that was found is only ever released.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/bin/campaign.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <sys/random.h>
#include <unistd.h>

#include "campaign.h"
#include "log.h"
#include "monotonic.h"

/*
 * For how long a candidate waits in line before it asks anew: so an answer that does
 * not come is missed soon, be it lost or the server hang.  It says for how long it has
 * waited so far, and keeps its place.
 */
#define SLICE			(2 * SECOND)

/*
 * How long an answer may take, beyond what was asked for: longer after each time that
 * it took too long, as the server may be slow.
 */
#define FIRST_PATIENCE	(2 * SECOND)
#define LONGEST_PATIENCE	(15 * SECOND)

#define CONNECT_TIMEOUT (5 * SECOND)

/* How long one attempt may take at all servers, with its doubts, if nothing else says */
#define ONE_ATTEMPT		(15 * SECOND)

/* For how long a lease is reserved for a candidate that gives it back */
#define RESERVE			"5 s"

/* How long to try to give a lease back, which would expire anyway */
#define RELEASE_EFFORT	(5 * SECOND)
#define WITHDRAW_EFFORT (3 * SECOND)

/* Pauses between attempts that fail: the first one, and the longest */
#define FIRST_PAUSE		(50 * MILLISECOND)
#define LONGEST_PAUSE	(5 * SECOND)

/* Pauses of a holder: the first one, and the longest as a share of the ttl */
#define FIRST_HOLDER_PAUSE	(20 * MILLISECOND)
#define HOLDER_PAUSE_SHARE	20

/*
 * How long a holder waits for an answer, as a share of the ttl: short enough for
 * several attempts.  If so many have failed it waits as long as it can, because the
 * server may just be slow.
 */
#define HOLDER_TIMEOUT_SHARE	12
#define SHORT_ATTEMPTS	3
#define LONGEST_HOLDER_TIMEOUT	(60 * SECOND)

/* The margin, as a share of what is left, within bounds */
#define MARGIN_SHARE	20
#define MARGIN_LONGEST	(2 * SECOND)
#define MARGIN_SHARE_AT_LEAST	1000

/* How long before the deadline to kill, as a share of what is left, and at most */
#define LEAD_SHARE		15
#define LEAD_LONGEST	(1 * SECOND)

/* How long a command may take to end, as a share of the ttl: default and maximum */
#define GRACE_SHARE		5
#define GRACE_SHARE_MAX 3

/* A failure that goes on is logged so often; all are that are among the first. */
#define REPEAT_MESSAGE	(60 * SECOND)
#define ALL_FAILURES	10

#define REPLY_COLUMNS \
	"outcome, epoch, holder, handover, successor," \
	" pg_catalog.date_part('epoch', remaining) AS remaining"

static const char *const query_look =
"SELECT pg_catalog.pg_is_in_recovery() AS is_standby,"
" (SELECT epoch FROM lease.status"
" WHERE name OPERATOR(pg_catalog.=) $1 AND state OPERATOR(pg_catalog.=) 'held'"
" AND pg_catalog.jsonb_extract_path_text(metadata, 'incarnation')"
" OPERATOR(pg_catalog.=) $2) AS epoch";
static const char *const query_release =
"SELECT lease.release($1, $2, successor => $3, reserve => $4) AS released";
static const char *const query_acquire =
"SELECT " REPLY_COLUMNS " FROM lease.acquire($1, $2, ttl => $3, metadata => $4)";
static const char *const query_await =
"CALL lease.await($1, $2, ttl => $3, metadata => $4, timeout => $5, waited => $6,"
" priority => $7)";
static const char *const query_renew =
"SELECT " REPLY_COLUMNS " FROM lease.renew($1, $2)";

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
 * has_grant tells whether the campaign has an epoch that the server has told it.
 */
static bool
has_grant(const Campaign *campaign)
{
	return campaign->epoch > 0;
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
 * make_incarnation draws the identity of this process.
 */
static void
make_incarnation(Campaign *campaign)
{
	unsigned char random[16];

	if (getentropy(random, sizeof(random)) != 0)
		options_usage_error("run", "could not generate a random number");
	for (size_t i = 0; i < lengthof(random); i++)
		snprintf(campaign->incarnation + 2 * i, 3, "%02x", random[i]);
}

/*
 * campaign_prepare has to be called once.
 */
void
campaign_prepare(Campaign *campaign, const CampaignSettings *settings,
				 ConnectOptions *options)
{
	memset(campaign, 0, sizeof(Campaign));
	campaign->settings = *settings;
	connection_prepare(&campaign->connection, options);
	make_incarnation(campaign);
	campaign->state = CAMPAIGN_OVER;
}

/*
 * forget_grant notes that there is no grant.  The times of the last one stay: the
 * command may have to be ended by them.
 */
static void
forget_grant(Campaign *campaign)
{
	campaign->epoch = 0;
	campaign->ttl = 0;
}

/*
 * campaign_begin begins a candidacy.
 */
void
campaign_begin(Campaign *campaign)
{
	int64		now = monotonic_now();

	campaign->state = CAMPAIGN_CANDIDATE;
	campaign->generation++;
	campaign->request = REQUEST_NONE;
	campaign->retry_at = 0;
	campaign->failures = 0;
	if (!campaign->settings.in_line)
		campaign->wait_until = now + ONE_ATTEMPT;
	else if (campaign->settings.wait == NEVER)
		campaign->wait_until = NEVER;
	else
		campaign->wait_until = now + campaign->settings.wait;
	campaign->began_at = now;
	campaign->slice = 0;
	campaign->tried = false;
	campaign->reserved = false;
	forget_grant(campaign);
	campaign->margin = 0;
	campaign->deadline = 0;
	campaign->lead = 0;
	campaign->grace = 0;
	campaign->renew_at = 0;
	campaign->handover = false;
	campaign->successor[0] = '\0';
	campaign->release_sent = false;
	campaign->not_held = false;
	campaign->exit_code = 0;
	campaign->message[0] = '\0';
	log_grant(0, campaign->generation);
}

/*
 * campaign_leave begins to give back what the campaign has, or may have.  Only what
 * could take long is broken off.
 */
void
campaign_leave(Campaign *campaign)
{
	int64		now = monotonic_now();

	if (campaign->request == REQUEST_ACQUIRE || campaign->request == REQUEST_AWAIT)
	{
		campaign->in_doubt = true;
		campaign->looked = false;
		campaign->request = REQUEST_NONE;
		connection_close(&campaign->connection);
	}
	campaign->leave_until = now + (has_grant(campaign) ? RELEASE_EFFORT : WITHDRAW_EFFORT);
	if (campaign->state == CAMPAIGN_HOLDER)
		campaign->leave_until = Min(campaign->leave_until,
									campaign->deadline + campaign->margin);
	campaign->state = CAMPAIGN_LEAVING;
	campaign->retry_at = 0;
	campaign->failures = 0;
}

/*
 * campaign_end leaves nothing open.
 */
void
campaign_end(Campaign *campaign)
{
	connection_close(&campaign->connection);
	PQclear(campaign->connection.result);
	campaign->connection.result = NULL;
}

/*
 * stop_at returns the instant at which the command has to be asked to end.
 */
static int64
stop_at(const Campaign *campaign)
{
	return campaign->deadline - campaign->lead - campaign->grace;
}

/*
 * campaign_has_time tells whether there is time left to do anything under the grant.
 */
bool
campaign_has_time(const Campaign *campaign)
{
	return monotonic_now() < stop_at(campaign);
}

/*
 * campaign_confirm makes a holder that has not done anything yet confirm its grant
 * once more.
 */
void
campaign_confirm(Campaign *campaign)
{
	campaign->state = CAMPAIGN_UNCONFIRMED;
	campaign->renew_at = 0;
}

/*
 * give_up ends a candidacy that cannot succeed.
 */
static void
give_up(Campaign *campaign, int exit_code, const char *event, const char *why)
{
	log_line(LEVEL_ERROR, event, "%s", why);
	campaign->exit_code = exit_code;
	campaign_leave(campaign);
}

/*
 * lose notes that the lease is not ours any more.
 */
static void
lose(Campaign *campaign, const char *why)
{
	log_line(LEVEL_ERROR, "lost", "the lease is lost: %s", why);
	campaign->state = CAMPAIGN_LOST;
	forget_grant(campaign);
	campaign->request = REQUEST_NONE;
	connection_close(&campaign->connection);
}

/*
 * is_news tells whether a message has to be logged: if it is not the same as the last
 * one, or if that was long ago.
 */
static bool
is_news(Campaign *campaign, const char *message)
{
	int64		now = monotonic_now();

	if (strcmp(campaign->message, message) == 0 && now < campaign->message_until)
		return false;
	strlcpy(campaign->message, message, sizeof(campaign->message));
	campaign->message_until = now + REPEAT_MESSAGE;
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

	if (!is_news(campaign, message) &&
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
 */
static bool
is_hopeless(const Campaign *campaign, const char *sqlstate)
{
	static const char *const of_requests[] = {
		"LS005", "LS007", "0A", "22", "3F", "42"
	};
	static const char *const of_connections[] = {"08P01", "28", "3D"};

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
 * note_failure notes that an attempt has failed, and when there is to be the next
 * one.  Other servers are tried at once.
 */
static void
note_failure(Campaign *campaign, const char *message)
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
 * note_closed notes that the connection has failed.
 */
static void
note_closed(Campaign *campaign)
{
	Connection *connection = &campaign->connection;
	bool		is_candidate = campaign->state == CAMPAIGN_CANDIDATE;

	if (is_candidate && ask_for_password(connection))
		return;
	if (is_candidate && is_refused(campaign))
	{
		campaign->request = REQUEST_NONE;
		give_up(campaign, EXIT_CONNECTION, "not_connected", connection->message);
		return;
	}
	campaign->release_sent |= campaign->request == REQUEST_RELEASE;
	note_failure(campaign, connection->message);
	if (is_candidate && !campaign->settings.in_line &&
		connection->all_failed && !campaign->in_doubt)
		give_up(campaign, EXIT_CONNECTION, "not_connected",
				"no server could be reached");
}

/*
 * note_opened notes that there is a connection.
 */
static void
note_opened(Campaign *campaign)
{
	PGconn	   *conn = campaign->connection.conn;

	campaign->looked = false;
	log_line(campaign->failures > 0 ? LEVEL_INFO : LEVEL_DEBUG, "connected",
			 "connected to %s, port %s", PQhost(conn), PQport(conn));
}

/*
 * note_error notes that the server has answered with an error.  A standby, or a server
 * on which nothing can be written, is no better than one that is not there.
 */
static void
note_error(Campaign *campaign)
{
	Connection *connection = &campaign->connection;
	const char *sqlstate = PQresultErrorField(connection->result, PG_DIAG_SQLSTATE);
	const char *primary = PQresultErrorField(connection->result, PG_DIAG_MESSAGE_PRIMARY);
	const char *detail = PQresultErrorField(connection->result, PG_DIAG_MESSAGE_DETAIL);
	const char *hint = PQresultErrorField(connection->result, PG_DIAG_MESSAGE_HINT);
	char		message[1024];

	if (sqlstate == NULL)
		sqlstate = "";
	snprintf(message, sizeof(message), "%s%s%s%s%s%s%s", sqlstate,
			 sqlstate[0] != '\0' ? ": " : "",
			 primary != NULL ? primary : PQresultErrorMessage(connection->result),
			 detail != NULL ? " DETAIL: " : "", detail != NULL ? detail : "",
			 hint != NULL ? " HINT: " : "", hint != NULL ? hint : "");
	if (strcmp(sqlstate, "25006") == 0)
		connection_reject(connection, message);
	else if (strncmp(sqlstate, "57P", 3) == 0)
		connection_close(connection);	/* the server does, too */

	if ((campaign->state == CAMPAIGN_CANDIDATE ||
		 campaign->state == CAMPAIGN_UNCONFIRMED) && is_hopeless(campaign, sqlstate))
	{
		campaign->request = REQUEST_NONE;
		give_up(campaign, EXIT_SERVER_ERROR, "refused", message);
	}
	else if (campaign->state == CAMPAIGN_HOLDER && strcmp(sqlstate, "LS005") == 0)
	{
		campaign->request = REQUEST_NONE;
		lose(campaign, message);
	}
	else if (campaign->state == CAMPAIGN_LEAVING && is_hopeless(campaign, sqlstate))
	{
		campaign->request = REQUEST_NONE;
		campaign->leave_until = 0;
		log_failure(campaign, message);
	}
	else
		note_failure(campaign, message);
}

/*
 * value_or returns a value of the answer, or something instead of null.
 */
static const char *
value_or(const Campaign *campaign, const char *column, const char *instead)
{
	const char *value = connection_value(&campaign->connection, column);

	return value != NULL ? value : instead;
}

/*
 * answered_epoch returns the epoch in the answer, or 0.
 */
static int64
answered_epoch(const Campaign *campaign)
{
	return strtoll(value_or(campaign, "epoch", "0"), NULL, 10);
}

/*
 * set_deadline reckons from an answer until when the grant is certain.
 */
static void
set_deadline(Campaign *campaign)
{
	int64		remaining = (int64) (strtod(value_or(campaign, "remaining", "0"), NULL) *
									 SECOND);
	int64		grace = campaign->settings.grace;

	campaign->margin = Max(Min(remaining / MARGIN_SHARE, MARGIN_LONGEST),
						   remaining / MARGIN_SHARE_AT_LEAST);
	campaign->deadline = campaign->sent + remaining - campaign->margin;
	campaign->lead = Min(remaining / LEAD_SHARE, LEAD_LONGEST);
	campaign->renew_at = campaign->sent + remaining / 3;
	campaign->ttl = remaining;
	campaign->grace = grace < 0 ? remaining / GRACE_SHARE :
		Min(grace, remaining / GRACE_SHARE_MAX);
	log_deadline(campaign->deadline);
}

/*
 * take_confirmation notes that the grant is certain, from now on until the deadline.
 * If the answer came too late to do anything, the grant is renewed once more.
 */
static void
take_confirmation(Campaign *campaign)
{
	int64		now = monotonic_now();

	set_deadline(campaign);
	campaign->handover = strcmp(value_or(campaign, "handover", "f"), "t") == 0;
	strlcpy(campaign->successor, value_or(campaign, "successor", ""),
			sizeof(campaign->successor));
	if (campaign->state == CAMPAIGN_UNCONFIRMED)
	{
		if (now >= stop_at(campaign))
		{
			campaign->renew_at = now;
			return;
		}
		campaign->state = CAMPAIGN_HOLDER;
		campaign->ever_held = true;
		log_line(LEVEL_INFO, "acquired", "the lease is ours");
	}
	else if (campaign->failures > 0)
		log_line(LEVEL_INFO, "renewal_recovered",
				 "renewed again, after %d failure%s", campaign->failures,
				 campaign->failures == 1 ? "" : "s");
	else
		log_line(LEVEL_DEBUG, "renewed", "renewed");
	campaign->failures = 0;
}

/*
 * take_grant notes the answer to an acquire.
 */
static void
take_grant(Campaign *campaign, bool is_certain)
{
	const char *outcome = value_or(campaign, "outcome", "");
	char		why[600];

	campaign->failures = 0;
	campaign->tried = true;
	campaign->reserved = false;
	campaign->looked = false;
	if (strcmp(outcome, "granted") == 0 && answered_epoch(campaign) > 0)
	{
		campaign->in_doubt = false;
		campaign->state = CAMPAIGN_UNCONFIRMED;
		campaign->epoch = answered_epoch(campaign);
		campaign->renew_at = 0;
		log_grant(campaign->epoch, campaign->generation);
		if (is_certain)
			take_confirmation(campaign);
		return;
	}
	campaign->slice = SLICE;
	snprintf(why, sizeof(why), "not acquired: %s%s%s", outcome,
			 connection_value(&campaign->connection, "holder") ? ", latest holder " : "",
			 value_or(campaign, "holder", ""));
	if (!campaign->settings.in_line || monotonic_now() >= campaign->wait_until)
		give_up(campaign, EXIT_NOT_ACQUIRED, "not_acquired", why);
	else if (is_news(campaign, why))
		log_line(LEVEL_DEBUG, "waiting", "%s", why);
}

/*
 * note_not_held notes that there is nothing to give back any more.
 */
static void
note_not_held(Campaign *campaign, const char *why)
{
	log_line(LEVEL_ERROR, "lost", "the lease was lost before it could be released: %s", why);
	campaign->not_held = true;
	forget_grant(campaign);
}

/*
 * take_renewal notes the answer to a renewal.
 */
static void
take_renewal(Campaign *campaign)
{
	const char *outcome = value_or(campaign, "outcome", "nothing");
	char		why[600];

	if (strcmp(outcome, "renewed") == 0 &&
		answered_epoch(campaign) == campaign->epoch)
	{
		take_confirmation(campaign);
		return;
	}
	if (strcmp(outcome, "busy") == 0)
	{
		note_failure(campaign, "busy: another transaction is deciding about the lease");
		return;
	}
	snprintf(why, sizeof(why), "it has been %s (latest holder: %s)", outcome,
			 value_or(campaign, "holder", "nobody"));
	if (campaign->state == CAMPAIGN_HOLDER)
		lose(campaign, why);
	else if (campaign->state == CAMPAIGN_LEAVING)
		note_not_held(campaign, why);
	else
	{
		/* Nothing has been done under it. */
		log_line(LEVEL_WARNING, "not_confirmed",
				 "the grant was over before it could be used: %s", why);
		campaign->state = CAMPAIGN_CANDIDATE;
		forget_grant(campaign);
		log_grant(0, ++campaign->generation);
	}
}

/*
 * take_release notes the answer to a release.  A release that had no answer may have
 * been done, so that there is nothing left to release.
 */
static void
take_release(Campaign *campaign)
{
	if (strcmp(value_or(campaign, "released", "f"), "t") == 0 ||
		campaign->release_sent)
		log_line(LEVEL_INFO, "released", "released");
	else
		note_not_held(campaign, "there was nothing to release");
	forget_grant(campaign);
}

/*
 * is_from_standby tells whether an answer is that of a standby to a look, which is worth
 * nothing: it may not have received the grant yet.
 */
static bool
is_from_standby(const Campaign *campaign)
{
	return campaign->request == REQUEST_LOOK &&
		strcmp(value_or(campaign, "is_standby", "f"), "t") == 0;
}

/*
 * take_give_back notes that there is no grant of ours any more of which we were not
 * told: it was given back, for ourselves if we go on, or had ended by itself.
 */
static void
take_give_back(Campaign *campaign)
{
	campaign->reserved = strcmp(value_or(campaign, "released", "f"), "t") == 0;
	log_line(LEVEL_WARNING, "recovered",
			 "epoch " INT64_FORMAT " was granted to us, but the answer was lost: %s",
			 campaign->stray_epoch,
			 campaign->reserved ? "given back unused" : "it has ended unused");
	campaign->stray_epoch = 0;
}

/*
 * take_answer notes an answer.
 */
static void
take_answer(Campaign *campaign)
{
	Request		request = campaign->request;

	if (PQresultStatus(campaign->connection.result) != PGRES_TUPLES_OK)
	{
		note_error(campaign);
		return;
	}
	if (is_from_standby(campaign))
	{
		connection_reject(&campaign->connection, "the server is a standby");
		note_failure(campaign, campaign->connection.message);
		return;
	}
	campaign->request = REQUEST_NONE;
	targets_work(&campaign->connection.targets);
	switch (request)
	{
		case REQUEST_LOOK:
			campaign->looked = true;
			campaign->stray_epoch = answered_epoch(campaign);
			break;
		case REQUEST_GIVE_BACK:
			take_give_back(campaign);
			break;
		case REQUEST_ACQUIRE:
			take_grant(campaign, true);
			break;
		case REQUEST_AWAIT:
			take_grant(campaign, false);
			break;
		case REQUEST_RENEW:
			take_renewal(campaign);
			break;
		case REQUEST_RELEASE:
			take_release(campaign);
			break;
		case REQUEST_NONE:
			break;
	}
}

/*
 * next_request returns what is to be asked of the server now.
 */
static Request
next_request(const Campaign *campaign)
{
	bool		renew = monotonic_now() >= campaign->renew_at;

	switch (campaign->state)
	{
		case CAMPAIGN_UNCONFIRMED:
		case CAMPAIGN_HOLDER:
			return renew ? REQUEST_RENEW : REQUEST_NONE;
		case CAMPAIGN_CANDIDATE:
			break;
		case CAMPAIGN_LEAVING:
			if (has_grant(campaign))
				return REQUEST_RELEASE;
			break;
		default:
			return REQUEST_NONE;
	}
	if (campaign->stray_epoch > 0)
		return REQUEST_GIVE_BACK;
	if (campaign->in_doubt && !campaign->looked)
		return REQUEST_LOOK;
	if (campaign->state == CAMPAIGN_LEAVING)
		return REQUEST_NONE;
	return campaign->reserved || !campaign->settings.in_line ?
		REQUEST_ACQUIRE : REQUEST_AWAIT;
}

/*
 * patience returns how long to wait for an answer, if nothing else says.
 */
static int64
patience(const Campaign *campaign)
{
	return Min(FIRST_PATIENCE << Min(campaign->failures, 8), LONGEST_PATIENCE);
}

/*
 * short_attempt returns how long an attempt of a holder takes if there is time for
 * several.
 */
static int64
short_attempt(const Campaign *campaign)
{
	return Min(campaign->ttl / HOLDER_TIMEOUT_SHARE, LONGEST_HOLDER_TIMEOUT);
}

/*
 * renewal_timeout returns how long to wait for the answer to a renewal.
 */
static int64
renewal_timeout(const Campaign *campaign)
{
	int64		now = monotonic_now();
	int64		end = now < stop_at(campaign) ? stop_at(campaign) : campaign->deadline;

	if (campaign->ttl == 0)
		return patience(campaign);
	if (campaign->failures < SHORT_ATTEMPTS)
		return short_attempt(campaign);
	return Min(Max(short_attempt(campaign), end - now), LONGEST_HOLDER_TIMEOUT);
}

/*
 * ask sends a request with its arguments, the first of which is the lease.
 */
static void
ask(Campaign *campaign, Request request, const char *query, int count,
	const char *arguments[], int64 timeout)
{
	arguments[0] = campaign->settings.lease;
	campaign->request = request;
	campaign->sent = monotonic_now();
	connection_ask(&campaign->connection, query, count, arguments, timeout);
}

/*
 * ask_for_grant asks for the lease, in line or not.
 */
static void
ask_for_grant(Campaign *campaign, Request request)
{
	const CampaignSettings *settings = &campaign->settings;
	int64		slice = Min(campaign->slice,
							Max(campaign->wait_until - monotonic_now(), 0));
	const char *arguments[7];
	char		ttl[64];
	char		timeout[64];
	char		waited[64];
	char		metadata[200];

	snprintf(ttl, sizeof(ttl), INT64_FORMAT " us", settings->ttl);
	snprintf(timeout, sizeof(timeout), INT64_FORMAT " ms", slice / MILLISECOND);
	snprintf(waited, sizeof(waited), INT64_FORMAT " ms",
			 (monotonic_now() - campaign->began_at) / MILLISECOND);
	snprintf(metadata, sizeof(metadata),
			 "{\"program\": \"pg_lease\", \"incarnation\": \"%s\","
			 " \"generation\": " INT64_FORMAT ", \"pid\": %d}",
			 campaign->incarnation, campaign->generation, (int) getpid());
	arguments[1] = settings->holder;
	arguments[2] = settings->ttl > 0 ? ttl : NULL;
	arguments[3] = metadata;
	arguments[4] = timeout;
	arguments[5] = waited;
	arguments[6] = settings->priority;
	if (request == REQUEST_ACQUIRE)
		ask(campaign, request, query_acquire, 4, arguments, patience(campaign));
	else
		ask(campaign, request, query_await, 7, arguments,
			slice + patience(campaign));
}

/*
 * ask_about_epoch asks for something to be done with an epoch.
 */
static void
ask_about_epoch(Campaign *campaign, Request request, int64 number)
{
	bool		leaving = campaign->state == CAMPAIGN_LEAVING;
	const char *arguments[4] = {NULL};
	char		epoch[32];
	char		reserve[64];

	snprintf(epoch, sizeof(epoch), INT64_FORMAT, number);
	snprintf(reserve, sizeof(reserve), INT64_FORMAT " ms",
			 Max(campaign->ttl / MILLISECOND, 1));
	arguments[1] = epoch;
	if (request == REQUEST_GIVE_BACK && !leaving)
	{
		arguments[2] = campaign->settings.holder;
		arguments[3] = RESERVE;
	}
	else if (request == REQUEST_RELEASE && campaign->handover &&
			 campaign->successor[0] != '\0')
	{
		/* Not for the lease's ttl, which may be much longer than ours. */
		arguments[2] = campaign->successor;
		arguments[3] = reserve;
	}
	if (request != REQUEST_RENEW)
		ask(campaign, request, query_release, 4, arguments, patience(campaign));
	else
		ask(campaign, request, query_renew, 2, arguments, renewal_timeout(campaign));
}

/*
 * ask_server asks what is to be asked now.
 */
static void
ask_server(Campaign *campaign, Request request)
{
	const char *arguments[2];

	switch (request)
	{
		case REQUEST_LOOK:
			arguments[1] = campaign->incarnation;
			ask(campaign, request, query_look, 2, arguments, patience(campaign));
			break;
		case REQUEST_GIVE_BACK:
			ask_about_epoch(campaign, request, campaign->stray_epoch);
			break;
		case REQUEST_ACQUIRE:
		case REQUEST_AWAIT:
			ask_for_grant(campaign, request);
			break;
		case REQUEST_RENEW:
		case REQUEST_RELEASE:
			ask_about_epoch(campaign, request, campaign->epoch);
			break;
		case REQUEST_NONE:
			break;
	}
}

/*
 * finish ends the campaign.
 */
static void
finish(Campaign *campaign)
{
	forget_grant(campaign);
	campaign->request = REQUEST_NONE;
	connection_close(&campaign->connection);
	campaign->state = CAMPAIGN_OVER;
	log_grant(0, campaign->generation);
}

/*
 * give_up_at returns the instant at which who has not got the lease gives up: however
 * short the wait, one attempt is made.  A grant is given up only if it cannot be
 * confirmed.
 */
static int64
give_up_at(const Campaign *campaign)
{
	if (campaign->request != REQUEST_NONE)
		return NEVER;
	if (campaign->state == CAMPAIGN_CANDIDATE && !campaign->tried)
		return Max(campaign->wait_until, campaign->began_at + ONE_ATTEMPT);
	if (campaign->state == CAMPAIGN_CANDIDATE ||
		(campaign->state == CAMPAIGN_UNCONFIRMED && campaign->failures > 0))
		return campaign->wait_until;
	return NEVER;
}

/*
 * check_time notes that a time is over.
 */
static void
check_time(Campaign *campaign)
{
	int64		now = monotonic_now();

	if (campaign->state == CAMPAIGN_HOLDER && now >= campaign->deadline)
		lose(campaign, "no renewal was confirmed in time");
	else if (now >= give_up_at(campaign))
	{
		if (campaign->connection.ever_opened)
			give_up(campaign, EXIT_NOT_ACQUIRED, "not_acquired", "not acquired in time");
		else
			give_up(campaign, EXIT_CONNECTION, "not_connected",
					"no server could be reached in time");
	}
	else if (campaign->state == CAMPAIGN_LEAVING && now >= campaign->leave_until)
	{
		if (has_grant(campaign) || campaign->in_doubt)
			log_line(LEVEL_WARNING, "not_released",
					 "the lease could not be given back; it will expire");
		finish(campaign);
	}
}

/*
 * connect_timeout returns how long to wait for a connection.
 *
 * For a holder to go on with another server soon is better than to wait.  If there is
 * none, or all have been tried in vain, to wait is better than to begin anew, which
 * takes as long; then each that is still to be tried has its share of the time that
 * is left, as one may hang and the next be slow.
 */
static int64
connect_timeout(const Campaign *campaign)
{
	const Targets *targets = &campaign->connection.targets;
	int64		left = stop_at(campaign) - monotonic_now();
	int64		timeout = CONNECT_TIMEOUT;

	if (campaign->state == CAMPAIGN_HOLDER && targets->found_count > 1 &&
		targets->rounds == 0)
		timeout = short_attempt(campaign);
	else if (campaign->state == CAMPAIGN_HOLDER)
		timeout = Max(short_attempt(campaign), left / (targets_untried(targets) + 1));
	else if (campaign->ttl > 0)
		timeout = Max(short_attempt(campaign), FIRST_PATIENCE);
	return Min(timeout, CONNECT_TIMEOUT);
}

/*
 * go_on begins what is to be done next.  A holder connects also if nothing is to be
 * asked yet.
 */
static void
go_on(Campaign *campaign)
{
	ConnectionState connection = campaign->connection.state;
	Request		request = next_request(campaign);

	if (campaign->request != REQUEST_NONE)
		return;
	if (campaign->state == CAMPAIGN_LEAVING && request == REQUEST_NONE)
		finish(campaign);
	else if (connection == CONNECTION_OPENING || monotonic_now() < campaign->retry_at)
		return;
	else if (connection == CONNECTION_IDLE)
		ask_server(campaign, request);
	else if (request != REQUEST_NONE || campaign->state == CAMPAIGN_HOLDER)
		connection_open(&campaign->connection, connect_timeout(campaign));
}

/*
 * campaign_step does what can be done now.
 */
void
campaign_step(Campaign *campaign)
{
	switch (connection_step(&campaign->connection))
	{
		case NEWS_OPENED:
			note_opened(campaign);
			break;
		case NEWS_FAILED:
			note_closed(campaign);
			break;
		case NEWS_ANSWERED:
			take_answer(campaign);
			break;
		case NEWS_NONE:
			break;
	}
	check_time(campaign);
	go_on(campaign);
}

/*
 * next_attempt returns the instant at which something is to be begun.
 */
static int64
next_attempt(const Campaign *campaign)
{
	ConnectionState connection = campaign->connection.state;

	if (campaign->request != REQUEST_NONE || connection == CONNECTION_OPENING)
		return NEVER;
	if (campaign->state == CAMPAIGN_LEAVING)
		return campaign->retry_at;
	if (has_grant(campaign) && connection == CONNECTION_IDLE)
		return Max(campaign->retry_at, campaign->renew_at);
	return campaign->retry_at;
}

/*
 * campaign_wakeup returns the instant at which campaign_step wants to be called.
 */
int64
campaign_wakeup(const Campaign *campaign)
{
	int64		instant = Min(connection_wakeup(&campaign->connection),
							  next_attempt(campaign));

	switch (campaign->state)
	{
		case CAMPAIGN_CANDIDATE:
		case CAMPAIGN_UNCONFIRMED:
			return Min(instant, give_up_at(campaign));
		case CAMPAIGN_HOLDER:
			return Min(instant, campaign->deadline);
		case CAMPAIGN_LEAVING:
			return Min(instant, campaign->leave_until);
		default:
			return NEVER;
	}
}
