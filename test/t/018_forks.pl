# Histories that fork.  G2, G3, G10, O2.
#
# Point-in-time recovery, copies of a data directory, standbys that are promoted or
# made primaries by hand, pg_rewind, dumps, and forks of what had forked before.  On
# each new branch the first epoch is greater than every one that was told before on
# any other, and none is ever told on two; who holds an epoch of another branch is
# refused, by the guard and in COMMIT, from the next grant on.  A branch that goes on
# as if nothing had happened stays below those that forked from it.
#
# The matrix at the end says which case is tested where.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use File::Path qw(remove_tree);
use LeaseTest;
use List::Util qw(max);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $tmp = PostgreSQL::Test::Utils::tempdir;

# Every epoch that was told, and where; those of databases that are no branches of one
# another are kept apart by a family name.
my %told;
my %highest;

# grants(NODE, COUNT, DATABASE) makes that many grants of L and returns the epochs.
sub grants
{
	my ($node, $count, $database) = @_;

	return split /\n/,
	  $node->safe_psql($database // 'postgres',
		"SELECT epoch FROM lease.acquire('L', 'A', reclaim => true);\n" x $count);
}

# remember(FAMILY, BRANCH, EPOCHS) returns those that were told before, and where.
sub remember
{
	my ($family, $branch, @epochs) = @_;
	my @again = map { "$_ ($told{$family}{$_})" } grep { $told{$family}{$_} } @epochs;

	$told{$family}{$_} = $branch foreach @epochs;
	$highest{$family} = max($highest{$family} // 0, @epochs);
	return join ', ', @again;
}

# goes_on(FAMILY, BRANCH, NODE, DATABASE) makes ten grants on a branch that knows of
# no fork, and returns their epochs; none may have been told elsewhere.
sub goes_on
{
	my ($family, $branch, $node, $database) = @_;
	my @epochs = grants($node, 10, $database);

	is(remember($family, $branch, @epochs), '', "$branch goes on by itself");
	return @epochs;
}

# forks(FAMILY, BRANCH, NODE, DATABASE) makes ten grants on a new branch, the first of
# which has to be above all that was told on others; what these were told is refused.
sub forks
{
	my ($family, $branch, $node, $database) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $before = $highest{$family};
	my $session = session($node, database => $database // 'postgres');

	# A transaction under the grant that this branch believes in
	my $believed =
	  $session->do("SELECT epoch FROM lease.status WHERE name = 'L' AND state = 'held'");
	$session->do("BEGIN; SELECT lease.guard('L', $believed);"
		  . " INSERT INTO work (epoch) VALUES ($believed)")
	  if $believed;

	my @epochs = grants($node, 10, $database);
	cmp_ok($epochs[0], '>', $before, "$branch: the next epoch is above all others");
	is($epochs[9], $epochs[0] + 9, 'from there they go on one by one');
	refused($session->query('COMMIT'), 'LS001', 'who believed in an older one cannot commit')
	  if $believed;
	refused($session->query("SELECT lease.guard('L', $before)"),
		'LS001', 'nor act under the latest of another branch');
	$session->quit;
	is(remember($family, $branch, @epochs), '', 'none was told on another branch');
	return @epochs;
}

# promoted(NODE) waits until a server is no standby any more.
sub promoted
{
	my ($node) = @_;

	wait_until($node, 'SELECT NOT pg_is_in_recovery()', 'the end of recovery');
	return;
}

# timeline(NODE) is the number of the timeline that a server writes.
sub timeline
{
	my ($node) = @_;

	return $node->safe_psql('postgres',
		"SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int");
}

# restored(NAME, FROM, BACKUP, PARAMETERS) makes a server of a backup.
sub restored
{
	my ($name, $from, $backup, %parameters) = @_;
	my $conf = delete $parameters{conf};
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init_from_backup($from, $backup, %parameters);
	$node->append_conf('postgresql.conf', "archive_mode = off\n" . ($conf // ''));
	return $node;
}

#----
# Copies and standbys of one primary
#----

my $primary = new_server(
	'primary', "max_connections = 40\nlog_statement = none",
	allows_streaming => 1, has_archiving => 1);
goes_on('A', 'primary', $primary);
$primary->stop;
$primary->backup_fs_cold('cold');
$primary->start;

$primary->backup('base');
my @standbys = map { restored($_, $primary, 'base', has_streaming => 1) }
  qw(signal first second);
$_->start foreach @standbys;
$primary->wait_for_catchup($_) foreach @standbys;
$_->stop foreach @standbys;

$primary->safe_psql('postgres', "SELECT pg_create_restore_point('before')");
goes_on('A', 'primary', $primary);
my $archived = $primary->safe_psql('postgres', 'SELECT pg_walfile_name(pg_switch_wal())');
wait_until($primary,
	"SELECT last_archived_wal >= '$archived' FROM pg_stat_archiver", 'the archive');

# To before the takeovers, twice: neither knows of the other.
foreach my $name ('pitr_1', 'pitr_2')
{
	my $node = restored($name, $primary, 'base', has_restoring => 1, standby => 0,
		conf => "recovery_target_name = 'before'\nrecovery_target_action = 'promote'");
	$node->start;
	promoted($node);
	is(timeline($node), 2, "$name is on timeline 2");
	forks('A', $name, $node);
	goes_on('A', 'primary', $primary);
	$node->stop('immediate');
}

# Without recovery
my $cold = restored('cold', $primary, 'cold');
$cold->start;
is(timeline($cold), 1, 'a copy that was started as it is stays on timeline 1');
forks('A', 'cold copy', $cold);
$cold->stop('immediate');

my $signal = shift @standbys;
unlink $signal->data_dir . '/standby.signal' or die "cannot remove standby.signal: $!";
$signal->append_conf('postgresql.conf', "primary_conninfo = ''");
$signal->start;
is(timeline($signal), 1, 'a standby without its signal stays on timeline 1');
forks('A', 'standby without signal', $signal);
$signal->stop('immediate');

# One after the other, to the same timeline number
foreach my $node (@standbys)
{
	$node->append_conf('postgresql.conf', "primary_conninfo = ''");
	$node->start;
	$node->promote;
	is(timeline($node), 2, $node->name . ' is on timeline 2');
	forks('A', $node->name . ' standby', $node);
	goes_on('A', 'primary', $primary);
}
goes_on('A', $_->name . ' standby', $_) foreach @standbys;
$_->stop('immediate') foreach @standbys;

# A standby whose replay is paused, and that has received more than it shows
my $paused = restored('paused', $primary, 'base', has_streaming => 1);
$paused->start;
$primary->wait_for_catchup($paused);
$paused->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
wait_until($paused, "SELECT pg_get_wal_replay_pause_state() = 'paused'", 'the pause');
goes_on('A', 'primary', $primary);
is($paused->safe_psql('postgres', "SELECT epoch < $highest{A} FROM lease.status WHERE name = 'L'"),
	't', 'a standby whose replay is paused shows an old grant');
$primary->stop('immediate');
$paused->promote;
forks('A', 'paused standby', $paused);
$primary->start;
my @old = goes_on('A', 'primary', $primary);
refused(session($paused)->query("SELECT lease.guard('L', $_)"), 'LS001',
	'a holder of the old primary is refused')
  foreach $old[0], $old[9];
$paused->stop('immediate');

#----
# Forks of what has forked before
#
# The second of two that fork from one base has to be above the first, also if the
# base had itself skipped a moment before.
#----

$primary->stop;
$primary->backup_fs_cold('again');
$primary->start;
foreach my $generation (1 .. 2)
{
	my @nodes;
	foreach my $which (1 .. 2)
	{
		my $name = "copy_${generation}_$which";
		my $node = restored($name, $primary, "again");
		$node->start;
		forks('A', "$name", $node);
		push @nodes, $node;
	}
	$_->stop foreach @nodes;
	last if $generation == 2;

	# The next generation descends from the first of this one.
	$nodes[0]->backup_fs_cold('again');
	PostgreSQL::Test::RecursiveCopy::copypath($nodes[0]->backup_dir . '/again',
		$primary->backup_dir . '/younger');
	my @younger;
	foreach my $which (1 .. 2)
	{
		my $node = restored("younger_$which", $primary, 'younger');
		$node->start;
		forks('A', "younger $which", $node);
		$node->stop;
	}
}
$primary->stop;

#----
# A synchronous standby, and pg_rewind
#----

my $a = new_server('a', "max_connections = 40\nlog_statement = none\nwal_keep_size = 64MB",
	allows_streaming => 1);
goes_on('B', 'a', $a);
$a->backup('base');
my $b = restored('b', $a, 'base', has_streaming => 1);
$b->start;
$a->wait_for_catchup($b);
$b->stop;
$a->safe_psql('postgres', "ALTER SYSTEM SET synchronous_standby_names = '*'");
$a->reload;
wait_until($a, "SELECT current_setting('synchronous_standby_names') = '*'", 'the setting');
my $waiting = session($a, sql => 'SET synchronous_commit = off');
$waiting->ask("SELECT epoch FROM lease.acquire('L', 'B', reclaim => true, ttl => '1 h')");
is($waiting->answer->{rows}, '', 'a grant is refused while another is live');
$waiting->ask("SELECT epoch FROM lease.acquire('L', 'A', reclaim => true)");
wait_for_event($a, $waiting, 'SyncRep');
$b->start;
my $acknowledged = $waiting->answer->{rows};
is(remember('B', 'a', $acknowledged), '', 'a grant waits for the synchronous standby');
$a->stop('immediate');
$b->promote;
is($b->safe_psql('postgres', "SELECT state, epoch FROM lease.status WHERE name = 'L'"),
	"held|$acknowledged", 'and is not lost');
forks('B', 'b', $b);
$b->safe_psql('postgres', 'CHECKPOINT');

# The old primary goes on for a while, is rewound, follows, and is promoted.
append_to_file($a->data_dir . '/postgresql.auto.conf', "synchronous_standby_names = ''\n");
$a->start;
goes_on('B', 'a', $a);
$a->stop;
my $conf = slurp_file($a->data_dir . '/postgresql.conf');
command_ok(
	[
		'pg_rewind', '--no-sync', '--target-pgdata', $a->data_dir,
		'--source-server', $b->connstr('postgres')
	],
	'pg_rewind');
open my $file, '>', $a->data_dir . '/postgresql.conf' or die $!;
print $file $conf;
close $file;
$a->append_conf('postgresql.conf', "primary_conninfo = '" . $b->connstr . "'");
$a->set_standby_mode;
$a->start;
$b->wait_for_catchup($a, 'replay', $b->lsn('insert'));
$a->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
goes_on('B', 'b', $b);
$b->stop('immediate');
$a->promote;
is(timeline($a), 3, 'what was rewound is on timeline 3');
forks('B', 'a again', $a);
$b->start;
goes_on('B', 'b', $b);
$b->stop('immediate');

#----
# A copy restored in place by a program that leaves alone what has not changed, as
# rsync does: the file PG_VERSION is that of before.
#----

$a->stop;
$a->backup_fs_cold('in_place');
$a->start;
goes_on('B', 'a again', $a);
$a->stop;
foreach my $entry (slurp_dir($a->backup_dir . '/in_place'))
{
	my $target = $a->data_dir . "/$entry";

	next if $entry =~ /^(?:\.\.?|PG_VERSION)$/;
	system_or_bail('cp', '-R', $a->backup_dir . "/in_place/$entry", "$target.new");
	remove_tree($target);
	rename "$target.new", $target or die "cannot rename $target: $!";
}
$a->start;
forks('B', 'in place', $a);

#----
# Databases: dumps, templates
#----

$a->safe_psql('postgres', 'CREATE DATABASE source');
$a->safe_psql('source', "CREATE EXTENSION lease; SELECT lease.create('L', ttl => '10 min');"
	  . ' CREATE TABLE work (epoch bigint);'
	  . " SELECT lease.protect('work', 'L')");

my $other = PostgreSQL::Test::Cluster->new('other');
$other->init;
$other->append_conf('postgresql.conf', 'log_statement = none');
$other->start;

# dump(NODE, DATABASE) returns a dump, and restore(NODE, DATABASE, DUMP) restores it.
my $dumps = 0;

sub dump_of
{
	my ($node, $database) = @_;
	my $file = "$tmp/dump_" . ++$dumps;

	command_ok([ 'pg_dump', '-d', $node->connstr($database), '-f', $file ],
		"dump of $database");
	return $file;
}

sub restore
{
	my ($node, $database, $dump) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $database");
	command_ok(
		[
			'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr($database),
			'-f', $dump
		],
		"restored into $database");
	return;
}

# Before the first epoch of all
my $unused = dump_of($a, 'source');
$a->safe_psql('postgres', 'CREATE DATABASE unused TEMPLATE source');
goes_on('C', 'source', $a, 'source');
forks('C', 'clone of an unused database', $a, 'unused');
restore($a, 'from_unused', $unused);
forks('C', 'dump of an unused database', $a, 'from_unused');

my $dump = dump_of($a, 'source');
goes_on('C', 'source', $a, 'source');
restore($a, 'same', $dump);
forks('C', 'restored in the same cluster', $a, 'same');
restore($other, 'elsewhere', $dump);
forks('C', 'restored in another cluster', $other, 'elsewhere');
goes_on('C', 'source', $a, 'source');
goes_on('C', 'restored in the same cluster', $a, 'same');
goes_on('C', 'restored in another cluster', $other, 'elsewhere');

# A dump of what was restored, twice
my $second = dump_of($a, 'same');
restore($a, 'same_2', $second);
forks('C', 'a copy of a copy', $a, 'same_2');
restore($other, 'elsewhere_2', $second);
forks('C', 'another copy of the copy', $other, 'elsewhere_2');

# Where the floor was raised above the present time, nothing but the distance helps.
$a->safe_psql('same_2', "SELECT lease.raise_floor(8000000000000000)");
remember('C', 'a copy of a copy', grants($a, 1, 'same_2'));
my $high = dump_of($a, 'same_2');
goes_on('C', 'a copy of a copy', $a, 'same_2');
foreach my $name ('high_1', 'high_2')
{
	restore($a, $name, $high);
	forks('C', $name, $a, $name);
}

# The data of a dump, restored into the very database of which it was made: taken
# before the first lease, before the first epoch, and later; in any order
sub data_restored
{
	my ($what, $name, @items) = @_;
	my $file = "$tmp/$name.dump";
	my $list = "$tmp/$name.list";

	$other->safe_psql(
		'data', q{
		ALTER TABLE lease.event DISABLE TRIGGER USER;
		DELETE FROM lease.lease;
		DELETE FROM lease.event;
		ALTER TABLE lease.event ENABLE ALWAYS TRIGGER lease_keep_events;
		ALTER TABLE lease.event ENABLE ALWAYS TRIGGER lease_keep_events_truncate;
	});
	append_to_file($list, join('', map { "$_\n" } @items));
	command_ok(
		[ 'pg_restore', '-e', '-L', $list, '-d', $other->connstr('data'), $file ],
		"restored into the same database, $what");
	$other->safe_psql('data', "SELECT lease.create('L', ttl => '10 min')"
		  . " WHERE NOT EXISTS (SELECT FROM lease.lease)");
	goes_on('D', 'data', $other, 'data');
	return;
}

sub data_dumped
{
	my ($name) = @_;

	command_ok([ 'pg_dump', '--data-only', '-Fc', '-d', $other->connstr('data'),
		'-f', "$tmp/$name.dump" ], "dump of data only, $name");
	my ($list) = run_command([ 'pg_restore', '-l', "$tmp/$name.dump" ]);
	return grep { /^\d/ } split /\n/, $list;
}

$other->safe_psql('postgres', 'CREATE DATABASE data');
$other->safe_psql('data', 'CREATE EXTENSION lease; CREATE TABLE work (epoch bigint)');
my %items = (no_lease => [ data_dumped('no_lease') ]);
$other->safe_psql('data', "SELECT lease.create('L', ttl => '10 min')");
$items{no_epoch} = [ data_dumped('no_epoch') ];
goes_on('D', 'data', $other, 'data');
$items{granted} = [ data_dumped('granted') ];
is(scalar(grep { /SEQUENCE SET lease (?:origin|epoch_floor) / } @{ $items{granted} }), 2,
	'a dump contains the origin and the floor');
is(scalar(grep { /SEQUENCE SET lease epoch / } @{ $items{granted} }), 0,
	'and not the sequence of epochs');
goes_on('D', 'data', $other, 'data');
foreach my $name ('granted', 'no_epoch', 'no_lease')
{
	data_restored("$name, as dumped", $name, @{ $items{$name} });
	data_restored("$name, in reverse", $name, reverse @{ $items{$name} });
}

#----
# Sixteen sessions right after a fork: drawing, skipping and raising
#----

my ($before_race) = grants($a, 1, 'same');
$a->safe_psql('postgres', 'CREATE DATABASE race TEMPLATE same');
$a->safe_psql(
	'race', q{
	CREATE TABLE told (id bigserial, lease text, epoch bigint);
	CREATE TABLE floors (floor bigint, next bigint);
	SELECT lease.create('R' || i, ttl => '10 min') FROM generate_series(0, 3) AS i;
});
append_to_file("$tmp/draw.sql",
	"\\set i random(0, 3)\n\\set rolls_back random(0, 1)\nBEGIN;\n"
	  . "SELECT epoch FROM lease.acquire('R' || :i, 'R', reclaim => true) \\gset\n"
	  . "INSERT INTO told (lease, epoch) VALUES ('R' || :i, :epoch);\nCOMMIT;\n");
append_to_file("$tmp/raise.sql",
	"\\set more random(-50, 50)\n"
	  . "SELECT lease.raise_floor(last_value + :more) AS floor FROM lease.epoch \\gset\n"
	  . "BEGIN;\nSELECT epoch FROM lease.acquire('R' || :client_id % 4, 'R', reclaim => true) \\gset\n"
	  . "INSERT INTO told (lease, epoch) VALUES ('R' || :client_id % 4, :epoch);\nCOMMIT;\n"
	  . "INSERT INTO floors VALUES (:floor, :epoch);\n");
foreach my $origin ('as it is', 'unknown', 'another')
{
	$a->safe_psql('race',
		$origin eq 'unknown' ? "SELECT setval('lease.origin', 1, false)"
		: $origin eq 'another' ? "SELECT setval('lease.origin', 4711)"
		:                        'SELECT 1');
	$a->command_ok(
		[
			'pgbench', '-n', '-c', '16', '-j', '2', '-t', '25',
			'-f', "$tmp/draw.sql\@4", '-f', "$tmp/raise.sql\@1", 'race'
		],
		"sixteen sessions, origin $origin");
}
is( $a->safe_psql('race',
		"SELECT count(*), count(DISTINCT epoch), min(epoch) > $before_race FROM told"),
	'1200|1200|t',
	'no epoch twice');
is( $a->safe_psql(
		'race',
		'SELECT count(*) FROM (SELECT epoch <= lag(epoch) OVER (PARTITION BY lease ORDER BY id)'
		  . ' AS wrong FROM told) AS t WHERE wrong'),
	'0',
	'those of a lease grow');
is($a->safe_psql('race', 'SELECT count(*) FROM floors WHERE next <= floor'),
	'0', 'and are above a floor that was raised before');

# An epoch that was drawn for an attempt that failed is not used any more when another
# was told meanwhile.  Who has the sequence locked makes the first wait between drawing
# and writing.
$a->safe_psql('race', "SELECT lease.create('F', grace => '1 s')");
my ($locker, $first_taker, $second_taker) = map {
	session($a, database => 'race', sql => "SET lease.busy_timeout = '600s'")
} 1 .. 3;
$locker->do('BEGIN; ALTER SEQUENCE lease.epoch CACHE 1');
$first_taker->ask("SELECT epoch FROM lease.acquire('F', 'first')");
wait_for_event($a, $first_taker, 'relation');
$second_taker->ask("BEGIN; SELECT epoch FROM lease.acquire('F', 'second')");
wait_for_fence($a, $second_taker);
$a->safe_psql('race', "SELECT lease.alter('F', grace => '2 s')");
$locker->do('ROLLBACK');
my $rolled_back = $second_taker->answer->{rows};
like($rolled_back, qr/^\d+$/, 'an epoch is told while an attempt has to be repeated');
$second_taker->do('ROLLBACK');
cmp_ok($first_taker->answer->{rows}, '>', $rolled_back,
	'the repeated attempt gets a greater one');
$_->quit foreach $locker, $first_taker, $second_taker;

# The first lease of a database records the origin, and waits for that no longer than
# for anything else.
$a->safe_psql('postgres', 'CREATE DATABASE first');
$a->safe_psql('first', 'CREATE EXTENSION lease');
my $altering = session($a, database => 'first');
my $creating =
  session($a, database => 'first', sql => "SET lease.busy_timeout = '100ms'; SET lease.auto_create = on");
$altering->do('BEGIN; ALTER SEQUENCE lease.origin CACHE 1');
refused($creating->query("SELECT lease.create('L')"), 'LS006', 'the first create is bounded');
refused($creating->query("SELECT epoch FROM lease.acquire('L', 'A')"),
	'LS006', 'and the first acquire');
$altering->do('ROLLBACK');
is($creating->do("SELECT epoch FROM lease.acquire('L', 'A')"), '1', 'after which it succeeds');
$_->quit foreach $altering, $creating;

#----
# What administrators do
#----

my ($before) = grants($a, 1, 'same');
$a->safe_psql('same', "SELECT lease.drop('L', force => true);"
	  . " SELECT lease.create('L', ttl => '10 min')");
is((grants($a, 1, 'same'))[0], $before + 1, 'a lease that is created again goes on');

my $noted = $a->safe_psql('same', 'SELECT last_value FROM lease.epoch');
$a->safe_psql('same', "DROP EXTENSION lease CASCADE; CREATE EXTENSION lease;"
	  . " SELECT lease.create('L', ttl => '10 min')");
is($a->safe_psql('same', "BEGIN; SELECT epoch FROM lease.acquire('L', 'A'); ROLLBACK"),
	'1', 'DROP EXTENSION forgets all epochs');
is($a->safe_psql('same', "SELECT lease.raise_floor($noted)"),
	$noted, 'lease.raise_floor() is the answer');
is((grants($a, 1, 'same'))[0], $noted + 1, 'after which epochs go on');

$other->stop;
$a->stop;

SKIP:
{
	my @others = grep { -d && !/\/@{[ $a->pg_version->major ]}\// }
	  glob '/usr/lib/postgresql/*/bin';
	skip 'pg_upgrade: no second version is installed', 1 unless @others;
	skip 'pg_upgrade: the extension is built for one version only', 1;
}

done_testing();

# Which fork is tested where:
#
#   crash, also of a transaction that was told an epoch       001, 017
#   crash under load, by immediate stop, SIGKILL, of a backend 017
#   grant waits for a synchronous standby                     003, 018
#   nothing lost with a synchronous standby                   018
#   dump and restore, by owner and superuser, once more       005
#   dump restored in the same and in another cluster          018
#   dump and clone of a database that never granted           018
#   two copies of what was itself a copy                      018
#   data of a dump restored in place, in any order            018
#   CREATE DATABASE ... TEMPLATE                              005, 018
#   promotion of a standby that missed grants                 007
#   two standbys promoted to the same timeline number         018
#   promotion of a standby whose replay was paused            018
#   standby.signal removed                                    018
#   point-in-time recovery, twice                             018
#   data directory copied, and started without recovery       018
#   data directory restored in place, unchanged files kept    018
#   pg_rewind, rejoin, promotion                              018
#   old primary goes on beside the new one                    007, 018
#   races of drawing, skipping and raising                    005, 018
#   an attempt repeated beside a grant that is rolled back    018
#   lease.drop and lease.create                               018 (and test/sql)
#   DROP EXTENSION, CREATE EXTENSION, lease.raise_floor       018 (and test/sql)
#   pg_upgrade                                                nowhere
