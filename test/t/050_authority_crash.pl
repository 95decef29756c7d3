# Authority records: lost replies, crashes between the steps, and many writers.  G2, G3, G10;
# section 5.5 of the contract.
#
# For each kind of record, whoever writes it is cut off in a transaction that has not been
# committed, or in a COMMIT that is on disk and was not answered (it waits for a standby
# that is not there).  The server is stopped at once, one of its processes is killed, or
# the session is ended.  Then the same call is made again, under the same epoch or under
# the next: there is one record, whether the first call has made it or the second, and
# the call says which.
#
# A thousand repetitions from eight sessions at once leave one record of each kind.
#
# Eight sessions of one holder decide, open and settle, advance cursors and a floor, all on
# the same subjects, while the lease gets a new epoch again and again, of which not all
# of them know at once.  Afterwards
#
#  - the records are numbered without gaps, in the order of commits, and verify;
#  - epochs never decrease, and no record is committed after a later grant;
#  - each subject has one decision and each attempt one settlement, which everybody was
#    told; no attempt was opened while another one was open, or after one was committed;
#  - the steps of each cursor are one chain, and what was written with a step is there once.
#
# LEASE_TEST_SEED repeats the choices of a run, as far as scheduling lets it;
# LEASE_TEST_SECONDS is for how long the writers write (5 unless set).

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use LeaseTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $SECONDS = $ENV{LEASE_TEST_SECONDS} // 5;
my $WRITERS = 8;
my $REPETITIONS = 1000;

my $seed = $ENV{LEASE_TEST_SEED} // int(rand(2**31));
srand $seed;
note "LEASE_TEST_SEED=$seed";

# Without room for a standby, no COMMIT would wait for one.
my $node = new_server(
	'authority', q{
wal_level = logical
restart_after_crash = on
log_statement = none
max_connections = 40
}, allows_streaming => 1);

# sql(SQL) executes statements, which must succeed.
sub sql
{
	my ($sql) = @_;

	return $node->safe_psql('postgres', $sql);
}

# standby(NAME) makes every COMMIT wait for a standby that is not there, or, without
# a name, lets them all go.
sub standby
{
	my ($name) = @_;

	sql("ALTER SYSTEM SET synchronous_standby_names = '$name'");
	$node->reload;
	wait_until($node,
		"SELECT current_setting('synchronous_standby_names') = '$name'",
		'the new setting');
	return;
}

#----
# Lost replies, and crashes between the steps
#----

# For each kind of record: what comes before; the call; what it answers when it makes the
# record, when it is repeated, and when it is repeated under a later epoch; and how to tell
# the record.  LEASE and EPOCH are replaced.
my %kind = (
	decision => {
		call => q{SELECT outcome FROM lease.decide('LEASE', EPOCH, 's', 'yes', '{"n": 1}')},
		answers => [qw(recorded identical identical)],
		record => q{kind = 'decision'}
	},
	opening => {
		call => q{SELECT outcome FROM lease.open_attempt('LEASE', EPOCH, 's', '{"n": 1}')},
		answers => [qw(opened identical open)],
		record => q{kind = 'opened'}
	},
	settlement => {
		before => q{SELECT lease.open_attempt('LEASE', EPOCH, 's')},
		call => q{SELECT outcome FROM lease.settle_attempt('LEASE', EPOCH, 1, 'committed', '{"n": 1}')},
		answers => [qw(settled identical identical)],
		record => q{kind = 'settled'}
	},
	declaration => {
		call => q{SELECT lease.declare_destructive('LEASE', EPOCH, 'c', 'purge')},
		answers => [qw(t f f)],
		record => q{kind = 'declared'}
	},
	step => {
		before => q{SELECT lease.advance_cursor('LEASE', EPOCH, 'c', NULL, NULL, '1', 'copy')},
		call => q{SELECT outcome FROM lease.advance_cursor('LEASE', EPOCH, 'c', '1', 'copy', '2', 'copy')},
		answers => [qw(advanced identical identical)],
		record => q{position = '2'}
	},
	# Each epoch takes over for itself.
	takeover => {
		before => q{SELECT lease.advance_cursor('LEASE', EPOCH, 'c', NULL, NULL, '1', 'copy')},
		superseded => 1,
		call => q{SELECT outcome FROM lease.take_over_cursor('LEASE', EPOCH, 'c', '1', 'copy')},
		answers => [ 'taken over', 'identical', 'taken over' ],
		record => q{verdict = 'taken over'}
	},
	floor => {
		before => q{SELECT lease.advance_floor('LEASE', EPOCH, 'LEASE', 10)},
		call => q{SELECT outcome FROM lease.advance_floor('LEASE', EPOCH, 'LEASE', 20)},
		answers => [qw(advanced unchanged unchanged)],
		record => q{position = '20'}
	},
	compaction => {
		before => q{SELECT lease.decide('LEASE', EPOCH, 's' || i, 'yes', keep => '0') FROM generate_series(1, 5) AS i},
		call => q{SELECT removed, up_to FROM lease.compact('LEASE', EPOCH, before => 4)},
		answers => [ '3|3', '0|3', '0|3' ],
		record => q{kind = 'boundary'}
	});

# filled(SQL, LEASE, EPOCH) fills in what a call is made with.
sub filled
{
	my ($sql, $lease, $epoch) = @_;

	return $sql =~ s/LEASE/$lease/gr =~ s/EPOCH/$epoch/gr;
}

# acquire(LEASE) returns a new epoch of it.
sub acquire
{
	my ($lease) = @_;

	return sql("SELECT epoch FROM lease.acquire('$lease', 'A', reclaim => true)");
}

# records(LEASE, CONDITION) is how many records there are.
sub records
{
	my ($lease, $condition) = @_;

	return sql("SELECT count(*) FROM lease.record WHERE lease = '$lease' AND $condition");
}

# The ways in which whoever writes is cut off
my %cut = (
	'the server is stopped at once' => sub {
		$node->stop('immediate');
		$node->start;
	},
	'a process is killed' => sub {
		my (@sessions) = @_;
		kill 'KILL', one_of(@sessions)->backend or die "cannot kill a server process: $!";

		# The others are ended by that.
		foreach my $session (@sessions)
		{
			eval { $session->{run}->finish; };
		}
		wait_until($node, 'SELECT true', 'the server to start again');
	},
	'the sessions are ended' => sub {
		my (@sessions) = @_;
		my $backends = join ', ', map { $_->backend } @sessions;
		sql("SELECT pg_terminate_backend(pid) FROM unnest(ARRAY[$backends]) AS pid");
		wait_until($node,
			"SELECT count(*) = 0 FROM pg_stat_activity WHERE pid IN ($backends)",
			'the sessions to end');
	});

my $round = 0;
foreach my $way (sort keys %cut)
{
	foreach my $committed (0, 1)
	{
		foreach my $later (0, 1)
		{
			my (%epoch, %session);
			$round++;

			foreach my $name (sort keys %kind)
			{
				my ($kind, $lease) = ($kind{$name}, "$name/$round");
				sql("SELECT lease.create('$lease', ttl => '10 min')");
				$epoch{$name} = acquire($lease);
				sql(filled($kind->{before}, $lease, $epoch{$name})) if $kind->{before};
				$epoch{$name} = acquire($lease) if $kind->{superseded};

				$session{$name} = session($node);
				is( $session{$name}->do(
						'BEGIN; ' . filled($kind->{call}, $lease, $epoch{$name})),
					$kind->{answers}[0],
					"$name: the first call makes the record");
			}
			if ($committed)
			{
				standby('nobody');
				$_->ask('COMMIT') foreach values %session;
				wait_for_event($node, $_, 'SyncRep') foreach values %session;
			}
			$cut{$way}->(values %session);
			standby('') if $committed;

			foreach my $name (sort keys %kind)
			{
				my ($kind, $lease) = ($kind{$name}, "$name/$round");
				my ($makes, $repeats, $repeats_later) = @{ $kind->{answers} };
				my $old = $epoch{$name};

				is(records($lease, $kind->{record}), $committed,
					"$name: $way " . ($committed ? 'in COMMIT: it is there' : 'before COMMIT: it is not there'));
				my $epoch = $later ? acquire($lease) : $old;
				my $first = !$committed ? $makes : $later ? $repeats_later : $repeats;
				my $second = $first eq $makes ? $repeats : $first;
				is( sql(filled("$kind->{call}; $kind->{call}", $lease, $epoch)),
					"$first\n$second",
					'and so it is in ' . ($later ? 'the next epoch' : 'the same epoch'));
				is( records($lease, "$kind->{record} AND epoch = $old") . ' '
					  . records($lease, "$kind->{record} AND epoch <> $old"),
					join(' ', $committed || !$later ? 1 : 0, $later && $first eq $makes ? 1 : 0),
					'there is one record');
				refused(
					session($node)->query(filled($kind->{call}, $lease, $old)),
					'LS001', 'the old epoch is refused') if $later;
			}
		}
	}
}
is(sql('SELECT lease, problem FROM lease.verify_authority() WHERE NOT verified'), '', 'all verify');
is(sql('SELECT count(*) FROM lease.verify_authority()'),
	$round * keys %kind, 'which are as many as were tried');

#----
# Repetitions
#----

sql("SELECT lease.create('repeated', ttl => '10 min')");
my $epoch = acquire('repeated');
my $script = "$PostgreSQL::Test::Utils::tmp_check/repeat.sql";
append_to_file($script, "SELECT $_;\n")
  foreach map { filled($_, 'repeated', $epoch) }
  q{lease.decide('LEASE', EPOCH, 'd', 'yes', '{"n": 1}', 'old', 'new', strict => true)},
  q{lease.open_attempt('LEASE', EPOCH, 'a', '{"n": 1}')},
  q{lease.settle_attempt('LEASE', EPOCH, (SELECT attempt FROM lease.attempt WHERE lease = 'LEASE'), 'committed', strict => true)},
  q{lease.declare_destructive('LEASE', EPOCH, 'c', 'purge')},
  q{lease.advance_cursor('LEASE', EPOCH, 'c', NULL, NULL, '1', 'purge')},
  q{lease.advance_floor('LEASE', EPOCH, 'repeated', 10)};
{
	local $ENV{PGOPTIONS} = '-c lease.busy_timeout=60s';
	$node->command_ok(
		[
			'pgbench', '-n', '-c', $WRITERS, '-t', $REPETITIONS / $WRITERS, '-f', $script,
			$node->connstr('postgres')
		],
		"$REPETITIONS repetitions from $WRITERS sessions");
}
is( sql("SELECT kind, count(*) FROM lease.record WHERE lease = 'repeated' GROUP BY 1 ORDER BY 1"),
	join("\n", map { "$_|1" } qw(cursor decision declared floor opened settled)),
	'leave one record of each kind');
is( sql("SELECT verified, records, last_seq FROM lease.verify_authority('repeated')"),
	't|6|6', 'and these only');

#----
# Many writers
#----

sql(
	q{
	SELECT lease.create('jobs', ttl => '10 min');
	CREATE TABLE step (cursor text, position text, epoch bigint);
});
acquire('jobs');
my $decoding = $node->psql('postgres',
	"SELECT pg_create_logical_replication_slot('order', 'test_decoding')") == 0;

my @SUBJECTS = map { "s$_" } 1 .. 400;

# write_something() is one step of a writer, for psql: a statement that commits by itself, so that
# what is printed was committed.
sub write_something
{
	my $subject = one_of(@SUBJECTS);
	my $verdict = one_of('yes', 'no');
	my $status = one_of('committed', 'aborted', 'aborted');
	my $cursor = one_of('c1', 'c2', 'c3');

	return one_of(
		"SELECT 'decision', subject, outcome, standing_verdict, decided_epoch FROM (VALUES ('$subject')) AS v (subject),"
		  . " lease.decide('jobs', :epoch, subject, '$verdict');\n",
		"\\unset attempt\n"
		  . "SELECT attempt FROM lease.open_attempt('jobs', :epoch, '$subject') \\gset\n"
		  . maybe_sleep(0.03)
		  . "\\if :{?attempt}\n"
		  . "SELECT 'settlement', :attempt, outcome, standing_status, settled_epoch"
		  . " FROM lease.settle_attempt('jobs', :epoch, :attempt, '$status');\n"
		  . "\\endif\n",
		"\\set p 0\n\\set stands 'NULL, NULL'\n"
		  . "SELECT coalesce(max(position), '0') AS p, CASE WHEN count(*) = 0 THEN 'NULL, NULL' ELSE"
		  . " format('%L, %L', max(position), 'copy') END AS stands"
		  . " FROM lease.cursor WHERE lease = 'jobs' AND cursor = '$cursor' \\gset\n"
		  . "INSERT INTO step SELECT '$cursor', a.standing_position, :epoch FROM"
		  . " lease.advance_cursor('jobs', :epoch, '$cursor', :stands, (:p + 1)::text, 'copy', strict => true) AS a;\n",
		"SELECT 'floor', outcome FROM lease.advance_floor('jobs', :epoch, 'jobs',"
		  . " (SELECT coalesce(max(position), 0) + " . int(rand 3)
		  . " FROM lease.floor WHERE floor = 'jobs'));\n");
}

# life() is that of a writer: far longer than it will live.
sub life
{
	my $life = '';

	foreach (1 .. 4000)
	{
		$life .= "SELECT epoch FROM lease.status WHERE name = 'jobs' \\gset\n" if rand() < 0.6;

		# Several records in one transaction, too, of which not all are committed
		$life .= rand() < 0.7 ? write_something()
		  : 'BEGIN ISOLATION LEVEL ' . one_of('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE') . ";\n\\o /dev/null\n"
		  . join('', map { write_something() } 1 .. 2) . maybe_sleep(0.03) . "\\o\n"
		  . one_of('COMMIT', 'COMMIT', 'COMMIT', 'ROLLBACK') . ";\n";
	}
	return $life;
}

my @writers;
foreach my $i (1 .. $WRITERS)
{
	my $writer = session($node, sql => "SET lease.busy_timeout = '" . one_of('50 ms', '2 s') . "'");
	my $file = "$PostgreSQL::Test::Utils::tmp_check/writer_$i.sql";
	append_to_file($file, "SELECT epoch FROM lease.status WHERE name = 'jobs' \\gset\n" . life());
	$writer->client;
	$writer->ask("\\i '$file'");
	push @writers, $writer;
}

# New epochs
my $admin = session($node);
my $end = time + $SECONDS;
my $next = 0;
while (time < $end)
{
	$_->{run}->pump_nb foreach @writers;
	if (time > $next)
	{
		$admin->do("SELECT lease.acquire('jobs', 'A', reclaim => true)");
		$next = time + rand(0.3);
	}
	usleep(2_000);
}

my (%told, %errors);    # told: by what and which, then by answer
my @torn;
foreach my $writer (@writers)
{
	kill 'TERM', $writer->client;
	eval { $writer->{run}->finish; };
	$errors{$_}++ foreach $writer->{stderr} =~ /ERROR:  (\w{5}):/g;
	foreach ($writer->{stdout} =~ /^((?:decision|settlement)\|.*)\n/mg)
	{
		my ($what, $which, $outcome, $standing, $by) = split /\|/;
		$told{"$what $which"}{"$standing $by"}{$outcome}++;
	}
}
wait_until(
	$node,
	"SELECT count(*) = 0 FROM pg_stat_activity WHERE state <> 'idle'"
	  . " AND backend_type = 'client backend' AND pid <> pg_backend_pid()",
	'the writers to end');
my $written = sql("SELECT string_agg(format('%s %s times', kind, count), ', ' ORDER BY kind)"
	  . " FROM (SELECT kind, count(*) FROM lease.record WHERE lease = 'jobs' GROUP BY kind) AS k");
note "written: $written; refused: " . join(', ', map { "$_ $errors{$_} times" } sort keys %errors);

# It has to have been a run in which that could have happened.
cmp_ok($errors{$_} // 0, '>', 0, "somebody was refused with $_") foreach qw(LS001 LS008);
cmp_ok(sql("SELECT count(DISTINCT epoch) FROM lease.record WHERE lease = 'jobs'"),
	'>', $SECONDS, 'records were written under many epochs');
delete @errors{qw(LS001 LS002 LS006 LS008 40001 25P02)};
is(join(' ', %errors), '', 'and nothing else went wrong');

# none(QUERY, NAME) passes if a query returns nothing.
sub none
{
	my ($query, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return is(sql("$query LIMIT 20"), '', $name);
}

is( sql("SELECT min(seq), max(seq) - count(*), max(seq) = (SELECT last_seq FROM lease.record_chain WHERE lease = 'jobs')"
		  . " FROM lease.record WHERE lease = 'jobs'"),
	'1|0|t', 'they are numbered without gaps');
is(sql("SELECT verified, problem FROM lease.verify_authority('jobs')"), 't|', 'and verify');
none(
	q{SELECT * FROM (SELECT seq, epoch, lag(epoch) OVER (ORDER BY seq) AS before FROM lease.record WHERE lease = 'jobs') AS r
		WHERE epoch < before}, 'epochs never decrease');
none(
	q{SELECT subject, count(*) FROM lease.record WHERE lease = 'jobs' AND kind = 'decision' GROUP BY 1 HAVING count(*) > 1},
	'one decision for each subject');
none(
	q{SELECT attempt, count(*) FROM lease.record WHERE lease = 'jobs' AND kind = 'settled' GROUP BY 1 HAVING count(*) > 1},
	'one settlement for each attempt');
none(
	q{SELECT * FROM (SELECT attempt, status, settlement, lead(attempt) OVER (PARTITION BY subject ORDER BY attempt) AS next
			FROM lease.attempt WHERE lease = 'jobs') AS a
		WHERE next IS NOT NULL AND (status <> 'aborted' OR settlement >= next)},
	'an attempt is opened after the one before was aborted, only');
none(
	q{SELECT * FROM (SELECT subject, seq, from_position, position, from_phase,
				lag(position) OVER w AS before, lag(phase) OVER w AS phase_before
			FROM lease.record WHERE lease = 'jobs' AND kind = 'cursor' WINDOW w AS (PARTITION BY subject ORDER BY seq)) AS c
		WHERE (from_position, from_phase) IS DISTINCT FROM (before, phase_before)
			OR position::int <> coalesce(from_position::int, 0) + 1},
	'the steps of each cursor are one chain');
none(
	q{SELECT coalesce(s.cursor, r.subject), coalesce(s.position, r.position), count(s.*)
		FROM (SELECT * FROM lease.record WHERE lease = 'jobs' AND kind = 'cursor') AS r
			FULL JOIN step s ON (s.cursor, s.position, s.epoch) = (r.subject, r.position, r.epoch)
		GROUP BY 1, 2 HAVING count(s.*) <> 1 OR count(r.seq) <> 1},
	'and what was written with each is there once');
none(
	q{SELECT * FROM (SELECT seq, position, from_position, lag(position) OVER (ORDER BY seq) AS before
			FROM lease.record WHERE lease = 'jobs' AND kind = 'floor') AS f
		WHERE from_position IS DISTINCT FROM before OR position::int <= before::int},
	'the floor moves up only');

# What everybody was told is what stands.
my %stands = map { my ($key, $answer) = split /\|/; ($key => $answer) }
  split /\n/,
  sql(  "SELECT 'decision ' || subject, verdict || ' ' || epoch FROM lease.decision WHERE lease = 'jobs'"
	  . " UNION ALL SELECT 'settlement ' || attempt, status || ' ' || settled_epoch FROM lease.attempt WHERE lease = 'jobs'");
my @otherwise;
foreach my $what (sort keys %told)
{
	my @answers = sort keys %{ $told{$what} };
	my $makers = 0;
	$makers += $_ foreach map { ($_->{recorded} // 0) + ($_->{settled} // 0) } values %{ $told{$what} };
	push @otherwise, "$what: told @answers, stands " . ($stands{$what} // 'nothing')
	  if "@answers" ne ($stands{$what} // '');
	push @otherwise, "$what was made $makers times" if $makers > 1;
}
is(join("\n", @otherwise), '', 'everybody was told what stands, and one at most that it was his');
cmp_ok(scalar(keys %told), '>', 100, 'of many decisions and settlements');

SKIP:
{
	skip 'test_decoding is not installed', 3 unless $decoding;
	my ($last, $granted, @order, @late) = (0, 0);
	foreach my $change (split /\n/,
		sql("SELECT data FROM pg_logical_slot_get_changes('order', NULL, NULL)"))
	{
		my ($epoch) = $change =~ / epoch\[bigint\]:(\d+)/ or next;
		if ($change =~ /^table lease\.event: INSERT: name\[text\]:'jobs' .*kind\[text\]:'granted'/)
		{
			$granted = $epoch;
		}
		elsif ($change =~ /^table lease\.record: INSERT: lease\[text\]:'jobs' seq\[bigint\]:(\d+)/)
		{
			push @order, "$1 after $last" if $1 != $last + 1;
			push @late, "$1 under $epoch after the grant of $granted" if $granted > $epoch;
			$last = $1;
		}
	}
	is(join(', ', @order), '', 'in the order of commits, each has the next number');
	is(join(', ', @late), '', 'and none comes after a later grant');
	cmp_ok($granted, '>', 0, 'of which there were some');
}

$node->stop;
done_testing();
