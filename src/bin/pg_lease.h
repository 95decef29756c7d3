/*-------------------------------------------------------------------------
 *
 * pg_lease.h
 *	  Exit codes and subcommands of the program pg_lease, and version shims.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LEASE_H
#define PG_LEASE_H

#include "common/logging.h"

#if PG_VERSION_NUM < 150000
#error "pg_lease requires PostgreSQL 15 or later"
#endif

/*
 * Exit codes.  They are an interface: scripts and service managers read them.
 * Most are those of sysexits.h, far from the small numbers that commands use
 * for themselves, since "pg_lease run" hands on the code of its command.
 */
#define EXIT_ANSWER_NO		1	/* not held, nothing to revoke, no such lease;
								 * or the doctor has found something */
#define EXIT_USAGE			64	/* the command line is wrong; nothing was done */
#define EXIT_CONNECTION		69	/* no connection, or it was lost */
#define EXIT_SERVER_ERROR	70	/* the server has answered with an error */
#define EXIT_SYSTEM			71	/* this machine does not have what it takes */
#define EXIT_OUTPUT			74	/* the output could not be written */
#define EXIT_NOT_ACQUIRED	75	/* the lease was not to be had in time */
#define EXIT_LOST			76	/* the lease was lost while the command ran */
#define EXIT_NOT_EXECUTABLE 126 /* as of a shell: the command could not be
								 * executed, */
#define EXIT_NOT_FOUND		127 /* or was not found */

/*
 * Version shims: the code is written against the newest spelling.
 */
#ifndef pg_noreturn
#define pg_noreturn __attribute__((noreturn))
#endif

extern const char *progname;

/* Says what this machine does not have, or does not do, and ends the program. */
#define system_failure(...) do { \
		pg_log_error(__VA_ARGS__); \
		exit(EXIT_SYSTEM); \
	} while (0)

/* The arguments of the process, where ps finds them */
extern char *title_area;
extern size_t title_size;

/*
 * The subcommands.  argv[0] is for messages ("pg_lease status"); each reads its
 * own options.
 */
extern int	run_main(int argc, char *argv[]);
extern int	status_main(int argc, char *argv[]);
extern int	watch_main(int argc, char *argv[]);
extern int	history_main(int argc, char *argv[]);
extern int	release_main(int argc, char *argv[]);
extern int	revoke_main(int argc, char *argv[]);
extern int	handover_main(int argc, char *argv[]);
extern int	doctor_main(int argc, char *argv[]);

#endif							/* PG_LEASE_H */
