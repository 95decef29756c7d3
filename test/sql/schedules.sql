--
-- schedules: at which instants a schedule has occurrences.
--
-- They follow from the schedule and the time zone alone, so that whoever computes them,
-- and whenever, finds the same ones.  Test 042 compares a table of cron expressions with
-- what another program makes of them.
--
\set VERBOSITY terse
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';

-- local(EXPRESSION, ZONE, AFTER, UP_TO) shows instants as they are, and as clocks show
-- them there.
CREATE FUNCTION local(cron text, zone text, after timestamptz, up_to int)
RETURNS TABLE (utc text, local text) LANGUAGE sql AS $$
	SELECT to_char(o, 'Dy YYYY-MM-DD HH24:MI'), to_char(o AT TIME ZONE zone, 'Dy HH24:MI')
	FROM lease.occurrences(cron, zone, after => after, up_to => up_to) AS o
$$;

--
-- Daylight saving
--

-- Europe/Berlin: 02:00 to 03:00 on 29 March 2026, 03:00 to 02:00 on 25 October.  What is
-- daily happens once on each day.
SELECT * FROM local('30 2 * * *', 'Europe/Berlin', '2026-03-28', 3);
SELECT * FROM local('30 2 * * *', 'Europe/Berlin', '2026-10-24', 3);
-- What is hourly, once in each hour: each instant an hour after the one before.
SELECT o, o - lag(o) OVER (ORDER BY o) AS gap
	FROM lease.occurrences('30 * * * *', 'Europe/Berlin', after => '2026-03-28 23:00', up_to => 5) AS o;
SELECT o, o - lag(o) OVER (ORDER BY o) AS gap
	FROM lease.occurrences('30 * * * *', 'Europe/Berlin', after => '2026-10-24 23:00', up_to => 5) AS o;
-- Both at the missing time and at the one that is the same instant: one occurrence.
SELECT * FROM local('30 2,3 * * *', 'Europe/Berlin', '2026-03-28', 5);
-- A quarter of an hour, only at night: the repeated hour counts once.
SELECT * FROM local('*/15 2 * * *', 'Europe/Berlin', '2026-10-25', 5);

-- America/New_York: 02:00 to 03:00 on 8 March 2026, 02:00 to 01:00 on 1 November.
SELECT * FROM local('30 2 * * *', 'America/New_York', '2026-03-07', 3);
SELECT * FROM local('30 1 * * *', 'America/New_York', '2026-10-31', 3);
SELECT o, o - lag(o) OVER (ORDER BY o) AS gap
	FROM lease.occurrences('0 * * * *', 'America/New_York', after => '2026-03-08 05:30', up_to => 5) AS o;
SELECT o, o - lag(o) OVER (ORDER BY o) AS gap
	FROM lease.occurrences('0 * * * *', 'America/New_York', after => '2026-11-01 03:30', up_to => 5) AS o;

-- Australia/Lord_Howe: half an hour, 02:00 to 02:30 on 4 October 2026, 02:00 to 01:30 on
-- 5 April.
SELECT * FROM local('15 2 * * *', 'Australia/Lord_Howe', '2026-10-02 12:00', 3);
SELECT * FROM local('30 2 * * *', 'Australia/Lord_Howe', '2026-10-02 12:00', 3);
SELECT * FROM local('45 1 * * *', 'Australia/Lord_Howe', '2026-04-03 12:00', 3);
SELECT o, o - lag(o) OVER (ORDER BY o) AS gap
	FROM lease.occurrences('0 * * * *', 'Australia/Lord_Howe', after => '2026-10-03 13:30', up_to => 5) AS o;
SELECT o, o - lag(o) OVER (ORDER BY o) AS gap
	FROM lease.occurrences('45 * * * *', 'Australia/Lord_Howe', after => '2026-04-04 13:30', up_to => 5) AS o;

-- A day that there was not: Apia went from 29 to 31 December 2011.  And a midnight that
-- there was not, in Beirut.
SELECT * FROM local('30 2 * * *', 'Pacific/Apia', '2011-12-28 13:00', 3);
SELECT * FROM local('0 0 * * *', 'Asia/Beirut', '2024-03-29 12:00', 3);

-- In all zones and for three years: a daily 02:30 on each day once, an hourly one at
-- distinct instants, and in both the same ones whatever the instant from which one looks.
SELECT z.zone, count(*) AS daily, count(DISTINCT o::date) AS days
	FROM (VALUES ('UTC'), ('Europe/Berlin'), ('America/New_York'), ('Australia/Lord_Howe'), ('Africa/Casablanca')) AS z(zone)
		CROSS JOIN LATERAL lease.occurrences('30 2 * * *', z.zone, after => '2026-01-01', until => '2029-01-01', up_to => NULL) AS o
	GROUP BY z.zone ORDER BY z.zone;
SELECT z.zone, count(*) AS hourly, count(DISTINCT o) AS instants,
		count(*) FILTER (WHERE o <> (SELECT n FROM lease.occurrences('30 * * * *', z.zone, after => o - interval '1 microsecond', up_to => 1) AS n)) AS moved
	FROM (VALUES ('UTC'), ('Europe/Berlin'), ('America/New_York'), ('Australia/Lord_Howe')) AS z(zone)
		CROSS JOIN LATERAL lease.occurrences('30 * * * *', z.zone, after => '2026-01-01', until => '2027-01-01', up_to => NULL) AS o
	GROUP BY z.zone ORDER BY z.zone;

--
-- Expressions
--

-- Last days, names, lists, steps; days of either kind.
SELECT to_char(o, 'Dy YYYY-MM-DD HH24:MI') FROM lease.occurrences('0 12 L * *', after => '2027-12-31 13:00', up_to => 3) AS o;
SELECT to_char(o, 'Dy YYYY-MM-DD HH24:MI') FROM lease.occurrences('0 12 15,L feb *', after => '2028-01-01', up_to => 3) AS o;
SELECT to_char(o, 'Dy YYYY-MM-DD HH24:MI') FROM lease.occurrences('0 12 * * 5L', after => '2026-01-01', up_to => 3) AS o;
SELECT to_char(o, 'Dy YYYY-MM-DD HH24:MI') FROM lease.occurrences('10-40/15 8-9 * JAN-mar Mon', after => '2026-01-01', up_to => 7) AS o;
SELECT to_char(o, 'Dy YYYY-MM-DD HH24:MI') FROM lease.occurrences('0 0 13 * fri', after => '2026-02-01', up_to => 4) AS o;
SELECT to_char(o, 'Dy YYYY-MM-DD HH24:MI') FROM lease.occurrences('0 0 */2 * mon', after => '2026-02-01', up_to => 4) AS o;
SELECT to_char(o, 'Dy YYYY-MM-DD HH24:MI') FROM lease.occurrences('0 0 * * 7', after => '2026-02-01', up_to => 2) AS o;
SELECT to_char(o, 'Dy YYYY-MM-DD HH24:MI') FROM lease.occurrences('0 0 * * fri-sun', after => '2026-02-02', up_to => 4) AS o;
SELECT to_char(o, 'Dy YYYY-MM-DD HH24:MI') FROM lease.occurrences('0 0 * * 5-7', after => '2026-02-02', up_to => 4) AS o;
SELECT to_char(o, 'Dy YYYY-MM-DD HH24:MI') FROM lease.occurrences(E'  0\t0 1 1 *  ', after => '2026-02-02', up_to => 1) AS o;
-- Far away: a 29 February that is a Monday, and past 2100, which is no leap year
SELECT to_char(o, 'Dy YYYY-MM-DD') FROM lease.occurrences('0 0 29 2 *', after => '2093-01-01', up_to => 3) AS o;
SELECT to_char(o, 'Dy YYYY-MM-DD') FROM lease.occurrences('0 0 29 feb */1', after => '2026-01-01', up_to => 2) AS o;

-- What is none
DO $$
DECLARE
	expression text;
	detail text;
BEGIN
	FOREACH expression IN ARRAY ARRAY[
		'', ' ', '* * * *', '* * * * * *', 'hourly', '@daily', '* * * * ?', '1,,2 * * * *', '1, * * * *', ',1 * * * *',
		'60 * * * *', '-1 * * * *', '1.5 * * * *', '007 * * * *', '99999999999 * * * *', '* 24 * * *', '* * 0 * *', '* * 32 * *',
		'* * * 0 *', '* * * 13 *', '* * * * 8', '* * * foo *', '* * * january *', '* * jan * *', '1-2-3 * * * *', '5-1 * * * *',
		'* * * dec-jan *', '* * * * sat-mon', '*/0 * * * *', '*/60 * * * *', '*/90 * * * *', '*/ * * * *', '*/-1 * * * *', '5/10 * * * *', '1-5/5 * * * *',
		'**', '*1 * * * *', '* L * * *', '* * L-3 * *', '* * L5 * *', '* * * * L', '* * * * 1-5L', '* * * * 8L',
		'0 0 31 2 *', '0 0 30 feb *', '0 0 31 4,6,9,11 *', '0 0 31 2 mon', E'0 0\n* * *', '0 0 * * *;']
	LOOP
		BEGIN
			PERFORM lease.occurrences(expression, up_to => 1);
			RAISE NOTICE '% is accepted', expression;
		EXCEPTION WHEN invalid_parameter_value THEN
			GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
			RAISE NOTICE '%: %', expression, detail;
		END;
	END LOOP;
END
$$;

--
-- Intervals
--

SELECT o FROM lease.occurrences(every => '90 min', anchor => '2026-01-01', after => '2026-03-01', up_to => 2) AS o;
-- Before the anchor, too; and a day is 24 hours, whatever the time zone of the session.
SET timezone = 'Europe/Berlin';
SELECT o AT TIME ZONE 'UTC' FROM lease.occurrences(every => '1 day', anchor => '2026-06-01 12:00+00', after => '2026-03-28 12:00+00', up_to => 2) AS o;
SET timezone = 'UTC';
-- Not the instant itself after which one asks, but the one until which
SELECT o FROM lease.occurrences(every => '1 s', after => '2026-01-01', until => '2026-01-01 00:00:03', up_to => NULL) AS o;
SELECT o FROM lease.occurrences(every => '1.5 s', after => '1969-12-31 23:59:57', up_to => 3) AS o;
SELECT o FROM lease.occurrences('0 0 * * *', after => '2026-01-01', until => '2026-01-02', up_to => NULL) AS o;
SELECT count(*) FROM lease.occurrences('0 0 * * *', after => '2026-01-02', until => '2026-01-01', up_to => NULL) AS o;

-- What is none
SELECT lease.occurrences(every => '0');
SELECT lease.occurrences(every => '-1 s');
SELECT lease.occurrences(every => '999 ms');
SELECT lease.occurrences(every => '1 month');
SELECT lease.occurrences(every => '200 years');
SELECT lease.occurrences();
SELECT lease.occurrences('* * * * *', every => '1 s');
SELECT lease.occurrences('* * * * *', NULL);
SELECT lease.occurrences('* * * * *', 'Mars/Olympus_Mons');
SELECT lease.occurrences('* * * * *', repeat('x', 300));
SELECT lease.occurrences('* * * * *', up_to => NULL);
SELECT lease.occurrences('* * * * *', up_to => 0);
SELECT lease.occurrences('* * * * *', after => 'infinity');
SELECT lease.occurrences(every => '1 s', anchor => '-infinity');
SELECT lease.occurrences('* * * * *', until => '99999-01-01');

DROP FUNCTION local;
