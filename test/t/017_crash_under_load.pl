# Crashes of the server at random moments under load.  G2, O2.
#
# Sixteen sessions acquire, reclaim, renew and release, one by one and in batches, in
# transactions that commit, that are rolled back, whole or to a savepoint, and that
# stay open; all ask for asynchronous commit, and nothing but what the extension itself
# flushes gets to disk.  In some rounds nothing is ever committed, or not even rolled
# back, so that nobody's COMMIT flushes what somebody else was told.  After a random
# number of epochs the server is stopped with "immediate", its postmaster is killed, of
# which its backends learn only later, or one of the backends is.  Then
#
#  - no epoch that a client was told, also in a transaction that the crash ended, is
#    told again, in this round or in any later one, and all are greater than those
#    before the crash, but not by as much as on another branch of history;
#  - every grant whose COMMIT was answered is there.
#
# LEASE_TEST_SEED repeats the choices of a run.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use IPC::Run ();
use LeaseTest;
use List::Util qw(max shuffle);
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $SESSIONS = 16;
my $STEPS = 1200;    # of a session, more than it gets to
my $SKIP = 2**32;    # of epochs, on another branch of history
my @SHARED = ('J', 'K', 'L', 'M');

# Only our own flushes: the WAL writer sleeps, and no checkpoint comes.
my $node = new_server(
	'crash_under_load', q{
synchronous_commit = off
wal_writer_delay = 10s
wal_writer_flush_after = 0
wal_buffers = 16MB
checkpoint_timeout = 1h
restart_after_crash = on
log_statement = none
});

$node->safe_psql(
	'postgres', q{
	CREATE TABLE history (name text, epoch bigint, holder text);
	SELECT lease.create(name, ttl => '20 ms') FROM unnest(ARRAY['J', 'K', 'M']) AS name;
	SELECT lease.alter('L', ttl => '100 ms');
} . "SELECT lease.create('S' || i, ttl => '10 min') FROM generate_series(1, $SESSIONS) AS i;
	SELECT lease.create('T' || i, ttl => '10 min') FROM generate_series(1, $SESSIONS) AS i;
	CHECKPOINT");

my $seed = $ENV{LEASE_TEST_SEED} // int(rand(2**31));
srand $seed;
note "LEASE_TEST_SEED=$seed";

# claim(HOLDER, END) acquires something, tells what came of it, and writes it down.
# "got" is a list of NAME=EPOCH, or "-".  A transaction that does not end gets too old
# for all but the session's own two leases.
sub claim
{
	my ($holder, $end) = @_;
	my $second = $holder =~ s/S/T/r;
	my @own = (
		"lease.acquire('$holder', '$holder', reclaim => true)",
		"lease.acquire_many(ARRAY['$holder', '$second'], '$holder', reclaim => true)");
	my $call = $end eq 'open' ? one_of(@own) : one_of(
		@own,
		"lease.acquire('" . one_of(@SHARED) . "', '$holder', reclaim => "
		  . one_of('true', 'false') . ')',
		"lease.acquire_many(ARRAY['$holder', 'J', 'L'], '$holder', reclaim => true)",
		"lease.acquire_many(ARRAY['K', 'M'], '$holder')");

	return "\\set got -\n"
	  . "SELECT coalesce(string_agg(name || '=' || epoch, ' ' ORDER BY epoch), '-') AS got"
	  . " FROM $call \\gset\n"
	  . "\\echo told :got\n"
	  . "INSERT INTO history SELECT split_part(g, '=', 1), split_part(g, '=', 2)::bigint, '$holder'"
	  . " FROM unnest(string_to_array(:'got', ' ')) AS g WHERE g <> '-';\n";
}

# step(HOLDER, END) is one transaction, for psql, or a piece of one that never ends.
sub step
{
	my ($holder, $end) = @_;
	my $claim = claim($holder, $end);
	my $other = one_of(
		'',
		'',
		"SELECT 1 FROM lease.renew('$holder', :mine) \\g /dev/null\n",
		"SELECT lease.release('$holder', :mine) \\g /dev/null\n",
		sprintf("SELECT pg_sleep(%.4f) \\g /dev/null\n", rand(0.01)));

	# What was claimed in a savepoint and is rolled back was told all the same.
	if ($end eq 'open' || rand() < 0.3)
	{
		$claim = "SAVEPOINT s;\n${claim}ROLLBACK TO s;\n\\set got -\n";
		$claim x= one_of(1, 3);
		return $claim if $end eq 'open';
		$claim .= claim($holder, $end) if rand() < 0.3;
	}
	return "BEGIN;\n${claim}${other}ROLLBACK;\n"
	  if $end eq 'rollback' || rand() < 0.3;

	# psql knows no error but that of the latest statement.
	return "\\set good false\nBEGIN;\n"
	  . $claim
	  . $other
	  . "SELECT epoch AS mine FROM lease.status WHERE name = '$holder' \\gset\n"
	  . "SELECT true AS good \\gset\n\\if :good\nCOMMIT;\n"
	  . "\\if :ERROR\n\\else\n\\echo committed :got\n\\endif\n\\else\nROLLBACK;\n\\endif\n";
}

# start_load(ROUND, END) starts the sessions and returns them.
sub start_load
{
	my ($round, $end) = @_;
	my @load;

	foreach my $i (1 .. $SESSIONS)
	{
		my $base = "$PostgreSQL::Test::Utils::tmp_check/round_${round}_$i";
		my @steps = map { step("S$i", $end) } 1 .. 60;
		append_to_file("$base.sql",
			"SET lease.busy_timeout = '50ms';\n\\set mine 0\n"
			  . ($end eq 'open' ? "BEGIN;\n" : '')
			  . join('', @steps) x ($STEPS / 60));
		push @load,
		  {
			out => "$base.out",
			run => IPC::Run::start(
				[
					'psql', '-XAtq', '-v', 'VERBOSITY=verbose', '-d',
					$node->connstr('postgres'), '-f', "$base.sql"
				],
				'<', \undef, '>', "$base.out", '2>', "$base.err")
		  };
	}
	return @load;
}

# start_again starts the server when what is left of it has gone.
sub start_again
{
	foreach (1 .. 10 * $PATIENCE)
	{
		return if $node->start(fail_ok => 1);
		$node->{_pid} = undef;
		usleep(100_000);
	}
	die 'the server does not start again';
}

# The ways to crash
my %crash = (
	'the server is stopped at once' => sub {
		$node->stop('immediate');
		return \&start_again;
	},
	'the postmaster is killed' => sub {
		$node->kill9;
		return \&start_again;
	},
	'a backend is killed' => sub {
		my ($monitor) = @_;
		my @backends = split /\n/, $monitor->do(
			"SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'"
			  . ' AND pid <> pg_backend_pid() ORDER BY pid');
		kill 'KILL', one_of(@backends) or die "cannot kill a backend: $!";
		return sub {
			$node->poll_query_until('postgres', 'SELECT true') or die 'no restart';
		};
	});

# How transactions end, but for those that the crash ends
my %end = (
	commit => 'transactions commit or roll back',
	rollback => 'transactions roll back',
	open => 'transactions never end');

my @rounds;
foreach my $way (sort keys %crash)
{
	push @rounds, { way => $way, end => $_ } foreach sort keys %end;
}
@rounds = shuffle(@rounds);

my %told;           # by epoch, in which round
my $highest = 0;    # of all that were told
my ($all_told, $all_committed) = (0, 0);

foreach my $number (1 .. @rounds)
{
	my $round = $rounds[ $number - 1 ];
	my $name = "round $number: $end{ $round->{end} }, $round->{way}";
	my $monitor = session($node);
	my $first = $monitor->do('SELECT last_value FROM lease.epoch');
	my $enough = $first + int(20 * 100**rand());
	my @load = start_load($number, $round->{end});

	# At a random number of epochs, the server crashes.
	my $drawn = $first;
	while ($drawn < $enough)
	{
		die "the sessions drew only $drawn of $enough epochs"
		  unless grep { $_->{run}->pumpable } @load;
		usleep(500);
		$drawn = $monitor->do('SELECT last_value FROM lease.epoch');
	}
	my $restart = $crash{ $round->{way} }->($monitor);
	foreach my $session (@load)
	{
		eval { $session->{run}->finish; };
	}
	$monitor->quit;
	$restart->();

	# What clients were told
	my (@again, @behind, @disordered, @committed);
	my $before = $highest;
	my $count = 0;
	foreach my $session (@load)
	{
		my $last = 0;
		foreach my $line (split /\n/, slurp_file($session->{out}))
		{
			my ($what, @grants) = split / /, $line;
			foreach my $grant (@grants)
			{
				my ($lease, $epoch) = $grant =~ /^(\w+)=(\d+)$/ or next;
				if ($what eq 'committed')
				{
					push @committed, "('$lease', $epoch)";
					next;
				}
				push @again, "$grant (round $told{$epoch})" if $told{$epoch};
				push @behind, $grant if $epoch <= $before;
				push @disordered, "$grant after $last" if $epoch <= $last;
				$told{$epoch} = $number;
				$last = $epoch;
				$highest = max($highest, $epoch);
				$count++;
			}
		}
	}
	$all_told += $count;
	$all_committed += @committed;
	note "$name: $count epochs from $before to $highest, "
	  . @committed . ' grants committed';

	is(join(', ', @again), '', "$name: no epoch was told twice");
	is(join(', ', @behind), '', 'all are greater than those before the last crash');
	is(join(', ', @disordered), '', 'and grow in each session');

	# What is there after the crash
	my $values = join ', ', @committed, "(NULL::text, NULL::bigint)";
	is( $node->safe_psql(
			'postgres',
			"WITH committed (name, epoch) AS (VALUES $values)"
			  . " SELECT string_agg(name || '=' || epoch, ' ') FROM committed"
			  . ' WHERE name IS NOT NULL AND NOT EXISTS (SELECT FROM history AS h'
			  . ' WHERE h.name = committed.name AND h.epoch = committed.epoch)'),
		'',
		'no grant that was acknowledged is lost');
	is( $node->safe_psql(
			'postgres',
			"WITH committed (name, epoch) AS (VALUES $values)"
			  . " SELECT string_agg(name || '=' || committed.epoch, ' ')"
			  . ' FROM committed JOIN lease.status AS s USING (name)'
			  . ' WHERE s.epoch < committed.epoch'),
		'',
		'and each lease has that of its latest one or of a later');
	is( $node->safe_psql(
			'postgres',
			'SELECT string_agg(s.name || s.epoch, \' \') FROM lease.status AS s'
			  . ' WHERE epoch > 0 AND NOT EXISTS (SELECT FROM history AS h'
			  . ' WHERE h.name = s.name AND h.epoch = s.epoch AND h.holder = s.holder)'),
		'',
		'with the holder and whatever else its transaction wrote');
	is( $node->safe_psql(
			'postgres',
			'SELECT count(*) - count(DISTINCT epoch) FROM history'),
		'0',
		'and none was granted twice');
}

my $next = $node->safe_psql('postgres', "SELECT epoch FROM lease.acquire('L', 'next')");
cmp_ok($next, '>', $highest, 'the last epoch of all is the greatest');
cmp_ok($next, '<', $SKIP, 'a crash is no fork');
cmp_ok($all_told, '>', 1000, 'there were epochs');
cmp_ok($all_committed, '>', 100, 'and grants');

$node->stop;
done_testing();
