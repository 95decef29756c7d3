# "pg_lease run": what the command finds, what comes of its end, and of being told to
# end.  G2, G4.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use IPC::Run ();
use LeaseTest;
use POSIX ();
use PostgreSQL::Test::Utils;
use RunTest;
use Test::More;
use Time::HiRes;

my $node = new_server('run');
my $connection = $node->connstr('postgres');
my $dir = $PostgreSQL::Test::Utils::tmp_check;

# To where the commands connect
local $ENV{PGHOST} = $node->host;
local $ENV{PGPORT} = $node->port;
local $ENV{PGDATABASE} = 'postgres';

$node->safe_psql('postgres', "SELECT lease.alter('L', ttl => '15 s')");

# run(OPTIONS, COMMAND) starts the program for the lease L.
sub run
{
	my ($options, @command) = @_;

	return program($connection, [ '--lease=L', @$options ], @command);
}

# state_of_lease returns the state of the lease.
sub state_of_lease
{
	return $node->safe_psql('postgres',
		"SELECT state || coalesce(' ' || last_end, '') FROM lease.status WHERE name = 'L'");
}

# events_of_lease(AFTER) returns the kinds of the events of the lease, after one.
sub events_of_lease
{
	my ($after) = @_;

	return $node->safe_psql('postgres',
		"SELECT string_agg(kind, ' ' ORDER BY seq) FROM lease.event WHERE name = 'L' AND seq > $after");
}

# last_event returns the number of the latest event.
sub last_event
{
	return $node->safe_psql('postgres', "SELECT events FROM lease.status WHERE name = 'L'");
}

#----
# The command and its environment
#----

my $write = "INSERT INTO work (who) VALUES ('command')";
my $run = run([ '--holder=me' ], 'bash', '-c',
	qq(echo "\$LEASE_NAME \$LEASE_EPOCH \$LEASE_HOLDER"; psql -Xqc "$write"; exit 3));
is($run->exit_code, 3, 'the exit code is that of the command');
like($run->output, qr/^L \d+ me$/m, 'the command finds lease, epoch and holder');
is($node->safe_psql('postgres', "SELECT count(*) FROM work WHERE who = 'command'"),
	1, 'psql writes to a protected table without a change');
is(state_of_lease(), 'free released', 'the lease is released after the command');
is($run->count('acquired'), 1, 'one line tells that it was acquired');

# What was in PGOPTIONS stays, and a run inside of a run has both tokens.
$node->safe_psql(
	'postgres', q{
	SELECT lease.create('other/x:1', ttl => '15 s');
	CREATE TABLE pair (id int);
	SELECT lease.protect('pair', 'other/x:1');
});
{
	local $ENV{PGOPTIONS} = '-c  work_mem=77MB -c application_name=a\ b --lease.token=L=1';
	$run = run(
		[], 'pg_lease', 'run', '-d', $connection, '--lease=other/x:1', '--', 'bash', '-c',
		q(psql -XAtqc "INSERT INTO pair VALUES (1)" -c "INSERT INTO work (who) VALUES ('pair')" -c "SHOW work_mem" -c "SHOW application_name"; echo "$PGOPTIONS")
	);
	is($run->exit_code, 0, 'a run inside of a run');
	like($run->output, qr/^77MB$/m, 'PGOPTIONS is kept');
	like($run->output, qr/^-c  work_mem=77MB -c application_name=a\\ b --lease/m,
		'as it was');
	is( $node->safe_psql('postgres',
			"SELECT (SELECT count(*) FROM pair), (SELECT count(*) FROM work WHERE who = 'pair')"),
		'1|1',
		'connections carry the tokens of both leases');
	$ENV{PGOPTIONS} = '-c search_path=x\\';
	$run = run([], 'psql', '-XAtqc', 'SHOW lease.token', '-c', 'SHOW search_path');
	is($run->exit_code, 0, 'PGOPTIONS that end with a backslash');
	like($run->output, qr/^L=\d+\nx$/, 'take the token all the same');
	$run = run([ '--no-token' ], 'bash', '-c', 'echo "$PGOPTIONS"');
	is($run->exit_code, 0, '--no-token');
	is($run->output, "$ENV{PGOPTIONS}\n", 'leaves PGOPTIONS as it was');
}

# However short the wait, a lease that is free is acquired.
is(run([ "--wait=$_" ], 'true')->exit_code, 0, "a lease that is free, with --wait=$_")
  foreach '1us', '0';

# Signals are as at the start, and nothing of ours is open.
my @look = ('bash', '-c', 'grep -E "Sig(Ign|Blk)" /proc/$$/status; ls /proc/$$/fd');
my ($as_here) = run_command(\@look);
{
	local $SIG{HUP} = 'IGNORE';
	my ($ignoring) = run_command(\@look);
	isnt($ignoring, $as_here, 'a signal that is ignored shows');
	$run = run([], @look);
	is($run->exit_code, 0, 'a look at the command');
	is($run->output, "$ignoring\n", 'it finds signals and descriptors as if started directly');
}

#----
# Exit codes
#----

is(run([], 'bash', '-c', 'kill -KILL $$')->exit_code,
	137, 'a command that dies of a signal: 128 and its number');
is(run([], "$dir/nothing")->exit_code, 127, 'a command that is not there: 127');
append_to_file("$dir/not_executable", '');
is(run([], "$dir/not_executable")->exit_code, 126, 'one that cannot be executed: 126');
is(program($connection, ['--lease=unknown'], 'true')->exit_code,
	70, 'an error of the server: 70');
is(program("$connection dbname=nothing", ['--lease=L'], 'true')->exit_code,
	69, 'no such database: 69, at once');
is(program('host=127.0.0.1 port=1', [ '--lease=L', '--no-wait' ], 'true')->exit_code,
	69, 'no server, without waiting: 69');
is( program('host=127.0.0.1 port=1', [ '--lease=L', '--wait=300ms' ], 'true')->exit_code,
	69, 'no server in time: 69');

# Each host of a list is tried by itself; an empty one is the default.
$run = program('host=127.0.0.1,,127.0.0.1 port=1', [ '--lease=L', '--no-wait' ], 'true');
is($run->exit_code, 69, 'a list of hosts with an empty one');
my @failures = map { $_->{message} } grep { $_->{event} eq 'connection_failed' } $run->events;
is(scalar @failures, 2, 'the third attempt fails like the first, which is not news');
unlike($failures[1], qr/127\.0\.0\.1/, 'the second is with the default');

foreach my $wrong (
	[],
	[ '--lease=L' ],
	[ '--lease=L', '--ttl=999ms', 'true' ],
	[ '--lease=L', '--once', '--keep', 'true' ],
	[ '--lease=L', '--ttl=3x', 'true' ],
	[ '--lease=L', '--ttl=10', '--grace-stop=4', 'true' ],
	[ '--lease=L', '--wait=1', '--no-wait', 'true' ],
	[ '--lease=L', '--log-format=xml', 'true' ],
	[ '--lease=L', '--priority=1x', 'true' ],
	[ '--lease=L', '--holder=', 'true' ],
	[ '--lease=L', '-d', 'sslmode=nothing', 'true' ],
	[ '--lease=L', '-d', 'host=x port=y', 'true' ],
	[ '--lease=L', '-d', 'target_session_attrs=nothing', 'true' ],
	[ '--lease=L', '--nothing', 'true' ])
{
	my ($stdout, $stderr) = ('', '');
	IPC::Run::run([ 'pg_lease', 'run', @$wrong ], '>', \$stdout, '2>', \$stderr);
	is($? >> 8, 64, "wrong usage: run @$wrong");
	like($stderr, qr/--help/, 'with a hint');
}

# What the machine does not have is no fault of the command line.
my ($stdout, $stderr) = ('', '');
IPC::Run::run([ 'bash', '-c', 'ulimit -n 4; exec pg_lease run --lease=L true' ],
	'>', \$stdout, '2>', \$stderr);
is($? >> 8, 71, 'no pipe can be made: 71');
like($stderr, qr/could not create a pipe/, '... as is said');
SKIP:
{
	my @elsewhere = ('unshare', '--user', '--map-root-user', '--pid', '--fork');

	skip 'no pid namespace can be made', 2
	  unless eval { IPC::Run::run([ @elsewhere, 'true' ], '>&', \my $none) };
	IPC::Run::run([ @elsewhere, 'pg_lease', 'run', '--lease=L', 'true' ],
		'>', \$stdout, '2>', \$stderr);
	is($? >> 8, 71, '/proc is that of another pid namespace: 71');
	unlike($stderr, qr/--help/, '... without a hint');
}

#----
# Waiting
#----

my $leader = run([], 'sleep', '1000');
$leader->wait_for('started');
is(run([ '--no-wait' ], 'true')->exit_code, 75, 'not acquired without waiting: 75');
is(run([ '--wait=200ms' ], 'true')->exit_code, 75, 'not acquired in time: 75');
is(run([ "--wait=$_" ], 'true')->exit_code, 75, "not in $_, either: 75") foreach '1us', '0';
my $second = run([], 'bash', '-c', 'echo $LEASE_EPOCH');
wait_until($node, "SELECT count(*) = 1 FROM lease.candidate WHERE name = 'L'",
	'the second one to wait in line');

# To be told to end while waiting leaves nothing behind.
my $third = run([], 'true');
wait_until($node, "SELECT count(*) = 2 FROM lease.candidate WHERE name = 'L'",
	'the third one to wait in line');
$third->signal('TERM');
is($third->exit_code, 143, 'a candidate that is told to end');

#----
# Being told to end
#----

$leader->signal('TERM');
is($leader->exit_code, 143, 'SIGTERM is handed on, and the exit code is that of the command');
is($second->exit_code, 0, 'who waits in line is next');
my $old = $leader->last_of('started')->{epoch};
cmp_ok($second->output, '>', $old, 'under a greater epoch');

# The lease is released when the last process of the group is gone, and renewed until then.
my $stubborn = script('stubborn', <<'SCRIPT');
trap 'echo told' TERM INT
echo $$ > $1
(trap '' TERM INT; echo $BASHPID >> $1; while :; do sleep 0.1; done) &
while :; do sleep 0.1; done
SCRIPT
$run = run([ '--ttl=6s', '--grace-stop=2s' ], $stubborn, "$dir/stubborn");
my @pids = pids_in("$dir/stubborn", 2);
my $before = boot_clock();
$run->signal('INT');
await_that(sub { $run->output =~ /told/ }, 'the command to be told');
is(state_of_lease(), 'held', 'the lease is held while the command ends');
is($run->exit_code, 137, 'it had to be killed');
cmp_ok(boot_clock() - $before, '>=', 2, 'after the grace');
is(join(' ', alive(@pids)), '', 'nothing of it is left');
is(state_of_lease(), 'free released', 'then the lease was released');

# Told twice: at once
$run = run([ '--ttl=60s', '--grace-stop=20s' ], $stubborn, "$dir/stubborn2");
@pids = pids_in("$dir/stubborn2", 2);
$before = boot_clock();
$run->signal('TERM');
await_that(sub { $run->output =~ /told/ }, 'the command to be told');
Time::HiRes::sleep(0.3);    # a second signal that comes sooner is taken for the first
$run->signal('TERM');
is($run->exit_code, 137, 'told twice, it is killed');
cmp_ok(boot_clock() - $before, '<', 15, 'at once');
is(join(' ', alive(@pids)), '', 'with all that it has started');

# Other signals
$run = run([], 'bash', '-c', 'trap "echo usr1; exit 5" USR1; echo ready; while :; do sleep 0.1; done');
await_that(sub { $run->output =~ /ready/ }, 'the command to be ready');
$run->signal('USR1');
is($run->exit_code, 5, 'SIGUSR1 is handed on');

# What somebody has stopped is not resumed by it.
$run = run([], 'bash', '-c', 'trap "echo usr1" USR1; kill -STOP $$; echo resumed; sleep 1000');
my ($stopped) = $run->wait_for('started')->{message} =~ /process (\d+)/;
$run->wait_for('stopped');
$run->signal('USR1');
await_that(
	sub {
		my ($pending) = contents("/proc/$stopped/status") =~ /^ShdPnd:\s*(\w+)/m;
		return $run->output ne '' || hex($pending // '0') & 1 << POSIX::SIGUSR1() - 1;
	},
	'SIGUSR1 to be handed on');
is($run->output, '', 'to a command that has been stopped, which stays so');
$run->signal('TERM');
is($run->exit_code, 143, 'until it is told to end');

#----
# What a command leaves behind
#----

$run = run(
	[ '--ttl=60s', '--grace-stop=300ms' ],
	script(
		'leaver', <<'SCRIPT'), "$dir/left");
(trap '' TERM; echo $BASHPID >> $1; while :; do sleep 0.1; done) &
setsid bash -c 'echo $$ >> $0; trap "" TERM; setsid bash -c "trap \"\" TERM; echo \$\$ >> $0; while :; do sleep 0.1; done" & while :; do sleep 0.1; done' $1 &
setsid bash -c 'trap "echo goodbye; exit" TERM; echo $$ >> $0; while :; do sleep 0.1; done' $1 &
while [ $(wc -l < $1) -lt 4 ]; do sleep 0.01; done
exit 7
SCRIPT
@pids = pids_in("$dir/left", 4);
is($run->exit_code, 7, 'a command that leaves processes behind');
is(join(' ', alive(@pids)), '', 'they are gone, also those of other sessions');
like($run->output, qr/goodbye/, 'having been asked to end first');
is(state_of_lease(), 'free released', 'then the lease was released');

#----
# Losing the lease, and handing it over
#----

$run = run([ '--ttl=3s' ], $stubborn, "$dir/revoked");
@pids = pids_in("$dir/revoked", 2);
my $epoch = $run->last_of('started')->{epoch};
$node->safe_psql('postgres', "SELECT lease.revoke('L', 'test')");
is($run->exit_code, 76, 'revoked: the lease was lost');
like($run->output, qr/told/, 'the command was asked to end');
is(join(' ', alive(@pids)), '', 'and killed');
like($run->last_of('lost')->{message}, qr/revoked/, 'the log says why');

# The lease itself has a longer ttl.
$run = run([ '--ttl=10s' ], 'sleep', 1000);
$run->wait_for('started');
$node->safe_psql('postgres', "SELECT lease.request_handover('L', 'successor', 'test')");
is($run->exit_code, 76, 'asked to step down: the lease is given up');
is( $node->safe_psql('postgres',
		"SELECT state, successor, available_at < now() + '10 s' FROM lease.status WHERE name = 'L'"),
	'reserved|successor|t',
	'in favour of the successor, for the ttl of the grant');
$node->safe_psql('postgres', "SELECT lease.revoke('L')");

#----
# Campaigning again
#----

# After the end of the command, and after a loss, each time under a greater epoch
my $from = last_event();
$run = run([ '--keep', '--ttl=2s', '--restart-delay=0' ],
	'bash', '-c', qq(echo \$LEASE_EPOCH; [ "\$(grep -c . $dir/turns)" = 2 ] && exec sleep 1000; echo turn >> $dir/turns));
await_that(sub { $run->count('started') >= 3 }, 'the command to be started again and again');
$node->safe_psql('postgres', "SELECT lease.revoke('L', 'test')");
await_that(sub { $run->count('started') >= 4 }, 'and after a loss');
my @epochs = $run->output =~ /(\d+)/g;
await_that(sub { (@epochs = $run->output =~ /(\d+)/g) >= 4 }, 'its output');
is("@epochs", join(' ', sort { $a <=> $b } @epochs), 'epochs increase');
my %generations = map { $_->{generation} => 1 } grep { $_->{event} eq 'started' } $run->events;
is(scalar keys %generations, 4, 'each candidacy has a generation of its own');
$run->signal('TERM');
is($run->exit_code, 143, 'until it is told to end');
is( events_of_lease($from),
	'granted released granted released granted revoked granted released',
	'the history shows just that');

# A command that fails at once is not started over and over.
foreach my $case ([ '100ms', 0.4 ], [ '0', 0.2 ])
{
	my ($delay, $third) = @$case;

	$run = run([ '--keep', "--restart-delay=$delay" ], 'false');
	await_that(sub { $run->count('started') >= 4 }, 'the command to be started again');
	my @starts =
	  map { $_->{time} =~ /:([\d.]+)Z/ } grep { $_->{event} eq 'started' } $run->events;
	my @pauses = map { my $p = $starts[$_] - $starts[ $_ - 1 ]; $p < 0 ? $p + 60 : $p } 1 .. 3;
	cmp_ok($pauses[2], '>=', $third, "with longer and longer pauses, the first being $delay");
	$run->signal('TERM');
	isnt($run->exit_code, 0, 'until it is told to end');
}

# What would have ended the first candidacy does not end a later one.
$node->safe_psql('postgres', "SELECT lease.create('passing')");
$run = program($connection, [ '--lease=passing', '--keep', '--restart-delay=2s' ], 'true');
$run->wait_for('released');
$node->safe_psql('postgres', "SELECT lease.drop('passing')");
like($run->wait_for('request_failed')->{message}, qr/LS005/, 'the lease has been dropped');
is($run->count('connection_failed'), 0, 'which says nothing of the connection');
$node->safe_psql('postgres', "SELECT lease.create('passing')");
$run->wait_for('released');
pass('when it is there again, the command runs again');
$run->signal('TERM');
$run->exit_code;

# A command that something else stops keeps the lease, and the log tells.
foreach my $signal ('STOP', 'TTIN')
{
	$run = program($connection, ['--lease=L'], 'bash', '-c', "kill -$signal \$\$; sleep 1000");
	$run->wait_for('stopped');
	if ($signal eq 'STOP')
	{
		like($run->last_of('stopped')->{message}, qr/stopped by signal 19$/,
			'a command that has been stopped');
	}
	else
	{
		like($run->last_of('stopped')->{message}, qr/stopped by signal 21: it has the terminal/,
			'a command that may not have the terminal');
	}
	is($node->safe_psql('postgres', "SELECT state FROM lease.status WHERE name = 'L'"),
		'held', '... holds the lease');
	$run->signal('TERM');
	is($run->exit_code, 143, '... and can be ended');
}

#----
# A terminal
#----

# at_terminal(TYPED, COMMAND) runs a command of the program at a terminal, types what is
# typed when the command says that it is ready, and returns the exit code and what was shown.
sub at_terminal
{
	my ($typed, $options, $command) = @_;
	my ($in, $out, $err) = ('', '', '');
	my $h = IPC::Run::start(
		[
			'pg_lease', 'run', '-d', $connection, '--lease=L', '--log-format=json',
			@$options, '--', 'bash', '-c', $command
		],
		'<pty<',
		\$in,
		'>pty>',
		\$out,
		'2>',
		\$err,
		IPC::Run::timer($PATIENCE));

	foreach my $keys (@$typed)
	{
		$h->pump until $out =~ /ready/;
		$out =~ s/ready//;
		$in .= $keys;
	}
	$h->pump while $h->pumpable;
	$h->finish;
	return (($? & 127) ? -($? & 127) : $? >> 8, $out, $err);
}

SKIP:
{
	skip 'IO::Pty is not installed, or there are no terminals', 1
	  unless eval { require IO::Pty; IO::Pty->new; 1 };

	my ($code, $out, $err) =
	  at_terminal(["hello\n"], [], 'echo ready; read line; echo "got $line"; exit 4');
	is($code, 4, 'a command at a terminal');
	like($out, qr/got hello/, 'reads from it');

	($code, $out, $err) = at_terminal(["\cC"], ['--keep'],
		'trap "echo interrupted; trap - INT; kill -INT \$\$" INT; echo ready; while :; do sleep 0.1; done');
	is($code, 130, 'a key of the terminal interrupts it, and then pg_lease, too');
	like($out, qr/interrupted/, 'the command has got it');
	unlike($err, qr/"event":"signal"/, 'pg_lease has not');
	like($err, qr/"event":"released"/, 'and has released the lease');

	($code, $out, $err) = at_terminal(["\cZ", "go\n"], [],
		'echo ready; sleep 1; echo ready; read line; echo "got $line"');
	is($code, 0, 'a leader can not be paused by a key of the terminal');
	like($out, qr/got go/, 'it goes on');

	# The terminal is ours again between two commands.
	($code, $out, $err) = at_terminal(["\n", "\n"],
		[ '--keep', '--restart-delay=0' ],
		"echo ready; read line; [ -e $dir/once ] && kill -INT \$\$; touch $dir/once");
	is($code, 130, 'the terminal is handed to one command after the other');
}

done_testing();
