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
 * Here are the states, what leads from one to another, and what is made of answers.
 * What is asked of the server is in request.c, what is made of failures in failure.c.
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

#include "campaign.h"
#include "failure.h"
#include "log.h"
#include "monotonic.h"
#include "request.h"

/*
 * For how long a candidate waits in line before it asks anew: so an answer that does
 * not come is missed soon, be it lost or the server hang.  It says for how long it has
 * waited so far, and keeps its place.
 */
#define SLICE			(2 * SECOND)

/* How long one attempt may take at all servers, with its doubts, if nothing else says */
#define ONE_ATTEMPT		(15 * SECOND)

/* How often a grant may be confirmed too late for anything to be done under it */
#define LATE_CONFIRMATIONS	5

/* How long who leaves waits for an answer that is under way */
#define LAST_PATIENCE	(1 * SECOND)

/* How long to try to give a lease back, which would expire anyway */
#define RELEASE_EFFORT	(5 * SECOND)
#define WITHDRAW_EFFORT (3 * SECOND)

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

/*
 * has_grant tells whether the campaign has an epoch that the server has told it.
 */
static bool
has_grant(const Campaign *campaign)
{
	return campaign->epoch > 0;
}

/*
 * make_incarnation draws the identity of this process.
 */
static void
make_incarnation(Campaign *campaign)
{
	unsigned char random[16];

	if (getentropy(random, sizeof(random)) != 0)
		system_failure("could not generate a random number: %s", strerror(errno));
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
	memset(campaign->messages, 0, sizeof(campaign->messages));
	log_grant(0, campaign->generation);
}

/*
 * campaign_leave begins to give back what the campaign has, or may have.  What could
 * take long is broken off, and an answer that does not come is not waited for.
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
	else if (campaign->request != REQUEST_NONE)
		connection_hurry(&campaign->connection, LAST_PATIENCE);
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
 * campaign_stop_at returns the instant at which the command has to be asked to end.
 */
int64
campaign_stop_at(const Campaign *campaign)
{
	return campaign->deadline - campaign->lead - campaign->grace;
}

/*
 * campaign_has_time tells whether there is time left to do anything under the grant.
 */
bool
campaign_has_time(const Campaign *campaign)
{
	return monotonic_now() < campaign_stop_at(campaign);
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
 * campaign_give_up ends a candidacy that cannot succeed.
 */
void
campaign_give_up(Campaign *campaign, int exit_code, const char *event, const char *why)
{
	log_line(LEVEL_ERROR, event, "%s", why);
	campaign->exit_code = exit_code;
	campaign_leave(campaign);
}

/*
 * campaign_lose notes that the lease is not ours any more.
 */
void
campaign_lose(Campaign *campaign, const char *why)
{
	log_line(LEVEL_ERROR, "lost", "the lease is lost: %s", why);
	campaign->state = CAMPAIGN_LOST;
	forget_grant(campaign);
	campaign->request = REQUEST_NONE;
	connection_close(&campaign->connection);
}

/*
 * note_opened notes that there is a connection.
 */
static void
note_opened(Campaign *campaign)
{
	PGconn	   *conn = campaign->connection.conn;
	char		message[MESSAGE_SIZE];

	campaign->looked = false;
	snprintf(message, sizeof(message), "connected to %s, port %s", PQhost(conn), PQport(conn));
	log_line(campaign->failures > 0 && failure_is_news(campaign, message) ?
			 LEVEL_INFO : LEVEL_DEBUG, "connected", "%s", message);
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
 * take_late_confirmation notes that the answer came too late to do anything under the
 * grant, which is renewed once more.  If that happens time and again, the ttl is too
 * short for this connection, and the lease must not be kept from others.
 */
static void
take_late_confirmation(Campaign *campaign)
{
	double		took = (monotonic_now() - campaign->sent) / (double) SECOND;
	char		why[200];

	snprintf(why, sizeof(why),
			 "the lease was confirmed after %.1f s, too late to do anything in the %.1f s that it lasts",
			 took, campaign->ttl / (double) SECOND);
	failure_note(campaign, why);
	campaign->renew_at = 0;
	if (++campaign->late >= LATE_CONFIRMATIONS)
		campaign_give_up(campaign, EXIT_NOT_ACQUIRED, "not_acquired", why);
}

/*
 * take_confirmation notes that the grant is certain, from now on until the deadline.
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
		if (now >= campaign_stop_at(campaign))
		{
			take_late_confirmation(campaign);
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
		campaign->late = 0;
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
		campaign_give_up(campaign, EXIT_NOT_ACQUIRED, "not_acquired", why);
	else if (failure_is_news(campaign, why))
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
		failure_note(campaign, "busy: another transaction is deciding about the lease");
		return;
	}
	snprintf(why, sizeof(why), "it has been %s (latest holder: %s)", outcome,
			 value_or(campaign, "holder", "nobody"));
	if (campaign->state == CAMPAIGN_HOLDER)
		campaign_lose(campaign, why);
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
		failure_note_error(campaign);
		return;
	}
	if (is_from_standby(campaign))
	{
		connection_reject(&campaign->connection, "the server is a standby");
		failure_note(campaign, campaign->connection.message);
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
		campaign_lose(campaign, "no renewal was confirmed in time");
	else if (now >= give_up_at(campaign))
	{
		if (campaign->connection.ever_opened)
			campaign_give_up(campaign, EXIT_NOT_ACQUIRED, "not_acquired",
							 "not acquired in time");
		else
			campaign_give_up(campaign, EXIT_CONNECTION, "not_connected",
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
		request_send(campaign, request);
	else if (request != REQUEST_NONE || campaign->state == CAMPAIGN_HOLDER)
		connection_open(&campaign->connection, request_connect_timeout(campaign));
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
			failure_note_closed(campaign);
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
