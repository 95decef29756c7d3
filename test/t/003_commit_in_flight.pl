# A fenced COMMIT that takes long.  G2, G3, G7, O4.
#
# Nobody serves the synchronous standby that the server waits for, so a COMMIT that
# has passed its check stays where it is, holding its locks.  A takeover waits for
# it: in vain for as long as lease.busy_timeout (LS006, with the process in the way),
# and else until the COMMIT has ended, which it then follows.  A grant waits for the
# standby, too, whatever its session's synchronous_commit is.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use LeaseTest;
use PostgreSQL::Test::Utils;
use Test::More;

# Without room for a standby, no COMMIT would wait for one.
my $node = new_server('in_flight', '', allows_streaming => 1);

# standby(NAME) makes every COMMIT wait for a standby that is not there, or, without
# a name, lets them all go.
sub standby
{
	my ($name) = @_;

	$node->safe_psql('postgres',
		"ALTER SYSTEM SET synchronous_standby_names = '$name'");
	$node->reload;
	wait_until($node,
		"SELECT current_setting('synchronous_standby_names') = '$name'",
		'the new setting');
	return;
}

my $a = session($node);
my $b = session($node, sql => $AHEAD);
my $c = session($node, sql => "$AHEAD; SET lease.busy_timeout = '600s'");
my $epoch = $a->do("SELECT epoch FROM lease.acquire('L', 'A')");

# The takeover waits for the COMMIT, and then wins
standby('nobody');
$a->do("BEGIN; SELECT lease.guard('L', $epoch);"
	  . " INSERT INTO work (epoch, who) VALUES ($epoch, 'A')");
$a->ask('COMMIT');
wait_for_event($node, $a, 'SyncRep');

$b->do("SET lease.busy_timeout = '200ms'");
my $answer = $b->query("SELECT outcome FROM lease.acquire('L', 'B')");
refused($answer, 'LS006', 'a takeover waits for a COMMIT with a bound');
like($answer->{error}, qr/^DETAIL: .*\bProcess @{[ $a->backend ]}\b/m,
	'and tells which process is in the way');
like($answer->{error}, qr/^HINT: /m, 'and what to do');
is($b->do('SELECT count(*) FROM work'),
	'0', 'the write of that COMMIT is not visible yet');
is( $b->do("SELECT outcome FROM lease.acquire_many(ARRAY['L'], 'B')"),
	'busy', 'in a batch the lease is busy');
$b->do('SET lease.busy_timeout = 0');
refused($b->query("SELECT outcome FROM lease.acquire('L', 'B')"),
	'LS006', 'a takeover that must not wait does not');

$c->ask("SELECT outcome, epoch FROM lease.acquire('L', 'C')");
wait_for_fence($node, $c);
is( $b->do("SELECT state, holder FROM lease.status WHERE name = 'L'"),
	'expired|A', 'until then the lease is A\'s');

standby('');
is($a->answer->{error}, '', 'the COMMIT succeeds');
$answer = $c->answer;
like($answer->{rows}, qr/^granted\|\d+$/, 'then the takeover succeeds');
my ($taken) = $answer->{rows} =~ /(\d+)$/;
cmp_ok($taken, '>', $epoch, 'under a greater epoch');
is($b->do('SELECT who FROM work'), 'A', 'and the write is there');
refused($a->query("SELECT lease.guard('L', $epoch)"),
	'LS001', 'the old holder is superseded');

# A COMMIT whose wait is cancelled has ended all the same
standby('nobody');
$c->do("BEGIN; SELECT lease.guard('L', $taken);"
	  . " INSERT INTO work (epoch, who) VALUES ($taken, 'C')");
$c->ask('COMMIT');
wait_for_event($node, $c, 'SyncRep');
$b->do("SET lease.busy_timeout = '600s'; SET lease.clock_offset = '30min'");
$b->ask("SELECT outcome FROM lease.acquire('L', 'B')");
wait_for_fence($node, $b);
$node->safe_psql('postgres',
	"SELECT pg_cancel_backend(" . $c->backend . ")");
like($c->answer->{error}, qr/WARNING: .*committed locally/s,
	'the wait of a COMMIT is cancelled');
wait_for_event($node, $b, 'SyncRep');
pass('the takeover goes on, and waits for the standby itself');
standby('');
is($b->answer->{rows}, 'granted', 'and succeeds');
is($b->do('SELECT who FROM work ORDER BY id'), "A\nC", 'after the write');

# A grant waits for the standby, and what follows does not see it before
standby('nobody');
foreach my $level ('off', 'local', 'remote_write')
{
	my $lease = "G-$level";
	my $s = session($node,
		sql => "SET synchronous_commit = $level; SET lease.auto_create = on");
	$s->ask("SELECT outcome FROM lease.acquire('$lease', 'S')");
	wait_for_event($node, $s, 'SyncRep');
	pass("a grant under synchronous_commit = $level waits for the standby");
	is( $b->do("SELECT count(*) FROM lease.status WHERE name = '$lease'"),
		'0', 'and is not there before');
	standby('');
	is($s->answer->{rows}, 'granted', 'it is granted then');
	is($s->do('SHOW synchronous_commit'), $level, 'the setting is as it was');
	standby('nobody');
}
standby('');

$node->stop;
done_testing();
