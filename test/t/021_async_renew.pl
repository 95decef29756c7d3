# How durably renewals commit.  G2, G3.
#
# With async_renew a transaction that has only renewed does not wait for the disk, nor
# for a standby, and a crash may forget it.  Whatever else a transaction has written
# commits as the session says, and a grant always synchronously.  After the crash the
# epoch is the same, and fences hold.
#
# Nothing but commits gets WAL to disk here.  That nobody waits for a standby shows in
# that there is none.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use LeaseTest;
use PostgreSQL::Test::Utils;
use Test::More;

# A batch that is read from many pages
my $BATCH = 300;

my $node = new_server(
	'async_renew', q{
fsync = on
wal_level = replica
max_wal_senders = 1
wal_sync_method = fdatasync
full_page_writes = off
wal_writer_delay = 10s
wal_writer_flush_after = 1GB
checkpoint_timeout = 1h
autovacuum = off
});

$node->safe_psql(
	'postgres', qq{
	SELECT lease.create('async', ttl => '10 min', async_renew => true),
		lease.create('sync', ttl => '10 min'),
		lease.create('other', ttl => '10 min', async_renew => true);
	SELECT lease.create('many/' || i, ttl => '10 min', async_renew => true)
	FROM generate_series(1, $BATCH) AS i;
	CREATE TABLE plain (id int);
});

my $session = session($node);
my $witness = session($node);
my %epoch;

# grant(LEASE) grants a lease.
sub grant
{
	my ($lease) = @_;

	$epoch{$lease} = $session->do("SELECT epoch FROM lease.acquire('$lease', 'holder')");
	return;
}

# renew(LEASE) returns a renewal.
sub renew
{
	my ($lease) = @_;

	return "SELECT lease.renew('$lease', $epoch{$lease})";
}

# waits_for_disk(SQL) tells whether WAL was flushed up to where it ended before.
sub waits_for_disk
{
	my ($sql) = @_;

	# What has been left behind so far, too
	$session->do(
		'BEGIN; SET LOCAL synchronous_commit = on; INSERT INTO plain DEFAULT VALUES; COMMIT'
	);
	my $flushed = $witness->do('SELECT pg_current_wal_flush_lsn()');
	$session->do($sql);
	return $witness->do("SELECT pg_current_wal_flush_lsn() > '$flushed'");
}

# cancel ends the wait of the session.
sub cancel
{
	$witness->do('SELECT pg_cancel_backend(' . $session->backend . ')');
	return;
}

grant($_) foreach 'async', 'sync';
$session->do("SELECT lease.acquire_many(array_agg('many/' || i), 'holder')"
	  . " FROM generate_series(1, $BATCH) AS i");
my $many =
  $session->do("SELECT format('SELECT count(*) FROM lease.renew_many(%L, %L)',"
	  . ' array_agg(name), array_agg(epoch))'
	  . " FROM lease.status WHERE name LIKE 'many/%'");
$session->do($many);

#----
# The disk
#----

foreach my $case (
	[ 'f', 'a renewal', renew('async') ],
	[
		'f',
		'renewals in one transaction',
		'BEGIN; ' . renew('async') . '; ' . renew('async') . '; COMMIT'
	],
	[ 'f', 'a batch of renewals', $many ],
	[
		'f',
		'a renewal in a savepoint',
		'BEGIN; SAVEPOINT s; ' . renew('async') . '; RELEASE s; COMMIT'
	],
	[
		'f',
		'a renewal in a guarded transaction',
		"BEGIN; SELECT lease.guard('async', $epoch{async}); "
		  . renew('async')
		  . '; COMMIT'
	],
	[ 't', 'a renewal without async_renew', renew('sync') ],
	[
		't',
		'a renewal with and one without',
		'BEGIN; ' . renew('async') . '; ' . renew('sync') . '; COMMIT'
	],
	[
		't',
		'one without and one with',
		'BEGIN; ' . renew('sync') . '; ' . renew('async') . '; COMMIT'
	],
	[
		't',
		'a renewal before another write',
		'BEGIN; ' . renew('async') . '; INSERT INTO plain VALUES (1); COMMIT'
	],
	[
		't',
		'a renewal after another write',
		'BEGIN; INSERT INTO plain VALUES (1); ' . renew('async') . '; COMMIT'
	],
	[
		't',
		'a renewal between renewals and another write',
		'BEGIN; '
		  . renew('async')
		  . '; INSERT INTO plain VALUES (1); '
		  . renew('async')
		  . '; COMMIT'
	],
	[
		't',
		'a renewal in a savepoint, and another write',
		'BEGIN; INSERT INTO plain VALUES (1); SAVEPOINT s; '
		  . renew('async')
		  . '; RELEASE s; COMMIT'
	],
	[
		't',
		'a renewal and a write in one statement',
		"WITH w AS (INSERT INTO plain VALUES (1)) " . renew('async')
	],
	[
		't',
		'a renewal and a grant',
		'BEGIN; ' . renew('async') . "; SELECT lease.acquire('other', 'holder'); COMMIT"
	],
	[
		't',
		'a renewal and a change of settings',
		'BEGIN; '
		  . renew('async')
		  . "; SELECT lease.alter('async', grace => '1 ms'); COMMIT"
	])
{
	my ($waits, $what, $sql) = @$case;

	is(waits_for_disk($sql), $waits,
		"$what: " . ($waits eq 't' ? 'waits for the disk' : 'does not wait'));
}

$session->do('SET synchronous_commit = off');
is( waits_for_disk('BEGIN; INSERT INTO plain VALUES (1); ' . renew('async') . '; COMMIT'),
	'f',
	'a session that does not want to wait does not wait');
is($session->do('SHOW synchronous_commit'), 'off', 'and stays as it is');
$session->do('RESET synchronous_commit');
$session->do(renew('async'));
is($session->do('SHOW synchronous_commit'),
	'on', 'nor is a renewal noticed by what follows in its session');

#----
# A standby
#----

$node->append_conf('postgresql.conf',
	"synchronous_standby_names = 'nobody'\nsynchronous_commit = local");
$node->reload;

# The server takes note of it at some moment after that.
my $until = time + $PATIENCE;
my $answered = 1;
while ($answered && time < $until)
{
	$session->ask(
		'BEGIN; SET LOCAL synchronous_commit = on; INSERT INTO plain VALUES (1); COMMIT');
	$answered = eval { $session->answer(1) };
}
is($answered, undef, 'whoever wants a standby waits');
cancel();
$session->do('SELECT');

foreach my $case (
	[ 0, 'remote_apply', 'a renewal', renew('async') ],
	[
		1, 'remote_apply',
		'a renewal and another write',
		'BEGIN; ' . renew('async') . '; INSERT INTO plain VALUES (1); COMMIT'
	],
	[ 1, 'remote_apply', 'a renewal without async_renew', renew('sync') ],
	[ 1, 'off', 'a grant', "SELECT lease.acquire('other', 'holder', reclaim => true)" ],
	[ 1, 'off', 'a revocation', "SELECT lease.revoke('other')" ])
{
	my ($waits, $setting, $what, $sql) = @$case;

	$session->do("SET synchronous_commit = $setting");
	$session->ask($sql);
	if ($waits)
	{
		wait_for_event($node, $session, 'SyncRep');
		cancel();
	}
	is( $session->answer->{error} =~ /canceling wait for synchronous replication/ ? 1 : 0,
		$waits,
		"$setting: $what " . ($waits ? 'waits for a standby' : 'does not wait'));
}
$node->append_conf('postgresql.conf',
	"synchronous_standby_names = ''\nsynchronous_commit = on");
$node->reload;
$session->do('RESET synchronous_commit');

#----
# A crash
#----

# What is not on disk is lost; the grant is not.
$session->do("SELECT lease.renew('async', $epoch{async}, ttl => '20 min')");
is($session->do("SELECT remaining > '15 min' FROM lease.status WHERE name = 'async'"),
	't', 'a renewal is seen at once');
$node->stop('immediate');
$node->start;
$session = session($node);
is( $session->do(
		"SELECT state, epoch, holder, remaining > '15 min' FROM lease.status WHERE name = 'async'"
	),
	"held|$epoch{async}|holder|f",
	'after a crash it is forgotten, and the grant is there');
$session->do("SELECT lease.alter('L', async_renew => true)");
grant('L');
$session->do(renew('L'));
$node->stop('immediate');
$node->start;
$session = session($node);
is($session->do(renew('L') =~ s/lease.renew/outcome FROM lease.renew/r),
	'renewed', 'its holder goes on');
is( $session->query(
		"BEGIN; SELECT lease.guard('L', $epoch{L}); INSERT INTO work (epoch) VALUES ($epoch{L}); COMMIT"
	)->{error},
	'',
	'and may write');

# A successor that took over before the crash
my $stale = $epoch{L};
$session->do('BEGIN');
$session->do(renew('L'));
$session->do('COMMIT');
$epoch{L} =
  $session->do("$AHEAD; SELECT epoch FROM lease.acquire('L', 'successor', ttl => '1 h')");
$node->stop('immediate');
$node->start;
$session = session($node);
is($session->do("SELECT epoch, holder FROM lease.status WHERE name = 'L'"),
	"$epoch{L}|successor", 'a takeover is never forgotten');
refused(
	$session->query(
		"BEGIN; SELECT lease.guard('L', $stale); INSERT INTO work (epoch) VALUES ($stale); COMMIT"
	),
	'LS001',
	'and the old epoch does not come back');

$node->stop;
done_testing();
