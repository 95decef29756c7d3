/*-------------------------------------------------------------------------
 *
 * targets.h
 *	  The servers that a connection string names.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef TARGETS_H
#define TARGETS_H

#include "options.h"

/* One server at one address; NULL leaves it to libpq */
typedef struct Target
{
	char	   *host;
	char	   *address;
	char	   *port;
} Target;

/* All of them, and which is to be tried */
typedef struct Targets
{
	Target	   *named;			/* as in the connection string */
	int			named_count;
	bool		with_addresses; /* of some of them at least */
	Target	   *found;			/* with all addresses of each */
	int			found_count;
	int			current;		/* among the latter */
	int			failed;			/* how many have failed in this round */
	int			rounds;			/* in which all have failed, in a row */
} Targets;

extern void targets_read(Targets *targets, const char *hosts,
						 const char *addresses, const char *ports);
extern const Target *targets_current(Targets *targets);
extern bool targets_next(Targets *targets);
extern void targets_work(Targets *targets);
extern int	targets_untried(const Targets *targets);

#endif							/* TARGETS_H */
