# Eight sessions that begin an occurrence at the instant at which it is due.  G5, G10.
#
# They ask 10 ms before, at, and 1 ms after that instant, from clients whose own clocks
# are wrong by minutes in either direction, as libfaketime makes them.  Only the server's
# clock decides: whoever asks before the instant is told that it is early, whatever its
# own clock says; of those that ask later exactly one is told that it has started, and
# the others that somebody has.  Which of the two a session is, is read from the server,
# in the same transaction, so that nothing here depends on how fast this machine is.
#
# Without libfaketime this is skipped, unless LEASE_ALL_DRIVERS is set.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use LeaseTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $ROUNDS = 24;

# Of each session: when it asks, in milliseconds after the instant; what its clock is
# ahead, in seconds; and where it believes to be.
my @SESSIONS = (
	[ -10, 600, 'Europe/Berlin' ],
	[ -10, -600, 'UTC' ],
	[ -10, 3600, 'America/New_York' ],
	[ 0, 180, 'UTC' ],
	[ 0, -180, 'Australia/Lord_Howe' ],
	[ 0, -3600, 'Europe/Berlin' ],
	[ 1, 60, 'UTC' ],
	[ 1, -60, 'Pacific/Apia' ]);

my $faketime = libfaketime();
if (!$faketime)
{
	die 'libfaketime is not installed' if $ENV{LEASE_ALL_DRIVERS};
	plan skip_all => 'libfaketime is not installed (Debian: libfaketime)';
}

my $node = new_server('occurrence_at_due', 'log_statement = none');
$node->safe_psql(
	'postgres', q{
	SELECT lease.create_task('t', 'L', every => '1 s', anchor => '2026-01-01 00:00:00.123457+00');
});
my $epoch = $node->safe_psql('postgres', "SELECT epoch FROM lease.acquire('L', 'A')");
my $admin = session($node);

# faked_session(AHEAD, ZONE) opens a session whose client's clock is ahead.
sub faked_session
{
	my ($ahead, $zone) = @_;
	local $ENV{LD_PRELOAD} = $faketime;
	local $ENV{FAKETIME} = sprintf '%+d', $ahead;
	local $ENV{FAKETIME_DONT_FAKE_MONOTONIC} = 1;
	local $ENV{DONT_FAKE_MONOTONIC} = 1;
	local $ENV{PGTZ} = $zone;

	return session($node);
}

my @sessions;
foreach my $i (0 .. $#SESSIONS)
{
	my (undef, $ahead, $zone) = @{ $SESSIONS[$i] };

	push @sessions, faked_session($ahead, $zone);
	my $off = $sessions[$i]->query('\! date +%s')->{rows} - time;
	cmp_ok(abs($off - $ahead), '<=', 20, "the clock of client $i is off by $ahead s, or so");
}

# asking(DUE_AT, AFTER) is, for psql, how a session asks at an instant.  It prints the
# outcome and instants of the server's clock, in microseconds: before it asked, of the
# transaction, after it was answered, and the one not before which it is to ask again.
sub asking
{
	my ($due_at, $after, $work) = @_;
	my $microseconds = '(extract(epoch FROM %s) * 1000000)::bigint';
	my $clock = sprintf $microseconds, 'clock_timestamp()';

	return "\\set due_at '$due_at'\n"
	  . "SELECT pg_sleep_until(timestamptz :'due_at' + interval '$after ms') \\g /dev/null\n"
	  . "SELECT $clock AS before \\gset\n"
	  . "BEGIN;\n"
	  . "SELECT outcome, outcome = 'started' AS started, coalesce(attempt, 0) AS attempt, coalesce("
	  . sprintf($microseconds, 'not_before')
	  . ', 0) AS not_before, '
	  . sprintf($microseconds, 'lease.transaction_time()')
	  . " AS now FROM lease.begin_occurrence('t', :'due_at', $epoch) \\gset\n"
	  . "\\if :started\n$work\\endif\n"
	  . "COMMIT;\n"
	  . "SELECT :'outcome', :before, :now, $clock, :not_before, :attempt;\n";
}

# In turn: it is begun; begun and done; and the transaction takes longer than others wait.
my $timeout = '20 ms';
my %WORK = (
	begun => '',
	done => "SELECT lease.finish_occurrence('t', :'due_at', :attempt, $epoch) \\g /dev/null\n",
	slow => "SELECT pg_sleep(0.1) \\g /dev/null\n");
my @in_turn = sort keys %WORK;
$_->do("SET lease.busy_timeout = '$timeout'") foreach @sessions;

my (@wrong, %count, @delays);
foreach my $round (1 .. $ROUNDS)
{
	my $way = $in_turn[ $round % @in_turn ];

	# Far enough away for all to get there, mostly
	my ($due_at, $due) = split /\|/,
	  $admin->do(
		"SELECT o AT TIME ZONE 'UTC' || '+00', (extract(epoch FROM o) * 1000000)::bigint"
		  . " FROM lease.occurrences(every => '1 s', anchor => (SELECT anchor FROM lease.task),"
		  . " after => clock_timestamp() + interval '200 ms', up_to => 1) AS o");
	my $work = $WORK{$way};

	# Who was early asks again, not before it was told to.
	foreach my $i (0 .. $#sessions)
	{
		$sessions[$i]->ask(asking($due_at, $SESSIONS[$i][0], $work)
			  . "SELECT :'outcome' = 'early' AS early \\gset\n\\if :early\n"
			  . asking($due_at, 0, $work)
			  . "\\endif\n;");
	}

	my @started;
	foreach my $i (0 .. $#sessions)
	{
		my $answer = $sessions[$i]->answer;
		my $context = "round $round ($way), session $i";
		my @answers = split /\n/, $answer->{rows};

		push @wrong, "$context: $answer->{error}" if $answer->{error} ne '';
		push @wrong, "$context: " . @answers . ' answers'
		  if @answers != ($answers[0] =~ /^early/ ? 2 : 1);
		foreach (@answers)
		{
			my ($outcome, $before, $now, $after, $not_before, $attempt) = split /\|/;

			$count{$outcome}++;
			push @wrong, "$context: now is not between before and after: $_"
			  if $now < $before || $now > $after;
			push @wrong, "$context: $_, due at $due"
			  if ($now < $due) != ($outcome eq 'early')
			  || $not_before != ($outcome eq 'early' ? $due : 0)
			  || $outcome !~ ($way eq 'done' ? qr/^(?:early|started|done|busy)$/ : qr/^(?:early|started|running|busy)$/);
			push @started, [ $now, $attempt ] if $outcome eq 'started';
		}
	}

	# What is written down is what was told, and once.
	push @wrong, "round $round: " . @started . ' were told that they have started' if @started != 1;
	my $attempts = $admin->do(
		'SELECT attempt, (extract(epoch FROM begun_at) * 1000000)::bigint, begun_at >= due_at'
		  . " FROM lease.occurrence_attempt WHERE due_at = '$due_at'");
	push @wrong, "round $round: $attempts"
	  if $attempts ne "1|$started[0][0]|t" || $started[0][1] != 1;
	push @delays, ($started[0][0] - $due) / 1000;
}

is(join("\n", @wrong), '', 'early before it is due; then one starts, and no other');
is($count{started}, $ROUNDS, "$ROUNDS occurrences were begun");
is($admin->do('SELECT count(*), max(attempts) FROM lease.occurrence'),
	"$ROUNDS|1", 'each once');
note join ', ', map { "$_ $count{$_} times" } sort keys %count;
note sprintf 'begun %.3f to %.3f ms after they were due', (sort { $a <=> $b } @delays)[ 0, -1 ];
cmp_ok($count{$_} // 0, '>', 0, "some were told: $_") foreach qw(early running done busy);

$_->quit foreach @sessions, $admin;
$node->stop;
done_testing();
