-- Fences: tables that only a guarded transaction may write.  See src/fence.c.

CREATE FUNCTION lease.refuses(
	lease text,
	rel regclass DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'lease_refuses'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.refuses(text, regclass) IS
'the condition of a fence: false in a transaction that may write under the lease, an error in any other';

CREATE FUNCTION lease.fence()
RETURNS trigger
AS 'MODULE_PATHNAME', 'lease_fence'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.fence() IS
'the trigger function of a fence; use lease.protect() to make one';

CREATE VIEW lease.fence AS
	SELECT c.oid::pg_catalog.regclass AS rel,
		pg_catalog.min(pg_catalog.split_part(pg_catalog.encode(t.tgargs, 'escape'), E'\\000', 1)) AS lease,
		pg_catalog.min(e.enabled) FILTER (WHERE (t.tgtype::int4 & 1) <> 0) AS row_trigger,
		pg_catalog.min(e.enabled) FILTER (WHERE (t.tgtype::int4 & 32) <> 0) AS truncate_trigger,
		pg_catalog.bool_or(t.tgparentid <> 0) AS inherited
	FROM pg_catalog.pg_trigger t
		JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
		CROSS JOIN LATERAL (SELECT CASE t.tgenabled
			WHEN 'O' THEN 'origin' WHEN 'A' THEN 'always'
			WHEN 'R' THEN 'replica' ELSE 'disabled' END) AS e(enabled)
	WHERE t.tgfoid = 'lease.fence()'::pg_catalog.regprocedure
	GROUP BY c.oid;
COMMENT ON VIEW lease.fence IS 'every fenced table, as the catalog has it';
COMMENT ON COLUMN lease.fence.rel IS 'the table';
COMMENT ON COLUMN lease.fence.lease IS 'the lease that protects it';
COMMENT ON COLUMN lease.fence.row_trigger IS 'when the fence of INSERT, UPDATE and DELETE fires: origin (but not for replication), always, replica, disabled; null if it is missing';
COMMENT ON COLUMN lease.fence.truncate_trigger IS 'the same for TRUNCATE';
COMMENT ON COLUMN lease.fence.inherited IS 'whether the row trigger comes from the partitioned table that it is a partition of';

CREATE FUNCTION lease.descendants(
	rel regclass)
RETURNS TABLE (descendant regclass, is_partition boolean)
AS 'MODULE_PATHNAME', 'lease_descendants'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION lease.descendants(regclass) IS
'a table and everything below it, locked against writes, for protect and unprotect';

CREATE FUNCTION lease.protect(
	rel regclass,
	lease text,
	always boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	class pg_class;
	node record;
	standing text;
BEGIN
	IF protect.rel IS NULL OR protect.lease IS NULL OR protect.always IS NULL THEN
		RAISE null_value_not_allowed USING
			MESSAGE = 'table, lease and always must not be null';
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

	FOR node IN SELECT * FROM lease.descendants(protect.rel) LOOP
		-- Partitions get the row trigger from their parent, also later ones.
		IF NOT node.is_partition THEN
			EXECUTE format('CREATE TRIGGER lease_fence'
				' AFTER INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW'
				' WHEN (lease.refuses(%L, %L::pg_catalog.regclass))'
				' EXECUTE FUNCTION lease.fence(%L)',
				node.descendant, protect.lease, node.descendant, protect.lease);
		END IF;
		EXECUTE format('CREATE TRIGGER lease_fence_truncate'
			' BEFORE TRUNCATE ON %s FOR EACH STATEMENT'
			' EXECUTE FUNCTION lease.fence(%L)',
			node.descendant, protect.lease);
		IF protect.always THEN
			EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER lease_fence_truncate',
				node.descendant);
		END IF;
	END LOOP;

	-- After all are there, so that those of partitions follow.
	IF protect.always THEN
		FOR node IN SELECT * FROM lease.descendants(protect.rel) LOOP
			EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER lease_fence',
				node.descendant);
		END LOOP;
	END IF;
END;
$$;
COMMENT ON FUNCTION lease.protect(regclass, text, boolean) IS
'builds a fence around a table, its partitions and its children: only a transaction that is guarded by the lease may write to it; always: also what replication applies; to be called by the owner of the table';

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
		FOR trigger IN
			SELECT t.tgname FROM pg_trigger t
			WHERE t.tgrelid = node.descendant AND t.tgparentid = 0
				AND t.tgfoid = 'lease.fence()'::regprocedure
				AND split_part(encode(t.tgargs, 'escape'), E'\\000', 1) = fence.lease
		LOOP
			EXECUTE format('DROP TRIGGER %I ON %s', trigger, node.descendant);
		END LOOP;
	END LOOP;
END;
$$;
COMMENT ON FUNCTION lease.unprotect(regclass) IS
'removes the fence around a table, its partitions and its children; to be called by the owner of the table';
