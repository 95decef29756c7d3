# "pg_lease run" over and over: nothing leaks, neither descriptors nor processes nor memory.
#
# First as it is built, then built with AddressSanitizer and UndefinedBehaviorSanitizer, where
# the compiler has them. LEASE_TEST_CYCLES says how often the command is started and ends
# in each of two programs, the second of which loses its connection each time.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use File::Copy qw(copy);
use File::Path qw(make_path);
use LeaseTest;
use PostgreSQL::Test::Utils;
use RunTest;
use Test::More;
use Time::HiRes ();

plan skip_all => 'Linux is needed' if $^O ne 'linux';

my $CYCLES = $ENV{LEASE_TEST_CYCLES} // 100;

# How many cycles come before the first look
my $WARM_UP = 10;

# KiB that memory may grow by, for an allocator that settles
my $SLACK = 512;

my $node = new_server('run_leaks', "log_min_messages = fatal\n");
my $dir = $PostgreSQL::Test::Utils::tmp_check;
my $connection = $node->connstr('postgres');

$ENV{PGHOST} = $node->host;
$ENV{PGPORT} = $node->port;
$ENV{PGDATABASE} = 'postgres';
$node->safe_psql('postgres', "SELECT lease.alter('L', ttl => '30 s')");

# look(PROGRAM) returns its descriptors, its children, and its memory in KiB.
sub look
{
	my ($run) = @_;
	my $pid = $run->pid;
	my @descriptors = glob "/proc/$pid/fd/*";
	my @children = split ' ', slurp_file("/proc/$pid/task/$pid/children");
	my ($memory) = slurp_file("/proc/$pid/status") =~ /^VmRSS:\s*(\d+)/m;

	return (scalar @descriptors, scalar @children, $memory);
}

# cycle(NAME, CYCLES, COMMAND) lets a program start a command again and again. The command waits at
# the first cycle after the warm-up, and at the last one, to be looked at. A sanitizer
# keeps memory for a while that is free, and tells itself at the end what is not.
sub cycle
{
	my ($name, $cycles, $command, $sanitized) = @_;
	my $file = "$dir/cycles_$name";
	my $last = $WARM_UP + $cycles;

	append_to_file($file, "0\n");
	my $run = program(
		$connection,
		[ '--lease=L', '--keep', '--restart-delay=0' ],
		script(
			"cycle_$name", <<"SCRIPT"));
read n < $file
echo \$((n + 1)) > $file
case \$((n + 1)) in
	$WARM_UP | $last) touch $file.there; while [ -e $file.there ]; do sleep 0.01; done ;;
esac
$command
SCRIPT
	my @looks;
	my $started = boot_clock();

	my $patience = boot_clock() + $PATIENCE + $cycles / 5;
	foreach my $look (1 .. 2)
	{
		until (-e "$file.there")
		{
			die 'only so many cycles: ' . contents($file) if boot_clock() > $patience;
			Time::HiRes::sleep(0.01);
		}
		$started = boot_clock() if $look == 1;
		push @looks, [ look($run) ];
		note sprintf('%d cycles in %.1f s', $cycles, boot_clock() - $started) if $look == 2;
		$run->signal('TERM') if $look == 2;
		unlink "$file.there";
	}
	like($run->exit_code, qr/^(?:0|143)$/, "$name: it goes on until it is told to end");
	is($looks[1]->[0], $looks[0]->[0], "$name: no descriptor has leaked");
	is($looks[1]->[1], $looks[0]->[1], "$name: no process is left over");
	cmp_ok($looks[1]->[2] - $looks[0]->[2], '<=', $SLACK, "$name: memory does not grow")
	  unless $sanitized;
	is(join(' ', grep { $run->count($_) } qw(guardian_failed lost not_released)),
		'', "$name: nothing went wrong");
	note "descriptors $looks[1]->[0], memory $looks[0]->[2] and $looks[1]->[2] KiB";
	return;
}

cycle('ends', $CYCLES, 'exit 0');
cycle('is_cut_off', $CYCLES / 10,
	q{psql -XAtqc "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%lease.renew(%' AND pid <> pg_backend_pid()" > /dev/null}
);

#----
# With sanitizers
#----

# build builds the program with sanitizers, and returns the directory it is in, nothing if
# that is not possible.
sub build
{
	my $place = "$dir/sanitized";
	my $top = "$FindBin::RealBin/../..";
	my $log = '';

	make_path("$place/src/bin");
	copy("$top/lease.control", $place);
	copy("$top/src/compiler.mk", "$place/src");
	foreach my $file (glob("$top/src/bin/*.[ch]"), "$top/src/bin/Makefile")
	{
		copy($file, "$place/src/bin") or die "copy: $!";
	}
	IPC::Run::run(
		[
			'make', '-s', '-C', "$place/src/bin", "PG_CONFIG=$ENV{PG_CONFIG}",
			'COPT=-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer'
		],
		'>', \$log, '2>&1') or note($log), return;
	return "$place/src/bin";
}

# reports returns what the sanitizers have found.
sub reports
{
	return join '', map { slurp_file($_) } glob "$dir/sanitizer.*";
}

SKIP:
{
	local %ENV = %ENV;
	delete @ENV{qw(MAKEFLAGS MAKELEVEL MFLAGS)};
	my $place = build();
	skip 'the compiler has no sanitizers', 1 unless defined $place;

	$ENV{PATH} = "$place:$ENV{PATH}";
	$ENV{ASAN_OPTIONS} = "log_path=$dir/sanitizer:exitcode=99:detect_leaks=1";
	$ENV{UBSAN_OPTIONS} = "log_path=$dir/sanitizer:exitcode=99:print_stacktrace=1";
	my $proxy = proxy($node);

	# The whole life
	foreach my $turn (1 .. 5)
	{
		is(program($connection, ['--lease=L'], 'bash', '-c', 'exit 3')->exit_code,
			3, 'sanitized: a command that ends');
	}
	is( program($connection, [ '--lease=L', '--ttl=1h' ], "$dir/nothing")->exit_code,
		127, 'sanitized: a command that is not there');
	is(program($connection, ['--lease=unknown'], 'true')->exit_code,
		70, 'sanitized: no such lease');
	is(program('host=127.0.0.1,localhost port=1', [ '--lease=L', '--wait=1s' ], 'true')->exit_code,
		69, 'sanitized: no server');
	my $run = program($connection, [ '--lease=L', '--ttl=5s' ], 'sleep', 1000);
	$run->wait_for('started');
	is(program($connection, [ '--lease=L', '--no-wait' ], 'true')->exit_code,
		75, 'sanitized: not acquired');
	my $second = program($connection, ['--lease=L'], 'true');
	wait_until($node, 'SELECT count(*) = 1 FROM lease.candidate', 'a candidate');
	$second->signal('TERM');
	is($second->exit_code, 143, 'sanitized: a candidate that is told to end');
	$run->signal('TERM');
	is($run->exit_code, 143, 'sanitized: told to end');

	$run = program($proxy->connstr, [ '--lease=L', '--ttl=5s' ], 'sleep', 1000);
	$run->wait_for('renewed');
	$proxy->tell('swallow 1 lease.renew(');
	$run->wait_for('renewal_recovered');
	$proxy->tell('hole');
	is($run->exit_code, 76, 'sanitized: cut off');
	$proxy->tell('pass');
	$node->safe_psql('postgres', "SELECT lease.revoke('L')");
	$proxy->tell('swallow 1 lease.acquire(');
	is(program($proxy->connstr, [ '--lease=L', '--no-wait' ], 'true')->exit_code,
		0, 'sanitized: a lost answer');
	$run = program($connection, [ '--lease=L', '--ttl=5s' ], 'bash', '-c', 'echo up; sleep 1000');
	await_that(sub { $run->output =~ /up/ }, 'the command to be executed');
	kill 'KILL', $run->guardian;
	is($run->exit_code, 137, 'sanitized: the guardian is killed');

	cycle('sanitized', $CYCLES, 'exit 0', 1);
	is(reports(), '', 'the sanitizers have found nothing');
}

done_testing();
