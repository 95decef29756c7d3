--
-- install: CREATE EXTENSION, what it makes, and who may use it.
--
-- Runs first.  Probes section 5.7 of the contract: nothing but the two trigger
-- functions is for PUBLIC, and the schema cannot have been prepared by somebody
-- else.
--
\set VERBOSITY terse

-- A schema of that name that somebody has made before is an error: its owner
-- could have planted functions in it.
CREATE SCHEMA lease;
CREATE EXTENSION lease;
DROP SCHEMA lease;

CREATE EXTENSION lease;

-- A second time.
CREATE EXTENSION lease;
CREATE EXTENSION IF NOT EXISTS lease;

-- It is trusted, and cannot be moved to another schema.
SELECT version, installed, superuser, trusted, relocatable, schema, requires
	FROM pg_available_extension_versions WHERE name = 'lease' AND installed;
ALTER EXTENSION lease SET SCHEMA public;

-- All objects, without the types that come with each table, view and type.
CREATE VIEW members AS
	SELECT classid, objid, pg_describe_object(classid, objid, 0) COLLATE "C" AS object
		FROM pg_depend
		WHERE refclassid = 'pg_extension'::regclass
			AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'lease')
			AND deptype = 'e'
			AND (classid <> 'pg_type'::regclass OR objid = 'lease.reply'::regtype);
SELECT object FROM members ORDER BY object;

-- Schema, tables, sequences and functions belong to the bootstrap superuser, also
-- where another role installs the extension (see the test "roles").
SELECT DISTINCT o.owner::regrole = 10::regrole AS bootstrap_superuser
	FROM (SELECT nspowner FROM pg_namespace WHERE nspname = 'lease'
		UNION ALL
		SELECT relowner FROM pg_class WHERE relnamespace = 'lease'::regnamespace
		UNION ALL
		SELECT proowner FROM pg_proc WHERE pronamespace = 'lease'::regnamespace) AS o(owner);

-- No overloads, since drivers send parameters without types; nothing STRICT,
-- since a NULL that is skipped looks like a success; nothing that a parallel
-- worker might run, as workers have no guards; nothing SECURITY DEFINER whose
-- search_path is the caller's.
SELECT count(*) - count(DISTINCT proname) AS overloads,
		count(*) FILTER (WHERE proisstrict) AS strict,
		count(*) FILTER (WHERE proparallel <> 'u') AS parallel,
		count(*) FILTER (WHERE prosecdef AND array_to_string(proconfig, ',') !~ '^search_path=pg_catalog') AS open_search_path
	FROM pg_proc WHERE pronamespace = 'lease'::regnamespace;

-- Nor does any take an instant: only the clock of the server decides, and a client has
-- no way to tell it the time (G5).  What is pruned of the history decides nothing, nor
-- does what elapsed measures, nor what is_live and was_live are asked about, which views
-- and functions ask about pins as they are stored; and what await is given for its answer
-- is ignored.  When an occurrence is due is its name, which its schedule has to know.
SELECT oid::regprocedure FROM pg_proc
	WHERE pronamespace = 'lease'::regnamespace
		AND proargtypes::oid[] && ARRAY['timestamptz', 'timestamp', 'date', 'time', 'timetz']::regtype[]::oid[];

-- What is granted to PUBLIC: only what creating a partition of a protected table
-- needs.  (The row types of tables and views are left out; they give nothing.)
SELECT kind, object, privilege_type
	FROM (SELECT 'schema', nspname::text, coalesce(nspacl, acldefault('n', nspowner))
			FROM pg_namespace WHERE nspname = 'lease'
		UNION ALL
		SELECT 'relation', oid::regclass::text,
				coalesce(relacl, acldefault(CASE relkind WHEN 'S' THEN 's'::"char" ELSE 'r' END, relowner))
			FROM pg_class WHERE relnamespace = 'lease'::regnamespace AND relkind IN ('r', 'v', 'S')
		UNION ALL
		SELECT 'function', oid::regprocedure::text, coalesce(proacl, acldefault('f', proowner))
			FROM pg_proc WHERE pronamespace = 'lease'::regnamespace
		UNION ALL
		SELECT 'type', t.oid::regtype::text, coalesce(t.typacl, acldefault('T', t.typowner))
			FROM pg_type t JOIN pg_class c ON c.oid = t.typrelid
			WHERE t.typnamespace = 'lease'::regnamespace AND c.relkind = 'c') AS o(kind, object, acl),
		aclexplode(acl)
	WHERE grantee = 0
	ORDER BY object COLLATE "C";

-- What pg_monitor may do: read the views.
SELECT kind, object, privilege_type
	FROM (SELECT 'schema', nspname::text, nspacl
			FROM pg_namespace WHERE nspname = 'lease'
		UNION ALL
		SELECT 'relation', oid::regclass::text, relacl
			FROM pg_class WHERE relnamespace = 'lease'::regnamespace
		UNION ALL
		SELECT 'function', oid::regprocedure::text, proacl
			FROM pg_proc WHERE pronamespace = 'lease'::regnamespace) AS o(kind, object, acl),
		aclexplode(acl)
	WHERE grantee = 'pg_monitor'::regrole
	ORDER BY object COLLATE "C";

-- What a dump of the data includes: the leases and both sequences, without which
-- a restored database would issue the old epochs again.
SELECT c.oid::regclass AS dumped, condition
	FROM pg_extension, unnest(extconfig, extcondition) AS c(oid, condition)
	WHERE extname = 'lease'
	ORDER BY c.oid::regclass::text COLLATE "C";

-- What a renewal changes is not indexed, and there is room for it on the page.
SELECT indexrelid::regclass AS index, indkey AS columns
	FROM pg_index WHERE indrelid = 'lease.lease'::regclass;
SELECT reloptions FROM pg_class WHERE oid = 'lease.lease'::regclass;

-- The table is logged: an epoch that a crash forgets would be issued twice.
SELECT oid::regclass AS relation, relpersistence
	FROM pg_class
	WHERE relnamespace = 'lease'::regnamespace AND relkind IN ('r', 'S')
	ORDER BY oid::regclass::text COLLATE "C";

-- Everything has a comment.
SELECT object AS without_comment
	FROM members
	WHERE obj_description(objid, classid::regclass::name) IS NULL;
SELECT a.attrelid::regclass AS without_comment, a.attname
	FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
	WHERE c.relnamespace = 'lease'::regnamespace AND c.relkind IN ('r', 'v', 'c')
		AND a.attnum > 0 AND NOT a.attisdropped
		AND col_description(a.attrelid, a.attnum) IS NULL
	ORDER BY 1, a.attnum;

-- There is nothing in it yet.
SELECT count(*) FROM lease.lease;
SELECT last_value, is_called FROM lease.epoch;
SELECT last_value, is_called FROM lease.origin;

DROP VIEW members;
