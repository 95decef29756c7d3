# Every call returns within its bound.  O4, G7, G8.
#
# One session sits on an uncommitted change of a lease, or on a fenced COMMIT, and
# does not move.  Whoever has to decide about the lease waits for lease.busy_timeout
# and no longer, and is told who is in the way; statement_timeout, lock_timeout and
# cancel work while it waits; afterwards nothing is held, and the settings are as
# they were.  Upper bounds are generous: they only have to tell a bounded wait from
# an endless one.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use LeaseTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $BOUND = 20;    # seconds; the timeouts below are of half a second at the most

my $node = new_server('deadlines');
my $sitter = session($node);
my $waiter = session($node);
my $epoch = $sitter->do("SELECT epoch FROM lease.acquire('L', 'A')");

my $locks =
  "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
  . " AND objsubid > 20000 AND pid = "
  . $waiter->backend;

# sit(SQL) leaves the sitter in a transaction that has done something.
sub sit
{
	my ($sql) = @_;

	$sitter->do("BEGIN; $sql");
	return;
}

# bounded(SQL, NAME) runs a statement of the waiter, and returns its answer.
sub bounded
{
	my ($sql, $name) = @_;
	my $start = time;
	my $answer;

	$waiter->ask($sql);
	$answer = $waiter->answer($BOUND);
	cmp_ok(time - $start, '<', $BOUND, "$name returns");
	return $answer;
}

# busy(SQL, NAME) passes if a statement of the waiter is told LS006 and by whom.
sub busy
{
	my ($sql, $name) = @_;
	my $answer = bounded($sql, $name);

	refused($answer, 'LS006', '... with LS006');
	like($answer->{error}, qr/^DETAIL: .*\bProcess @{[ $sitter->backend ]}\b/m,
		'... and the process in the way');
	like($answer->{error}, qr/^HINT: /m, '... and a hint');
	is($node->safe_psql('postgres', $locks), '0', '... and holds nothing')
	  unless $sql =~ /^BEGIN/;
	$waiter->query('ROLLBACK');
	return;
}

#----
# The bound of lease.busy_timeout
#----

$waiter->do("SET lease.busy_timeout = '100ms'");

# on what another transaction has done to the row
sit("SELECT lease.renew('L', $epoch)");
busy("$AHEAD; SELECT lease.acquire('L', 'B')", 'acquire of an expired lease');
$waiter->do('SET lease.clock_offset = 0');
busy("SELECT lease.release('L', $epoch)", 'release');
busy("SELECT lease.release_many(ARRAY['L'], ARRAY[$epoch])", 'release_many');
busy("SELECT lease.revoke('L')", 'revoke');
busy("SELECT lease.alter('L', ttl => '1 min')", 'alter');
busy("SELECT lease.alter('L', late_commit => true)", 'alter of late_commit');
busy("SELECT lease.drop('L', force => true)", 'drop');
is( bounded("SELECT outcome FROM lease.renew('L', $epoch)", 'renew')->{rows},
	'busy', '... with a row');
is( bounded("SELECT outcome FROM lease.renew_many(ARRAY['L'], ARRAY[$epoch])",
		'renew_many')->{rows},
	'busy', '... with a row');
is( bounded(
		"$AHEAD; SELECT outcome FROM lease.acquire_many(ARRAY['L'], 'B')",
		'acquire_many')->{rows},
	'busy',
	'... with a row');
$waiter->do('SET lease.clock_offset = 0');
$sitter->do('ROLLBACK');

# on the fence lock
foreach my $end (
	"SELECT lease.release('L', $epoch)", "SELECT lease.revoke('L')",
	"SELECT lease.acquire('L', 'A', reclaim => true)",
	"SELECT lease.drop('L', force => true)")
{
	my $what = $end =~ /lease\.(\w+)/ ? $1 : '';

	$waiter->do("BEGIN; SELECT lease.guard('L', $epoch);"
		  . " INSERT INTO work (who) VALUES ('B')");
	sit($end);
	busy('COMMIT', "COMMIT against $what");
	busy("SELECT lease.release('L', $epoch)", "release against $what");
	busy("SELECT lease.acquire('L', 'A', reclaim => true)",
		"reclaim against $what")
	  unless $what eq 'acquire';
	$sitter->do('ROLLBACK');
}
is($waiter->do('SELECT count(*) FROM work'), '0', 'no such COMMIT wrote anything');

# on the creation of a lease
sit("SELECT lease.create('N')");
busy("SELECT lease.create('N')", 'create of a lease that is being created');
busy("SET lease.auto_create = on; SELECT lease.acquire('N', 'B')",
	'acquire of one, with auto_create');
$sitter->do('ROLLBACK');
$waiter->do('SET lease.auto_create = off');

# in a transaction that goes on, where LS006 is an error like any other
sit("SELECT lease.release('L', $epoch)");
$waiter->do('BEGIN; SAVEPOINT s');
refused(bounded("SELECT lease.release('L', $epoch)", 'release in a savepoint'),
	'LS006', '... with LS006');
$waiter->do('ROLLBACK TO s');
is($waiter->do("SELECT lease.holds('L', $epoch)"), 't', 'the transaction goes on');
is($waiter->do($locks), '0', 'and holds nothing');
$waiter->do('COMMIT');
$sitter->do('ROLLBACK');

#----
# The user's own bounds
#----

$waiter->do("SET lease.busy_timeout = '600s'");
my %wait = (
	'the fence lock' =>
	  [ "SELECT lease.release('L', $epoch)", "SELECT lease.release('L', $epoch)" ],
	'a change of the row' =>
	  [ "SELECT lease.renew('L', $epoch)", "SELECT lease.release('L', $epoch)" ],
	'a renewal' =>
	  [ "SELECT lease.renew('L', $epoch)", "SELECT lease.renew('L', $epoch)" ],
);

foreach my $what (sort keys %wait)
{
	my ($change, $call) = @{ $wait{$what} };

	sit($change);
	foreach my $bound ([ 'statement_timeout', '57014' ], [ 'lock_timeout', '55P03' ])
	{
		$waiter->do("SET $bound->[0] = '200ms'; BEGIN; SAVEPOINT s");
		refused(bounded($call, "$bound->[0] while waiting for $what"),
			$bound->[1], '... as itself');
		$waiter->do('ROLLBACK TO s');
		is($waiter->do($locks), '0', '... and nothing is held');
		is($waiter->do("SHOW $bound->[0]"), '200ms', '... and the setting stands');
		$waiter->do("COMMIT; RESET $bound->[0]");
	}

	$waiter->do('BEGIN; SAVEPOINT s');
	$waiter->ask($call);
	wait_until($node,
		'SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND pid = '
		  . $waiter->backend,
		"$call to wait");
	$node->safe_psql('postgres',
		'SELECT pg_cancel_backend(' . $waiter->backend . ')');
	refused($waiter->answer($BOUND), '57014', "cancel while waiting for $what");
	$waiter->do('ROLLBACK TO s');
	is($waiter->do($locks), '0', '... and nothing is held');
	$waiter->do('COMMIT');
	$sitter->do('ROLLBACK');
}

# Our bound is not left in the place of the user's.
$waiter->do("SET lease.busy_timeout = '100ms'");
sit("SELECT lease.release('L', $epoch); LOCK TABLE work");
bounded("SELECT lease.release('L', $epoch)", 'a bounded wait');
$waiter->ask('SELECT count(*) FROM work');
wait_until($node,
	'SELECT wait_event_type = \'Lock\''
	  . ' AND clock_timestamp() - query_start > \'500ms\' FROM pg_stat_activity'
	  . ' WHERE pid = '
	  . $waiter->backend,
	'a wait for something else to last');
$sitter->do('ROLLBACK');
is($waiter->answer->{error}, '', 'a wait for something else after it is not bounded');

# COMMIT, where statement_timeout does not run
foreach my $bound ([ "SET lock_timeout = '200ms'", '55P03' ],
	[ 'SELECT pg_cancel_backend', '57014' ])
{
	$waiter->do("SET lease.busy_timeout = '600s'");
	$waiter->do($bound->[0]) if $bound->[1] eq '55P03';
	$waiter->do("BEGIN; SELECT lease.guard('L', $epoch);"
		  . " INSERT INTO work (who) VALUES ('B')");
	sit("SELECT lease.release('L', $epoch)");
	$waiter->ask('COMMIT');
	if ($bound->[1] eq '57014')
	{
		wait_for_fence($node, $waiter);
		$node->safe_psql('postgres', "$bound->[0](" . $waiter->backend . ')');
	}
	refused($waiter->answer($BOUND), $bound->[1], "$bound->[0] during COMMIT");
	is($node->safe_psql('postgres', $locks), '0', '... and nothing is held');
	$sitter->do('ROLLBACK');
	$waiter->do('RESET lock_timeout');
}
is($waiter->do('SELECT count(*) FROM work'), '0', 'neither wrote anything');

#----
# The end of whoever is in the way
#----

# It is ended by the server, while others wait.
$sitter->do("SET idle_in_transaction_session_timeout = '300ms'");
sit("SELECT lease.renew('L', $epoch)");
is( bounded("$AHEAD; SELECT outcome FROM lease.acquire('L', 'B')",
		'acquire against a session that is ended')->{rows},
	'granted', '... and is granted');
$sitter->quit;

# A waiter that is ended leaves nothing.
$sitter = session($node, sql => $AHEAD);
my $taken = $waiter->do("SELECT epoch FROM lease.status WHERE name = 'L'");
sit("SELECT lease.release('L', $taken)");
$waiter->ask("SELECT lease.release('L', $taken)");
wait_for_event($node, $waiter, 'transactionid');
$node->safe_psql('postgres',
	'SELECT pg_terminate_backend(' . $waiter->backend . ')');
wait_until(
	$node,
	'SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = ' . $waiter->backend,
	'the waiter to end');
is($node->safe_psql('postgres', $locks), '0', 'a waiter that is ended leaves no lock');
$sitter->do('COMMIT');
is( $node->safe_psql('postgres',
		"SET lease.busy_timeout = 0; SELECT outcome FROM lease.acquire('L', 'C')"),
	'granted',
	'and nobody waits for it');

$node->stop;
done_testing();
