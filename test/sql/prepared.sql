--
-- prepared: parameters without types.
--
-- Drivers that send no types leave it to the server to find out: every function must
-- resolve with nothing but $1, $2 ... for arguments.  That is why there are no overloads.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS lease;
RESET client_min_messages;

PREPARE p_create AS SELECT lease.create($1, $2, $3, $4, $5, $6);
PREPARE p_create_1 AS SELECT lease.create($1);
PREPARE p_alter AS SELECT lease.alter($1, $2, $3, $4, $5, $6);
PREPARE p_drop AS SELECT lease.drop($1, $2);
PREPARE p_acquire AS SELECT * FROM lease.acquire($1, $2, $3, $4, $5);
PREPARE p_acquire_2 AS SELECT name, outcome, holder FROM lease.acquire($1, $2);
PREPARE p_acquire_named AS SELECT name, outcome, holder FROM lease.acquire(name => $1, holder => $2, reclaim => $3);
PREPARE p_acquire_many AS SELECT name, outcome, holder FROM lease.acquire_many($1, $2, $3, $4, $5);
PREPARE p_renew AS SELECT name, outcome, holder FROM lease.renew($1, $2, $3);
PREPARE p_renew_2 AS SELECT name, outcome, holder FROM lease.renew($1, $2);
PREPARE p_renew_many AS SELECT name, outcome, holder FROM lease.renew_many($1, $2, $3);
PREPARE p_release AS SELECT lease.release($1, $2, $3, $4);
PREPARE p_release_2 AS SELECT lease.release($1, $2);
PREPARE p_release_many AS SELECT * FROM lease.release_many($1, $2, $3, $4);
PREPARE p_revoke AS SELECT lease.revoke($1, $2) IS NOT NULL AS revoked;
PREPARE p_holds AS SELECT lease.holds($1, $2);
PREPARE p_remaining AS SELECT lease.remaining($1, $2);
PREPARE p_guard AS SELECT lease.guard($1, $2);
PREPARE p_raise_floor AS SELECT lease.raise_floor($1);
PREPARE p_protect AS SELECT lease.protect($1, $2, $3, $4, $5, $6);
PREPARE p_protect_2 AS SELECT lease.protect($1, $2);
PREPARE p_unprotect AS SELECT lease.unprotect($1);
PREPARE p_allow AS SELECT lease.allow($1);
PREPARE p_disallow AS SELECT lease.disallow($1);

-- The types that were found.
SELECT name, parameter_types FROM pg_prepared_statements WHERE name LIKE 'p\_%' ORDER BY name COLLATE "C";

-- And they work, with values as text.
CREATE TABLE guarded (x int);
EXECUTE p_create('p', '1 hour', '0', '0 s', NULL, 'false');
EXECUTE p_create_1('p/1');
EXECUTE p_alter('p/1', '1 hour', NULL, NULL, NULL, NULL);
EXECUTE p_protect_2('guarded', 'p');
EXECUTE p_acquire_2('p', 'a');
SELECT epoch FROM lease.status WHERE name = 'p' \gset
EXECUTE p_acquire_named('p', 'a', 'f');
EXECUTE p_renew('p', :'epoch', '2 hours');
EXECUTE p_renew_2('p', :epoch);
EXECUTE p_holds('p', :epoch);
EXECUTE p_holds(NULL, NULL);
BEGIN;
EXECUTE p_guard('p', :'epoch');
INSERT INTO guarded VALUES (1);
EXECUTE p_unprotect('guarded');
EXECUTE p_protect('guarded', 'p', NULL, NULL, 'f', 'f');
EXECUTE p_unprotect('guarded');
COMMIT;
EXECUTE p_release_2('p', :'epoch');
EXECUTE p_remaining('p', :'epoch');
EXECUTE p_acquire_many('{p,p/1}', 'a', '1 hour', 't', '{"pid": 1}');
SELECT array_agg(epoch ORDER BY name) AS epochs FROM lease.status WHERE name IN ('p', 'p/1') \gset
EXECUTE p_renew_many('{p,p/1}', :'epochs', NULL);
EXECUTE p_release_many('{p,p/1}', :'epochs', 'b', '1 min');
EXECUTE p_revoke('p', 'why');
EXECUTE p_drop('p', 'true');
EXECUTE p_drop('p/1', 'true');

-- Literals without types, and named arguments in any order.
SELECT lease.create('p');
SELECT outcome FROM lease.acquire(holder => 'a', metadata => '{}', name => 'p', ttl => '1 min');
SELECT outcome FROM lease.renew('p', '1');
SELECT lease.release(epoch => 1, name => 'p');
SELECT outcome FROM lease.acquire('p', NULL::text);
SELECT lease.drop('p', force => 'yes');

DEALLOCATE ALL;
DROP TABLE guarded;
