/*-------------------------------------------------------------------------
 *
 * request.c
 *	  What a campaign asks of the server, and how long it waits for it.
 *
 * Each request is one statement, and its answer is waited for only so long.  A candidate
 * is patient, as the server may be slow and nothing runs out.  A holder is not, as the
 * answer may be lost or the server gone: there is time for several attempts, until so
 * many have failed that to wait is the better bet.  It is the same with connections.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/bin/request.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <unistd.h>

#include "campaign.h"
#include "monotonic.h"
#include "request.h"

/*
 * How long an answer may take, beyond what was asked for: longer after each time that
 * it took too long, as the server may be slow.
 */
#define FIRST_PATIENCE	(2 * SECOND)
#define LONGEST_PATIENCE	(15 * SECOND)

#define CONNECT_TIMEOUT (5 * SECOND)

/*
 * How long a holder waits for an answer, as a share of the ttl: short enough for
 * several attempts.  If so many have failed it waits for half of the time that is left,
 * because the server may just be slow, and an answer may be lost once more.
 */
#define HOLDER_TIMEOUT_SHARE	12
#define SHORT_ATTEMPTS	3
#define LONGEST_HOLDER_TIMEOUT	(60 * SECOND)

/* For how long a lease is reserved for a candidate that gives it back */
#define RESERVE			"5 s"

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
	int64		stop_at = campaign_stop_at(campaign);
	int64		end = now < stop_at ? stop_at : campaign->deadline;

	if (campaign->ttl == 0 || campaign->state == CAMPAIGN_UNCONFIRMED)
		return patience(campaign);
	if (campaign->failures < SHORT_ATTEMPTS)
		return short_attempt(campaign);
	return Min(Max(short_attempt(campaign), (end - now) / 2), LONGEST_HOLDER_TIMEOUT);
}

/*
 * request_connect_timeout returns how long to wait for a connection.
 *
 * For a holder to go on with another server soon is better than to wait.  If there is
 * none, or all have been tried in vain, to wait is better than to begin anew, which
 * takes as long; then each that is still to be tried has its share of the time that
 * is left, as one may hang and the next be slow.  So has each for a candidate that does
 * not wait in line.
 */
int64
request_connect_timeout(const Campaign *campaign)
{
	const Targets *targets = &campaign->connection.targets;
	int64		left = campaign_stop_at(campaign) - monotonic_now();
	int64		timeout = CONNECT_TIMEOUT;

	if (campaign->state == CAMPAIGN_HOLDER && targets->found_count > 1 &&
		targets->rounds == 0)
		timeout = short_attempt(campaign);
	else if (campaign->state == CAMPAIGN_HOLDER)
		timeout = Max(short_attempt(campaign), left / (targets_untried(targets) + 1));
	else if (campaign->state == CAMPAIGN_CANDIDATE && !campaign->settings.in_line)
		timeout = Max(FIRST_PATIENCE, (campaign->wait_until - monotonic_now()) /
					  (targets_untried(targets) + 1));
	else if (campaign->ttl > 0)
		timeout = Max(short_attempt(campaign), FIRST_PATIENCE);
	return Min(timeout, CONNECT_TIMEOUT);
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
 * request_send sends a request.
 */
void
request_send(Campaign *campaign, Request request)
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
