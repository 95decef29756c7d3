/*-------------------------------------------------------------------------
 *
 * targets.c
 *	  The servers that a connection string names.
 *
 * A connection string may name several hosts, and a host may have several
 * addresses.  libpq tries one after another by itself, but with the functions that
 * do not block it stays with one that does not answer: when to give that up is up to
 * the caller, who cannot make it go on with the next.  So pg_lease gives libpq one
 * address at a time.  To be given an empty one is to libpq to be given none, so that it
 * would go back to the list: its defaults are put in for empty items.
 *
 * A lookup of names can take long, and nothing can be done meanwhile.  So what was
 * found is kept until all of it has failed.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/bin/targets.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <netdb.h>
#include <sys/socket.h>

#include "targets.h"

/* Where libpq connects to if no host is given */
#define DEFAULT_HOST \
	(DEFAULT_PGSOCKET_DIR[0] != '\0' ? DEFAULT_PGSOCKET_DIR : "localhost")

/*
 * count_items returns how many items a list has, as libpq counts them.
 */
static int
count_items(const char *list)
{
	int			count = 1;

	if (list == NULL || *list == '\0')
		return 0;
	for (; *list != '\0'; list++)
		count += *list == ',';
	return count;
}

/*
 * item returns a copy of one item of a list, or NULL if it is empty or not there.
 * Of a list with a single one, that is for all.
 */
static char *
item(const char *list, int n)
{
	size_t		length;

	if (list == NULL)
		return NULL;
	if (count_items(list) == 1)
		n = 0;
	for (; n > 0 && *list != '\0'; list++)
		n -= *list == ',';
	length = strcspn(list, ",");
	return length > 0 ? pnstrdup(list, length) : NULL;
}

/*
 * read_target reads one server.  Where there is an address, the host is only its name.
 */
static void
read_target(Target *target, const char *hosts, const char *addresses,
			const char *ports, int n)
{
	target->host = hosts != NULL ? item(hosts, n) : NULL;
	target->address = addresses != NULL ? item(addresses, n) : NULL;
	target->port = item(ports, n);
	if (target->host == NULL && hosts != NULL)
		target->host = pg_strdup(target->address != NULL ? target->address : DEFAULT_HOST);
	if (target->port == NULL && count_items(ports) > 1)
		target->port = pg_strdup(DEF_PGPORT_STR);
}

/*
 * targets_read takes the lists that libpq has made of its options.  libpq has
 * checked that they fit together.
 */
void
targets_read(Targets *targets, const char *hosts, const char *addresses,
			 const char *ports)
{
	int			count = Max(Max(count_items(hosts), count_items(addresses)), 1);

	targets->named = pg_malloc0(count * sizeof(Target));
	targets->named_count = count;
	targets->with_addresses = addresses != NULL;
	for (int i = 0; i < count; i++)
		read_target(&targets->named[i], hosts, addresses, ports, i);
}

/*
 * add notes an address of a server.
 */
static void
add(Targets *targets, const Target *named, const char *address)
{
	Target	   *found;

	targets->found = pg_realloc(targets->found,
								(targets->found_count + 1) * sizeof(Target));
	found = &targets->found[targets->found_count++];
	*found = *named;
	found->address = address != NULL ? pg_strdup(address) : NULL;
}

/*
 * add_known notes the addresses that a name had before: the name service may be gone
 * where the server is not.
 */
static void
add_known(Targets *targets, const Target *named, const Target *known, int count)
{
	for (int i = 0; i < count; i++)
	{
		if (known[i].host == named->host && known[i].port == named->port &&
			known[i].address != NULL)
			add(targets, named, known[i].address);
	}
}

/*
 * add_addresses looks a name up and notes all of its addresses.  If that fails, they
 * are those that are known, and if there are none, libpq is left to tell why.
 */
static void
add_addresses(Targets *targets, const Target *named, const Target *known, int count)
{
	struct addrinfo hints = {0};
	struct addrinfo *addresses = NULL;
	char		address[NI_MAXHOST];
	int			before = targets->found_count;

	hints.ai_socktype = SOCK_STREAM;
	if (getaddrinfo(named->host, NULL, &hints, &addresses) != 0)
		addresses = NULL;
	for (struct addrinfo *a = addresses; a != NULL; a = a->ai_next)
	{
		if (getnameinfo(a->ai_addr, a->ai_addrlen, address, sizeof(address),
						NULL, 0, NI_NUMERICHOST) == 0)
			add(targets, named, address);
	}
	if (targets->found_count == before)
		add_known(targets, named, known, count);
	if (targets->found_count == before)
		add(targets, named, NULL);
	if (addresses != NULL)
		freeaddrinfo(addresses);
}

/*
 * is_name tells whether a server is given by a name that has to be looked up.
 */
static bool
is_name(const Target *named)
{
	return named->address == NULL && named->host != NULL &&
		named->host[0] != '/' && named->host[0] != '@';
}

/*
 * find finds all servers anew.
 */
static void
find(Targets *targets)
{
	Target	   *known = targets->found;
	int			count = targets->found_count;

	targets->found = NULL;
	targets->found_count = 0;
	for (int i = 0; i < targets->named_count; i++)
	{
		if (is_name(&targets->named[i]))
			add_addresses(targets, &targets->named[i], known, count);
		else
			add(targets, &targets->named[i], targets->named[i].address);
	}
	for (int i = 0; i < count; i++)
		free(known[i].address);
	free(known);
	targets->current = 0;
	targets->failed = 0;
}

/*
 * targets_current returns the server to connect to.
 */
const Target *
targets_current(Targets *targets)
{
	if (targets->found_count == 0)
		find(targets);
	return &targets->found[targets->current];
}

/*
 * targets_next goes on to the next server, and tells whether all have been tried in
 * vain.  The names are then looked up again.
 */
bool
targets_next(Targets *targets)
{
	if (targets->found_count == 0)
		return true;
	targets->current = (targets->current + 1) % targets->found_count;
	if (++targets->failed < targets->found_count)
		return false;
	find(targets);
	targets->rounds++;
	return true;
}

/*
 * targets_work notes that the current server does what it is wanted for.
 */
void
targets_work(Targets *targets)
{
	targets->failed = 0;
	targets->rounds = 0;
}

/*
 * targets_untried returns how many are left to be tried before all have failed.
 */
int
targets_untried(const Targets *targets)
{
	return targets->found_count - targets->failed;
}
