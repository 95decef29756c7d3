# The subcommands of pg_lease that go on until they are stopped: watch prints every
# event exactly once and in the order of its lease, whatever happens to the server
# and to itself, with and without notifications; "status --watch" says when it sees
# nothing; both end as they should.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use IPC::Run ();
use JSON::PP;
use LeaseTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = new_server('follow', '', allows_streaming => 1);

# It is to be found under its own name.
delete $ENV{PGAPPNAME};

# follow(NODE, ARGUMENT...) starts the program against a server.  The result has what
# it has printed (out) and its messages (error) so far.
sub follow
{
	my ($server, $subcommand, @arguments) = @_;
	my $self = { out => '', error => '' };

	$self->{run} = IPC::Run::start(
		[ 'pg_lease', $subcommand, '-d', $server->connstr('postgres'), @arguments ],
		'>', \$self->{out}, '2>', \$self->{error});
	return $self;
}

# wait_for(PROGRAM, CONDITION, NAME) waits until a condition is true, and dies if that
# takes too long.
sub wait_for
{
	my ($self, $condition, $name) = @_;
	my $patience = time + $PATIENCE;

	until ($condition->())
	{
		die "timed out waiting for $name; so far: $self->{out}$self->{error}" if time > $patience;
		die "the program has ended: $self->{error}" unless $self->{run}->pumpable;
		$self->{run}->pump_nb;
		select(undef, undef, undef, 0.01);
	}
	return;
}

# until_printed(PROGRAM, PATTERN) waits until that was printed.
sub until_printed
{
	my ($self, $pattern) = @_;

	wait_for($self, sub { $self->{out} =~ $pattern }, "output like $pattern");
	return;
}

# until_said(PROGRAM, PATTERN) waits for such a message.
sub until_said
{
	my ($self, $pattern) = @_;

	wait_for($self, sub { $self->{error} =~ $pattern }, "a message like $pattern");
	return;
}

# stop(PROGRAM, SIGNAL, NAME) sends a signal, and passes if that ends it with 0.
sub stop
{
	my ($self, $signal, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$self->{run}->signal($signal);
	$self->{run}->finish;
	return is(join(' ', $self->{run}->full_results), '0', $name);
}

# printed(PROGRAM) returns the events that it has printed as JSON, each "NAME SEQ".
sub printed
{
	my ($self) = @_;

	return map { my $event = JSON::PP->new->decode($_); "$event->{name} $event->{seq}" }
	  $self->{out} =~ /^(\{.*\})\n/mg;
}

# written(NODE, CONDITION) returns the events that there are in the same form.
sub written
{
	my ($server, $condition) = @_;

	return split /\n/, $server->safe_psql('postgres',
		'SELECT name, seq FROM lease.event WHERE ' . ($condition // 'true') . ' ORDER BY name, seq') =~ s/\|/ /gr;
}

# all_once(PROGRAM, NODE, NAME, CONDITION) waits until the program has printed as many
# events as there are, and passes if it is each of them once, in its lease's order.
sub all_once
{
	my ($self, $server, $name, $condition) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @written = written($server, $condition);
	my %last;

	wait_for($self, sub { () = printed($self); printed($self) >= @written }, scalar(@written) . ' events');
	my @printed = printed($self);
	is_deeply([ sort @printed ], [ sort @written ], "$name: every event once");
	foreach my $event (@printed)
	{
		my ($lease, $seq) = split / /, $event;
		$last{$lease} //= $seq - 1;
		return fail("$name: $event after $last{$lease}") if $seq != ++$last{$lease};
	}
	return pass("$name: in the order of each lease");
}

# make_events(NODE, NAME, NUMBER, SETTING) acquires and releases a lease, two events
# for each of the NUMBER of times.
sub make_events
{
	my ($server, $name, $number, $setting) = @_;

	$server->safe_psql('postgres', ($setting // '')
		  . "SELECT lease.release('$name', epoch) FROM lease.acquire('$name', 'h');" x $number);
	return;
}

#----
# watch
#----

$node->safe_psql('postgres',
	q{SELECT lease.create('shard/' || i) FROM generate_series(1, 5) i; SELECT lease.create('other')});

# Without notifications it looks at intervals; what was there before does not count.
my $watch = follow($node, 'watch', '--json', '--interval=50ms');
wait_until($node,
	q{SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'pg_lease' AND state = 'idle' AND query = 'COMMIT'},
	'the program to look');
make_events($node, 'other', 2);
all_once($watch, $node, 'from now on', "(name, seq) IN (SELECT 'other', i FROM generate_series(2, 5) i)");
stop($watch, 'INT', 'SIGINT ends it with 0');
is($watch->{error}, '', '... without a word');

# With notifications it need not look at all.
$watch = follow($node, 'watch', '--json', '--interval=1h', '--since=0');
all_once($watch, $node, 'what was there before');
make_events($node, 'other', 1, 'SET lease.notify = on;');
all_once($watch, $node, 'notified');
$node->safe_psql('postgres', q{NOTIFY lease, '{"name": "forged", "seq": 9}'; NOTIFY lease, 'nonsense'});
make_events($node, 'L', 1, 'SET lease.notify = on;');
all_once($watch, $node, 'notified by forgers, too');
stop($watch, 'TERM', 'SIGTERM ends it with 0');

# Server restarts, crashes and terminated sessions while events are made.
$watch = follow($node, 'watch', '--json', '--interval=20ms', '--since=0');
my @others = map { follow($node, 'watch', '--json', '--interval=20ms', '--since={}', "shard/$_") } 1 .. 2;
foreach my $round (1 .. 3)
{
	make_events($node, "shard/$_", 3) foreach 1 .. 5;
	$node->safe_psql('postgres',
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pg_lease'");
	make_events($node, 'other', 2);
	$node->stop($round == 2 ? 'immediate' : 'fast');
	$node->start;
	make_events($node, "shard/$_", 3) foreach 1 .. 5;
	all_once($watch, $node, "round $round");
}
all_once($others[0], $node, 'of one lease', "name = 'shard/1'");
all_once($others[1], $node, 'of another', "name = 'shard/2'");
like($watch->{error}, qr/warning: connection lost: terminating connection due to administrator command\n.*connected again/s,
	'it says that the connection was lost, and why');
# (libpq itself prints what it is told right after a connection was made.)
unlike($_->{error}, qr/lost: FATAL/, '... in words of its own') foreach $watch, @others;
stop($_, 'INT', 'it ends with 0 after that') foreach $watch, @others;

# SIGINT while there is no server.
$watch = follow($node, 'watch', '--json', '--since=0');
until_printed($watch, qr/other/);
$node->stop;
until_said($watch, qr/no connection yet|connection lost/);
stop($watch, 'INT', 'SIGINT ends it where there is no server');
$node->start;

# It goes on from where another has stopped.
my $end = (written($node, "name = 'L'"))[-1] =~ s/.* //r;
make_events($node, 'L', 1);
make_events($node, 'other', 1);
my $other_end = (written($node, "name = 'other'"))[-1] =~ s/.* //r;
foreach my $since (
	[ [ "--since=$end", 'L' ], "name = 'L' AND seq > $end" ],
	[ [ "--since=L=$end", 'L' ], "name = 'L' AND seq > $end" ],
	[ [ "--since=L=$end", '--since=other=' . ($other_end - 1), 'L', 'other' ],
		"name = 'L' AND seq > $end OR name = 'other' AND seq = $other_end" ],
	[ [ "--since={\"L\": $end, \"other\": 0}", 'L', 'other' ],
		"name = 'L' AND seq > $end OR name = 'other'" ],
	[ [ "--since=L=$end", '--since={"shard/1": 3}' ],
		"NOT (name = 'L' AND seq <= $end OR name = 'shard/1' AND seq <= 3)" ])
{
	my ($arguments, $condition) = @$since;
	$watch = follow($node, 'watch', '--json', @$arguments);
	all_once($watch, $node, "watch @$arguments", $condition);
	stop($watch, 'INT', '... and ends');
}

# After a number that the history has not reached, as on another branch of it
$end = (written($node, "name = 'L'"))[-1] =~ s/.* //r;
my $beyond = $end + 1000;
$watch = follow($node, 'watch', '--json', '--interval=20ms', "--since={\"L\": $beyond, \"other\": $beyond}", 'L');
until_said($watch, qr/the history of lease "L" ends at number $end, but was known up to number $beyond/);
make_events($node, 'L', 1);
all_once($watch, $node, 'that is said, and what follows is printed', "name = 'L' AND seq > $end");
unlike($watch->{error}, qr/"other"/, '... of leases that are asked for');
stop($watch, 'INT', 'it ends');

# For people, with what may be in a name; a lease that comes later.
$watch = follow($node, 'watch', '--interval=20ms', 'later', "no\nlease");
until_said($watch, qr/there is no lease "later" yet/);
$node->safe_psql('postgres',
	q{SELECT lease.create('later'), lease.acquire('later', '50%s "x" \ ''y''')});
until_printed($watch, qr/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\+\d+  later #2  granted  epoch \d+  holder "50%s \\"x\\" \\\\ 'y'"  by "/m);
stop($watch, 'INT', 'it ends');

# Nobody reads any more: it ends by itself, before there is another event.
my ($out, $error);
IPC::Run::run(
	[ 'bash', '-c', 'pg_lease watch -d "$1" --since=0 --interval=1h | head -n 1; echo "${PIPESTATUS[0]}"',
		'bash', $node->connstr('postgres') ],
	'>', \$out, '2>', \$error, IPC::Run::timeout($PATIENCE));
like($out, qr/^\S+ \S+  \S+ #1  created .*\n0\n$/, 'a reader that has gone ends it with 0');
is($error, '', '... without a word');

# Another branch of history.
$watch = follow($node, 'watch', '--json', '--interval=20ms', '--since=0');
all_once($watch, $node, 'before the extension was made anew');
$node->safe_psql('postgres', q{
	SET client_min_messages = warning;
	BEGIN;
	DROP EXTENSION lease CASCADE;
	CREATE EXTENSION lease;
	SELECT lease.create('L'), lease.create('other');
	COMMIT;
	SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pg_lease'});
until_said($watch, qr/the history of lease "L" ends at number 1, but was known up to number \d+/);
until_said($watch, qr/the history of lease "shard\/1" ends at number 0/);
$watch->{out} = '';
make_events($node, 'L', 1);
all_once($watch, $node, 'on another branch', "name = 'L' AND seq > 1");
stop($watch, 'INT', 'it ends');

#----
# status --watch
#----

my $status = follow($node, 'status', '--watch=100ms', 'L');
until_printed($status, qr/leases of database "postgres".*\n\n.*\n.*\n L  +\| free .*leases of database/s);
$node->safe_psql('postgres', "SELECT lease.acquire('L', 'somebody')");
until_printed($status, qr/ L  +\| held .* somebody /);
unlike($status->{out}, qr/\033/, 'it leaves what is not a terminal alone');
$node->stop;
until_printed($status, qr/no connection since then:\n.*\S/);
until_said($status, qr/connection lost/);
$status->{out} = '';
$node->start;
until_printed($status, qr/ L  +\| held .* somebody /);
like($status->{error}, qr/connected again/, 'it goes on when the server is there again');
stop($status, 'INT', 'SIGINT ends it with 0');

$status = follow($node, 'status', '--watch=100ms', '--json');
until_printed($status, qr/(?:^\{.*"name" : "L".*\}\n(?:^\{.*\n)*){2}/m);
my @lines = split /\n/, $status->{out} =~ s/[^\n]*\z//r;
ok(!(grep { !eval { JSON::PP->new->decode($_) } } @lines), 'every line is an object of JSON');
stop($status, 'TERM', 'SIGTERM ends it with 0');

SKIP:
{
	skip 'IO::Pty is needed for a terminal', 3 unless eval { require IO::Pty; IO::Pty->new };
	my $screen = '';
	my $run = IPC::Run::start(
		[ 'pg_lease', 'status', '-d', $node->connstr('postgres'), '--watch=100ms' ],
		'<pty<', \my $keys, '>pty>', \$screen);
	my $terminal = { run => $run, error => '' };
	wait_for($terminal, sub { $screen =~ /somebody.*\033\[H\033\[2J.*somebody/s }, 'two pictures');
	like($screen, qr/\033\[H\033\[2J/, 'it redraws a terminal');
	$node->stop;
	wait_for($terminal, sub { $screen =~ /\033\[H\033\[2J\S*[^\033]*no connection since/ }, 'a picture of nothing');
	unlike($screen =~ s/.*\033\[H\033\[2J//sr, qr/somebody/, '... and leaves no old state on it');
	stop($terminal, 'INT', '... and ends with 0');
	$node->start;
}

#----
# On a standby
#----

$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('follow_standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
$watch = follow($standby, 'watch', '--json', '--interval=20ms', '--since=0');
make_events($node, 'other', 3);
$node->wait_for_catchup($standby);
all_once($watch, $standby, 'on a standby');
$standby->promote;
make_events($standby, 'other', 3);
all_once($watch, $standby, 'after its promotion');
stop($watch, 'INT', 'it ends');
$status = follow($standby, 'status', 'L');
$status->{run}->finish;
like($status->{out}, qr/ L  +\| held .* somebody /, 'status works there, too');

$standby->stop;
$node->stop;
done_testing();
