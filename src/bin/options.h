/*-------------------------------------------------------------------------
 *
 * options.h
 *	  What the subcommands of pg_lease read alike from the command line.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef OPTIONS_H
#define OPTIONS_H

#include "getopt_long.h"
#include "pg_lease.h"

/* Where to connect to; NULL leaves it to the environment and libpq's defaults. */
typedef struct ConnectOptions
{
	const char *dbname;			/* may be a connection string or URI */
	const char *host;
	const char *port;
	const char *user;
	int			prompt_password;	/* 0 if one is needed; 1: always; -1:
									 * never */
	char	   *password;		/* as it was typed in, or NULL */
} ConnectOptions;

/* They are the same as in psql. */
#define CONNECT_SHORT_OPTIONS "d:h:p:U:wW"
#define CONNECT_LONG_OPTIONS \
	{"dbname", required_argument, NULL, 'd'}, \
	{"host", required_argument, NULL, 'h'}, \
	{"port", required_argument, NULL, 'p'}, \
	{"username", required_argument, NULL, 'U'}, \
	{"no-password", no_argument, NULL, 'w'}, \
	{"password", no_argument, NULL, 'W'}

/* Entries that options_keywords fills at most, with the NULL that ends them */
#define OPTIONS_KEYWORDS_MAX 7

extern bool options_connect(ConnectOptions *options, int c, const char *argument);
extern int	options_next(const char *subcommand, int argc, char *argv[],
						 const char *short_options,
						 const struct option *long_options,
						 ConnectOptions *connect);
extern void options_connect_help(void);
extern void options_prompt_password(ConnectOptions *options);
extern void options_keywords(const ConnectOptions *options,
							 const char *keywords[], const char *values[]);
extern int64 options_duration(const char *subcommand, const char *text,
							  const char *option);
extern int64 options_count(const char *subcommand, const char *text,
						   const char *what, int64 minimum);
extern bool options_want_help(int argc, char *argv[]);
pg_noreturn extern void options_unrecognized(const char *subcommand);
pg_noreturn extern void options_usage_error(const char *subcommand,
											const char *format,...) pg_attribute_printf(2, 3);

#endif							/* OPTIONS_H */
