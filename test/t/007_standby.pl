# A hot standby, and its promotion.  G2, O2.
#
# On a standby what reads works, and everything that would write says that this is a
# standby and what to do (25006).  When a standby is promoted that has not received
# the last grants, its epochs are greater than the lost ones all the same, and what
# the lost ones were told is worth nothing there.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use LeaseTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_server('primary', '', allows_streaming => 1);
my $epoch =
  $primary->safe_psql('postgres', "SELECT epoch FROM lease.acquire('L', 'A')");
$primary->backup('copy');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'copy', has_streaming => 1);
$standby->start;

# What is granted now comes by replication.
$primary->safe_psql('postgres',
	"SELECT lease.create('M', ttl => '10 min', role => 'pg_monitor')");
my $other =
  $primary->safe_psql('postgres', "SELECT epoch FROM lease.acquire('M', 'B')");
$primary->wait_for_catchup($standby);

# What reads
is( $standby->safe_psql('postgres',
		'SELECT name, state, epoch, holder, remaining > \'0\' FROM lease.status ORDER BY name'
	),
	"L|held|$epoch|A|t\nM|held|$other|B|t",
	'status shows the leases');
is( $standby->safe_psql('postgres', 'SELECT rel, lease, row_trigger FROM lease.fence'),
	'work|L|origin', 'so does lease.fence the fences');
is( $standby->safe_psql('postgres',
		"SELECT lease.holds('L', $epoch), lease.holds('L', $epoch + 1),"
		  . " lease.holds('nothing', 1), lease.holds(NULL, NULL)"),
	't|f|f|f',
	'holds works');
is( $standby->safe_psql('postgres',
		"SELECT lease.remaining('L', $epoch) BETWEEN '9 min' AND '10 min',"
		  . " lease.remaining('L', $epoch + 1)"),
	't|00:00:00',
	'remaining works');
is( $standby->safe_psql('postgres',
		"$AHEAD; SELECT lease.holds('L', $epoch)"),
	'f', 'a grant is over on a standby as elsewhere');

# Progress and heartbeats come by replication, too, and are as old there as they are.
$primary->safe_psql('postgres', "SELECT lease.progress('L', $epoch), lease.beat('A')");
$primary->wait_for_catchup($standby);
is( $standby->safe_psql('postgres',
		"SELECT held, working, reports, progress_age < '1 min' FROM lease.health WHERE name = 'L'"),
	't|t|1|t',
	'health shows who works');
is( $standby->safe_psql('postgres', 'SELECT peer, stale, leases FROM lease.peer'),
	'A|f|{L}',
	'peer who is there');
is( $standby->safe_psql('postgres',
		"$AHEAD; SELECT held, working, stale FROM lease.health, lease.peer WHERE name = 'L'"),
	'f|f|t', 'and who is not any more');
cmp_ok($standby->safe_psql('postgres', 'SELECT count(*) FROM lease.metric'),
	'>', 10, 'metric works');

# So do tasks: what is due there is due here, by the same clock.
my $define = q{
	SET lease.clock_offset = '-2 h';
	SELECT lease.create_task('T', 'L', every => '1 h', anchor => now() - interval '30 min', misfire => 'all');
	SELECT lease.create_action('A', 'L', 'unfenced', 'elsewhere');
};
$primary->safe_psql('postgres', $define);
my ($begun, $due) = split /\n/,
  $primary->safe_psql('postgres', "SELECT due_at FROM lease.due('T')");
$primary->safe_psql('postgres',
	"SELECT lease.begin_occurrence('T', '$begun', $epoch), lease.admit('R', $epoch),"
	  . " lease.begin_action('A', $epoch, acknowledge => 'it can be borne')");
$primary->wait_for_catchup($standby);
is( $standby->safe_psql('postgres',
		"SELECT due_at = '$begun', state, ready, epoch FROM lease.due() ORDER BY due_at"),
	"t|running|f|$epoch\nf|due|t|",
	'due shows what is due');
is( $standby->safe_psql('postgres',
		"SELECT task, ready, running, late_since = '$due', next_due > now() FROM lease.maintenance"),
	'T|1|1|t|t',
	'maintenance the tasks');
is( $standby->safe_psql('postgres',
		"SELECT o FROM lease.occurrences(every => '1 h', anchor => '$due', after => '$begun', up_to => 1) AS o"),
	$due, 'occurrences when they are');
is( $standby->safe_psql('postgres',
		'SELECT action, class, supported FROM lease.guarantee'),
	'A|unfenced|f',
	'guarantee the actions');
is( $standby->safe_psql('postgres',
		"SELECT lease.occurrence_key('T', '$due') IS NOT NULL, lease.is_fenced('work', 'L'),"
		  . " lease.is_guarded('L', $epoch), (SELECT count(*) FROM lease.acknowledgement)"),
	't|t|f|1',
	'and so on');

# What the doctor says of standbys and of what a crash or a failover may take back
my $findings = "SELECT severity, object FROM lease.doctor() WHERE object LIKE 'setting s%' ORDER BY 2, 1";
is($primary->safe_psql('postgres', $findings),
	'notice|setting synchronous_standby_names',
	'the doctor tells that no standby is synchronous');
is($standby->safe_psql('postgres', $findings), '', 'and a standby has none of its own');
$primary->append_conf('postgresql.conf',
	"synchronous_standby_names = 'nobody'\nsynchronous_commit = off");
$primary->reload;
ok( $primary->poll_query_until('postgres',
		"SELECT count(*) = 2 FROM lease.doctor()"
		  . " WHERE object = 'setting synchronous_standby_names' AND severity = 'warning'"
		  . " OR object = 'setting synchronous_commit' AND severity = 'notice'"),
	'that the one that is named is not there, and what is not durable');
$primary->append_conf('postgresql.conf',
	"synchronous_standby_names = 'standby'\nsynchronous_commit = on");
$primary->reload;
ok( $primary->poll_query_until('postgres',
		"SELECT count(*) = 0 FROM lease.doctor() WHERE object LIKE 'setting s%'"),
	'with a synchronous standby it has nothing to say');
$primary->append_conf('postgresql.conf', "synchronous_standby_names = ''");
$primary->reload;
is( $primary->safe_psql('postgres',
		"SELECT count(*) FROM lease.doctor() WHERE object = 'setting data_checksums'"),
	$primary->safe_psql('postgres', "SELECT (current_setting('data_checksums') = 'off')::int"),
	'data checksums');

# What writes
my %call = (
	acquire => "lease.acquire('L', 'A')",
	'acquire of one that does not exist' => "lease.acquire('nothing', 'A')",
	await => "CALL lease.await('L', 'A')",
	acquire_many => "lease.acquire_many(ARRAY['L'], 'A')",
	renew => "lease.renew('L', $epoch)",
	renew_many => "lease.renew_many(ARRAY['L'], ARRAY[$epoch])",
	release => "lease.release('L', $epoch)",
	'release of what is not held' => "lease.release('L', 9999)",
	release_many => "lease.release_many(ARRAY['L'], ARRAY[$epoch])",
	revoke => "lease.revoke('L')",
	create => "lease.create('N')",
	alter => "lease.alter('L', ttl => '1 min')",
	drop => "lease.drop('L')",
	raise_floor => 'lease.raise_floor(100)',
	progress => "lease.progress('L', $epoch)",
	beat => "lease.beat('B')",
	retire => "lease.retire('A')",
	guard => "lease.guard('L', $epoch)",
	'guard under a stale epoch' => "lease.guard('M', $epoch)",
	begin_occurrence => "lease.begin_occurrence('T', '$due', $epoch)",
	'begin_occurrence of what is begun' => "lease.begin_occurrence('T', '$begun', $epoch)",
	finish_occurrence => "lease.finish_occurrence('T', '$begun', 1, $epoch)",
	create_task => "lease.create_task('U', 'L', every => '1 h')",
	alter_task => "lease.alter_task('T', enabled => false)",
	drop_task => "lease.drop_task('T')",
	create_action => "lease.create_action('B', 'L', 'unfenced', 'elsewhere')",
	drop_action => "lease.drop_action('A')",
	begin_action => "lease.begin_action('A', $epoch, acknowledge => 'it can be borne')",
	prune_occurrences => "lease.prune_occurrences('-infinity')",
	admit => "lease.admit('R', $epoch)",
);
my $s = session($standby);
foreach my $name (sort keys %call)
{
	my $answer = $s->query($call{$name} =~ s/^(?=lease)/SELECT /r);
	refused($answer, '25006', "$name is refused");
	like($answer->{error}, qr/^HINT: .*standby/m, 'with a hint');
}
my $with_token = session($standby, options => "-c lease.token=L=$epoch");
refused($with_token->query("INSERT INTO work (who) VALUES ('A')"),
	'25006', 'a fenced write is refused');
refused($with_token->query("SELECT lease.refuses('L')"),
	'25006', 'and the fence itself admits nothing');
is($s->query('SELECT count(*) FROM lease.status')->{rows},
	'2', 'the session goes on');

# The primary goes on alone, grants, and is lost.
$standby->stop;
my @lost = ($epoch);
foreach (1 .. 2)
{
	push @lost,
	  $primary->safe_psql('postgres',
		"SELECT epoch FROM lease.acquire('L', 'A', reclaim => true)");
}
my $burnt = $primary->safe_psql('postgres',
	q{BEGIN; DO $$ BEGIN FOR i IN 1 .. 100 LOOP
		PERFORM lease.acquire('L', 'A', reclaim => true); END LOOP; END $$;
	SELECT epoch FROM lease.status WHERE name = 'L'; ROLLBACK});
push @lost, $burnt;
$primary->stop('immediate');

$standby->append_conf('postgresql.conf', "primary_conninfo = ''");
$standby->start;
$standby->promote;
is( $standby->safe_psql('postgres',
		"SELECT epoch, holder FROM lease.status WHERE name = 'L'"),
	"$epoch|A",
	'the promoted standby knows nothing of the last grants');
foreach my $i (1 .. $#lost)
{
	refused(session($standby)->query("SELECT lease.guard('L', $lost[$i])"),
		'LS003', "epoch $lost[$i], which it never had, is worth nothing");
}
is(session($standby)->query("SELECT lease.guard('L', $epoch)")->{error} =~ /ERROR/,
	'', 'the one that was superseded on the lost branch only is current again');

my $new = $standby->safe_psql('postgres',
	"SELECT epoch FROM lease.acquire('L', 'A', reclaim => true)");
cmp_ok($new, '>', $burnt,
	'the next epoch is greater than all that the lost primary told');
refused(session($standby)->query("SELECT lease.guard('L', $_)"),
	'LS001', "epoch $_ is superseded")
  foreach @lost;
my $next = $standby->safe_psql('postgres',
	"SELECT epoch FROM lease.acquire('M', 'B', reclaim => true)");
is($next, $new + 1, 'from there epochs go on one by one');

# The old primary, started as it was: another branch, which may not repeat those.
$primary->start;
my $old = $primary->safe_psql('postgres',
	"SELECT epoch FROM lease.acquire('L', 'A', reclaim => true)");
cmp_ok($old, '<', $new, 'the old primary is on a branch of its own');
refused(session($standby)->query("SELECT lease.guard('L', $old)"),
	'LS001', 'whose tokens are stale on the new one');
refused(session($primary)->query("SELECT lease.guard('L', $new)"),
	'LS003', 'and the other way round unknown');

$primary->stop;
$standby->stop;
done_testing();
