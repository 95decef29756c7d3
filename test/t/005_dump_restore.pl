# Dump and restore.  G2, G4, O2.
#
# By the owner of the database, who is no superuser (the extension is a trusted one),
# and by a superuser; as a script and as an archive; and of what was restored once
# more.  Leases, settings, grants and fences come back as they were, and so does what is
# known of tasks and actions: what is settled there is settled here.  Authority records,
# floors and pins come back, too, and verify: what was decided stands, a pin holds, and the
# records go on where they were.  The first epoch after that is greater than every epoch
# that was ever told in the database the dump was made of, also after the dump: the two
# are branches of one history, and a token of one must never be valid for a grant of the
# other.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use LeaseTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('dump');
$node->init;
$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE ROLE keeper LOGIN;
	CREATE ROLE scheduler LOGIN;
	GRANT scheduler TO keeper;
	CREATE DATABASE source OWNER keeper;
});

my @status = (
	'SELECT name, role, state, epoch, holder, acquired_at, expires_at, available_at,'
	  . ' last_end, successor, reason, metadata, ttl, grace, min_hold, late_commit'
	  . ' FROM lease.status ORDER BY name',
	'SELECT * FROM lease.fence ORDER BY rel::text',
	'SELECT * FROM work ORDER BY 1, 2',
	'SELECT * FROM parts ORDER BY 1, 2',
	map { "SELECT * FROM lease.$_ ORDER BY 1, 2" }
	  qw(task task_cursor occurrence misfire action acknowledgement admission),
);
push @status, 'SELECT * FROM lease.occurrence_attempt ORDER BY task, due_at, attempt',
  map { "SELECT * FROM lease.$_ ORDER BY 1, 2" }
  qw(record record_chain decision attempt cursor boundary outcome floor floor_pin);
push @status, 'SELECT * FROM lease.verify_authority()';

# in_database(DATABASE, USER, SQL) runs a script and returns its output.
sub in_database
{
	my ($database, $user, $sql) = @_;

	return $node->safe_psql($database, $sql,
		connstr => $node->connstr($database) . " user=$user");
}

# everything(DATABASE) is all there is to be seen in a database.
sub everything
{
	my ($database) = @_;

	return join "\n", map { $node->safe_psql($database, $_) } @status;
}

# error_of(DATABASE, SQL) returns the SQLSTATE with which a script fails.
sub error_of
{
	my ($database, $sql) = @_;

	return session($node, database => $database)->query($sql)->{sqlstate};
}

in_database(
	'source', 'keeper', q{
	CREATE EXTENSION lease;
	CREATE TABLE work (epoch bigint, who text);
	CREATE TABLE parts (part int, who text) PARTITION BY LIST (part);
	CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
	INSERT INTO work SELECT i, 'before' FROM generate_series(1, 3) AS i;
	INSERT INTO parts VALUES (1, 'before');

	SELECT lease.create('held', ttl => '10 min', grace => '1 min', late_commit => true);
	SELECT lease.create('scheduled', ttl => '1 day', role => 'scheduler');
	SELECT lease.create('released', min_hold => '1 min');
	SELECT lease.create('reserved');
	SELECT lease.create('revoked');
	SELECT lease.create('never');
	SELECT lease.protect('work', 'held'), lease.protect('parts', 'scheduled', always => true);
});

# Each grant in a transaction of its own, and one that is rolled back
my $scheduled = in_database('source', 'keeper',
	"SELECT epoch FROM lease.acquire('scheduled', 'S')");
my $rolled_back = in_database('source', 'keeper',
	"BEGIN; SELECT epoch FROM lease.acquire('never', 'N'); ROLLBACK");
foreach my $lease ('released', 'reserved', 'revoked')
{
	my $epoch = in_database('source', 'keeper',
		"SELECT epoch FROM lease.acquire('$lease', 'R')");
	in_database('source', 'keeper',
		$lease eq 'released'   ? "SELECT lease.release('released', $epoch)"
		: $lease eq 'reserved' ? "SELECT lease.release('reserved', $epoch, 'next', '1 hour')"
		:                        "SELECT lease.revoke('revoked', 'because')");
}
my $held = in_database('source', 'keeper',
	q{SELECT epoch FROM lease.acquire('held', 'H', metadata => '{"pid": 42}')});
cmp_ok($held, '>', $rolled_back, 'epochs in the source grow');

# Tasks, defined three hours ago.  Of one, two occurrences were passed over and one is done;
# of the other, one has failed and is to be tried again, one is being done, and one is due.
# Actions, and what was said and admitted of them.
$node->safe_psql(
	'source', q{
	SET lease.clock_offset = '-3 h';
	SELECT lease.create_task('nightly', 'scheduled', cron => '30 2 L * *', time_zone => 'europe/berlin');
	SELECT lease.create_task('skipped', 'held', every => '1 h', anchor => now() - interval '30 min',
		misfire => 'skip', misfire_after => '40 min');
	SELECT lease.create_task('each', 'held', every => '1 h', anchor => now() - interval '30 min', misfire => 'all',
		retry_after => '0');
});
my @each = split /\n/, in_database('source', 'keeper', "SELECT due_at FROM lease.due('each')");
my $done = in_database('source', 'keeper', "SELECT due_at FROM lease.due('skipped')");
is(scalar(@each), 3, 'what is due in the source');
in_database(
	'source', 'keeper', qq{
	SELECT lease.begin_occurrence('skipped', '$done', $held),
		lease.finish_occurrence('skipped', '$done', 1, $held, 'done', '{"rows": 7}'),
		lease.begin_occurrence('each', '$each[0]', $held),
		lease.finish_occurrence('each', '$each[0]', 1, $held, 'failed'),
		lease.begin_occurrence('each', '$each[1]', $held);
	SELECT lease.create_action('write', 'held', 'protected', 'table work', 'work'),
		lease.create_action('mail', 'held', 'unfenced', 'mail server');
	SELECT lease.begin_action('mail', $held, 'each', '$each[1]', 'a mail twice can be borne'),
		lease.begin_action('mail', $held, acknowledge => 'another one');
	SELECT lease.admit('store', 5);
});
is( in_database('source', 'keeper',
		"SELECT occurrences FROM lease.misfire WHERE task = 'skipped'"),
	'2', 'what is passed over in the source');

# Records of each kind: two of six decisions were compacted; of two attempts one is open; a floor is
# pinned.
in_database(
	'source', 'keeper', qq{
	SELECT lease.decide('held', $held, 's' || i, 'yes', keep => CASE WHEN i < 3 THEN interval '0' END)
		FROM generate_series(1, 5) AS i;
	SELECT lease.decide('held', $held, 's1', 'yes', '{"n": [1.50, "\\u00e4"]}', 'old', 'new');
	SELECT lease.open_attempt('held', $held, 'a'), lease.settle_attempt('held', $held, 7, 'committed', '{"n": 1}');
	SELECT lease.open_attempt('held', $held, 'b');
	SELECT lease.declare_destructive('held', $held, 'c', 'purge'),
		lease.advance_cursor('held', $held, 'c', NULL, NULL, '1', 'purge'),
		lease.advance_cursor('held', $held, 'c', '1', 'purge', '2', 'purge');
	SELECT lease.advance_floor('held', $held, 'log', 100);
	SELECT lease.pin('log', 150, 'reader', '1 h');
});
is( in_database('source', 'keeper', "SELECT removed, up_to FROM lease.compact('held', $held, before => 6)"),
	'2|5', 'some of the records are compacted');
is( in_database('source', 'keeper', 'SELECT lease, verified, records, removed, last_seq FROM lease.verify_authority()'),
	'held|t|12|2|14', 'what is left of them verifies');

my $dumps = PostgreSQL::Test::Utils::tempdir;
my $before = everything('source');
my $told = $held;    # the highest epoch that was told on any branch

# copy(SOURCE, TARGET, USER, FORMAT) dumps a database and restores it into another.
sub copy
{
	my ($source, $target, $user, $format) = @_;
	my $file = "$dumps/$target";
	my $port = $node->port;
	my @who = ('-h', $node->host, '-p', $port, '-U', $user);

	$node->safe_psql('postgres', "CREATE DATABASE $target OWNER keeper");
	command_ok([ 'pg_dump', @who, '-F', $format, '-f', $file, $source ],
		"$user dumps $source (format $format)");
	command_ok(
		$format eq 'p'
		? [ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', @who, '-f', $file, '-d', $target ]
		: [ 'pg_restore', '--exit-on-error', @who, '-d', $target, $file ],
		"$user restores it into $target");
	return;
}

# check(TARGET, USER) looks at what was restored, and acquires in it.
sub check
{
	my ($target, $user) = @_;

	is(everything($target), $before, "$target is as the source was");

	is(error_of($target, "INSERT INTO work VALUES (0, 'X')"),
		'LS004', 'its fences stand');
	is(error_of($target, "INSERT INTO parts_1 VALUES (1, 'X')"),
		'LS004', 'also around partitions');
	is(error_of($target, 'TRUNCATE parts_1'), 'LS004', 'and against TRUNCATE');
	is( error_of(
			$target,
			"BEGIN; SELECT lease.guard('held', $held);"
			  . " INSERT INTO work VALUES ($held, 'H'); ROLLBACK"),
		'',
		'what was held there is held here');
	is( error_of($target, "SELECT lease.guard('never', $rolled_back)"),
		'LS003', 'what was told in a transaction that rolled back is nothing');

	# A grant here, after more of them there
	my $there = in_database('source', 'keeper',
		"SELECT epoch FROM lease.acquire('held', 'H', reclaim => true)");
	$told = $there if $there > $told;
	my $here = in_database($target, $user,
		"SELECT epoch FROM lease.acquire('never', 'N')");
	cmp_ok($here, '>', $told, 'the next epoch is greater than all that were ever told');
	$told = $here;
	is(error_of($target, "SELECT lease.guard('held', $there)"),
		'LS003', 'an epoch that was told there after the dump is nothing here');

	my $again = in_database($target, $user,
		"SELECT epoch FROM lease.acquire('held', 'H', reclaim => true)");
	is($again, $told + 1, 'epochs go on from there one by one');
	$told = $again;
	foreach my $old ($held, $there)
	{
		is(error_of($target, "SELECT lease.guard('held', $old)"),
			'LS001', "epoch $old is superseded here");
	}
	is( error_of(
			$target,
			"BEGIN; SELECT lease.guard('held', $again);"
			  . " INSERT INTO work VALUES ($again, 'H'); COMMIT"),
		'',
		'and the new one can write');
	check_maintenance($target, $user, $again);
	check_records($target, $user, $again);
	return;
}

# begin(TARGET, USER, TASK, TIME, EPOCH) begins an occurrence and returns the answer.
sub begin
{
	my ($target, $user, $task, $time, $epoch) = @_;

	return in_database($target, $user,
		"SELECT outcome, attempt FROM lease.begin_occurrence('$task', '$time', $epoch)");
}

# check_maintenance(TARGET, USER, EPOCH) goes on with the tasks where they were.
sub check_maintenance
{
	my ($target, $user, $epoch) = @_;
	my $earlier = in_database($target, $user,
		"SELECT timestamptz '$done' - interval '1 h'");

	is(begin($target, $user, 'skipped', $done, $epoch),
		'done|1', 'what is done there cannot be begun here');
	is(begin($target, $user, 'skipped', $earlier, $epoch),
		'passed over|', 'nor what was passed over');
	is( in_database($target, $user,
			"SELECT due_at = '$each[0]', due_at = '$each[1]', due_at = '$each[2]', state, ready"
			  . " FROM lease.due('each') ORDER BY due_at"),
		"t|f|f|retry|t\nf|t|f|abandoned|t\nf|f|t|due|t",
		'what is due there is due here');
	is(begin($target, $user, 'each', $each[$_], $epoch),
		$_ < 2 ? 'started|2' : 'started|1', "and attempts are counted on")
	  foreach 0 .. 2;
	is( in_database($target, $user,
			"SELECT attempt, verdict FROM lease.occurrence_attempt"
			  . " WHERE due_at = '$each[1]' ORDER BY attempt"),
		"1|abandoned\n2|", 'of which the earlier one is abandoned');
	is( in_database($target, $user,
			'SELECT id, reason FROM lease.acknowledgement ORDER BY id'),
		"1|a mail twice can be borne\n2|another one",
		'what was acknowledged is here');
	is( in_database($target, $user,
			"SELECT lease.finish_occurrence('each', '$each[0]', 2, $epoch),"
			  . " lease.finish_occurrence('each', '$each[1]', 2, $epoch);"
			  . " SELECT lease.prune_occurrences('infinity')"),
		"(done,t,)|(done,t,)\n1", 'what is settled is pruned, but for the latest of each task');
	is(begin($target, $user, 'each', $each[0], $epoch),
		'passed over|', 'and cannot be begun again after that either');
	is(begin($target, $user, 'skipped', $done, $epoch), 'done|1', 'nor can the latest');

	is( in_database($target, $user,
			"SELECT class FROM lease.begin_action('mail', $epoch, acknowledge => 'here');"
			  . " SELECT id, reason FROM lease.acknowledgement ORDER BY id"),
		"unfenced\n3|here",
		'the numbers of acknowledgements go on');
	is(error_of($target, 'DELETE FROM lease.acknowledgement'),
		'55000', 'which are still append-only');
	is( in_database($target, $user,
			"SELECT supported FROM lease.guarantee WHERE action = 'write'"),
		't', 'a protected action is that of the restored table');
	is(error_of($target, "SELECT lease.admit('store', 4)"),
		'LS001', 'an epoch that was superseded at a resource is superseded here');
	is( in_database($target, $user, "SELECT lease.admit('store', 5)"), '', 'and the latest is not');
	return;
}

# check_records(TARGET, USER, EPOCH) goes on with the records where they were.
sub check_records
{
	my ($target, $user, $epoch) = @_;

	is( in_database($target, $user,
			"SELECT outcome, seq, decided_epoch FROM lease.decide('held', $epoch, 's3', 'yes')"
			  . " UNION ALL SELECT outcome, seq, decided_epoch FROM lease.decide('held', $epoch, 's3', 'no')"
			  . " UNION ALL SELECT outcome, seq, decided_epoch FROM lease.decide('held', $epoch, 's1', 'no')"),
		"identical|3|$held\nconflict|3|$held\nrecorded|15|$epoch",
		'what was decided there stands here; what was compacted is gone');
	is( in_database($target, $user,
			"SELECT outcome, attempt FROM lease.open_attempt('held', $epoch, 'a')"
			  . " UNION ALL SELECT outcome, attempt FROM lease.open_attempt('held', $epoch, 'b');"
			  . " SELECT outcome, settled_epoch FROM lease.settle_attempt('held', $epoch, 9, 'aborted')"),
		"committed|7\nopen|9\nsettled|$epoch",
		'an attempt that was open there is settled here');
	is( in_database($target, $user,
			"SELECT outcome FROM lease.advance_cursor('held', $epoch, 'c', '2', 'purge', '3', 'purge');"
			  . " SELECT outcome FROM lease.take_over_cursor('held', $epoch, 'c', '2', 'purge');"
			  . " SELECT outcome FROM lease.advance_cursor('held', $epoch, 'c', '2', 'purge', '3', 'purge')"),
		"not taken over\ntaken over\nadvanced",
		'a cursor goes on from where it was');
	is( in_database($target, $user,
			"SELECT outcome, floor_position, held_by FROM lease.advance_floor('held', $epoch, 'log', 200);"
			  . " SELECT outcome, floor_position FROM lease.pin('log', 149, 'other');"
			  . " SELECT outcome, pinned_position FROM lease.renew_pin('log', 'reader');"
			  . " SELECT lease.unpin('log', 'reader');"
			  . " SELECT outcome, floor_position FROM lease.advance_floor('held', $epoch, 'log', 200)"),
		"held|150|reader\nbelow|150\nrenewed|150\nt\nadvanced|200",
		'a pin still holds, and its process renews it');
	is(error_of($target, 'DELETE FROM lease.record'), '55000', 'the records are append-only');
	is( in_database($target, $user, 'SELECT lease, verified, records, removed, last_seq, problem FROM lease.verify_authority()'),
		'held|t|18|2|20|', 'and verify');
	return;
}

copy('source', 'by_owner', 'keeper', 'p');
my $superuser = $node->safe_psql('postgres', 'SELECT current_user');
copy('source', 'by_superuser', $superuser, 'c');
check('by_owner', 'keeper');
is( in_database(
		'by_owner', 'keeper', "SELECT lease.alter('held', grace => '2 min')"),
	'',
	'the owner of the database administers it');
check('by_superuser', $superuser);

# A copy of a copy
$before = everything('by_owner');
$held = in_database('by_owner', 'keeper',
	"SELECT epoch FROM lease.status WHERE name = 'held'");
copy('by_owner', 'again', 'keeper', 'c');
is(everything('again'), $before, 'a copy of a copy is as its source was');
my $first = in_database('again', 'keeper',
	"SELECT epoch FROM lease.acquire('held', 'H', reclaim => true)");
cmp_ok($first, '>', $told, 'and its epochs are greater again');

# The files of a template database: another way to copy one.  Here eight sessions
# make the first grants on the new branch at once.
$node->safe_psql('postgres', 'CREATE DATABASE cloned TEMPLATE again OWNER keeper');
$node->safe_psql('cloned', 'CREATE TABLE told (epoch bigint)');
append_to_file("$dumps/grant.sql",
	"SET lease.auto_create = on;\nINSERT INTO told SELECT epoch"
	  . " FROM lease.acquire('C' || :client_id, 'C', reclaim => true);\n");
$node->command_ok(
	[
		'pgbench', '-n', '-c', '8', '-t', '10', '-U', $superuser, '-f',
		"$dumps/grant.sql", 'cloned'
	],
	'eight sessions acquire in a clone');
my $other = in_database('again', 'keeper',
	"SELECT epoch FROM lease.acquire('held', 'H', reclaim => true)");
is( $node->safe_psql('cloned',
		"SELECT count(*), count(DISTINCT epoch), min(epoch) > $other FROM told"),
	'80|80|t',
	'no epoch twice, and none of the template');

$node->stop;
done_testing();
