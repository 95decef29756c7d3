# Many leases among many: even shares, batches without deadlock.  G1, G8, O3.
#
#  - acquire_any() waits for nobody, whatever stands in its way.
#  - Two transactions that want each other's leases: one is told that they are busy,
#    also where PostgreSQL finds the deadlock, and both can go on.
#  - Members of a pool of 64 leases spread it evenly within a few rounds when some
#    join, leave or are paused, and then leave it alone; no lease is held twice.
#  - Sessions that do everything with random batches in random order, one call or
#    several in a transaction: none ever sees 40P01, and the history is whole.
#
# LEASE_TEST_SECONDS is how long the last one takes (10 unless set); LEASE_TEST_SEED
# repeats its choices.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use LeaseTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $SECONDS = $ENV{LEASE_TEST_SECONDS} // 10;
my $SESSIONS = 12;

# Within so many rounds shares have to be even again.
my $FEW = 5;

my $node = new_server(
	'pools', q{
deadlock_timeout = 20ms
log_statement = none
log_min_messages = fatal
});

#----
# acquire_any() waits for nobody
#----

# An open transaction has done to each lease of a pool something else.
sub test_waits_for_nobody
{
	my %changes = (
		acquired => "SELECT lease.acquire('any/acquired', 'x')",
		altered => "SELECT lease.alter('any/altered', role => 'pg_monitor')",
		dropped => "SELECT lease.drop('any/dropped')",
		expired => "SELECT lease.acquire('any/expired', 'x')",
		released => "SELECT lease.release('any/released', :e_released)",
		renewed => "SELECT lease.renew('any/renewed', :e_renewed)",
		revoked => "SELECT lease.revoke('any/revoked')");
	my $other = session($node);
	my $taker = session($node, sql => "SET lock_timeout = '200ms'; SET lease.busy_timeout = '1min'");

	foreach my $lease (sort(keys %changes), 'free', 'guarded')
	{
		$other->do("SELECT lease.create('any/$lease', ttl => '10 min')");
	}
	$other->do("SELECT epoch AS e_$_ FROM lease.acquire('any/$_', 'a') \\gset\n;")
	  foreach ('released', 'renewed', 'revoked', 'guarded');
	$other->do("SELECT lease.acquire('any/expired', 'a', ttl => '1 ms')");
	$other->do("SET lease.auto_create = on");
	$other->do("BEGIN; SELECT lease.guard('any/guarded', :e_guarded)");
	$other->do("$changes{$_}") foreach sort keys %changes;
	$other->do("SELECT lease.acquire('any/new', 'x')");

	is($taker->do("SELECT name FROM lease.acquire_any('{any/*}', 'b', 1000)"),
		'any/free', 'acquire_any() takes what is free and waits for nothing else');
	is( $taker->do(
			"SET lease.auto_create = on;"
			  . " SELECT name FROM lease.acquire_any('{any/new,any/newer}', 'b', 2)"),
		'any/newer',
		'nor for a lease that is being created');
	$other->do('ROLLBACK');
	is( $taker->do(
			"SELECT string_agg(name, ' ' ORDER BY name) FROM lease.acquire_any('{any/*}', 'b', 1000)"
		),
		'any/acquired any/altered any/dropped any/expired',
		'and afterwards what has become free');
	$_->quit foreach ($other, $taker);
	return;
}

test_waits_for_nobody();

#----
# Each wants what the other has
#----

# Their waits would be over after a minute; PostgreSQL finds the deadlock at once.  (With
# another setting of evict a taker looks again and again whether who is in its way can be
# ended, and it is lease.busy_timeout that ends its wait.)
my ($one, $two) =
  map { session($node, sql => "SET lease.busy_timeout = '1min'") } 1 .. 2;
$node->safe_psql(
	'postgres', q{
	SELECT lease.create('D' || i, ttl => '10 min', evict => 'none') FROM generate_series(1, 2) AS i;
});

# crosswise(NAME, PREPARE, CALL, BUSY, WAITED) has each session do CALL to its own lease,
# and then to the other's.  One of both gets BUSY (a row or an SQLSTATE) and rolls
# back, so that the other, which waits, gets WAITED.  In CALL, N is a lease and HOLDER
# the session.
sub crosswise
{
	my ($name, $prepare, $call, $busy, $waited) = @_;
	my %by = (1 => $one, 2 => $two);
	my %first;

	$node->safe_psql('postgres',
		"SELECT lease.revoke('D1'), lease.revoke('D2'); $prepare");
	foreach my $i (1, 2)
	{
		(my $sql = $call) =~ s/\bN\b/D$i/g;
		$sql =~ s/HOLDER/h$i/g;
		$by{$i}->do("BEGIN; $sql");
	}
	foreach my $i (1, 2)
	{
		my $j = 3 - $i;
		(my $sql = $call) =~ s/\bN\b/D$j/g;
		$sql =~ s/HOLDER/h$i/g;
		$by{$i}->ask($sql);
	}

	# An error has also ended the loser's transaction, so that both may be answered.
	my ($loser, %answer);
	until (defined $loser)
	{
		foreach my $i (grep { !$answer{$_} && is_answered($by{$_}) } 1, 2)
		{
			$answer{$i} = $by{$i}->answer;
			$answer{$i} = $answer{$i}{sqlstate} || $answer{$i}{rows};
			$loser //= $i if $answer{$i} eq $busy || keys %answer == 2;
		}
		usleep(1000);
	}
	is($answer{$loser}, $busy, "$name: one of both is told '$busy'");
	$by{$loser}->do('ROLLBACK');
	my $winner = 3 - $loser;
	if (!$answer{$winner})
	{
		$answer{$winner} = $by{$winner}->answer;
		$answer{$winner} = $answer{$winner}{sqlstate} || $answer{$winner}{rows};
	}
	is($answer{$winner}, $waited, 'and the other one goes on');
	$by{$winner}->do('COMMIT');
	return;
}

# is_answered(SESSION) tells whether its oldest question has been answered.
sub is_answered
{
	my ($session) = @_;
	my $mark = 'answer ' . ($session->{answered} + 1);

	$session->{run}->pump_nb;
	return $session->{stdout} =~ /^$mark\n/m && $session->{stderr} =~ /^$mark\n/m;
}

my $acquired = "SELECT lease.acquire('D1', 'x'), lease.acquire('D2', 'x')";
my $epoch = "(SELECT epoch FROM lease.status WHERE name = 'N')";

# Of what is not committed there is no need to wait: it is a grant, too.
crosswise('acquire', '', "SELECT outcome FROM lease.acquire('N', 'HOLDER')", 'held', 'held');
crosswise('reclaim', $acquired, "SELECT outcome FROM lease.acquire('N', 'x', reclaim => true)",
	'LS006', 'granted');
crosswise('reclaim many', $acquired,
	"SELECT outcome FROM lease.acquire_many('{N}', 'x', reclaim => true)",
	'busy', 'granted');
crosswise('renew', $acquired, "SELECT outcome FROM lease.renew('N', $epoch)", 'busy', 'renewed');
crosswise('renew_many', $acquired, "SELECT outcome FROM lease.renew_many('{N}', ARRAY[$epoch])",
	'busy', 'renewed');
crosswise('release', $acquired, "SELECT lease.release('N', $epoch)", 'LS006', 't');
crosswise('revoke', $acquired, "SELECT lease.revoke('N') = $epoch", 'LS006', 't');

# Inside COMMIT nobody can be told that it is busy: of two COMMITs each of which needs
# what the other has taken back, one fails as a deadlock, the other because of that.
sub test_deadlock_in_commit
{
	$node->safe_psql('postgres', "SELECT lease.revoke('D1'), lease.revoke('D2'); $acquired");
	foreach my $i (1, 2)
	{
		my $j = 3 - $i;
		my $session = $i == 1 ? $one : $two;

		$session->do("SELECT epoch AS e FROM lease.status WHERE name = 'D$i' \\gset\n;");
		$session->do("BEGIN; SELECT lease.guard('D$i', :e)");
		$session->do("SELECT lease.revoke('D$j')");
	}
	$_->ask('COMMIT') foreach ($one, $two);
	is( join(' ', sort map { $_->answer->{sqlstate} } ($one, $two)),
		' 40P01',
		'of two COMMITs under what the other revokes, one is a deadlock and one goes on');
	return;
}

test_deadlock_in_commit();
$_->quit foreach ($one, $two);

#----
# Even shares
#----

# The clock of a round is 20 s ahead of that of the one before: who misses two rounds
# has lost its leases by the third, and is stale.
my $ROUND = 20;
my $clock = 0;
my %members;

$node->safe_psql(
	'postgres', q{
	SELECT lease.create('shard/' || to_char(i, 'FM00'), ttl => '50 s') FROM generate_series(1, 64) AS i;

	-- What members were told and what they gave back, in the same transactions
	CREATE TABLE told (name text, epoch bigint, holder text, began timestamptz, ends timestamptz);
	CREATE TABLE gave_back (name text, epoch bigint);

	-- The turn of one member; what it believes to hold is in a table of its session.
	CREATE PROCEDURE take_turn(me text) LANGUAGE plpgsql AS $$
	DECLARE
		names text[];
		epochs bigint[];
		to_do record;
	BEGIN
		PERFORM lease.beat(me, stale_after => '50 s');
		COMMIT;

		SELECT coalesce(array_agg(m.name), '{}'), coalesce(array_agg(m.epoch), '{}') INTO names, epochs
			FROM (SELECT * FROM mine ORDER BY random()) AS m;
		WITH r AS (
			SELECT * FROM lease.renew_many(names, epochs) WHERE outcome = 'renewed'
		), t AS (
			INSERT INTO told SELECT r.name, r.epoch, r.holder, r.acquired_at, r.expires_at FROM r
		)
		DELETE FROM mine WHERE name NOT IN (SELECT r.name FROM r);
		COMMIT;

		SELECT * INTO to_do FROM lease.share('shard/*', me);
		COMMIT;

		WITH d AS (
			DELETE FROM mine WHERE name = ANY (to_do.hand_over) RETURNING name, epoch
		), g AS (
			INSERT INTO gave_back SELECT * FROM d
		)
		SELECT array_agg(d.name), array_agg(d.epoch) INTO names, epochs FROM d;
		IF names IS NOT NULL THEN
			PERFORM lease.release_many(names, epochs);
		END IF;
		COMMIT;

		IF to_do.take > 0 THEN
			WITH a AS (
				SELECT * FROM lease.acquire_any('{shard/*}', me, to_do.take::int)
			), m AS (
				INSERT INTO mine SELECT a.name, a.epoch FROM a
			)
			INSERT INTO told SELECT a.name, a.epoch, a.holder, a.acquired_at, a.expires_at FROM a;
		END IF;
	END;
	$$;

	-- It leaves in good order.
	CREATE FUNCTION leave(me text) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO gave_back SELECT * FROM mine;
		PERFORM lease.release_many(array_agg(name), array_agg(epoch)) FROM mine;
		DELETE FROM mine;
		PERFORM lease.retire(me);
	END;
	$$;
});

# join(MEMBER...) lets members join.
sub join_pool
{
	foreach my $member (@_)
	{
		$members{$member} = session($node,
			sql => 'CREATE TEMP TABLE mine (name text, epoch bigint)');
	}
	return;
}

# play_round(MEMBER...) lets members take their turns, all at once, and returns how many
# leases each of them believes to hold; none may be believed to be held by two.
sub play_round
{
	my @active = @_;
	my (%count, %believed);

	$clock += $ROUND;
	$members{$_}->ask("SET lease.clock_offset = '$clock s'; CALL take_turn('$_')") foreach @active;
	foreach my $member (@active)
	{
		my $answer = $members{$member}->answer;
		die $answer->{error} if $answer->{error} ne '';
	}
	foreach my $member (@active)
	{
		my @mine = split /\n/, $members{$member}->do('SELECT name FROM mine');
		$count{$member} = @mine;
		$believed{$_}++ foreach @mine;
	}
	my @twice = grep { $believed{$_} > 1 } sort keys %believed;
	fail("held by two: @twice") if @twice;
	return %count;
}

# is_even(COUNT...) tells whether numbers of leases are an even spread of all.
sub is_even
{
	my @counts = sort { $a <=> $b } @_;
	my $sum = 0;

	$sum += $_ foreach @counts;
	return $sum == 64 && $counts[-1] - $counts[0] <= 1;
}

# number_of_events() is how many events there are.
sub number_of_events
{
	return $node->safe_psql('postgres', 'SELECT count(*) FROM lease.event');
}

# spreads(NAME, MEMBER...) passes if these members come to an even spread within a few
# rounds, and if nothing moves any more then.
sub spreads
{
	my ($name, @active) = @_;
	my @spreads;
	my %count;

	do
	{
		%count = play_round(@active);
		push @spreads, join(' ', map { $count{$_} } @active);
	} until is_even(values %count) || @spreads >= 2 * $FEW;
	cmp_ok(scalar @spreads, '<=', $FEW, "$name: even after " . @spreads . ' rounds')
	  || diag(join "\n", @spreads);
	note "$name: " . join(', ', @spreads);

	my $before = number_of_events();
	play_round(@active) foreach 1 .. 3;
	is(number_of_events(), $before, 'and then nothing moves');
	return;
}

# test_even_shares() lets members come and go.
sub test_even_shares
{
	my @names = map { "m$_" } 1 .. 8;

	join_pool(@names, 'm9');
	spreads('seven at once', @names[ 0 .. 6 ]);
	spreads('an eighth joins', @names);

	$members{m3}->do("SELECT leave('m3')");
	spreads('one leaves', grep { $_ ne 'm3' } @names);
	spreads('it joins again', @names);

	# It believes on; only its grants are over.
	spreads('one is paused', grep { $_ ne 'm5' } @names);
	is($members{m5}->do('SELECT count(*) FROM mine'), '8', 'the paused one believes to hold eight');
	spreads('it goes on', @names);

	# Two never come back and one is new.
	spreads('two are lost and one joins', grep { $_ !~ /m[12]/ } @names, 'm9');
	spreads('all but one are lost', 'm9');
	spreads('they go on', @names, 'm9');

	$_->quit foreach values %members;
	return;
}

test_even_shares();

# A lease that was not given back was free no sooner than its holder had been told.
is( $node->safe_psql(
		'postgres', q{
		SELECT g.name, g.epoch, g.ends, g.next_began FROM (
			SELECT name, epoch, max(ends) AS ends,
				lead(min(began)) OVER (PARTITION BY name ORDER BY epoch) AS next_began
			FROM told GROUP BY name, epoch) AS g
		WHERE next_began < ends - interval '1 ms'
			AND NOT EXISTS (SELECT FROM gave_back b WHERE b.name = g.name AND b.epoch = g.epoch)
	}),
	'',
	'O3: no grant began while another was live');
cmp_ok(
	$node->safe_psql('postgres',
		"SELECT count(*) FROM lease.event WHERE name LIKE 'shard/%' AND kind = 'expired'"),
	'>=', 8, 'and there were grants that expired');

#----
# Everything at random
#----

my $seed = $ENV{LEASE_TEST_SEED} // int(rand(2**31));
srand $seed;
note "LEASE_TEST_SEED=$seed";

# What the holder calls is picked in the database, which knows the epochs; each call
# has its leases in random order.  Answers are counted.
$node->safe_psql(
	'postgres', q{
	SELECT lease.create('mix/' || i, ttl => '10 min') FROM generate_series(1, 24) AS i;
	CREATE FUNCTION pick(most int, filter text DEFAULT NULL, OUT names text[], OUT epochs bigint[]) LANGUAGE sql AS $$
		SELECT coalesce(array_agg(s.name), '{}'), coalesce(array_agg(coalesce(s.epoch, 1)), '{}') FROM (
			SELECT * FROM lease.status WHERE name LIKE 'mix/%' AND (filter IS NULL OR holder = filter AND state = 'held')
			ORDER BY random() LIMIT 1 + random() * (most - 1)) AS s
	$$;
	CREATE FUNCTION pick_one(filter text DEFAULT NULL, OUT name text, OUT epoch bigint) LANGUAGE sql AS $$
		SELECT names[1], epochs[1] FROM pick(1, filter)
	$$;
});

# call(HOLDER) is a call of one of our functions for psql, whose answer is a line for
# each lease.
sub call
{
	my ($holder) = @_;
	my $whose = one_of("'$holder'", "'$holder'", 'NULL');
	my $reclaim = one_of('true', 'false', 'false');

	return one_of(
		"SELECT 'acquire_many', r.outcome FROM pick(12) s, LATERAL lease.acquire_many(s.names, '$holder', reclaim => $reclaim) r",
		"SELECT 'acquire_any', r.outcome FROM lease.acquire_any("
		  . one_of("'{mix/*}'", "'{mix/1*,mix/2*,mix/3}'", "'{*}'")
		  . ", '$holder', "
		  . one_of(1, 3, 12) . ') r',
		"SELECT 'renew_many', r.outcome FROM pick(12, $whose) s, LATERAL lease.renew_many(s.names, s.epochs) r",
		"SELECT 'release_many', r.released FROM pick(8, $whose) s, LATERAL lease.release_many(s.names, s.epochs) r",
		"SELECT 'acquire', r.outcome FROM pick_one() s, LATERAL lease.acquire(s.name, '$holder', reclaim => $reclaim) r WHERE s.name IS NOT NULL",
		"SELECT 'renew', r.outcome FROM pick_one($whose) s, LATERAL lease.renew(s.name, s.epoch) r WHERE s.name IS NOT NULL",
		"SELECT 'release', lease.release(s.name, s.epoch) FROM pick_one($whose) s",
		one_of(
			"SELECT 'revoke', lease.revoke(s.name) > 0 FROM pick_one() s WHERE s.name IS NOT NULL",
			"SELECT 'alter', lease.alter(s.name, min_hold => '1 ms') FROM pick_one() s WHERE s.name IS NOT NULL")
	) . ";\n";
}

# transaction(HOLDER) is one call, or several in one transaction.
sub transaction
{
	my ($holder) = @_;
	my $level = one_of('READ COMMITTED', 'READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE');

	return call($holder) if rand() < 0.4;
	return "BEGIN ISOLATION LEVEL $level;\n"
	  . join('',
		map { call($holder), one_of('', '', '', "SELECT pg_sleep(0.002) \\g /dev/null\n") } 0 .. rand(5))
	  . one_of('COMMIT', 'COMMIT', 'COMMIT', 'ROLLBACK', "SAVEPOINT s;\n" . call($holder) . one_of('ROLLBACK TO s', 'RELEASE s') . ";\nCOMMIT")
	  . ";\n";
}

# Not with those of other tests, which may have the same names
my $scripts = PostgreSQL::Test::Utils::tempdir();

# start(NAME, SETTINGS, STATEMENTS...) starts a session that does them again and again.
sub start
{
	my ($name, $settings, @statements) = @_;
	my $file = "$scripts/$name.sql";
	my $session = session($node, sql => $settings);

	append_to_file($file, join('', @statements) . "\\i '$file'\n");
	$session->client;
	$session->ask("\\i '$file'");
	return $session;
}

# test_random_batches() looks for what must not happen to anybody.
sub test_random_batches
{
	my $deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'";
	my $before = $node->safe_psql('postgres', $deadlocks);
	my (%outcomes, %errors);
	my @sessions;

	foreach my $i (1 .. $SESSIONS)
	{
		my $timeout = one_of('2s', '2s', '50ms', '0');
		push @sessions,
		  start("session_$i", "SET lease.busy_timeout = '$timeout'",
			map { transaction("session $i") } 1 .. 1000);
	}

	# Leases of a pool that come and go while others take from it: who names none of
	# them has to hear of none of them.
	push @sessions,
	  start('changes', 'SET client_min_messages = error',
		map {
			my $lease = 'odd/' . one_of(1 .. 20);
			one_of("SELECT lease.create('$lease');\n", "SELECT lease.drop('$lease', force => true);\n")
		} 1 .. 1000);
	push @sessions,
	  start('takes', 'SELECT 1',
		"SELECT 'odd', outcome FROM lease.acquire_any('{odd/*}', 'odd', 20, '500 ms');\n" x 1000);
	my ($changes, $takes) = @sessions[ -2, -1 ];

	my $end = time + $SECONDS;
	while (time < $end)
	{
		$_->{run}->pump_nb foreach @sessions;
		usleep(10_000);
	}
	foreach my $session (@sessions)
	{
		kill 'TERM', $session->client;
		eval { $session->{run}->finish; };
		$outcomes{"$1 $2"}++ while $session->{stdout} =~ /^(\w+)\|(\w*)$/mg;
		next if $session == $changes;
		$errors{$_}++ foreach $session->{stderr} =~ /(?:ERROR|FATAL|PANIC):  (\w{5}):/g;
		fail("who takes is told: $1") if $session == $takes && $session->{stderr} =~ /ERROR:  (.*)/;
	}
	my @others = $changes->{stderr} =~ /(?:ERROR|FATAL|PANIC):  (?!LS005|42710|LS006)(.*)/g;
	is("@others", '', 'a lease that comes and goes');
	wait_until(
		$node,
		"SELECT count(*) = 0 FROM pg_stat_activity WHERE state <> 'idle'"
		  . " AND backend_type = 'client backend' AND pid <> pg_backend_pid()",
		'the sessions to end');

	note 'answers: ' . join(', ', map { "$_ $outcomes{$_}" } sort keys %outcomes);
	note 'errors: ' . join(', ', map { "$_ $errors{$_}" } sort keys %errors);
	note 'deadlocks found: ' . ($node->safe_psql('postgres', $deadlocks) - $before);
	ok(!$errors{'40P01'}, 'no deadlock');
	ok($outcomes{$_}, "there was: $_")
	  foreach ('acquire_many granted', 'acquire_many busy', 'acquire_any granted',
		'renew_many renewed', 'release_many t', 'acquire granted', 'renew renewed',
		'release t', 'revoke t', 'odd granted');

	# 25P02 and 3B001 follow from another error in the same transaction.
	delete @errors{qw(LS006 25P02 3B001)};
	is(join(', ', map { "$_ ($errors{$_})" } sort keys %errors),
		'', 'nor any error but LS006');
	is( $node->safe_psql('postgres',
			'SELECT lease, problem FROM lease.verify_history() WHERE NOT verified'),
		'',
		'and the history is whole');
	is( $node->safe_psql(
			'postgres', q{
			SELECT name, seq FROM (
				SELECT name, seq, kind, lag(kind) OVER (PARTITION BY name ORDER BY seq) AS before
				FROM lease.event WHERE kind IN ('granted', 'released', 'revoked', 'expired', 'superseded', 'dropped')) AS e
			WHERE kind = 'granted' AND before = 'granted'
		}),
		'',
		'O3: each grant ended before the next');
	return;
}

test_random_batches();

$node->stop;
done_testing();
