/*-------------------------------------------------------------------------
 *
 * event.h
 *	  The history of leases, and NOTIFY.
 *
 * Copyright (c) 2026, the lease developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEASE_EVENT_H
#define LEASE_EVENT_H

#include "lease.h"

#include "lib/stringinfo.h"
#include "store.h"

/* What has happened; lease.event.kind is the word for it. */
typedef enum EventKind
{
	EVENT_CREATED,
	EVENT_ALTERED,
	EVENT_DROPPED,
	EVENT_GRANTED,
	EVENT_RELEASED,
	EVENT_RESERVED,				/* released to a successor */
	EVENT_EXPIRED,				/* and somebody takes over */
	EVENT_REVOKED,
	EVENT_SUPERSEDED,			/* reclaimed by its holder */
	EVENT_HANDOVER,				/* its holder was asked to step down */
	EVENT_EVICTED				/* sessions in its way were ended */
} EventKind;

/* One event that is about to be written */
typedef struct Event
{
	EventKind	kind;
	int64		epoch;			/* 0: none */
	const char *holder;			/* NULL: none */
	Datum		detail;			/* jsonb; 0: none */
} Event;

/* More events than one change of a lease makes */
#define EVENTS_MAX	4

/* The events of one change of a lease, in their order */
typedef struct EventList
{
	const char *name;
	int			count;
	Event		events[EVENTS_MAX];

	/* The latest event before them, set by event_number */
	int64		last_seq;		/* 0: none */
	Datum		last_digest;	/* bytea; 0: none */
} EventList;

extern void event_begin(EventList *list, const char *name);
extern void event_add(EventList *list, EventKind kind, int64 epoch,
					  const char *holder, Datum detail);
extern void event_number(EventList *list, LeaseRow *row);
extern void event_write(EventList *list);

extern void event_detail_string(StringInfo detail, const char *key,
								const char *value);
extern void event_detail_raw(StringInfo detail, const char *key,
							 const char *json);
extern void event_detail_seconds(StringInfo detail, const char *key,
								 int64 microseconds);
extern Datum event_detail(StringInfo detail);

#endif							/* LEASE_EVENT_H */
