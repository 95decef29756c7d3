# Two-phase commit.  G3, G7.
#
# The check of a guard would be made at PREPARE, and the writes would land after
# any number of takeovers.  So a transaction that is guarded or has changed a lease
# cannot be prepared.  One that has rolled all that back can: it holds nothing of
# ours, also after a restart, and the next transaction of the session knows nothing
# of it.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use LeaseTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('prepare', 'max_prepared_transactions = 10');
my $a = session($node);
my $epoch = $a->do("SELECT epoch FROM lease.acquire('L', 'A')");
my $locks =
  "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid > 20000";

$node->safe_psql('postgres', 'CREATE TABLE plain (who text)');

# What cannot be prepared
my %work = (
	'a guard' => "SELECT lease.guard('L', $epoch)",
	'a fenced write' =>
	  "SELECT lease.guard('L', $epoch); INSERT INTO work (who) VALUES ('A')",
	'a guard in a savepoint that was released' =>
	  "SAVEPOINT s; SELECT lease.guard('L', $epoch); RELEASE s",
	'acquire' => "SELECT lease.acquire('L', 'A', reclaim => true)",
	'acquire_many' =>
	  "SELECT lease.acquire_many(ARRAY['L'], 'A', reclaim => true)",
	'renew' => "SELECT lease.renew('L', $epoch)",
	'renew_many' => "SELECT lease.renew_many(ARRAY['L'], ARRAY[$epoch])",
	'release' => "SELECT lease.release('L', $epoch)",
	'release_many' => "SELECT lease.release_many(ARRAY['L'], ARRAY[$epoch])",
	'revoke' => "SELECT lease.revoke('L')",
	'create' => "SELECT lease.create('M')",
	'alter' => "SELECT lease.alter('L', ttl => '1 min')",
	'drop' => "SELECT lease.drop('L', force => true)",
	'a renewal in a savepoint that was released' =>
	  "SAVEPOINT s; SELECT lease.renew('L', $epoch); RELEASE s",
	'a renewal before one that was rolled back' =>
	  "SELECT lease.renew('L', $epoch); SAVEPOINT s; SELECT lease.renew('L', $epoch); ROLLBACK TO s",
);

foreach my $what (sort keys %work)
{
	$a->do("BEGIN; INSERT INTO plain VALUES ('A'); $work{$what}");
	refused($a->query("PREPARE TRANSACTION 'p'"),
		'0A000', "$what cannot be prepared");
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM pg_prepared_xacts'),
	'0', 'nothing was prepared');
is($a->do($locks), '0', 'and no lock is left');
is($a->do("SELECT lease.holds('L', $epoch)"), 't', 'the grant is as it was');

# What can, because nothing of it is left
%work = (
	'a guard' => "SELECT lease.guard('L', $epoch)",
	'a fenced write' =>
	  "SELECT lease.guard('L', $epoch); INSERT INTO work (who) VALUES ('A')",
	'a renewal' => "SELECT lease.renew('L', $epoch)",
	'a release' => "SELECT lease.release('L', $epoch)",
	'a reclaim' => "SELECT lease.acquire('L', 'A', reclaim => true)",
	'nested savepoints' =>
	  "SAVEPOINT t; SELECT lease.guard('L', $epoch); SELECT lease.renew('L', $epoch); RELEASE t",
);

my $name = 0;
foreach my $what (sort keys %work)
{
	$name++;
	$a->do("BEGIN; INSERT INTO plain VALUES ('A'); SAVEPOINT s;"
		  . " $work{$what}; ROLLBACK TO s");
	is($a->query("PREPARE TRANSACTION 'p$name'")->{error},
		'', "$what that was rolled back to a savepoint is no obstacle");

	# The session goes on as if nothing had been.
	refused($a->query("INSERT INTO work (who) VALUES ('A')"),
		'LS004', 'and the next transaction is not guarded');
}

# Nor is a call that changed nothing, even if it had to wait before it knew.
$a->do("BEGIN; INSERT INTO plain VALUES ('A');"
	  . " SELECT lease.acquire('L', 'B'), lease.renew('L', 9999), lease.release('L', 9999)");
is($a->query("PREPARE TRANSACTION 'lost'")->{error},
	'', 'calls that lost are no obstacle');

my $b = session($node, sql => "SET lease.busy_timeout = '60s'");
$b->do("SELECT lease.create('M', ttl => '10 min')");
my $other = $b->do("SELECT epoch FROM lease.acquire('M', 'B')");
$b->do("BEGIN; SELECT lease.release('M', $other)");
$a->do("SET lease.busy_timeout = '60s'; BEGIN; INSERT INTO plain VALUES ('A')");
$a->ask("SELECT lease.release('M', $other)");
wait_for_event($node, $a, 'transactionid');
$b->do('COMMIT');
is($a->answer->{rows}, 'f', 'a release that waited in vain');
is($a->query("PREPARE TRANSACTION 'waited'")->{error},
	'', 'is no obstacle, either');
is($a->do($locks), '0', 'prepared transactions hold no lock of ours');

# Through a restart
$node->restart;
is( $node->safe_psql('postgres', 'SELECT count(*) FROM pg_prepared_xacts'),
	$name + 2, 'prepared transactions survive a restart');
is( $node->safe_psql('postgres',
		"SET lease.busy_timeout = 0; $AHEAD;"
		  . " SELECT outcome FROM lease.acquire_many(ARRAY['L', 'M'], 'B')"),
	"granted\ngranted",
	'a takeover does not wait for them');
foreach my $gid (split /\n/,
	$node->safe_psql('postgres', 'SELECT gid FROM pg_prepared_xacts ORDER BY gid'))
{
	$node->safe_psql('postgres', "COMMIT PREPARED '$gid'");
}
is( $node->safe_psql('postgres',
		'SELECT (SELECT count(*) FROM plain), (SELECT count(*) FROM work)'),
	($name + 2) . '|0',
	'they commit what they did, and nothing fenced is in it');

$node->stop;
done_testing();
