# A batch has one bound, not one for each lease.  O4, G7.
#
# Each of many leases is kept busy by an uncommitted change.  The forms for many, and a
# COMMIT under many guards, wait for lease.busy_timeout once, over all of them together:
# a heartbeat for a thousand leases must not take a thousand times that.  What can be
# done without waiting is done all the same.  The upper bound is generous, and still far
# below the sum.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use LeaseTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $COUNT = 60;
my $TIMEOUT = 0.5;    # seconds
my $BOUND = 10;       # seconds; one bound for each lease would be 30

my $node = new_server('batches_bounded');
my $sitter = session($node);
my $waiter = session($node);

# The leases b/1 to b/60 are A's and will be busy; a and z stand before and after them.
my $names = "ARRAY(SELECT name FROM lease.status WHERE name <> 'L' ORDER BY name)";
my $epochs = "ARRAY(SELECT epoch FROM lease.status WHERE name <> 'L' ORDER BY name)";
my $busy = "SELECT count(lease.alter(name, ttl => '1 min')) FROM lease.status"
  . " WHERE name LIKE 'b/%'";

$sitter->do("SELECT lease.create(name, ttl => '10 min') FROM unnest(ARRAY['a', 'z']"
	  . " || ARRAY(SELECT 'b/' || i FROM generate_series(1, $COUNT) i)) AS name");
$sitter->do("SELECT * FROM lease.acquire_many($names, 'A')");
$waiter->do("SET lease.busy_timeout = '500ms'");

# in_time(SQL, NAME) asks the waiter, and passes if the answer took one bound.
sub in_time
{
	my ($sql, $name) = @_;
	my $start = time;
	my $answer;

	$waiter->ask($sql);
	$answer = $waiter->answer($COUNT * $TIMEOUT + $PATIENCE);
	my $took = time - $start;
	cmp_ok($took, '>=', $TIMEOUT, "$name waits for the bound");
	cmp_ok($took, '<', $BOUND, '... and only once');
	return $answer;
}

$sitter->do("BEGIN; $busy");

my $by_outcome = 'SELECT outcome, count(*) FROM %s GROUP BY outcome ORDER BY outcome';
my $answer = in_time(sprintf($by_outcome, "lease.renew_many($names, $epochs)"),
	'renew_many of busy leases');
is($answer->{rows}, "busy|$COUNT\nrenewed|2", '... and renews the others');

$answer = in_time(
	"$AHEAD; " . sprintf($by_outcome, "lease.acquire_many($names, 'B')"),
	'acquire_many of busy leases');
is($answer->{rows}, "busy|$COUNT\ngranted|2", '... and acquires the others');
$waiter->do('SET lease.clock_offset = 0');

refused(in_time("SELECT * FROM lease.release_many($names, $epochs)",
		'release_many of busy leases'),
	'LS006', '... and is refused');

# Each call has a bound of its own.
refused(
	in_time("BEGIN; SELECT outcome FROM lease.renew('b/1', 1);"
		  . " SELECT lease.release(name, epoch) FROM lease.status WHERE name = 'b/2'",
		'a second call'),
	'LS006', '... and is refused');
$waiter->do('ROLLBACK');
$sitter->do('ROLLBACK');

# COMMIT under many guards: only those whose fence somebody has are waited for.
$waiter->do("SELECT lease.renew_many($names, $epochs)");
$sitter->do("BEGIN; SELECT lease.alter(name, late_commit => false) FROM lease.status"
	  . " WHERE name LIKE 'b/%'");
$waiter->do("BEGIN; SELECT count(lease.guard(name, epoch)) FROM lease.status"
	  . " WHERE name LIKE 'b/%'; CREATE TABLE not_created ()");
refused(in_time('COMMIT', 'COMMIT under many guards'), 'LS006', '... and is refused');
$sitter->do('ROLLBACK');

$node->stop;
done_testing();
