/*-------------------------------------------------------------------------
 *
 * log.h
 *	  What "pg_lease run" tells on standard error.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LOG_H
#define LOG_H

typedef enum LogLevel
{
	LEVEL_DEBUG,				/* only with --verbose */
	LEVEL_INFO,
	LEVEL_WARNING,
	LEVEL_ERROR
} LogLevel;

extern void log_configure(bool json, bool verbose);
extern void log_subject(const char *lease, const char *holder);
extern void log_grant(int64 epoch, int64 generation);
extern void log_deadline(int64 deadline);
extern void log_line(LogLevel level, const char *event,
					 const char *format,...) pg_attribute_printf(3, 4);

#endif							/* LOG_H */
