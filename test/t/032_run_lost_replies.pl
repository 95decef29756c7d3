# "pg_lease run" when the server has done what was asked, and the answer is lost: the
# leadership is not, and an epoch of which the program was not told is never used.  G2, G10.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use LeaseTest;
use PostgreSQL::Test::Utils;
use RunTest;
use Test::More;
use Time::HiRes qw(time);

my $TTL = 6;

my $node = new_server('run_lost_replies');
my $dir = $PostgreSQL::Test::Utils::tmp_check;
my $proxy = proxy($node);

local $ENV{PGHOST} = $node->host;
local $ENV{PGPORT} = $node->port;
local $ENV{PGDATABASE} = 'postgres';

# history(AFTER) returns the events of the lease after one, each with its epoch.
sub history
{
	my ($after) = @_;

	return $node->safe_psql('postgres',
		"SELECT string_agg(kind || ' ' || epoch, ', ' ORDER BY seq) FROM lease.event"
		  . " WHERE name = 'L' AND seq > $after");
}

# last_event returns the number of the latest event.
sub last_event
{
	return $node->safe_psql('postgres', "SELECT events FROM lease.status WHERE name = 'L'");
}

# expires_at returns when the lease expires, as the server has it.
sub expires_at
{
	return $node->safe_psql('postgres', "SELECT expires_at FROM lease.status WHERE name = 'L'");
}

#----
# Renewals
#----

my $run = program($proxy->connstr, [ '--lease=L', "--ttl=$TTL" ], 'sleep', 1000);
$run->wait_for('started');
my $from = last_event();
foreach my $times (1 .. 3)
{
	my $before = $proxy->swallowed;

	$run->wait_for('renewed');
	my $expiry = expires_at();
	$proxy->tell("swallow $times lease.renew(");
	await_that(sub { $proxy->swallowed == $before + $times },
		"$times answers to be swallowed");
	$run->wait_for('renewal_recovered');
	isnt(expires_at(), $expiry, 'the server has renewed');
	pass("$times lost answers to a renewal: the leader stays");
}
is($run->count('renewal_failed'), 6, 'each lost answer was noticed');
is(history($from), '', 'the history shows no transition');

# The answer to the release is lost: it is repeated, and that there is nothing left to
# release is no loss.
$proxy->tell('swallow 1 lease.release(');
my $epoch = $run->last_of('started')->{epoch};
$run->signal('TERM');
is($run->exit_code, 143, 'the exit code is that of the command');
is($run->count('lost'), 0, 'a lost answer to a release is no loss of the lease');
is(history($from), "released $epoch", 'the lease is released once');

# Failures of an instant do not use up the time for a lost answer.
$run = program($proxy->connstr, [ '--lease=L', '--ttl=15s' ], 'sleep', 1000);
$run->wait_for('started');
foreach (1 .. 3)
{
	my $connected = $run->count('connected');

	$proxy->tell('cut');
	await_that(sub { $run->count('connected') > $connected }, 'another connection');
}
my $swallowed = $proxy->swallowed;
$proxy->tell('swallow 1 lease.renew(');
await_that(sub { $proxy->swallowed == $swallowed + 1 }, 'an answer to be swallowed');
$run->wait_for('renewal_recovered');
is($run->count('stopping'), 0, 'three lost connections and a lost answer: the leader stays');
$run->signal('TERM');
$run->exit_code;

# A command that succeeds, but had lost the lease at its end, has not succeeded.
$run = program($proxy->connstr, [ '--lease=L', '--ttl=10 min' ], 'bash', '-c',
	'psql -Xqc "SELECT lease.revoke(\'L\')"');
is($run->exit_code, 76, 'a command that has lost the lease before it could be released');

#----
# Acquires
#----

# recovered(NAME) passes if the lease was granted twice since $from, given back under the
# first epoch, and used under the second only.
sub recovered
{
	my ($name) = @_;
	my @epochs = history($from) =~ /granted (\d+)/g;

	is($run->exit_code, 0, $name);
	@epochs = history($from) =~ /granted (\d+)/g;
	is(scalar @epochs, 2, 'it was granted twice');
	is( history($from),
		"granted $epochs[0], released $epochs[0], reserved $epochs[0], granted $epochs[1], released $epochs[1]",
		'the first grant was given back');
	is($run->output, "$epochs[1]\n", 'the command runs under the second');
	is($node->safe_psql('postgres', "SELECT count(*) FROM work WHERE who = '$epochs[0]'"),
		0, 'the first is never used');
	is($run->last_of('recovered')->{level}, 'warning', 'the log tells');
	return;
}

# A command that tells and uses its epoch
my @use = ('bash', '-c',
	'echo $LEASE_EPOCH; psql -Xqc "INSERT INTO work (who) VALUES ($LEASE_EPOCH)"');

# The lease is free. Grants are so long that whoever waited for their end would be noticed.
$from = last_event();
$proxy->tell('swallow 1 lease.acquire(');
$run = program($proxy->connstr, [ '--lease=L', '--ttl=1h', '--no-wait' ], @use);
recovered('a lost answer to acquire()');
$from = last_event();
$proxy->tell('swallow 1 lease.await(');
$run = program($proxy->connstr, [ '--lease=L', '--ttl=1h' ], @use);
recovered('a lost answer to await()');

# After a wait in line the connection hangs, or is lost together with the answer.  In the
# first case nothing tells of it but the time.
foreach my $is_closed (0, 1)
{
	$node->safe_psql('postgres', "SELECT lease.acquire('L', 'other', ttl => '1 h')");
	$run = program($proxy->connstr, [ '--lease=L', '--ttl=1h' ], @use);
	wait_until($node, "SELECT count(*) = 1 FROM lease.candidate", 'the candidate to wait');
	$proxy->tell('mute');
	$from = last_event() + 1;
	$node->safe_psql('postgres', "SELECT lease.revoke('L')");
	wait_until($node, "SELECT state = 'held' FROM lease.status WHERE name = 'L'", 'the grant');
	my $granted = time;
	$node->safe_psql('postgres',
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'CALL lease.await%'")
	  if $is_closed;
	recovered('a lost answer to await() after a wait, '
		  . ($is_closed ? 'and the connection with it' : 'on a connection that stays'));
	my $took = time - $granted;
	note sprintf 'recovered, and the command run, %.1f s after the grant', $took;
	cmp_ok($took, '<', 30, 'soon');
}

# A candidate asks anew every now and then, and keeps its place.
my $held = $node->safe_psql('postgres',
	"SELECT epoch FROM lease.acquire('L', 'other', ttl => '1 h')");
my $asked = "SELECT query_start FROM pg_stat_activity WHERE query LIKE 'CALL lease.await(\$1%'";
$from = last_event();
$run = program($proxy->connstr, [ '--lease=L', '--ttl=1h', '--holder=first' ], 'true');
wait_until($node, "SELECT count(*) = 1 FROM lease.candidate", 'the candidate to wait');
my $second = session($node);
$second->ask("CALL lease.await('L', 'second')");
wait_until($node, "SELECT count(*) = 2 FROM lease.candidate", 'another to wait behind it');
my $first_asked = $node->safe_psql('postgres', $asked);
wait_until($node, "SELECT ($asked) > '$first_asked' AND count(*) = 2 FROM lease.candidate",
	'the first one to ask anew, and be in line again');
$node->safe_psql('postgres', "SELECT lease.release('L', $held)");
is($run->exit_code, 0, 'a candidate that has asked anew is granted the lease');
$second->answer;
is( $node->safe_psql('postgres',
		"SELECT string_agg(holder, ' ' ORDER BY seq) FROM lease.event"
		  . " WHERE name = 'L' AND kind = 'granted' AND seq > $from"),
	'first second', '... before the one who came after it');
$node->safe_psql('postgres', "SELECT lease.revoke('L')");

# A candidate with a grant of which it does not know is told to end.
my $other = $node->safe_psql('postgres',
	"SELECT epoch FROM lease.acquire('L', 'other', ttl => '1 h')");
$from = last_event();
$run = program($proxy->connstr, [ '--lease=L', '--ttl=1h' ], 'true');
wait_until($node, "SELECT count(*) = 1 FROM lease.candidate", 'the candidate to wait');
my $rival = session($node);
$rival->ask("CALL lease.await('L', 'rival')");
wait_until($node, "SELECT count(*) = 2 FROM lease.candidate", 'a rival to wait');
$proxy->tell('mute');
$node->safe_psql('postgres', "SELECT lease.release('L', $other)");
wait_until($node, "SELECT holder <> 'other' FROM lease.status WHERE name = 'L'", 'the grant');
$run->signal('TERM');
is($run->exit_code, 143, 'told to end, with a grant of which it does not know');
$rival->answer;
like(history($from), qr/^released $other, granted (\d+), released \1, granted \d+$/,
	'it is found and given back, and the rival is next');
$node->safe_psql('postgres', "SELECT lease.revoke('L')");

#----
# Two programs of the same name
#----

my @twins = map {
	program($proxy->connstr, [ '--lease=L', "--ttl=$TTL", '--holder=twin' ],
		'sleep', 1000)
} 1 .. 2;
await_that(sub { $twins[0]->count('started') + $twins[1]->count('started') },
	'one of them to start');
wait_until($node, "SELECT count(*) = 1 FROM lease.candidate", 'the other one to wait');
my ($one, $two) = $twins[0]->count('started') ? @twins : reverse @twins;

# Also when the one that waits has lost an answer
$proxy->tell('swallow 1 lease.await(');
my $third = program($proxy->connstr,
	[ '--lease=L', "--ttl=$TTL", '--holder=twin', '--wait=1s' ], 'true');
is($third->exit_code, 75, 'a third one with a lost answer does not get the lease');
$one->wait_for('renewed');
$one->wait_for('renewed');
is($one->count('started') + $two->count('started'), 1, 'one runs, the other waits');
$one->signal('TERM');
$one->exit_code;
$two->wait_for('started');
pass('and is next');
$two->signal('TERM');
$two->exit_code;

done_testing();
