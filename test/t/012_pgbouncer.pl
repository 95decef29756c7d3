# Behind PgBouncer in transaction mode.  G3, G4, G10.
#
# A transaction pooler hands one server connection from client to client.  A guard
# is of a transaction, so nothing of it is left for whoever comes next, however the
# transaction ended; and nothing that a client says outside of a transaction becomes
# a token of somebody else's: neither SET nor a start-up option, which does not get
# through such a pooler at all.
#
# Without PgBouncer this is skipped, unless LEASE_ALL_DRIVERS is set.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use IPC::Run ();
use LeaseTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $CLIENTS = 8;
my $ROUNDS = 10;

my ($program) =
  grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin';
if (!$program)
{
	die 'PgBouncer is not installed' if $ENV{LEASE_ALL_DRIVERS};
	plan skip_all => 'PgBouncer is not installed';
}

my $node = new_server('pgbouncer');
my $owner = $node->safe_psql('postgres', 'SELECT current_user');

# grant(LEASE) grants a lease anew and returns the epoch; what was granted before
# is superseded.
sub grant
{
	my ($lease) = @_;

	return $node->safe_psql('postgres',
		"SELECT epoch FROM lease.acquire('$lease', 'holder', reclaim => true)");
}

$node->safe_psql(
	'postgres', q{
	ALTER TABLE work ADD backend int DEFAULT pg_backend_pid();
	CREATE TABLE plan (LIKE work INCLUDING DEFAULTS);
	CREATE TABLE whole (id int PRIMARY KEY);
	CREATE TABLE part (id int REFERENCES whole DEFERRABLE INITIALLY DEFERRED);
	SELECT lease.create('M', ttl => '10 min'), lease.protect('plan', 'M');
});
my %epoch = (L => grant('L'), M => grant('M'));
my $first = $epoch{L};

# PgBouncer, with pools of one and of two server connections, and one whose server
# connections begin with a SET.
my $directory = PostgreSQL::Test::Utils::tempdir_short;
my $port = 6432;
my $server = 'host=' . $node->host . ' port=' . $node->port . ' dbname=postgres';
append_to_file("$directory/users", qq("$owner" ""\n"app" ""\n));
append_to_file("$directory/pgbouncer.ini", <<"INI");
[databases]
one = $server pool_size=1
two = $server pool_size=2
set = $server pool_size=1 connect_query='SET lease.token = ''L=$first'''

[pgbouncer]
listen_addr =
listen_port = $port
unix_socket_dir = $directory
auth_type = trust
auth_file = $directory/users
admin_users = $owner
pool_mode = transaction
INI

my $log = '';
my $pgbouncer = IPC::Run::start([ $program, "$directory/pgbouncer.ini" ],
	'<', \undef, '>', \$log, '2>&1');

# With die, too, the pooler has to end.
END
{
	my $status = $?;

	$pgbouncer->kill_kill(grace => 5) if $pgbouncer;
	note $log if $status;
	$? = $status;
}

my $until = time + $PATIENCE;
while ($log !~ /process up/)
{
	die "PgBouncer does not start: $log"
	  if !$pgbouncer->pumpable || time > $until;
	$pgbouncer->pump_nb;
	select(undef, undef, undef, 0.01);
}

# To whoever connects, a pooler looks like a server.
sub Pooler::connstr
{
	my ($self, $database) = @_;

	return "host=$directory port=$port dbname=$database user=$owner";
}
my $pooler = bless {}, 'Pooler';

# pooled(DATABASE) connects through the pooler.
sub pooled
{
	return session($pooler, database => shift, @_);
}

# admin(COMMAND) sends a command to the pooler itself.
sub admin
{
	my ($command) = @_;
	my ($stdout, $stderr) = run_command(
		[ 'psql', '-XAtqd', $pooler->connstr('pgbouncer'), '-c', $command ]);

	die "$command: $stderr" if $stderr;
	return $stdout;
}

# fresh(DATABASE) makes the pooler open new server connections.
sub fresh
{
	my ($database) = @_;

	admin("RECONNECT $database");
	admin("WAIT_CLOSE $database");
	die "$database is still connected"
	  if admin('SHOW SERVERS') =~ /\|\Q$database\E\|/;
	return;
}

# write_to(TABLE, WHO) returns a write.
sub write_to
{
	my ($table, $who) = @_;

	return "INSERT INTO $table (who) VALUES ('$who')";
}

# guard(LEASE) returns a guard under the current epoch of a lease.
sub guard
{
	my ($lease) = @_;

	return "SELECT lease.guard('$lease', $epoch{$lease})";
}

# One server connection, two clients: of lease L, and of lease M
my ($l, $m) = (pooled('one'), pooled('one'));

# next_is_refused(END) passes if nobody may write where L has just been.
sub next_is_refused
{
	my ($end) = @_;

	is( $m->do('SELECT pg_backend_pid()'),
		$l->do('SELECT pg_backend_pid()'),
		"after $end: the same server connection");
	refused($m->query(write_to('work', 'm')),
		'LS004', 'a write of the next client is refused');
	refused(
		$m->query(
			"BEGIN; " . guard('M') . "; " . write_to('work', 'm') . "; COMMIT"),
		'LS004',
		'also under a guard of its own lease');
	refused($l->query(write_to('work', 'l')),
		'LS004', 'a write of the same client is refused');
	is( $m->query(
			"BEGIN; " . guard('M') . "; " . write_to('plan', 'm') . "; COMMIT")
		  ->{error},
		'',
		'and under its guard the next client may write to its own table');
	return;
}

# After each of these L has written as often as it says, and nobody else.
my $guard = guard('L');
my $write = write_to('work', 'l');
my $written = 0;
my $planned = 0;
foreach my $case (
	[ 'COMMIT', 1, '', "BEGIN; $guard; $write; COMMIT" ],
	[ 'COMMIT AND CHAIN', 1, 'LS004',
		"BEGIN; $guard; $write; COMMIT AND CHAIN; $write; ROLLBACK" ],
	[ 'ROLLBACK', 0, '', "BEGIN; $guard; $write; ROLLBACK" ],
	[ 'ROLLBACK AND CHAIN', 0, 'LS004',
		"BEGIN; $guard; $write; ROLLBACK AND CHAIN; $write; ROLLBACK" ],
	[ 'an error', 0, '22012', "BEGIN; $guard; $write; SELECT 1/0; COMMIT" ],
	[ 'an error at COMMIT', 0, '23503',
		"BEGIN; $guard; $write; INSERT INTO part VALUES (1); COMMIT" ],
	[ 'the rollback of a savepoint', 0, 'LS004',
		"BEGIN; SAVEPOINT s; $guard; $write; ROLLBACK TO s; $write; COMMIT" ],
	[ 'the release of a savepoint', 2, '',
		"BEGIN; SAVEPOINT s; $guard; $write; RELEASE s; $write; COMMIT" ],
	[ 'one message', 1, '', "$guard\\; $write" ],
	[ 'one message with an error', 0, '22012', "$guard\\; $write\\; SELECT 1/0" ],
	[ 'a guard alone', 0, '', $guard ],
	[ 'DISCARD ALL', 1, '', "BEGIN; $guard; $write; COMMIT; DISCARD ALL" ],
	[ 'DISCARD ALL inside the transaction', 0, '25001',
		"BEGIN; $guard; $write; DISCARD ALL; COMMIT" ],
	[ 'a prepared statement', 1, '',
		"PREPARE w AS $write; BEGIN; $guard; EXECUTE w; COMMIT" ])
{
	my ($end, $writes, $sqlstate, $sql) = @$case;

	is($l->query($sql)->{sqlstate}, $sqlstate, "$end: answer");
	$written += $writes;
	next_is_refused($end);
	$planned++;
	is( $node->safe_psql('postgres',
			"SELECT count(*), count(*) FILTER (WHERE who = 'l') FROM work"),
		"$written|$written",
		'nobody else has written');
}
refused($m->query('EXECUTE w'), 'LS004',
	'a statement that somebody prepared under a guard has none');
is($node->safe_psql('postgres', "SELECT count(*) FROM plan WHERE who = 'm'"),
	$planned, 'each guarded write of M is there');

# A COMMIT that is refused leaves nothing, either.
$l->do("BEGIN; $guard; $write");
$epoch{L} = grant('L');
refused($l->query('COMMIT'), 'LS001', 'a COMMIT under a lost lease');
next_is_refused('a refused COMMIT');

# A client vanishes within its transaction.
$guard = guard('L');
$l->do("BEGIN; $guard; $write");
$l->quit;
refused($m->query(write_to('work', 'm')),
	'LS004', 'after a client that vanished');
$l = pooled('one');
next_is_refused('a client that vanished');
is($node->safe_psql('postgres', 'SELECT count(*) FROM work'),
	$written, 'and neither has written');

# Two server connections: the holder is superseded while it sits on one of them, and
# the next client on the other is its successor.
{
	my ($old, $new) = (pooled('two'), pooled('two'));

	my $one = $old->do("BEGIN; $guard; $write; SELECT pg_backend_pid()");
	$epoch{L} = $new->do(
		"SELECT epoch FROM lease.acquire('L', 'holder', reclaim => true)");
	my $other = $new->do(
		'BEGIN; ' . guard('L') . "; $write; SELECT pg_backend_pid()");
	isnt($other, $one, 'a successor on another server connection');
	is($new->query('COMMIT')->{error}, '', 'commits');
	refused($old->query('COMMIT'), 'LS001', 'and the old leader does not');
	is( $new->query(
			'BEGIN; ' . guard('L') . "; $write; COMMIT; SELECT pg_backend_pid()")
		  ->{error},
		'',
		'the successor may commit whatever connection it gets');
	refused($old->query("BEGIN; $guard"),
		'LS001', 'and the old leader may not begin');
	$old->quit;
	$new->quit;
	$written += 2;
}

# One server connection, in whose guarded transaction a client of a role that is no
# superuser sits: a takeover ends that connection; the client is told so, and the
# next one gets another.
{
	$node->safe_psql('postgres', q{
		CREATE ROLE app LOGIN;
		SELECT lease.allow('app'), lease.create('P', ttl => '10 min', role => 'app');
	});
	my ($old, $new) = (pooled('one', user => 'app'), pooled('one', user => 'app'));
	my $epoch = $old->do("SELECT epoch FROM lease.acquire('P', 'old')");

	my $one = $old->do("BEGIN; SELECT lease.renew('P', $epoch) \\g /dev/null\n"
		  . 'SELECT pg_backend_pid()');
	is( $node->safe_psql('postgres',
			"$AHEAD; SELECT outcome FROM lease.acquire('P', 'new')"),
		'granted',
		'a lease whose holder sits on a server connection is taken');
	isnt($new->do('SELECT pg_backend_pid()'),
		$one, 'the next client gets another server connection');
	eval { $old->query('COMMIT') };
	like($@, qr/server closed|terminating connection|FATAL/, 'and the old holder has lost its own');
	$old->quit;
	$new->quit;
}

# SET is nobody's token, be the library loaded or not: refused, or without effect.
foreach my $loaded (0, 1)
{
	foreach my $set (
		"SET lease.token = 'L=$epoch{L}'",
		"SET SESSION lease.token = 'L=$epoch{L}'",
		"SELECT set_config('lease.token', 'L=$epoch{L}', false)")
	{
		fresh('one');
		$l->do('SELECT count(*) FROM lease.status') if $loaded;
		my $answer = $l->query($set);
		is($answer->{sqlstate}, '55P02', "$set is refused") if $loaded;
		refused($m->query(write_to('work', 'm')),
			'LS004',
			"$set, the library "
			  . ($loaded ? 'being loaded' : 'not being loaded')
			  . ': no token of the next client');
		refused($l->query($write), 'LS004', 'and none of its own');
	}
	fresh('one');
	$l->do('SELECT count(*) FROM lease.status') if $loaded;
	my $answer =
	  $l->query("BEGIN; SET LOCAL lease.token = 'L=$epoch{L}'; $write; COMMIT");
	is($answer->{sqlstate}, $loaded ? '55P02' : 'LS004', 'SET LOCAL');
	refused($m->query(write_to('work', 'm')), 'LS004', 'and after it');
}
my $set = pooled('set');
is($set->do('SHOW lease.token'),
	"L=$first", 'the pooler sets something when it connects');
refused($set->query($write), 'LS004', 'and that is no token, either');
$set->quit;

# The start-up option does not get through: PgBouncer refuses it, or, told to ignore
# it, drops it.  The client and all others are without a token.
my $option = "-c lease.token=L=$epoch{L}";
my $refusal = do
{
	local $ENV{PGOPTIONS} = $option;
	my ($stdout, $stderr) = run_command(
		[ 'psql', '-XAtqd', $pooler->connstr('one'), '-c', $write ]);
	$stderr;
};
like(
	$refusal,
	qr/unsupported startup parameter/,
	'the start-up option is refused by the pooler');
refused($m->query(write_to('work', 'm')),
	'LS004', 'and is no token of another client');

admin("SET ignore_startup_parameters = 'options'");
fresh('one');
{
	my $with = pooled('one', options => $option);
	my $without = pooled('one');

	foreach my $client ($with, $without, $with)
	{
		refused($client->query($write),
			'LS004',
			'where the pooler ignores it: no token for '
			  . ($client == $with ? 'who connected with it' : 'anybody else'));
	}
	is( $with->query('BEGIN; ' . guard('L') . "; $write; COMMIT")->{error},
		'', 'lease.guard() works there');
	$written++;
	refused($without->query($write), 'LS004', 'for its own transaction');
	$with->quit;
	$without->quit;
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM work'),
	$written, 'nobody but L under a guard has written');

# Maintenance in one transaction and in several, through the one server connection: what L
# begins and finishes is L's, whatever is in between, and nothing of it is left for M.
{
	$node->safe_psql(
		'postgres', q{
		SET lease.clock_offset = '-3 h';
		SELECT lease.create_task('T', 'L', every => '1 h', anchor => now() - interval '30 min', misfire => 'all');
	});
	my @due = split /\n/, $node->safe_psql('postgres', "SELECT due_at FROM lease.due('T')");
	my $begin = "SELECT outcome, attempt FROM lease.begin_occurrence('T', '%s', %d)";
	my $finish = "SELECT standing, settled FROM lease.finish_occurrence('T', '%s', 1, %d)";

	my $answer = $l->query('BEGIN; ' . sprintf($begin, $due[0], $epoch{L}) . '; '
		  . write_to('work', 'maintenance') . '; ' . sprintf($finish, $due[0], $epoch{L}) . '; COMMIT');
	is($answer->{rows}, "started|1\ndone|t", 'an occurrence is begun, done and finished');
	$written++;
	refused($m->query(write_to('work', 'm')), 'LS004', 'which guards nothing of the next client');

	is($l->do(sprintf $begin, $due[1], $epoch{L}), 'started|1', 'one is begun');
	refused($m->query(sprintf $finish, $due[1], $epoch{M}),
		$epoch{M} > $epoch{L} ? 'LS003' : 'LS001',
		'another client with its own epoch cannot finish it');
	refused($l->query(write_to('work', 'l')), 'LS004', 'its own next transaction is not guarded');
	is($l->do(sprintf $begin, $due[1], $epoch{L}), 'running|1', 'it is running');
	is($l->do(sprintf $finish, $due[1], $epoch{L}), 'done|t', 'and finished, in the third transaction');
	is($m->do(sprintf $finish, $due[1], $epoch{L}), 'done|f',
		'whoever repeats that is told what stands');
	is( $node->safe_psql('postgres',
			"SELECT (SELECT count(*) FROM work WHERE who = 'maintenance'), count(*),"
			  . " count(*) FILTER (WHERE verdict = 'done') FROM lease.occurrence_attempt"),
		'1|2|2',
		'each was done once');
}

# Who waits in line has locks of its session while it waits, and only then; a client
# that gives up or vanishes leaves none for the next one on that server connection.
{
	my $mine = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
	  . ' AND pid = pg_backend_pid()';
	my $in_line = "SELECT count(*) > 0 FROM lease.candidate WHERE name = 'L'";
	my $wait = "CALL lease.await('L', 'pooled', timeout => '%s')";
	my $answer = $l->query(sprintf $wait, '200ms');

	like($answer->{rows}, qr/^L\|holder\|held\|/, 'a wait in line, through the pooler,');
	is($m->do($mine), '0', 'leaves nothing in the server connection');
	$answer = $l->query("SET lock_timeout = '200ms'; " . sprintf $wait, '600s');
	is($answer->{sqlstate}, '55P03', 'nor if it fails');
	is($m->do("$mine; RESET lock_timeout"), '0', '... as the next client sees');
	$l->client;
	$l->ask(sprintf $wait, '600s');
	wait_until($node, $in_line, 'a client of the pooler to be in line');
	kill 'KILL', $l->client or die "cannot kill psql: $!";
	wait_until($node, 'SELECT count(*) = 0 FROM lease.candidate', 'it to leave the line');
	$l = pooled('one');
	is($m->do($mine), '0', 'a client that vanishes leaves nothing');
}

$_->quit foreach $l, $m;

# Many clients on two server connections, each with a lease, a stale epoch and a table
# of its own; every kind of transaction in an order of its own.
my @clients;
foreach my $i (0 .. $CLIENTS - 1)
{
	$node->safe_psql('postgres',
		"SELECT lease.create('J$i', ttl => '10 min');"
		  . " CREATE TABLE j$i (LIKE work INCLUDING DEFAULTS);"
		  . " SELECT lease.protect('j$i', 'J$i')");
	push @clients, { number => $i, stale => grant("J$i") };
}
$_->{epoch} = grant("J$_->{number}") foreach @clients;

# transactions(CLIENT) returns what it does in a round, each with the SQLSTATEs of
# the errors that it gets and the number of rows that it writes.
sub transactions
{
	my ($client) = @_;
	my $i = $client->{number};
	my $other = $clients[ ($i + 1) % $CLIENTS ];
	my $own = write_to("j$i", "c$i");
	my $foreign = write_to("j$other->{number}", "c$i");
	my $under = "SELECT lease.guard('J$i', $client->{epoch})";
	my $ahead = $other->{epoch} > $client->{epoch};

	return (
		[ "BEGIN; $under; $own; COMMIT", [], 1 ],
		[ $own, ['LS004'], 0 ],
		[ "BEGIN; SELECT; $own; COMMIT", ['LS004'], 0 ],
		[ "BEGIN; SAVEPOINT s; $under; $own; ROLLBACK TO s; $own; COMMIT",
			['LS004'], 0
		],
		[ "BEGIN; $under; $own; SAVEPOINT s; $foreign; ROLLBACK TO s; $own; COMMIT",
			['LS004'], 2
		],
		[ "BEGIN; SELECT lease.guard('J$i', $client->{stale}); ROLLBACK",
			['LS001'], 0
		],
		[ "BEGIN; SELECT lease.guard('J$i', $other->{epoch}); ROLLBACK",
			[ $ahead ? 'LS003' : 'LS001' ], 0
		],
		[ "BEGIN; SELECT lease.guard('J$i', NULL); ROLLBACK", ['22004'], 0 ],
		[ "BEGIN; $under; $own; ROLLBACK", [], 0 ],
		[ "$foreign", ['LS004'], 0 ],
		[ "BEGIN; $under; $own; SELECT 1/0; COMMIT", ['22012'], 0 ],
		[ "$under\\; $own", [], 1 ],
		[ "SELECT outcome = 'renewed' FROM lease.renew('J$i', $client->{epoch})",
			[], 0
		]);
}

my $rows = 0;
foreach my $reset (0, 1)
{
	admin("SET server_reset_query_always = $reset");
	foreach my $client (@clients)
	{
		my @all = transactions($client);
		my @sql;

		foreach my $round (1 .. $ROUNDS)
		{
			push @all, splice(@all, 0, 1 + $client->{number});
			foreach my $transaction (@all)
			{
				push @sql, $transaction->[0];
				push @{ $client->{errors}[$reset] }, @{ $transaction->[1] };
				$client->{writes} += $transaction->[2];
			}
		}
		$client->{session} = pooled('two', sql => '\set VERBOSITY sqlstate');
		$client->{session}->ask(join(";\n", @sql));
	}

	my $with = $reset ? ', with DISCARD ALL after each transaction' : '';
	foreach my $client (@clients)
	{
		my $errors = $client->{session}->answer->{error};
		is_deeply([ $errors =~ /^.*ERROR:  ([0-9A-Z]{5})/mg ],
			$client->{errors}[$reset],
			"client $client->{number}: what is refused$with");
		is( $node->safe_psql('postgres',
				"SELECT count(*), count(*) FILTER (WHERE who = 'c$client->{number}')"
				  . " FROM j$client->{number}"),
			"$client->{writes}|$client->{writes}",
			"client $client->{number}: what is written$with");
		$client->{session}->quit;
	}
}
is( $node->safe_psql('postgres',
		'SELECT count(DISTINCT backend), bool_and(clients > 1) FROM (SELECT backend,'
		  . ' count(DISTINCT who) AS clients FROM ('
		  . join(' UNION ALL ',
			map { "SELECT backend, who FROM j$_->{number}" } @clients)
		  . ') AS j GROUP BY backend) AS b'),
	'2|t',
	'all that through two server connections, each of several clients');

$pgbouncer->kill_kill(grace => 5);
undef $pgbouncer;
$node->stop;
done_testing();
