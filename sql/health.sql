-- Whether those who hold leases work, and whether those who might are there.
-- See src/health.c.
--
-- Held never implies working: these are different columns, filled by different calls.
-- Nothing is decided by what stands here; leases, guards and fences do not look at it.
-- So what reads it is plain SQL, which sees what the transaction's snapshot shows; the
-- leases beside it are read as everywhere, as they stand.

-- The last report of progress under each grant, and the last heartbeat of each peer.
-- Only the C code writes them.  No column that a report or a heartbeat changes may
-- ever be indexed: their updates have to be HOT.
--
-- Neither is dumped: they say who is alive now, and here.  In a restored database
-- they would speak of processes that are connected to another one.
CREATE TABLE lease.report (
	name text COLLATE "C",
	epoch bigint CHECK (epoch > 0),
	reported_boot bigint NOT NULL,
	reported_at timestamptz NOT NULL,
	boot text,
	within bigint NOT NULL CHECK (within > 0),
	reports bigint NOT NULL CHECK (reports > 0),
	detail jsonb,
	live boolean NOT NULL,
	PRIMARY KEY (name, epoch)
) USING heap WITH (fillfactor = 50);
ALTER TABLE lease.report ALTER COLUMN detail SET STORAGE MAIN;

COMMENT ON TABLE lease.report IS 'the last report of progress under each grant; written by the functions of the extension only; read lease.health instead';
COMMENT ON COLUMN lease.report.name IS 'name of the lease';
COMMENT ON COLUMN lease.report.epoch IS 'epoch of the grant; rows of any but the latest count for nothing and are removed in passing, by reports at READ COMMITTED';
COMMENT ON COLUMN lease.report.reported_boot IS 'when the report came, on the boot clock';
COMMENT ON COLUMN lease.report.reported_at IS 'its image on the wall clock';
COMMENT ON COLUMN lease.report.boot IS 'identity of the boot clock; NULL if there was none';
COMMENT ON COLUMN lease.report.within IS 'the next report was promised within so many microseconds';
COMMENT ON COLUMN lease.report.reports IS 'how many reports there have been under this epoch';
COMMENT ON COLUMN lease.report.detail IS 'what the holder said';
COMMENT ON COLUMN lease.report.live IS 'whether the grant was live when the report came';

CREATE TABLE lease.heartbeat (
	peer text COLLATE "C" PRIMARY KEY,
	role regrole NOT NULL,
	beat_boot bigint NOT NULL,
	beat_at timestamptz NOT NULL,
	boot text,
	stale_after bigint NOT NULL CHECK (stale_after > 0),
	beats bigint NOT NULL CHECK (beats > 0),
	detail jsonb
) USING heap WITH (fillfactor = 50);
ALTER TABLE lease.heartbeat ALTER COLUMN detail SET STORAGE MAIN;

COMMENT ON TABLE lease.heartbeat IS 'the last heartbeat of each peer; written by the functions of the extension only; read lease.peer instead';
COMMENT ON COLUMN lease.heartbeat.peer IS 'the process incarnation, as in the holder of a lease';
COMMENT ON COLUMN lease.heartbeat.role IS 'the role that beat first; only its members may beat again';
COMMENT ON COLUMN lease.heartbeat.beat_boot IS 'when the heartbeat came, on the boot clock';
COMMENT ON COLUMN lease.heartbeat.beat_at IS 'its image on the wall clock';
COMMENT ON COLUMN lease.heartbeat.boot IS 'identity of the boot clock; NULL if there was none';
COMMENT ON COLUMN lease.heartbeat.stale_after IS 'after so many microseconds without a heartbeat the peer is stale';
COMMENT ON COLUMN lease.heartbeat.beats IS 'how many heartbeats there have been';
COMMENT ON COLUMN lease.heartbeat.detail IS 'what the peer said about itself';

CREATE FUNCTION lease.progress(
	name text,
	epoch bigint,
	detail jsonb DEFAULT NULL,
	within interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'lease_progress'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.progress(text, bigint, jsonb, interval) IS
'the holder reports that its work moves on, and promises the next report within that time (null: the ttl of its grant); whether its grant is live: if not, stop; a report under the latest epoch is recorded all the same, under any other it is not; detail: at most 2048 bytes as stored, null: nothing to say; raises LS005 (no such lease), 42501 (not a member of its role), 25006 (standby or read-only transaction); use a transaction of its own: another report under that epoch waits until it has ended';

CREATE FUNCTION lease.beat(
	peer text,
	detail jsonb DEFAULT NULL,
	stale_after interval DEFAULT '30 s')
RETURNS void
AS 'MODULE_PATHNAME', 'lease_beat'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.beat(text, jsonb, interval) IS
'a scheduler instance says that it is there: peer is the process incarnation, the same text as the holder in lease.acquire(); without another heartbeat it is stale after that time (null: 30 s); detail: at most 2048 bytes as stored, null: nothing to say, {"owns": ["..."]}: what it would leave behind; a peer belongs to the role that made it first; raises 42501 (of another role), 25006 (standby or read-only transaction)';

CREATE FUNCTION lease.retire(
	peer text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'lease_retire'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.retire(text) IS
'a peer leaves in good order, or an administrator clears away one that will not come back: it is a peer no more; false if it was none; leases that it holds stay held until they are released or expire; raises 42501 unless the role of the peer, or the owner of the extension, calls it';

CREATE FUNCTION lease.elapsed(
	boot text,
	boot_at bigint,
	at timestamptz)
RETURNS interval
AS 'MODULE_PATHNAME', 'lease_elapsed'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.elapsed(text, bigint, timestamptz) IS 'how long ago that is, for views: boot_at on the boot clock if that is this one, else at on the wall clock; never negative; null if at is';

-- A report that came before a release says nothing about what goes on after it; before
-- an expiry or a revocation it does, as the holder need not have noticed.
--
-- What lease.status says about the transaction time is brought up to this moment.  Its
-- instants are images on the present wall clock, also after a step of it.
CREATE VIEW lease.health AS
	SELECT w.name, w.role, w.state, w.held, w.epoch, w.holder, w.remaining, w.last_end, w.expired_ago,
		w.working, w.progress_age, w.silence, w.progress_within, w.progress_detail, w.reports,
		CASE
			WHEN w.held AND w.working THEN format('held, progress %s ago', v.ago)
			WHEN w.held THEN format('held, no progress for %s', v.ago)
			WHEN w.working AND w.reported_since THEN format('%s, still reporting progress %s ago', w.last_end, v.ago)
			WHEN w.working THEN format('%s, progress %s ago', w.last_end, v.ago)
			WHEN w.last_end = 'expired' THEN format('%s, no progress for %s', w.state, v.ago)
			ELSE w.state
		END AS verdict
	FROM (SELECT g.name, g.role, g.state, g.held, g.epoch, g.holder, g.remaining, g.last_end,
				CASE WHEN g.last_end = 'expired' THEN lease.elapsed(NULL, NULL, g.expires_at) END AS expired_ago,
				coalesce(r.age <= r.within AND (g.last_end IS DISTINCT FROM 'released' OR NOT r.live), false) AS working,
				r.age AS progress_age,
				coalesce(r.age, lease.elapsed(NULL, NULL, g.acquired_at)) AS silence,
				r.within AS progress_within,
				r.detail AS progress_detail,
				coalesce(r.reports, 0) AS reports,
				NOT r.live AS reported_since
			FROM (SELECT s.name, s.role, s.state, s.state = 'held' AND s.remaining > '0' AS held, s.epoch, s.holder,
						s.acquired_at, s.expires_at, s.remaining,
						CASE WHEN s.state = 'held' AND s.remaining = '0' THEN 'expired' ELSE s.last_end END AS last_end
					FROM lease.status AS s) AS g
				LEFT JOIN (SELECT r.name, r.epoch, lease.elapsed(r.boot, r.reported_boot, r.reported_at) AS age,
						r.within * interval '1 microsecond' AS within, r.detail, r.reports, r.live
					FROM lease.report AS r) AS r ON r.name = g.name AND r.epoch = g.epoch) AS w
		CROSS JOIN LATERAL (SELECT to_char(w.silence, 'HH24:MI:SS')) AS v(ago);
COMMENT ON VIEW lease.health IS 'every lease: whether it is held, and, which is another matter, whether somebody works under it; advisory, nothing is decided by it';
COMMENT ON COLUMN lease.health.name IS 'the lease';
COMMENT ON COLUMN lease.health.role IS 'whose members may act under it; a bare number if the role has been dropped';
COMMENT ON COLUMN lease.health.state IS 'as in lease.status: held, expired, grace, reserved, free, at the transaction time';
COMMENT ON COLUMN lease.health.held IS 'whether its latest grant is live, at the transaction time and at this moment';
COMMENT ON COLUMN lease.health.epoch IS 'epoch of the latest grant; null if there was none';
COMMENT ON COLUMN lease.health.holder IS 'to whom it was made; null if there was none';
COMMENT ON COLUMN lease.health.remaining IS 'for how long it is still live; zero if it is not';
COMMENT ON COLUMN lease.health.last_end IS 'how the latest grant ended: expired, released, revoked; null if it is live, or there was none';
COMMENT ON COLUMN lease.health.expired_ago IS 'since when it is expired and nobody has taken over; null if it is not';
COMMENT ON COLUMN lease.health.working IS 'whether there was a report under the latest epoch within the time that was promised for the next; after a release only reports that came later count; says nothing about whether the lease is held';
COMMENT ON COLUMN lease.health.progress_age IS 'time since the last report under the latest epoch; null if there was none';
COMMENT ON COLUMN lease.health.silence IS 'the same, but if there was none, time since the grant; null if the lease was never granted';
COMMENT ON COLUMN lease.health.progress_within IS 'within what time after the last report the next was promised; null if there was none';
COMMENT ON COLUMN lease.health.progress_detail IS 'what the holder said with the last report; null if nothing';
COMMENT ON COLUMN lease.health.reports IS 'how many reports there have been under the latest epoch';
COMMENT ON COLUMN lease.health.verdict IS 'all that in a few words, with times as hours:minutes:seconds';

-- If the wall clock has been stepped since, beat_at is where the heartbeat lies on it now.
CREATE VIEW lease.peer AS
	SELECT p.peer, p.role,
		CASE WHEN abs(extract(epoch FROM p.now - p.age - p.beat_at)) > 1 THEN p.now - p.age ELSE p.beat_at END AS beat_at,
		p.age, p.stale_after, p.age > p.stale_after AS stale, p.beats,
		coalesce(l.leases, '{}') AS leases, p.detail
	FROM (SELECT h.peer, h.role, h.beat_at, lease.elapsed(h.boot, h.beat_boot, h.beat_at) AS age,
				timestamptz 'epoch' + lease.elapsed(NULL, NULL, 'epoch') AS now,
				h.stale_after * interval '1 microsecond' AS stale_after, h.beats, h.detail
			FROM lease.heartbeat AS h) AS p
		LEFT JOIN (SELECT s.holder, array_agg(s.name ORDER BY s.name COLLATE "C") AS leases
			FROM lease.status AS s
			WHERE s.state = 'held' AND s.remaining > '0'
			GROUP BY s.holder) AS l ON l.holder = p.peer;
COMMENT ON VIEW lease.peer IS 'scheduler instances that have said that they are there, and have not left with lease.retire(); stale ones have not been heard of for longer than they said; advisory, nothing is decided by it';
COMMENT ON COLUMN lease.peer.peer IS 'the process incarnation';
COMMENT ON COLUMN lease.peer.role IS 'the role to which it belongs; a bare number if the role has been dropped';
COMMENT ON COLUMN lease.peer.beat_at IS 'when its last heartbeat came';
COMMENT ON COLUMN lease.peer.age IS 'how long ago that is';
COMMENT ON COLUMN lease.peer.stale_after IS 'what age makes it stale, as it said itself';
COMMENT ON COLUMN lease.peer.stale IS 'whether it is stale: dead, paused, cut off from the database, or merely slow';
COMMENT ON COLUMN lease.peer.beats IS 'how many heartbeats there have been';
COMMENT ON COLUMN lease.peer.leases IS 'live leases of which it is the holder; empty if there are none';
COMMENT ON COLUMN lease.peer.detail IS 'what it said about itself; null if nothing';

CREATE VIEW lease.orphan AS
	WITH stale AS (
		SELECT p.peer, p.age - p.stale_after AS stale_for, p.detail -> 'owns' AS owns
		FROM lease.peer AS p
		WHERE p.stale
	)
	SELECT s.peer, s.stale_for, CASE WHEN g.held THEN 'held' ELSE 'expired' END AS kind, g.name AS what
	FROM stale AS s
		JOIN lease.health AS g ON g.holder = s.peer
	WHERE g.held OR g.last_end = 'expired'
	UNION ALL
	SELECT DISTINCT s.peer, s.stale_for, 'declared', e.what #>> '{}'
	FROM stale AS s
		CROSS JOIN LATERAL jsonb_array_elements(CASE jsonb_typeof(s.owns) WHEN 'array' THEN s.owns END) AS e(what)
	WHERE jsonb_typeof(e.what) = 'string';
COMMENT ON VIEW lease.orphan IS 'what stale peers may have left behind; a hint for people, not a verdict: a stale peer may still be working, a lease that it holds is its own until it expires, and nothing is decided by this view';
COMMENT ON COLUMN lease.orphan.peer IS 'the stale peer';
COMMENT ON COLUMN lease.orphan.stale_for IS 'for how long it has been stale';
COMMENT ON COLUMN lease.orphan.kind IS 'held: a lease that it still holds; expired: one that it held last, and nobody has taken over; declared: what it said that it owns, in "owns" of the detail of its last heartbeat';
COMMENT ON COLUMN lease.orphan.what IS 'the lease, or what the peer called it; what is not a text in "owns" is left out';

-- The names are made of two parts, because postgres_exporter makes them so: see
-- doc/metrics.  No holder is a label: each grant would be another time series.  Peers
-- are, until they are retired.
CREATE VIEW lease.metric AS
	SELECT 'lease' AS subject, m.metric, m.kind, m.help, jsonb_build_object('lease', h.name) AS labels, m.value
	FROM lease.health AS h
		JOIN lease.status AS s ON s.name = h.name
		LEFT JOIN (SELECT c.name, count(*) AS waiting FROM lease.candidate AS c GROUP BY c.name) AS c ON c.name = h.name
		CROSS JOIN LATERAL (VALUES
			('lease_held', 'gauge', 'Whether the lease is held.', h.held::int::float8),
			('lease_remaining_seconds', 'gauge', 'For how long its grant is still live.',
				extract(epoch FROM h.remaining)::float8),
			('lease_epoch', 'gauge', 'Epoch of its latest grant, 0 if there was none.', coalesce(h.epoch, 0)::float8),
			('lease_available', 'gauge', 'Whether anybody may acquire it.', (h.state IN ('free', 'expired'))::int::float8),
			('lease_working', 'gauge', 'Whether progress was reported in time, by somebody who need not hold it.',
				h.working::int::float8),
			('lease_reports_total', 'counter', 'Reports of progress under its latest epoch.', h.reports::float8),
			('lease_silence_seconds', 'gauge', 'Time since the last report of progress under its latest epoch, or since the grant.',
				extract(epoch FROM h.silence)::float8),
			('lease_progress_age_seconds', 'gauge', 'Time since the last report of progress under its latest epoch.',
				extract(epoch FROM h.progress_age)::float8),
			('lease_expired_seconds', 'gauge', 'Time since it expired, while nobody has taken over.',
				extract(epoch FROM h.expired_ago)::float8),
			('lease_events_total', 'counter', 'Events of the lease, those that were pruned included.', s.events::float8),
			('lease_candidates', 'gauge', 'Who waits for it in line: rows of lease.candidate.', coalesce(c.waiting, 0)::float8),
			('lease_handover_requested', 'gauge', 'Whether its holder has been asked to step down.',
				(h.held AND s.handover_at IS NOT NULL)::int::float8)) AS m(metric, kind, help, value)
	WHERE m.value IS NOT NULL
	UNION ALL
	SELECT 'peer', m.metric, m.kind, m.help, jsonb_build_object('peer', p.peer), m.value
	FROM lease.peer AS p
		CROSS JOIN LATERAL (VALUES
			('lease_peer_age_seconds', 'gauge', 'Time since the last heartbeat of the peer.', extract(epoch FROM p.age)::float8),
			('lease_peer_stale', 'gauge', 'Whether that is longer than the peer said.', p.stale::int::float8))
			AS m(metric, kind, help, value)
	UNION ALL
	SELECT 'task', m.metric, m.kind, m.help, jsonb_build_object('task', t.task), m.value
	FROM lease.maintenance AS t
		CROSS JOIN LATERAL (VALUES
			('lease_task_enabled', 'gauge', 'Whether occurrences of the task may be begun.', t.enabled::int::float8),
			('lease_task_ready', 'gauge', 'How many occurrences are due and may be begun.', t.ready::float8),
			('lease_task_late_seconds', 'gauge', 'Since when nobody has begun an occurrence that was due.',
				coalesce(extract(epoch FROM lease.transaction_time() - t.late_since), 0)::float8),
			('lease_task_running', 'gauge', 'How many occurrences are being done.', t.running::float8),
			('lease_task_waiting', 'gauge', 'How many occurrences wait after an attempt that failed.', t.waiting::float8),
			('lease_task_done_age_seconds', 'gauge', 'Time since the latest occurrence that was done was due, or since the definition.',
				greatest(extract(epoch FROM lease.transaction_time()
					- coalesce(t.last_done, (SELECT d.defined_at FROM lease.task AS d WHERE d.name = t.task))), 0)::float8),
			('lease_task_last_failed', 'gauge', 'Whether the latest settled occurrence has failed.',
				coalesce(t.last_verdict = 'failed', false)::int::float8),
			('lease_task_passed_over_total', 'counter', 'How many occurrences nobody began in time.', t.passed_over::float8))
			AS m(metric, kind, help, value)
	WHERE m.value IS NOT NULL
	UNION ALL
	SELECT 'orphan', 'lease_orphan_entries', 'gauge', 'What stale peers may have left behind: rows of lease.orphan.',
		jsonb_build_object('kind', k.kind), count(o.kind)::float8
	FROM (VALUES ('held'), ('expired'), ('declared')) AS k(kind)
		LEFT JOIN lease.orphan AS o ON o.kind = k.kind
	GROUP BY k.kind;
COMMENT ON VIEW lease.metric IS 'figures for an exporter, one row each; doc/metrics has files for postgres_exporter and sql_exporter';
COMMENT ON COLUMN lease.metric.subject IS 'what it is about, and which labels it has: lease, peer, task, orphan';
COMMENT ON COLUMN lease.metric.metric IS 'name of the metric; seconds, or 1 for yes and 0 for no, or a number';
COMMENT ON COLUMN lease.metric.kind IS 'gauge; or counter, of which that of reports begins again with each epoch';
COMMENT ON COLUMN lease.metric.help IS 'what it means';
COMMENT ON COLUMN lease.metric.labels IS 'of which lease, peer or task, or of which kind of orphan';
COMMENT ON COLUMN lease.metric.value IS 'never null: what has no value has no row';
