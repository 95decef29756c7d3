# Sixteen sessions pin and advance a floor at random.  Section 5.5 of the contract; G5.
#
# Each is a process with a connection of its own: it pins, moves its pin, renews it, lets it
# lapse, gives it back, and advances the floor, in short transactions and in ones that
# linger, at each isolation level, and some of them are rolled back.  Meanwhile the lease
# gets a new epoch again and again.
#
# What came of that is judged from the log of the server, in the order of commits: at no
# time is a live pin below the floor.  That is,
#
#  - when the floor moves, it moves up, and above no pin whose time was not over at the start
#    of the transaction that moves it, by the boot clock; none of those is removed either;
#  - no pin is put, moved or renewed below the floor;
#  - a renewal does not shorten, and is one of a pin that was there.
#
# It is also judged by the clients: what was acknowledged to them is in the log; and who
# believes in a pin (it was sent for less than its ttl ago, on the clock of that process)
# reads a floor that is not above it.
#
# That the judge would find something is seen when it is shown the same log with a
# transaction moved, altered or left out.
#
# LEASE_TEST_SEED repeats the choices of a run, as far as scheduling lets it;
# LEASE_TEST_SECONDS is for how long (10 unless set).

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use IPC::Open2;
use LeaseTest;
use List::Util qw(max min);
use POSIX ':sys_wait_h';
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(CLOCK_MONOTONIC clock_gettime time usleep);

my $SECONDS = $ENV{LEASE_TEST_SECONDS} // 10;
my $CLIENTS = 16;

my $seed = $ENV{LEASE_TEST_SEED} // int(rand(2**31));
srand $seed;
note "LEASE_TEST_SEED=$seed";

my $node = new_server(
	'pins', q{
wal_level = logical
log_statement = none
log_min_messages = fatal
max_connections = 40
});

plan skip_all => 'test_decoding is not installed'
  if $node->psql('postgres',
	"SELECT pg_create_logical_replication_slot('order', 'test_decoding')") != 0;

# What a transaction says of itself: start is that by which it judges what has lapsed.
$node->safe_psql(
	'postgres', q{
	CREATE TABLE said (client int, n int, what text, outcome text, asked bigint, position bigint, start bigint);
	SELECT lease.create('pinned', ttl => '10 min');
	SELECT lease.advance_floor('pinned', a.epoch, 'F', 0) FROM lease.acquire('pinned', 'A') AS a;
});

#----
# Clients
#----

# ask(CLIENT, SQL) executes statements and returns what was printed.
sub ask
{
	my ($client, $sql) = @_;
	my $answer = '';

	print { $client->{in} } "$sql;\n\\echo .\n" or die "psql has gone: $!";
	while (1)
	{
		my $line = readline($client->{out}) // die 'psql has ended';
		return $answer if $line eq ".\n";
		$answer .= $line;
	}
}

# transaction(CLIENT, WHAT, CALL, ASKED, POSITION) makes one in which a function is called, and
# says so.  Returns the outcome and the position that were acknowledged, none if it was not
# committed, and when it was sent.
sub transaction
{
	my ($client, $what, $call, $asked, $position) = @_;
	my $n = ++$client->{n};
	my $level = one_of('READ COMMITTED', 'READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE');
	my @linger = map { rand() < 0.1 ? sprintf('SELECT pg_sleep(%.3f) \g /dev/null', rand(0.12)) : '' } 1 .. 2;
	my $end = rand() < 0.05 ? 'ROLLBACK' : 'COMMIT';
	my $sent = clock_gettime(CLOCK_MONOTONIC);

	my $answer = ask($client,
		"BEGIN ISOLATION LEVEL $level;\n$linger[0]\n"
		  . 'INSERT INTO said SELECT '
		  . "$client->{number}, $n, '$what', $position, s.boot_at FROM lease.start() AS s, $call AS r"
		  . " RETURNING coalesce(outcome, ''), coalesce(position, 0);\n$linger[1]\n$end");
	$client->{errors}{$_}++ foreach $answer =~ /(?:ERROR|FATAL):  (\w{5}):/g;
	return (undef, undef, $sent) if $answer =~ /(?:ERROR|FATAL):/ || $end eq 'ROLLBACK';
	die "unexpected answer: $answer" unless $answer =~ /^([a-z]*)\|(-?\d+)$/m;
	my @acknowledged = ($1, $2);
	print { $client->{log} } "acknowledged $n\n";
	return (@acknowledged, $sent);
}

# believe(CLIENT, POSITION, UNTIL) is what an acknowledged pin makes a client do.
sub believe
{
	my ($client, $position, $until) = @_;

	@$client{qw(position until)} = ($position, $until);
	return;
}

# believes(CLIENT) tells whether a client believes in its pin.
sub believes
{
	my ($client) = @_;

	return clock_gettime(CLOCK_MONOTONIC) < $client->{until};
}

# look(CLIENT) reads the floor, and tells of one that is above a pin in which the client
# still believes.
sub look
{
	my ($client) = @_;
	my ($floor) = ask($client, "SELECT position FROM lease.floor WHERE floor = 'F'") =~ /^(-?\d+)$/m
	  or die 'no floor';

	$client->{floor} = $floor;
	return unless believes($client);
	$client->{count}{looked}++;
	print { $client->{log} } "wrong: believes in $client->{position}, floor $floor\n"
	  if $floor > $client->{position};
	return;
}

# pin(CLIENT) puts the pin somewhere near the floor, mostly above.
sub pin
{
	my ($client) = @_;
	my $ttl = 30 + int rand 170;
	my $at = $client->{floor} - 5 + int rand 60;

	my ($outcome, $position, $sent) = transaction(
		$client, 'pin',
		"lease.pin('F', $at, 'client $client->{number}', '$ttl ms')",
		$at, "r.outcome, $at, r.pinned_position");
	return unless defined $outcome;
	$client->{count}{$outcome}++;
	believe($client, $position, $sent + $ttl / 1000) if $outcome eq 'pinned';
	return;
}

# renew(CLIENT) renews the pin, if it has one.
sub renew
{
	my ($client) = @_;
	my $ttl = 30 + int rand 170;

	my ($outcome, $position, $sent) = transaction(
		$client, 'renew',
		"lease.renew_pin('F', 'client $client->{number}', '$ttl ms')",
		undef, 'r.outcome, NULL, r.pinned_position');
	return unless defined $outcome;
	$client->{count}{$outcome}++;
	if ($outcome eq 'renewed')
	{
		believe($client, $position, max($client->{until}, $sent + $ttl / 1000));
	}
	elsif ($sent < $client->{until} && believes($client))
	{
		print { $client->{log} } "wrong: believes in $client->{position}, which has lapsed\n";
	}
	return;
}

# unpin(CLIENT) gives the pin back.  Who has asked for that does not believe in it any more.
sub unpin
{
	my ($client) = @_;

	$client->{until} = 0;
	transaction(
		$client, 'unpin', "lease.unpin('F', 'client $client->{number}')",
		undef, "CASE WHEN r THEN 'unpinned' ELSE '' END, NULL, NULL");
	return;
}

# advance(CLIENT) advances the floor.
sub advance
{
	my ($client) = @_;
	my $to = $client->{floor} - 2 + int rand 15;

	my ($outcome) = transaction(
		$client, 'advance',
		"lease.advance_floor('pinned', (SELECT l.epoch FROM lease.lease AS l WHERE l.name = 'pinned'), 'F', $to)",
		$to, "r.outcome, $to, r.floor_position");
	$client->{count}{$outcome}++ if defined $outcome;
	return;
}

# run_client(NUMBER, UNTIL) is the life of a client, in a process of its own.
sub run_client
{
	my ($number, $until, $base) = @_;
	my $client = { number => $number, n => 0, floor => 0, position => 0, until => 0 };

	srand($seed + $number);
	open($client->{log}, '>', $base) or die;
	$client->{log}->autoflush(1);
	my $psql = open2($client->{out}, $client->{in},
		'exec psql -XAtq -v VERBOSITY=verbose -f - 2>&1 -d "' . $node->connstr('postgres') . '"');
	$client->{in}->autoflush(1);
	ask($client, "SET lease.busy_timeout = '" . one_of('20 ms', '2 s') . "'");
	while (time < $until)
	{
		my $act = rand();

		look($client) if $act < 0.35;
		if ($act >= 0.85)    { advance($client) }
		elsif (!believes($client))
		{
			if    ($act < 0.65) { pin($client) }
			elsif ($act < 0.75) { renew($client) }
		}
		elsif ($act < 0.35) { }
		elsif ($act < 0.6)  { renew($client) }
		elsif ($act < 0.68) { pin($client) }
		elsif ($act < 0.74) { unpin($client) }
		elsif ($act < 0.8)
		{
			# Let it lapse.
			usleep(1_000_000 * max(0, $client->{until} - clock_gettime(CLOCK_MONOTONIC) + 0.01));
		}
		usleep(rand(8_000));
	}
	print { $client->{log} } map { "count $_ $client->{count}{$_}\n" } keys %{ $client->{count} };
	print { $client->{log} } map { "error $_ $client->{errors}{$_}\n" } keys %{ $client->{errors} };
	print { $client->{log} } "done\n";
	close $client->{in};
	waitpid $psql, 0;
	return;
}

my %running;
END
{
	local $?;
	kill 'KILL', keys %running;
}

my $until = time + $SECONDS;
my @logs = map { "$PostgreSQL::Test::Utils::tmp_check/client_$_" } 1 .. $CLIENTS;
foreach my $number (1 .. $CLIENTS)
{
	my $pid = fork() // die "cannot fork: $!";
	if ($pid == 0)
	{
		local $SIG{__DIE__};
		eval { run_client($number, $until, $logs[ $number - 1 ]); 1 }
		  or append_to_file($logs[ $number - 1 ], "died: $@\n");
		POSIX::_exit(0);
	}
	$running{$pid} = 1;
}

# New epochs
my $admin = session($node);
my $epochs = 1;
while (time < $until)
{
	usleep(rand(600_000));
	$admin->do("SELECT epoch FROM lease.acquire('pinned', 'A', reclaim => true)");
	$epochs++;
}
while (%running)
{
	die 'the clients do not end' if time > $until + $PATIENCE;
	waitpid($_, WNOHANG) == $_ and delete $running{$_} foreach keys %running;
	usleep(10_000);
}

#----
# What the clients say
#----

my (%acknowledged, %count, %errors, @wrong);
foreach my $number (1 .. $CLIENTS)
{
	my $log = slurp_file($logs[ $number - 1 ]);

	$acknowledged{"$number $_"} = 1 foreach $log =~ /^acknowledged (\d+)$/mg;
	$count{$1} += $2 while $log =~ /^count (\S+) (\d+)$/mg;
	$errors{$1} += $2 while $log =~ /^error (\S+) (\d+)$/mg;
	push @wrong, map { "client $number: $_" } $log =~ /^(?:wrong|died): (.*)$/mg;
	push @wrong, "client $number has not ended" unless $log =~ /^done$/m;
}
note 'clients were told: ' . join(', ', map { "$_ $count{$_} times" } sort keys %count);
note 'and were refused: ' . join(', ', map { "$_ $errors{$_} times" } sort keys %errors);
is(join("\n", @wrong), '', 'who believes in a pin reads a floor that is not above it');
delete @errors{qw(LS001 LS002 LS006 40001 25P02)};
is(join(' ', %errors), '', 'there were no errors but those that the contract names');

#----
# What the log says
#----

# read_log returns the transactions in the order of their commits, each as a list of what was
# done to pins, the floor and the table "said".
sub read_log
{
	my (@transactions, $changes);

	foreach my $line (
		split /\n/,
		$node->safe_psql('postgres',
			"SELECT data FROM pg_logical_slot_get_changes('order', NULL, NULL)"))
	{
		if    ($line =~ /^BEGIN/)  { $changes = [] }
		elsif ($line =~ /^COMMIT/) { push @transactions, $changes if @$changes }
		elsif ($line =~ /^table (lease\.floor|lease\.floor_pin|public\.said): (INSERT|UPDATE|DELETE): (.*)/)
		{
			my %change = (table => $1, done => $2);
			my $columns = $3;
			$change{$1} = $2
			  while $columns =~ /"?(\w+)"?\[[^]]+\]:(?|'((?:[^']|'')*)'|(\S+))/g;
			push @$changes, \%change if ($change{floor} // 'F') eq 'F';
		}
	}
	return @transactions;
}

# judge(TRANSACTIONS) replays them and returns what is wrong, and counts.
sub judge
{
	my @transactions = @_;
	my ($floor, %pins, %count, %heard, @wrong);

	foreach my $changes (@transactions)
	{
		my ($said) = grep { $_->{table} eq 'public.said' } @$changes;
		my ($what, $start) = $said ? @$said{qw(what start)} : ('setup', 0);
		my $who = $said ? "client $said->{client}, transaction $said->{n}" : 'setup';
		my $complain = sub { push @wrong, "$who, $what: $_[0]" };

		foreach my $change (@$changes)
		{
			my $holder = $change->{holder};

			if ($change->{table} eq 'lease.floor_pin' && $change->{done} eq 'DELETE')
			{
				my $pin = delete $pins{$holder};
				next if $what eq 'unpin';
				$count{lapsed}++;
				$complain->("removes the live pin of $holder") if $pin && $pin->{until} > $start;
			}
			elsif ($change->{table} eq 'lease.floor_pin')
			{
				my $until = $change->{pinned_boot} + $change->{ttl};
				my $old = $pins{$holder};
				$pins{$holder} = { position => $change->{position}, until => $until };
				$complain->("pins $change->{position}, below the floor, $floor")
				  if $change->{position} < $floor;
				if ($what eq 'renew')
				{
					$count{renewed}++;
					$complain->('renews what is not there') unless $old;
					$complain->('shortens') if $old && $until < $old->{until};
					$complain->('moves') if $old && $change->{position} != $old->{position};
				}
				else
				{
					$count{pinned}++;
					$count{lapsed}++ if $old && $old->{until} <= $start;
				}
			}
			elsif ($change->{table} eq 'lease.floor')
			{
				my $position = $change->{position};
				$complain->("moves the floor from $floor back to $position")
				  if defined $floor && $position <= $floor;
				$floor = $position;
				$count{advanced}++ if $what eq 'advance';
				foreach my $pinned (sort keys %pins)
				{
					$complain->("moves the floor to $position, above the live pin of $pinned at $pins{$pinned}{position}")
					  if $pins{$pinned}{position} < $position && $pins{$pinned}{until} > $start;
				}
			}
		}

		# What it says is so when it is committed.
		next unless $said;
		my $pin = $pins{"client $said->{client}"};
		$heard{"$said->{client} $said->{n}"} = 1;
		$count{below}++ if $said->{outcome} eq 'below';
		$count{held}++ if $said->{outcome} eq 'held';
		$complain->('has no such pin')
		  if $said->{outcome} =~ /^(?:pinned|renewed)$/
		  && ($pin->{position} // '') ne $said->{position};
		$complain->("is told that the floor is at $said->{position}, not $floor")
		  if $what eq 'advance' && $said->{position} != $floor;
	}
	push @wrong, map { "what was acknowledged is not there: $_" }
	  grep { !$heard{$_} } sort keys %acknowledged;
	return (\%count, @wrong);
}

my @transactions = read_log();
my ($seen, @found) = judge(@transactions);
note scalar(@transactions) . " transactions, $epochs epochs, $count{looked} looks: "
  . join(', ', map { "$_ $seen->{$_} times" } sort keys %$seen);
is(join("\n", @found[ 0 .. min($#found, 20) ]),
	'', 'in the order of commits, no live pin is ever below the floor');

# It has to have been a run in which that could have happened.
my $enough = $SECONDS;
cmp_ok($seen->{$_} // 0, '>', $enough, "often enough: $_")
  foreach qw(pinned renewed lapsed below advanced held);
cmp_ok($count{looked}, '>', $enough, 'clients have looked often enough');

#----
# Whether the judge would find something
#----

# clone() is a copy of the log to be altered.
sub clone
{
	return map { [ map { {%$_} } @$_ ] } @transactions;
}

# first_change(TABLE, CONDITION, TRANSACTIONS) returns the position of the first transaction with
# such a change, from the middle of the log on, and the change.
sub first_change
{
	my ($table, $condition, @log) = @_;

	foreach my $i (@log / 2 .. $#log)
	{
		my ($said) = grep { $_->{table} eq 'public.said' } @{ $log[$i] };
		foreach my $change (grep { $_->{table} eq $table } @{ $log[$i] })
		{
			return ($i, $change) if $condition->($change, $said, $i);
		}
	}
	die "there is no such change of $table";
}

# would_find(PATTERN, LOG) passes if that is what the judge says of it.
sub would_find
{
	my ($pattern, @log) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	my (undef, @found) = judge(@log);
	return ok((grep { /$pattern/ } @found), "it would be found: $pattern")
	  || diag(join "\n", @found);
}

# A floor that passes what holds it back
my @log = clone();
my (undef, $change) =
  first_change('lease.floor', sub { $_[1] && $_[1]{outcome} eq 'held' }, @log);
$change->{position}++;
would_find('above the live pin', @log);

# A pin that comes after the advance that has passed it
@log = clone();
my (%latest, $passed, $passer);    # by holder, the transaction of its pin
foreach my $i (0 .. $#log)
{
	my ($floor) = grep { $_->{table} eq 'lease.floor' } @{ $log[$i] };
	foreach my $pin (grep { $_->{table} eq 'lease.floor_pin' } @{ $log[$i] })
	{
		my $of = $latest{ $pin->{holder} };
		if ($pin->{done} ne 'DELETE')
		{
			$latest{ $pin->{holder} } = [ $i, $pin ];
		}
		elsif ($floor && $of->[1]{position} < $floor->{position})
		{
			($passed, $change, $passer) = (@$of, $i);
		}
	}
}
my ($moved) = splice @log, $passed, 1;
splice @log, $passer, 0, $moved;
would_find('below the floor', @log);

# The same one, had it been live
@log = clone();
($change) = grep { $_->{table} eq 'lease.floor_pin' } @{ $log[$passed] };
$change->{ttl} += 60_000_000;
would_find('removes the live pin', @log);

# A renewal that is not there
@log = clone();
my ($renewal) = first_change('lease.floor_pin',
	sub { $_[1] && $_[1]{outcome} eq 'renewed' && $acknowledged{"$_[1]{client} $_[1]{n}"} }, @log);
splice @log, $renewal, 1;
would_find('what was acknowledged is not there', @log);

$node->stop;
done_testing();
