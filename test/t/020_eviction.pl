# Sessions that stand in the way of a takeover are ended, and no others.  G7.
#
# An old holder stands in its successor's way if it sits on an uncommitted change of
# the lease, which keeps the row, or in a guarded transaction, whose row locks
# keep the successor's work.  Step by step: who is ended, with each setting of
# evict, by whatever takes the lease away; who is not; and what tells of it.
#
# Then in a crowd: 10,000 takeovers beside sessions of the same role that do all kinds
# of things, none of which is ended but for what it does under that lease.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use IPC::Run ();
use LeaseTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $TAKEOVERS = 10_000;

plan skip_all => 'SIGSTOP is needed' if $windows_os;

my $node = new_server('eviction', 'log_statement = none');

$node->safe_psql(
	'postgres', q{
	CREATE ROLE app LOGIN;
	CREATE ROLE chief LOGIN SUPERUSER;
	SELECT lease.allow('app');
	GRANT SELECT ON lease.event TO app;
	GRANT EXECUTE ON FUNCTION lease.create, lease.alter, lease.drop, lease.revoke TO app;
	CREATE TABLE plain (id bigserial, who text);
	GRANT ALL ON plain, plain_id_seq TO app;
});

# Holders and successors are not superusers; this one's clock is ahead of theirs.
my $successor = session($node, sql => $AHEAD);

#----
# What the scenarios are made of
#----

my $leases = 0;

# scenario(EVICT, user => ..., ttl => ...) makes a lease, a table of its name that it
# protects, and a session that holds it; it returns the name, the session and the epoch.
sub scenario
{
	my ($evict, %parameters) = @_;
	my $lease = 'lease_' . ++$leases;
	my $ttl = $parameters{ttl} // '10 min';

	$node->safe_psql(
		'postgres', qq{
		CREATE TABLE $lease (id int PRIMARY KEY, n int);
		INSERT INTO $lease SELECT i, 0 FROM generate_series(1, 3) AS i;
		GRANT ALL ON $lease TO app;
		SELECT lease.create('$lease', ttl => '$ttl', role => 'app', evict => '$evict'),
			lease.protect('$lease', '$lease');
	});
	my $holder = session($node, user => $parameters{user} // 'app');
	$holder->client;
	my $epoch = $holder->do("SELECT epoch FROM lease.acquire('$lease', 'holder')");
	return ($lease, $holder, $epoch);
}

# guard(LEASE, EPOCH) returns a guard and a write to the table of the lease.
sub guard
{
	my ($lease, $epoch) = @_;

	return "SELECT lease.guard('$lease', $epoch); UPDATE $lease SET n = n + 1";
}

# renew(LEASE, EPOCH) returns a renewal.
sub renew
{
	my ($lease, $epoch) = @_;

	return "SELECT lease.renew('$lease', $epoch)";
}

# take(LEASE) returns a takeover.
sub take
{
	my ($lease) = @_;

	return "SELECT outcome FROM lease.acquire('$lease', 'successor')";
}

# taken(LEASE, NAME) passes if the successor can take a lease.
sub taken
{
	my ($lease, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	my $answer = $successor->query(take($lease));
	return is($answer->{rows}, 'granted', $name) || diag($answer->{error});
}

# ended(SESSION, NAME) passes if a session is ended, and the log tells so.
sub ended
{
	my ($session, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $pid = $session->backend;
	my $gone = $node->poll_query_until('postgres',
		"SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid");

	return ok($gone && log_of($pid) == 1, $name)
	  || diag("lines in the log: " . log_of($pid));
}

# log_of(PID) counts the lines in the log that say that a process is ended.
sub log_of
{
	my ($pid) = @_;

	return scalar(() = slurp_file($node->logfile) =~ /LOG:  ending process $pid, /g);
}

# spared(SESSION, NAME) passes if a session is not ended.
sub spared
{
	my ($session, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $answer = eval { $session->query('SELECT 1') };

	return is($answer && $answer->{error} . log_of($session->backend), '0', $name)
	  || diag($@);
}

# evicted(LEASE) returns the details of the evictions in its history.
sub evicted
{
	my ($lease) = @_;

	return $node->safe_psql('postgres',
			"SELECT detail FROM lease.event WHERE name = '$lease'"
		  . " AND kind = 'evicted' ORDER BY seq");
}

# quit(SESSION, ...) ends sessions, also those whose client is stopped or whose
# server process is gone.
sub quit
{
	foreach my $session (@_)
	{
		kill 'CONT', $session->client;
		$session->quit;
	}
	return;
}

#----
# An uncommitted change of the lease
#----

# A client that renewed inside a transaction and was stopped, and candidates of its
# own role that ask again and again, or wait in line.  The lease is had within the
# bound of its expiry.
foreach my $how ('acquire', 'await')
{
	my ($lease, $holder, $epoch) = scenario('all', ttl => '1 s');
	my $next = session($node, user => 'app');
	my $outcome;

	$holder->do('BEGIN; ' . renew($lease, $epoch));
	$holder->pause;
	is($next->do(take($lease)), 'held', "$how: a stopped client holds the lease");
	if ($how eq 'await')
	{
		($outcome) = $next->do("CALL lease.await('$lease', 'next')") =~ /\|(granted)\|/;
	}
	else
	{
		my $until = time + $PATIENCE;
		do { $outcome = $next->do(take($lease)) }
		  while $outcome eq 'held' && time < $until;
	}
	is($outcome, 'granted', 'and loses it when it is over');
	is( $next->do(
				"SELECT max(at) - min(at) < '1 s'::interval"
			  . " + current_setting('lease.busy_timeout')::interval"
			  . " FROM lease.event WHERE name = '$lease' AND kind = 'granted'"),
		't',
		'within lease.busy_timeout');
	ended($holder, 'the session that has renewed it is ended');
	is( evicted($lease),
		'{"blockers": [' . $holder->backend . ']}',
		'and the event names its pid');
	quit($holder, $next);
}

# With each setting, once as a blocker and once in a guarded transaction.
foreach my $case ([ 'none', 0, 0 ], [ 'blockers', 1, 0 ], [ 'all', 1, 1 ])
{
	my ($evict, $blockers, $guarded) = @$case;

	# A blocker
	my ($lease, $holder, $epoch) = scenario($evict);
	$holder->do('BEGIN; ' . renew($lease, $epoch));
	if ($blockers)
	{
		taken($lease, "$evict: a lease whose row is kept is taken");
		ended($holder, 'whoever has kept it is ended');
	}
	else
	{
		my $answer =
		  $successor->query("SET lease.busy_timeout = '200 ms'; " . take($lease));
		refused($answer, 'LS006', "$evict: a lease whose row is kept is busy");
		like(
			$answer->{error},
			qr/Process @{[$holder->backend]} has/,
			'the error names the pid');
		$successor->do('RESET lease.busy_timeout');
		spared($holder, 'and nobody is ended');
		$holder->do('ROLLBACK');
	}
	quit($holder);

	# A guarded transaction that keeps rows
	($lease, $holder, $epoch) = scenario($evict);
	$holder->do('BEGIN; ' . guard($lease, $epoch));
	$holder->pause;
	taken($lease, "$evict: a lease whose holder is in a guarded transaction is taken");
	my $new = $successor->do("SELECT epoch FROM lease.status WHERE name = '$lease'");
	my $lock_timeout = $guarded ? $PATIENCE . 's' : '100ms';
	my $answer =
	  $successor->query("BEGIN; SET LOCAL lock_timeout = '$lock_timeout'; "
		  . guard($lease, $new)
		  . '; COMMIT');

	if ($guarded)
	{
		is($answer->{error}, '', 'the successor writes the same rows');
		ended($holder, 'the old holder is ended');
		is( evicted($lease),
			'{"guarded": [' . $holder->backend . ']}',
			'and the event names its pid');
		$holder->resume;
		eval { $holder->query('COMMIT') };
		like($@, qr/FATAL:  57P01:/, 'when it is continued, it finds itself ended');
	}
	else
	{
		refused($answer, '55P03', 'the successor waits for its rows');
		$holder->resume;
		spared($holder, 'nobody is ended');
		refused($holder->query('COMMIT'), 'LS001', 'but the COMMIT is refused');
		is(evicted($lease), '', 'and there is no event');
	}
	quit($holder);
}

# An uncommitted version that is live: it is the answer, and nobody is ended.
{
	my ($lease, $holder, $epoch) = scenario('all');
	$holder->do('BEGIN; '
		  . guard($lease, $epoch)
		  . "; SELECT lease.renew('$lease', $epoch, ttl => '30 min')");
	is($successor->do(take($lease)),
		'held', 'a lease renewed in an open transaction is held');
	spared($holder, 'its holder is not ended');
	is($holder->query('COMMIT')->{error}, '', 'and commits');
	quit($holder);
}

# Changes that also keep the fence lock to the end of their transaction
foreach my $change (
	[ 'an acquire', "lease.acquire('%s', 'holder', reclaim => true)" ],
	[ 'a release', "lease.release('%s', %s)" ],
	[ 'a change of settings', "lease.alter('%s', late_commit => true)" ],
	[ 'a drop', "lease.drop('%s', force => true)" ])
{
	my ($what, $call) = @$change;
	my ($lease, $holder, $epoch) = scenario('blockers');

	$call = $call =~ /%s.*%s/ ? sprintf($call, $lease, $epoch) : sprintf($call, $lease);
	$holder->do("BEGIN; SELECT $call");
	$holder->pause;
	taken($lease, "$what that is not committed is got past");
	ended($holder, 'its session is ended');
	is(evicted($lease), '{"blockers": [' . $holder->backend . ']}', 'as the event says');
	quit($holder);
}

# A renewal deep in savepoints, also more of them than the server keeps in memory
foreach my $depth (3, 100)
{
	my ($lease, $holder, $epoch) = scenario('blockers');

	$holder->do(
		'BEGIN; '
		  . join(
			'', map { "SAVEPOINT s$_; INSERT INTO plain DEFAULT VALUES;" } 1 .. $depth)
		  . renew($lease, $epoch));
	taken($lease, "a renewal below $depth savepoints is got past");
	ended($holder, 'its session is ended');
	quit($holder);
}

# A renewal that was rolled back to a savepoint stands in nobody's way.
{
	my ($lease, $holder, $epoch) = scenario('all');

	$holder->do('BEGIN; INSERT INTO plain DEFAULT VALUES; SAVEPOINT s; '
		  . renew($lease, $epoch)
		  . '; ROLLBACK TO s');
	taken($lease, 'a renewal that was rolled back to a savepoint');
	spared($holder, 'is no reason to end anybody');
	is($holder->query('COMMIT')->{error}, '', 'nor to refuse its COMMIT');
	quit($holder);
}

# A session that is in a statement is left alone, until it waits for its client.
{
	my ($lease, $holder, $epoch) = scenario('blockers');
	my $gate = session($node, sql => 'SELECT pg_advisory_lock(1)');

	$holder->do('BEGIN; ' . renew($lease, $epoch));
	$holder->ask('SELECT pg_advisory_lock_shared(1)');
	wait_for_event($node, $holder, 'advisory');
	refused($successor->query("SET lease.busy_timeout = '300 ms'; " . take($lease)),
		'LS006', 'a blocker that is in a statement');
	is(log_of($holder->backend), 0, 'is not ended');

	$successor->do("SET lease.busy_timeout = '${PATIENCE}s'");
	$successor->ask(take($lease));
	wait_until(
		$node,
		"SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND locktype = 'transactionid' AND pid = "
		  . $successor->backend,
		'the successor to wait');
	$gate->do('SELECT pg_advisory_unlock(1)');
	is($successor->answer->{rows}, 'granted', 'when it is idle, the lease is taken');
	ended($holder, 'and it is ended');
	$successor->do('RESET lease.busy_timeout');
	quit($holder, $gate);
}

# A session that needs time to end: it is ended once.
{
	my ($lease, $holder, $epoch) = scenario('blockers');

	$holder->do('BEGIN; ' . renew($lease, $epoch));
	kill 'STOP', $holder->backend;
	$successor->do("SET lease.busy_timeout = '${PATIENCE}s'");
	$successor->ask(take($lease));
	foreach (1 .. 3)
	{
		# each of several waits in a row
		wait_until(
			$node,
			"SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
			  . " AND waitstart > now() - '20 ms'::interval AND pid = "
			  . $successor->backend,
			'the successor to wait');
	}
	kill 'CONT', $holder->backend;
	is($successor->answer->{rows},
		'granted', 'a blocker that is slow to end is waited for');
	ended($holder, 'one line of the log tells of it');
	is(evicted($lease), '{"blockers": [' . $holder->backend . ']}',
		'and one event, once');
	$successor->do('RESET lease.busy_timeout');
	quit($holder);
}

# A taker that has a lock_timeout of its own: it counts for the whole wait.
{
	my ($lease, $holder, $epoch) = scenario('blockers', user => 'chief');

	$holder->do('BEGIN; ' . renew($lease, $epoch));
	refused(
		$successor->query(
			"BEGIN; SET LOCAL lock_timeout = '300 ms'; SET LOCAL lease.busy_timeout = '${PATIENCE}s'; "
			  . take($lease)),
		'55P03',
		'a lock_timeout that is longer than one look at a blocker');
	$successor->do('ROLLBACK');
	quit($holder);
}

# acquire_any does not wait; it passes over the lease, and has it when it comes again.
{
	my ($lease, $holder, $epoch) = scenario('all');
	my $any = "SELECT count(*) FROM lease.acquire_any(ARRAY['$lease'], 'successor')";
	my $until = time + $PATIENCE;

	$holder->do('BEGIN; ' . renew($lease, $epoch));
	is($successor->do($any), 0, 'acquire_any passes over a lease whose row is kept');
	while (log_of($holder->backend) == 0 && time < $until)
	{
		$successor->do($any);
	}
	ended($holder, 'when it comes again, it ends the session in its way');
	is($successor->do($any), 1, 'and then takes the lease');
	quit($holder);
}

# A blocker that goes from one statement to the next waits for its client only
# for moments, and is waited for; but not for longer than anybody.  On a busy machine
# a client may pause by itself; one that does not, of several, is enough.
foreach my $case ([ 20_000, 5, 'COMMIT' ], [ 1_000_000, 1, 'SELECT' ])
{
	my ($count, $tries, $last) = @$case;
	my $spared = 0;
	my $statements = PostgreSQL::Test::Utils::tempdir() . '/statements.sql';

	append_to_file($statements, "SELECT 1;\n" x $count . "$last;\n");
	for (my $try = 0; !$spared && $try < $tries; $try++)
	{
		my ($lease, $holder, $epoch) = scenario('all');
		$holder->do('BEGIN; ' . renew($lease, $epoch));
		$holder->ask("\\o /dev/null\n\\i $statements");
		wait_until(
			$node,
			"SELECT query = 'SELECT 1;' FROM pg_stat_activity WHERE pid = "
			  . $holder->backend,
			'a blocker to be busy');
		$successor->do("SET lease.busy_timeout = '${PATIENCE}s'") if $last eq 'COMMIT';
		taken($lease, "a lease whose row is kept by a busy session is taken ($last)");
		$spared = log_of($holder->backend) == 0;
		$holder->{run}->kill_kill;
		$successor->do('RESET lease.busy_timeout');
	}
	is($spared, $last eq 'COMMIT' ? 1 : '', "it is ended only if it goes on and on ($last)");
}

# To reclaim a lease that is live ends nobody, whatever is under way.
foreach my $change (
	[ 'a renewal', "lease.renew('%s', %s)" ],
	[ 'a change of settings', "lease.alter('%s', ttl => '5 min')" ],
	[ 'work and a release', "lease.guard('%1\$s', %2\$s), lease.release('%1\$s', %2\$s)" ],
	[ 'a drop', "lease.drop('%s', force => true), lease.create('%1\$s')" ])
{
	my ($what, $call) = @$change;
	my ($lease, $holder, $epoch) = scenario('all');
	my $twin = session($node, user => 'app');
	my $reclaim = "SELECT outcome FROM lease.acquire('$lease', 'holder', reclaim => true)";

	no warnings 'redundant';
	$holder->do('BEGIN; SELECT ' . sprintf($call, $lease, $epoch));
	refused($twin->query("SET lease.busy_timeout = '400 ms'; $reclaim"),
		'LS006', "a reclaim behind $what of a live grant is busy");
	spared($holder, 'and nobody is ended');
	is($holder->query('COMMIT')->{error}, '', 'what is live is committed');
	is($twin->do($reclaim), 'granted', 'and then reclaimed');
	quit($holder, $twin);
}

# What is not committed keeps nobody away unless it is live: not a reserve, not a
# grace.  But a lease that was dropped and created again may be.
foreach my $case (
	[ 'a release to a successor', "lease.release('%s', %s, 'other', '365 days')", 'granted' ],
	[ 'a longer grace', "lease.alter('%s', grace => '365 days')", 'granted' ],
	[ 'a grant after a drop', "lease.drop('%s', force => true), lease.create('%1\$s'),"
		  . " lease.acquire('%1\$s', 'holder', ttl => '1 day')", 'held' ])
{
	my ($what, $call, $outcome) = @$case;
	my ($lease, $holder, $epoch) = scenario('all');

	no warnings 'redundant';
	$holder->do('BEGIN; SELECT ' . sprintf($call, $lease, $epoch));
	is($successor->do(take($lease)), $outcome, "$what that is not committed: $outcome");
	$outcome eq 'granted' ? ended($holder, 'its session is ended') :
	  spared($holder, 'its session is not ended');
	quit($holder);
}

# With lease.auto_create a lease that is dropped meanwhile is created.
{
	my ($lease, $holder, $epoch) = scenario('none');
	my $taker = session($node,
		sql => "SET lease.auto_create = on; SET lease.busy_timeout = '${PATIENCE}s'");

	$holder->do("SELECT lease.release('$lease', $epoch); BEGIN; SELECT lease.drop('$lease', force => true)");
	$taker->ask(take($lease));
	wait_until(
		$node,
		"SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND pid = " . $taker->backend,
		'the taker to wait');
	$holder->do('COMMIT');
	is($taker->answer->{rows}, 'granted', 'a lease that is dropped while it is awaited is created');
	quit($holder, $taker);
}

# A revocation ends a grant, live or not, and who has it under way.
foreach my $case ([ 'all', 1 ], [ 'blockers', 1 ], [ 'none', 0 ])
{
	my ($evict, $ends) = @$case;
	my ($lease, $holder, $epoch) = scenario($evict);
	my $operator = session($node, sql => "SET lease.busy_timeout = '5 s'");

	$holder->do('BEGIN; ' . renew($lease, $epoch));
	$holder->pause;
	if ($ends)
	{
		is($operator->do("SELECT lease.revoke('$lease')"),
			$epoch, "$evict: a lease that is renewed by a stopped client is revoked");
		ended($holder, 'and its session ended');
		is(evicted($lease), '{"blockers": [' . $holder->backend . ']}', 'as the event says');
	}
	else
	{
		$operator->do("SET lease.busy_timeout = '300 ms'");
		refused($operator->query("SELECT lease.revoke('$lease')"),
			'LS006', "$evict: a revocation of a lease whose row is kept is busy");
		$holder->resume;
		spared($holder, 'and nobody is ended');
	}
	quit($holder, $operator);
}

# A lease that is created on the way (lease.auto_create) and not committed
foreach my $grants (0, 1)
{
	my $lease = 'created_' . $grants;
	my $holder = session($node, user => 'app', sql => 'SET lease.auto_create = on');
	my $other = session($node, user => 'app', sql => 'SET lease.auto_create = on');

	$holder->do('BEGIN; '
		  . ($grants
			? "SELECT lease.acquire('$lease', 'holder', ttl => '10 min')"
			: "SELECT lease.create('$lease')"));
	if ($grants)
	{
		is($other->do(take($lease)), 'held', 'a lease that is created and granted is held');
		spared($holder, 'its holder is not ended');
	}
	is($successor->do('SET lease.auto_create = on; ' . take($lease)),
		'granted', 'a lease that is created, and not held, is taken');
	ended($holder, 'who has not committed that is ended');
	is(evicted($lease), '{"blockers": [' . $holder->backend . ']}', 'as the event says');
	$successor->do('RESET lease.auto_create');
	quit($holder, $other);
}

# What counts is how it stands there: created anew after it was dropped, or set up
# differently.
{
	my $holder = session($node, user => 'app', sql => 'SET lease.auto_create = on');
	my $other = session($node, user => 'app',
		sql => "SET lease.auto_create = on; SET lease.busy_timeout = '300 ms'");

	$holder->do("BEGIN; SELECT lease.create('again'); SELECT lease.drop('again');"
		  . " SELECT lease.acquire('again', 'holder', ttl => '10 min')");
	is($other->do(take('again')), 'held', 'a lease that was dropped and created anew is held');
	spared($holder, 'its holder is not ended');
	$holder->do("ROLLBACK; BEGIN; SELECT lease.create('again'); SELECT lease.alter('again', evict => 'none')");
	refused($other->query(take('again')),
		'LS006', 'a lease that is set up to end nobody is busy');
	spared($holder, 'and nobody is ended');
	$holder->do("ROLLBACK; BEGIN; SELECT lease.create('again'); SELECT lease.drop('again')");
	refused($other->query(take('again')),
		'LS006', 'a lease that is created and dropped is busy');
	spared($holder, 'and nobody is ended');
	quit($holder, $other);
}

# Whoever has locked the index by hand is waited for within the bound.
{
	my ($lease, $holder, $epoch) = scenario('all');
	my $owner = session($node,
		sql => 'BEGIN; ALTER INDEX lease.lease_pkey SET TABLESPACE pg_default');

	$holder->do("SET lease.busy_timeout = '300 ms'");
	refused($holder->query("SELECT lease.$_"),
		'LS006', "the index is locked: lease.$_ is busy")
	  foreach "acquire('$lease', 'other')", "renew('$lease', $epoch)",
	  "release('$lease', $epoch)", "revoke('$lease')", "alter('$lease', ttl => '1 s')";
	$owner->do('ROLLBACK');
	quit($holder, $owner);
}

# Superusers are told of, not ended.
{
	my ($lease, $holder, $epoch) = scenario('all', user => 'chief');

	$holder->do('BEGIN; ' . renew($lease, $epoch));
	my $answer = $successor->query("SET lease.busy_timeout = '200 ms'; " . take($lease));
	refused($answer, 'LS006', 'a lease whose row a superuser keeps is busy');
	like(
		$answer->{error},
		qr/Process @{[$holder->backend]} has/,
		'the error names the pid');
	spared($holder, 'and the superuser is not ended');
	$successor->do('RESET lease.busy_timeout');

	$holder->do(
		'ROLLBACK; SET SESSION AUTHORIZATION app; BEGIN; ' . guard($lease, $epoch));
	taken($lease, 'a lease whose guarded transaction is a superuser\'s is taken');
	spared($holder, 'and whoever has logged in as superuser is not ended');
	is(evicted($lease), '', 'as the history tells');
	like(
		slurp_file($node->logfile),
		qr/LOG:  process @{[$holder->backend]} acts under a superseded/,
		'and the log names it');
	refused($holder->query('COMMIT'), 'LS001', 'but its COMMIT is refused');
	quit($holder);
}

#----
# Guarded transactions
#----

# A guard deep in savepoints that were released
{
	my ($lease, $holder, $epoch) = scenario('all');

	$holder->do('BEGIN; SAVEPOINT a; SAVEPOINT b; '
		  . guard($lease, $epoch)
		  . '; RELEASE b; RELEASE a');
	taken($lease, 'a guard that was made in a savepoint');
	ended($holder, 'is as good as any');
	quit($holder);
}

# A guarded transaction that has only read may have locked tables.
{
	my ($lease, $holder, $epoch) = scenario('all');

	$holder->do("BEGIN; SELECT lease.guard('$lease', $epoch); LOCK TABLE $lease IN SHARE MODE");
	taken($lease, 'a lease whose holder is in a guarded transaction that writes nothing is taken');
	ended($holder, 'the holder is ended');
	quit($holder);
}

# A guard that went away with a savepoint, or with an error
foreach my $case (
	[
		'a guard that was rolled back to a savepoint',
		'INSERT INTO plain DEFAULT VALUES; SAVEPOINT s; %s; ROLLBACK TO s', ''
	],
	[
		'a guard that failed',
		'INSERT INTO plain DEFAULT VALUES; SAVEPOINT s; SELECT lease.guard(\'L\', 1); ROLLBACK TO s',
		''
	],
	[ 'a guarded transaction that has failed', '%s; SELECT 1/0', '' ])
{
	my ($what, $sql, $sqlstate) = @$case;
	my ($lease, $holder, $epoch) = scenario('all');

	no warnings 'redundant';
	$holder->query('BEGIN; ' . sprintf($sql, guard($lease, $epoch), $lease, $epoch));
	taken($lease, "$what: the lease is taken");
	is(log_of($holder->backend), 0, 'and nobody ended');
	is($holder->query('COMMIT')->{sqlstate},
		$sqlstate, 'its COMMIT: ' . ($sqlstate || 'as ever'));
	quit($holder);
}

# A guarded transaction that is in a statement when it is superseded
{
	my ($lease, $holder, $epoch) = scenario('all');
	my $gate = session($node, sql => 'SELECT pg_advisory_lock(1)');

	$holder->do('BEGIN; ' . guard($lease, $epoch));
	$holder->ask('SELECT pg_advisory_lock_shared(1)');
	wait_for_event($node, $holder, 'advisory');
	taken($lease, 'a lease whose holder is in a statement is taken');
	$gate->do('SELECT pg_advisory_unlock(1)');
	$holder->answer;
	spared($holder, 'the holder is not ended');
	refused($holder->query('COMMIT'), 'LS001', 'but its COMMIT is refused');
	quit($holder, $gate);
}

# The same, and it then waits for its client, who is stopped: at the next renewal, or
# when somebody takes the lease again, it is ended; who acts under the present grant
# is not.
foreach my $case ([ 'all', 'renew' ], [ 'all', 'take' ], [ 'blockers', 'renew' ])
{
	my ($evict, $how) = @$case;
	my ($lease, $holder, $epoch) = scenario($evict);
	my $gate = session($node, sql => 'SELECT pg_advisory_lock(1)');
	my $present = session($node, user => 'app');

	$holder->do('BEGIN; ' . guard($lease, $epoch) . ' WHERE id = 1');
	$holder->ask('SELECT pg_advisory_lock_shared(1)');
	wait_for_event($node, $holder, 'advisory');
	$present->do("SELECT lease.revoke('$lease')");
	my $new = $present->do("SELECT epoch FROM lease.acquire('$lease', 'present')");
	$gate->do('SELECT pg_advisory_unlock(1)');
	$holder->answer;
	$holder->pause;
	$present->do('BEGIN; ' . guard($lease, $new) . ' WHERE id = 2');
	if ($how eq 'renew')
	{
		my $renewer = session($node, user => 'app');

		is($renewer->do("SELECT outcome FROM lease.renew('$lease', $new)"),
			'renewed', "$evict: the present holder renews");
		quit($renewer);
	}
	else
	{
		taken($lease, "$evict: somebody takes the lease again");
	}
	if ($evict eq 'all')
	{
		ended($holder, 'which ends who has been left behind');
	}
	else
	{
		$holder->resume;
		spared($holder, 'which ends nobody');
	}
	if ($how eq 'renew')
	{
		spared($present, 'and not who acts under the present grant');
		is($present->query('COMMIT')->{error}, '', 'who commits');
	}
	else
	{
		ended($present, 'and who acts under the one before');
	}
	quit($holder, $present, $gate);
}

# A renewal under a grant that is not committed yet has superseded nothing.
{
	my ($lease, $holder, $epoch) = scenario('all');
	my $other = session($node, user => 'app');

	$holder->do('BEGIN; ' . guard($lease, $epoch));
	$other->do(
		"BEGIN; SELECT lease.renew('$lease', epoch) FROM lease.acquire('$lease', 'holder', reclaim => true); ROLLBACK"
	);
	spared($holder, 'a grant and a renewal that are rolled back end nobody');
	$other->do(
		"BEGIN; SELECT lease.alter('$lease', evict => 'none');"
		  . " SELECT epoch AS new FROM lease.acquire('$lease', 'holder', reclaim => true) \\gset\n"
		  . "SELECT lease.alter('$lease', evict => 'all'); SELECT lease.renew('$lease', :new); ROLLBACK"
	);
	spared($holder, 'nor if it was set up meanwhile to end them');
	is($holder->query('COMMIT')->{error}, '', 'whose transaction commits');
	quit($holder, $other);
}

# A client that reads nothing is told of guards that guard nothing, and its server
# waits for it: not inside COMMIT, where it would have the fence lock.  Nor is whoever
# takes over told what it ends, inside its COMMIT, though it has asked for such messages.
{
	my ($lease, $holder, $epoch) = scenario('all');
	my $deaf = $node->raw_connect;
	my $parameters = pack('N Z* Z* Z* Z* x', 196608, 'user', 'app', 'database', 'postgres');
	my $query = pack('Z*', "SELECT lease.guard('$lease', $epoch)");

	$deaf->autoflush(1);
	print $deaf pack('N', 4 + length $parameters)
	  . $parameters
	  . (pack('A N', 'Q', 4 + length $query) . $query) x 2000;
	wait_until(
		$node,
		"SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'ClientWrite'",
		'a server process to wait for its client');
	$holder->do('BEGIN; ' . guard($lease, $epoch));
	my $answer = $successor->query('SET client_min_messages = log; ' . take($lease));
	is($answer->{rows}, 'granted', 'a lease is taken though a client under it reads nothing');
	is($answer->{error}, '', 'the taker is not told whom it ends');
	$successor->do('RESET client_min_messages');
	ended($holder, 'who is ended');
	close $deaf;
	quit($holder);
}

# What else waits for a client: COPY from it, and a result that it does not read
{
	my ($lease, $holder, $epoch) = scenario('all');

	$holder->do('BEGIN; ' . guard($lease, $epoch));
	$holder->{stdin} .= "COPY $lease FROM STDIN;\n4\t0\n";
	$holder->{run}->pump_nb;
	wait_until(
		$node,
		"SELECT state = 'active' AND wait_event = 'ClientRead' FROM pg_stat_activity WHERE pid = "
		  . $holder->backend,
		'COPY to wait for its client');
	taken($lease, 'a lease whose holder is in the middle of a COPY is taken');
	ended($holder, 'the holder is ended');
	quit($holder);

	($lease, $holder, $epoch) = scenario('all');
	my $gate = session($node, sql => 'SELECT pg_advisory_lock(1)');
	$holder->do('BEGIN; ' . guard($lease, $epoch));
	$holder->ask(
		"SELECT repeat('x', 1000) FROM pg_advisory_lock_shared(1), generate_series(1, 1000000)"
	);
	wait_for_event($node, $holder, 'advisory');
	$holder->pause;
	$gate->do('SELECT pg_advisory_unlock(1)');
	wait_for_event($node, $holder, 'ClientWrite');
	taken($lease, 'a lease whose holder does not read its result is taken');
	ended($holder, 'the holder is ended');
	quit($holder, $gate);
}

# A revocation, and a new grant to the same holder: at its COMMIT, if there is one
foreach my $case ([ 'revoke', "lease.revoke('%s')", 'LS003' ],
	[ 'reclaim', "lease.acquire('%s', 'holder', reclaim => true)", 'LS001' ])
{
	my ($how, $call, $sqlstate) = @$case;
	my ($lease, $holder, $epoch) = scenario('all');
	my $other = session($node, user => 'app');

	$call = sprintf($call, $lease);
	$holder->do('BEGIN; ' . guard($lease, $epoch));
	$other->do("BEGIN; SELECT $call; ROLLBACK");
	spared($holder, "$how: if it is rolled back, nobody is ended");
	$other->do(
		"BEGIN; SAVEPOINT s; SELECT $call; ROLLBACK TO s; INSERT INTO plain DEFAULT VALUES; COMMIT"
	);
	spared($holder, 'nor if it is rolled back to a savepoint');
	$other->do("BEGIN; SAVEPOINT s; SELECT $call; RELEASE s");
	spared($holder, 'nor before it commits');
	$other->do('COMMIT');
	ended($holder, 'but when it does');
	is(evicted($lease), '{"guarded": [' . $holder->backend . ']}', 'as the event says');
	quit($holder, $other);
}

# A batch that found somebody to be faster, and then the lease busy, has superseded
# nothing: it ends nobody when it commits.
{
	my ($lease, $holder, $epoch) = scenario('all');
	my $faster = session($node);
	my $gate = session($node, sql => 'BEGIN; ALTER SEQUENCE lease.epoch CACHE 1');

	$holder->do('BEGIN; ' . guard($lease, $epoch));
	$successor->do("SET lease.busy_timeout = '2 s'");
	$successor->ask(
		"SELECT outcome FROM lease.acquire_many(ARRAY['$lease'], 'holder', reclaim => true)"
	);
	wait_for_event($node, $successor, 'relation');
	$faster->do("BEGIN; SELECT lease.alter('$lease', min_hold => '1 ms')");
	$gate->do('ROLLBACK');
	is($successor->answer->{rows},
		'busy', 'a lease that somebody else was faster to change is busy');
	spared($holder, 'the transaction under its epoch is not ended');
	is($holder->query('COMMIT')->{error}, '', 'and commits');
	$successor->do('RESET lease.busy_timeout');
	quit($holder, $faster, $gate);
}

# Whoever has left the guarded transaction is none of ours, whatever is left of it.
{
	my ($lease, $holder, $epoch) = scenario('all');

	$holder->do('BEGIN; '
		  . guard($lease, $epoch)
		  . "; DECLARE c CURSOR WITH HOLD FOR SELECT * FROM $lease; COMMIT;"
		  . ' BEGIN; INSERT INTO plain DEFAULT VALUES; FETCH c');
	taken($lease, 'a lease whose holder is in another transaction is taken');
	spared($holder, 'the holder is not ended');
	is($holder->query('COMMIT')->{error}, '', 'and commits');
	quit($holder);
}

#----
# A session that leaves the guarded transaction while it is looked at
#----

my $logger;

# A stopped process does not notice that its server has ended.
END { kill 'CONT', $logger if $logger; }

# The taker writes a line of the log for the first session that it ends, and here that
# takes as long as we want: until the server's log is written again.  By then the second
# session is in another transaction, and the third has gone back to a savepoint; both
# wait for their clients again.  And the fourth acts under the new grant already, which
# is the latest of what the taker has done in one transaction.
{
	my $slow = new_server('slow_log', "logging_collector = on\nlog_statement = none");
	($logger) = grep {
		(eval { slurp_file("/proc/$_/cmdline") } // '') =~ /logger/    # it may have ended
	  } split ' ',
	  slurp_file("/proc/@{[$slow->{_pid}]}/task/@{[$slow->{_pid}]}/children");

	$slow->safe_psql(
		'postgres', q{
		CREATE ROLE app LOGIN;
		ALTER ROLE app SET log_min_messages = panic;
		SELECT lease.allow('app'), lease.alter('L', role => 'app');
		GRANT ALL ON work, work_id_seq TO app;
		CREATE SEQUENCE lines;
	});
	my ($first, $second, $third, $fourth) =
	  map { session($slow, user => 'app') } 1 .. 4;
	$first->client;
	my $taker = session($slow, sql => $AHEAD);
	my $filler = session($slow, sql => 'SET log_error_verbosity = terse');
	my $epoch = $first->do("SELECT epoch FROM lease.acquire('L', 'holder')");
	$_->do("BEGIN; SELECT lease.guard('L', $epoch); INSERT INTO work DEFAULT VALUES")
	  foreach $first, $second;
	$third->do('BEGIN; CREATE TEMP TABLE unrelated (id int); SAVEPOINT s;'
		  . " SELECT lease.guard('L', $epoch); INSERT INTO work DEFAULT VALUES");

	kill 'STOP', $logger;
	$filler->ask(
		"DO 'BEGIN LOOP RAISE LOG ''x''; PERFORM nextval(''lines''); END LOOP; END'");
	my ($lines, $again) = (0, 0);
	my $until = time + $PATIENCE;
	while ($again < 5 && time < $until)
	{
		my $now = $slow->safe_psql('postgres', 'SELECT last_value FROM lines');
		$again = $now == $lines && $now > 100 ? $again + 1 : 0;
		$lines = $now;
	}

	$taker->ask("BEGIN; SELECT outcome FROM lease.acquire('L', 'successor'); SELECT lease.revoke('L'); "
		  . take('L')
		  . '; COMMIT');
	wait_until(
		$slow,
		'SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = ' . $first->backend,
		'the first session to be ended');
	$second->do('ROLLBACK; BEGIN; CREATE TEMP TABLE unrelated (id int)');
	$third->do('ROLLBACK TO s');
	my $new = $fourth->do("SELECT epoch FROM lease.status WHERE name = 'L'");
	cmp_ok($new, '>', $epoch, 'a takeover takes its time');
	$fourth->do("BEGIN; SELECT lease.guard('L', $new); INSERT INTO work DEFAULT VALUES");
	kill 'CONT', $logger;
	undef $logger;
	like($taker->answer->{rows}, qr/\ngranted$/, 'and is done');
	is($second->query('COMMIT')->{error},
		'',
		'who has left the guarded transaction meanwhile, is not ended in the next one');
	is($third->query('COMMIT')->{error},
		'', 'nor who has gone back to where it was not guarded');
	is($fourth->query('COMMIT')->{error},
		'', 'nor who acts under the present grant');
	quit($first);
	$_->quit foreach $second, $third, $fourth, $taker;
	$slow->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $filler->backend . ')');
	$slow->stop;
}

# That a grant was released does not mean that nobody acts under it any more.
{
	my ($lease, $holder, $epoch) = scenario('all');
	my $other = session($node, user => 'app');

	$holder->do('BEGIN; ' . guard($lease, $epoch));
	is($other->query("SELECT lease.release('$lease', $epoch)")->{rows},
		't', 'a lease is released in another session');
	spared($holder, 'which ends nobody');
	taken($lease, 'the next is granted it');
	ended($holder, 'and who acts under the old epoch is ended');
	quit($other);
}

#----
# In a crowd
#----

# Each member of the crowd goes round in statements, given as SQL that makes one of
# the number of the round.  Several in one are sent as one message, so that the
# session does not wait for its client in between.
my $epoch_of_t = "(SELECT epoch FROM lease.status WHERE name = ''t'')";
my $act = "SELECT lease.guard(''t'', $epoch_of_t); UPDATE t SET n = n + 1 WHERE id = %d";
my $renewal = "SELECT lease.renew(''t'', $epoch_of_t)";
my @unrelated = (
	"'BEGIN'",
	"'INSERT INTO plain (who) VALUES (''unrelated'')'",
	"'SELECT count(*) FROM pg_class'", "'COMMIT'");
my %crowd = (
	'guarded by another lease' => [
		"'BEGIN'",
		"'SELECT lease.guard(''u'', %epoch_of_u%)'",
		"'UPDATE u SET n = n + 1 WHERE id = 1'",
		"'SELECT'", "'COMMIT'"
	],
	'not guarded' => \@unrelated,
	'guarded in time' => [ "'" . sprintf($act, 1) . "'", @unrelated ],
	'renewed in time' => [ "'$renewal'", @unrelated ],
	'guard rolled back' => [
		"'BEGIN; INSERT INTO plain DEFAULT VALUES; SAVEPOINT s; "
		  . sprintf($act, 2)
		  . "; ROLLBACK TO s'",
		"'SELECT count(*) FROM pg_class'",
		"'ROLLBACK'"
	],
	'acts under it' => [
		"'BEGIN'", "'" . sprintf($act, 3) . "'",
		"'SELECT'", "'COMMIT'",
		"'BEGIN'", "'$renewal'",
		"'SELECT'", "'COMMIT'"
	]);
my $may_be_ended = 'acts under it';

$node->safe_psql(
	'postgres', q{
	CREATE TABLE t (id int PRIMARY KEY, n int);
	CREATE TABLE u (LIKE t INCLUDING ALL);
	INSERT INTO t SELECT i, 0 FROM generate_series(1, 3) AS i;
	INSERT INTO u TABLE t;
	GRANT ALL ON t, u TO app;
	SELECT lease.create(name, ttl => '100 s', role => 'app'), lease.protect(name::regclass, name)
	FROM unnest(ARRAY['t', 'u']) AS name;
	SELECT lease.alter('u', ttl => '1 day');
});
my $epoch_of_u =
  $node->safe_psql('postgres', "SELECT epoch FROM lease.acquire('u', 'u')");

# rounds(COUNT, STATEMENT, ...) returns a psql script that goes round.
sub rounds
{
	my ($count, @statements) = @_;

	return
		'SELECT unnest(ARRAY['
	  . join(', ', @statements)
	  . "]) FROM generate_series(1, $count) AS round \\gexec\n\\q\n";
}

# start(NAME, USER, SCRIPT) starts psql.
sub start
{
	my ($name, $user, $script) = @_;
	my %psql = (
		name => $name,
		user => $user,
		script => $script,
		stdin => $script,
		stdout => '',
		stderr => '');

	local $ENV{PGAPPNAME} = $name;
	$psql{run} = IPC::Run::start(
		[
			'psql', '-XAtq', '-v', 'VERBOSITY=sqlstate', '-d',
			$node->connstr('postgres') . " user=$user",
			'-f', '-'
		],
		'<',
		\$psql{stdin},
		'>',
		\$psql{stdout},
		'2>',
		\$psql{stderr});
	return \%psql;
}

my $offset = -s $node->logfile;

# Those that just sit there, each after it has sent this.  Now and then they do so
# again: nobody could remove old versions of rows while a transaction is open.
my @sitting = (
	'SELECT',
	'BEGIN; INSERT INTO plain DEFAULT VALUES',
	"BEGIN; SELECT lease.guard('u', $epoch_of_u); UPDATE u SET n = n + 1 WHERE id = 2");
my @still = map { session($node, user => 'app', sql => $_) } @sitting;

my @crowd = map {
	start($_, 'app', rounds(5000, map { s/%epoch_of_u%/$epoch_of_u/r } @{ $crowd{$_} }))
} sort keys %crowd, $may_be_ended;

# Each takeover is at an instant at which the grant before is over.
my $taker = start(
	'taker', 'chief',
	rounds(
		$TAKEOVERS,
		"'SET lease.clock_offset = ' || round * 200000",
		"'SELECT outcome FROM lease.acquire(''t'', ''taker'')'"));
my $until = time + $PATIENCE;
my $again = time;
while ($taker->{run}->pumpable)
{
	die 'the takeovers take too long' if time > $until;
	if (time > $again)
	{
		$still[$_]->do("COMMIT; $sitting[$_]") foreach 1, 2;
		$again = time + 0.5;
	}
	foreach my $psql ($taker, @crowd)
	{
		eval { $psql->{run}->pump_nb };    # it may have ended just now
	}
	foreach my $psql (@crowd)
	{
		# Whoever was ended, or has gone all its rounds, begins again.
		next if $psql->{run}->pumpable;
		eval { $psql->{run}->finish };
		$psql = start(@{$psql}{qw(name user script)});
	}
	select(undef, undef, undef, 0.002);
}
$taker->{run}->finish;
foreach my $psql (@crowd)
{
	$psql->{run}->kill_kill(grace => $PATIENCE);
}

is($taker->{stderr}, '', 'the taker has met with no error');
is(scalar(() = $taker->{stdout} =~ /^granted$/mg), $TAKEOVERS, "$TAKEOVERS takeovers");
my $log = substr(slurp_file($node->logfile), $offset);
my %ended;
$ended{$_}++
  foreach $log =~
  /\[\d+\] (.*?) FATAL:  terminating connection due to administrator command/g;
note 'ended: ' . join(', ', map { "$_ $ended{$_} times" } sort keys %ended);
cmp_ok(delete $ended{$may_be_ended} // 0,
	'>', 20, 'sessions that acted under the lease were ended');
is(join(', ', %ended), '', 'and no others');
spared($_, 'nor one that just sat there') foreach @still;
is($still[$_]->query('COMMIT')->{error}, '', 'what it was about to do is done')
  foreach 1, 2;
unlike($log, qr/PANIC:|TRAP:|was terminated by signal/, 'and the server is well');

$node->stop;
done_testing();
