-- What must be true of a failover run, read from the primary that is left at its end.
--
-- On standard input: what all clients have noted (see holder.py). Variables of psql: start,
-- where in the WAL the load begins; synchronous, whether replication is. Each check is a row:
-- passed, what, and what is wrong; figures are rows that have not passed or failed.

\set QUIET on
SET client_min_messages = warning;
CREATE EXTENSION pg_walinspect;

CREATE TEMP TABLE event (
    at     numeric,
    holder text,
    event  text,
    lease  text,
    epoch  bigint,
    number int,
    port   int,
    detail text
);
\copy event FROM PSTDIN CSV

-- The order of commits is that of the COMMIT records in the WAL, along the timelines
-- that have led to this server.
CREATE TEMP TABLE commits AS
SELECT row_number() OVER (ORDER BY start_lsn) AS position, xid
FROM pg_get_wal_records_info(:'start', pg_current_wal_flush_lsn())
WHERE resource_manager = 'Transaction' AND record_type LIKE 'COMMIT%';

CREATE TEMP TABLE written AS
SELECT position, w.* FROM work w LEFT JOIN commits c ON c.xid = w.xmin;
CREATE TEMP TABLE granted AS
SELECT position, g.* FROM grants g LEFT JOIN commits c ON c.xid = g.xmin;

-- What a client was told is done, and is not there
CREATE TEMP TABLE lost AS
SELECT e.* FROM event e
WHERE event = 'wrote' AND NOT EXISTS (
        SELECT FROM work w WHERE (w.holder, w.epoch, w.number) = (e.holder, e.epoch, e.number))
   OR event = 'granted' AND NOT EXISTS (
        SELECT FROM grants g WHERE (g.holder, g.epoch) = (e.holder, e.epoch));

-- The servers that have answered, in turn
CREATE TEMP VIEW reign AS
SELECT row_number() OVER (ORDER BY at) AS turn, port, at AS since,
       lead(at) OVER (ORDER BY at) AS until
FROM (SELECT at, port, lag(port) OVER (ORDER BY at) IS DISTINCT FROM port AS first
      FROM event WHERE event IN ('wrote', 'granted')) AS e
WHERE first;

CREATE TEMP TABLE result (n serial, passed boolean, what text, wrong text);

INSERT INTO result (passed, what, wrong)
SELECT bool_and(position IS NOT NULL), 'the WAL has the COMMIT of each row',
       count(*) FILTER (WHERE position IS NULL) || ' rows without'
FROM (SELECT position FROM written UNION ALL SELECT position FROM granted) AS r;

INSERT INTO result (passed, what, wrong)
SELECT count(*) = 3, 'one primary after the other acknowledges work, three in all',
       string_agg(port::text, ', ' ORDER BY turn)
FROM reign;

INSERT INTO result (passed, what, wrong)
SELECT min(n) >= 50, 'at least 50 writes were acknowledged by each of them',
       string_agg(n::text, ', ' ORDER BY turn)
FROM (SELECT turn, count(*) AS n FROM reign
      JOIN event e ON event = 'wrote' AND at >= since AND at < coalesce(until, 'infinity')
      GROUP BY turn) AS t;

-- G2. Whoever is told an epoch says so before its transaction ends, and until then
-- nobody else is told one of that lease.
INSERT INTO result (passed, what, wrong)
SELECT count(*) = 0, 'no epoch was told twice, by either server',
       string_agg(epoch || ' ' || n || ' times', ', ')
FROM (SELECT epoch, count(*) AS n FROM event WHERE event = 'told'
      GROUP BY epoch HAVING count(*) > 1 ORDER BY epoch LIMIT 5) AS t;

INSERT INTO result (passed, what, wrong)
SELECT count(*) = 0, 'epochs that were told grow with each lease, from server to server',
       string_agg(lease || ' ' || epoch || ' by ' || port || ' after ' || before, ', ')
FROM (SELECT *, max(epoch) OVER (PARTITION BY lease ORDER BY at
                                 ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
      FROM event WHERE event = 'told' ORDER BY at) AS t
WHERE epoch <= before;

INSERT INTO result (passed, what, wrong)
SELECT count(*) = 0, 'epochs of grants grow in the order of commits',
       string_agg(epoch || ' after ' || before, ', ')
FROM (SELECT epoch, lag(epoch) OVER (ORDER BY position) AS before FROM granted) AS g
WHERE epoch <= before;

-- G3
INSERT INTO result (passed, what, wrong)
SELECT count(*) = 0, 'epochs of writes never decrease in the order of commits',
       string_agg(holder || ' ' || epoch || ' after ' || before, ', ')
FROM (SELECT holder, epoch, lag(epoch) OVER (ORDER BY position) AS before FROM written) AS w
WHERE epoch < before;

INSERT INTO result (passed, what, wrong)
SELECT count(*) = 0, 'no write follows the grant of a successor',
       string_agg(DISTINCT w.holder || ' ' || w.epoch, ', ')
FROM written w JOIN granted g ON g.position < w.position AND g.epoch > w.epoch;

INSERT INTO result (passed, what, wrong)
SELECT count(*) = 0, 'every write has the holder and the epoch of a grant',
       string_agg(DISTINCT w.holder || ' ' || w.epoch, ', ')
FROM written w
WHERE NOT EXISTS (SELECT FROM grants g WHERE (g.holder, g.epoch) = (w.holder, w.epoch));

-- Who was stopped tried to go on, under the same epoch, and was refused.
INSERT INTO result (passed, what, wrong)
SELECT count(*) = 4 AND bool_and(what = 'refused'),
       'the four holders that were stopped are refused',
       string_agg(r.holder || ' ' || r.epoch || ' ' || coalesce(what, 'nothing'), ', ')
FROM event r LEFT JOIN LATERAL (
    SELECT e.event AS what FROM event e
    WHERE e.holder = r.holder AND e.epoch = r.epoch AND e.at > r.at AND e.event IN ('wrote', 'refused')
    ORDER BY e.at LIMIT 1) AS t ON true
WHERE r.event = 'resumed';

-- The test itself: what the standby knew is noted when it has been cut off.
INSERT INTO result (passed, what, wrong)
SELECT count(*) = 2 AND min(n) > 64,
       'both failovers come after epochs of which the standby knew nothing',
       string_agg(n::text, ', ')
FROM (SELECT count(told.epoch) AS n FROM event cut
      JOIN reign r ON r.port = cut.port AND r.until IS NOT NULL
      LEFT JOIN event told ON told.event = 'told' AND told.port = cut.port
          AND told.at < r.until AND told.epoch > cut.epoch
      WHERE cut.event = 'cut' GROUP BY r.turn) AS t;

\if :synchronous
INSERT INTO result (passed, what, wrong)
SELECT count(*) = 0, 'everything that was acknowledged is there',
       string_agg(holder || ' ' || event || ' ' || epoch, ', ')
FROM lost;
\else
INSERT INTO result (passed, what, wrong)
SELECT count(*) > 0, 'of what was acknowledged some was lost, as it has to be when not synchronous',
       'all is there'
FROM lost;
\endif

-- Figures
INSERT INTO result (what)
SELECT format('%s writes and %s grants acknowledged, %s epochs told, %s refusals',
              count(*) FILTER (WHERE event = 'wrote'), count(*) FILTER (WHERE event = 'granted'),
              count(*) FILTER (WHERE event = 'told'), count(*) FILTER (WHERE event = 'refused'))
FROM event;
INSERT INTO result (what)
SELECT 'refused: ' || string_agg(n || ' ' || detail, ', ' ORDER BY n DESC)
FROM (SELECT count(*) AS n, detail FROM event WHERE event = 'refused' GROUP BY detail) AS e;
INSERT INTO result (what)
SELECT format('failover %s: no work was acknowledged for %s s; %s writes and %s grants lost',
              turn, round(gap, 1), writes, grants)
FROM (SELECT turn,
             (SELECT min(at) FROM event WHERE event IN ('wrote', 'granted') AND at >= until)
             - (SELECT max(at) FROM event WHERE event IN ('wrote', 'granted') AND at < until) AS gap,
             (SELECT count(*) FROM lost WHERE event = 'wrote' AND at >= since AND at < until) AS writes,
             (SELECT count(*) FROM lost WHERE event = 'granted' AND at >= since AND at < until) AS grants
      FROM reign WHERE until IS NOT NULL) AS t
ORDER BY turn;

SELECT passed, what, CASE WHEN NOT coalesce(passed, true) THEN ': ' || coalesce(wrong, 'nothing') END
FROM result ORDER BY n;
