# Holders that are stopped and wake up in the middle of their work.  G3, G7, O1, O2.
#
# First step by step: a client, and then a server process, is stopped by SIGSTOP in
# a fenced transaction; the grant runs out; somebody else takes over at once and
# works; the stopped one is continued, and its COMMIT is refused.
#
# Then at random: holders compete for a lease with very short grants, at each
# isolation level, while clients and server processes are stopped and continued at
# any moment, also inside a COMMIT.  The order in which transactions have committed
# is read from the log of the server: in it, epochs never decrease (O1), and none was
# granted twice (O2).
#
# LEASE_TEST_SEED repeats the choices of a run, as far as scheduling lets it.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use LeaseTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $RANDOM_SECONDS = 10;

plan skip_all => 'SIGSTOP is needed' if $windows_os;

my $node = new_server(
	'paused', q{
wal_level = logical
log_statement = none
max_replication_slots = 4
});

# Of what committed, in order
my $decoding = $node->psql('postgres',
	"SELECT pg_create_logical_replication_slot('order', 'test_decoding')") == 0;

#----
# Step by step
#----

my $a = session($node);
my $b = session($node, sql => 'SET lease.busy_timeout = 0');

# grant(SESSION, HOLDER, TTL) acquires as soon as it can, and returns the epoch.
sub grant
{
	my ($session, $holder, $ttl) = @_;
	my $until = time + $PATIENCE;

	while (time < $until)
	{
		my $epoch = $session->do(
			"SELECT epoch FROM lease.acquire('L', '$holder', ttl => '$ttl')");
		return $epoch if $epoch ne '';
		usleep(10_000);
	}
	die "$holder cannot have the lease";
}

# A client that is stopped between two statements
foreach my $level ('read committed', 'repeatable read', 'serializable')
{
	my $stale = grant($a, 'A', '400 ms');
	my $client = $a->client;
	$a->do("BEGIN ISOLATION LEVEL $level; SELECT lease.guard('L', $stale);"
		  . " INSERT INTO work (epoch, who) VALUES ($stale, 'A')");
	$a->pause;
	$a->ask('COMMIT');

	my $epoch = grant($b, 'B', '10 min');
	cmp_ok($epoch, '>', $stale, "$level: a stopped client is superseded");
	is( $b->query(
			"BEGIN; SELECT lease.guard('L', $epoch);"
			  . " INSERT INTO work (epoch, who) VALUES ($epoch, 'B'); COMMIT")
		  ->{error},
		'',
		'its successor works');

	$a->resume;
	refused($a->answer, 'LS001', 'when it is continued, its COMMIT is refused');
	refused($a->query("SELECT lease.guard('L', $stale)"),
		'LS001', 'and so is a new attempt');
	is($b->do("SELECT count(*) FROM work WHERE epoch = $stale"),
		'0', 'it has left nothing');
	$b->do("SELECT lease.release('L', $epoch)");
}

# A server process that is stopped, idle in transaction or in the middle of a statement
foreach my $what ('ClientRead', 'advisory')
{
	my $stale = grant($a, 'A', '400 ms');
	$a->do("BEGIN; SELECT lease.guard('L', $stale);"
		  . " INSERT INTO work (epoch, who) VALUES ($stale, 'A')");
	if ($what eq 'advisory')
	{
		$b->do('SELECT pg_advisory_lock(1)');
		$a->ask('SELECT pg_advisory_lock(1)');
	}
	wait_for_event($node, $a, $what);
	kill 'STOP', $a->backend or die "cannot stop the server process: $!";

	my $epoch = grant($b, 'B', '10 min');
	cmp_ok($epoch, '>', $stale,
		"a server process stopped in $what is superseded");
	is( $b->query(
			"BEGIN; SELECT lease.guard('L', $epoch);"
			  . " INSERT INTO work (epoch, who) VALUES ($epoch, 'B'); COMMIT")
		  ->{error},
		'',
		'its successor works');

	kill 'CONT', $a->backend or die "cannot continue the server process: $!";
	if ($what eq 'advisory')
	{
		$b->do('SELECT pg_advisory_unlock(1)');
		$a->answer;
	}
	refused($a->query('COMMIT'), 'LS001',
		'when it is continued, its COMMIT is refused');
	$b->do("SELECT lease.release('L', $epoch)");
}

# A grant that is over and was taken by nobody
my $stale = grant($a, 'A', '200 ms');
$a->do("BEGIN; SELECT lease.guard('L', $stale);"
	  . " INSERT INTO work (epoch, who) VALUES ($stale, 'A')");
$a->pause;
$a->ask('COMMIT');
wait_until($node, "SELECT state = 'expired' FROM lease.status",
	'the grant to be over');
$a->resume;
refused($a->answer, 'LS002', 'what expired is refused, even if nobody took it');

$_->quit foreach $a, $b;

#----
# At random
#----

my $seed = $ENV{LEASE_TEST_SEED} // int(rand(2**31));
srand $seed;
note "LEASE_TEST_SEED=$seed";

# script(HOLDER) is the life of a holder, for psql: far longer than it will live.
sub script
{
	my ($holder) = @_;
	my $script = '';

	foreach (1 .. 3000)
	{
		my $ttl = 20 + int(rand(60));
		# It may also fail: somebody who was stopped is too late for his own grant.
		$script .= "\\set mine false\n"
		  . "SELECT coalesce(epoch, 0) AS epoch, epoch IS NOT NULL AS mine"
		  . " FROM lease.acquire('L', '$holder', ttl => '$ttl ms') \\gset\n"
		  . "\\if :mine\n\\echo granted :epoch\n";
		foreach (0 .. int(rand(4)))
		{
			$script .= "BEGIN; SELECT lease.guard('L', :epoch) \\g /dev/null\n";
			$script .= "INSERT INTO work (epoch, who) VALUES (:epoch, '$holder');\n"
			  foreach 0 .. int(rand(2));
			$script .= sprintf("SELECT pg_sleep(%.3f) \\g /dev/null\n", rand(0.04))
			  if rand() < 0.3;
			$script .= "SELECT lease.renew('L', :epoch) \\g /dev/null\n"
			  if rand() < 0.2;
			$script .= "COMMIT;\n";
		}
		$script .= "SELECT lease.release('L', :epoch) \\g /dev/null\n"
		  if rand() < 0.3;
		$script .=
		  sprintf("\\else\nSELECT pg_sleep(%.3f) \\g /dev/null\n\\endif\n", rand(0.01));
	}
	return $script;
}

SKIP:
{
	skip 'test_decoding is not installed', 5 unless $decoding;
	commits_in_order($node, 'order', 'work');

	my @levels = ('read committed', 'repeatable read', 'serializable', 'read committed');
	my @holders;
	foreach my $i (0 .. $#levels)
	{
		my $session = session(
			$node,
			options => "-c default_transaction_isolation=" . $levels[$i] =~ s/ /\\ /gr);
		my $file = "$PostgreSQL::Test::Utils::tmp_check/holder_$i.sql";
		append_to_file($file, script("holder $i"));
		$session->client;
		$session->ask("\\i '$file'");
		push @holders, $session;
	}

	my %stopped;
	my $end = time + $RANDOM_SECONDS;
	while (time < $end)
	{
		# What they print has to go somewhere.
		$_->{run}->pump_nb foreach @holders;

		foreach my $process (keys %stopped)
		{
			next if time < $stopped{$process};
			kill 'CONT', $process;
			delete $stopped{$process};
		}
		if (rand() < 0.15)
		{
			my $holder = $holders[ int(rand(@holders)) ];
			my $process = rand() < 0.5 ? $holder->client : $holder->backend;
			unless ($stopped{$process})
			{
				kill 'STOP', $process;
				$stopped{$process} = time + rand(0.15);
			}
		}
		usleep(1_000 + int(rand(3_000)));
	}
	kill 'CONT', keys %stopped;

	my (@granted, %refusals);
	foreach my $holder (@holders)
	{
		kill 'TERM', $holder->client;
		eval { $holder->{run}->finish; };
		push @granted, $holder->{stdout} =~ /^granted (\d+)$/mg;
		$refusals{$_}++ foreach $holder->{stderr} =~ /ERROR:  (\w{5}):/g;
	}
	wait_until(
		$node,
		"SELECT count(*) = 0 FROM pg_stat_activity WHERE state <> 'idle'"
		  . " AND backend_type = 'client backend' AND pid <> pg_backend_pid()",
		'the holders to end');

	my @rows = commits_in_order($node, 'order', 'work');
	my ($last, $decreases, %epochs) = (0, 0);
	foreach my $row (@rows)
	{
		$decreases++, diag("$row->{epoch} after $last, by $row->{who}")
		  if $row->{epoch} < $last;
		$last = $row->{epoch};
		$epochs{$last} = 1;
	}
	note scalar(@rows) . ' rows under ' . keys(%epochs) . ' epochs, '
	  . @granted . ' grants; refused: '
	  . join(', ', map { "$_ $refusals{$_} times" } sort keys %refusals);
	is($decreases, 0, 'O1: in the order of commits, epochs do not decrease');
	my %twice;
	is(scalar(grep { $twice{$_}++ } @granted), 0, 'O2: no epoch was granted twice');

	# The run has to have been one in which that could have happened.
	cmp_ok(scalar(keys %epochs), '>', 20, 'rows were written under many epochs');
	ok($refusals{LS001} || $refusals{LS002}, 'stale transactions were refused');
	delete @refusals{qw(LS001 LS002 LS003 25P02)};
	is(join(' ', %refusals), '', 'and nothing else went wrong');
}

$node->stop;
done_testing();
