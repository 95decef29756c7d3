/*-------------------------------------------------------------------------
 *
 * digest.c
 *	  Digests of rows.
 *
 * The rows of a history, and the records of a lease, are chained: each has a SHA-256
 * digest of all that it says, and of the digest of the one before.  So a row that is
 * missing, or was altered, gives itself away.
 *
 * What is digested is the same on every server: numbers in network order, strings in
 * UTF-8, so that a chain is also right in a database of another encoding into which it
 * was restored; but for jsonb with keys beyond ASCII, whose order depends on the
 * encoding.  Each column is preceded by whether it is null, and each string by its
 * length, so that no two rows have the same bytes.
 *
 * Locks: none.
 *
 * Copyright (c) 2026, the lease developers
 *
 * IDENTIFICATION
 *	  src/digest.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "args.h"
#include "catalog.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "common/string.h"
#include "digest.h"
#include "libpq/pqformat.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"
#include "utils/xid8.h"

SQL_CALLABLE(lease_record_digest);

/* Columns of lease.record, the last of which is the digest */
#define RECORD_COLUMNS	20

/*
 * in_utf8 returns a string in UTF-8, or as it is if that cannot be: in a database
 * without an encoding, or of bytes that are no character.
 */
static const char *
in_utf8(const char *string)
{
	int			encoding = GetDatabaseEncoding();
	int			length = (int) strlen(string);
	Oid			conversion;
	char	   *converted;

	if (encoding == PG_UTF8 || encoding == PG_SQL_ASCII || pg_is_ascii(string))
		return string;
	conversion = FindDefaultConversionProc(encoding, PG_UTF8);
	if (!OidIsValid(conversion))
		return string;
	converted = palloc((Size) length * MAX_CONVERSION_GROWTH + 1);
	if (pg_do_encoding_conversion_buf(conversion, encoding, PG_UTF8,
									  (unsigned char *) unconstify(char *, string),
									  length, (unsigned char *) converted,
									  length * MAX_CONVERSION_GROWTH + 1,
									  true) != length)
		return string;
	return converted;
}

/*
 * send_string appends a string to what is digested so that it cannot be mistaken
 * for another one with what follows.
 */
static void
send_string(StringInfo content, const char *string)
{
	string = in_utf8(string);
	pq_sendint32(content, (uint32) strlen(string));
	appendBinaryStringInfo(content, string, (int) strlen(string));
}

/*
 * send_bytes appends bytes to what is digested.
 */
static void
send_bytes(StringInfo content, Datum value)
{
	bytea	   *bytes = DatumGetByteaPP(value);

	appendBinaryStringInfo(content, VARDATA_ANY(bytes),
						   (int) VARSIZE_ANY_EXHDR(bytes));
}

/*
 * send_value appends a value, which is not null, to what is digested.
 */
static void
send_value(StringInfo content, Oid type, Datum value)
{
	switch (type)
	{
		case TEXTOID:
			send_string(content, TextDatumGetCString(value));
			return;
		case INT4OID:
			pq_sendint32(content, (uint32) DatumGetInt32(value));
			return;
		case INT8OID:
			pq_sendint64(content, (uint64) DatumGetInt64(value));
			return;
		case TIMESTAMPTZOID:
			pq_sendint64(content, (uint64) DatumGetTimestampTz(value));
			return;
		case XID8OID:
			pq_sendint64(content,
						 U64FromFullTransactionId(DatumGetFullTransactionId(value)));
			return;
		case JSONBOID:
			{
				Jsonb	   *json = DatumGetJsonbP(value);

				send_string(content,
							JsonbToCString(NULL, &json->root, VARSIZE(json)));
				return;
			}
		case BYTEAOID:
			send_bytes(content, value);
			return;
	}
	elog(ERROR, "a column of type %u cannot be digested", type);
}

/*
 * digest_row digests a row, but for the column of its digest, and the digest of the
 * row before (0: there is none).
 */
Datum
digest_row(Datum previous, TupleDesc desc, const Datum *values, const bool *nulls,
		   AttrNumber digest_column)
{
	StringInfoData content;
	bytea	   *bytes;
	Datum		digest;

	initStringInfo(&content);
	appendStringInfoSpaces(&content, VARHDRSZ);
	if (previous != (Datum) 0)
		send_bytes(&content, previous);
	for (int i = 0; i < desc->natts; i++)
	{
		if (i == digest_column - 1)
			continue;
		pq_sendbyte(&content, !nulls[i]);
		if (!nulls[i])
			send_value(&content, TupleDescAttr(desc, i)->atttypid, values[i]);
	}
	bytes = (bytea *) content.data;
	SET_VARSIZE(bytes, content.len);
	digest = DirectFunctionCall1(sha256_bytea, PointerGetDatum(bytes));
	pfree(content.data);
	return digest;
}

/*
 * lease_record_digest: lease.record_digest(record)
 *
 * What the digest of a record, which is its last column, has to be.  The digest of the
 * record before is another column.
 */
Datum
lease_record_digest(PG_FUNCTION_ARGS)
{
	HeapTupleHeader record;
	HeapTupleData tuple;
	TupleDesc	desc;
	Datum		values[RECORD_COLUMNS];
	bool		nulls[RECORD_COLUMNS];
	Datum		digest;

	if (PG_ARGISNULL(0))
		arg_raise_null("record");
	record = PG_GETARG_HEAPTUPLEHEADER(0);
	desc = lookup_rowtype_tupdesc(HeapTupleHeaderGetTypeId(record),
								  HeapTupleHeaderGetTypMod(record));
	if (desc->natts != RECORD_COLUMNS ||
		TupleDescAttr(desc, RECORD_COLUMNS - 1)->atttypid != BYTEAOID)
		catalog_raise_version();
	tuple.t_len = HeapTupleHeaderGetDatumLength(record);
	ItemPointerSetInvalid(&tuple.t_self);
	tuple.t_tableOid = InvalidOid;
	tuple.t_data = record;
	heap_deform_tuple(&tuple, desc, values, nulls);
	digest = digest_row((Datum) 0, desc, values, nulls, RECORD_COLUMNS);
	ReleaseTupleDesc(desc);
	PG_RETURN_DATUM(digest);
}
