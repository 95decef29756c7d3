-- The doctor: conditions under which a guarantee does not hold, from the catalogs and
-- the settings as they are.
--
-- Severity: error, somebody can write without a token, or what was told can be lost;
-- warning, that takes a crash, a mistake or a role that should not have the right, or
-- nobody can write at all; notice, what PostgreSQL lets certain roles do.

CREATE FUNCTION lease.doctor(
	OUT severity text,
	OUT object text,
	OUT meaning text,
	OUT remedy text)
RETURNS SETOF record
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
WITH RECURSIVE
-- The fence that a table belongs to: that of the topmost table.
tree(rel, root) AS (
	SELECT f.rel, f.rel
	FROM lease.fence f
	WHERE NOT EXISTS (SELECT FROM pg_inherits i JOIN lease.fence p ON p.rel = i.inhparent
		WHERE i.inhrelid = f.rel)
	UNION
	SELECT i.inhrelid::regclass, t.root
	FROM tree t JOIN pg_inherits i ON i.inhparent = t.rel
), root AS (
	SELECT f.*, format('SELECT lease.unprotect(%1$L), lease.protect(%1$L, %2$L%3$s%4$s%5$s%6$s);',
			f.rel, f.lease,
			', epoch_column => ' || quote_literal(f.epoch_column),
			', lease_column => ' || quote_literal(f.lease_column),
			CASE WHEN NOT f.ddl THEN ', ddl => false' END,
			CASE WHEN f.row_trigger = 'always' THEN ', always => true' END) AS rebuild
	FROM lease.fence f
), fenced AS (
	SELECT DISTINCT ON (t.rel) t.rel, c.relpersistence, c.relowner, r.rel AS root, r.lease, r.ddl,
		r.epoch_column, r.lease_column, s.role AS lease_role, s.name IS NOT NULL AS lease_exists,
		coalesce(f.row_trigger, 'missing') AS row_trigger,
		CASE WHEN c.relkind = 'f' AND current_setting('server_version_num')::int < 160000
			THEN 'impossible' ELSE coalesce(f.truncate_trigger, 'missing') END AS truncate_trigger,
		CASE WHEN r.ddl THEN format('BEGIN; SELECT lease.guard(%L, epoch); %s COMMIT;', r.lease, r.rebuild)
			ELSE r.rebuild END AS rebuild
	FROM tree t
		JOIN root r ON r.rel = t.root
		JOIN pg_class c ON c.oid = t.rel
		LEFT JOIN lease.fence f ON f.rel = t.rel
		LEFT JOIN lease.read_status() s ON s.name = r.lease
	ORDER BY t.rel, r.rel
), trigger AS (
	SELECT t.tgrelid::regclass AS rel, t.tgname, t.tgenabled, f.row_trigger,
		p.proname = 'stamp' AS is_stamp, (t.tgtype::int4 & 32) <> 0 AS is_truncate
	FROM pg_trigger t
		JOIN pg_proc p ON p.oid = t.tgfoid
		LEFT JOIN lease.fence f ON f.rel = t.tgrelid
	WHERE t.tgfoid IN ('lease.fence()'::regprocedure, 'lease.stamp()'::regprocedure)
), bypass AS (
	SELECT r.oid, r.rolname, 'is a superuser' AS why,
		format('ALTER ROLE %I NOSUPERUSER;', r.rolname) AS remedy
	FROM pg_roles r
	WHERE r.rolsuper AND r.rolcanlogin
	UNION ALL
	SELECT r.oid, r.rolname, 'may set session_replication_role, under which ordinary triggers do not fire',
		format('REVOKE SET ON PARAMETER session_replication_role FROM %I;', r.rolname)
	FROM pg_parameter_acl a
		CROSS JOIN LATERAL aclexplode(a.paracl) AS g
		JOIN pg_roles r ON r.oid = g.grantee
	WHERE a.parname = 'session_replication_role' AND g.privilege_type = 'SET' AND NOT r.rolsuper
	UNION ALL
	SELECT r.oid, r.rolname, 'owns ' || string_agg(f.rel::text, ', ' ORDER BY f.rel::text COLLATE "C")
			|| ', so that it may disable the triggers',
		string_agg(format('ALTER TABLE %s OWNER TO another_role;', f.rel), ' ' ORDER BY f.rel::text COLLATE "C")
	FROM fenced f JOIN pg_roles r ON r.oid = f.relowner
	WHERE NOT r.rolsuper
	GROUP BY r.oid, r.rolname
), finding(severity, object, meaning, remedy) AS (

	-- Fences that do not fire
	SELECT 'error', format('table %s', f.rel),
		format('The fence against %s is %s, so that whoever may write to the table can do so without a token.',
			e.events, CASE e.fires WHEN 'missing' THEN 'missing'
				WHEN 'replica' THEN 'enabled for replication only' ELSE 'disabled' END),
		CASE WHEN e.fires = 'missing' THEN f.rebuild ELSE (
			SELECT string_agg(format('ALTER TABLE %s ENABLE TRIGGER %I;', t.rel, t.tgname),
				' ' ORDER BY t.tgname)
			FROM trigger t
			WHERE t.rel = f.rel AND t.tgenabled IN ('D', 'R') AND NOT t.is_stamp
				AND t.is_truncate = (e.events = 'TRUNCATE')) END
	FROM fenced f
		CROSS JOIN LATERAL (VALUES ('INSERT, UPDATE and DELETE', f.row_trigger),
			('TRUNCATE', f.truncate_trigger)) AS e(events, fires)
	WHERE e.fires IN ('missing', 'disabled', 'replica')

	UNION ALL
	SELECT 'error', format('event trigger %I', t.evtname),
		format('It is %s, so that %s.', CASE t.evtenabled WHEN 'D' THEN 'disabled' ELSE 'enabled for replication only' END,
			CASE t.evtname WHEN 'lease_extend_fences'
				THEN 'new partitions are not fenced against TRUNCATE, and new inheritance children not at all'
				ELSE 'protected tables are not fenced against DDL' END),
		format('ALTER EVENT TRIGGER %I ENABLE;', t.evtname)
	FROM pg_event_trigger t
	WHERE t.evtname LIKE 'lease\_%' AND t.evtenabled IN ('D', 'R')
		AND t.evtfoid IN ('lease.watch_ddl()'::regprocedure, 'lease.extend_fences()'::regprocedure)

	UNION ALL
	SELECT 'error', 'setting event_triggers',
		'It is off, so that protected tables are not fenced against DDL, and new inheritance children not at all.',
		'ALTER SYSTEM RESET event_triggers; SELECT pg_reload_conf();'
	WHERE current_setting('event_triggers', true) = 'off'

	UNION ALL
	SELECT 'error', CASE WHEN s.setrole <> 0 THEN format('role %s', s.setrole::regrole)
			ELSE format('database %I', d.datname) END,
		format('Its sessions begin with %s, under which the triggers of ordinary fences do not fire.', c.setting),
		CASE WHEN s.setrole = 0 THEN format('ALTER DATABASE %I RESET session_replication_role;', d.datname)
			WHEN s.setdatabase = 0 THEN format('ALTER ROLE %s RESET session_replication_role;', s.setrole::regrole)
			ELSE format('ALTER ROLE %s IN DATABASE %I RESET session_replication_role;', s.setrole::regrole, d.datname) END
	FROM pg_db_role_setting s
		CROSS JOIN LATERAL unnest(s.setconfig) AS c(setting)
		LEFT JOIN pg_database d ON d.oid = s.setdatabase
	WHERE c.setting LIKE 'session\_replication\_role=%' AND c.setting NOT LIKE '%=origin'
		AND (s.setdatabase = 0 OR d.datname = current_database())

	UNION ALL
	SELECT 'error', 'setting session_replication_role',
		format('It is %s, so that the triggers of ordinary fences do not fire.', s.reset_val),
		'ALTER SYSTEM RESET session_replication_role; SELECT pg_reload_conf();'
	FROM pg_settings s
	WHERE s.name = 'session_replication_role' AND s.reset_val <> 'origin'
		AND s.source IN ('configuration file', 'command line')

	-- What a crash may take back
	UNION ALL
	SELECT 'error', format('setting %s', s.name),
		'It is off: a crash of the host may take back grants and epochs that were told, or damage the database.',
		format('ALTER SYSTEM SET %I = on; SELECT pg_reload_conf();', s.name)
	FROM pg_settings s
	WHERE s.name IN ('fsync', 'full_page_writes') AND s.setting = 'off'

	UNION ALL
	SELECT 'warning', format('table %s', f.rel),
		'It is protected and UNLOGGED: a crash empties it, whoever holds the lease, and a standby has nothing of it.',
		format('ALTER TABLE %s SET LOGGED;', f.rel)
	FROM fenced f
	WHERE f.relpersistence = 'u'

	-- Fences that let nobody through
	UNION ALL
	SELECT 'warning', format('table %s', f.rel),
		format('It is protected by lease "%s", which does not exist, so that nobody can write to it.', f.lease),
		format('SELECT lease.create(%L);', f.lease)
	FROM fenced f
	WHERE f.rel = f.root AND NOT f.lease_exists

	UNION ALL
	SELECT 'warning', format('table %s', f.rel),
		format('Its fence expects the column "%s", which does not exist, so that nobody can insert or update.', c.name),
		f.rebuild
	FROM fenced f
		CROSS JOIN LATERAL (VALUES (f.epoch_column), (f.lease_column)) AS c(name)
	WHERE f.rel = f.root AND c.name IS NOT NULL AND NOT EXISTS (SELECT FROM pg_attribute a
		WHERE a.attrelid = f.rel AND a.attname = c.name AND a.attnum > 0 AND NOT a.attisdropped)

	UNION ALL
	SELECT 'warning', format('table %s', f.rel),
		'The trigger that writes epochs into its rows is ' || coalesce(CASE t.tgenabled
			WHEN 'R' THEN 'enabled for replication only' WHEN 'D' THEN 'disabled' END, 'missing')
			|| ', so that nobody can insert or update rows but with lease.guard() and the epoch.',
		coalesce(format('ALTER TABLE %s ENABLE TRIGGER %I;', f.rel, t.tgname), f.rebuild)
	FROM fenced f
		LEFT JOIN trigger t ON t.rel = f.rel AND t.is_stamp
	WHERE f.epoch_column IS NOT NULL AND f.row_trigger <> 'missing'
		AND coalesce(t.tgenabled IN ('R', 'D'), true)

	-- What gets past fences by right
	UNION ALL
	SELECT DISTINCT 'warning', format('table %s', f.rel),
		'A subscription writes to it, and its fence does not fire for what replication applies.',
		(SELECT string_agg(format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I;', t.rel, t.tgname), ' ' ORDER BY t.tgname)
			FROM trigger t WHERE t.rel = f.rel)
	FROM fenced f JOIN pg_subscription_rel s ON s.srrelid = f.rel
	WHERE f.row_trigger = 'origin'

	UNION ALL
	SELECT CASE WHEN l.leases IS NULL THEN 'notice' ELSE 'warning' END,
		format('role %I', b.rolname),
		format('It %s: it can get past fences.%s', b.why,
			' It may also act under ' || l.leases || ', so that a paused holder is not bound by them.'),
		b.remedy
	FROM bypass b
		CROSS JOIN LATERAL (
			SELECT string_agg(format('lease "%s"', f.lease), ', ' ORDER BY f.lease COLLATE "C") AS leases
			FROM (SELECT DISTINCT lease, lease_role FROM fenced) AS f
			WHERE b.why NOT LIKE 'is a superuser%' AND pg_has_role(b.oid, f.lease_role, 'USAGE')) AS l
	WHERE EXISTS (SELECT FROM fenced)
)
SELECT f.severity, f.object, f.meaning, f.remedy
FROM finding f
ORDER BY array_position('{error,warning,notice}', f.severity), f.object COLLATE "C", f.meaning COLLATE "C";
$$;
COMMENT ON FUNCTION lease.doctor() IS
'conditions under which fences do not hold, one row each: how serious, which object, what it means, and the statement that mends it; no row: nothing was found';
