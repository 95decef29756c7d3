-- Fences: tables that only a guarded transaction may write.  See src/fence.c,
-- src/stamp.c and src/ddl.c.

--
-- The functions of the triggers
--

CREATE FUNCTION lease.refuses(
	lease text,
	rel regclass DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'lease_refuses'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.refuses(text, regclass) IS
'the condition of a fence: false in a transaction that may write under the lease, an error in any other';

CREATE FUNCTION lease.refuses_stamp(
	lease text,
	rel regclass,
	epoch bigint)
RETURNS boolean
AS 'MODULE_PATHNAME', 'lease_refuses_stamp'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.refuses_stamp(text, regclass, bigint) IS
'the same for a row that has to carry the epoch: false if that is one of the transaction''s guards';

CREATE FUNCTION lease.refuses_older(
	lease text,
	rel regclass,
	epoch bigint)
RETURNS boolean
AS 'MODULE_PATHNAME', 'lease_refuses_older'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.refuses_older(text, regclass, bigint) IS
'the same for a row that is to be changed or deleted and carries an epoch: false unless that is later than those of the transaction''s guards';

CREATE FUNCTION lease.row_lease(
	lease text,
	fallback text)
RETURNS text
AS 'MODULE_PATHNAME', 'lease_row_lease'
LANGUAGE C IMMUTABLE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.row_lease(text, text) IS
'the lease under which a row is that was there before: the one that it names, or fallback if it names none or what it has there is no name of a lease';

CREATE FUNCTION lease.fence()
RETURNS trigger
AS 'MODULE_PATHNAME', 'lease_fence'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.fence() IS
'the trigger function of a fence; use lease.protect() to make one';

CREATE FUNCTION lease.stamp()
RETURNS trigger
AS 'MODULE_PATHNAME', 'lease_stamp'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.stamp() IS
'the trigger function that takes tokens from rows and writes epochs into them; use lease.protect() to make one';

--
-- What is fenced
--

CREATE FUNCTION lease.read_trigger(
	trigger oid,
	OUT lease text,
	OUT ddl boolean,
	OUT epoch_column name,
	OUT lease_column name)
RETURNS record
AS 'MODULE_PATHNAME', 'lease_read_trigger'
LANGUAGE C STABLE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.read_trigger(oid) IS
'how the trigger of that OID protects its table; null if it belongs to no fence or asks for no guard';

-- The lease of a table is that of the row triggers that protect() has made; what others
-- may be there by hand does not count, nor does a fence of UPDATE that looks at some
-- columns only.
CREATE VIEW lease.fence AS
	WITH trigger AS (
		SELECT t.tgrelid, t.tgname, t.tgparentid, a.*,
			t.tgtype::int4 & 32 = 0 AS is_row,
			t.tgtype::int4 & CASE WHEN t.tgattr::pg_catalog.text = '' THEN 28 ELSE 12 END AS events,
			pg_catalog.strpos('DROA', t.tgenabled::pg_catalog.text) AS fires,
			pg_catalog.first_value(a.lease) OVER (PARTITION BY t.tgrelid
				ORDER BY t.tgtype::int4 & 32, t.tgname NOT IN ('lease_fence', 'lease_fence_insert'), t.tgname) AS of_table
		FROM pg_catalog.pg_trigger t
			JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
			CROSS JOIN LATERAL lease.read_trigger(t.oid) AS a
		WHERE t.tgfoid = 'lease.fence()'::pg_catalog.regprocedure
			AND c.relpersistence <> 't' AND a.lease IS NOT NULL
			AND (t.tgtype::int4 & 67 = 1 OR t.tgtype::int4 & 32 <> 0)	-- AFTER each row, or TRUNCATE
	)
	SELECT t.tgrelid::pg_catalog.regclass AS rel,
		t.of_table AS lease,
		(pg_catalog.array_agg(t.lease_column ORDER BY t.is_row DESC, t.tgname))[1] AS lease_column,
		(pg_catalog.array_agg(t.epoch_column ORDER BY t.is_row DESC, t.tgname))[1] AS epoch_column,
		pg_catalog.bool_or(t.ddl) AS ddl,
		CASE WHEN pg_catalog.bit_or(t.events) FILTER (WHERE t.is_row) = 28
			THEN (ARRAY['disabled', 'replica', 'origin', 'always'])[pg_catalog.min(t.fires) FILTER (WHERE t.is_row)]
			ELSE 'missing' END AS row_trigger,
		coalesce((ARRAY['disabled', 'replica', 'origin', 'always'])[pg_catalog.min(t.fires) FILTER (WHERE NOT t.is_row)],
			'missing') AS truncate_trigger,
		pg_catalog.bool_or(t.tgparentid <> 0) AS inherited
	FROM trigger t
	WHERE t.lease = t.of_table
	GROUP BY t.tgrelid, t.of_table;
COMMENT ON VIEW lease.fence IS 'every fenced table, as the catalog has it';
COMMENT ON COLUMN lease.fence.rel IS 'the table';
COMMENT ON COLUMN lease.fence.lease IS 'the lease that protects it; with a lease_column, the one that protects it as a whole, against TRUNCATE and DDL';
COMMENT ON COLUMN lease.fence.lease_column IS 'the column that names the lease of each row, null if all belong to that one';
COMMENT ON COLUMN lease.fence.epoch_column IS 'the column in which each row carries the epoch under which it was written, null if they carry none';
COMMENT ON COLUMN lease.fence.ddl IS 'whether the table is also protected against DROP, DETACH, ATTACH, INHERIT, loss of a column, a new computation of one, and loss of its fence';
COMMENT ON COLUMN lease.fence.row_trigger IS 'when the fence of INSERT, UPDATE and DELETE fires: origin (but not for replication), always, replica (only for replication), disabled, missing';
COMMENT ON COLUMN lease.fence.truncate_trigger IS 'the same for TRUNCATE';
COMMENT ON COLUMN lease.fence.inherited IS 'whether the row trigger comes from the partitioned table that it is a partition of';

CREATE FUNCTION lease.own_triggers(
	rel regclass)
RETURNS SETOF name
AS 'MODULE_PATHNAME', 'lease_own_triggers'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.own_triggers(regclass) IS
'the triggers of a table''s fence, but for those that come from a partitioned table';

CREATE FUNCTION lease.descendants(
	rel regclass)
RETURNS TABLE (descendant regclass, is_partition boolean)
AS 'MODULE_PATHNAME', 'lease_descendants'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.descendants(regclass) IS
'a table and everything below it, locked against writes, for protect and unprotect';

--
-- Building and removing
--

-- PostgreSQL accepts a condition that mentions OLD or NEW only where there is one.
-- The name of the table in it is for errors; a partition gets that of its parent.
CREATE FUNCTION lease.build_fence(
	rel regclass,
	lease text,
	epoch_column name,
	lease_column name,
	ddl boolean,
	always boolean,
	inherited boolean)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	arguments text := format('%L, %L, %L, %L', build_fence.lease,
		CASE WHEN build_fence.ddl THEN 'ddl' ELSE '' END,
		coalesce(build_fence.epoch_column, ''), coalesce(build_fence.lease_column, ''));
	old_row text := quote_literal(build_fence.lease);
	new_row text := quote_literal(build_fence.lease);
	triggers name[] := '{lease_fence_truncate}';
	trigger name;
BEGIN
	-- A column on which the partition key depends is recorded as its dependent.
	IF EXISTS (
		SELECT FROM pg_depend d
			JOIN pg_attribute a ON a.attrelid = d.objid AND a.attnum = d.objsubid
		WHERE d.classid = 'pg_class'::regclass AND d.objid = build_fence.rel AND d.objsubid > 0
			AND d.refclassid = 'pg_class'::regclass AND d.refobjid = build_fence.rel AND d.refobjsubid = 0
			AND d.deptype = 'i' AND a.attname = build_fence.epoch_column)
	THEN
		RAISE invalid_object_definition USING
			MESSAGE = format('column "%s" is part of the partition key of table %s',
				build_fence.epoch_column, build_fence.rel),
			DETAIL = 'Rows are assigned to partitions before they get their epoch.';
	END IF;
	IF current_setting('server_version_num')::int < 160000 AND EXISTS (
		SELECT FROM pg_class c WHERE c.oid = build_fence.rel AND c.relkind = 'f')
	THEN
		RAISE wrong_object_type USING
			MESSAGE = format('foreign table %s cannot be protected', build_fence.rel),
			DETAIL = 'Before PostgreSQL 16 foreign tables cannot have TRUNCATE triggers.';
	END IF;

	-- Partitions get row triggers from their parent, also later ones.
	IF NOT build_fence.inherited THEN
		IF build_fence.lease_column IS NOT NULL THEN
			old_row := format('lease.row_lease(old.%I::pg_catalog.text, %L)', build_fence.lease_column, build_fence.lease);
			new_row := format('new.%I::pg_catalog.text', build_fence.lease_column);
		END IF;
		old_row := format('%s, %L::pg_catalog.regclass', old_row, build_fence.rel);
		new_row := format('%s, %L::pg_catalog.regclass', new_row, build_fence.rel);
		IF build_fence.epoch_column IS NULL THEN
			old_row := format('lease.refuses(%s)', old_row);
			new_row := format('lease.refuses(%s)', new_row);
		ELSE
			old_row := format('lease.refuses_older(%s, old.%I)', old_row, build_fence.epoch_column);
			new_row := format('lease.refuses_stamp(%s, new.%I)', new_row, build_fence.epoch_column);
			EXECUTE format('CREATE TRIGGER lease_stamp BEFORE INSERT OR UPDATE ON %s'
				' FOR EACH ROW EXECUTE FUNCTION lease.stamp(%s)', build_fence.rel, arguments);
			triggers := triggers || name 'lease_stamp';
		END IF;

		IF build_fence.epoch_column IS NULL AND build_fence.lease_column IS NULL THEN
			EXECUTE format('CREATE TRIGGER lease_fence AFTER INSERT OR UPDATE OR DELETE ON %s'
				' FOR EACH ROW WHEN (%s) EXECUTE FUNCTION lease.fence(%s)',
				build_fence.rel, new_row, arguments);
			triggers := triggers || name 'lease_fence';
		ELSE
			EXECUTE format('CREATE TRIGGER lease_fence_insert AFTER INSERT ON %s'
				' FOR EACH ROW WHEN (%s) EXECUTE FUNCTION lease.fence(%s)',
				build_fence.rel, new_row, arguments);
			EXECUTE format('CREATE TRIGGER lease_fence_update AFTER UPDATE ON %s'
				' FOR EACH ROW WHEN (%s OR %s) EXECUTE FUNCTION lease.fence(%s)',
				build_fence.rel, old_row, new_row, arguments);
			EXECUTE format('CREATE TRIGGER lease_fence_delete AFTER DELETE ON %s'
				' FOR EACH ROW WHEN (%s) EXECUTE FUNCTION lease.fence(%s)',
				build_fence.rel, old_row, arguments);
			triggers := triggers || '{lease_fence_insert,lease_fence_update,lease_fence_delete}'::name[];
		END IF;
	END IF;

	EXECUTE format('CREATE TRIGGER lease_fence_truncate BEFORE TRUNCATE ON %s'
		' FOR EACH STATEMENT EXECUTE FUNCTION lease.fence(%s)',
		build_fence.rel, arguments);

	IF build_fence.always THEN
		FOREACH trigger IN ARRAY triggers LOOP
			EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', build_fence.rel, trigger);
		END LOOP;
	END IF;
END;
$$;
COMMENT ON FUNCTION lease.build_fence(regclass, text, name, name, boolean, boolean, boolean) IS
'makes the triggers of one table, for protect and for new partitions and children; inherited: only what a partition does not get from its parent';

CREATE FUNCTION lease.protect(
	rel regclass,
	lease text,
	epoch_column name DEFAULT NULL,
	lease_column name DEFAULT NULL,
	ddl boolean DEFAULT true,
	always boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	class pg_class;
	wanted record;
	attribute pg_attribute;
	node record;
	standing text;
BEGIN
	IF protect.rel IS NULL OR protect.lease IS NULL OR protect.ddl IS NULL
		OR protect.always IS NULL
	THEN
		RAISE null_value_not_allowed USING
			MESSAGE = 'table, lease, ddl and always must not be null';
	END IF;

	SELECT * INTO class FROM pg_class WHERE oid = protect.rel;
	IF NOT FOUND THEN
		RAISE undefined_table USING
			MESSAGE = format('relation with OID %s does not exist', protect.rel::oid);
	END IF;
	IF class.relkind NOT IN ('r', 'p') THEN
		RAISE wrong_object_type USING
			MESSAGE = format('%s is not a table', protect.rel),
			HINT = 'Only ordinary and partitioned tables can be protected.';
	END IF;
	IF class.relpersistence = 't' THEN
		RAISE wrong_object_type USING
			MESSAGE = format('%s is a temporary table', protect.rel),
			DETAIL = 'No other session could write to it anyway.';
	END IF;
	IF class.relnamespace IN ('pg_catalog'::regnamespace, 'pg_toast'::regnamespace,
		'information_schema'::regnamespace, 'lease'::regnamespace) THEN
		RAISE insufficient_privilege USING
			MESSAGE = format('%s is a system table', protect.rel);
	END IF;
	IF NOT pg_has_role(class.relowner, 'USAGE') THEN
		RAISE insufficient_privilege USING
			MESSAGE = format('must be owner of table %s', protect.rel);
	END IF;
	IF NOT EXISTS (SELECT FROM lease.read_status() s WHERE s.name = protect.lease) THEN
		RAISE SQLSTATE 'LS005' USING
			MESSAGE = format('lease "%s" does not exist', protect.lease),
			HINT = 'Create it with lease.create() first: nobody could write to the table.';
	END IF;

	-- descendants() also locks: nobody may write, attach or detach anything while
	-- the fence is built.
	FOR node IN SELECT * FROM lease.descendants(protect.rel) LOOP
		SELECT f.lease INTO standing FROM lease.fence f WHERE f.rel = node.descendant;
		IF FOUND THEN
			RAISE duplicate_object USING
				MESSAGE = format('table %s is already protected by lease "%s"',
					node.descendant, standing),
				HINT = 'Remove that fence with lease.unprotect() first.';
		END IF;
	END LOOP;

	-- After descendants() has locked the table.
	FOR wanted IN SELECT * FROM (VALUES
		(protect.epoch_column, '{bigint}'::regtype[], 'bigint'),
		(protect.lease_column, '{text,varchar}'::regtype[], 'text')) AS w(name, types, type)
	LOOP
		CONTINUE WHEN wanted.name IS NULL;
		SELECT * INTO attribute FROM pg_attribute a
			WHERE a.attrelid = protect.rel AND a.attname = wanted.name
				AND a.attnum > 0 AND NOT a.attisdropped;
		IF NOT FOUND THEN
			RAISE undefined_column USING
				MESSAGE = format('column "%s" of table %s does not exist', wanted.name, protect.rel);
		END IF;
		IF attribute.atttypid <> ALL (wanted.types) THEN
			RAISE datatype_mismatch USING
				MESSAGE = format('column "%s" of table %s is of type %s, not %s',
					wanted.name, protect.rel, format_type(attribute.atttypid, NULL), wanted.type);
		END IF;
		IF attribute.attgenerated <> '' AND protect.epoch_column IS NOT NULL THEN
			RAISE invalid_object_definition USING
				MESSAGE = format('column "%s" of table %s is generated', wanted.name, protect.rel),
				DETAIL = 'It is computed after the row has got its epoch.';
		END IF;
		CONTINUE WHEN wanted.name <> protect.epoch_column OR protect.epoch_column IS NULL;
		IF attribute.attidentity <> '' OR attribute.atthasdef THEN
			RAISE invalid_object_definition USING
				MESSAGE = format('column "%s" of table %s has a default', wanted.name, protect.rel),
				DETAIL = 'It would be taken for the token of every row that is inserted without one.',
				HINT = format('ALTER TABLE %s ALTER COLUMN %I DROP %s;', protect.rel, wanted.name,
					CASE WHEN attribute.attidentity <> '' THEN 'IDENTITY' ELSE 'DEFAULT' END);
		END IF;
	END LOOP;

	FOR node IN SELECT * FROM lease.descendants(protect.rel) LOOP
		PERFORM lease.build_fence(node.descendant, protect.lease, protect.epoch_column,
			protect.lease_column, protect.ddl, protect.always, node.is_partition);
	END LOOP;
END;
$$;
COMMENT ON FUNCTION lease.protect(regclass, text, name, name, boolean, boolean) IS
'builds a fence around a table, its partitions and its children, also later ones: only a transaction that is guarded by the lease may write to it; epoch_column: a column of type bigint in which rows carry their token; lease_column: a column of type text that names the lease of each row, and lease then protects the table as a whole; ddl: also against DROP, DETACH, ATTACH, INHERIT, loss of a column, a new computation of one, and loss of the fence; always: also what replication applies; to be called by the owner of the table';

CREATE FUNCTION lease.unprotect(
	rel regclass)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	fence record;
	node record;
	trigger name;
	removed boolean := false;
BEGIN
	IF unprotect.rel IS NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = 'table must not be null';
	END IF;
	SELECT f.*, c.relowner INTO fence
		FROM lease.fence f JOIN pg_class c ON c.oid = f.rel
		WHERE f.rel = unprotect.rel;
	IF NOT FOUND THEN
		RAISE undefined_object USING
			MESSAGE = format('table %s is not protected', unprotect.rel);
	END IF;
	IF NOT pg_has_role(fence.relowner, 'USAGE') THEN
		RAISE insufficient_privilege USING
			MESSAGE = format('must be owner of table %s', unprotect.rel);
	END IF;
	IF fence.inherited THEN
		RAISE object_not_in_prerequisite_state USING
			MESSAGE = format('table %s is protected as a partition', unprotect.rel),
			HINT = 'Remove the fence of the partitioned table, or detach the partition first.';
	END IF;

	FOR node IN SELECT * FROM lease.descendants(unprotect.rel) LOOP
		-- Row triggers of partitions go with that of the table.
		FOR trigger IN SELECT t FROM lease.own_triggers(node.descendant) t LOOP
			EXECUTE format('DROP TRIGGER %I ON %s', trigger, node.descendant);
			removed := true;
		END LOOP;
	END LOOP;
	IF NOT removed THEN
		RAISE serialization_failure USING
			MESSAGE = format('the fence of table %s has just been removed by another transaction', unprotect.rel);
	END IF;
END;
$$;
COMMENT ON FUNCTION lease.unprotect(regclass) IS
'removes the fence around a table, its partitions and its children; where it was built with ddl, in a transaction that is guarded by the lease; to be called by the owner of the table';

--
-- DDL
--
-- The event triggers fire always, as some fences do; which ones bind a session that acts
-- as replication does is decided in src/ddl.c.
--

CREATE FUNCTION lease.watch_ddl()
RETURNS event_trigger
AS 'MODULE_PATHNAME', 'lease_watch_ddl'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.watch_ddl() IS
'sees to it that DDL on protected tables is watched';

CREATE EVENT TRIGGER lease_watch_ddl ON ddl_command_start
	EXECUTE FUNCTION lease.watch_ddl();
COMMENT ON EVENT TRIGGER lease_watch_ddl IS 'refuses DROP, DETACH, ATTACH and INHERIT of protected tables, loss of a column and loss of a fence, in transactions that are not guarded';

CREATE EVENT TRIGGER lease_watch_rewrites ON table_rewrite
	EXECUTE FUNCTION lease.watch_ddl();
COMMENT ON EVENT TRIGGER lease_watch_rewrites IS 'refuses changes of a column''s type that compute it anew, in transactions that are not guarded';

CREATE FUNCTION lease.relinked()
RETURNS TABLE (rel regclass, detached boolean)
AS 'MODULE_PATHNAME', 'lease_relinked'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.relinked() IS
'the tables that the present command has given a protected parent, or taken away from one';

CREATE FUNCTION lease.fence_due(
	rel regclass,
	OUT action text,
	OUT lease text,
	OUT epoch_column name,
	OUT lease_column name,
	OUT ddl boolean,
	OUT always boolean)
RETURNS record
AS 'MODULE_PATHNAME', 'lease_fence_due'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.fence_due(regclass) IS
'what is to be done so that a table is fenced as its parent is: build all triggers, truncate (that one only), remove it; null if nothing';

-- The triggers belong to whoever owns the table, but not everybody who may make a
-- partition may make a trigger.
CREATE FUNCTION lease.extend_fences()
RETURNS event_trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	child record;
	node regclass;
	due record;
	trigger name;
BEGIN
	FOR child IN SELECT * FROM lease.relinked() LOOP
		FOR node IN SELECT d.descendant FROM lease.descendants(child.rel) d LOOP
			SELECT * INTO due FROM lease.fence_due(node);
			IF due.action IN ('build', 'truncate') THEN
				PERFORM lease.build_fence(node, due.lease, due.epoch_column,
					due.lease_column, due.ddl, due.always, due.action = 'truncate');
			ELSIF due.action = 'remove' AND child.detached THEN
				FOR trigger IN SELECT t FROM lease.own_triggers(node) t LOOP
					EXECUTE format('DROP TRIGGER %I ON %s', trigger, node);
				END LOOP;
			END IF;
		END LOOP;
	END LOOP;
END;
$$;
COMMENT ON FUNCTION lease.extend_fences() IS
'builds the fences of new partitions and children of protected tables';

CREATE EVENT TRIGGER lease_extend_fences ON ddl_command_end
	WHEN TAG IN ('CREATE TABLE', 'ALTER TABLE', 'CREATE FOREIGN TABLE', 'ALTER FOREIGN TABLE', 'CREATE SCHEMA')
	EXECUTE FUNCTION lease.extend_fences();
COMMENT ON EVENT TRIGGER lease_extend_fences IS 'fences new partitions and children of protected tables';

ALTER EVENT TRIGGER lease_watch_ddl ENABLE ALWAYS;
ALTER EVENT TRIGGER lease_watch_rewrites ENABLE ALWAYS;
ALTER EVENT TRIGGER lease_extend_fences ENABLE ALWAYS;
