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
SET jit = off
AS $$
WITH RECURSIVE
-- The fence that a table belongs to: that of the topmost table.
tree(rel, root) AS (
	SELECT f.rel, f.rel
	FROM lease.fence f
	WHERE f.lease IS NOT NULL
		AND NOT EXISTS (SELECT FROM pg_inherits i JOIN lease.fence p ON p.rel = i.inhparent
			WHERE i.inhrelid = f.rel)
	UNION
	SELECT i.inhrelid::regclass, t.root
	FROM tree t JOIN pg_inherits i ON i.inhparent = t.rel
), trigger AS (
	SELECT t.oid, t.tgrelid::regclass AS rel, t.tgname, t.tgenabled,
		p.proname = 'stamp' AS is_stamp, (t.tgtype::int4 & 32) <> 0 AS is_truncate
	FROM pg_trigger t
		JOIN pg_proc p ON p.oid = t.tgfoid
	WHERE t.tgfoid IN ('lease.fence()'::regprocedure, 'lease.stamp()'::regprocedure)
), mode AS (
	-- Was it built with always? No row if that is not to be seen.
	SELECT t.rel, bool_and(t.tgenabled = 'A') AS always
	FROM trigger t
	WHERE t.tgenabled IN ('O', 'A')
	GROUP BY t.rel
), condition AS (
	-- The columns that the conditions of a fence look at, under their present names
	SELECT t.rel, min(a.attname::text) FILTER (WHERE a.atttypid = 'bigint'::regtype) AS epoch_column,
		min(a.attname::text) FILTER (WHERE a.atttypid <> 'bigint'::regtype) AS lease_column
	FROM trigger t
		JOIN pg_depend d ON d.classid = 'pg_trigger'::regclass AND d.objid = t.oid
			AND d.refclassid = 'pg_class'::regclass AND d.refobjid = t.rel
		JOIN pg_attribute a ON a.attrelid = t.rel AND a.attnum = d.refobjsubid AND a.attnum > 0
	GROUP BY t.rel
), root AS (
	SELECT f.rel, f.lease, f.ddl, f.epoch_column, f.lease_column, n.epoch_name, n.lease_name,
		coalesce(m.always, false) AS always,
		CASE WHEN f.ddl THEN format('BEGIN; SELECT lease.guard(name, epoch) FROM lease.status WHERE name = %L; ', f.lease)
			ELSE '' END
			|| CASE WHEN f.epoch_column IS NOT NULL AND n.epoch_name IS NULL
				THEN format('ALTER TABLE %s ADD COLUMN IF NOT EXISTS %I bigint; ', f.rel, f.epoch_column) ELSE '' END
			|| CASE WHEN f.lease_column IS NOT NULL AND n.lease_name IS NULL
				THEN format('ALTER TABLE %s ADD COLUMN IF NOT EXISTS %I text; ', f.rel, f.lease_column) ELSE '' END
			|| format('SELECT lease.unprotect(%1$L), lease.protect(%1$L, %2$L%3$s%4$s%5$s%6$s);',
				f.rel, f.lease,
				', epoch_column => ' || quote_literal(coalesce(n.epoch_name, f.epoch_column)),
				', lease_column => ' || quote_literal(coalesce(n.lease_name, f.lease_column)),
				CASE WHEN NOT f.ddl THEN ', ddl => false' END,
				CASE WHEN m.always THEN ', always => true' END)
			|| CASE WHEN f.ddl THEN ' COMMIT;' ELSE '' END AS rebuild
	FROM lease.fence f
		LEFT JOIN mode m ON m.rel = f.rel
		LEFT JOIN condition c ON c.rel = f.rel
		CROSS JOIN LATERAL (SELECT
			CASE WHEN f.epoch_column IS NOT NULL THEN coalesce(c.epoch_column, (SELECT a.attname::text
				FROM pg_attribute a WHERE a.attrelid = f.rel AND a.attname = f.epoch_column
					AND a.attnum > 0 AND NOT a.attisdropped)) END AS epoch_name,
			CASE WHEN f.lease_column IS NOT NULL THEN coalesce(c.lease_column, (SELECT a.attname::text
				FROM pg_attribute a WHERE a.attrelid = f.rel AND a.attname = f.lease_column
					AND a.attnum > 0 AND NOT a.attisdropped)) END AS lease_name) AS n
), fenced AS (
	SELECT DISTINCT ON (t.rel) t.rel, c.relkind, c.relpersistence, c.relowner, r.rel AS root, r.lease,
		r.epoch_column, r.lease_column, r.epoch_name, r.lease_name, r.rebuild,
		s.name IS NOT NULL AS lease_exists, s.role AS lease_role,
		coalesce(f.row_trigger, 'missing') AS row_trigger,
		CASE WHEN c.relkind = 'f' AND current_setting('server_version_num')::int < 160000
			THEN 'impossible' ELSE coalesce(f.truncate_trigger, 'missing') END AS truncate_trigger,
		CASE WHEN coalesce(m.always, r.always) THEN 'ENABLE ALWAYS' ELSE 'ENABLE' END AS enable
	FROM tree t
		JOIN root r ON r.rel = t.root
		JOIN pg_class c ON c.oid = t.rel
		LEFT JOIN lease.fence f ON f.rel = t.rel
		LEFT JOIN mode m ON m.rel = t.rel
		LEFT JOIN lease.read_status() s ON s.name = r.lease
	ORDER BY t.rel, r.rel
), bypass AS (
	-- A null oid stands for everybody; 10 is BOOTSTRAP_SUPERUSERID.
	SELECT r.oid, true AS is_superuser, format('role %I', r.rolname) AS object,
		CASE WHEN r.oid = 10 THEN 'is the superuser that the cluster was made with, which has to be one'
			ELSE 'is a superuser' END AS why,
		CASE WHEN r.oid <> 10 THEN format('ALTER ROLE %I NOSUPERUSER;', r.rolname) END AS remedy
	FROM pg_roles r
	WHERE r.rolsuper AND (r.rolcanlogin OR EXISTS (SELECT FROM pg_auth_members m WHERE m.roleid = r.oid))
	UNION ALL
	SELECT DISTINCT r.oid, false, coalesce('role ' || quote_ident(r.rolname), 'all roles'),
		CASE WHEN g.privilege_type = 'SET' THEN format('may set %s', a.parname)
			ELSE format('may change %s with ALTER SYSTEM', a.parname) END
			|| CASE a.parname WHEN 'event_triggers' THEN ', without which nothing is fenced against DDL'
				ELSE ', and under "replica" ordinary triggers do not fire' END,
		format('REVOKE %s ON PARAMETER %I FROM %s CASCADE;', g.privilege_type, a.parname,
			coalesce(quote_ident(r.rolname), 'PUBLIC'))
	FROM pg_parameter_acl a
		CROSS JOIN LATERAL aclexplode(a.paracl) AS g
		LEFT JOIN pg_roles r ON r.oid = g.grantee
	WHERE a.parname IN ('session_replication_role', 'event_triggers')
		AND (g.grantee = 0 OR NOT r.rolsuper)
	UNION ALL
	SELECT r.oid, false, format('role %I', r.rolname),
		format('owns %s%s, so that it may disable the triggers',
			array_to_string((array_agg(f.rel::text ORDER BY f.rel <> f.root, f.rel::text COLLATE "C"))[1:5], ', '),
			CASE WHEN count(*) > 5 THEN format(' and %s more', count(*) - 5) END),
		CASE WHEN count(*) > 5 THEN 'REASSIGN OWNED BY ' || quote_ident(r.rolname) || ' TO another_role;'
			ELSE string_agg(format('ALTER TABLE %s OWNER TO another_role;', f.rel), ' ' ORDER BY f.rel::text COLLATE "C") END
	FROM fenced f JOIN pg_roles r ON r.oid = f.relowner
	WHERE NOT r.rolsuper
	GROUP BY r.oid, r.rolname
	UNION ALL
	SELECT r.oid, false, format('role %I', r.rolname),
		'owns the extension, so that it may drop it and all fences with it', 'REASSIGN OWNED BY ' || quote_ident(r.rolname) || ' TO another_role;'
	FROM pg_extension e JOIN pg_roles r ON r.oid = e.extowner
	WHERE e.extname = 'lease' AND NOT r.rolsuper
), finding(severity, object, meaning, remedy) AS (

	-- Fences that do not fire
	SELECT 'error', format('table %s', f.rel),
		format('The fence against %s is %s, so that whoever may write to the table can do so without a token.',
			e.events, CASE e.fires WHEN 'replica' THEN 'enabled for replication only' ELSE e.fires END),
		CASE WHEN e.fires = 'missing' THEN f.rebuild ELSE (
			SELECT string_agg(format('ALTER TABLE %s %s TRIGGER %I;', t.rel, f.enable, t.tgname),
				' ' ORDER BY t.tgname)
			FROM trigger t
			WHERE t.rel = f.rel AND t.tgenabled IN ('D', 'R') AND NOT t.is_stamp
				AND t.is_truncate = (e.events = 'TRUNCATE')) END
	FROM fenced f
		CROSS JOIN LATERAL (VALUES ('INSERT, UPDATE and DELETE', f.row_trigger),
			('TRUNCATE', f.truncate_trigger)) AS e(events, fires)
	WHERE e.fires IN ('missing', 'disabled', 'replica')

	UNION ALL
	SELECT 'error', format('event trigger %I', coalesce(t.evtname, e.name)),
		format('It is %s, so that %s.',
			CASE t.evtenabled WHEN 'D' THEN 'disabled' WHEN 'R' THEN 'enabled for replication only' ELSE 'missing' END,
			e.meaning),
		coalesce('ALTER EVENT TRIGGER ' || quote_ident(t.evtname) || ' ENABLE ALWAYS;',
			format('CREATE EVENT TRIGGER %1$I ON %2$s%4$s EXECUTE FUNCTION %3$s;'
				' ALTER EVENT TRIGGER %1$I ENABLE ALWAYS; ALTER EXTENSION lease ADD EVENT TRIGGER %1$I;',
				e.name, e.event, e.function, e.tags))
	FROM (VALUES
			('lease_watch_ddl', 'ddl_command_start', 'lease.watch_ddl()',
				'DROP, DETACH and ATTACH of protected tables, and the loss of a fence, are not refused without a token', ''),
			('lease_watch_rewrites', 'table_rewrite', 'lease.watch_ddl()',
				'ALTER COLUMN ... TYPE, which can compute the rows of a protected table anew, is not refused without a token', ''),
			('lease_extend_fences', 'ddl_command_end', 'lease.extend_fences()',
				'new partitions are not fenced against TRUNCATE, and new inheritance children not at all',
				' WHEN TAG IN (''CREATE TABLE'', ''ALTER TABLE'', ''CREATE FOREIGN TABLE'', ''ALTER FOREIGN TABLE'', ''CREATE SCHEMA'')'))
			AS e(name, event, function, meaning, tags)
		LEFT JOIN pg_event_trigger t ON t.evtevent = e.event AND t.evtfoid = e.function::regprocedure
	WHERE coalesce(t.evtenabled IN ('D', 'R'), true)

	UNION ALL
	SELECT 'error', CASE WHEN s.setrole <> 0 THEN format('role %s', s.setrole::regrole)
			WHEN s.setdatabase <> 0 THEN format('database %I', d.datname)
			ELSE 'all roles' END,
		format('Sessions begin with %s, under which %s.', c.setting, CASE c.name
			WHEN 'event_triggers' THEN 'protected tables are not fenced against DDL'
			ELSE 'the triggers of ordinary fences do not fire' END),
		CASE WHEN s.setrole = 0 AND s.setdatabase <> 0 THEN format('ALTER DATABASE %I', d.datname)
			ELSE format('ALTER ROLE %s', CASE WHEN s.setrole = 0 THEN 'ALL' ELSE s.setrole::regrole::text END)
				|| coalesce(' IN DATABASE ' || quote_ident(d.datname), '') END
			|| format(' RESET %I;', c.name)
	FROM pg_db_role_setting s
		LEFT JOIN pg_database d ON d.oid = s.setdatabase
		CROSS JOIN LATERAL (SELECT u.setting, split_part(u.setting, '=', 1), split_part(u.setting, '=', 2)
			FROM unnest(s.setconfig) AS u(setting)) AS c(setting, name, value)
	WHERE (s.setdatabase = 0 OR d.datname = current_database())
		AND CASE c.name WHEN 'session_replication_role' THEN lower(c.value) = 'replica'
			WHEN 'event_triggers' THEN NOT c.value::boolean ELSE false END

	UNION ALL
	SELECT 'warning', format('function %s', p.oid::regprocedure),
		'It runs with session_replication_role=replica, under which the triggers of ordinary fences do not fire, whoever calls it.',
		format('ALTER FUNCTION %s RESET session_replication_role;', p.oid::regprocedure)
	FROM pg_proc p
	WHERE lower(array_to_string(p.proconfig, ' ')) LIKE '%session_replication_role=replica%'
		AND EXISTS (SELECT FROM fenced)

	-- What the server is set to, and what a crash may take back
	UNION ALL
	SELECT 'error', format('setting %s', s.name),
		format('It is %s%s', s.reset_val, e.meaning) || CASE WHEN s.source = 'command line'
			THEN ' It was given on the command line of the server, which has to be restarted without it.' ELSE '' END,
		CASE WHEN s.source <> 'command line'
			THEN format('ALTER SYSTEM SET %I = %s; SELECT pg_reload_conf();', s.name, e.mended) END
	FROM pg_settings s
		JOIN (VALUES
			('session_replication_role', 'replica', 'origin', ', so that the triggers of ordinary fences do not fire.'),
			('event_triggers', 'off', 'on', ', so that protected tables are not fenced against DDL, and new inheritance children not at all.'),
			('fsync', 'off', 'on', ': a crash of the host may take back grants and epochs that were told, or damage the database.'),
			('full_page_writes', 'off', 'on', ': a crash of the host may take back grants and epochs that were told, or damage the database.'))
			AS e(name, harmful, mended, meaning)
			ON s.name = e.name AND s.reset_val = e.harmful
	WHERE s.source IN ('configuration file', 'command line')

	UNION ALL
	SELECT 'warning', format('table %s', f.rel),
		'It is protected and UNLOGGED: a crash empties it, whoever holds the lease, and a standby has nothing of it.',
		format('ALTER TABLE %s SET LOGGED;', f.rel)
	FROM fenced f
	WHERE f.relpersistence = 'u' AND f.relkind <> 'p'

	-- What epochs come from
	UNION ALL
	SELECT 'error', format('sequence lease.%s', c.relname),
		'It is not logged: after a crash, epochs that were told would be told again, so that nothing is granted.',
		format('ALTER SEQUENCE lease.%s SET LOGGED;', c.relname)
	FROM pg_class c
	WHERE c.oid IN ('lease.epoch'::regclass, 'lease.origin'::regclass, 'lease.epoch_floor'::regclass)
		AND c.relpersistence <> 'p'

	UNION ALL
	SELECT 'error', format('sequence lease.%s', c.relname),
		'Its definition was changed: epochs may be told twice, out of order, or not at all.',
		format('ALTER SEQUENCE lease.%s AS bigint INCREMENT 1 MINVALUE 1 MAXVALUE 9223372036854775807 CACHE 1 NO CYCLE;', c.relname)
	FROM pg_class c
		JOIN pg_sequence s ON s.seqrelid = c.oid
	WHERE c.oid IN ('lease.epoch'::regclass, 'lease.origin'::regclass, 'lease.epoch_floor'::regclass)
		AND NOT (s.seqincrement = 1 AND s.seqmin = 1 AND s.seqmax = 9223372036854775807
			AND s.seqcache = 1 AND NOT s.seqcycle)

	-- What has happened
	UNION ALL
	SELECT 'warning', format('table %s', r.rel),
		'What keeps it append-only is missing or disabled: ' || r.meaning,
		CASE WHEN t.there = 2 THEN format('ALTER TABLE %s ENABLE ALWAYS TRIGGER lease_keep_events, ENABLE ALWAYS TRIGGER lease_keep_events_truncate;', r.rel) END
	FROM (VALUES
			('lease.event'::regclass, 'the history of leases can be altered. lease.verify_history() tells whether it was.'),
			('lease.pruned'::regclass, 'the history of leases can be altered. lease.verify_history() tells whether it was.'),
			('lease.acknowledgement'::regclass, 'who has acknowledged what can be altered.'),
			('lease.record'::regclass, 'what stays decided can be altered. lease.verify_authority() tells whether it was.')) AS r(rel, meaning)
		CROSS JOIN LATERAL (SELECT count(*) AS there, count(*) FILTER (WHERE t.tgenabled = 'A') AS always
			FROM pg_trigger t
			WHERE t.tgrelid = r.rel AND t.tgfoid = 'lease.keep_events()'::regprocedure) AS t
	WHERE t.always < 2

	-- Time
	UNION ALL
	SELECT 'warning', 'clock',
		'This host has no boot clock that all its processes agree on, so that leases are judged by its wall clock: a step of that ends grants early or prolongs them.',
		NULL
	WHERE lease.boot_clock() IS NULL

	UNION ALL
	SELECT 'notice', 'clock',
		format('The wall clock has been stepped by up to %s since leases were last granted or renewed: %s%s. No grant is longer or shorter for that; their expires_at follow at the next renewal.',
			(array_agg(s.clock_step ORDER BY abs(extract(epoch FROM s.clock_step)) DESC))[1],
			array_to_string((array_agg(s.name ORDER BY s.name))[1:5], ', '),
			CASE WHEN count(*) > 5 THEN format(' and %s more', count(*) - 5) END),
		NULL
	FROM lease.read_status() s
	WHERE abs(extract(epoch FROM s.clock_step)) > 1
	HAVING count(*) > 0

	-- What a failover may take back
	UNION ALL
	SELECT 'warning', 'setting synchronous_standby_names',
		format('It is %s, and no synchronous standby is connected: every acquire waits for one.', s.setting),
		'ALTER SYSTEM RESET synchronous_standby_names; SELECT pg_reload_conf();'
	FROM pg_settings s
	WHERE s.name = 'synchronous_standby_names' AND s.setting <> '' AND NOT pg_is_in_recovery()
		AND pg_has_role('pg_read_all_stats', 'USAGE')
		AND NOT EXISTS (SELECT FROM pg_stat_get_wal_senders() w WHERE w.sync_state IN ('sync', 'quorum'))

	UNION ALL
	SELECT 'notice', 'setting synchronous_standby_names',
		'It is empty, and there are standbys: a failover may lose the last grants that were told, whose holders believe in them until their own deadlines. Epochs and fences hold all the same.',
		'ALTER SYSTEM SET synchronous_standby_names = ''*''; SELECT pg_reload_conf();'
	FROM pg_settings s
	WHERE s.name = 'synchronous_standby_names' AND s.setting = '' AND NOT pg_is_in_recovery()
		AND EXISTS (SELECT FROM pg_stat_get_wal_senders() w WHERE w.state IN ('streaming', 'catchup'))

	UNION ALL
	SELECT 'notice', 'setting synchronous_commit',
		format('It is %s: a crash may take back renewals, releases and work that were acknowledged. Grants commit durably all the same.', s.setting),
		'ALTER SYSTEM SET synchronous_commit = on; SELECT pg_reload_conf();'
	FROM pg_settings s
	WHERE s.name = 'synchronous_commit' AND s.reset_val = 'off'

	UNION ALL
	SELECT 'notice', 'setting data_checksums',
		'It is off: damage to the page of a lease or of an epoch may go unnoticed. pg_checksums --enable, while the server is stopped, switches it on.',
		NULL
	FROM pg_settings s
	WHERE s.name = 'data_checksums' AND s.setting = 'off'

	-- Fences that let nobody through
	UNION ALL
	SELECT 'warning', format('lease "%s"', f.lease),
		format('It does not exist, so that nobody can write to what it protects: %s%s. Its settings (role, ttl, grace, min_hold, late_commit) are gone with it.',
			array_to_string((array_agg(f.rel::text ORDER BY f.rel::text COLLATE "C"))[1:5], ', '),
			CASE WHEN count(*) > 5 THEN format(' and %s more', count(*) - 5) END),
		format('SELECT lease.create(%L, role => ''another_role'');', f.lease)
	FROM fenced f
	WHERE f.rel = f.root AND NOT f.lease_exists
	GROUP BY f.lease

	UNION ALL
	SELECT 'warning', format('table %s', f.rel),
		format('Column "%s" has a default, which is taken for the token of every row that is inserted without one.', a.attname),
		format('ALTER TABLE %s ALTER COLUMN %I DROP DEFAULT;', f.rel, a.attname)
	FROM fenced f
		JOIN pg_attribute a ON a.attrelid = f.rel AND a.attname = f.epoch_name
	WHERE a.atthasdef AND a.attgenerated = ''

	UNION ALL
	SELECT DISTINCT 'warning', format('lease "%s"', f.lease),
		'It belongs to a role that has been dropped, so that nobody can act under it or write to what it protects.',
		format('SELECT lease.alter(%L, role => ''another_role'');', f.lease)
	FROM fenced f
	WHERE f.lease_exists AND NOT EXISTS (SELECT FROM pg_roles r WHERE r.oid = f.lease_role)

	UNION ALL
	SELECT 'warning', format('table %s', f.rel),
		format('Its fence expects the column "%s", which %s, so that %s.', c.name,
			coalesce('is called "' || c.present || '" now', 'does not exist'),
			CASE WHEN f.epoch_column IS NULL THEN 'no inheritance child of the table can be made'
				ELSE 'INSERT and UPDATE fail' END),
		f.rebuild
	FROM fenced f
		CROSS JOIN LATERAL (VALUES (f.epoch_column, f.epoch_name), (f.lease_column, f.lease_name)) AS c(name, present)
	WHERE f.rel = f.root AND c.name IS DISTINCT FROM c.present

	UNION ALL
	SELECT 'warning', format('table %s', f.rel),
		'The trigger that writes epochs into its rows is ' || coalesce(CASE t.tgenabled
			WHEN 'R' THEN 'enabled for replication only' WHEN 'D' THEN 'disabled' END, 'missing')
			|| ', so that its fence refuses every INSERT and UPDATE that does not write the epoch itself.',
		coalesce(format('ALTER TABLE %s %s TRIGGER ', f.rel, f.enable) || quote_ident(t.tgname) || ';', f.rebuild)
	FROM fenced f
		LEFT JOIN trigger t ON t.rel = f.rel AND t.is_stamp
	WHERE f.epoch_column IS NOT NULL AND f.row_trigger <> 'missing'
		AND coalesce(t.tgenabled IN ('R', 'D'), true)

	-- Maintenance
	UNION ALL
	SELECT 'warning', format('%s "%s"', d.kind, d.name),
		format('Its lease "%s" does not exist, so that nobody can do it.', d.lease),
		format('SELECT lease.create(%L, role => ''another_role'');', d.lease)
	FROM (SELECT 'task' AS kind, t.name, t.lease FROM lease.task t
			UNION ALL
			SELECT 'action', a.name, a.lease FROM lease.action a) AS d
	WHERE NOT EXISTS (SELECT FROM lease.read_status() s WHERE s.name = d.lease)

	UNION ALL
	SELECT 'warning', format('task "%s"', m.task),
		format('Nothing of it has been begun since %s, when an occurrence was due: lease "%s" %s.', m.late_since, m.lease,
			CASE WHEN s.state = 'held' THEN format('is held by "%s", which does not do it, or has not committed', s.holder)
				ELSE 'is not held' END),
		CASE WHEN s.state = 'held' THEN format('SELECT lease.revoke(%L);', m.lease) END
	FROM lease.maintenance m
		JOIN lease.task t ON t.name = m.task
		JOIN lease.read_status() s ON s.name = m.lease
	WHERE m.late_since <= lease.transaction_time() - t.misfire_after

	UNION ALL
	SELECT 'warning', format('task "%s"', m.task),
		format('An occurrence of it has been running since %s, under an epoch that "%s" still holds. If nobody is at it any more, the remedy has it tried again.',
			m.running_since, m.running_by),
		(SELECT format('SELECT lease.finish_occurrence(%L, %L, %s, %s, ''failed'');', a.task, a.due_at, a.attempt, a.epoch)
			FROM lease.occurrence_attempt a
			WHERE a.task = m.task AND a.begun_at = m.running_since AND a.verdict IS NULL
			ORDER BY a.due_at LIMIT 1)
	FROM lease.maintenance m
		JOIN lease.task t ON t.name = m.task
	WHERE m.running_since <= lease.transaction_time() - t.misfire_window

	UNION ALL
	SELECT CASE WHEN m.last_verdict = 'failed' THEN 'warning' ELSE 'notice' END, format('task "%s"', m.task),
		CASE WHEN m.last_verdict = 'failed'
			THEN format('Its latest settled occurrence, due at %s, has failed: %s.', m.last_due, coalesce(m.last_result::text, 'nothing was said'))
			ELSE format('%s wait after an attempt that failed, the latest at %s: %s.',
				CASE WHEN m.waiting = 1 THEN 'One occurrence has to' ELSE format('%s occurrences have to', m.waiting) END,
				m.last_failure, coalesce(m.last_error::text, 'nothing was said')) END,
		NULL
	FROM lease.maintenance m
	WHERE m.enabled AND (m.last_verdict = 'failed' OR m.waiting > 0)

	UNION ALL
	SELECT 'warning', format('task "%s"', c.task),
		format('It has come as far as %s: the clock of this server has been set back since. Nothing is due until then.', c.since),
		format('SELECT lease.alter_task(%1$L, enabled => false), lease.alter_task(%1$L, enabled => true);', c.task)
	FROM lease.task_cursor c
		JOIN lease.task t ON t.name = c.task
	WHERE t.enabled AND c.since > lease.transaction_time() + interval '1 min'

	UNION ALL
	SELECT 'error', format('task "%s"', t.name),
		format('This server does not know its time zone "%s" any more, so that it is never due.', t.time_zone),
		format('SELECT lease.alter_task(%L, time_zone => ''UTC'');', t.name)
	FROM lease.task t
	WHERE NOT lease.knows_zone(t.time_zone)

	UNION ALL
	SELECT 'warning', format('resource "%s"', a.resource),
		'It belongs to a role that has been dropped, so that nobody can admit anything to it.',
		format('SELECT lease.forget_admission(%L);', a.resource)
	FROM lease.admission a
	WHERE NOT EXISTS (SELECT FROM pg_roles r WHERE r.oid = a.role)

	UNION ALL
	SELECT 'warning', format('action "%s"', g.action),
		CASE WHEN c.oid IS NULL THEN 'It is classified as protected, and its table has been dropped, so that it cannot be begun.'
			ELSE format('It is classified as protected, but table %s is not fenced by lease "%s", so that it cannot be begun.', g.rel, g.lease) END,
		CASE WHEN c.oid IS NULL THEN format('SELECT lease.drop_action(%L);', g.action)
			ELSE format('SELECT lease.protect(%L, %L);', g.rel, g.lease) END
	FROM lease.guarantee g
		LEFT JOIN pg_class c ON c.oid = g.rel
	WHERE g.class = 'protected' AND NOT g.supported

	UNION ALL
	SELECT 'notice', format('action "%s"', g.action),
		format('It is unfenced: nothing keeps a paused holder of lease "%s" from reaching "%s" after its successor.', g.lease, g.provider),
		NULL
	FROM lease.guarantee g
	WHERE g.class = 'unfenced'

	-- Authority records
	UNION ALL
	SELECT 'error', format('lease "%s"', c.lease),
		'The latest of its records is missing, or was altered: lease.verify_authority() tells more.', NULL
	FROM lease.record_chain c
		LEFT JOIN lease.record r ON r.lease = c.lease AND r.seq = c.last_seq
	WHERE r.digest IS DISTINCT FROM c.last_digest
		OR EXISTS (SELECT FROM lease.record x WHERE x.lease = c.lease AND x.seq > c.last_seq)

	UNION ALL
	SELECT 'warning', format('lease "%s"', a.lease),
		format('%s opened under an epoch that is not held any more, and not settled, the first being attempt %s at "%s", opened by "%s" at %s. Whoever holds the lease finds out what has become of it, and calls lease.settle_attempt(); until then it holds back lease.compact().',
			CASE WHEN count(*) = 1 THEN 'One attempt was' ELSE format('%s attempts were', count(*)) END,
			min(a.attempt), (array_agg(a.subject ORDER BY a.attempt))[1], (array_agg(a.holder ORDER BY a.attempt))[1], min(a.opened_at)),
		NULL
	FROM lease.attempt a
		LEFT JOIN lease.read_status() s ON s.name = a.lease AND s.state = 'held'
	WHERE a.status = 'open' AND a.epoch IS DISTINCT FROM s.epoch
	GROUP BY a.lease

	UNION ALL
	SELECT 'warning', format('cursor "%s" of lease "%s"', c.cursor, c.lease),
		format('It stands at position "%s" in the destructive phase "%s" since epoch %s of "%s", which is not held any more. Whoever holds the lease sees to what may have been left half done, and takes it over.',
			c.position, c.phase, c.epoch, c.holder),
		CASE WHEN s.epoch IS NOT NULL THEN format('SELECT lease.take_over_cursor(%L, %s, %L, %L, %L);', c.lease, s.epoch, c.cursor, c.position, c.phase) END
	FROM lease.cursor c
		LEFT JOIN lease.read_status() s ON s.name = c.lease AND s.state = 'held'
	WHERE c.destructive AND c.epoch IS DISTINCT FROM s.epoch

	UNION ALL
	SELECT 'warning', format('floor "%s"', f.floor),
		format('Its lease "%s" does not exist, so that nobody can advance it.', f.lease),
		format('SELECT lease.create(%L, role => ''another_role'');', f.lease)
	FROM lease.floor f
	WHERE NOT EXISTS (SELECT FROM lease.read_status() s WHERE s.name = f.lease)
		AND f.floor <> f.lease || '#records'

	UNION ALL
	SELECT 'notice', format('floor "%s"', p.floor),
		format('"%s" has held it back at %s since %s, and renews.', p.holder, p.position, p.held_since),
		format('SELECT lease.unpin(%L, %L);', p.floor, p.holder)
	FROM (SELECT h.*, min(h.position) OVER (PARTITION BY h.floor) AS lowest FROM lease.pin_held h) AS p
	WHERE p.position = p.lowest AND p.held_since < lease.transaction_time() - interval '1 day'

	-- What gets past fences by right
	UNION ALL
	SELECT 'warning', format('table %s', f.rel),
		format('Subscription "%s" writes to it, past its fence. That is right where the publisher''s table is protected;'
			' where it is not, the remedy makes the fence fire, and the subscription then stops at its next change of the table.',
			s.subname),
		(SELECT string_agg(format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I;', t.rel, t.tgname), ' ' ORDER BY t.tgname)
			FROM trigger t WHERE t.rel = f.rel)
	FROM fenced f
		JOIN pg_subscription_rel p ON p.srrelid = f.rel
			OR p.srrelid IN (SELECT a.relid FROM pg_partition_ancestors(f.rel) a)
		JOIN pg_subscription s ON s.oid = p.srsubid
	WHERE 'origin' IN (f.row_trigger, f.truncate_trigger)

	UNION ALL
	SELECT CASE WHEN l.leases IS NULL THEN 'notice' ELSE 'warning' END,
		b.object,
		CASE WHEN b.oid IS NULL THEN format('Everybody %s: everybody can get past fences.', b.why)
			ELSE format('It %s: it can get past fences.', b.why) END
			|| CASE WHEN l.leases IS NULL THEN ''
				ELSE format(' Whoever acts as %s may act under %s, too, and could go on writing after having been superseded.',
					l.roles, l.leases) END,
		b.remedy
	FROM bypass b
		CROSS JOIN LATERAL (
			SELECT string_agg(DISTINCT quote_ident(m.rolname), ', ') AS roles,
				string_agg(DISTINCT format('lease "%s"', f.lease), ', ') AS leases
			FROM pg_roles m
				JOIN (SELECT DISTINCT lease, lease_role FROM fenced WHERE lease_exists) AS f
					ON pg_has_role(m.oid, f.lease_role, 'MEMBER')
			WHERE NOT b.is_superuser AND NOT m.rolsuper
				AND (b.oid IS NULL OR pg_has_role(m.oid, b.oid, 'MEMBER'))) AS l
	WHERE EXISTS (SELECT FROM fenced)
)
SELECT f.severity, f.object, f.meaning, f.remedy
FROM finding f
ORDER BY array_position('{error,warning,notice}', f.severity), f.object COLLATE "C", f.meaning COLLATE "C";
$$;
COMMENT ON FUNCTION lease.doctor() IS
'conditions under which fences do not hold, one row each: how serious, which object, what it means, and the statements that mend it, in which another_role stands for a role to be chosen, null if no statement does; those that guard by a lease work while somebody holds it; no row: nothing was found';
