# "pg_lease run" while servers are restarted and replaced, with several hosts of which
# some do not answer, and through a pooler.  G2, G7.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use IPC::Run ();
use LeaseTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use RunTest;
use Test::More;
use Time::HiRes ();

my $TTL = 10;

my $primary = new_server('run_primary', "wal_sender_timeout = 2s\n", allows_streaming => 1);
$primary->backup('copy');
my $standby = PostgreSQL::Test::Cluster->new('run_standby');
$standby->init_from_backup($primary, 'copy', has_streaming => 1);
$standby->start;
my $proxy = proxy($primary);
my $dir = $PostgreSQL::Test::Utils::tmp_check;

# state(NODE) returns who holds the lease, and under which epoch.
sub state
{
	my ($node) = @_;

	return $node->safe_psql('postgres',
		"SELECT state, holder, epoch FROM lease.status WHERE name = 'L'");
}

#----
# A restart
#----

my $run = program($primary->connstr('postgres'), [ '--lease=L', "--ttl=$TTL", '--holder=one' ],
	'sleep', 1000);
my $epoch = $run->wait_for('started')->{epoch};
my $second = program($primary->connstr('postgres'),
	[ '--lease=L', "--ttl=$TTL", '--holder=two' ], 'true');
wait_until($primary, 'SELECT count(*) = 1 FROM lease.candidate', 'the second one to wait');
foreach my $mode ('fast', 'immediate')
{
	my $renewals = $run->count('renewed') + $run->count('renewal_recovered');
	my $connections = $run->count('connected');

	$primary->stop($mode);
	$primary->start;
	await_that(sub { $run->count('connected') > $connections }, 'a new connection');
	await_that(sub { $run->count('renewed') + $run->count('renewal_recovered') > $renewals },
		'a renewal');
	is(state($primary), "held|one|$epoch", "a restart ($mode): the leader stays");
}
wait_until($primary, 'SELECT count(*) = 1 FROM lease.candidate', 'the second one to wait again');
is($run->count('started') . $run->count('lost'), '10', 'nothing has happened to the command');
$run->signal('TERM');
$run->exit_code;
is($second->exit_code, 0, 'who waited through all that is next');

#----
# A server that is slow to take connections
#----

# Its name has two addresses, so that each attempt is a short one at first.
my $two = $proxy->connstr;
$two =~ s/host=127\.0\.0\.1/host=127.0.0.1,127.0.0.1/;
$run = program($two, [ '--lease=L', "--ttl=$TTL" ], 'sleep', 1000);
$run->wait_for('renewed');
$proxy->tell('late ' . $TTL / 8);
$proxy->tell('cut');
$run->wait_for('connected');
$run->wait_for('renewed');
is($run->count('lost'), 0, 'a leader connects again to a server that is slow with that');
cmp_ok($run->count('renewal_failed') + $run->count('connection_failed'),
	'>=', 3, 'after the attempts that were too short');
$proxy->tell('late 0');
$run->signal('TERM');
$run->exit_code;

#----
# A failover
#----

# A candidate that was granted the lease without being told so is told to end. The server
# to which it connects then is a standby that has not received the grant: it does not
# take its word for it that there is none.
$standby->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
wait_until($standby, "SELECT pg_get_wal_replay_pause_state() = 'paused'", 'the pause');
my $lossy = proxy($primary);
my ($lossy_port) = $lossy->connstr =~ /port=(\d+)/;
$lossy->tell('swallow 1 lease.await(');
$run = program(
	"dbname=postgres sslmode=disable host=127.0.0.1," . join(',', ($primary->host) x 2)
	  . " port=$lossy_port," . join(',', $standby->port, $primary->port),
	[ '--lease=L', '--ttl=1h', '--holder=unaware' ], 'true');
wait_until($primary,
	"SELECT state = 'held' AND holder = 'unaware' FROM lease.status WHERE name = 'L'",
	'the grant');
$run->signal('STOP');
kill 'KILL', $lossy->{pid};
$run->signal('TERM');
$run->signal('CONT');
is($run->exit_code, 143, 'told to end, with a grant of which it does not know');
like(state($primary), qr/^free/, 'it is given back where that can be done');
$standby->safe_psql('postgres', 'SELECT pg_wal_replay_resume()');

# Who is still connecting has nothing to give back, and ends at once when told to.
$proxy->tell('hole');
$run = program($proxy->connstr, ['--lease=L'], 'true');
$run->wait_for('candidate');
my $told = boot_clock();
$run->signal('TERM');
is($run->exit_code, 143, 'told to end while a server does not answer');
cmp_ok($run->{ended_at} - $told, '<', 2.5, 'it does, at once');

# The first host does not answer, the second is a standby, the third the primary.
my ($proxy_port) = $proxy->connstr =~ /port=(\d+)/;
my $hosts = 'dbname=postgres sslmode=disable host=127.0.0.1,' . join(',', ($primary->host) x 2)
  . " port=$proxy_port," . join(',', $standby->port, $primary->port);
my @runs = map {
	program("$hosts$_", [ '--lease=L', "--ttl=$TTL" ], 'sleep', 1000)
} ('', ' target_session_attrs=read-write', ' target_session_attrs=primary');
my $leader;
await_that(sub { ($leader) = grep { $_->count('started') } @runs; defined $leader },
	'one of them to lead');
pass('hosts that do not answer, and standbys, are passed over');
wait_until($primary, 'SELECT count(*) = 2 FROM lease.candidate', 'the others to wait');
$epoch = $leader->last_of('started')->{epoch};
$primary->wait_for_catchup($standby);
$primary->stop('immediate');
$standby->promote;
await_that(sub { $leader->count('renewal_recovered') }, 'a renewal on the promoted standby');
is($standby->safe_psql('postgres', "SELECT lease.holds('L', $epoch)"),
	't', 'the leader goes on, on the promoted standby');
is($leader->count('lost'), 0, 'and has not noticed more than failures');
wait_until($standby, 'SELECT count(*) = 2 FROM lease.candidate', 'the others to wait there');
$leader->signal('TERM');
$leader->exit_code;
my @others = grep { $_ != $leader } @runs;
my $next;
await_that(sub { ($next) = grep { $_->count('started') } @others; defined $next },
	'another one to lead');
cmp_ok($next->last_of('started')->{epoch} - $epoch, '>', 2**32,
	'the next leader has an epoch of the new branch');
foreach my $other (@others)
{
	$other->signal('TERM');
	$other->exit_code;
}

# A grant that the standby had not received: the holder is told that it has lost it.
my $node = $standby;
$node->append_conf('postgresql.conf', "max_wal_senders = 5\nwal_level = replica");
$node->restart;
$node->backup('again');
my $late = PostgreSQL::Test::Cluster->new('run_late');
$late->init_from_backup($node, 'again', has_streaming => 1);
$late->start;
$node->wait_for_catchup($late);
$late->stop;
$run = program(
	'dbname=postgres host=' . join(',', ($node->host) x 2) . ' port='
	  . join(',', $node->port, $late->port),
	[ '--lease=L', "--ttl=$TTL" ], 'sleep', 1000);
$run->wait_for('started');
$node->stop('immediate');
$late->start;
$late->promote;
is($run->exit_code, 76, 'a grant that the promoted standby does not know is lost');
like($run->last_of('lost')->{message}, qr/superseded|released|expired/, 'the log says why');

#----
# A pooler
#----

my ($pgbouncer) =
  grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin';
my $pooler;

END
{
	my $status = $?;

	$pooler->kill_kill(grace => 5) if $pooler;
	$? = $status;
}

SKIP:
{
	if (!$pgbouncer)
	{
		die 'PgBouncer is not installed' if $ENV{LEASE_ALL_DRIVERS};
		skip 'PgBouncer is not installed', 1;
	}
	my $owner = $late->safe_psql('postgres', 'SELECT current_user');
	my $place = PostgreSQL::Test::Utils::tempdir_short;
	my $log = '';

	append_to_file("$place/users", qq("$owner" ""\n));
	append_to_file("$place/pgbouncer.ini", <<"INI");
[databases]
postgres = host=${\ $late->host} port=${\ $late->port} pool_size=3

[pgbouncer]
listen_addr =
listen_port = 6432
unix_socket_dir = $place
auth_type = trust
auth_file = $place/users
pool_mode = transaction
INI
	$pooler = IPC::Run::start([ $pgbouncer, "$place/pgbouncer.ini" ],
		'<', \undef, '>', \$log, '2>&1');
	await_that(sub { $pooler->pump_nb; $log =~ /process up/ }, 'PgBouncer');

	my $pooled = "host=$place port=6432 dbname=postgres user=$owner";
	my $write = q(psql -Xqd "$0" -c "INSERT INTO work (who) VALUES ('pooled')"; exec sleep 1000);
	my @pair = map {
		program($pooled, [ '--lease=L', '--ttl=6s' ],
			'bash', '-c', $write, $late->connstr('postgres'))
	} 1 .. 2;
	my $one;
	await_that(sub { ($one) = grep { $_->count('started') } @pair; defined $one },
		'one of them to lead');
	my ($two) = grep { $_ != $one } @pair;
	wait_until($late, 'SELECT count(*) = 1 FROM lease.candidate', 'the other one to wait');
	$one->wait_for('renewed') for 1 .. 3;
	wait_until($late, "SELECT count(*) = 1 FROM work WHERE who = 'pooled'", 'its write');
	$one->signal('TERM');
	$one->exit_code;
	$two->wait_for('started');
	wait_until($late, "SELECT count(*) = 2 FROM work WHERE who = 'pooled'",
		'the write of the next one');
	is($one->count('renewal_failed') . $one->count('lost'), '00', 'everything works through a pooler');

	# The pooler goes away and comes back.
	my $renewals = $two->count('renewed');
	$pooler->kill_kill;
	unlink "$place/.s.PGSQL.6432";
	$log = '';
	$pooler = IPC::Run::start([ $pgbouncer, "$place/pgbouncer.ini" ],
		'<', \undef, '>', \$log, '2>&1');
	await_that(sub { $pooler->pump_nb; $log =~ /process up/ }, 'PgBouncer again');
	await_that(sub { $two->count('renewed') + $two->count('renewal_recovered') > $renewals },
		'a renewal');
	is($two->count('lost'), 0, 'also when it is restarted');
	$two->signal('TERM');
	$two->exit_code;
}

done_testing();
