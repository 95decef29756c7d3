# "pg_lease run" when it can not renew: the command, and all that it has started, is
# gone before the deadline, whoever is stopped, killed or cut off.  G1, G3.
#
# Deadlines are measured on the boot clock, by which pg_lease goes, too.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use LeaseTest;
use POSIX ();
use PostgreSQL::Test::Utils;
use RunTest;
use Test::More;

plan skip_all => 'Linux is needed' if $^O ne 'linux';

my $TTL = 5;

my $node = new_server('run_deadline');
my $dir = $PostgreSQL::Test::Utils::tmp_check;
my $proxy = proxy($node);
my $files = 0;

local $ENV{PGHOST} = $node->host;
local $ENV{PGPORT} = $node->port;
local $ENV{PGDATABASE} = 'postgres';

# A command that ignores SIGTERM, with a child, a grandchild, a great-grandchild and, in
# a session of its own, a child of that
my $tree = script('tree', <<'SCRIPT');
trap 'echo told >> $1.told' TERM
[ $2 = 4 ] || trap '' TERM
echo $$ >> $1
case $2 in
	0) ;;
	1) setsid $0 $1 0 & ;;
	*) $0 $1 $(($2 - 1)) & ;;
esac
while :; do sleep 0.1; done
SCRIPT

# start_tree(CONNECTION, OPTIONS) starts the program with such a command, and waits until
# all of it is there. Returns the program, the file, and the processes.
sub start_tree
{
	my ($connection, @options) = @_;
	my $file = "$dir/tree_" . ++$files;
	my $run = program($connection, [ '--lease=L', "--ttl=$TTL", @options ],
		$tree, $file, 4);

	return ($run, $file, pids_in($file, 5));
}

# gone(PIDS) waits until processes are gone, and returns when they were.
sub gone
{
	my (@pids) = @_;

	return await_that(sub { !alive(@pids) }, 'the command to be gone');
}

# gone_in_time(PROGRAM, PIDS, NAME) passes if processes are gone before the deadline.
sub gone_in_time
{
	my ($run, $pids, $name) = @_;
	my $when = gone(@$pids);
	my $left = $run->deadline - $when;

	cmp_ok($left, '>', 0, $name);
	note sprintf('%.3f s before the deadline', $left);
	return;
}

# seize(PID) traces a process, so that when it has been killed it is not gone for its parent
# before we have taken note, and returns whether that was possible.
sub seize
{
	my ($pid) = @_;
	my %ptrace = (x86_64 => 101, aarch64 => 117);
	my $ptrace_seize = 0x4206;
	my $number = $ptrace{ (POSIX::uname())[4] };

	return defined $number && syscall($number, $ptrace_seize, $pid + 0, 0, 0) == 0;
}

# free makes the lease free.
sub free
{
	$node->safe_psql('postgres', "SELECT lease.revoke('L')");
	return;
}

#----
# The network, and the server
#----

# A network that drops everything
my ($run, $file, @pids) = start_tree($proxy->connstr);
$run->wait_for('renewed');
$proxy->tell('hole');
gone_in_time($run, \@pids, 'cut off: the command is gone before the deadline');
like(contents("$file.told"), qr/told/, 'having been asked to end');
cmp_ok($run->count('renewal_failed'), '>=', 3, 'after several attempts to renew');
is($run->exit_code, 76, 'the lease was lost');
$proxy->tell('pass');
free();

# It comes back before the command has to end: nothing happens.
($run, $file, @pids) = start_tree($proxy->connstr);
my $from = $node->safe_psql('postgres', "SELECT events FROM lease.status WHERE name = 'L'");
$proxy->tell('hole');
$run->wait_for('renewal_failed');
$proxy->tell('pass');
$run->wait_for('renewal_recovered');
is(scalar alive(@pids), 5, 'cut off for a while: the command goes on');
is($node->safe_psql('postgres', "SELECT events FROM lease.status WHERE name = 'L'"),
	$from, 'and nobody has noticed');
$run->signal('KILL');
gone(@pids);
free();

# A server that hangs
($run, $file, @pids) = start_tree($node->connstr('postgres'));
$run->wait_for('renewed');
my $postmaster = slurp_file($node->data_dir . '/postmaster.pid');
$postmaster =~ s/\n.*//s;
my @server = ($postmaster,
	split /\n/, $node->safe_psql('postgres', 'SELECT pid FROM pg_stat_activity'));
kill 'STOP', @server;
gone_in_time($run, \@pids, 'a server that hangs: the command is gone before the deadline');
kill 'CONT', reverse @server;
is($run->exit_code, 76, 'the lease was lost');
free();

# A server on which nobody can connect, but those who are
($run, $file, @pids) = start_tree($node->connstr('postgres'));
kill 'STOP', $postmaster;
my $first = boot_clock();
await_that(sub { boot_clock() > $first + 1.5 * $TTL }, 'time to pass');
is(scalar alive(@pids), 5, 'a postmaster that hangs: renewals go on');
kill 'CONT', $postmaster;
$run->signal('KILL');
gone(@pids);
free();

#----
# Whoever is stopped or killed
#----

# A frozen machine: pg_lease and its guardian are stopped. Until somebody takes over, the
# command can write; from then on it is refused, and the group is gone within a second of
# waking.
my $writer = script('writer', <<'SCRIPT');
trap '' TERM
echo $$ > $1
while :; do
	psql -XAtq -v VERBOSITY=verbose -c "INSERT INTO work (who) VALUES ('writer')" >> $1.log 2>&1 && echo written >> $1.log
done
SCRIPT
$run = program($node->connstr('postgres'), [ '--lease=L', "--ttl=$TTL" ], $writer,
	"$dir/writer");
@pids = pids_in("$dir/writer", 1);
await_that(sub { contents("$dir/writer.log") =~ /written/ }, 'a write');
my $guardian = $run->guardian;
kill 'STOP', $run->pid, $guardian;
my $new = $node->safe_psql('postgres', "CALL lease.await('L', 'new', ttl => '10 min')");
my $rows = $node->safe_psql('postgres', 'SELECT count(*) FROM work');
my $offset = length contents("$dir/writer.log");
await_that(
	sub {
		my $log = substr contents("$dir/writer.log"), $offset;
		my @refused = $log =~ /LS001/g;
		return @refused >= 3;
	},
	'writes to be refused');
is($node->safe_psql('postgres', 'SELECT count(*) FROM work'),
	$rows, 'stopped: the command writes nothing after the takeover');
is(scalar alive(@pids), 1, 'though it runs');
my $woken = boot_clock();
kill 'CONT', $run->pid, $guardian;
cmp_ok(gone(@pids) - $woken, '<', 1, 'it is gone within a second of waking');
is($run->exit_code, 76, 'the lease was lost');
free();

# pg_lease alone is stopped: the guardian knows the deadline.
($run, $file, @pids) = start_tree($node->connstr('postgres'));
$run->wait_for('renewed');
$run->signal('STOP');
gone_in_time($run, \@pids, 'pg_lease stopped: the command is gone before the deadline');
like(contents("$file.told"), qr/told/, 'having been asked to end');
$run->signal('CONT');
is($run->exit_code, 76, 'the lease was lost');
free();

# pg_lease is killed.
($run, $file, @pids) = start_tree($node->connstr('postgres'));
my $killed = boot_clock();
$run->signal('KILL');
cmp_ok(gone(@pids) - $killed, '<', $TTL / 2, 'pg_lease killed: the command is gone at once');
is($run->exit_code, -9, 'so is pg_lease');
free();

# The guardian is killed.
($run, $file, @pids) = start_tree($node->connstr('postgres'));
$guardian = $run->guardian;
like(
	slurp_file("/proc/$guardian/cmdline"),
	qr/^lease_guardian\0*$/,
	'the guardian has a name of its own, which no pattern for pg_lease hits');
$killed = boot_clock();
kill 'KILL', $guardian;
cmp_ok(gone(@pids) - $killed, '<', $TTL / 2, 'guardian killed: the command is gone at once');
is($run->exit_code, 137, 'and has died of a signal');
is($node->safe_psql('postgres', "SELECT last_end FROM lease.status WHERE name = 'L'"),
	'released', 'the lease was released');

# What pg_lease had as a child before it was pg_lease is none of the command's.
{
	local $RunTest::Program::before = "sleep 1000 & echo \$! > $dir/before";
	($run, $file, @pids) = start_tree($node->connstr('postgres'));
	my @before = pids_in("$dir/before", 1);
	kill 'KILL', $run->guardian;
	gone(@pids);
	is($run->exit_code, 137, 'the guardian is killed');
	is(join(' ', alive(@before)), "@before", 'a child from before lives');
	kill 'KILL', @before;
}

# The guardian is stopped when it is needed.
($run, $file, @pids) = start_tree($proxy->connstr);
kill 'STOP', $run->guardian;
$proxy->tell('hole');
gone_in_time($run, \@pids, 'guardian stopped: the command is gone before the deadline');
is($run->exit_code, 76, 'the lease was lost');
$proxy->tell('pass');
free();

# It is stopped, and nothing else is wrong.
($run, $file, @pids) = start_tree($node->connstr('postgres'));
$run->wait_for('renewed');
my $stopped = boot_clock();
kill 'STOP', $run->guardian;
cmp_ok(gone(@pids) - $stopped, '<', 2 * $TTL, 'guardian stopped, unneeded: that is noticed');
is($run->exit_code, 137, 'the command was killed');
is($run->count('stopping'), 0, 'though not for want of renewals');
is($node->safe_psql('postgres', "SELECT last_end FROM lease.status WHERE name = 'L'"),
	'released', 'the lease was released');

# It has killed the command, but the kernel is not done with that for long.
SKIP:
{
	$run = program($node->connstr('postgres'),
		[ '--lease=L', "--ttl=$TTL", '--grace-stop=100ms' ], 'sleep', 1000);
	my $pid = $run->wait_for('started')->{message} =~ /process (\d+)/ ? $1 : die;
	if (!seize($pid))
	{
		$run->signal('TERM');
		$run->exit_code;
		skip 'processes cannot be traced', 5;
	}
	$run->signal('TERM');
	await_that(sub { !alive($pid) }, 'the command to be killed');
	my $renewals = $run->count('renewed');
	await_that(sub { $run->count('renewed') >= $renewals + 2 }, 'the lease to be renewed');
	ok(!$run->has_ended, 'killed, but not gone: the lease is held');
	is($run->count('guardian_failed'), 0, 'and nothing is wrong with the guardian');
	kill 'STOP', $run->guardian;
	$run->wait_for('guardian_failed');
	ok(!$run->has_ended, 'stopped now, it is replaced');
	waitpid $pid, 0;
	is($run->exit_code, 137, 'when it is gone, pg_lease ends');
	is($node->safe_psql('postgres', "SELECT last_end FROM lease.status WHERE name = 'L'"),
		'released', 'and has released the lease');
}

# After all that it can lead again.
($run, $file, @pids) = start_tree($proxy->connstr, '--keep');
my $epoch = $run->last_of('acquired')->{epoch};
$proxy->tell('hole');
gone_in_time($run, \@pids, 'cut off, to campaign again: gone before the deadline');
$proxy->tell('pass');
$run->wait_for('started');
cmp_ok($run->wait_for('started')->{epoch}, '>', $epoch, 'it leads again under a greater epoch');
is($run->count('acquired'), 2, 'once');
$run->signal('KILL');

done_testing();
