# A crash of the server right after an epoch was told.  G2, O2.
#
# Clients ask for asynchronous commit, and nothing but what the extension itself
# flushes gets to disk.  Whatever epoch anybody was told, in a committed grant or in
# a transaction that the crash ended, is never told again; a grant and a revocation
# that were answered are still there.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use LeaseTest;
use PostgreSQL::Test::Utils;
use Test::More;

# Only our own flushes: the WAL writer sleeps, and no checkpoint comes.
my $node = new_server(
	'crash', q{
synchronous_commit = off
wal_writer_delay = 10s
wal_writer_flush_after = 0
checkpoint_timeout = 1h
});

my $told = 0;    # the highest epoch that anybody was told

# crash ends the server without mercy and starts it again.
sub crash
{
	$node->stop('immediate');
	$node->start;
	return;
}

# next_epoch makes a grant of a lease that is free.
sub next_epoch
{
	my ($lease) = @_;

	return $node->safe_psql('postgres',
		"SELECT epoch FROM lease.acquire('$lease', 'next')");
}

# grew(EPOCH, NAME) passes if an epoch is greater than all before; it must not be
# as much greater as on another branch of history.
sub grew
{
	my ($epoch, $name) = @_;

	ok($epoch > $told && $epoch < $told + 1000, $name)
	  or diag("told before: $told, now: $epoch");
	$told = $epoch if $epoch > $told;
	return;
}

$node->safe_psql('postgres',
	"SELECT lease.create(name, ttl => '10 min')"
	  . " FROM unnest(ARRAY['M', 'N', 'O', 'P']) AS name");

# A grant that was answered
my $a = session($node);
is($a->do('SHOW synchronous_commit'), 'off', 'clients commit asynchronously');
my $held = $a->do("SELECT epoch FROM lease.acquire('L', 'A')");
crash();
is( $node->safe_psql('postgres',
		"SELECT state, epoch, holder FROM lease.status WHERE name = 'L'"),
	"held|$held|A",
	'a grant survives the crash');
$a = session($node);
is($a->do("SELECT lease.holds('L', $held)"), 't', 'its holder holds it');
is( $a->query(
		"BEGIN; SELECT lease.guard('L', $held);"
		  . " INSERT INTO work (epoch) VALUES ($held); COMMIT")->{error},
	'',
	'and may write under it');
$told = $held;
grew(next_epoch('M'), 'the next epoch is greater');

# Epochs told in a transaction that the crash ended; the second time more of them
# than a sequence logs in advance
foreach my $count (1, 50)
{
	my $s = session($node);
	my $last;
	$s->do('BEGIN');
	foreach (1 .. $count)
	{
		$s->do('SAVEPOINT s');
		$last = $s->do("SELECT epoch FROM lease.acquire('N', 'doomed')");
		$s->do('ROLLBACK TO s');
	}
	$s->do("SELECT lease.acquire('N', 'doomed')");
	grew($last + 1, "$count epochs told in an open transaction");
	crash();
	is( $node->safe_psql('postgres',
			"SELECT state FROM lease.status WHERE name = 'N'"),
		'free',
		'the grant is gone');
	grew(next_epoch('N'), 'none of the epochs that were told comes back');
	$node->safe_psql('postgres', "SELECT lease.release('N', $told)");
}

# The first epoch after a crash, and a crash again
foreach my $round (1 .. 3)
{
	my $s = session($node);
	$s->do('BEGIN');
	grew($s->do("SELECT epoch FROM lease.acquire('O', 'doomed')"),
		"crash $round after a crash");
	crash();
}
grew(next_epoch('O'), 'and the next epoch is greater');

# A revocation that was answered
$node->safe_psql('postgres', "SELECT lease.revoke('L', 'because')");
crash();
is( $node->safe_psql('postgres',
		"SELECT state, last_end, reason FROM lease.status WHERE name = 'L'"),
	'free|revoked|because',
	'a revocation survives the crash');
refused(session($node)->query("SELECT lease.guard('L', $held)"),
	'LS003', 'and nobody acts under the grant again');

# A lease that was dropped
$node->safe_psql('postgres', "SELECT lease.drop('P', force => true)");
crash();
is( $node->safe_psql('postgres',
		"SELECT count(*) FROM lease.status WHERE name = 'P'"),
	'0',
	'a lease that was dropped does not come back');

# A fenced transaction that was open
my $epoch = next_epoch('L');
grew($epoch, 'another epoch');
$a = session($node);
$a->do("BEGIN; SELECT lease.guard('L', $epoch);"
	  . " INSERT INTO work (epoch) VALUES (-1)");
crash();
is( $node->safe_psql('postgres', 'SELECT count(*) FROM work WHERE epoch < 0'),
	'0', 'a fenced transaction that was open left nothing');
is( $node->safe_psql('postgres',
		"$AHEAD; SELECT outcome FROM lease.acquire('L', 'B')"),
	'granted',
	'and stands in nobody\'s way');

$node->stop;
done_testing();
