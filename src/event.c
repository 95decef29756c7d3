/*-------------------------------------------------------------------------
 *
 * event.c
 *	  The history of leases, and NOTIFY.
 *
 * Every transition of a lease writes a row into lease.event, in the transaction
 * that makes it: so an event is there if and only if what it tells of has
 * happened.  Renewals are not events.
 *
 * Numbering.  The events of a lease are numbered without gaps.  Whoever writes one
 * has read the row of the lease, looks up the latest event after that
 * (event_number), replaces the version of the row that it has read, which fails if
 * somebody was faster, and only then writes the event (event_write).  So the row
 * is the lock between those who write events of one lease, as it is for
 * everything else.  The row keeps the number, too, as a witness to the end
 * of the history; a new lease goes on where a dropped one of its name has ended.
 *
 * Digests.  Each event has a digest of what it says and of the digest of
 * the event before (src/digest.c).  What lease.prune() removes is always the
 * beginning of a history, of which it keeps count, number and digest of the end; it
 * never removes the latest event.  So a missing or
 * altered event is found (sql/history.sql).  Who can alter the table and computes the
 * digests anew is not found out; that takes a superuser.  Nor is who adds events at
 * the end: the owner of the extension may, so that a dump can be restored.
 *
 * Append-only.  See src/keep.c.
 *
 * NOTIFY.  With lease.notify an event is also announced on channel "lease".  That
 * serialises the commits of the whole cluster, and is therefore off by default;
 * and nothing depends on it: anybody can send such a notification, and none is
 * sent while the server's queue is over half full.
 *
 * Locks: RowExclusive on lease.event, by change_begin_transition.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/event.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "args.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "clock.h"
#include "commands/async.h"
#include "digest.h"
#include "event.h"
#include "miscadmin.h"
#include "rows.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/json.h"
#include "utils/snapmgr.h"
#include "utils/typcache.h"
#include "utils/xid8.h"

SQL_CALLABLE(lease_event_digest);

/* Columns of lease.event, as sql/schema.sql creates them */
enum
{
	Anum_event_name = 1,
	Anum_event_seq,
	Anum_event_kind,
	Anum_event_epoch,
	Anum_event_holder,
	Anum_event_at,
	Anum_event_xid,
	Anum_event_pid,
	Anum_event_actor,
	Anum_event_detail,
	Anum_event_digest,
	Natts_event = Anum_event_digest
};

static const Oid column_types[Natts_event] = {
	[Anum_event_name - 1] = TEXTOID,
	[Anum_event_seq - 1] = INT8OID,
	[Anum_event_kind - 1] = TEXTOID,
	[Anum_event_epoch - 1] = INT8OID,
	[Anum_event_holder - 1] = TEXTOID,
	[Anum_event_at - 1] = TIMESTAMPTZOID,
	[Anum_event_xid - 1] = XID8OID,
	[Anum_event_pid - 1] = INT4OID,
	[Anum_event_actor - 1] = TEXTOID,
	[Anum_event_detail - 1] = JSONBOID,
	[Anum_event_digest - 1] = BYTEAOID
};

/* The channel of notifications */
#define EVENT_CHANNEL	"lease"

/* Part of the server's queue beyond which we do not add to it */
#define QUEUE_TOO_FULL	0.5

/*
 * kind_name returns the word for a kind of event.
 */
static const char *
kind_name(EventKind kind)
{
	switch (kind)
	{
		case EVENT_CREATED:
			return "created";
		case EVENT_ALTERED:
			return "altered";
		case EVENT_DROPPED:
			return "dropped";
		case EVENT_GRANTED:
			return "granted";
		case EVENT_RELEASED:
			return "released";
		case EVENT_RESERVED:
			return "reserved";
		case EVENT_EXPIRED:
			return "expired";
		case EVENT_REVOKED:
			return "revoked";
		case EVENT_SUPERSEDED:
			return "superseded";
		case EVENT_HANDOVER:
			return "handover";
		case EVENT_EVICTED:
			return "evicted";
	}
	return NULL;				/* keep compiler quiet */
}

/*
 * event_begin starts a list of events of a lease.
 */
void
event_begin(EventList *list, const char *name)
{
	list->name = name;
	list->count = 0;
}

/*
 * event_add appends an event to a list.
 */
void
event_add(EventList *list, EventKind kind, int64 epoch, const char *holder,
		  Datum detail)
{
	Event	   *event;

	if (list->count == EVENTS_MAX)
		elog(ERROR, "too many events of one change of a lease");
	event = &list->events[list->count++];
	event->kind = kind;
	event->epoch = epoch;
	event->holder = holder;
	event->detail = detail;
}

/*
 * begin_member begins the next member of a detail, which is a JSON object that
 * event_detail will close.
 */
static void
begin_member(StringInfo detail, const char *key)
{
	appendStringInfoString(detail, detail->len == 0 ? "{" : ", ");
	escape_json(detail, key);
	appendStringInfoString(detail, ": ");
}

/*
 * event_detail_string appends a string to a detail, unless it is NULL.
 */
void
event_detail_string(StringInfo detail, const char *key, const char *value)
{
	if (!value)
		return;
	begin_member(detail, key);
	escape_json(detail, value);
}

/*
 * event_detail_raw appends some JSON to a detail.
 */
void
event_detail_raw(StringInfo detail, const char *key, const char *json)
{
	begin_member(detail, key);
	appendStringInfoString(detail, json);
}

/*
 * event_detail_seconds appends a length of time to a detail, in seconds.
 */
void
event_detail_seconds(StringInfo detail, const char *key, int64 microseconds)
{
	int			digits = 6;
	int64		fraction = microseconds % USECS_PER_SEC;

	begin_member(detail, key);
	appendStringInfo(detail, INT64_FORMAT, microseconds / USECS_PER_SEC);
	if (fraction == 0)
		return;
	for (; fraction % 10 == 0; digits--)
		fraction /= 10;
	appendStringInfo(detail, ".%0*d", digits, (int) fraction);
}

/*
 * event_detail makes a jsonb of a detail, or 0 if there is nothing in it.
 */
Datum
event_detail(StringInfo detail)
{
	if (detail->len == 0)
		return (Datum) 0;
	appendStringInfoChar(detail, '}');
	return DirectFunctionCall1(jsonb_in, CStringGetDatum(detail->data));
}

/*
 * check_columns raises an error unless a row type is that of lease.event for which
 * this library was built.
 */
static void
check_columns(TupleDesc desc)
{
	bool		matches = desc->natts == Natts_event;

	for (int i = 0; matches && i < Natts_event; i++)
		matches = TupleDescAttr(desc, i)->atttypid == column_types[i];
	if (!matches)
		catalog_raise_version();
}

/*
 * open_events opens lease.event for a caller that has locked it.
 */
static Relation
open_events(void)
{
	Catalog		relations;
	Relation	rel;

	catalog_get(&relations);
	rel = table_open(relations.event, NoLock);
	check_columns(RelationGetDescr(rel));
	return rel;
}

/*
 * event_number looks up the latest event of a lease, so that those of the list
 * can follow it, and puts the number of the last of them into the row.
 *
 * The row may know of more events than there are, if somebody has tampered with
 * them.  Its number is then not used again; the gap is found as such.
 */
void
event_number(EventList *list, LeaseRow *row)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	Relation	rel = open_events();
	Relation	index;
	IndexScanDesc scan;
	ScanKeyData key;
	TupleTableSlot *slot;

	list->last_seq = 0;
	list->last_digest = (Datum) 0;
	index = index_open(primary_key_index(rel), AccessShareLock);
	slot = table_slot_create(rel, NULL);
	rows_set_name_key(&key, list->name);
	scan = rows_begin_scan(rel, index, &key, 1);
	while (index_getnext_slot(scan, BackwardScanDirection, slot))
	{
		bool		isnull;

		if (!rows_are_visible(slot, snapshot))
			continue;
		list->last_seq = DatumGetInt64(slot_getattr(slot, Anum_event_seq,
													&isnull));
		list->last_digest =
			PointerGetDatum(PG_DETOAST_DATUM_COPY(slot_getattr(slot,
															   Anum_event_digest,
															   &isnull)));
		break;
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	index_close(index, AccessShareLock);
	table_close(rel, NoLock);
	UnregisterSnapshot(snapshot);

	list->last_seq = Max(list->last_seq, row->event_seq);
	row->event_seq = list->last_seq + list->count;
}

/*
 * announce sends a notification of an event, if that is wanted.
 */
static void
announce(const char *name, int64 seq, const Event *event)
{
	StringInfoData payload;

	if (!lease_notify ||
		DatumGetFloat8(OidFunctionCall0(F_PG_NOTIFICATION_QUEUE_USAGE)) >
		QUEUE_TOO_FULL)
		return;
	initStringInfo(&payload);
	event_detail_string(&payload, "name", name);
	event_detail_raw(&payload, "seq", psprintf(INT64_FORMAT, seq));
	event_detail_string(&payload, "kind", kind_name(event->kind));
	if (event->epoch != 0)
		event_detail_raw(&payload, "epoch",
						 psprintf(INT64_FORMAT, event->epoch));
	event_detail_string(&payload, "holder", event->holder);
	appendStringInfoChar(&payload, '}');
	Async_Notify(EVENT_CHANNEL, payload.data);
	pfree(payload.data);
}

/*
 * event_write writes the events of a list.  The caller has replaced the row of
 * the lease for which they were numbered.
 */
void
event_write(EventList *list)
{
	Relation	rel = open_events();
	Clock		clock;
	const char *actor = GetUserNameFromId(GetUserId(), false);

	clock_read(&clock);
	for (int i = 0; i < list->count; i++)
	{
		const Event *event = &list->events[i];
		Datum		values[Natts_event] = {0};
		bool		nulls[Natts_event] = {false};

#define SET(column, value) \
	(values[Anum_event_ ## column - 1] = (value))
#define SET_IF(condition, column, value) \
	do { \
		if (condition) \
			SET(column, value); \
		else \
			nulls[Anum_event_ ## column - 1] = true; \
	} while (0)

		list->last_seq++;
		SET(name, CStringGetTextDatum(list->name));
		SET(seq, Int64GetDatum(list->last_seq));
		SET(kind, CStringGetTextDatum(kind_name(event->kind)));
		SET_IF(event->epoch != 0, epoch, Int64GetDatum(event->epoch));
		SET_IF(event->holder != NULL, holder,
			   CStringGetTextDatum(event->holder));
		SET(at, TimestampTzGetDatum(clock.wall_tx));
		SET(xid, FullTransactionIdGetDatum(GetTopFullTransactionId()));
		SET(pid, Int32GetDatum(MyProcPid));
		SET(actor, CStringGetTextDatum(actor));
		SET_IF(event->detail != (Datum) 0, detail, event->detail);
		list->last_digest = digest_row(list->last_digest, RelationGetDescr(rel),
									   values, nulls, Anum_event_digest);
		SET(digest, list->last_digest);

#undef SET
#undef SET_IF

		rows_insert(rel, heap_form_tuple(RelationGetDescr(rel), values, nulls));
		announce(list->name, list->last_seq, event);
	}
	table_close(rel, NoLock);
	CommandCounterIncrement();
}

/*
 * lease_event_digest: lease.event_digest(previous, event)
 *
 * What the digest of an event has to be.
 */
Datum
lease_event_digest(PG_FUNCTION_ARGS)
{
	HeapTupleHeader event;
	HeapTupleData tuple;
	TupleDesc	desc;
	Datum		values[Natts_event];
	bool		nulls[Natts_event];
	Datum		digest;

	if (PG_ARGISNULL(1))
		arg_raise_null("event");
	event = PG_GETARG_HEAPTUPLEHEADER(1);
	desc = lookup_rowtype_tupdesc(HeapTupleHeaderGetTypeId(event),
								  HeapTupleHeaderGetTypMod(event));
	check_columns(desc);
	tuple.t_len = HeapTupleHeaderGetDatumLength(event);
	ItemPointerSetInvalid(&tuple.t_self);
	tuple.t_tableOid = InvalidOid;
	tuple.t_data = event;
	heap_deform_tuple(&tuple, desc, values, nulls);
	for (int i = 0; i < Natts_event; i++)
	{
		if (nulls[i] && i != Anum_event_epoch - 1 &&
			i != Anum_event_holder - 1 && i != Anum_event_detail - 1 &&
			i != Anum_event_digest - 1)
			arg_raise_null("column of an event");
	}
	digest = digest_row(PG_ARGISNULL(0) ? (Datum) 0 : PG_GETARG_DATUM(0),
						desc, values, nulls, Anum_event_digest);
	ReleaseTupleDesc(desc);
	PG_RETURN_DATUM(digest);
}
