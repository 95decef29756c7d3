/*-------------------------------------------------------------------------
 *
 * processes.c
 *	  The processes that a command has started.
 *
 * Whoever uses this is a subreaper: descendants whose parent has ended become its
 * children.  So all of them end up there, however they were started, also those
 * that have left the command's process group, and the command is over when there
 * are no children left.
 *
 * Numbers of processes are safe to use for the same reason: that of a child, and of
 * a group with a child in it, cannot become somebody else's before we have reaped
 * that child.
 *
 * Elsewhere than on Linux there are no subreapers, and processes that have left
 * the group are not seen.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/bin/processes.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "pg_lease.h"
#include "processes.h"

/*
 * set_find returns the place of a process in a set, or -1.
 */
static int
set_find(const PidSet *set, pid_t pid)
{
	for (int i = 0; i < set->count; i++)
	{
		if (set->members[i] == pid)
			return i;
	}
	return -1;
}

/*
 * set_add adds a process to a set.
 */
static void
set_add(PidSet *set, pid_t pid)
{
	if (set->count == set->size)
	{
		set->size = Max(16, 2 * set->size);
		set->members = pg_realloc(set->members, set->size * sizeof(pid_t));
	}
	set->members[set->count++] = pid;
}

/*
 * set_remove removes a process from a set, if it is in there.
 */
static void
set_remove(PidSet *set, pid_t pid)
{
	int			place = set_find(set, pid);

	if (place >= 0)
		set->members[place] = set->members[--set->count];
}

#ifdef __linux__
/*
 * proc_is_ours tells whether /proc is there and shows processes under the numbers that
 * they have for us: not after chroot(), nor after unshare() without a mount.
 */
static bool
proc_is_ours(void)
{
	char		self[32];
	ssize_t		length = readlink("/proc/self", self, sizeof(self) - 1);

	if (length <= 0)
		return false;
	self[length] = '\0';
	return atoi(self) == getpid();
}

/*
 * is_child tells whether a process is a child of ours.
 */
static bool
is_child(pid_t pid)
{
	siginfo_t	info;

	return waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}
#endif

/*
 * processes_adopt_orphans makes this process the parent of descendants that lose
 * theirs.  It returns what stands in the way of finding them then, or NULL.
 */
const char *
processes_adopt_orphans(void)
{
#ifdef __linux__
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
		return "the system does not let it adopt processes";
	if (!proc_is_ours())
		return "/proc is missing, or is that of another pid namespace";
#endif
	return NULL;
}

#ifdef __linux__
/*
 * parent_of returns the parent of a process, or 0 if that process is gone.
 */
static pid_t
parent_of(const char *pid)
{
	char		path[300];
	char		line[512];
	FILE	   *file;
	const char *after_name = NULL;
	int			parent = 0;

	snprintf(path, sizeof(path), "/proc/%s/stat", pid);
	file = fopen(path, "re");
	if (file == NULL)
		return 0;
	if (fgets(line, sizeof(line), file) != NULL)
		after_name = strrchr(line, ')');
	if (after_name == NULL || sscanf(after_name, ") %*c %d", &parent) != 1)
		parent = 0;
	fclose(file);
	return parent;
}

/*
 * search_children finds our children among all processes, or returns false if it can
 * not.
 */
static bool
search_children(PidSet *children)
{
	DIR		   *directory = opendir("/proc");
	struct dirent *entry;

	if (directory == NULL)
		return false;
	while ((entry = readdir(directory)) != NULL)
	{
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' &&
			parent_of(entry->d_name) == getpid())
			set_add(children, atoi(entry->d_name));
	}
	closedir(directory);
	return true;
}
#endif

/*
 * find_children finds our children, or returns false if it can not.  Some that are just
 * coming may be missed.  Kernels that were built without a list of them have to be
 * searched.
 */
static bool
find_children(PidSet *children)
{
#ifdef __linux__
	char		path[64];
	FILE	   *file;
	int			child;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int) getpid());
	file = fopen(path, "re");
	if (file == NULL)
		return search_children(children);
	while (fscanf(file, "%d", &child) == 1)
		set_add(children, child);
	fclose(file);
#else
	(void) children;
#endif
	return true;
}

/*
 * processes_spare_present notes the children that we have already, as one has that
 * was started by exec in a shell with jobs.
 */
void
processes_spare_present(Processes *processes)
{
	(void) find_children(&processes->spared);
}

/*
 * processes_spare notes a child that does not belong to the command.
 */
void
processes_spare(Processes *processes, pid_t pid)
{
	set_add(&processes->spared, pid);
}

/*
 * processes_end kills such a child, if it has not been reaped yet, and reaps it.
 */
void
processes_end(Processes *processes, pid_t pid)
{
	if (set_find(&processes->spared, pid) < 0)
		return;
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	set_remove(&processes->spared, pid);
}

/*
 * find_descendants finds those of our children that belong to the command, or returns
 * false if it can not.
 */
static bool
find_descendants(const Processes *processes, PidSet *descendants)
{
	PidSet		children = {0};
	bool		known = find_children(&children);

	for (int i = 0; i < children.count; i++)
	{
		if (set_find(&processes->spared, children.members[i]) < 0)
			set_add(descendants, children.members[i]);
	}
	free(children.members);
	return known;
}

/*
 * find_orphans finds those of them that are not in the command's group.
 */
static void
find_orphans(const Processes *processes, PidSet *orphans)
{
	PidSet		descendants = {0};

	(void) find_descendants(processes, &descendants);
	for (int i = 0; i < descendants.count; i++)
	{
		if (getpgid(descendants.members[i]) != processes->group)
			set_add(orphans, descendants.members[i]);
	}
	free(descendants.members);
}

/*
 * has_group tells whether any child of ours is in the command's group, so that nobody
 * else's can have its number.
 */
static bool
has_group(const Processes *processes)
{
#ifdef __linux__
	PidSet		descendants = {0};
	bool		found = false;

	if (processes->group == 0 || !processes->leader_ended)
		return processes->group > 0;
	(void) find_descendants(processes, &descendants);
	for (int i = 0; i < descendants.count; i++)
		found |= getpgid(descendants.members[i]) == processes->group;
	free(descendants.members);
	return found;
#else
	return processes->group > 0;
#endif
}

/*
 * has_descendants tells whether anything of the command is left; if that can not be
 * seen, something is.
 */
static bool
has_descendants(const Processes *processes)
{
#ifdef __linux__
	PidSet		descendants = {0};
	bool		known = find_descendants(processes, &descendants);

	free(descendants.members);
	return !known || descendants.count > 0;
#else
	return processes->group > 0;
#endif
}

/*
 * note_end notes what waitpid() has told.
 */
static void
note_end(Processes *processes, pid_t pid, int status)
{
	bool		is_leader = pid == processes->group && !processes->leader_ended;

	if (WIFSTOPPED(status))
	{
		if (is_leader)
			processes->stopped_by = WSTOPSIG(status);
		return;
	}
	set_remove(&processes->told, pid);
	set_remove(&processes->spared, pid);
	if (is_leader)
	{
		processes->leader_ended = true;
		processes->status = status;
	}
}

/*
 * processes_reap reaps what has ended, and tells whether nothing is left.
 */
bool
processes_reap(Processes *processes)
{
	pid_t		pid;
	int			status;

	while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0)
		note_end(processes, pid, status);
	if (pid < 0 && errno == ECHILD)
	{
#ifdef __linux__
		return true;
#else
		return processes->group == 0 || kill(-processes->group, 0) != 0;
#endif
	}
	return processes->spared.count > 0 && !has_descendants(processes);
}

/*
 * processes_adopted has to be called when a guardian has been reaped whose children are
 * ours now.  If the command is not among them, the guardian has reaped it, but could not
 * tell any more.
 */
void
processes_adopted(Processes *processes)
{
#ifdef __linux__
	if (!processes->leader_ended && processes->group > 0 && !is_child(processes->group))
	{
		processes->leader_ended = true;
		processes->status = EXIT_SYSTEM << 8;
	}
#else
	(void) processes;
#endif
}

/*
 * processes_signal_group sends a signal to the command's group, if any of it is
 * left.  What is stopped does not hear that it is to end, so it is resumed; for any
 * other signal it stays as whoever has stopped it wants it.
 */
void
processes_signal_group(Processes *processes, int number)
{
	if (!has_group(processes))
		return;
	kill(-processes->group, number);
	if (number != SIGUSR1 && number != SIGUSR2)
		kill(-processes->group, SIGCONT);
}

/*
 * processes_terminate_orphans asks those to end that have left the group and lost
 * their parent.  It has to be called again and again, as there may be more of them;
 * each is asked once.
 */
void
processes_terminate_orphans(Processes *processes)
{
	PidSet		orphans = {0};

	find_orphans(processes, &orphans);
	for (int i = 0; i < orphans.count; i++)
	{
		if (set_find(&processes->told, orphans.members[i]) >= 0)
			continue;
		kill(orphans.members[i], SIGTERM);
		kill(orphans.members[i], SIGCONT);
		set_add(&processes->told, orphans.members[i]);
	}
	free(orphans.members);
}

/*
 * processes_kill kills all that is left.  The children of what it kills may be
 * left over: it has to be called again until nothing is left.
 */
void
processes_kill(Processes *processes)
{
	PidSet		orphans = {0};

	if (has_group(processes))
		kill(-processes->group, SIGKILL);
	find_orphans(processes, &orphans);
	for (int i = 0; i < orphans.count; i++)
		kill(orphans.members[i], SIGKILL);
	free(orphans.members);
}
