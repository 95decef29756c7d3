/*-------------------------------------------------------------------------
 *
 * grant.h
 *	  Renew, release, revoke; what the answers are called.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_GRANT_H
#define LEASE_GRANT_H

#include "lease.h"

#include "store.h"

/* What came of a request; the "outcome" of a reply. */
typedef enum Outcome
{
	OUTCOME_GRANTED,
	OUTCOME_RENEWED,
	OUTCOME_HELD,
	OUTCOME_RESERVED,
	OUTCOME_GRACE,
	OUTCOME_BUSY,				/* another transaction is deciding */
	OUTCOME_SUPERSEDED,
	OUTCOME_EXPIRED,
	OUTCOME_RELEASED,
	OUTCOME_REVOKED
} Outcome;

/* What a release asks for. */
typedef struct ReleaseRequest
{
	const char *successor;		/* NULL: nobody in particular */
	int64		reserve;		/* 0: the lease's ttl */
} ReleaseRequest;

/* A request's result: the lease as it stands then, and who is in the way. */
typedef struct GrantResult
{
	Outcome		outcome;
	LeaseRow	row;
	int			blocker;		/* pid, of OUTCOME_BUSY; 0 if it has gone */
} GrantResult;

extern const char *grant_outcome_name(Outcome outcome);
extern Outcome grant_claim_outcome(Claim claim);
extern Outcome grant_standing_outcome(Standing standing);
extern void grant_renew(const char *name, int64 epoch, int64 ttl, bool batch,
						GrantResult *result);
extern bool grant_release(const char *name, int64 epoch,
						  const ReleaseRequest *request);
extern bool grant_request_handover(const char *name, const char *successor,
								   const char *reason, int64 *epoch);
extern bool grant_revoke(const char *name, const char *reason, int64 *epoch);

extern void grant_default_row(const char *name, LeaseRow *row);
extern void grant_clear_handover(LeaseRow *row);

#endif							/* LEASE_GRANT_H */
