/*-------------------------------------------------------------------------
 *
 * args.h
 *	  Arguments of the SQL-callable functions.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_ARGS_H
#define LEASE_ARGS_H

#include "lease.h"

#include "fmgr.h"
#include "store.h"

extern void arg_check_name(const char *name);
extern void arg_check_epoch(int64 epoch);
extern char *arg_name(FunctionCallInfo fcinfo, int n);
extern char *arg_name_or_null(FunctionCallInfo fcinfo, int n);
extern int64 arg_epoch(FunctionCallInfo fcinfo, int n);
extern bool arg_bool(FunctionCallInfo fcinfo, int n, const char *what);
extern char *arg_string(FunctionCallInfo fcinfo, int n, const char *what,
						size_t max);
extern char *arg_string_or_null(FunctionCallInfo fcinfo, int n,
								const char *what, size_t max);
extern int64 arg_interval_or_zero(FunctionCallInfo fcinfo, int n,
								  const char *what);
extern int64 arg_setting(FunctionCallInfo fcinfo, int n, const char *what,
						 bool zero_allowed, int64 if_null);
extern int64 arg_wait(FunctionCallInfo fcinfo, int n, const char *what,
					  int64 if_null);
extern int	arg_array(FunctionCallInfo fcinfo, int n, Oid type,
					  const char *what, Datum **elements);
extern Evict arg_evict(FunctionCallInfo fcinfo, int n, Evict if_null);
extern const char *arg_evict_name(Evict evict);
extern Datum arg_metadata_or_null(FunctionCallInfo fcinfo, int n);
extern Datum arg_detail_or_null(FunctionCallInfo fcinfo, int n);
extern void arg_begin_write(const char *function);
pg_noreturn extern void arg_raise_null(const char *what);

#endif							/* LEASE_ARGS_H */
