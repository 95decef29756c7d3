# Leaders that are stopped in the middle of a destructive phase.  G3, G7; section 5.5 of the
# contract.
#
# Each leader is a psql that runs a script: it waits for the lease, asks where the cursor
# stands, takes it over, and works through the items one by one.  For each it makes one
# transaction with the effect, on a table that nothing protects and nothing keeps from being
# changed twice, and the step of the cursor.  At some item it is stopped by SIGSTOP,
#
#  - before the transaction,
#  - between the guard and the effect,
#  - between the effect and the step of the cursor,
#  - between that and COMMIT,
#  - after COMMIT, before it has read the reply,
#  - or its server process is, before COMMIT.
#
# Its grant runs out, the next one gets the lease, finds the cursor exactly there, may not
# move it before it has taken it over, and goes on.  When that one is stopped in turn,
# the earlier one is continued: its next step is refused.  In the end each item was
# processed once, in order.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use LeaseTest;
use POSIX ':sys_wait_h';
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

plan skip_all => 'SIGSTOP is needed' if $windows_os;

my $ITEMS = 60;
my $TTL = '1500 ms';

my $node = new_server('destructive', 'log_statement = none');
my $admin = session($node);

# A session of a superuser would not be ended when its epoch is superseded (src/evict.c), and
# keep the next leader waiting for as long as it is stopped.
$admin->do(
	qq{
	CREATE ROLE worker LOGIN;
	SELECT lease.allow('worker');
	SELECT lease.create('purge', ttl => '$TTL', role => 'worker');
	CREATE SEQUENCE effects;
	CREATE TABLE provider (item int PRIMARY KEY, processed int NOT NULL, epoch bigint, effect bigint);
	INSERT INTO provider SELECT i, 0 FROM generate_series(1, $ITEMS) AS i;
	GRANT SELECT, UPDATE ON provider TO worker;
	GRANT USAGE ON effects TO worker;
});

# Somebody has come to the beginning of it, in a phase in which nothing is destroyed.
$admin->do(
	q{
	SELECT epoch FROM lease.acquire('purge', 'copier') \gset
	SELECT lease.declare_destructive('purge', :epoch, 'items', 'purge');
	SELECT lease.advance_cursor('purge', :epoch, 'items', NULL, NULL, '0', 'copy');
	SELECT lease.release('purge', :epoch);
});

# What each leader is stopped at; then what of the item is done, and what is effected in vain,
# and the error that it gets when it is continued.
my @stops = (
	{ name => 'before the transaction', done => 0, vain => 0, error => 'LS001' },
	{ name => 'between guard and effect', done => 0, vain => 0, error => '57P01' },
	{ name => 'between effect and cursor', done => 0, vain => 1, error => '57P01' },
	{ name => 'before COMMIT', done => 0, vain => 1, error => '57P01' },
	{ name => 'before the reply to COMMIT', done => 1, vain => 0, error => 'LS001' },
	{ name => 'in the server', done => 0, vain => 1, error => 'LS001' },
	{ name => 'never' });

#----
# Leaders
#----

# work(STOP, LOCK) is what is done for one item, for psql, with a stop in it: by itself, or
# by waiting for an advisory lock that the test holds.  The first step also enters the phase.
sub work
{
	my ($stop, $lock) = @_;
	my $halt = sub { $stop eq $_[0] ? "\\! kill -STOP \$PPID\n" : '' };

	return "\\if :unfinished\n"
	  . "SELECT lease.renew('purge', :epoch) \\g /dev/null\n"
	  . $halt->('before the transaction')
	  . "BEGIN;\nSELECT lease.guard('purge', :epoch) \\g /dev/null\n"
	  . $halt->('between guard and effect')
	  . "UPDATE provider SET processed = processed + 1, epoch = :epoch, effect = nextval('effects') WHERE item = :position + 1;\n"
	  . $halt->('between effect and cursor')
	  . "SELECT lease.advance_cursor('purge', :epoch, 'items', :'position', :'phase',"
	  . " (:position + 1)::text, 'purge', strict => true) \\g /dev/null\n"
	  . $halt->('before COMMIT')
	  . ($stop eq 'in the server' ? "SELECT pg_advisory_lock_shared($lock) \\g /dev/null\n" : '')
	  . ($stop eq 'before the reply to COMMIT'
		? "COMMIT\\; SELECT pg_advisory_lock_shared($lock) \\g /dev/null\n"
		: "COMMIT;\n")
	  . "SELECT :position + 1 AS position, 'purge' AS phase, :position + 1 < $ITEMS AS unfinished \\gset\n"
	  . "\\echo done :position\n\\endif\n";
}

# leader(NUMBER) starts one, which is stopped at its item of that number times two.
sub leader
{
	my ($number) = @_;
	my $stop = $stops[ $number - 1 ]{name};
	my $base = "$PostgreSQL::Test::Utils::tmp_check/leader_$number";
	my $ttl = $stop eq 'never' ? '10 min' : $TTL;

	append_to_file("$base.sql",
		"SET lease.busy_timeout = '60 s';\n"
		  . "CALL lease.await('purge', 'leader $number', '$ttl') \\gset\n"
		  . "SELECT position, phase, position::int < $ITEMS AS unfinished FROM lease.cursor_of('purge', 'items') \\gset\n"
		  . "\\echo finds :position :phase\n"
		  . "SELECT outcome FROM lease.advance_cursor('purge', :epoch, 'items', :'position', :'phase',"
		  . " (:position + 1)::text, 'purge');\n"
		  . "SELECT outcome FROM lease.take_over_cursor('purge', :epoch, 'items', :'position', :'phase');\n"
		  . join('', map { work($_ == 2 * $number ? $stop : '', $number) } 1 .. $ITEMS)
		  . "\\echo finished\n");
	my $pid = fork() // die "cannot fork: $!";
	if ($pid == 0)
	{
		local $ENV{PGAPPNAME} = "leader $number";
		local $SIG{__DIE__} = sub { POSIX::_exit(1) };
		open(STDIN, '<', '/dev/null') or die;
		open(STDOUT, '>', "$base.out") or die;
		open(STDERR, '>', "$base.err") or die;
		{ exec('psql', '-XAtq', '-v', 'VERBOSITY=verbose', '-v', 'ON_ERROR_STOP=1', '-d',
				$node->connstr('postgres') . ' user=worker', '-f', "$base.sql") };
		POSIX::_exit(1);
	}
	return { number => $number, pid => $pid, base => $base };
}

my @leaders;
END
{
	local $?;
	kill 'KILL', map { $_->{pid} } grep { !$_->{ended} } @leaders;
}

# until_true(CONDITION, NAME, LEADER) waits.
sub until_true
{
	my ($condition, $name, $leader) = @_;
	my $until = time + $PATIENCE;

	until ($condition->())
	{
		die "timed out waiting for $name: " . slurp_file("$leader->{base}.err") if time > $until;
		usleep(5_000);
	}
	return;
}

# await_stop(LEADER) waits until a leader is stopped.
sub await_stop
{
	my ($leader) = @_;
	my $number = $leader->{number};
	my $stop = $stops[ $number - 1 ]{name};

	if ($stop =~ /reply|server/)
	{
		my $waits = "FROM pg_stat_activity WHERE application_name = 'leader $number' AND wait_event = 'advisory'";
		wait_until($node, "SELECT count(*) = 1 $waits", "leader $number to wait");
		$leader->{backend} = $admin->do("SELECT pid $waits");
		kill 'STOP', $stop =~ /server/ ? $leader->{backend} : $leader->{pid}
		  or die "cannot stop leader $number: $!";
		return;
	}
	until_true(
		sub {
			die "leader $number has ended: " . slurp_file("$leader->{base}.err")
			  if waitpid($leader->{pid}, WNOHANG) > 0;
			return `ps -o state= -p $leader->{pid}` =~ /^T/;
		},
		"leader $number to be stopped", $leader);
	return;
}

# await_end(LEADER) waits until a leader has ended.
sub await_end
{
	my ($leader) = @_;

	until_true(sub { waitpid($leader->{pid}, WNOHANG) > 0 }, "leader $leader->{number} to end", $leader);
	$leader->{ended} = 1;
	return;
}

# told(LEADER) is what it has printed, in one line.
sub told
{
	my ($leader) = @_;

	return join ', ', split /\n/, slurp_file("$leader->{base}.out");
}

# should_have_told(FROM, TO, FINISHED) is what it has to have printed if it has worked
# from a position to another one.
sub should_have_told
{
	my ($from, $to, $finished) = @_;

	return join ', ', "finds $from " . ($from == 0 ? 'copy' : 'purge'),
	  'not taken over', 'taken over', (map { "done $_" } $from + 1 .. $to), $finished ? 'finished' : ();
}

$admin->do("SELECT pg_advisory_lock($_)") foreach 1 .. @stops;

#----
# One after the other
#----

my $position = 0;    # where the cursor stands
my $vain = 0;
foreach my $number (1 .. @stops)
{
	my $stop = $stops[ $number - 1 ];
	my $from = $position;

	push @leaders, leader($number);
	my $leader = $leaders[-1];
	my $earlier = $number > 1 ? $leaders[-2] : undef;

	# Whoever has stopped in the server is in the way for as long as it is: nothing can end it.
	if ($earlier && $earlier->{backend} && $stops[ $number - 2 ]{name} =~ /server/)
	{
		wait_until($node,
			"SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'leader $number'"
			  . " AND $earlier->{backend} = ANY (pg_blocking_pids(pid))",
			"leader $number to wait for the one before");
		is(told($leader), "finds $from purge", "leader $number finds the cursor at $from, and waits");
		kill 'CONT', $earlier->{backend} or die "cannot continue the server process: $!";
		$admin->do('SELECT pg_advisory_unlock(' . ($number - 1) . ')');
	}

	if ($stop->{name} eq 'never')
	{
		await_end($leader);
		$position = $ITEMS;
		is(slurp_file("$leader->{base}.err"), '', "leader $number is not stopped");
		is(told($leader), should_have_told($from, $ITEMS, 1),
			"it goes on at $from, once it has taken over, and finishes");
	}
	else
	{
		await_stop($leader);
		$position = $from + 2 * $number - 1;
		is(told($leader), should_have_told($from, $position),
			"leader $number goes on at $from, once it has taken over, and stops $stop->{name}");
		$position += $stop->{done};
		$vain += $stop->{vain};
		is($admin->do("SELECT position, phase FROM lease.cursor_of('purge', 'items')"),
			"$position|purge", "the cursor stands at $position");
	}

	# The one before
	next unless $earlier;
	my $error = $stops[ $number - 2 ]{error};
	my $before = told($earlier);
	$admin->do('SELECT pg_advisory_unlock(' . ($number - 1) . ')')
	  if $stops[ $number - 2 ]{name} =~ /reply/;
	kill 'CONT', $earlier->{pid} or die "cannot continue leader $earlier->{number}: $!";
	await_end($earlier);
	like(slurp_file("$earlier->{base}.err"), qr/(?:ERROR|FATAL):  $error:/,
		"when leader $earlier->{number} is continued, it is refused ($error)");
	is(told($earlier), $before . ($stops[ $number - 2 ]{done} ? ", done $from" : ''),
		'it has done no more than before');
	is($admin->do("SELECT position FROM lease.cursor_of('purge', 'items')"),
		$position, 'and the cursor is where it was');
}

is( $admin->do(
		'SELECT min(processed), max(processed), count(*), count(DISTINCT epoch) FROM provider'),
	join('|', 1, 1, $ITEMS, scalar @stops),
	'each item was processed once, by one of the leaders');
is($admin->do('SELECT last_value FROM effects'), $ITEMS + $vain, "$vain effects were undone");
is( $admin->do(
		'SELECT count(*) FROM (SELECT item, effect, epoch, lag(effect) OVER w AS before, lag(epoch) OVER w AS epoch_before'
		  . ' FROM provider WINDOW w AS (ORDER BY item)) AS p WHERE effect <= before OR epoch < epoch_before'),
	'0', 'in order');
is( $admin->do(
		q{SELECT count(*) FROM provider p FULL JOIN (SELECT * FROM lease.record WHERE kind = 'cursor'
				AND verdict = 'advanced' AND phase = 'purge') AS r
			ON (r.position::int, r.epoch, r.from_position::int) = (p.item, p.epoch, p.item - 1)
		WHERE p.item IS NULL OR r.seq IS NULL}),
	'0', 'with one step of the cursor for each, under the same epoch');
is( $admin->do("SELECT count(*), count(DISTINCT epoch) FROM lease.record WHERE verdict = 'taken over'"),
	join('|', scalar @stops, scalar @stops), 'each leader has taken the cursor over once');
is($admin->do('SELECT verified, problem FROM lease.verify_authority()'), 't|', 'and all that verifies');

# A superuser is not ended; whoever comes next is told which process is in the way.
my $stale = session($node);
my $epoch = $stale->do("SELECT epoch FROM lease.acquire('purge', 'root', '200 ms')") || do {
	$admin->do("SELECT lease.revoke('purge', 'test')");
	$stale->do("SELECT epoch FROM lease.acquire('purge', 'root', '200 ms')");
};
$stale->do("BEGIN; SELECT lease.take_over_cursor('purge', $epoch, 'items', '$ITEMS', 'purge')");
wait_until($node, "SELECT state = 'expired' FROM lease.status WHERE name = 'purge'", 'the grant to be over');
$epoch = $admin->do("SELECT epoch FROM lease.acquire('purge', 'next', '10 min')");
$admin->do("SET lease.busy_timeout = '100 ms'");
my $take_over = "SELECT outcome FROM lease.take_over_cursor('purge', $epoch, 'items', '$ITEMS', 'purge')";
my $answer = $admin->query($take_over);
refused($answer, 'LS006', 'the session of a superuser keeps the next leader waiting');
like($answer->{error}, qr/Process @{[ $stale->backend ]}\b/, 'who is told of it');
$admin->do('SELECT pg_terminate_backend(' . $stale->backend . ')');
is($admin->do("SET lease.busy_timeout = '60 s'; $take_over"), 'taken over', 'and can go on when it is ended');

$node->stop;
done_testing();
