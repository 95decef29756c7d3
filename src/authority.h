/*-------------------------------------------------------------------------
 *
 * authority.h
 *	  The decisions about a lease, as pure functions.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_AUTHORITY_H
#define LEASE_AUTHORITY_H

#include "lease.h"

/* What became of the latest grant; stored in lease.lease.state. */
typedef enum GrantState
{
	GRANT_NONE = 'n',			/* the lease was never granted */
	GRANT_MADE = 'g',			/* granted, and not given or taken back */
	GRANT_RELEASED = 'r',		/* given back by its holder */
	GRANT_REVOKED = 'v'			/* taken back by an administrator */
} GrantState;

/*
 * What a row says, with every instant in microseconds on one scale.
 */
typedef struct Authority
{
	GrantState	state;
	int64		epoch;			/* of the latest grant, 0 if none */
	const char *holder;			/* of the latest grant */
	int64		acquired;		/* when it was made */
	int64		deadline;		/* when its time is over */
	const char *successor;		/* for whom a release reserved it, or NULL */
	int64		reserved_until; /* for how long */
	int64		grace;			/* nobody may acquire so long after expiry */
	int64		min_hold;		/* ... nor so long after acquire */
	bool		late_commit;	/* commit after expiry if not taken over */
} Authority;

/* The two instants at which a decision is made, on the same scale. */
typedef struct Instants
{
	int64		tx;				/* start of the transaction */
	int64		now;			/* moment of the check */
} Instants;

/* May the claimant acquire? */
typedef enum Claim
{
	CLAIM_GRANTED,
	CLAIM_HELD,					/* a grant is live */
	CLAIM_GRACE,				/* over, but nobody may acquire yet */
	CLAIM_RESERVED				/* released to a successor */
} Claim;

/* Is the grant of this epoch the one that counts, and is it live? */
typedef enum Standing
{
	STANDING_LIVE,
	STANDING_SUPERSEDED,		/* a later grant exists */
	STANDING_EXPIRED,			/* its time is over */
	STANDING_RELEASED,
	STANDING_REVOKED,
	STANDING_UNKNOWN			/* this lease has never had that epoch */
} Standing;

/* How a lease stands, for lease.status. */
typedef enum Phase
{
	PHASE_FREE,
	PHASE_HELD,
	PHASE_EXPIRED,				/* over, and anybody may acquire */
	PHASE_GRACE,
	PHASE_RESERVED
} Phase;

extern Claim authority_claim(const Authority *authority, const char *claimant,
							 bool reclaim, const Instants *at);
extern Standing authority_standing(const Authority *authority, int64 epoch,
								   const Instants *at);
extern Standing authority_commit(const Authority *authority, int64 epoch,
								 bool released_here, const Instants *at);
extern int64 authority_renewed(const Authority *authority, int64 ttl,
							   const Instants *at);
extern Phase authority_phase(const Authority *authority, int64 instant);
extern int64 authority_available(const Authority *authority);

#endif							/* LEASE_AUTHORITY_H */
