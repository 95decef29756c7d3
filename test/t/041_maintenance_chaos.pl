# A thousand occurrences under schedulers that are killed, paused and refused.  G3, G7.
#
# Two to eight schedulers, each a psql that runs a script, share the tasks of one lease:
# whoever has it asks lease.due(), and begins, does and finishes one occurrence after the
# other; what is to be done is a row in a protected table that no constraint keeps
# from being there twice.  Most do all of it in one transaction, some commit what they
# have begun first.  Meanwhile they are killed, stopped and continued, their statements
# are cancelled, their connections ended, the lease is revoked, and transactions are rolled
# back or fail in their COMMIT.  Whoever is gone is replaced.  When all is done,
#
#  - each occurrence is settled once, done, and has one effect, that of the attempt which
#    says so; none was passed over, and there is none that the schedule has not;
#  - each attempt is there, numbered without gaps, and those that came to nothing are
#    failed or abandoned: each that somebody was told of is among them;
#  - in the order of commits, no effect follows a grant with a later epoch;
#  - and there were no errors but those that the contract names.
#
# LEASE_TEST_SEED repeats the choices of a run; LEASE_TEST_OCCURRENCES is for more.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use LeaseTest;
use List::Util qw(max min shuffle);
use POSIX ':sys_wait_h';
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $OCCURRENCES = $ENV{LEASE_TEST_OCCURRENCES} // 1000;
my $TASKS = 25;
my $EACH = max(1, int($OCCURRENCES / $TASKS));    # occurrences of a task, one a second
my $CHAOS = 3 * $EACH + 20;                       # seconds, at most
my @SCHEDULERS = (2, 8);                          # from, to
my $TTL = '600 ms';
my $PAUSE = 0.05;                                 # seconds, at most, in an attempt
my $STEPS = 60;                                   # of a script
my $SCRIPTS = 12;

my $seed = $ENV{LEASE_TEST_SEED} // int(rand(2**31));
srand $seed;
note "LEASE_TEST_SEED=$seed";

my $node = new_server(
	'maintenance_chaos', q{
wal_level = logical
log_statement = none
log_min_messages = fatal
});

plan skip_all => 'test_decoding is not installed'
  if $node->psql('postgres',
	"SELECT pg_create_logical_replication_slot('order', 'test_decoding')") != 0;

$node->safe_psql(
	'postgres', qq{
	SELECT lease.create('jobs', ttl => '$TTL');
	CREATE TABLE effect (task text, due_at timestamptz, attempt int, epoch bigint, doomed boolean);
	SELECT lease.protect('effect', 'jobs');
	CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN RAISE EXCEPTION ''this COMMIT fails''; END';
	CREATE CONSTRAINT TRIGGER fail AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW WHEN (NEW.doomed) EXECUTE FUNCTION fail();
});

# The first of a task is due after the definition, which is of one instant, by less than a
# second, so that each has as many.
$node->safe_psql(
	'postgres', qq{
	SELECT lease.create_task('t' || i, 'jobs', every => '1 s', anchor => lease.transaction_time() + i * interval '30 ms',
		misfire => 'all', misfire_after => '2 s', misfire_window => '1 h', max_attempts => 1000, retry_after => '20 ms')
	FROM generate_series(1, $TASKS) AS i});
my $first = $node->safe_psql('postgres', 'SELECT DISTINCT since FROM lease.task_cursor');
my $until = $node->safe_psql('postgres', "SELECT timestamptz '$first' + interval '$EACH s'");
$node->safe_psql(
	'postgres', qq{
	CREATE VIEW expected AS
		SELECT t.name AS task, o AS due_at
		FROM lease.task t
			CROSS JOIN LATERAL lease.occurrences(every => t.every, anchor => t.anchor,
				after => '$first', until => '$until', up_to => NULL) AS o;
});
my $expected = $TASKS * $EACH;
is($node->safe_psql('postgres', 'SELECT count(*) FROM expected'),
	$expected, 'that many occurrences are to come');

#----
# Schedulers
#----

# transaction(WORK, TOLD, END) is a transaction, and what is told when its COMMIT was
# answered.  psql knows no error but that of the latest statement, and an aborted
# transaction ends without one; so "good" is read in it.
sub transaction
{
	my ($work, $told, $end) = @_;

	return "\\set good false\nBEGIN;\n$work"
	  . ($end eq 'COMMIT'
		? "SELECT true AS good \\gset\n\\if :good\nCOMMIT;\n\\if :ERROR\n\\set good false\n"
		  . "\\else\n\\echo $told\n\\endif\n\\else\nROLLBACK;\n\\endif\n"
		: "ROLLBACK;\n");
}

# step() is what a scheduler does once, for psql.  Variables: me, its name; holding,
# whether it has the lease; epoch, if so.
sub step
{
	my $task = 't' . (1 + int rand $TASKS);
	my $sleep = 'SELECT pg_sleep(0.02) \g /dev/null';

	# What is due: the earliest of one task, or something of all.  What was begun under this
	# epoch and not finished is ours to finish.
	my $due = rand() < 0.9
	  ? "lease.due('$task', NULL)"
	  : 'lease.due(NULL, 50)';
	my $begin =
	  "\\set mine false\n"
	  . "SELECT outcome IN ('started', 'running') AS mine, attempt"
	  . " FROM lease.begin_occurrence(:'task', :'due_at', :epoch) \\gset\n";
	my $verdict = rand() < 0.05 ? 'failed' : 'done';
	my $doomed = rand() < 0.05 ? 'true' : 'false';
	my $finish =
	  "\\set settled false\n"
	  . "SELECT settled FROM lease.finish_occurrence(:'task', :'due_at', :attempt, :epoch, '$verdict') \\gset\n";
	my $effect = $verdict eq 'failed' ? '' :
	  "INSERT INTO effect VALUES (:'task', :'due_at', :attempt, :epoch, $doomed);\n";
	my $end = rand() < 0.05 ? 'ROLLBACK' : 'COMMIT';
	my $done = "$verdict :task :attempt :epoch :due_at";
	my $work = rand() < 0.75
	  ? transaction(
		"$begin\\if :mine\n" . $effect . maybe_sleep($PAUSE) . $finish . maybe_sleep($PAUSE) . "\\endif\n",
		$done, $end)
	  : transaction($begin, 'begun :task :attempt :epoch :due_at', 'COMMIT')
	  . "\\if :good\n\\if :mine\n"
	  . maybe_sleep($PAUSE)
	  . transaction("$finish\\if :settled\n" . $effect . maybe_sleep($PAUSE) . "\\endif\n", $done, $end)
	  . "\\endif\n\\endif\n";

	my $acquire = one_of(
		"CALL lease.await('jobs', :'me', timeout => '5 s') \\gset a_\n",
		"CALL lease.await('jobs', :'me', timeout => '5 s') \\gset a_\n",
		"SELECT epoch AS a_epoch FROM lease.acquire('jobs', :'me') \\gset\n$sleep\n");
	my $renew =
	  rand() < 0.3
	  ? "\\unset r_epoch\nSELECT epoch AS r_epoch FROM lease.renew('jobs', :epoch) \\gset\n"
	  . "\\if :{?r_epoch}\n\\else\n\\set holding false\n\\endif\n"
	  : '';
	my $release = rand() < 0.01
	  ? "\\set holding false\nSELECT lease.release('jobs', :epoch) \\g /dev/null\n"
	  : '';

	# Null unsets a variable.  What has failed may have failed because the lease is lost.
	return "\\if :holding\n$release\\else\n\\unset a_epoch\n$acquire"
	  . "\\if :{?a_epoch}\n\\set epoch :a_epoch\n\\set holding true\n\\endif\n\\endif\n"
	  . "\\if :holding\n$renew\\unset task\n"
	  . "SELECT task, due_at FROM $due WHERE (ready OR state = 'running' AND epoch = :epoch)"
	  . " AND due_at <= :'until' LIMIT 1 \\gset\n"
	  . "\\if :{?task}\n$work"
	  . "\\if :good\n\\else\n\\set holding false\nSELECT lease.holds('jobs', :epoch) AS holding \\gset\n\\endif\n"
	  . "\\else\n$sleep\n\\endif\n\\endif\n";
}

my $directory = $PostgreSQL::Test::Utils::tmp_check;
my @scripts = map { "$directory/script_$_.sql" } 1 .. $SCRIPTS;
append_to_file($_, join('', map { step() } 1 .. $STEPS)) foreach @scripts;

my %running;     # by process number: name; resume_at, if it is stopped
my @outputs;     # where each that was ever started has left what it was told
my %count = map { $_ => 0 } qw(kill stop cancel terminate revoke);

# start_scheduler starts one.
sub start_scheduler
{
	my $name = 'scheduler_' . (1 + @outputs);
	my $output = "$directory/$name";
	my @files = map { ('-f', $_) } map { shuffle(@scripts) } 1 .. 30;
	my $pid = fork() // die "cannot fork: $!";

	push @outputs, $output;
	if ($pid == 0)
	{
		local $ENV{PGAPPNAME} = $name;
		local $SIG{__DIE__} = sub { POSIX::_exit(1) };
		open(STDIN, '<', '/dev/null') or die;
		open(STDOUT, '>', "$output.out") or die;
		open(STDERR, '>', "$output.err") or die;
		{ exec('psql', '-XAtq', '-v', 'VERBOSITY=verbose', '-v', "me=$name", '-v', "until=$until",
				'-v', 'holding=false', '-d', $node->connstr('postgres'), @files) };
		POSIX::_exit(1);
	}
	$running{$pid} = { name => $name };
	return;
}

# stop_all ends every scheduler.
sub stop_all
{
	foreach my $pid (keys %running)
	{
		kill 'KILL', $pid;
		waitpid $pid, 0;
	}
	%running = ();
	return;
}
END { local $?; stop_all() }

# look_after(WANTED) continues whoever was stopped for long enough, and replaces whoever
# is gone.
sub look_after
{
	my ($wanted) = @_;

	foreach my $pid (keys %running)
	{
		delete $running{$pid}, next if waitpid($pid, WNOHANG) != 0;
		next unless ($running{$pid}{resume_at} // time) < time;
		kill 'CONT', $pid;
		delete $running{$pid}{resume_at};
	}
	start_scheduler() while keys %running < $wanted;
	return;
}

my $admin = session($node, sql => "SET lease.busy_timeout = '50 ms'");

# disturb(PROCESS) does something to a scheduler.
sub disturb
{
	my ($pid) = @_;
	my $what = one_of(qw(kill kill stop stop stop cancel cancel terminate revoke));
	my $backend =
	  "SELECT %s(pid) FROM pg_stat_activity WHERE application_name = '$running{$pid}{name}'";

	# In the middle of something, if that can be
	usleep(rand(40_000));
	if ($what eq 'kill')
	{
		kill 'KILL', $pid;
	}
	elsif ($what eq 'stop')
	{
		return if defined $running{$pid}{resume_at};
		kill 'STOP', $pid;
		$running{$pid}{resume_at} = time + one_of(0.02, 0.3, 0.3, 1, 3) * (1 + rand());
	}
	elsif ($what eq 'cancel')
	{
		$admin->query(sprintf $backend, 'pg_cancel_backend');
	}
	elsif ($what eq 'terminate')
	{
		$admin->query(sprintf $backend, 'pg_terminate_backend');
	}
	else
	{
		$admin->query("SELECT lease.revoke('jobs', 'chaos')");
	}
	$count{$what}++;
	return;
}

#----
# Chaos
#----

my $remaining = 'SELECT ' . $expected . " - count(*) FROM lease.occurrence WHERE verdict = 'done' AND due_at <= '$until'";
my $wanted = 0;
my $began = time;
my $next_change = 0;
while (time < $began + $CHAOS)
{
	if (time > $next_change)
	{
		$wanted = $SCHEDULERS[0] + int rand(1 + $SCHEDULERS[1] - $SCHEDULERS[0]);
		$next_change = time + 2 + rand(4);
	}
	look_after($wanted);

	# Half of the time whoever has the lease
	my $holder = $admin->do("SELECT holder FROM lease.status WHERE name = 'jobs'");
	my ($leader) = grep { $running{$_}{name} eq $holder } keys %running;
	disturb(rand() < 0.5 && $leader ? $leader : one_of(sort keys %running));
	usleep(rand(450_000));
	last if $admin->do($remaining) == 0;
}
my $settled_in_chaos = $expected - $admin->do($remaining);
note sprintf('%d of %d settled after %.0f s of chaos', $settled_in_chaos, $expected, time - $began);

# Without further disturbance the rest is done, and nothing is left behind.
$_->{resume_at} = 0 foreach grep { defined $_->{resume_at} } values %running;
my $calm = time;
while ($admin->do($remaining) != 0)
{
	die 'not all is done in the end: ' . $admin->do($remaining)
	  if time > $calm + $PATIENCE;
	look_after($SCHEDULERS[0]);
	usleep(50_000);
}
stop_all();
wait_until(
	$node,
	"SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name LIKE 'scheduler%'",
	'the schedulers to end');

#----
# What was told
#----

my (%told, %errors);
foreach my $output (@outputs)
{
	foreach my $line (split /\n/, slurp_file("$output.out"))
	{
		my ($what, $task, $attempt, $epoch, $due_at) =
		  $line =~ /^(begun|done|failed) (\S+) (\d+) (\d+) (.*)/
		  or next;
		$told{"$task|$due_at|$attempt|$epoch"}{$what} = 1;
	}
	my $errors = slurp_file("$output.err");
	$errors{$_}++ foreach $errors =~ /(?:ERROR|FATAL|PANIC):  (\w{5}):/g;
}
note 'errors: ' . join(', ', map { "$_ $errors{$_} times" } sort keys %errors);

my %attempts =
  map { my ($verdict, $key) = split /\|/, $_, 2; ($key => $verdict) }
  split /\n/,
  $node->safe_psql('postgres',
	'SELECT verdict, task, due_at, attempt, epoch FROM lease.occurrence_attempt');
my (@lost, @other);
foreach my $attempt (sort keys %told)
{
	my $verdict = $attempts{$attempt} // '';

	push @lost, $attempt if $verdict eq '';
	push @other, $attempt
	  if $told{$attempt}{done} && $verdict ne 'done'
	  || $told{$attempt}{failed} && $verdict ne 'failed';
}
is(join(', ', @lost), '', 'each attempt of which somebody was told is there');
is(join(', ', @other), '', 'with the verdict that was told');

#----
# What is there
#----

# none(QUERY, NAME) passes if a query returns nothing.
sub none
{
	my ($query, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return is($node->safe_psql('postgres', "$query LIMIT 20"), '', $name);
}

is( $node->safe_psql(
		'postgres', q{
	SELECT count(*) FROM lease.occurrence o JOIN expected USING (task, due_at)
	WHERE o.verdict = 'done' AND o.settled_at IS NOT NULL}),
	$expected,
	'each occurrence is settled, and done');
none('SELECT task, due_at FROM lease.occurrence EXCEPT SELECT * FROM expected',
	'and there is none that the schedule has not');
none(
	'SELECT e.task, e.due_at, count(f.task) FROM expected e LEFT JOIN effect f USING (task, due_at)'
	  . ' GROUP BY 1, 2 HAVING count(f.task) <> 1',
	'each has one effect');
is($node->safe_psql('postgres', 'SELECT count(*) FROM effect'), $expected, 'and there are no others');
none(
	q{SELECT f.*, a.verdict FROM effect f LEFT JOIN lease.occurrence_attempt a USING (task, due_at, attempt, epoch)
		WHERE a.verdict IS DISTINCT FROM 'done'}, 'that of the attempt which is done');
none('SELECT task, first_due FROM lease.misfire', 'none was passed over');
is( $node->safe_psql('postgres', 'SELECT sum(passed_over) FROM lease.task_cursor'),
	'0', 'nor is any counted as if it had been');
none(
	q{SELECT o.task, o.due_at, o.attempts FROM lease.occurrence o
		JOIN lease.occurrence_attempt a USING (task, due_at)
		GROUP BY 1, 2, 3
		HAVING array_agg(a.attempt ORDER BY a.attempt) <> ARRAY(SELECT generate_series(1, o.attempts))
			OR array_agg(a.attempt) FILTER (WHERE a.verdict = 'done') <> ARRAY[o.attempts]
			OR count(*) FILTER (WHERE a.verdict IS NULL) > 0},
	'attempts are numbered without gaps; the last is done, each before it failed or abandoned');
none(
	q{SELECT * FROM (SELECT a.*, lead(epoch) OVER w AS next_epoch, lead(begun_at) OVER w AS next_begun
			FROM lease.occurrence_attempt a WINDOW w AS (PARTITION BY task, due_at ORDER BY attempt)) AS x
		WHERE begun_at < due_at OR ended_at < begun_at OR next_begun < begun_at
			OR next_epoch < epoch OR verdict = 'abandoned' AND next_epoch <= epoch},
	'none begins before its time, and an abandoned one is followed by a later epoch');

# In the order of commits
my ($latest, %seen, @late) = (0);
foreach my $line (split /\n/,
	$node->safe_psql('postgres',
		"SELECT data FROM pg_logical_slot_get_changes('order', NULL, NULL)"))
{
	if ($line =~ /^table lease\.event: INSERT: name\[text\]:'jobs' .*kind\[text\]:'granted' epoch\[bigint\]:(\d+)/)
	{
		push @late, "grant of $1 after $latest" if $1 <= $latest;
		$latest = $1;
		$seen{grant}++;
	}
	elsif ($line =~ /^table public\.effect: INSERT: .*epoch\[bigint\]:(\d+)/)
	{
		push @late, "effect of $1 after $latest" if $1 != $latest;
		$seen{effect}++;
	}
}
is(join(', ', @late), '', 'each effect is of the latest grant, in the order of commits');
is($seen{effect}, $expected, 'of all effects');

# Evicted, cancelled or ended in the middle; refused; this test's own; and what follows
# from another error in the same transaction
my $failed_commits = $errors{P0001} // 0;
delete @errors{qw(LS001 LS002 LS003 LS006 57014 57P01 P0001 25P02)};
is(join(', ', map { "$_ ($errors{$_})" } sort keys %errors),
	'', 'no errors but those that the contract names');

#----
# Figures
#----

my ($begun, $abandoned, $failed, $late) = split /\|/,
  $node->safe_psql(
	'postgres', q{
	SELECT count(*), count(*) FILTER (WHERE verdict = 'abandoned'), count(*) FILTER (WHERE verdict = 'failed'),
		count(*) FILTER (WHERE attempt = 1 AND begun_at > due_at + interval '2 s')
	FROM lease.occurrence_attempt});
note "$begun attempts, $abandoned abandoned, $failed failed; $late occurrences made up for";
note "$seen{grant} grants to " . @outputs . " schedulers, $failed_commits commits failed";
note join ', ', map { "$_ $count{$_} times" } sort keys %count;
cmp_ok($count{$_}, '>', 0, "there was: $_") foreach sort keys %count;
cmp_ok($abandoned, '>', 0, 'there were abandoned attempts');
cmp_ok($failed_commits, '>', 0, 'and failed commits');
cmp_ok($seen{grant}, '>', 5, 'and takeovers');

$node->stop;
done_testing();
