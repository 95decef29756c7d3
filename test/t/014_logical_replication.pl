# Logical replication into protected tables, and a physical standby of them.  G4, and
# section 5.3 of the contract.
#
# What replication applies has passed the fence at its origin, so an ordinary fence lets
# it through, for every kind of change, for the first copy of a table and through
# partitions; what is written at the subscriber itself is refused as ever.  A fence that
# was built with "always" refuses what is applied, too: nothing arrives, the log and the
# statistics say so, and when the fence is taken away, or no longer fires always,
# replication goes on by itself and nothing was lost.  The same two kinds of fence are
# told apart by session_replication_role, for whoever may set it.
#
# lease.doctor() says which tables a subscription writes to, and what of a server's
# configuration undoes fences or grants; it also works on a standby.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use LeaseTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# What was refused is tried again at once.
my $configuration = q{
wal_retrieve_retry_interval = 50ms
max_worker_processes = 30
max_logical_replication_workers = 20
max_sync_workers_per_subscription = 2
log_error_verbosity = verbose
};
my $publisher =
  new_server('publisher', $configuration, allows_streaming => 'logical');
my $subscriber =
  new_server('subscriber', $configuration, allows_streaming => 'logical');

# Epochs are numbers, and two servers that grant them independently of each other tell
# the same ones.  Those of the subscriber are kept apart.
$subscriber->safe_psql('postgres', 'SELECT lease.raise_floor(1000)');
my $epoch = $publisher->safe_psql('postgres',
	"SELECT epoch FROM lease.acquire('L', 'A')");
my $own = $subscriber->safe_psql('postgres',
	"SELECT epoch FROM lease.acquire('L', 'S')");
cmp_ok($own, '>', $epoch, 'the subscriber has an epoch of its own');

# guarded(NODE, EPOCH, SQL) runs a script in a guarded transaction, which must succeed.
sub guarded
{
	my ($node, $token, $sql) = @_;

	$node->safe_psql('postgres',
		"BEGIN; SELECT lease.guard('L', $token); $sql; COMMIT");
	return;
}

# publish(TABLE, OPTIONS OF protect, OPTIONS OF THE PUBLICATION) protects a table on
# the subscriber, and subscribes to the table of that name; both have the name of the
# table.
sub publish
{
	my ($table, $protect, $options) = @_;
	my $connection = $publisher->connstr('postgres');

	$publisher->safe_psql('postgres',
		"CREATE PUBLICATION $table FOR TABLE $table " . ($options // ''));
	$subscriber->safe_psql(
		'postgres', qq{
		SELECT lease.protect('$table', 'L' $protect);
		CREATE SUBSCRIPTION $table CONNECTION \$\$$connection application_name=$table\$\$
			PUBLICATION $table;
	});
	return;
}

# synchronised(TABLE) waits until the first copy of a table is there.
sub synchronised
{
	my ($table) = @_;

	wait_until($subscriber,
		"SELECT count(*) > 0 AND bool_and(r.srsubstate = 'r') FROM pg_subscription_rel r"
		  . " JOIN pg_subscription s ON s.oid = r.srsubid WHERE s.subname = '$table'",
		"the first copy of $table");
	return;
}

# arrived(TABLE, NAME) passes if what the publisher has of a table arrives.
sub arrived
{
	my ($table, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $rows = "SELECT string_agg(t::text, ' ' ORDER BY t::text) FROM $table t";

	$publisher->wait_for_catchup($table);
	return is($subscriber->safe_psql('postgres', $rows),
		$publisher->safe_psql('postgres', $rows), $name);
}

# stopped(TABLE, KIND, MESSAGE, OFFSET, NAME) passes if the subscription of a table
# fails twice from that place of the log on, and says so there and in its statistics;
# KIND is apply or sync.
sub stopped
{
	my ($table, $kind, $message, $offset, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $count = "SELECT ${kind}_error_count FROM pg_stat_subscription_stats"
	  . " WHERE subname = '$table'";

	$subscriber->wait_for_log(qr/$message/, $offset);
	my $failures = $subscriber->safe_psql('postgres', $count);
	return ok(
		$subscriber->poll_query_until('postgres',
			"SELECT ($count) > $failures + 1"),
		$name);
}

# rows(NODE, TABLE) is what a table has.
sub rows
{
	my ($node, $table) = @_;

	return $node->safe_psql('postgres',
		"SELECT string_agg(t::text, ' ' ORDER BY t::text) FROM $table t");
}

# The pattern of the error that a table's fence raises
sub no_token
{
	my ($table) = @_;

	return qr/ERROR:  LS004: write to table "$table" carries no token for lease "L"/;
}

my $s = session($subscriber);

# refused_here(TABLE, ROW, NAME) passes if the subscriber itself cannot write to a
# table.
sub refused_here
{
	my ($table, $row, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	my @writes = ("INSERT INTO $table VALUES ($row)", "TRUNCATE $table");

	# Where there are no rows, none are written.
	push @writes, "UPDATE $table SET id = id", "DELETE FROM $table"
	  if rows($subscriber, $table) ne '';
	return is(join(' ', map { $s->query($_)->{sqlstate} } @writes),
		join(' ', ('LS004') x @writes), $name);
}

# all_triggers(TABLE, HOW) enables all triggers of a table and of its partitions.
sub all_triggers
{
	my ($table, $how) = @_;

	$subscriber->safe_psql(
		'postgres', qq{
		DO \$\$ DECLARE sql text; BEGIN
			FOR sql IN SELECT format('ALTER TABLE %s ENABLE $how TRIGGER %I', tgrelid::regclass, tgname)
				FROM pg_trigger WHERE tgname LIKE 'lease%'
					AND (tgrelid = '$table'::regclass OR tgrelid IN (SELECT relid FROM pg_partition_tree('$table')))
			LOOP
				EXECUTE sql;
			END LOOP;
		END \$\$});
	return;
}

#
# (a) and (c): an ordinary fence
#

foreach my $node ($publisher, $subscriber)
{
	$node->safe_psql(
		'postgres', q{
		CREATE TABLE ordinary (id int PRIMARY KEY, note text);
		CREATE TABLE strict (id int PRIMARY KEY, note text);
		CREATE TABLE copied (id int PRIMARY KEY, note text);
	});
}
$publisher->safe_psql('postgres',
	"SELECT lease.protect(t, 'L') FROM unnest('{ordinary,strict,copied}'::regclass[]) AS t");
guarded($publisher, $epoch,
	"INSERT INTO ordinary SELECT i, 'copied' FROM generate_series(1, 4) AS i");
publish('ordinary', '');
synchronised('ordinary');
arrived('ordinary', 'the first copy passes an ordinary fence');

guarded($publisher, $epoch, "INSERT INTO ordinary VALUES (5, 'inserted')");
guarded($publisher, $epoch, "UPDATE ordinary SET note = 'updated' WHERE id = 1");
guarded($publisher, $epoch, 'UPDATE ordinary SET id = 20 WHERE id = 2');
guarded($publisher, $epoch, 'DELETE FROM ordinary WHERE id = 3');
arrived('ordinary', 'so do INSERT, UPDATE and DELETE');
is(rows($subscriber, 'ordinary'),
	'(1,updated) (20,copied) (4,copied) (5,inserted)', 'as they were');
refused_here('ordinary', "9, 'local'", 'local writes are refused');
refused($s->query("BEGIN; SELECT lease.guard('L', $epoch)"),
	'LS001', 'the token of the publisher is worth nothing here');
$s->do('ROLLBACK');
guarded($subscriber, $own, "INSERT INTO ordinary VALUES (6, 'local')");
is($s->do('SELECT count(*) FROM ordinary'), '5', 'one of the subscriber admits a write');
guarded($publisher, $epoch, 'TRUNCATE ordinary');
guarded($publisher, $epoch, "INSERT INTO ordinary VALUES (1, 'after')");
arrived('ordinary', 'TRUNCATE passes, too');

#
# (b): a fence that fires always
#

publish('strict', ', always => true');
synchronised('strict');
my $log = -s $subscriber->logfile;
guarded($publisher, $epoch, "INSERT INTO strict VALUES (1, 'a'), (2, 'b')");
stopped('strict', 'apply', no_token('strict'), $log, 'INSERT is refused, again and again');
is(rows($subscriber, 'strict'), '', 'nothing arrives');
guarded($publisher, $epoch, "UPDATE strict SET note = 'c' WHERE id = 1");
guarded($publisher, $epoch, "INSERT INTO ordinary VALUES (2, 'meanwhile')");
arrived('ordinary', 'another subscription goes on');
is(rows($subscriber, 'strict'), '', 'still nothing');
refused_here('strict', "9, 'local'", 'local writes are refused as well');

# Nothing is lost.
guarded($subscriber, $own, "SELECT lease.unprotect('strict')");
arrived('strict', 'without the fence it goes on by itself');
is(rows($subscriber, 'strict'), '(1,c) (2,b)', 'with all changes');

# Each kind of change, and each way to let it through
foreach my $change (
	"UPDATE strict SET note = 'd' WHERE id = 1",
	'DELETE FROM strict WHERE id = 1',
	'TRUNCATE strict')
{
	my ($what) = split / /, $change;
	my $trigger =
	  $what eq 'TRUNCATE' ? 'lease_fence_truncate' : 'lease_fence';
	my $before = rows($subscriber, 'strict');

	$subscriber->safe_psql('postgres',
		"SELECT lease.protect('strict', 'L', always => true)");
	$log = -s $subscriber->logfile;
	guarded($publisher, $epoch, $change);
	stopped('strict', 'apply', no_token('strict'), $log, "$what is refused");
	is(rows($subscriber, 'strict'), $before, 'and changes nothing');
	$subscriber->safe_psql('postgres',
		"ALTER TABLE strict ENABLE TRIGGER $trigger");
	arrived('strict', "a fence that no longer fires always lets it through");
	refused_here('strict', "9, 'local'", 'but no local writes');
	guarded($subscriber, $own, "SELECT lease.unprotect('strict')");
}

#
# (c): the first copy, where the fence fires always
#

guarded($publisher, $epoch,
	"INSERT INTO copied SELECT i, 'copied' FROM generate_series(1, 3) AS i");
$log = -s $subscriber->logfile;
publish('copied', ', always => true');
stopped('copied', 'sync', no_token('copied'), $log, 'the first copy is refused');
is(rows($subscriber, 'copied'), '', 'nothing arrives');
guarded($publisher, $epoch, "INSERT INTO copied VALUES (4, 'later')");
$subscriber->safe_psql('postgres', 'ALTER TABLE copied ENABLE TRIGGER lease_fence');
synchronised('copied');
arrived('copied', 'it is made when the fence lets it');
is(rows($subscriber, 'copied'),
	'(1,copied) (2,copied) (3,copied) (4,later)', 'with what was written since');

#
# (d): rows that carry their epoch
#

foreach my $node ($publisher, $subscriber)
{
	$node->safe_psql(
		'postgres', q{
		CREATE TABLE stamped (id int PRIMARY KEY, epoch bigint);
		CREATE TABLE stamped_strict (id int PRIMARY KEY, epoch bigint);
	});
}
$publisher->safe_psql('postgres',
	"SELECT lease.protect(t, 'L', epoch_column => 'epoch')"
	  . " FROM unnest('{stamped,stamped_strict}'::regclass[]) AS t");
publish('stamped', ", epoch_column => 'epoch'");
publish('stamped_strict', ", epoch_column => 'epoch', always => true");
synchronised('stamped');
synchronised('stamped_strict');
guarded($publisher, $epoch,
	'INSERT INTO stamped (id) SELECT generate_series(1, 3)');
my $later = $publisher->safe_psql('postgres',
	"SELECT epoch FROM lease.acquire('L', 'A', reclaim => true)");
guarded($publisher, $later, 'UPDATE stamped SET id = 4 WHERE id = 1');
guarded($publisher, $later, 'INSERT INTO stamped (id) VALUES (5)');
guarded($publisher, $later, 'DELETE FROM stamped WHERE id = 2');
arrived('stamped', 'epochs arrive as they are');
is(rows($subscriber, 'stamped'),
	"(3,$epoch) (4,$later) (5,$later)", 'of both grants');
is( join(' ', map { $s->query($_)->{sqlstate} }
		"INSERT INTO stamped VALUES (9, $later)",
		'INSERT INTO stamped (id) VALUES (9)',
		'UPDATE stamped SET id = id',
		'DELETE FROM stamped'),
	'LS001 LS004 LS004 LS004',
	'local writes are refused, also with the epoch of the publisher');

# A row presents the token of the publisher, which no lease of the subscriber has
# granted.  What carries none has none.
$log = -s $subscriber->logfile;
guarded($publisher, $later, 'INSERT INTO stamped_strict (id) VALUES (1), (2)');
stopped('stamped_strict', 'apply', qr/ERROR:  LS001: epoch $later of lease "L" has been superseded/, $log,
	'where the fence fires always, a row with an epoch of the publisher is refused');
is(rows($subscriber, 'stamped_strict'), '', 'nothing arrives');
all_triggers('stamped_strict', '');
arrived('stamped_strict', 'it arrives when the fence lets it');
all_triggers('stamped_strict', 'ALWAYS');
foreach my $change (
	[ 'UPDATE stamped_strict SET id = 3 WHERE id = 1', 'LS001' ],
	[ 'DELETE FROM stamped_strict WHERE id = 2', 'LS004' ])
{
	$log = -s $subscriber->logfile;
	my $before = rows($subscriber, 'stamped_strict');
	guarded($publisher, $later, $change->[0]);
	stopped('stamped_strict', 'apply', qr/ERROR:  $change->[1]: /, $log,
		"$change->[0] is refused with $change->[1]");
	is(rows($subscriber, 'stamped_strict'), $before, 'and changes nothing');
	all_triggers('stamped_strict', '');
	arrived('stamped_strict', 'until the fence lets it');
	all_triggers('stamped_strict', 'ALWAYS');
}

# A number is all that a token is: one that the subscriber has granted itself is good
# there, wherever the row comes from.
$publisher->safe_psql('postgres', "SELECT lease.raise_floor($own - 1)");
is( $publisher->safe_psql(
		'postgres', "SELECT epoch FROM lease.acquire('L', 'A', reclaim => true)"),
	$own,
	'the publisher grants the number that the subscriber has granted');
$later = $own;
guarded($publisher, $later, 'INSERT INTO stamped_strict (id) VALUES (7)');
arrived('stamped_strict', 'and a row that carries it is admitted, which is why they are kept apart');

#
# (e): partitions
#

# On the subscriber the root has other partitions, where the root is what is published.
foreach my $via ('root', 'leaf')
{
	foreach my $kind ('ordinary', 'strict')
	{
		my $table = "${via}_$kind";
		my $always = $kind eq 'strict' ? ', always => true' : '';

		foreach my $node ($publisher, $subscriber)
		{
			my $same = $via eq 'leaf' || $node == $publisher;

			$node->safe_psql(
				'postgres',
				"CREATE TABLE $table (id int PRIMARY KEY, note text) PARTITION BY RANGE (id);"
				  . (
					$same
					? "CREATE TABLE ${table}_1 PARTITION OF $table FOR VALUES FROM (0) TO (10);"
					  . "CREATE TABLE ${table}_2 PARTITION OF $table FOR VALUES FROM (10) TO (20)"
					: "CREATE TABLE ${table}_x PARTITION OF $table FOR VALUES FROM (0) TO (2);"
					  . "CREATE TABLE ${table}_y PARTITION OF $table DEFAULT"));
		}
		$publisher->safe_psql('postgres', "SELECT lease.protect('$table', 'L')");
		guarded($publisher, $later, "INSERT INTO $table VALUES (1, 'a'), (3, 'b'), (11, 'c')");
		$log = -s $subscriber->logfile;
		publish($table, $always,
			'WITH (publish_via_partition_root = ' . ($via eq 'root' ? 'true' : 'false') . ')');
		if ($kind eq 'strict')
		{
			stopped($table, 'sync', qr/ERROR:  LS004: write to table "${table}(_[12xy])?"/,
				$log, "$table: the first copy is refused");
			is(rows($subscriber, $table), '', 'nothing arrives');
			all_triggers($table, '');
		}
		synchronised($table);
		arrived($table, "$table: the first copy arrives");

		# One of them moves a row to another partition.
		foreach my $change (
			"INSERT INTO $table VALUES (4, 'd'), (14, 'e')",
			"UPDATE $table SET note = 'u' WHERE id = 11",
			"DELETE FROM $table WHERE id = 3",
			"UPDATE $table SET id = 16 WHERE id = 1",
			"TRUNCATE $table")
		{
			my $before = rows($subscriber, $table);

			all_triggers($table, 'ALWAYS') if $kind eq 'strict';
			$log = -s $subscriber->logfile;
			guarded($publisher, $later, $change);
			if ($kind eq 'strict')
			{
				stopped($table, 'apply',
					qr/ERROR:  LS004: write to table "${table}(_[12xy])?"/, $log,
					"$change is refused");
				is(rows($subscriber, $table), $before, 'and changes nothing');
				all_triggers($table, '');
			}
			arrived($table, "$change arrives");
		}
		guarded($publisher, $later, "INSERT INTO $table VALUES (5, 'f')");
		arrived($table, "and so what is written next");
		refused_here($table, "6, 'local'", 'local writes are refused');
		is($subscriber->safe_psql('postgres',
				"SELECT count(*) FROM pg_partition_tree('$table') p JOIN lease.fence f ON f.rel = p.relid"),
			'3', 'the fence is around all of it');
	}
}

#
# What the doctor says of subscriptions
#

# warned is which tables it says that a subscription writes to.
sub warned
{
	return $subscriber->safe_psql('postgres',
		"SELECT string_agg(replace(object, 'table public.', ''), ' ' ORDER BY object COLLATE \"C\")"
		  . " FROM lease.doctor() WHERE severity = 'warning' AND meaning LIKE 'Subscription %'");
}
$subscriber->safe_psql('postgres', 'SELECT lease.protect(\'strict\', \'L\', always => true)');
$subscriber->safe_psql('postgres', 'ALTER TABLE copied ENABLE ALWAYS TRIGGER lease_fence');
is( warned(),
	'leaf_ordinary_1 leaf_ordinary_2 leaf_strict_1 leaf_strict_2 ordinary'
	  . ' root_ordinary root_ordinary_x root_ordinary_y'
	  . ' root_strict root_strict_x root_strict_y stamped',
	'the doctor warns of the tables that subscriptions write to past their fences');
$subscriber->safe_psql('postgres', $_)
  foreach split /\n/,
  $subscriber->safe_psql('postgres',
	"SELECT remedy FROM lease.doctor() WHERE meaning LIKE 'Subscription %'");
is(warned(), '', 'and is quiet when they fire always');
$log = -s $subscriber->logfile;
guarded($publisher, $later, 'INSERT INTO root_ordinary VALUES (7)');
stopped('root_ordinary', 'apply', qr/ERROR:  LS004: write to table "root_ordinary"/,
	$log, 'which they do');

#
# (f): session_replication_role
#

$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION ' . $_)
  foreach split /\n/,
  $subscriber->safe_psql('postgres', 'SELECT subname FROM pg_subscription');
$subscriber->safe_psql(
	'postgres', q{
	CREATE TABLE plain (id int);
	CREATE TABLE always (id int);
	INSERT INTO plain VALUES (1);
	INSERT INTO always VALUES (1);
	CREATE ROLE replicator LOGIN;
	CREATE ROLE writer LOGIN;
	GRANT ALL ON plain, always TO replicator, writer;
	GRANT SET ON PARAMETER session_replication_role TO replicator;
	SELECT lease.protect('plain', 'L'), lease.protect('always', 'L', always => true);
});
my $superuser = $subscriber->safe_psql('postgres', 'SELECT current_user');
foreach my $user ($superuser, 'replicator')
{
	my $r = session($subscriber, user => $user);

	foreach my $write ('INSERT INTO %s VALUES (2)', 'UPDATE %s SET id = id',
		'DELETE FROM %s', 'TRUNCATE %s')
	{
		my ($what) = split / /, $write;

		foreach my $role ('origin', 'local')
		{
			$r->do("SET session_replication_role = $role");
			refused($r->query(sprintf $write, 'plain'),
				'LS004', "$user, $role: $what is refused");
			refused($r->query(sprintf $write, 'always'),
				'LS004', '... also where the fence fires always');
		}
		$r->do('SET session_replication_role = replica');
		is($r->query('BEGIN; ' . sprintf($write, 'plain') . '; ROLLBACK')->{error},
			'', "$user, replica: $what passes an ordinary fence");
		refused($r->query(sprintf $write, 'always'),
			'LS004', '... but not one that fires always');
	}
}
my $w = session($subscriber, user => 'writer');
refused($w->query('SET session_replication_role = replica'),
	'42501', 'nobody else may set it');
refused($w->query('DELETE FROM plain'), 'LS004', 'or gets past');

# DDL: as for writes, fences that fire always bind every session, also one that has not
# used anything of lease before; ordinary ones do not.
$subscriber->safe_psql(
	'postgres', q{
	CREATE TABLE tree (id int) PARTITION BY LIST (id);
	CREATE TABLE tree_1 PARTITION OF tree FOR VALUES IN (1);
	SELECT lease.protect('tree', 'L', always => true);
});
foreach my $ddl ('DROP TABLE tree_1', 'ALTER TABLE tree DETACH PARTITION tree_1',
	'ALTER TABLE tree DETACH PARTITION tree_1 CONCURRENTLY',
	'DROP TRIGGER lease_fence ON always', 'DROP TABLE always',
	'ALTER TABLE always ALTER id TYPE bigint')
{
	my $fresh = session($subscriber, sql => 'SET session_replication_role = replica');
	refused($fresh->query($ddl), 'LS004', "replica: $ddl is refused");
	$fresh->quit;
}
session($subscriber,
	sql => 'SET session_replication_role = replica;'
	  . ' CREATE TABLE tree_2 PARTITION OF tree FOR VALUES IN (2);'
	  . ' BEGIN; DROP TABLE plain; ROLLBACK');
is($s->do("SELECT row_trigger, truncate_trigger FROM lease.fence WHERE rel = 'tree_2'::regclass"),
	'always|always', 'and new partitions are fenced');

is( $s->do("SELECT severity, object, remedy FROM lease.doctor() WHERE object = 'role replicator'"),
	'notice|role replicator|REVOKE SET ON PARAMETER session_replication_role FROM replicator CASCADE;',
	'the doctor knows who may set it');

$subscriber->stop;

#
# (g): a physical standby, and what is configured there
#

$publisher->safe_psql('postgres', 'ALTER TABLE work DISABLE TRIGGER lease_fence');
$publisher->backup('copy');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($publisher, 'copy', has_streaming => 1);
$standby->append_conf('postgresql.conf', "fsync = on\n");
$standby->start;
$publisher->safe_psql('postgres', 'ALTER TABLE ordinary DISABLE TRIGGER lease_fence');
$publisher->wait_for_catchup($standby);

my $sick = "SELECT severity, object, remedy FROM lease.doctor() WHERE object LIKE 'table %'";
my $found =
	"error|table public.ordinary|ALTER TABLE public.ordinary ENABLE TRIGGER lease_fence;\n"
  . 'error|table public.work|ALTER TABLE public.work ENABLE TRIGGER lease_fence;';
is($publisher->safe_psql('postgres', $sick), $found, 'the doctor finds something');
is($standby->safe_psql('postgres', $sick), $found, 'and the same on a standby');
is( $standby->safe_psql('postgres',
		"SELECT rel, row_trigger FROM lease.fence WHERE rel::text IN ('work', 'strict') ORDER BY rel::text"),
	"strict|origin\nwork|disabled",
	'where lease.fence can be read');
my $h = session($standby);
foreach my $ddl ('CREATE TABLE n (id int)', 'CREATE TEMP TABLE n (id int)',
	'DROP TABLE work', 'ALTER TABLE work ENABLE TRIGGER lease_fence',
	'TRUNCATE work')
{
	refused($h->query($ddl), '25006', "$ddl is refused there as ever");
}
is( join(' ', map { $h->query($_)->{sqlstate} }
		'BEGIN', 'LOCK TABLE work IN ACCESS SHARE MODE', 'SET work_mem = 100',
		'PREPARE p AS SELECT 1', 'DEALLOCATE p', 'COMMIT', 'CHECKPOINT', 'LOAD \'lease\''),
	' ' x 7, 'and what a standby can do goes on');
$publisher->safe_psql('postgres', $_)
  foreach split /\n/,
  $publisher->safe_psql('postgres', "SELECT remedy FROM ($sick) AS s");
$publisher->wait_for_catchup($standby);
is($standby->safe_psql('postgres', $sick), '', 'what was mended is mended there');

#
# Settings of a server
#

# settings(NODE) is what the doctor says of those.
sub settings
{
	my ($node) = @_;

	return $node->safe_psql('postgres',
		"SELECT severity, object, remedy FROM lease.doctor() WHERE object LIKE 'setting %' AND object <> 'setting data_checksums'");
}

# mend(NODE) does what it says, and waits until that holds.
sub mend
{
	my ($node) = @_;

	foreach my $remedy (split /\n/,
		$node->safe_psql('postgres',
			"SELECT remedy FROM lease.doctor() WHERE object LIKE 'setting %' AND object <> 'setting data_checksums'"))
	{
		$node->safe_psql('postgres', $_) foreach split /(?<=;) /, $remedy;
	}
	wait_until($node,
		"SELECT NOT EXISTS (SELECT FROM lease.doctor() WHERE object LIKE 'setting %' AND object <> 'setting data_checksums')",
		'the settings to be mended');
	return;
}

is(settings($standby), '', 'nothing is to be said of a server as it should be');

# In configuration files
$standby->append_conf('postgresql.conf',
	"fsync = off\nfull_page_writes = off\nsession_replication_role = replica\n");
$standby->restart;
is( settings($standby),
	join("\n",
		map { "error|setting $_->[0]|ALTER SYSTEM SET $_->[0] = $_->[1]; SELECT pg_reload_conf();" }
		  [ fsync => 'on' ], [ full_page_writes => 'on' ], [ session_replication_role => 'origin' ]),
	'it says which are wrong');
mend($standby);
is(settings($standby), '', 'and how they are mended, also in a configuration file');
$standby->restart;
is(settings($standby), '', 'for good');
$standby->stop;

# On the command line, where nothing but a restart helps
$publisher->stop;
command_ok(
	[
		'pg_ctl', '-w', '-D', $publisher->data_dir, '-l', $publisher->logfile,
		'-o', '-c fsync=off -c session_replication_role=replica', 'start'
	],
	'a server is started with settings');
is( settings($publisher),
	"error|setting fsync|\nerror|setting session_replication_role|",
	'which no statement mends');
is( $publisher->safe_psql('postgres',
		"SELECT count(*) FROM lease.doctor() WHERE meaning LIKE '%command line of the server, which has to be restarted without it.'"),
	'2', 'so it says what does');
is($publisher->safe_psql('postgres', "INSERT INTO work (who) VALUES ('anybody') RETURNING who"),
	'anybody', 'an ordinary fence does not fire there');
command_ok([ 'pg_ctl', '-w', '-D', $publisher->data_dir, '-m', 'fast', 'stop' ], 'it stops');

done_testing();
