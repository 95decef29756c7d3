/*-------------------------------------------------------------------------
 *
 * environment.h
 *	  What a command finds in its environment.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef ENVIRONMENT_H
#define ENVIRONMENT_H

/* Under what the command runs */
typedef struct Environment
{
	const char *lease;
	const char *holder;
	int64		epoch;
	bool		token;			/* whether connections are to carry it */
} Environment;

extern bool environment_set(const Environment *environment);

#endif							/* ENVIRONMENT_H */
