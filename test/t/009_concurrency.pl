# Sixteen sessions that do everything at once.  G1, G2, G3, G9, O1, O2, O3.
#
# Acquire, renew, release, revoke, reclaim, alter, in batches and one by one, and
# fenced writes, at random on few leases with very short grants, at each isolation
# level and in savepoints; meanwhile the table of leases is vacuumed and its index is
# rebuilt.  Of errors there are only those that the contract names:
# no deadlock (40P01), no serialization failure (40001), nothing internal (XX000).
# From what they were told and from the order of commits, read from the server's log:
#
#  - O1: writes of one lease are in the order of their epochs;
#  - O2: no epoch was granted twice, and those of a lease grow;
#  - O3: no grant began while the one before it was live.
#
# LEASE_TEST_SEED repeats the choices of a run.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use LeaseTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $SECONDS = 10;
my $SESSIONS = 16;
my $PAUSE = 0.03;    # seconds, at most, in a transaction
my @LEASES = ('K', 'L', 'M');

my $node = new_server(
	'concurrency', q{
wal_level = logical
log_statement = none
log_min_messages = fatal
});

plan skip_all => 'test_decoding is not installed'
  if $node->psql('postgres',
	"SELECT pg_create_logical_replication_slot('order', 'test_decoding')") != 0;

# Grants are written down in the transaction that makes them, with what they were
# told; their end likewise, where somebody ends them.  Nobody but a transaction that
# holds the lease's fence lock writes there, so its order is that of the changes.
$node->safe_psql(
	'postgres', q{
	CREATE TABLE history (lease text, what text, epoch bigint, holder text,
		began timestamptz, ends timestamptz);
	CREATE TABLE jobs (lease text, epoch bigint, who text);
	SELECT lease.create('K', ttl => '50 ms'), lease.create('M', ttl => '50 ms', late_commit => true),
		lease.alter('L', ttl => '50 ms');
	SELECT lease.protect('jobs', 'K');
	CREATE TABLE jobs_l (LIKE jobs); SELECT lease.protect('jobs_l', 'L');
	CREATE TABLE jobs_m (LIKE jobs); SELECT lease.protect('jobs_m', 'M');
	ALTER TABLE jobs RENAME TO jobs_k;
});

my $seed = $ENV{LEASE_TEST_SEED} // int(rand(2**31));
srand $seed;
note "LEASE_TEST_SEED=$seed";

# step(HOLDER) is one thing that a session does, for psql.  The variable e_X is the
# epoch under which it last had lease X.
sub step
{
	my ($holder) = @_;
	my $lease = one_of(@LEASES);
	my $names = one_of("ARRAY['K', 'L', 'M']", "ARRAY['M', 'K']", "ARRAY['L', 'M']");
	my $level = one_of('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE');
	my $begin = "BEGIN ISOLATION LEVEL $level;\n";
	my $end = rand() < 0.1 ? "ROLLBACK;\n" : "COMMIT;\n";
	my $ttl = one_of('NULL', "'20 ms'", "'80 ms'", "'150 ms'");
	my $work = 'jobs_' . lc $lease;
	my $write = "INSERT INTO $work VALUES ('$lease', :e_$lease, '$holder');\n";
	my $savepoint = one_of(0, 0, 1);
	my $kind = rand();

	# acquire, and write down what was granted
	if ($kind < 0.4)
	{
		my $reclaim = rand() < 0.2 ? 'true' : 'false';
		return $begin
		  . ($savepoint ? "SAVEPOINT s;\n" : '')
		  . "SELECT coalesce(epoch, 0) AS e, epoch IS NOT NULL AS mine,"
		  . " acquired_at AS at, expires_at AS ends"
		  . " FROM lease.acquire('$lease', '$holder', $ttl, $reclaim) \\gset\n"
		  . "\\if :mine\nINSERT INTO history"
		  . " VALUES ('$lease', 'granted', :e, '$holder', :'at', :'ends');\n\\endif\n"
		  . ($savepoint ? one_of("RELEASE s;\n", "ROLLBACK TO s;\n") : '')
		  . $end
		  . "\\if :mine\n\\set e_$lease :e\n\\echo told $lease :e\n\\endif\n\\set mine false\n";
	}
	if ($kind < 0.45)
	{
		return $begin
		  . "INSERT INTO history SELECT name, 'granted', epoch, holder, acquired_at, expires_at"
		  . " FROM lease.acquire_many($names, '$holder', $ttl) WHERE epoch IS NOT NULL;\n"
		  . maybe_sleep($PAUSE)
		  . $end;
	}

	# renew; what was renewed ends later
	if ($kind < 0.55)
	{
		return $begin
		  . "INSERT INTO history SELECT name, 'renewed', epoch, holder, acquired_at, expires_at"
		  . " FROM lease.renew('$lease', :e_$lease, $ttl) WHERE epoch IS NOT NULL;\n"
		  . maybe_sleep($PAUSE)
		  . $end;
	}
	if ($kind < 0.6)
	{
		return $begin
		  . "INSERT INTO history SELECT name, 'renewed', epoch, holder, acquired_at, expires_at"
		  . " FROM lease.renew_many(ARRAY['M', 'K', 'L'], ARRAY[:e_M, :e_K, :e_L])"
		  . " WHERE epoch IS NOT NULL;\n"
		  . $end;
	}

	# end it
	if ($kind < 0.68)
	{
		return $begin
		  . "INSERT INTO history SELECT '$lease', 'ended', :e_$lease"
		  . " WHERE lease.release('$lease', :e_$lease);\n"
		  . maybe_sleep($PAUSE)
		  . $end;
	}
	if ($kind < 0.7)
	{
		return $begin
		  . "INSERT INTO history SELECT '$lease', 'ended', e"
		  . " FROM lease.revoke('$lease') AS e WHERE e IS NOT NULL;\n"
		  . $end;
	}
	if ($kind < 0.72)
	{
		return one_of("SELECT lease.alter('$lease', ttl => '60 ms') \\g /dev/null\n",
			"SELECT lease.alter('$lease', late_commit => " . one_of('true', 'false') . ") \\g /dev/null\n");
	}

	# write
	return $begin
	  . ($savepoint ? "SAVEPOINT s;\n" : '')
	  . "SELECT lease.guard('$lease', :e_$lease) \\g /dev/null\n"
	  . (rand() < 0.2
		? "INSERT INTO history SELECT name, 'renewed', epoch, holder, acquired_at, expires_at"
		  . " FROM lease.renew('$lease', :e_$lease, $ttl) WHERE epoch IS NOT NULL;\n"
		: '')
	  . $write
	  . ($savepoint ? one_of("RELEASE s;\n", "ROLLBACK TO s;\n") : '')
	  . maybe_sleep($PAUSE)
	  . (rand() < 0.2
		? "INSERT INTO history SELECT '$lease', 'ended', :e_$lease"
		  . " WHERE lease.release('$lease', :e_$lease);\n"
		: '')
	  . $end;
}

my @sessions;
foreach my $i (1 .. $SESSIONS)
{
	my $file = "$PostgreSQL::Test::Utils::tmp_check/session_$i.sql";
	append_to_file($file,
		"SET lease.busy_timeout = '" . one_of(0, 20, 200, 2000) . "ms';\n"
		  . join('', map { "\\set e_$_ 1\n" } @LEASES)
		  . "\\set mine false\n"
		  . join('', map { step("session $i") } 1 .. 4000));
	my $session = session($node);
	$session->client;
	$session->ask("\\i '$file'");
	push @sessions, $session;
}

# Maintenance, as an administrator does it
my $file = "$PostgreSQL::Test::Utils::tmp_check/maintenance.sql";
append_to_file($file,
	"VACUUM lease.lease;\nREINDEX INDEX CONCURRENTLY lease.lease_pkey;\n" x 1000);
push @sessions, session($node);
$sessions[-1]->client;
$sessions[-1]->ask("\\i '$file'");

my $end = time + $SECONDS;
while (time < $end)
{
	$_->{run}->pump_nb foreach @sessions;
	usleep(10_000);
}

my (%told, %errors);
foreach my $session (@sessions)
{
	kill 'TERM', $session->client;
	eval { $session->{run}->finish; };
	$told{"$1 $2"}++ while $session->{stdout} =~ /^told (\w+) (\d+)$/mg;
	$errors{$_}++ foreach $session->{stderr} =~ /(?:ERROR|FATAL|PANIC):  (\w{5}):/g;
	my ($warning) = $session->{stderr} =~ /WARNING:  (?!25P01)(.*)/;
	$errors{$warning}++ if defined $warning;
}
wait_until(
	$node,
	"SELECT count(*) = 0 FROM pg_stat_activity WHERE state <> 'idle'"
	  . " AND backend_type = 'client backend' AND pid <> pg_backend_pid()",
	'the sessions to end');
is( $node->safe_psql('postgres',
		"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid > 20000"),
	'0',
	'no lock of ours is left');

#----
# Errors
#----

note 'errors: ' . join(', ', map { "$_ $errors{$_} times" } sort keys %errors);
foreach my $state ('LS001', 'LS003')
{
	ok($errors{$state}, "there were refusals with $state");
}

# 25P02 and 3B001 follow from another error in the same transaction.
delete @errors{qw(LS001 LS002 LS003 LS006 25P02 3B001)};
is(join(', ', map { "$_ ($errors{$_})" } sort keys %errors),
	'', 'and no errors but those that the contract names');

#----
# Histories
#----

# One reading of the slot, in the order of commits
my @changes;
foreach my $line (split /\n/,
	$node->safe_psql('postgres',
		"SELECT data FROM pg_logical_slot_get_changes('order', NULL, NULL)"))
{
	if ($line =~
		/^table public\.jobs_\w: INSERT: lease\[text\]:'(\w)' epoch\[bigint\]:(\d+) /)
	{
		push @changes, { lease => $1, what => 'written', epoch => $2 };
	}
	elsif ($line =~
		/^table public\.history: INSERT: lease\[text\]:'(\w)' what\[text\]:'(\w+)' epoch\[bigint\]:(\d+)(.*)/
	  )
	{
		my %change = (lease => $1, what => $2, epoch => $3);
		@change{qw(holder began ends)} = $4 =~ /:'([^']+)'/g;
		push @changes, \%change;
	}
}

# The server's clock, in seconds
my %instants = map { $_ => 1 } grep { defined } map { @{$_}{qw(began ends)} } @changes;
my %seconds = map { split /\|/ } split /\n/,
  $node->safe_psql('postgres',
	"SELECT t, extract(epoch FROM t::timestamptz) FROM (VALUES "
	  . join(',', map { "('$_')" } sort keys %instants)
	  . ') AS v (t)');

my (%last, %granted, %live, @order, @repeats, @overlaps, %count);
foreach my $change (@changes)
{
	my ($lease, $what, $epoch) = @{$change}{qw(lease what epoch)};

	$count{$what}++;
	if ($what eq 'granted')
	{
		push @repeats, "$lease $epoch"
		  if $granted{$epoch}++ || $epoch <= ($last{$lease} // 0);

		# The images of an instant on the wall clock are true to a millisecond.  A
		# holder that reclaims supersedes itself.
		my $before = $live{$lease};
		push @overlaps, "$lease $epoch"
		  if $before
		  && $before->{holder} ne $change->{holder}
		  && $seconds{ $change->{began} } < $before->{ends} - 0.002;
		$live{$lease} = {
			epoch => $epoch,
			holder => $change->{holder},
			ends => $seconds{ $change->{ends} }
		};
		$last{$lease} = $epoch;
	}
	elsif ($what eq 'written')
	{
		push @order, "$lease $epoch after $last{$lease}" if $epoch < $last{$lease};
	}
	elsif ($live{$lease} && $live{$lease}{epoch} == $epoch)
	{
		delete $live{$lease}, next if $what eq 'ended';
		my $ends = $seconds{ $change->{ends} };
		$live{$lease}{ends} = $ends if $ends > $live{$lease}{ends};
	}
}
note join ', ', map { "$_ $count{$_} times" } sort keys %count;

is(join(', ', @order), '', 'O1: no write of an epoch follows a later grant');
is(join(', ', @repeats), '', 'O2: epochs grow, and none was granted twice');
is(join(', ', grep { $told{$_} > 1 } sort keys %told),
	'', 'O2: none was told twice, whatever became of its transaction');
is(join(', ', @overlaps), '', 'O3: no grant began while another was live');
cmp_ok($count{granted}, '>', 50, 'there were grants');
cmp_ok($count{written}, '>', 50, 'there were writes');
cmp_ok($count{ended} // 0, '>', 5, 'and grants that were ended');

$node->stop;
done_testing();
