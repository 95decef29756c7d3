# Waiting in line: CALL lease.await().  G5, G7, G8.
#
# Each attempt is a transaction of its own; of all the candidates for a lease one
# looks after it, and the others sleep in the order in which they are to have it;
# nobody who waits holds a snapshot.  Whatever ends a wait, ends it at once and leaves
# nothing: no lock, no setting, and no hole in the line.
#
# Delays are measured by the server's own clock, and judged by the median of many, as
# a busy machine may be late now and then.  The limits tell a wake-up from polling
# (every 50 ms), not a fast machine from a slow one.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use LeaseTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $BOUND = 20;      # seconds in which what is to end at once has to end
my $PROMPT = 15;     # milliseconds: the median of what does not wait for polling
my $HANDOVER = 100;  # milliseconds: the median time to pass on the line

my @REPLY = qw(name holder outcome epoch acquired_at expires_at remaining
  handover successor);

# Room for a standby that is not there, so that a COMMIT can be held up
my $node = new_server(
	'await',
	"max_connections = 250\nmax_locks_per_transaction = 128",
	allows_streaming => 1);
my $admin = session($node);
my @s = map { session($node) } 1 .. 6;

# lease(SETTINGS) creates a lease and returns its name.
my $leases = 0;
sub lease
{
	my ($settings) = @_;
	my $name = 'await-' . ++$leases;

	$admin->do("SELECT lease.create('$name', "
		  . ($settings // "ttl => '10 min'") . ')');
	return $name;
}

# acquire(SESSION, LEASE) acquires a lease that is free, and returns the epoch.
sub acquire
{
	my ($session, $lease) = @_;

	return $session->do("SELECT epoch FROM lease.acquire('$lease', 'holder')");
}

# release(SESSION, LEASE, EPOCH, MORE) releases it, and returns about when, in seconds.
sub release
{
	my ($session, $lease, $epoch, $more) = @_;
	my ($released, $at) = split /\|/,
	  $session->do("SELECT lease.release('$lease', $epoch"
		  . ($more // '')
		  . '), extract(epoch FROM clock_timestamp())');

	die "$lease is not held under $epoch" if $released ne 't';
	return $at;
}

# call(LEASE, HOLDER, ARGUMENTS) is a call of lease.await().
sub call
{
	my ($lease, $holder, $arguments) = @_;

	return "CALL lease.await('$lease', '$holder'"
	  . ($arguments ? ", $arguments)" : ')');
}

# line(LEASE) returns the processes in line, in the order in which they will be served.
sub line
{
	my ($lease) = @_;

	return split /\n/,
	  $admin->do("SELECT pid FROM lease.candidate WHERE name = '$lease' ORDER BY place");
}

# soon(QUERY, NAME) waits until a query is true.
sub soon
{
	my ($query, $name) = @_;
	my $until = time + $BOUND;

	until ($admin->do($query) eq 't')
	{
		die "timed out waiting for: $name" if time > $until;
	}
	return;
}

# queue(SESSION, LEASE, HOLDER, ARGUMENTS) has a session wait in line, and returns when
# it does: either as the first or in the lock queue.
sub queue
{
	my ($session, $lease, $holder, $arguments) = @_;
	my $pid = $session->backend;

	$session->ask(call($lease, $holder, $arguments));
	soon(
		"SELECT count(*) > 0 FROM lease.candidate JOIN pg_stat_activity AS a"
		  . " USING (pid) WHERE name = '$lease' AND pid = $pid"
		  . " AND (is_first OR a.wait_event_type = 'Lock')",
		"$holder to wait in line");
	return;
}

# reply(ANSWER) takes apart the row of an answer.
sub reply
{
	my ($answer) = @_;
	my %reply = (sqlstate => $answer->{sqlstate}, error => $answer->{error});

	@reply{@REPLY} = split /\|/, $answer->{rows}, -1;
	$reply{$_} //= '' foreach @REPLY;
	return \%reply;
}

# granted(SESSION, NAME) passes if the answer that a session waits for is a grant, and
# returns the reply.
sub granted
{
	my ($session, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $reply = reply($session->answer($BOUND));

	is($reply->{outcome}, 'granted', $name) or diag($reply->{error});
	return $reply;
}

# left(SESSION, NAME) passes if nothing is left of a session's wait.
sub left
{
	my ($session, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is( $admin->do(
			"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = "
			  . $session->backend),
		'0', $name);
	return;
}

# median(NUMBERS) returns that.
sub median
{
	my @sorted = sort { $a <=> $b } @_;

	return $sorted[ @sorted / 2 ];
}

# seconds(TIMESTAMP) returns a timestamp as a number.
sub seconds
{
	my ($timestamp) = @_;

	return $admin->do("SELECT extract(epoch FROM timestamptz '$timestamp')");
}

# report(WHAT, UNIT, NUMBERS) notes how numbers are distributed.
sub report
{
	my ($what, $unit, @numbers) = @_;
	my @sorted = sort { $a <=> $b } @numbers;

	note sprintf '%s: p50 %.2f, max %.2f %s, of %d',
	  $what, median(@sorted), $sorted[-1], $unit, scalar @sorted;
	return;
}

# standby(NAME) makes every COMMIT wait for a standby that is not there, or, without
# a name, lets them all go.
sub standby
{
	my ($name) = @_;

	$node->safe_psql('postgres',
		"ALTER SYSTEM SET synchronous_standby_names = '$name'");
	$node->reload;
	soon(
		"SELECT current_setting('synchronous_standby_names') = '$name'",
		'the new setting');
	return;
}

# waits(SESSION, EVENT) waits until a session's server process waits for an event.
sub waits
{
	my ($session, $event) = @_;

	soon(
		"SELECT wait_event = '$event' FROM pg_stat_activity WHERE pid = "
		  . $session->backend,
		"process " . $session->backend . " to wait for $event");
	return;
}

# stop_backend stops a server process that sleeps, so that it holds no lock of the
# moment; continue_backend lets it go on.
sub stop_backend
{
	my ($session) = @_;

	waits($session, 'Extension');
	kill 'STOP', $session->backend or die "cannot stop the backend: $!";
	return;
}

sub continue_backend
{
	my ($session) = @_;

	kill 'CONT', $session->backend or die "cannot continue the backend: $!";
	return;
}

# Where it can wait, and what it is told where it cannot: each attempt ends a
# transaction.
subtest 'the context of the call' => sub {
	my $lease = lease();
	my ($s) = @s;
	my $variables = "n text := '$lease'; h text := 'B'; o text; e bigint;"
	  . ' a timestamptz; x timestamptz; r interval; b boolean; u text;';
	my $call = "CALL lease.await(n, h, '1 s', NULL, 0, NULL, NULL, o, e, a, x, r, b, u);";
	my $block = "DECLARE $variables BEGIN %s $call RAISE NOTICE 'outcome %%', o; END";
	my $plain = sprintf $block, '';

	$s->do("CREATE PROCEDURE plain() LANGUAGE plpgsql AS '"
		  . ($plain =~ s/'/''/gr) . "';"
		  . " CREATE PROCEDURE atomic() LANGUAGE plpgsql SET work_mem = '1MB' AS '"
		  . ($plain =~ s/'/''/gr) . "'");
	my %refused = (
		'in a transaction block' => 'BEGIN; ' . call($lease, 'B'),
		'in a message of several' => 'SELECT 1\; ' . call($lease, 'B'),
		'in a DO block in a transaction block' => "BEGIN; DO \$\$ $plain \$\$",
		'in a procedure that has settings' => 'CALL atomic()',
		'in an exception block' =>
		  "DO \$\$ DECLARE $variables BEGIN BEGIN $call EXCEPTION"
		  . ' WHEN division_by_zero THEN NULL; END; END $$');

	foreach my $where (sort keys %refused)
	{
		my $answer = $s->query($refused{$where});

		refused($answer, '25001', $where);
		like($answer->{error}, qr/^HINT: .*lease\.acquire\(\)/m, '... with a hint');
		$s->query('ROLLBACK');
	}
	is($admin->do("SELECT state FROM lease.status WHERE name = '$lease'"),
		'free', 'nothing came of that');

	# The transaction of a DO block may be older than the grant is to last.
	my %allowed = (
		'in a DO block' => "DO \$\$ $plain \$\$",
		'in a procedure' => 'CALL plain()',
		'in a transaction that is old' => 'DO $$ '
		  . sprintf($block, 'PERFORM pg_sleep(1.1);') . ' $$',
		'under SERIALIZABLE' => 'SET default_transaction_isolation = serializable;'
		  . " DO \$\$ $plain \$\$; RESET default_transaction_isolation");
	foreach my $where (sort keys %allowed)
	{
		like($s->query($allowed{$where})->{error}, qr/outcome granted/, $where);
		$admin->do("SELECT lease.revoke('$lease')");
	}
	$s->ask("PREPARE p(text, text) AS SELECT lease.acquire(\$1, \$2);"
		  . call($lease, 'B', "ttl => NULL, timeout => NULL, metadata => '{\"a\": 1}'"));
	my $reply = granted($s, 'with nothing but nulls');
	is( $admin->do("SELECT lease.holds('$lease', $reply->{epoch}), metadata"
			  . " FROM lease.status WHERE name = '$lease'"),
		't|{"a": 1}', 'the reply has the epoch, and the lease the metadata');
	left($s, 'afterwards nothing is held');
};

subtest 'arguments and privileges' => sub {
	my $lease = lease("role => 'pg_monitor'");
	my ($s) = @s;

	$admin->do('CREATE ROLE outsider; CREATE ROLE insider IN ROLE pg_monitor;'
		  . " SELECT lease.allow('outsider'), lease.allow('insider')");
	my @cases = (
		[ 'no such lease', 'LS005', call('nothing', 'B') ],
		[ 'no name', '22004', "CALL lease.await(NULL, 'B')" ],
		[ 'no holder', '22004', "CALL lease.await('$lease', NULL)" ],
		[ 'no priority', '22004', call($lease, 'B', 'priority => NULL') ],
		[ 'a priority too high', '22023', call($lease, 'B', 'priority => 32768') ],
		[ 'a priority too low', '22023', call($lease, 'B', 'priority => -32769') ],
		[ 'a negative timeout', '22023', call($lease, 'B', "timeout => '-1 s'") ],
		[ 'a ttl of nothing', '22023', call($lease, 'B', "ttl => '0'") ],
		[ 'a negative wait', '22023', call($lease, 'B', "waited => '-1 s'") ],
		[ 'not a member', '42501', 'SET ROLE outsider; ' . call($lease, 'B') ],
		[ 'read only', '25006',
			'SET default_transaction_read_only = on; ' . call($lease, 'B') ]);
	foreach my $case (@cases)
	{
		my ($what, $sqlstate, $sql) = @$case;

		refused($s->query($sql), $sqlstate, $what);
		$s->do('RESET ROLE; RESET default_transaction_read_only');
		left($s, '... and nothing is held');
	}
	$s->ask('SET ROLE insider; ' . call($lease, 'B', 'priority => -32768'));
	granted($s, 'a member is granted it');
	$s->do('RESET ROLE');

	$admin->do("SELECT lease.revoke('$lease')");
	$s->do('SET ROLE insider');
	$s->ask(call($lease, 'B', "timeout => '1 us', waited => '999 us'"));
	granted($s, 'times that were measured may be of any size');
	$s->do('RESET ROLE');

	$s->ask('SET lease.auto_create = on; ' . call('new', 'B'));
	granted($s, 'a lease is created if that is wanted');
	$s->do('RESET lease.auto_create');
};

# The answer after the time is how the lease is then, for the first in line and for
# others.
subtest 'timeout' => sub {
	my $lease = lease();
	my ($holder, $first, $second) = @s;
	my $epoch = acquire($holder, $lease);

	my $reply =
	  reply($first->query(call($lease, 'B', "timeout => '0'")));
	is("$reply->{outcome} by $reply->{holder}, epoch $reply->{epoch}",
		'held by holder, epoch ', 'without any time the answer is there');
	is(line($lease), 0, 'and nobody has been in line');

	# It is not idle in a transaction, either.
	$_->do("SET idle_in_transaction_session_timeout = '100ms'") foreach $first, $second;
	my $start = time;
	queue($first, $lease, 'B', "timeout => '1 s'");
	queue($second, $lease, 'C', "timeout => '1 s'");
	$holder->do("BEGIN; SELECT lease.release('$lease', $epoch);"
		  . " SELECT lease.acquire('$lease', 'another'); COMMIT");
	foreach my $session ($first, $second)
	{
		my $which = $session == $first ? 'the first' : 'the second';

		$reply = reply($session->answer($BOUND));
		is( "$reply->{outcome} by $reply->{holder}",
			'held by another', "$which is told who holds it at the end");
		cmp_ok(time - $start, '>=', 1, '... not before');
		left($session, '... and holds nothing');
		is($session->do('SHOW lock_timeout'), '0', '... and lock_timeout is as it was');
	}
};

# A release wakes the first in line.  With polling alone, the median would be 25 ms.
subtest 'wake-up at a release' => sub {
	my $lease = lease();
	my ($holder, $candidate) = @s;
	my @delays;

	foreach my $end ('release', 'revoke')
	{
		foreach my $round (1 .. 20)
		{
			my $epoch = acquire($holder, $lease);
			my $at;

			queue($candidate, $lease, 'B');
			if ($end eq 'release')
			{
				$at = release($holder, $lease, $epoch);
			}
			else
			{
				$at = $admin->do("SELECT extract(epoch FROM clock_timestamp())"
					  . " FROM lease.revoke('$lease')");
			}
			my $reply = reply($candidate->answer($BOUND));
			die "not granted: $reply->{error}" if $reply->{outcome} ne 'granted';
			push @delays, 1000 * (seconds($reply->{acquired_at}) - $at);
			release($candidate, $lease, $reply->{epoch});
		}
		report("wake-up at a $end", 'ms', @delays);
		cmp_ok(median(@delays), '<', $PROMPT, "at a $end the first in line is woken");
		@delays = ();
	}
};

# The first in line sleeps until the grant and its grace are over, and no longer.
subtest 'wake-up at expiry' => sub {
	my $lease = lease("ttl => '200ms', grace => '60ms'");
	my @two = @s[ 0, 1 ];
	my (@delays, $expires);

	$two[0]->ask(call($lease, 'A'));
	foreach my $round (1 .. 13)
	{
		my ($now, $next) = @two[ $round % 2 - 1, $round % 2 ];
		my $reply = reply($now->answer($BOUND));
		my $expired = $expires;

		die "not granted: $reply->{error}" if $reply->{outcome} ne 'granted';
		$next->ask(call($lease, "candidate $round"));
		$expires = seconds($reply->{expires_at});
		push @delays, 1000 * (seconds($reply->{acquired_at}) - $expired) - 60
		  if defined $expired;
	}
	$two[1]->answer($BOUND);
	report('wake-up at expiry and grace', 'ms', @delays);
	cmp_ok((sort { $a <=> $b } @delays)[0], '>=', 0, 'never before the grace is over');
	cmp_ok(median(@delays), '<', $PROMPT, 'and then at once');
};

# The line as lease.candidate and pg_locks show it.  Who sleeps in it, has no
# snapshot; the first in line has one only while it looks.
subtest 'the line' => sub {
	my $lease = lease();
	my ($holder, @candidates) = @s;
	my @pids = map { $_->backend } @candidates;
	my $in = join ', ', @pids;
	my $epoch = acquire($holder, $lease);

	$_->do("SET default_transaction_isolation = 'repeatable read'") foreach @candidates;
	queue($candidates[$_], $lease, "C$_", 'priority => ' . (0, 0, 7, 0, -7)[$_])
	  foreach 0 .. $#candidates;
	is_deeply([ line($lease) ], [ @pids[ 2, 0, 1, 3, 4 ] ],
		'higher priority first, and then as they came');
	is( $admin->do('SELECT priority, is_first, waits > \'0\' AND waits < \'1 min\''
			  . " FROM lease.candidate WHERE name = '$lease' ORDER BY place"),
		join("\n", '7|f|t', '0|t|t', '0|f|t', '0|f|t', '-7|f|t'),
		'one of them looks after the lease');
	is( $admin->do('SELECT count(*) FROM pg_locks WHERE NOT granted'
			  . " AND locktype = 'advisory' AND pid IN ($in)"),
		'4', 'the others are in PostgreSQL\'s lock queue');

	# Everything that is older than this can be vacuumed.
	my $horizon = $admin->do('SELECT pg_current_xact_id()');
	my $snapshots = "SELECT count(*) FILTER (WHERE backend_xmin IS NOT NULL),"
	  . " count(*) FILTER (WHERE backend_xmin::text::bigint <= $horizon"
	  . " OR backend_xid IS NOT NULL) FROM pg_stat_activity WHERE pid IN ($in)";
	my ($with, $old) = (0, 0);
	foreach my $round (1 .. 50)
	{
		my ($some, $pinned) = split /\|/, $admin->do($snapshots);

		$with += $some;
		$old += $pinned;
	}
	is($old, 0, 'nobody holds a snapshot or a transaction while waiting');
	cmp_ok($with, '<', 50, 'only the first takes one now and then');

	foreach my $i (2, 0, 1, 3, 4)
	{
		release($holder, $lease, $epoch);
		$holder = $candidates[$i];
		$epoch = granted($holder, "candidate $i is granted it in its turn")->{epoch};
		left($holder, '... and has left the line');
	}
	is(line($lease), 0, 'nobody is in line any more');
};

# Who comes later must not be faster: neither while the first in line is held up, nor
# at the moment when it has been woken.
subtest 'newcomers' => sub {
	my $lease = lease();
	my ($holder, $first, $newcomer) = @s;
	my $epoch = acquire($holder, $lease);

	queue($first, $lease, 'B');
	stop_backend($first);
	release($holder, $lease, $epoch);
	foreach my $timeout ('0', '200ms')
	{
		is( reply($newcomer->query(call($lease, 'C', "timeout => '$timeout'")))
			  ->{outcome},
			'busy', "a newcomer who waits for $timeout is not granted a free lease");
	}
	$newcomer->ask(call($lease, 'D', "timeout => '0', priority => 1"));
	$epoch = granted($newcomer, 'one of a higher priority is')->{epoch};
	continue_backend($first);
	release($newcomer, $lease, $epoch);
	$epoch = granted($first, 'the first in line is, when it goes on')->{epoch};

	# The holder releases and at once wants it again, many times.
	$admin->do(
		"CREATE PROCEDURE again(n text, h text, epoch bigint) LANGUAGE plpgsql AS '
		DECLARE o text; e bigint; a timestamptz; x timestamptz; r interval;
			b boolean; u text;
		BEGIN
			PERFORM lease.release(n, epoch); COMMIT;
			CALL lease.await(n, h, NULL, ''0'', 0, NULL, NULL, o, e, a, x, r, b, u);
			RAISE NOTICE ''%'', o;
		END'");
	my ($in_line, $holds) = ($newcomer, $first);
	my $overtaken = 0;
	foreach my $round (1 .. 200)
	{
		queue($in_line, $lease, 'in line');
		my $answer = $holds->query("CALL again('$lease', 'again', $epoch)");
		$overtaken++ if $answer->{error} =~ /granted/;
		last if $overtaken;
		$epoch = reply($in_line->answer($BOUND))->{epoch};
		($in_line, $holds) = ($holds, $in_line);
	}
	is($overtaken, 0, 'who gives up the lease, does not overtake who waits for it');
	if ($overtaken)
	{
		$admin->do("SELECT lease.revoke('$lease')");
		$in_line->answer($BOUND);
	}
};

# Whoever calls again, comes where it had been.  What it says may be older than the
# machine has been up; a century is as good as a year.
subtest 'who has waited before' => sub {
	my $lease = lease();
	my ($holder, @candidates) = @s;
	my @waited = ('1 h', '0', '36500 days', '400 days', '2 h');
	my @place = (3, 4, 0, 1, 2);
	my $epoch = acquire($holder, $lease);

	queue($candidates[$_], $lease, "C$_", "waited => '$waited[$_]'") foreach 0 .. $#waited;
	is_deeply(
		[ map { $_->backend } @candidates[ sort { $place[$a] <=> $place[$b] } 0 .. 4 ] ],
		[ line($lease) ],
		'the line is in the order of the times waited');
	is( $admin->do("SELECT string_agg(date_trunc('h', waits)::text, ' ' ORDER BY place)"
			  . " FROM lease.candidate WHERE name = '$lease'"),
		'8760:00:00 8760:00:00 02:00:00 01:00:00 00:00:00',
		'which lease.candidate shows');
	foreach my $i (sort { $place[$a] <=> $place[$b] } 0 .. 4)
	{
		release($holder, $lease, $epoch);
		$holder = $candidates[$i];
		$epoch = granted($holder, "the one who had waited for $waited[$i] is next")->{epoch};
	}
};

# Whoever the lease is reserved for is found in the middle of the line, and the others
# keep their order.
subtest 'a successor in the middle of the line' => sub {
	my $lease = lease();
	my ($holder, @candidates) = @s;
	my $epoch = acquire($holder, $lease);

	queue($candidates[$_], $lease, "C$_") foreach 0 .. $#candidates;
	release($holder, $lease, $epoch, ", successor => 'C2', reserve => '1 min'");
	$epoch = granted($candidates[2], 'it is granted the lease')->{epoch};
	$holder = $candidates[2];
	is_deeply(
		[ line($lease) ],
		[ map { $candidates[$_]->backend } 0, 1, 3, 4 ],
		'the others are in line as before');

	# One that is not in line is waited for.
	my $at =
	  release($holder, $lease, $epoch, ", successor => 'nobody', reserve => '400ms'");
	my $reply = granted($candidates[0], 'after a reservation the first is');
	cmp_ok(seconds($reply->{acquired_at}) - $at, '>', 0.3, '... not before its end');
	foreach my $i (1, 3, 4)
	{
		release($candidates[0], $lease, $reply->{epoch});
		$candidates[0] = $candidates[$i];
		$reply = granted($candidates[$i], 'and then the others in their order');
	}
};

# The lease is in the hands of a transaction that has not ended: the first in line
# waits for it with a bound, and again, and is not told that it is busy.
subtest 'an uncommitted change' => sub {
	my $lease = lease();
	my ($holder, $first, $second) = @s;
	my $epoch = acquire($holder, $lease);

	$first->do("SET lease.busy_timeout = '100ms'");
	queue($first, $lease, 'B', "ttl => '10 min'");
	queue($second, $lease, 'C', "timeout => '500ms'");
	$holder->do("BEGIN; SELECT lease.revoke('$lease')");
	is(reply($second->answer($BOUND))->{outcome},
		'held', 'who has no more time is told so');
	$holder->do("ROLLBACK; BEGIN; SELECT lease.release('$lease', $epoch)");
	$second->ask(call($lease, 'C', "timeout => '300ms'"));
	is(reply($second->answer($BOUND))->{outcome},
		'held', 'nobody is granted it before the COMMIT');
	is(line($lease), 1, 'the first waits on');
	$holder->do('COMMIT');
	granted($first, 'and is granted it then');
	$first->do('RESET lease.busy_timeout');
};

# Whatever ends a wait ends it at once, wherever the candidate stands, and nothing is
# left of it.
subtest 'ends of a wait' => sub {
	my $lease = lease();
	my ($holder, $first, $second) = @s;
	my $epoch = acquire($holder, $lease);
	my @ends = (
		[ 'cancel', '57014', '', sub { 'SELECT pg_cancel_backend(' . $_[0]->backend . ')' } ],
		[ 'statement_timeout', '57014', "SET statement_timeout = '300ms'" ],
		[ 'lock_timeout', '55P03', "SET lock_timeout = '300ms'" ],
		[ 'lock_timeout before the timeout', '55P03', "SET lock_timeout = '300ms'",
			undef, "timeout => '10 min'" ],
		[ 'timeout before lock_timeout', '', "SET lock_timeout = '10min'",
			undef, "timeout => '300ms'" ]);

	foreach my $end (@ends)
	{
		my ($what, $sqlstate, $setting, $how, $arguments) = @$end;

		foreach my $place ('first', 'second')
		{
			my ($ends, $stays) =
			  $place eq 'first' ? ($first, $second) : ($second, $first);

			$ends->do($setting) if $setting;
			if ($place eq 'first')
			{
				queue($ends, $lease, 'ends', $arguments);
				queue($stays, $lease, 'stays');
			}
			else
			{
				queue($stays, $lease, 'stays');
				queue($ends, $lease, 'ends', $arguments);
			}
			my $start = time;
			$admin->do($how->($ends)) if $how;
			my $answer = $ends->answer($BOUND);
			is($answer->{sqlstate}, $sqlstate, "$what, of the $place in line");
			cmp_ok(time - $start, '<', $BOUND / 2, '... at once');
			is(reply($answer)->{outcome}, $sqlstate ? '' : 'held', '... with its answer');
			left($ends, '... and nothing is held');
			is( $ends->do('SHOW client_connection_check_interval'),
				'0', '... and the server looks for the client as before');
			like( $ends->do('SHOW lock_timeout'),
				$setting =~ /lock_timeout = '(\w+)'/ ? qr/^$1$/ : qr/^0$/,
				'... and lock_timeout is what it was');
			$ends->do('RESET statement_timeout; RESET lock_timeout');
			soon(
				"SELECT bool_and(is_first) AND count(*) = 1 FROM lease.candidate WHERE name = '$lease'",
				'the other to be the only one, and the first');
			release($holder, $lease, $epoch);
			my $reply = granted($stays, '... and the other is granted the lease');
			release($stays, $lease, $reply->{epoch});
			$epoch = acquire($holder, $lease);
		}
	}

	# A wait after one that has timed out is not bounded by it.
	is( reply($first->query(call($lease, 'B', "timeout => '100ms'")))->{outcome},
		'held', 'one wait ends');
	queue($first, $lease, 'B');
	queue($second, $lease, 'C');
	$admin->do('SELECT pg_sleep(0.3)');
	is(line($lease), 2, 'the next goes on');
	release($holder, $lease, $epoch);
	$epoch = granted($first, 'to its own end')->{epoch};
	release($first, $lease, $epoch);
	$epoch = granted($second, 'and the one behind it')->{epoch};
	release($second, $lease, $epoch);
};

# A session or a client that dies passes the line on, whichever it was.
subtest 'sessions and clients that die' => sub {
	my $lease = lease();
	my ($holder, $last) = @s;
	my $epoch = acquire($holder, $lease);

	foreach my $how ('the session', 'the client')
	{
		my ($first, $second, $third) = map { session($node) } 1 .. 3;
		my $kill = sub {
			my ($session) = @_;

			return $admin->do('SELECT pg_terminate_backend(' . $session->backend . ')')
			  if $how eq 'the session';
			kill 'KILL', $session->client or die "cannot kill psql: $!";
			return;
		};
		my $has_ended = sub {
			my ($session) = @_;

			soon(
				'SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = '
				  . $session->backend,
				'the session to end');
			left($session, '... and nothing is held');
		};

		$_->client foreach $first, $second, $third;
		queue($first, $lease, 'first');
		queue($second, $lease, 'second');
		queue($third, $lease, 'third');
		queue($last, $lease, 'last');
		my $start = time;
		$kill->($second);
		$has_ended->($second);
		cmp_ok(time - $start, '<', $BOUND, "$how in the middle of the line dies");
		$start = time;
		$kill->($first);
		$has_ended->($first);
		cmp_ok(time - $start, '<', $BOUND, "$how at its head dies");
		is_deeply(
			[ line($lease) ],
			[ $third->backend, $last->backend ],
			'the others are in line');
		$kill->($third);
		$has_ended->($third);
		release($holder, $lease, $epoch);
		$epoch = granted($last, 'and the last of them is granted the lease')->{epoch};
		($holder, $last) = ($last, $holder);
	}
};

# The lease is dropped, or given to another role, while candidates wait for it.
subtest 'changes of the lease' => sub {
	my ($holder, @candidates) = @s[ 0 .. 3 ];
	my $lease = lease();

	acquire($holder, $lease);
	queue($_, $lease, 'B') foreach @candidates;
	$admin->do("SELECT lease.drop('$lease', force => true)");
	foreach my $candidate (@candidates)
	{
		refused($candidate->answer($BOUND), 'LS005', 'the lease is dropped');
		left($candidate, '... and nothing is held');
	}

	$lease = lease("role => 'pg_monitor'");
	acquire($holder, $lease);
	$_->do('SET ROLE insider') foreach @candidates;
	queue($_, $lease, 'B') foreach @candidates;
	$admin->do("SELECT lease.alter('$lease', role => 'pg_read_all_data')");
	foreach my $candidate (@candidates)
	{
		refused($candidate->answer($BOUND), '42501', 'the lease is another role\'s');
		$candidate->do('RESET ROLE');
		left($candidate, '... and nothing is held');
	}

	# A shorter grace is seen, too.
	$lease = lease("ttl => '100ms', grace => '10 min'");
	acquire($holder, $lease);
	queue($candidates[0], $lease, 'B', "ttl => '10 min'");
	$admin->do("SELECT lease.alter('$lease', grace => '0')");
	granted($candidates[0], 'the grace is lifted');
};

# Who is held up after it has been granted the lease is told what has become of the
# grant, and not given it.  No standby confirms its COMMIT, and then the table is locked.
subtest 'held up after the grant' => sub {
	my $lease = lease();
	my ($holder, $candidate, $locker) = @s;
	my %becomes = (
		expired => '',
		revoked => "SELECT lease.revoke('$lease')",
		superseded => "SELECT lease.acquire('$lease', 'B', reclaim => true)",
		released => "SELECT lease.release('$lease', epoch) FROM lease.status WHERE name = '$lease'",
		'' => "SELECT lease.renew('$lease', epoch) FROM lease.status WHERE name = '$lease'");

	foreach my $outcome (sort keys %becomes)
	{
		my $epoch = acquire($holder, $lease);

		queue($candidate, $lease, 'B',
			$outcome eq 'expired' ? "ttl => '400ms'" : "ttl => '10 min'");
		$holder->do('SET synchronous_commit = local');
		standby('nobody');
		# The release need not wait, as nobody has to be sure of it.
		$holder->ask("SELECT lease.release('$lease', $epoch)");
		waits($candidate, 'SyncRep');

		if ($outcome eq 'expired')
		{
			$admin->do('SELECT pg_sleep(0.5)');
			standby('');
		}
		else
		{
			$locker->do('BEGIN');
			$locker->ask('LOCK TABLE lease.lease IN ACCESS EXCLUSIVE MODE');
			soon(
				'SELECT count(*) = 1 FROM pg_locks WHERE NOT granted AND pid = '
				  . $locker->backend,
				'the table to be locked next');
			standby('');
			$locker->answer;
			soon(
				'SELECT count(*) = 1 FROM pg_locks WHERE NOT granted AND pid = '
				  . $candidate->backend,
				'the candidate to look again');
			is( $admin->do(
					'SELECT count(*) FROM pg_locks WHERE locktype = \'advisory\' AND pid = '
					  . $candidate->backend),
				'0', 'it is not in line any more, and holds up nobody there')
			  if $outcome eq 'revoked';
			$locker->do("$becomes{$outcome}; COMMIT");
		}
		$holder->answer;
		my $reply = reply($candidate->answer($BOUND));
		is($reply->{outcome}, $outcome || 'granted', 'it is told how the grant stands');
		is($reply->{epoch} ne '' || 0, $outcome eq '' || 0, 'and its epoch only if live');
		$admin->do("SELECT lease.revoke('$lease')");
		$holder->do('RESET synchronous_commit');
	}
};

# One session awaits one lease after another.
subtest 'two leases' => sub {
	my @two = (lease(), lease());
	my ($holder, $candidate, $other) = @s;
	my @epochs = map { acquire($holder, $_) } @two;

	foreach my $i (0, 1)
	{
		queue($candidate, $two[$i], 'B');
		queue($other, $two[$i], 'C', "timeout => '10 min'");
		is_deeply([ line($two[ 1 - $i ]) ], [], 'it is in one line only');
		release($holder, $two[$i], $epochs[$i]);
		granted($candidate, 'and granted that lease');
		$admin->do('SELECT pg_cancel_backend(' . $other->backend . ')');
		$other->answer($BOUND);
	}
	left($candidate, 'nothing is held');
	is($admin->do("SELECT count(*) FROM lease.status WHERE holder = 'B' AND state = 'held'"
		  . " AND name IN ('$two[0]', '$two[1]')"),
		'2', 'it has both');
};

# memory(SESSION) returns how much memory a session's process has allocated.
sub memory
{
	my ($session) = @_;
	my $offset = -s $node->logfile;

	$admin->do('SELECT pg_log_backend_memory_contexts(' . $session->backend . ')');
	$node->wait_for_log(qr/\[@{[ $session->backend ]}\].* Grand total: \d+ bytes/, $offset);
	slurp_file($node->logfile, $offset) =~
	  /\[@{[ $session->backend ]}\].* Grand total: (\d+) bytes/
	  or die 'no memory contexts in the log';
	return $1;
}

# transactions(PIDS) returns how many transactions server processes have begun.
sub transactions
{
	my $in = join ', ', @_;

	return $admin->do(
		"SELECT sum(split_part(virtualtransaction, '/', 2)::bigint) FROM pg_locks"
		  . " WHERE locktype = 'virtualxid' AND pid IN ($in)");
}

# Of a long wait nothing accumulates.  Each round wakes the first in line, which looks
# and finds the lease held.
subtest 'memory' => sub {
	my $lease = lease();
	my ($holder, $first, $second) = @s;

	$holder->do(
		"CREATE PROCEDURE churn(n text, rounds int) LANGUAGE plpgsql AS '
		BEGIN
			FOR i IN 1 .. rounds LOOP
				PERFORM lease.release(n, epoch) FROM lease.status WHERE name = n;
				PERFORM lease.acquire(n, ''holder'');
				COMMIT;
				PERFORM pg_sleep(0.0005);
			END LOOP;
		END'");
	acquire($holder, $lease);
	queue($first, $lease, 'B');
	queue($second, $lease, 'C');
	$holder->do("CALL churn('$lease', 200)");
	my @before = map { memory($_) } $first, $second;
	my $transactions = transactions($first->backend);
	$holder->do("CALL churn('$lease', 1000)");
	$transactions = transactions($first->backend) - $transactions;
	my @after = map { memory($_) } $first, $second;
	cmp_ok($transactions, '>', 500, "the first has looked often ($transactions transactions)");
	is("@after", "@before", 'and neither has more memory than before');
	$admin->do("SELECT lease.revoke('$lease')");
	granted($first, 'the first is granted the lease after all');
	$admin->do("SELECT lease.revoke('$lease')");
	granted($second, 'and then the second');
};

#----
# Two hundred candidates, for which one process has as many connections
#----

my $MANY = 200;
my $lease = lease();

# connection opens one.
sub connection
{
	return DBI->connect('dbi:Pg:' . ($node->connstr('postgres') =~ s/ /;/gr) =~ s/'//gr,
		'', '', { AutoCommit => 1, RaiseError => 1, PrintError => 0, pg_server_prepare => 0 });
}

# await_lease(CONNECTION, ARGUMENTS) has one wait, without waiting for that.
sub await_lease
{
	my ($dbh, $arguments) = @_;

	$dbh->do(call($lease, $dbh->{pg_pid}, $arguments),
		{ pg_async => DBD::Pg::PG_ASYNC() });
	return;
}

# take_answer(CONNECTION) waits for the end of its wait, which must come soon, and returns
# the epoch, or undef if it does not hold the lease.
#
# (Rows of statements that ran in this way are freed twice by some versions of DBD::Pg.)
sub take_answer
{
	my ($dbh) = @_;
	my $until = time + $BOUND;

	until ($dbh->pg_ready)
	{
		die "no answer for $dbh->{pg_pid}" if time > $until;
		select(undef, undef, undef, 0.0005);
	}
	$dbh->pg_result;
	return $admin->do("SELECT epoch FROM lease.status WHERE name = '$lease'"
		  . " AND state = 'held' AND holder = '$dbh->{pg_pid}'") || undef;
}

# form_line(CONNECTIONS, PRIORITIES) has them wait one after another.
sub form_line
{
	my ($connections, $priorities) = @_;

	foreach my $i (0 .. $#$connections)
	{
		await_lease($connections->[$i],
			'priority => ' . ($priorities ? $priorities->[$i] : 0));
		soon(
			"SELECT count(*) > $i FROM lease.candidate WHERE name = '$lease'",
			"candidate $i to be in line")
		  unless $priorities;
	}
	soon(
		"SELECT count(*) = @{[ scalar @$connections ]} FROM lease.candidate"
		  . " AS c JOIN pg_stat_activity AS a USING (pid) WHERE name = '$lease'"
		  . " AND (is_first OR a.wait_event_type = 'Lock')",
		'all of them in line');
	return;
}

# hand_over(EPOCH, CONNECTIONS) has the lease go from one to the next, and returns
# the milliseconds from each release to the answer, and those who were not granted it
# in their turn.
sub hand_over
{
	my ($epoch, @connections) = @_;
	my (@delays, @wrong);

	foreach my $dbh (@connections)
	{
		my $start = time;

		release($admin, $lease, $epoch);
		$epoch = take_answer($dbh);
		push @delays, 1000 * (time - $start);
		if (!defined $epoch)
		{
			push @wrong, $dbh->{pg_pid};
			last;
		}
	}
	release($admin, $lease, $epoch) if defined $epoch;
	return (\@delays, \@wrong);
}

# shutdown_socket(CONNECTION) closes its socket: all that the server sees when a process
# is killed.
sub shutdown_socket
{
	my ($dbh) = @_;

	open my $socket, '+<&=', $dbh->{pg_socket} or die "no socket: $!";
	$dbh->{InactiveDestroy} = 1;
	shutdown $socket, 2 or die "cannot close the socket: $!";
	return;
}

SKIP:
{
	if (!eval { require DBI; require DBD::Pg; 1 })
	{
		die 'DBD::Pg is not installed' if $ENV{LEASE_ALL_DRIVERS};
		skip 'DBD::Pg is not installed', 1;
	}
	my $epoch = acquire($admin, $lease);
	my @connections = map { connection() } 1 .. $MANY;
	my @pids = map { $_->{pg_pid} } @connections;
	my %connection = map { $_->{pg_pid} => $_ } @connections;
	my $log = -s $node->logfile;

	# One of them runs transactions, and the others none at all.
	form_line(\@connections);
	is_deeply([ line($lease) ], \@pids, "$MANY candidates are in line as they came");
	my ($first, @others) = @pids;
	my $start = time;
	my @before = (transactions($first), transactions(@others));
	$admin->do('SELECT pg_sleep(2)');
	my @after = (transactions($first), transactions(@others));
	my $rate = ($after[0] - $before[0]) / (time - $start);
	is($after[1] - $before[1], 0, 'those who sleep do nothing');
	cmp_ok($rate, '>', 0, 'the first looks');
	cmp_ok($rate, '<', 60, '... now and then');
	note sprintf 'the first of %d in line: %.1f transactions per second', $MANY, $rate;
	is( $admin->do('SELECT count(*) FROM pg_stat_activity WHERE backend_xmin IS NOT NULL'
			  . ' AND pid IN (' . join(', ', @others) . ')'),
		'0', 'nobody who sleeps has a snapshot');

	# All of them, one after another
	my ($delays, $wrong) = hand_over($epoch, @connections);
	is_deeply($wrong, [], "$MANY handovers, each to the next in line");
	report("handover with $MANY in line", 'ms', @$delays);
	cmp_ok(median(@$delays), '<', $HANDOVER, 'nobody waits long');

	# With priorities the line turns.
	my @priorities = map { $_ * 7 % 5 } 0 .. $MANY - 1;
	$epoch = acquire($admin, $lease);
	form_line(\@connections, \@priorities);
	my @order = line($lease);
	my %priority = map { $pids[$_] => $priorities[$_] } 0 .. $#pids;
	is_deeply(
		[ map { $priority{$_} } @order ],
		[ sort { $b <=> $a } @priorities ],
		'higher priority first');
	($delays, $wrong) = hand_over($epoch, map { $connection{$_} } @order);
	is_deeply($wrong, [], 'that is the order in which they are granted the lease');
	report("handover with $MANY in line, of five priorities", 'ms', @$delays);
	cmp_ok(median(@$delays), '<', $HANDOVER, 'nobody waits long');

	# Those at the head die one after another, and some behind them.
	$epoch = acquire($admin, $lease);
	form_line(\@connections);
	my (%alive, @lost);
	my %passed = (client => [], session => []);
	@alive{@pids} = ();
	foreach my $round (1 .. 20)
	{
		my $how = $round % 2 ? 'client' : 'session';
		my @line = grep { exists $alive{$_} } @pids;
		my $next = $line[1];
		my $from;

		foreach my $pid ($line[0], $line[ @line / 2 ])
		{
			$from //= time;
			$how eq 'client'
			  ? shutdown_socket($connection{$pid})
			  : $admin->do("SELECT pg_terminate_backend($pid)");
			delete $alive{$pid};
			push @lost, $pid;
		}
		my $until = time + $BOUND;
		while ($admin->do("SELECT count(*) FROM pg_locks WHERE pid = $next AND granted"
				. " AND locktype = 'advisory' AND mode = 'ExclusiveLock'") eq '0')
		{
			die 'the line is not passed on' if time > $until;
		}
		push @{ $passed{$how} }, 1000 * (time - $from);
	}
	foreach my $how (sort keys %passed)
	{
		report("passing on the line when the $how at its head dies", 'ms', @{ $passed{$how} });
		cmp_ok(median(@{ $passed{$how} }),
			'<', $HANDOVER, "when the $how dies, the line is passed on");
	}
	soon(
		'SELECT count(*) = 0 FROM pg_stat_activity WHERE pid IN (' . join(', ', @lost) . ')',
		'the sessions to end');
	my @left = grep { exists $alive{$_} } @pids;
	is_deeply([ line($lease) ], \@left, 'the others are in line as before');
	($delays, $wrong) = hand_over($epoch, map { $connection{$_} } @left);
	is_deeply($wrong, [], 'and are granted the lease in that order');
	is( $admin->do("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"),
		'0', 'afterwards no lock is held');
	unlike(slurp_file($node->logfile, $log), qr/deadlock/, 'nobody met a deadlock');

	$_->disconnect foreach map { $connection{$_} } @left;
}

# A server that shuts down does not wait for who waits, and grants nobody anything.
{
	my ($holder, $first, $second) = @s;

	acquire($holder, $lease);
	queue($first, $lease, 'B');
	queue($second, $lease, 'C');
	my $start = time;
	$node->stop('fast');
	cmp_ok(time - $start, '<', $BOUND, 'the server shuts down at once');
	$node->start;
	is( $node->safe_psql('postgres',
			"SELECT state, holder FROM lease.status WHERE name = '$lease'"),
		'held|holder', 'and whoever held the lease does so still');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM lease.candidate'),
		'0', 'and nobody is in line');
}

$node->stop;
done_testing();
