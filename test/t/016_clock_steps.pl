# Steps of the server's wall clock, and other boots.  G5, G6, G7, and with them G3.
#
# libfaketime is preloaded into a real server and shifts its wall clock by what a file
# says, while the server runs; CLOCK_BOOTTIME and CLOCK_MONOTONIC stay true.  Where the
# server has to believe that it runs on another boot, or that there is no boot clock,
# test/preload/boot.c is preloaded, too.
#
# What a grant ought to last is measured here, on this program's own monotonic clock,
# which no step reaches: it ends no earlier than "instant of sending + remaining", which
# is what a holder is told to rely upon, and no later than "instant of the answer + ttl".
# Whatever is asked before the one has to find it live, and whatever is asked after the
# other has to find it over, however slow this machine is.
#
# Without libfaketime this is skipped, unless LEASE_ALL_DRIVERS is set.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use LeaseTest;
use List::Util qw(max min);
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC usleep);

my $CLOCK_BOOTTIME = 7;    # on Linux
my $HOUR = 3600;
my $DAY = 24 * $HOUR;
my $TTL = 600;             # of the lease L, in seconds
my $SHORT = 1.2;           # of the lease S, which is left to expire
my $SLACK = 0.01;          # with which a server may know the start of a transaction
my $LATE = 1;              # how long after its time a grant may still be found live
                           # before we give up asking: it has failed by then

#----
# What is preloaded
#----

my $files = PostgreSQL::Test::Utils::tempdir();
my $faketime = libfaketime();
my $boot_library = "$files/boot.so";
my $wall = 0;              # what the wall clock is ahead, in seconds

# The environment of the server.  libfaketime also shifts the times of files, unless
# told otherwise; that is nothing that a step of the clock does, and would make the
# data directory look like a copy.  Versions differ in the name of the variable that
# leaves the other clocks alone.
#
# One thing it does not do: within a wait it gives the true time, and with that also to
# a signal handler that interrupts the wait.  That is where PostgreSQL looks whether a
# lock_timeout is over, so that no timeouts of the server can be tried here.
my %environment = (
	LD_PRELOAD => $faketime // '',
	FAKETIME_TIMESTAMP_FILE => "$files/wall",
	FAKETIME_NO_CACHE => 1,
	FAKETIME_DONT_FAKE_MONOTONIC => 1,
	DONT_FAKE_MONOTONIC => 1,
	NO_FAKE_STAT => 1);

# missing(REASON) skips all of this, or fails where everything has to be there.
sub missing
{
	my ($reason) = @_;

	plan(skip_all => $reason) unless $ENV{LEASE_ALL_DRIVERS};
	fail($reason);
	done_testing();
	exit 1;
}

# step(SECONDS) steps the wall clock of the server, from one instant to the next.
sub step
{
	my ($seconds) = @_;

	$wall += $seconds;
	append_to_file("$files/wall.new", sprintf("%+.6f\n", $wall));
	rename("$files/wall.new", "$files/wall") or die "cannot rename: $!";
	return;
}

# faked(CLOCK) returns what a process that has the server's environment reads.
sub faked
{
	my ($clock) = @_;
	local %ENV = (%ENV, %environment);

	# Without a shell in between, so that libfaketime cleans up after itself.
	open(my $process, '-|', $^X, '-MTime::HiRes=clock_gettime', '-e',
		"print clock_gettime($clock)")
	  or die "cannot run $^X: $!";
	my $reading = <$process>;
	close $process;
	return $reading;
}

missing('libfaketime is not installed (Debian: libfaketime)') unless $faketime;
step($HOUR);
foreach my $clock (CLOCK_MONOTONIC, $CLOCK_BOOTTIME)
{
	my $before = clock_gettime($clock);
	my $reading = faked($clock);

	missing("$faketime shifts CLOCK_BOOTTIME or CLOCK_MONOTONIC, too")
	  if $reading < $before - $SLACK || $reading > clock_gettime($clock) + $SLACK;
}
cmp_ok(faked(0), '>=', time + $HOUR - 1, 'the wall clock of the server can be stepped');
step(-$HOUR);

#----
# Grants, and when they have to end
#----

my %grant;    # by lease: epoch, and when it ends by our clock: not_before, not_after

sub monotonic
{
	return clock_gettime(CLOCK_MONOTONIC);
}

# told(SESSION, LEASE, CALL, TTL) makes a call that acquires or renews, and notes when
# the grant has to end; it returns the answer.
sub told
{
	my ($session, $lease, $call, $ttl) = @_;
	my $sent = monotonic();
	my $answer = $session->query(
		'SELECT outcome, epoch, extract(epoch FROM remaining),'
		  . ' extract(epoch FROM expires_at - clock_timestamp()) FROM '
		  . $call);
	my $answered = monotonic();

	@$answer{qw(outcome epoch remaining image)} = split /\|/, $answer->{rows};
	die "$call: $answer->{rows}$answer->{error}"
	  unless ($answer->{outcome} // '') =~ /^(?:granted|renewed)$/;
	die "$call took longer than its ttl" if $answered - $sent > $ttl;
	cmp_ok($answer->{remaining}, '<=', $ttl, "$call: no more is left than its ttl");
	cmp_ok($answer->{remaining} + $SLACK,
		'>=', $ttl - ($answered - $sent),
		'... and no less, but for the time of the call');
	cmp_ok(abs($answer->{image} - $answer->{remaining}),
		'<', 0.5, '... and expires_at says so on the wall clock');
	$grant{$lease} = {
		epoch => $answer->{epoch},
		not_before => max($sent + $answer->{remaining},
			$answer->{outcome} eq 'renewed' ? $grant{$lease}->{not_before} : 0),
		not_after => $answered + $ttl };
	return $answer;
}

sub acquire
{
	my ($session, $lease, $ttl) = @_;

	return told($session, $lease, "lease.acquire('$lease', 'A')", $ttl);
}

sub renew
{
	my ($session, $lease, $ttl) = @_;

	return told($session, $lease,
		"lease.renew('$lease', $grant{$lease}->{epoch})", $ttl);
}

# in_time(LEASE, REMAINING, SENT, ANSWERED, NAME) passes if what is said to remain leads
# to the end of the grant.
sub in_time
{
	my ($lease, $remaining, $sent, $answered, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return ok(
		$sent + $remaining <= $grant{$lease}->{not_after} + $SLACK
		  && $answered + $remaining >= $grant{$lease}->{not_before} - $SLACK,
		$name)
	  || diag("remaining: $remaining, asked in "
		  . ($answered - $sent)
		  . ' s; is to end in '
		  . join ' to ',
		map { $grant{$lease}->{$_} - $answered } qw(not_before not_after));
}

# stepped(ANSWER, SECONDS, NAME) passes if an answer warns of such a step; of none if
# SECONDS is undefined.
sub stepped
{
	my ($answer, $seconds, $name) = @_;
	my $warning = qr/^(?:psql:\S+ )?WARNING:  01000: /m;
	my ($said) = $answer->{error} =~
	  /${warning}the server's wall clock has been stepped by ([-+]\d+\.\d{3}) s /;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return is($answer->{error}, '', $name) unless defined $seconds;
	return ok(defined $said && abs($said - $seconds) < 0.5, $name)
	  || diag("warned of: " . ($said // 'nothing') . "; $answer->{error}");
}

# ends_in_time(NAME, QUESTIONS, EACH) asks until all answers are that it is over, each
# of which must not come before or after its time, and calls EACH before each round.  A
# question is: name, session, SQL, the answers while it is live, not before, not after.
sub ends_in_time
{
	my ($name, $questions, $each) = @_;
	my %wrong;
	my $live = 1;

	while ($live)
	{
		$live = 0;
		$each->() if $each;
		foreach my $question (@$questions)
		{
			my ($what, $session, $sql, $while_live, $not_before, $not_after) =
			  @$question;
			my $sent = monotonic();
			my $rows = $session->do($sql);
			my $answered = monotonic();

			if ($rows =~ /^(?:$while_live)$/)
			{
				$wrong{"$what: $rows after its time"} = 1
				  if $sent > $not_after + $SLACK;
				$live = 1 if $sent < $not_after + $LATE;
			}
			else
			{
				$wrong{"$what: $rows before its time"} = 1
				  if $answered < $not_before - $SLACK;
			}
		}
		usleep(5000) if $live;
	}
	return is_deeply([ sort keys %wrong ], [], "$name: ends in time");
}

# questions(LEASE, SESSION) makes the questions whether a grant is live.
sub questions
{
	my ($lease, $session) = @_;
	my ($epoch, @time) = @{ $grant{$lease} }{qw(epoch not_before not_after)};

	return (
		[ "$lease: holds", $session, "SELECT lease.holds('$lease', $epoch)", 't', @time ],
		[
			"$lease: remaining", $session,
			"SELECT lease.remaining('$lease', $epoch) > '0'", 't',
			@time
		],
		[
			"$lease: status",
			$session,
			"SELECT state FROM lease.status WHERE name = '$lease'",
			'held',
			@time
		],
		[
			"$lease: acquire",
			$session,
			"BEGIN; SELECT outcome FROM lease.acquire('$lease', 'B'); ROLLBACK",
			'held',
			@time
		]);
}

#----
# The server
#----

my $node;
{
	local %ENV = (%ENV, %environment);
	$node = new_server('clock_steps');
}
$node->safe_psql(
	'postgres', qq{
	CREATE TABLE short (who text);
	SELECT lease.create('S', ttl => '$SHORT s'), lease.protect('short', 'S'),
		lease.create('I', ttl => '$TTL s'),
		lease.create('reserved'), lease.create('min-hold', min_hold => '$SHORT s'),
		lease.create('grace', ttl => '1 s', grace => '1 s')});

# Five clients: one that holds L, one that would like to, one that idles in a
# transaction, and two that write.
my ($holder, $taker, $idler, @writers);

sub connect_all
{
	($holder, $taker, $idler, @writers) = map { session($node) } 1 .. 5;
	return;
}

# restart(SUB) stops the server, lets something happen, and starts it again.
sub restart
{
	my ($meanwhile) = @_;

	$_->quit foreach $holder, $taker, $idler, @writers;
	$node->stop;
	$meanwhile->();
	{
		local %ENV = (%ENV, %environment);
		$node->start;
	}
	connect_all();
	return;
}

connect_all();

#----
# A live grant survives
#----

# The epoch before the present one of L, under which nothing may be written.
my $stale = $holder->do("SELECT epoch FROM lease.acquire('L', 'A')");
acquire($holder, 'L', $TTL) if $holder->do("SELECT lease.release('L', $stale)");
my $written = 0;

# survives(NAME) passes if the grant of L is live, and nobody else's.
sub survives
{
	my ($name) = @_;
	my $epoch = $grant{L}->{epoch};
	my ($sent, $remaining);
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is($taker->do("SELECT lease.holds('L', $epoch)"), 't', "$name: the grant is live");
	is( $taker->do("SELECT outcome, epoch, holder FROM lease.acquire('L', 'B')"),
		'held||A',
		'... and refused to others');
	$sent = monotonic();
	$remaining =
	  $taker->do("SELECT extract(epoch FROM lease.remaining('L', $epoch))");
	in_time('L', $remaining, $sent, monotonic(), '... for as long as before');
	$sent = monotonic();
	my ($state, $of, $for, $end) = split /\|/,
	  $taker->do('SELECT state, epoch, extract(epoch FROM remaining), last_end'
		  . " FROM lease.status WHERE name = 'L'"), -1;
	is_deeply([ $state, $of, $end ], [ 'held', $epoch, '' ],
		'... and held in lease.status');
	in_time('L', $for, $sent, monotonic(), '... for as long');
	return;
}

# fenced(NAME) passes if only the holder of L writes.
sub fenced
{
	my ($name) = @_;
	my $insert = "INSERT INTO work (who) VALUES ('A')";
	my $writer = $writers[0];
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	refused($writer->query($insert), 'LS004', "$name: a write needs a guard");
	refused($writer->query("BEGIN; SELECT lease.guard('L', $stale)"),
		'LS001', '... of the present epoch');
	$writer->do(
		"ROLLBACK; BEGIN; SELECT lease.guard('L', $grant{L}->{epoch}); $insert; COMMIT");
	is($writer->do('SELECT count(*) FROM work'), ++$written, '... with which it commits');
	return;
}

# over_step(NAME, SUB, SECONDS) has something step the wall clock while a client writes
# under L, and another idles in a transaction.
sub over_step
{
	my ($name, $step, $seconds) = @_;
	my ($writer, $epoch) = ($writers[1], $grant{L}->{epoch});
	my $insert = "INSERT INTO work (who) VALUES ('A')";
	my ($sent, $answer);

	$writer->do("BEGIN; SELECT lease.guard('L', $epoch); $insert");
	$idler->do('BEGIN; SELECT now()');
	$step->();
	survives($name);

	# A transaction that idled across the step can do what it could have done before.
	is($writer->query("$insert; COMMIT")->{error},
		'', "$name: a transaction from before commits");
	$written += 2;
	is($idler->do("SELECT outcome FROM lease.acquire('L', 'B')"),
		'held', '... one that would take over may not');
	stepped($idler->query("SAVEPOINT s; SELECT lease.renew('L', $epoch); ROLLBACK TO s"),
		$seconds, '... one that renews may, and is told of the step');
	survives($name);

	stepped(renew($holder, 'L', $TTL), $seconds, "$name: a renewal is told of the step");
	stepped(renew($holder, 'L', $TTL), undef, '... and the next is not');
	survives("$name, renewed");

	# It never makes longer what a renewal gives, and never takes back what one gave.
	$sent = monotonic();
	$answer = $idler->query('SELECT outcome, extract(epoch FROM remaining)'
		  . " FROM lease.renew('L', $epoch); COMMIT");
	like($answer->{rows}, qr/^renewed\|/, "$name: the idle transaction renews");
	$grant{L}->{not_after} = monotonic() + $TTL;
	in_time('L', (split /\|/, $answer->{rows})[1], $sent, monotonic(), '... safely');
	survives("$name, renewed by an idle transaction");
	fenced($name);
	return;
}

foreach my $step ($HOUR, -$HOUR, $DAY, -$DAY)
{
	over_step(sprintf('step by %+d h', $step / $HOUR), sub { step($step) }, $step);
}

# A slew of one per cent is twenty times what a clock daemon does.
foreach my $pace (0.01, -0.01)
{
	over_step(
		sprintf('slewed by %+d %%', 100 * $pace),
		sub {
			for my $round (1 .. 25)
			{
				my $start = monotonic();

				usleep(5000);
				$taker->do("SELECT lease.holds('L', $grant{L}->{epoch})") eq 't'
				  or fail('live while the clock is slewed');
				step((monotonic() - $start) * $pace);
			}
		},
		undef);
}

# Progress and heartbeats are as old as they are: a step makes no peer stale, and keeps
# none fresh.
foreach my $step ($HOUR, -$HOUR, -$DAY, $DAY)
{
	my $name = sprintf('step by %+d h', $step / $HOUR);

	is( $holder->do("SELECT lease.progress('L', $grant{L}->{epoch}), lease.beat('A')"),
		't|', "$name: progress and a heartbeat before it");
	$holder->do("SELECT lease.beat('brief', stale_after => '100 ms')");
	step($step);
	is( $taker->do(
			"SELECT working, progress_age < '25 s', silence < '25 s' FROM lease.health WHERE name = 'L'"
		),
		't|t|t',
		'... are not old after it');
	usleep(150_000);
	is( $taker->do(
			"SELECT peer, stale, age < '25 s', abs(extract(epoch FROM clock_timestamp() - beat_at)) < 25"
			  . ' FROM lease.peer ORDER BY peer'),
		"A|f|t|t\nbrief|t|t|t",
		'... and a peer is stale if it has been silent');
	is($taker->do('SELECT max(value) < 25 FROM lease.metric'
		  . " WHERE metric IN ('lease_peer_age_seconds', 'lease_progress_age_seconds')"),
		't', '... also by the metrics');
}
$holder->do("SELECT lease.retire('A'), lease.retire('brief')");

# A grant begins with its transaction, which looks an hour older after a step forward;
# one that would already be over is refused.  After a step backward it begins now.
$idler->do('BEGIN; SELECT now()');
step($HOUR);
refused($idler->query("SELECT * FROM lease.acquire('I', 'A')"),
	'LS002', 'acquire in a transaction that idled over a step forward');
$idler->do('ROLLBACK; BEGIN; SELECT now()');
step(-$HOUR);
acquire($idler, 'I', $TTL);
$idler->do("COMMIT; SELECT lease.release('I', $grant{I}->{epoch})");

# The wall clock is stepped between sending and answer: while the renewal waits.
foreach my $step ($HOUR, -$HOUR)
{
	my ($sent, $answered, $remaining);

	$idler->do("BEGIN; SELECT lease.renew('L', $grant{L}->{epoch})");
	$sent = monotonic();
	$holder->ask('SELECT outcome, extract(epoch FROM remaining)'
		  . " FROM lease.renew('L', $grant{L}->{epoch})");
	wait_for_event($node, $holder, 'transactionid');
	step($step);
	$idler->do('COMMIT');
	my $answer = $holder->answer;
	$answered = monotonic();
	like($answer->{rows}, qr/^renewed\|/, 'a renewal that waited over a step');
	$grant{L}->{not_after} = $answered + $TTL;
	$remaining = (split /\|/, $answer->{rows})[1];
	$grant{L}->{not_before} = $sent + $remaining;
	$sent = monotonic();
	in_time('L',
		$taker->do(
			"SELECT extract(epoch FROM lease.remaining('L', $grant{L}->{epoch}))"),
		$sent, monotonic(), '... says what remains from when it was sent');
	renew($holder, 'L', $TTL);
}

#----
# An expired grant is taken within its ttl, of real time
#----

# dies(NAME, ACTIONS, EACH) has a holder of S go through steps of the clock (numbers) and
# renewals, and die.
sub dies
{
	my ($name, $actions, $each) = @_;
	my $mortal = session($node);
	my $client = $mortal->client;

	acquire($mortal, 'S', $SHORT);
	my $epoch = $grant{S}->{epoch};
	$_->do("BEGIN; SELECT lease.guard('S', $epoch); INSERT INTO short VALUES ('A')")
	  foreach @writers;
	foreach my $action (@$actions)
	{
		ref $action     ? $action->()
		  : $action eq 'renew' ? renew($mortal, 'S', $SHORT)
		  :                      step($action);
	}
	kill 'KILL', $client;

	ends_in_time($name, [ questions('S', $taker) ], $each);

	# Nobody has taken it yet.
	is($taker->do("SELECT outcome FROM lease.renew('S', $epoch)"),
		'expired', '... is not renewed after that');
	is($taker->do("SELECT state || ' ' || last_end FROM lease.status WHERE name = 'S'"),
		'expired expired', '... and expired in lease.status');
	refused($writers[0]->query('COMMIT'), 'LS002', '... nor does its work commit');
	like($taker->do("SELECT outcome, epoch > $epoch FROM lease.acquire('S', 'B')"),
		qr/^granted\|t$/, '... and it is granted to another');
	refused($writers[1]->query('COMMIT'), 'LS001', '... after which it is superseded');
	is($taker->do('SELECT count(*) FROM short'), '0', '... and nothing was written');
	$taker->do(
		"SELECT lease.release('S', epoch) FROM lease.status WHERE name = 'S'");
	eval { $mortal->{run}->finish };
	return;
}

dies('+1 h', [$HOUR]);
dies('-1 h', [ -$HOUR ]);
dies('+1 day', [$DAY]);
dies('-1 h, renewed', [ -$HOUR, 'renew' ]);
# A clock that runs at twice its speed and more, and one that goes backward.
dies('slewed forward', [], sub { step(0.02) });
dies('slewed backward', [], sub { step(-0.02) });

# What else lasts for a time: a reservation, min_hold, and grace.
foreach my $step ($HOUR, -$HOUR)
{
	my @questions;

	foreach my $lease ('grace', 'reserved', 'min-hold')
	{
		my $ttl = $lease eq 'grace' ? 1 : 30;
		my $ask =
		  "BEGIN; SELECT outcome FROM lease.acquire('$lease', 'B'); ROLLBACK";
		my $status = "SELECT state FROM lease.status WHERE name = '$lease'";
		my $sent = monotonic();
		my @time;

		$holder->do("SELECT lease.revoke('$lease')");
		acquire($holder, $lease, $ttl);
		@time = map { $_ + 1 } @{ $grant{$lease} }{qw(not_before not_after)};
		if ($lease ne 'grace')
		{
			my $asked = monotonic();

			$holder->do("SELECT lease.release('$lease', $grant{$lease}->{epoch}"
				  . ($lease eq 'reserved' ? ", 'C', '$SHORT s')" : ')'));
			@time = (
				($lease eq 'reserved' ? $asked : $sent) + $SHORT,
				monotonic() + $SHORT);
		}
		push @questions,
		  [ "$lease: acquire", $taker, $ask, 'held|grace|reserved', @time ],
		  [ "$lease: status", $taker, $status, 'held|grace|reserved', @time ];
	}
	step($step);
	ends_in_time(sprintf('reservation, min_hold and grace, %+d h', $step / $HOUR),
		\@questions);
}

#----
# A restart of the server on the same boot
#----

renew($holder, 'L', $TTL);
foreach my $step ($HOUR, -$HOUR, $DAY, 0)
{
	my $name = sprintf('stopped, stepped by %+d h, started', $step / $HOUR);

	acquire($holder, 'S', $SHORT);
	restart(sub { step($step) });
	survives($name);
	if (abs $step == $HOUR)
	{
		ends_in_time($name, [ questions('S', $taker) ]);
		is($taker->do("SELECT outcome FROM lease.acquire('S', 'B')"),
			'granted', '... and it is granted to another');
	}
	$taker->do("SELECT lease.revoke('S')");
	stepped(
		renew($holder, 'L', $TTL),
		$step || undef,
		"$name: a renewal is told of the step");
	survives("$name, renewed");
	fenced($name);
}

#----
# Time zones, across a change to and from daylight-saving time
#----

# The wall clock of Havana was put forward and back at these instants, in a year that no
# law can change any more.
my @changes = map {
	$node->safe_psql('postgres', "SELECT extract(epoch FROM timestamptz '$_')")
} '2025-03-09 05:00:00Z', '2025-11-02 05:00:00Z';

# time_zones(NAME) has two sessions decide about the same on both sides of a change.
sub time_zones
{
	my ($name) = @_;
	my %session = (
		'Asia/Kathmandu' => $holder,
		'America/Havana' => $taker);
	my ($one, $other) = sort keys %session;
	my $zone = 'SELECT extract(timezone FROM clock_timestamp())';
	my $states =
	  'SELECT name, state, epoch, extract(epoch FROM acquired_at),'
	  . ' extract(epoch FROM expires_at), extract(epoch FROM available_at)'
	  . " FROM lease.status WHERE name ~ '^day' ORDER BY name";
	my $claims = "SELECT (lease.acquire(name, 'B')).outcome FROM lease.status"
	  . " WHERE name ~ '^day' ORDER BY name";
	my $words =
	  "SELECT string_agg(state, ' ') FROM lease.status WHERE name ~ '^day'";

	$session{$_}->do("SET timezone = '$_'") foreach $one, $other;
	foreach my $change (@changes)
	{
		# both(SQL, NAME) returns what both sessions say.
		my $both = sub {
			my ($sql, $what) = @_;
			my %said =
			  map { $_ => $session{$_}->query($sql)->{rows} } $one, $other;

			is($said{$one}, $said{$other}, "$name: identical decisions: $what");
			return $said{$one};
		};
		my %lease = ($one => 'day/1', $other => 'day/2');

		# To shortly before the change.
		step($change - $SHORT - time - $wall);
		my $offset = $session{'America/Havana'}->do($zone);

		# A day has 24 hours, also in an interval that contains the change.
		foreach my $own ($one, $other)
		{
			is( $session{$own}->do(
					"SELECT lease.create('$lease{$own}', ttl => '1 day',"
					  . " grace => '1 day');"
					  . ' SELECT extract(epoch FROM expires_at - acquired_at)::int'
					  . " FROM lease.acquire('$lease{$own}', 'A')"),
				"\n$DAY",
				"$name: a day in $own");
		}
		$holder->do("SELECT lease.revoke('S')");
		acquire($holder, 'S', $SHORT);
		my $before = $both->($states, 'status before the change');

		ends_in_time(
			"$name: a grant across the change",
			[ questions('S', $holder), questions('S', $taker) ]);

		# The wall clock passes the change, by itself.
		wait_until($node,
			"SELECT extract(epoch FROM clock_timestamp()) > $change",
			'the change of time');
		isnt($session{'America/Havana'}->do($zone),
			$offset, "$name: the time has changed in Havana");
		is($both->($states, 'status after the change'), $before, '... as before');
		is($both->($claims, 'a claim'), "held\nheld", '... held');

		# One of them looks at what it will be a minute before and after the ends.
		foreach my $end (
			[ $DAY - 60, 'held' ],
			[ $DAY + 60, 'grace' ],
			[ 2 * $DAY - 60, 'grace' ])
		{
			my ($at, $outcome) = @$end;

			$_->do("SET lease.clock_offset = '$at s'") foreach values %session;
			is($both->($claims, "a claim after $at s"),
				"$outcome\n$outcome", "... $outcome");
			is($both->($words, "status after $at s"),
				"$outcome $outcome", '... in status, too');
		}
		$_->do('SET lease.clock_offset = ' . 1000 * (2 * $DAY + 60))
		  foreach values %session;
		is( $both->("BEGIN; $claims; ROLLBACK", 'a claim after two days'),
			"granted\ngranted",
			'... granted');
		$_->do('RESET lease.clock_offset') foreach values %session;
		$holder->do(
			'SELECT lease.drop(name, force => true) FROM lease.status'
			  . " WHERE name ~ '^day'");
	}
	$_->do('RESET timezone') foreach values %session;
	return;
}

time_zones('boot clock');

#----
# Another boot, another host, and no boot clock
#----

my $boot_source = "$FindBin::RealBin/../preload/boot.c";
my @compile = (
	split(' ', $ENV{CC} // 'cc'),
	qw(-shared -fPIC -O1 -U_FORTIFY_SOURCE -o), $boot_library, $boot_source, '-ldl');

# boot(ID, SHIFT) is what happens while the server is down: it will start on a boot with
# that identity, whose clock is shifted by so many seconds.
sub boot
{
	my ($id, $shift) = @_;

	unlink("$files/boot_id");
	append_to_file("$files/boot_id", "$id\n") if defined $id;
	$environment{LD_PRELOAD} = "$boot_library:$faketime";
	$environment{BOOT_ID} = "$files/boot_id";
	$environment{BOOT_SHIFT} = $shift;
	return;
}

# decided_by_wall(NAME) passes if L is live for as long as expires_at says.
sub decided_by_wall
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is( $taker->do(
			'SELECT state,'
			  . ' abs(extract(epoch FROM expires_at - clock_timestamp() - remaining)) < 0.5'
			  . " FROM lease.status WHERE name = 'L'"),
		'held|t',
		"$name: live until expires_at");
	is($taker->do("SELECT outcome, epoch FROM lease.acquire('L', 'B')"),
		'held|', '... and refused to others');
	is($taker->do("SELECT lease.holds('L', $grant{L}->{epoch})"),
		't', '... by its holder');
	return;
}

# reacquire(NAME) has L acquired by another, which has to be possible, and then again.
sub reacquire
{
	my ($name) = @_;
	my $epoch = $grant{L}->{epoch};
	my $answer;

	is($holder->do("SELECT outcome FROM lease.renew('L', $epoch)"),
		'expired', "$name: over");
	$answer = $taker->query("SELECT outcome, epoch FROM lease.acquire('L', 'B')");
	like($answer->{rows}, qr/^granted\|/, '... and granted to another');
	stepped($answer, undef, '... without a warning');
	(undef, $stale) = split /\|/, $answer->{rows};
	cmp_ok($stale, '>', $epoch, '... under a greater epoch');
	$taker->do("SELECT lease.release('L', $stale)");
	acquire($holder, 'L', $TTL);
	fenced($name);
	return;
}

my $boot_column = "SELECT boot FROM lease.lease WHERE name = 'L'";

SKIP:
{
	if (!eval { run_log(\@compile) })
	{
		fail("$boot_source is compiled"), last SKIP if $ENV{LEASE_ALL_DRIVERS};
		skip "$boot_source is not compiled", 1;
	}

	my $boottime = int(clock_gettime($CLOCK_BOOTTIME));
	my @boots = (
		[ 'another boot', '11111111-1111-4111-8111-111111111111', 10 - $boottime ],
		[ 'a longer boot', '22222222-2222-4222-8222-222222222222', 100 * $DAY ],
		[ 'no boot id', undef, 0 ],
		[ 'no CLOCK_BOOTTIME', '33333333-3333-4333-8333-333333333333', 'none' ],
		[ 'a boot clock again', '44444444-4444-4444-8444-444444444444', 0 ]);
	my $identity = $holder->do($boot_column);

	renew($holder, 'L', $TTL);
	foreach my $boot (@boots)
	{
		my ($name, $id, $shift) = @$boot;
		my $clockless = !defined $id || $shift eq 'none';

		# The wall clock was right all the time: nothing changes.
		restart(sub { boot($id, $shift) });
		is($holder->do($boot_column),
			$identity, "$name: the row has the boot that wrote it");
		survives($name);
		stepped(renew($holder, 'L', $TTL),
			undef, "$name: renewed, without a warning");
		survives("$name, renewed");
		$identity = $holder->do($boot_column);
		$clockless
		  ? is($identity, '', "$name: the row has no boot")
		  : like($identity, qr/^$id /, "$name: the row has this boot");
		fenced($name);

		# With a boot clock, a step does not matter there either; without, expires_at
		# decides, and nobody can tell of a step.
		step($HOUR);
		$clockless ? reacquire("$name, +1 h") : survives("$name, +1 h");
		stepped(
			renew($holder, 'L', $TTL),
			$clockless ? undef : $HOUR,
			"$name, +1 h: renewed");
		step(-$HOUR);
		$clockless ? decided_by_wall("$name, -1 h") : survives("$name, -1 h");
		if (!$clockless)
		{
			stepped(renew($holder, 'L', $TTL),
				-$HOUR, "$name, -1 h: renewed");
		}
		else
		{
			step($HOUR);
			renew($holder, 'L', $TTL);
		}
	}

	# A wall clock that is another one after the reboot: expires_at decides.
	restart(sub { boot('55555555-5555-4555-8555-555555555555', 0); step(-$HOUR) });
	decided_by_wall('another boot, -1 h');
	restart(sub { boot('66666666-6666-4666-8666-666666666666', 0); step(2 * $HOUR) });
	reacquire('another boot, +1 h');

	# Decisions across the change of time by the wall clock alone.
	restart(sub { boot(undef, 0) });
	time_zones('no boot clock');
}

$_->quit foreach $holder, $taker, $idler, @writers;
$node->stop;
done_testing();
