/*-------------------------------------------------------------------------
 *
 * authority.c
 *	  The decisions about a lease, as pure functions.
 *
 * State, request and time go in, a new state or a refusal comes out.  There is
 * no table, no lock and no clock here: whoever calls has read the state under
 * the right lock and the clock after it.  Being pure, these functions can be
 * stated line by line in a model and tried exhaustively.
 *
 * Two rules run through all of them.  A claimant is judged at the start of its
 * transaction, which can only make it wait longer.  A holder is judged at the
 * start of its transaction and at the moment of the check, so that a
 * transaction that waited or idled can lose authority, but never gain it.
 *
 * A grant is live up to its deadline, and over from the deadline on.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/authority.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "authority.h"

/*
 * hold_end returns the instant up to which min_hold keeps everybody away from a
 * lease that was released.  Without min_hold it is free at once, also for a
 * transaction that began before the grant was made.
 */
static int64
hold_end(const Authority *authority)
{
	return authority->min_hold > 0 ?
		authority->acquired + authority->min_hold : PG_INT64_MIN;
}

/*
 * authority_claim decides whether a claimant may be granted the lease.
 *
 * The holder of a live grant is not granted it again unless it asks for that
 * ("reclaim"): a client that has lost its token has to say so.
 */
Claim
authority_claim(const Authority *authority, const char *claimant,
				bool reclaim, const Instants *at)
{
	switch (authority->state)
	{
		case GRANT_NONE:
		case GRANT_REVOKED:
			return CLAIM_GRANTED;

		case GRANT_MADE:
			if (at->tx < authority->deadline)
				return reclaim && strcmp(claimant, authority->holder) == 0 ?
					CLAIM_GRANTED : CLAIM_HELD;
			return at->tx - authority->deadline < authority->grace ?
				CLAIM_GRACE : CLAIM_GRANTED;

		case GRANT_RELEASED:
			if (authority->successor &&
				at->tx < authority->reserved_until &&
				strcmp(claimant, authority->successor) != 0)
				return CLAIM_RESERVED;
			return at->tx < hold_end(authority) ? CLAIM_GRACE : CLAIM_GRANTED;
	}

	/* An unreadable state is a refusal. */
	elog(ERROR, "unrecognized state of a lease: %d", (int) authority->state);
	return CLAIM_HELD;			/* keep compiler quiet */
}

/*
 * grant_standing decides about everything but the time.
 */
static Standing
grant_standing(const Authority *authority, int64 epoch)
{
	if (epoch <= 0 || epoch > authority->epoch)
		return STANDING_UNKNOWN;
	if (epoch < authority->epoch)
		return STANDING_SUPERSEDED;

	switch (authority->state)
	{
		case GRANT_NONE:
			return STANDING_UNKNOWN;
		case GRANT_MADE:
			return STANDING_LIVE;
		case GRANT_RELEASED:
			return STANDING_RELEASED;
		case GRANT_REVOKED:
			return STANDING_REVOKED;
	}

	elog(ERROR, "unrecognized state of a lease: %d", (int) authority->state);
	return STANDING_UNKNOWN;	/* keep compiler quiet */
}

/*
 * authority_standing decides whether a grant authorises its holder: for renew,
 * release, guard, holds and remaining.
 */
Standing
authority_standing(const Authority *authority, int64 epoch, const Instants *at)
{
	Standing	standing = grant_standing(authority, epoch);

	if (standing == STANDING_LIVE &&
		(at->tx >= authority->deadline || at->now >= authority->deadline))
		return STANDING_EXPIRED;
	return standing;
}

/*
 * authority_commit decides whether a transaction guarded by a grant may commit.
 *
 * A grant that this very transaction released counts as live: its work and its
 * release belong together.  Under late_commit a grant that nobody has taken
 * over may commit after its time; that it was live when the guard was made was
 * checked then.
 */
Standing
authority_commit(const Authority *authority, int64 epoch, bool released_here,
				 const Instants *at)
{
	Standing	standing = grant_standing(authority, epoch);

	if (standing == STANDING_RELEASED && released_here)
		standing = STANDING_LIVE;
	if (standing == STANDING_LIVE && !authority->late_commit &&
		(at->tx >= authority->deadline || at->now >= authority->deadline))
		return STANDING_EXPIRED;
	return standing;
}

/*
 * authority_renewed returns the deadline of a live grant after a renewal.  It
 * never shortens: a renewal from an older transaction must not take back what
 * a newer one gave.
 */
int64
authority_renewed(const Authority *authority, int64 ttl, const Instants *at)
{
	return Max(authority->deadline, at->tx + ttl);
}

/*
 * authority_available returns the earliest instant at which somebody other
 * than holder and successor may acquire, as far as the present state tells.  It
 * is PG_INT64_MIN if nothing has to be waited for.
 */
int64
authority_available(const Authority *authority)
{
	switch (authority->state)
	{
		case GRANT_NONE:
		case GRANT_REVOKED:
			return PG_INT64_MIN;
		case GRANT_MADE:
			return authority->deadline + authority->grace;
		case GRANT_RELEASED:
			if (authority->successor)
				return Max(authority->reserved_until, hold_end(authority));
			return hold_end(authority);
	}

	elog(ERROR, "unrecognized state of a lease: %d", (int) authority->state);
	return PG_INT64_MAX;		/* keep compiler quiet */
}

/*
 * authority_phase names how the lease stands at an instant.
 */
Phase
authority_phase(const Authority *authority, int64 instant)
{
	bool		available = instant >= authority_available(authority);

	if (authority->state == GRANT_MADE)
	{
		if (instant < authority->deadline)
			return PHASE_HELD;
		return available ? PHASE_EXPIRED : PHASE_GRACE;
	}
	if (available)
		return PHASE_FREE;
	return authority->successor && instant < authority->reserved_until ?
		PHASE_RESERVED : PHASE_GRACE;
}
