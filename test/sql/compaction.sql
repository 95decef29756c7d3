--
-- compaction: what is not needed any more is removed, and nothing else can be.
--
-- lease.compact() removes what need not be kept, up to a number or an age, and stops at
-- an open attempt and at a pin.  What stands stays, in its place.  A boundary vouches for
-- what is left below; lease.verify_authority() is content after each of these, and after
-- everything else that can be done to the records names what it finds.
--
-- Time passes by lease.clock_offset.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
RESET client_min_messages;

SELECT lease.create('com', ttl => '10 days'), lease.create('com/young', ttl => '10 days') \g /dev/null
SELECT epoch AS a FROM lease.acquire('com', 'A') \gset
SELECT epoch AS young FROM lease.acquire('com/young', 'A') \gset
CREATE VIEW there AS
	SELECT array_agg(seq ORDER BY seq) FILTER (WHERE kind <> 'boundary') AS records,
		array_agg(seq ORDER BY seq) FILTER (WHERE kind = 'boundary') AS boundaries FROM lease.record WHERE lease = 'com';
CREATE VIEW edge AS
	SELECT seq, up_to, removed, kept, kept_sum, holder, (SELECT position FROM lease.floor WHERE floor = 'com#records') AS floor FROM lease.boundary WHERE lease = 'com';
PREPARE verify AS SELECT verified, records, removed, last_seq, problem FROM lease.verify_authority('com');

-- What can be removed at once has to be kept for no time, what can be in an hour for one.
SELECT outcome, seq FROM lease.decide('com', :a, 'at once', 'yes', keep => '0');
SELECT outcome, seq FROM lease.decide('com', :a, 'in an hour', 'yes', keep => '1 h');
SELECT outcome, seq FROM lease.decide('com', :a, 'for ever', 'yes');
SELECT outcome, attempt FROM lease.open_attempt('com', :a, 'at once');
SELECT outcome FROM lease.settle_attempt('com', :a, 4, 'committed', keep => '0');
SELECT outcome, attempt FROM lease.open_attempt('com', :a, 'in an hour');
SELECT outcome FROM lease.settle_attempt('com', :a, 6, 'aborted', keep => '1 h');
SELECT outcome, attempt FROM lease.open_attempt('com', :a, 'for ever');
SELECT outcome FROM lease.settle_attempt('com', :a, 8, 'committed');
SELECT outcome, seq FROM lease.advance_cursor('com', :a, 'c', NULL, NULL, '1', 'copy');
SELECT outcome, seq FROM lease.advance_cursor('com', :a, 'c', '1', 'copy', '2', 'copy');
SELECT lease.declare_destructive('com', :a, 'c', 'delete');
SELECT outcome, seq FROM lease.advance_cursor('com', :a, 'd', NULL, NULL, '1', 'copy');
SELECT outcome FROM lease.advance_floor('com', :a, 'com/f', 10);
SELECT outcome FROM lease.advance_floor('com', :a, 'com/f', 20);
SELECT outcome FROM lease.advance_floor('com', :a, 'com/g', 10);
SELECT outcome, attempt FROM lease.open_attempt('com', :a, 'open');
SELECT outcome, seq FROM lease.decide('com', :a, 'at once, too', 'yes', keep => '0');
SELECT seq, kind, subject, kept_until - at AS keep FROM lease.record WHERE lease = 'com' AND kept_until < 'infinity' ORDER BY seq;
SELECT * FROM there;
EXECUTE verify;

--
-- Up to a number
--

-- Below the first there is nothing, and where nothing is removed nothing is recorded.
SELECT * FROM lease.compact('com', :a, before => 1);
SELECT * FROM lease.compact('com', :a, before => 0);
SELECT * FROM lease.compact('com', :a, before => -9223372036854775808);
SELECT lease.compact('com', :a);
SELECT lease.compact('com', :a, older_than => '-1 s');
SELECT lease.compact('com', :a, older_than => '1 month');
SELECT * FROM there;
SELECT count(*) FROM edge;

-- 1 goes. 4 does not, whose settlement is beyond.
SELECT * FROM lease.compact('com', :a, before => 5);
SELECT * FROM there;
SELECT * FROM edge;
EXECUTE verify;
-- Once more changes nothing.
SELECT * FROM lease.compact('com', :a, before => 5);
SELECT * FROM lease.compact('com', :a, before => 2);
SELECT * FROM edge;
-- An attempt goes with its settlement, a step of the cursor with the next one.
SELECT * FROM lease.compact('com', :a, before => 12);
SELECT * FROM there;
SELECT * FROM edge;
EXECUTE verify;

-- What is open stops it, and so does a pin; the lower one is told.
SELECT * FROM lease.compact('com', :a, before => 1000);
SELECT * FROM there;
EXECUTE verify;
SELECT outcome FROM lease.pin('com#records', 18, 'reader', '1 h');
SELECT * FROM lease.compact('com', :a, before => 1000);
SELECT outcome FROM lease.pin('com#records', 17, 'reader', '1 h');
SELECT * FROM lease.compact('com', :a, before => 1000);
SELECT * FROM lease.pin('com#records', 16, 'reader', '1 h');
SELECT outcome FROM lease.settle_attempt('com', :a, 17, 'aborted', keep => '0');
SELECT * FROM lease.compact('com', :a, before => 1000);
SELECT outcome FROM lease.pin('com#records', 20, 'reader', '1 h');
-- 17 is below the pin, but its settlement, 22, is not.
SELECT * FROM lease.compact('com', :a, before => 1000);
SELECT * FROM there;
SELECT * FROM edge;
EXECUTE verify;
SELECT lease.unpin('com#records', 'reader');

-- Rolled back, and in a savepoint
BEGIN;
SELECT * FROM lease.compact('com', :a, before => 1000);
EXECUTE verify;
ROLLBACK;
SELECT * FROM there;
BEGIN;
SELECT outcome FROM lease.pin('com#records', 20, 'reader', '1 h');
SAVEPOINT s;
SELECT * FROM lease.compact('com', :a, before => 1000);
SELECT lease.unpin('com#records', 'reader');
SELECT removed, up_to, held_by FROM lease.compact('com', :a, before => 1000);
ROLLBACK TO s;
EXECUTE verify;
ROLLBACK;
BEGIN READ ONLY;
SELECT lease.compact('com', :a, before => 1000);
COMMIT;
EXECUTE verify;

--
-- Up to an age
--

-- Nothing is an hour old; later everything is, and the hour of what had to be kept is over.
SELECT * FROM lease.compact('com', :a, older_than => '1 h');
SET lease.clock_offset = '59 min';
SELECT removed, up_to FROM lease.compact('com', :a, older_than => '1 h');
SELECT outcome FROM lease.decide('com', :a, 'younger', 'yes', keep => '0');
-- (Below the boundary that there is, up to which it was compacted already.)
SET lease.clock_offset = '61 min';
SELECT * FROM lease.compact('com', :a, before => 3, older_than => '1 h');
SELECT * FROM there;
SELECT * FROM edge;
EXECUTE verify;
SELECT * FROM lease.compact('com', :a, before => 1000, older_than => '1 h');
SELECT * FROM there;
SELECT * FROM edge;
EXECUTE verify;
SELECT * FROM lease.compact('com', :a, older_than => '0');
SELECT * FROM lease.compact('com', :a, before => 1000);
SELECT * FROM lease.compact('com', :a, before => 9223372036854775807);
SELECT * FROM there;
SELECT * FROM edge;
EXECUTE verify;
RESET lease.clock_offset;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT outcome FROM lease.decide('com', :a, 'serializable', 'yes', keep => '0');
SELECT removed, held_by FROM lease.compact('com', :a, before => 1000);
COMMIT;
EXECUTE verify;

--
-- What stands
--

SELECT kind, subject, outcome, kept_until FROM lease.outcome WHERE lease = 'com' ORDER BY seq;
SELECT outcome, standing_verdict FROM lease.decide('com', :a, 'for ever', 'no');
SELECT outcome FROM lease.open_attempt('com', :a, 'for ever');
SELECT outcome FROM lease.settle_attempt('com', :a, 8, 'committed');
SELECT cursor, position, phase FROM lease.cursor WHERE lease = 'com' ORDER BY cursor;
SELECT outcome FROM lease.advance_cursor('com', :a, 'c', '2', 'copy', '3', 'copy');
SELECT lease.is_destructive('com', 'c', 'delete'), lease.declare_destructive('com', :a, 'c', 'delete') AS anew;
SELECT outcome, floor_position FROM lease.advance_floor('com', :a, 'com/f', 30);
-- What is gone can be decided, and attempted, anew.
SELECT outcome, standing_verdict FROM lease.decide('com', :a, 'at once', 'no');
SELECT outcome FROM lease.open_attempt('com', :a, 'at once');
EXECUTE verify;

-- Only by who holds the lease
BEGIN;
SELECT removed > 0 AS removed FROM lease.compact('com', :a, before => 1000);
SELECT lease.revoke('com') = :a AS revoked;
COMMIT;
SELECT lease.release('com', :a);
SELECT lease.compact('com', :a, before => 1000);
SELECT epoch AS b FROM lease.acquire('com', 'B') \gset
SELECT lease.compact('com', :a, before => 1000);
SELECT lease.record_compaction('com', :b, 1000, NULL);
SELECT lease.compact('com/none', :b, before => 1000);
EXECUTE verify;
-- Of a lease without records there is nothing to be compacted.
SELECT * FROM lease.compact('com/young', :young, before => 1000);
SELECT * FROM lease.verify_authority('com/young');
SELECT * FROM lease.verify_authority('com/none');
-- Of a lease of which everything is gone the boundary stays.
SELECT outcome FROM lease.decide('com/young', :young, 'x', 'y', keep => '0');
SELECT * FROM lease.compact('com/young', :young, before => 1000);
SELECT * FROM lease.verify_authority('com/young');
SELECT * FROM lease.compact('com/young', :young, before => 1000);
SELECT up_to, removed, kept, kept_sum, kept_digest FROM lease.boundary WHERE lease = 'com/young';

--
-- Nothing else is removed, or altered
--

-- Not even by a superuser,
UPDATE lease.record SET verdict = 'no' WHERE lease = 'com';
SELECT :'LAST_ERROR_MESSAGE' AS message;
DELETE FROM lease.record WHERE lease = 'com';
TRUNCATE lease.record;
INSERT INTO lease.record SELECT * FROM lease.record WHERE lease = 'com' ON CONFLICT (lease, seq) DO UPDATE SET verdict = 'no';
-- nor as what is replicated.
SET session_replication_role = replica;
UPDATE lease.record SET verdict = 'no' WHERE lease = 'com';
DELETE FROM lease.record WHERE lease = 'com';
TRUNCATE lease.record;
RESET session_replication_role;
-- What is refused to the rows that are there is no way of writing others.
EXECUTE verify;

--
-- Who disables the trigger is found out
--

-- tamper executes a command with nothing in its way, and returns what is then said of a
-- lease: of what is not named, null.  It undoes the command.
CREATE FUNCTION tamper(sql text, name text DEFAULT 'com') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	c name;
	count bigint;
	answer text;
BEGIN
	ALTER TABLE lease.record DISABLE TRIGGER ALL;
	FOR c IN SELECT conname FROM pg_constraint WHERE conrelid = 'lease.record'::regclass AND contype = 'c' LOOP
		EXECUTE format('ALTER TABLE lease.record DROP CONSTRAINT %I', c);
	END LOOP;
	EXECUTE sql;
	GET DIAGNOSTICS count = ROW_COUNT;
	IF count = 0 THEN
		answer := 'nothing was done: ' || sql;
	ELSE
		SELECT CASE WHEN v.verified THEN 'VERIFIED' ELSE coalesce(v.problem, 'NO PROBLEM') END INTO answer
			FROM lease.verify_authority(tamper.name) AS v;
	END IF;
	RAISE 'undo' USING ERRCODE = 'UNDO0';
EXCEPTION
	WHEN SQLSTATE 'UNDO0' THEN RETURN answer;
END;
$$;

-- Some more above the boundary, so that there is one of each kind on both sides.
SELECT s.outcome FROM lease.attempt AS t, lease.settle_attempt('com', :b, t.attempt, 'committed') AS s WHERE t.lease = 'com' AND t.status = 'open';
SELECT lease.declare_destructive('com', :b, 'd', 'delete');
SELECT outcome FROM lease.decide('com', :b, 'a transition', 'yes', '{"why": 1}', 'here', 'there', keep => '1 day');
SELECT b.up_to AS up_to, b.seq AS boundary, c.last_seq AS last FROM lease.boundary b JOIN lease.record_chain c USING (lease) WHERE lease = 'com' \gset
SELECT seq, kind, subject, seq <= :up_to AS below FROM lease.record WHERE lease = 'com' ORDER BY seq;
SELECT :up_to AS up_to, :boundary AS boundary, :last AS last;
CREATE TABLE original AS SELECT * FROM lease.record WHERE lease = 'com';
EXECUTE verify;
SELECT tamper('SELECT 1');

-- Each one removed
SELECT seq, kind, seq <= :up_to AS below, tamper(format('DELETE FROM lease.record WHERE lease = %L AND seq = %s', lease, seq)) AS problem
	FROM original ORDER BY seq;
-- Several, below and above; all
SELECT tamper('DELETE FROM lease.record WHERE lease = ''com'' AND kind IN (''cursor'', ''declared'') AND seq <= ' || :up_to);
SELECT tamper('DELETE FROM lease.record WHERE lease = ''com'' AND seq BETWEEN 33 AND 34');
SELECT tamper('DELETE FROM lease.record WHERE lease = ''com'' AND seq > ' || :up_to || ' AND kind <> ''boundary''');
SELECT tamper('DELETE FROM lease.record WHERE lease = ''com'' AND seq <= ' || :up_to);
SELECT tamper('DELETE FROM lease.record WHERE lease = ''com''');

-- Each column of each altered: one row for each column, and how often the record was named.
CREATE TABLE alteration (attnum int, col name, to_what text);
INSERT INTO alteration
	SELECT attnum, attname, CASE attname
			WHEN 'lease' THEN 'lease || ''x'''
			WHEN 'seq' THEN 'seq + 1000000'
			WHEN 'kind' THEN 'CASE kind WHEN ''floor'' THEN ''cursor'' ELSE ''floor'' END'
			WHEN 'xid' THEN '((xid::text::bigint + 1)::text)::xid8'
			WHEN 'kept_until' THEN 'CASE WHEN kept_until = ''infinity'' THEN now() ELSE ''infinity'' END'
			WHEN 'at' THEN 'at + interval ''1 microsecond'''
			WHEN 'digest' THEN 'sha256(digest)'
			WHEN 'previous' THEN 'sha256(coalesce(previous, ''''))'
			WHEN 'detail' THEN '''{"altered": true}'''
			ELSE CASE atttypid WHEN 'bigint'::regtype THEN format('coalesce(%I, 0) + 1', attname)
				ELSE format('coalesce(%I, '''') || ''x''', attname) END END
	FROM pg_attribute WHERE attrelid = 'lease.record'::regclass AND attnum > 0;
SELECT a.col, count(*) AS records,
		count(*) FILTER (WHERE problem ~ format('^(the boundary, )?record %s,? was altered$', r.seq)) AS named,
		count(*) FILTER (WHERE problem ~ format('^(the boundary, )?record %s,? is missing$', r.seq)) AS missing,
		string_agg(r.seq || ' ' || r.kind || ': ' || problem, E'\n' ORDER BY r.seq)
			FILTER (WHERE problem !~ format('^(the boundary, )?record %s,? (was altered|is missing)$', r.seq)) AS others
	FROM alteration AS a, original AS r,
		LATERAL (SELECT tamper(format('UPDATE lease.record SET %I = %s WHERE lease = %L AND seq = %s', a.col, a.to_what, r.lease, r.seq)) OFFSET 0) AS t(problem)
	GROUP BY a.attnum, a.col ORDER BY a.attnum;

-- And digested anew: above the boundary the next one says so, below it the boundary does.
SELECT seq, kind, seq <= :up_to AS below,
		tamper(format('WITH n AS (SELECT jsonb_populate_record(r, ''{"holder": "C"}'') AS r FROM lease.record r WHERE lease = %L AND seq = %s)'
			' UPDATE lease.record AS x SET holder = ''C'', digest = lease.record_digest(n.r) FROM n WHERE x.lease = %1$L AND x.seq = %2$s', lease, seq)) AS problem
	FROM original ORDER BY seq;

-- The boundary: what it vouches for, without and with a new digest; what is no boundary at all.
SELECT n, d.detail - 'digest' - 'kept_digest' AS detail, with_digest,
		tamper(format('WITH n AS (SELECT jsonb_populate_record(r, jsonb_build_object(''detail'', r.detail || %L)) AS r FROM lease.record r WHERE lease = ''com'' AND seq = %s)'
			' UPDATE lease.record AS x SET detail = (n.r).detail, digest = CASE WHEN %L THEN lease.record_digest(n.r) ELSE x.digest END'
			' FROM n WHERE x.lease = ''com'' AND x.seq = %2$s', d.detail, :boundary, with_digest)) AS problem
	FROM (VALUES (1, '{"up_to": 1}'::jsonb), (2, '{"up_to": 30}'), (3, '{"removed": 0}'), (4, '{"kept": 1}'), (5, '{"kept": 1, "removed": 23}'), (6, '{"kept_sum": 1}'),
			(7, '{"kept_digest": "00"}'), (8, '{"digest": "00"}'), (9, '{"up_to": null}'), (10, '{"up_to": "none"}'), (11, '{"kept_digest": "none"}')) AS d(n, detail),
		unnest('{false,true}'::boolean[]) AS with_digest
	ORDER BY n, with_digest;
SELECT tamper('UPDATE lease.record SET detail = NULL WHERE lease = ''com'' AND seq = ' || :boundary);

-- The row that is the witness to the end
SELECT change, tamper(format('UPDATE lease.record_chain SET %s WHERE lease = ''com''', change)) AS problem
	FROM unnest('{last_seq = last_seq + 1,last_seq = last_seq + 5,last_seq = last_seq - 1,last_digest = sha256(last_digest),boundary = NULL,boundary = boundary - 1,boundary = boundary + 1,lease = ''comx''}'::text[]) AS change;
SELECT tamper('DELETE FROM lease.record_chain WHERE lease = ''com''');
SELECT tamper('WITH d AS (DELETE FROM lease.record_chain WHERE lease = ''com'') DELETE FROM lease.record WHERE lease = ''com''');

-- Records that were never written, or are gone
CREATE FUNCTION forge(forged bigint, after bigint) RETURNS text LANGUAGE sql AS $$
	SELECT format('INSERT INTO lease.record SELECT (jsonb_populate_record(f, jsonb_build_object(''digest'', lease.record_digest(f)))).*'
		' FROM lease.record AS r, jsonb_populate_record(r, jsonb_build_object(''seq'', %s, ''subject'', ''forged %1$s'', ''previous'', r.digest)) AS f'
		' WHERE r.lease = ''com'' AND r.seq = %s', forged, after)
$$;
SELECT seq, tamper(forge(seq, 3)) AS problem FROM unnest(ARRAY[1, 2, :up_to]) AS seq;
SELECT tamper(forge(1, 3) || '; ' || forge(2, 3));
SELECT seq, tamper(forge(seq, :last)) AS problem FROM unnest(ARRAY[:last + 1, :last + 2]) AS seq;
SELECT tamper(forge(:last + 1, :last - 1));
-- One of a leader who was gone by then, although the end bears witness to it
SELECT regexp_replace(tamper(replace(forge(:last + 1, :last), '''previous''', format('''epoch'', %s, ''previous''', :a))
		|| format('; UPDATE lease.record_chain c SET last_seq = r.seq, last_digest = r.digest FROM lease.record r WHERE c.lease = ''com'' AND r.lease = ''com'' AND r.seq = %s', :last + 1)),
	'under epoch \d+, after epoch \d+', 'under epoch <A''s>, after epoch <B''s>') AS problem;

-- Floors: the row altered, and removed; one that no record knows
SELECT change, tamper(format('UPDATE lease.floor SET %s', change)) AS problem
	FROM unnest('{position = 31 WHERE floor = ''com/f'',position = 10 WHERE floor = ''com/f'',seq = 15 WHERE floor = ''com/f'',lease = ''com/young'' WHERE floor = ''com/f'',floor = ''com/h'' WHERE floor = ''com/g'',position = 1 WHERE floor = ''com#records'',position = 1000 WHERE floor = ''com#records'',lease = ''com'' WHERE floor = ''com/young#records''}'::text[]) AS change;
SELECT tamper('DELETE FROM lease.floor WHERE floor = ''com/g''');
SELECT tamper('DELETE FROM lease.floor WHERE floor = ''com#records''');
SELECT tamper('UPDATE lease.floor SET lease = ''com/young'' WHERE floor = ''com#records''');
SELECT tamper('INSERT INTO lease.floor VALUES (''com/h'', ''com'', 1)');
SELECT tamper('UPDATE lease.floor SET lease = ''com/young'' WHERE floor = ''com/f''', 'com/young');

-- What one lease has lost says nothing about another.
SELECT tamper('DELETE FROM lease.record WHERE lease = ''com'' AND seq = 3', 'com/young');
-- All of them, each with what was found.
BEGIN;
ALTER TABLE lease.record DISABLE TRIGGER ALL;
DELETE FROM lease.record WHERE lease = 'com' AND seq = 3;
SELECT lease, verified, problem FROM lease.verify_authority() WHERE lease LIKE 'com%';
ROLLBACK;
SELECT lease, verified, problem FROM lease.verify_authority() WHERE lease LIKE 'com%';

-- What a boundary vouches for has to be right before: nothing is compacted then.
BEGIN;
ALTER TABLE lease.record DISABLE TRIGGER ALL;
DELETE FROM lease.record WHERE lease = 'com' AND seq = 3;
SELECT removed FROM lease.compact('com', :b, before => 1000);
ROLLBACK;
BEGIN;
ALTER TABLE lease.record DISABLE TRIGGER ALL;
UPDATE lease.record SET kept_until = 'epoch' WHERE lease = 'com' AND seq = :last - 1;
SELECT removed FROM lease.compact('com', :b, before => 1000);
ROLLBACK;
BEGIN;
ALTER TABLE lease.record DISABLE TRIGGER ALL;
UPDATE lease.record r SET verdict = 'another', digest = lease.record_digest(s.*)
	FROM lease.record s WHERE r.lease = 'com' AND r.seq = 3 AND s.lease = r.lease AND s.seq = r.seq;
SELECT removed FROM lease.compact('com', :b, before => 1000);
ROLLBACK;
BEGIN;
DELETE FROM lease.floor WHERE floor = 'com#records';
SELECT removed FROM lease.compact('com', :b, before => 1000);
ROLLBACK;

-- Not found: the end altered, digested anew, and the witness, too.  For that a digest has
-- to be kept elsewhere.
SELECT tamper(format('WITH d AS (DELETE FROM lease.record WHERE lease = ''com'' AND seq = %s)'
	' UPDATE lease.record_chain c SET last_seq = r.seq, last_digest = r.digest FROM lease.record r WHERE c.lease = ''com'' AND r.lease = ''com'' AND r.seq = %1$s - 1', :last));

-- What is below a boundary, and the boundary, and what is above, is there as it was.
EXECUTE verify;

-- Floors and records stay; the doctor of a later test would find those of leases that do not.
SET client_min_messages = warning;
DROP TABLE alteration, original;
DROP FUNCTION tamper, forge;
DROP VIEW there, edge;
DEALLOCATE verify;
DROP EXTENSION lease;
CREATE EXTENSION lease;
