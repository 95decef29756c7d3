/*-------------------------------------------------------------------------
 *
 * boot.c
 *	  Makes a server believe that it runs on another boot, for tests.
 *
 * To be preloaded (LD_PRELOAD).  libfaketime steps the wall clock, but knows no
 * identity of the boot, and mounting another file over the kernel's takes
 * privileges that a test does not have.
 *
 *		BOOT_ID		the file to read instead of the kernel's boot id; if there
 *					is none of that name, this host has no boot id
 *		BOOT_SHIFT	seconds to add to CLOCK_BOOTTIME, or "none" for a kernel
 *					that does not have that clock
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BOOT_ID_FILE	"/proc/sys/kernel/random/boot_id"

int
open(const char *path, int flags,...)
{
	const char *instead = getenv("BOOT_ID");
	va_list		arguments;
	mode_t		mode;

	va_start(arguments, flags);
	mode = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ?
		va_arg(arguments, mode_t) : 0;
	va_end(arguments);
	if (instead && strcmp(path, BOOT_ID_FILE) == 0)
		path = instead;
	return (int) syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

/* What open is called where files may be large */
int			open64(const char *path, int flags,...) __attribute__((alias("open")));

int
clock_gettime(clockid_t clock, struct timespec *ts)
{
	const char *shift = getenv("BOOT_SHIFT");
	int			result;

	if (clock != CLOCK_BOOTTIME)
	{
		/* libfaketime's, or the C library's */
		static int	(*next) (clockid_t, struct timespec *) = NULL;

		if (!next)
			next = (int (*) (clockid_t, struct timespec *))
				dlsym(RTLD_NEXT, "clock_gettime");
		return next(clock, ts);
	}
	if (shift && strcmp(shift, "none") == 0)
	{
		errno = EINVAL;
		return -1;
	}
	result = (int) syscall(SYS_clock_gettime, clock, ts);
	if (result == 0 && shift)
		ts->tv_sec += atol(shift);
	return result;
}
