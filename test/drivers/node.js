// The life of a lease through node's pg.
//
// test/t/013_drivers.pl starts this, with PGHOST and the like in the environment,
// and compares what it prints with what every driver has to print. The driver has no
// autocommit that could be off: each transaction begins with BEGIN.

'use strict';

const pg = require('pg');

const mode = 'on';
const lease = `job-${mode}`;
const table = `plan_${mode}`;
const guard = 'SELECT lease.guard($1, $2)';
const write = `INSERT INTO ${table} (epoch, what) VALUES ($1, $2)`;
const count = `SELECT count(*) FROM ${table} WHERE what = $1`;

function say(name, result) {
  console.log(`${mode}: ${name}: ${result}`);
}

async function connect() {
  const client = new pg.Client();

  client.warnings = [];
  client.on('notice', (notice) => client.warnings.push(notice.code));
  await client.connect();
  return client;
}

// transaction runs statements, each with its parameters or as the driver's own
// description of it, and tells how that ended.
async function transaction(client, ...statements) {
  try {
    await client.query('BEGIN');
    for (const [sql, ...parameters] of statements) {
      await client.query(sql, parameters.length ? parameters : undefined);
    }
    await client.query('COMMIT');
    return 'committed';
  } catch (error) {
    await client.query('ROLLBACK');
    return error.code;
  }
}

// queue hands a transaction to the driver all at once, and tells what came of each
// statement: its command, or the SQLSTATE.
async function queue(client, ...statements) {
  const all = [['BEGIN'], ...statements, ['COMMIT']].map(([sql, ...parameters]) =>
    client.query(sql, parameters.length ? parameters : undefined)
      .then((result) => result.command, (error) => error.code));

  return (await Promise.all(all)).join(' ');
}

async function row(client, sql, ...parameters) {
  return (await client.query(sql, parameters)).rows[0];
}

async function one(client, sql, ...parameters) {
  return Object.values(await row(client, sql, ...parameters))[0];
}

async function main() {
  const client = await connect();
  const other = await connect();

  await transaction(client,
    ['SELECT lease.create($1, ttl => $2)', lease, '10 min'],
    [`CREATE TABLE ${table} (id serial, epoch bigint, what text)`],
    ['SELECT lease.protect($1, $2)', table, lease]);

  // A lease, and who has it: a bigint comes as a string, in text and in binary.
  let got = await row(client,
    'SELECT outcome, epoch FROM lease.acquire($1, $2)', lease, 'a/1');
  const epoch = got.epoch;
  const binary = (await client.query({
    text: 'SELECT epoch FROM lease.status', binary: true,
  })).rows[0].epoch;
  const exact = await one(client,
    'SELECT epoch::text FROM lease.status WHERE name = $1', lease);
  say('acquire', got.outcome);
  say('epoch is exact', epoch === exact && String(binary) === exact);
  got = await row(client,
    'SELECT outcome, epoch FROM lease.acquire($1, $2)', lease, 'b/1');
  say('acquire by another', `${got.outcome}, ${got.epoch ?? 'no epoch'}`);

  // Writes with and without a guard
  say('write without a guard', await transaction(client, [write, epoch, 'none']));
  say('guarded write', await transaction(client,
    [guard, lease, epoch], [write, epoch, 'guarded']));
  say('write after that', await transaction(client, [write, epoch, 'after']));
  say('savepoint rolled back', await transaction(client,
    ['SAVEPOINT s'], [guard, lease, epoch], ['ROLLBACK TO s'],
    [write, epoch, 'savepoint']));
  await client.query(`SELECT lease.guard('${lease}', ${epoch});`
    + ` INSERT INTO ${table} (epoch, what) VALUES (${epoch}, 'message')`);
  say('one message', 'committed');
  client.warnings = [];
  await client.query(guard, [lease, epoch]);
  say('guard alone', client.warnings.join(' ') || 'no warning');

  // Prepared statements, guarded and not, until their plans are generic
  const ends = { committed: 0, LS004: 0 };
  const named = (name, text, ...values) => [{ name, text, values }];
  for (let i = 0; i < 8; i++) {
    ends[await transaction(client, named('guard', guard, lease, epoch),
      named('write', write, epoch, 'prepared'))]++;
    ends[await transaction(client, named('write', write, epoch, 'unguarded'))]++;
  }
  say('prepared statements', `${ends.committed} committed, ${ends.LS004} refused`);

  // Many rows, all of them with the driver before the first is answered
  const batch = (what) => Array(10).fill([write, epoch, what]);
  await queue(client, [guard, lease, epoch], ...batch('batch'));
  const refused = await queue(client, ...batch('no batch'));
  say('batch', `${await one(client, count, 'batch')} written`);
  say('batch without a guard', refused.split(' ')[1]);

  // A COMMIT after an error does not commit, whether the driver says so or not.
  await queue(client, [guard, lease, epoch], [write, epoch, 'failed'],
    ['SELECT 1 / 0']);
  say('COMMIT after an error', `${await one(client, count, 'failed')} written`);

  say('queue', await queue(client, [guard, lease, epoch], [write, epoch, 'queue']));
  say('queue without a guard', await queue(client, [write, epoch, 'none']));
  say('queue under another epoch', await queue(client,
    [guard, lease, String(BigInt(epoch) + 1n)], [write, epoch, 'none']));

  // NULL, strings and arrays
  say('NULL holds', await one(client, 'SELECT lease.holds($1, $2)', lease, null));
  say('NULL guard', await transaction(client, [guard, lease, null]));
  say('renew', await one(client,
    'SELECT outcome FROM lease.renew($1, $2)', lease, epoch));
  say('renew for a time', await one(client,
    'SELECT outcome FROM lease.renew($1, $2, $3)', lease, epoch, '11 min'));
  say('renew for a time of NULL', await one(client,
    'SELECT outcome FROM lease.renew($1, $2, $3)', lease, epoch, null));
  say('renew many', await one(client,
    'SELECT outcome FROM lease.renew_many($1, $2)', [lease], [epoch]));

  // Another connection takes over while a transaction is open.
  await client.query('BEGIN');
  await client.query(guard, [lease, epoch]);
  await client.query(write, [epoch, 'lost']);
  got = await row(other,
    'SELECT outcome, epoch FROM lease.acquire($1, $2, reclaim => $3)',
    lease, 'a/1', true);
  const later = got.epoch;
  say('reclaim', got.outcome);
  say('next epoch is greater', BigInt(later) > BigInt(epoch));
  say('COMMIT under the old epoch', await client.query('COMMIT')
    .then(() => 'committed', (error) => error.code));
  say('guard under the old epoch', await transaction(client, [guard, lease, epoch]));
  say('renew of the old epoch', await one(client,
    'SELECT outcome FROM lease.renew($1, $2)', lease, epoch));
  say('write under the next epoch', await transaction(client,
    [guard, lease, later], [write, later, 'later']));

  say('release', await one(client, 'SELECT lease.release($1, $2)', lease, later));
  say('release again', await one(client,
    'SELECT lease.release($1, $2)', lease, later));
  say('guard after the release', await transaction(client, [guard, lease, later]));
  say('rows', await one(client,
    "SELECT string_agg(what || ' ' || n, ', ' ORDER BY what)"
    + ` FROM (SELECT what, count(*) AS n FROM ${table} GROUP BY what) AS w`));

  await client.end();
  await other.end();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
