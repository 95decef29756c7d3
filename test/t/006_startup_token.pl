# The token in the start-up options of a connection.  G3, G4, G10.
#
# With lease.token a program is fenced without any change: each of its transactions
# is guarded at its first protected write.  Nothing but the start of the connection
# can set the token, and it is good for what its own user may do, no more.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use LeaseTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('token');
$node->safe_psql(
	'postgres', q{
	CREATE ROLE member LOGIN;
	CREATE ROLE stranger LOGIN;
	CREATE ROLE configured LOGIN SUPERUSER;
	CREATE ROLE joint LOGIN;
	GRANT member, stranger TO joint;
	GRANT SELECT, INSERT, UPDATE ON work TO member, stranger;
	GRANT USAGE ON SEQUENCE work_id_seq TO member, stranger;
	CREATE TABLE plan (who text);
	SELECT lease.alter('L', role => 'member');
	SELECT lease.create('M', ttl => '10 min'), lease.protect('plan', 'M');
});
my $epoch =
  $node->safe_psql('postgres', "SELECT epoch FROM lease.acquire('L', 'A')");
my $other =
  $node->safe_psql('postgres', "SELECT epoch FROM lease.acquire('M', 'A')");
my $write = "INSERT INTO work (who) VALUES ('A')";

# with_token(TOKEN, USER) connects with a token.
sub with_token
{
	my ($token, $user) = @_;

	return session(
		$node,
		user => $user,
		options => "-c lease.token=" . $token =~ s/([\\ ])/\\$1/gr);
}

# A program that knows nothing of leases
my $s = with_token("L=$epoch");
is($s->query($write)->{error}, '', 'a statement of its own writes');
is($s->query("BEGIN; $write; SAVEPOINT s; $write; ROLLBACK TO s; $write; COMMIT")
	  ->{error},
	'', 'a transaction writes');
is( $s->query("BEGIN; SAVEPOINT s; $write; ROLLBACK TO s; $write; COMMIT")
	  ->{error},
	'', 'also one that rolled back its first write');
foreach my $level ('REPEATABLE READ', 'SERIALIZABLE')
{
	is( $s->query(
			"BEGIN ISOLATION LEVEL $level; SELECT count(*) FROM work; $write; COMMIT")
		  ->{error},
		'',
		"and one under $level");
}
refused($s->query("INSERT INTO plan VALUES ('A')"),
	'LS004', 'a table of another lease needs another token');
is( with_token(" L = $epoch , M = $other ")
	  ->query("BEGIN; $write; INSERT INTO plan VALUES ('A'); COMMIT")->{error},
	'',
	'which can be in the same list');
refused(session($node)->query($write), 'LS004', 'another connection has none');

# What the token is worth is decided at every write and at every COMMIT.
$s->do("BEGIN; $write");
my $rr = with_token("L=" . ($epoch + 2));
$rr->do('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM work');
my $next = $node->safe_psql('postgres',
	"SELECT epoch FROM lease.acquire('L', 'A', reclaim => true)");
is($next, $epoch + 2, 'the holder reclaims the lease');
refused($s->query('COMMIT'), 'LS001', 'a COMMIT under the old token is refused');
my $answer = $s->query($write);
refused($answer, 'LS001', 'and so is the next write');
like($answer->{error}, qr/^CONTEXT:  write to table "work"/m,
	'with the table in the context');
is($s->query('SELECT count(*) > 0 FROM work')->{rows},
	't', 'reading needs no token');
is( $s->query("BEGIN; SELECT lease.guard('L', $next); $write; COMMIT")->{error},
	'', 'a guard comes before the token');
refused($rr->query($write), 'LS002',
	'under REPEATABLE READ a snapshot older than the grant is refused');
is($rr->query("ROLLBACK; $write")->{error}, '', 'and a new one is not');

# Two-phase commit does not get around it.
$node->append_conf('postgresql.conf', 'max_prepared_transactions = 2');
$node->restart;
$s = with_token("L=$next");
$s->do("BEGIN; $write");
refused($s->query("PREPARE TRANSACTION 'p'"),
	'0A000', 'what was written under the token cannot be prepared');

# What is not a token
foreach my $bad (
	'', 'L', 'L=', "=$next", "L=$next,", ",L=$next", "L=$next,L=$next", 'L=0',
	'L=-1', 'L=+1', 'L=1e3', 'L=abc', 'L=9223372036854775808', "L=$next;M=$other",
	"L=$next,M", "L=0x10", "L=$next M=$other", "L=$next,M=0", "L L=$next")
{
	my $connection = with_token($bad);
	refused($connection->query($write), $bad eq '' ? 'LS004' : '22023',
		"token '$bad' does not validate");
}
foreach my $wrong ([ $epoch, 'LS001' ], [ $next + 1, 'LS003' ],
	[ '9223372036854775807', 'LS003' ])
{
	refused(with_token("L=$wrong->[0]")->query($write),
		$wrong->[1], "epoch $wrong->[0] is not current");
}
refused(with_token("l=$next")->query($write),
	'LS004', 'names of leases are case sensitive');

# The user is the one who made the connection.
is(with_token("L=$next", 'member')->query($write)->{error},
	'', 'a member of the lease\'s role writes');
refused(with_token("L=$next", 'stranger')->query($write),
	'42501', 'somebody else who may write to the table does not');
is( with_token("L=$next", 'joint')->query("SET ROLE stranger; $write")->{error},
	'', 'SET ROLE takes nothing away from a member');
$node->safe_psql('postgres',
	'REVOKE member FROM joint;'
	  . ' CREATE FUNCTION write_for_others() RETURNS void LANGUAGE sql SECURITY DEFINER'
	  . " AS \$\$ INSERT INTO work (who) VALUES ('A') \$\$;"
	  . ' ALTER FUNCTION write_for_others OWNER TO member');
refused(
	with_token("L=$next", 'joint')->query('SELECT write_for_others()'),
	'42501',
	'a function of a member gives nothing to a stranger');

# Nothing but the start of a connection sets the token: not before the library is
# loaded, when it is a setting like any other, and not after.
foreach my $loaded (0, 1)
{
	foreach my $set (
		"SET lease.token = 'L=$next'",
		"SET LOCAL lease.token = 'L=$next'",
		"SELECT set_config('lease.token', 'L=$next', false)",
		"UPDATE pg_settings SET setting = 'L=$next' WHERE name = 'lease.token'")
	{
		my $connection = session($node);
		$connection->do("SELECT count(*) FROM lease.status") if $loaded;
		$connection->query('BEGIN');
		$connection->query('SAVEPOINT s');
		my $attempt = $connection->query($set);
		is($attempt->{sqlstate}, '55P02', "$set is refused") if $loaded;
		like($attempt->{error}, qr/^HINT:  .*start-up option.*lease\.guard/m,
			'with a hint')
		  if $loaded;
		$connection->query('ROLLBACK TO s') if $attempt->{sqlstate};
		refused($connection->query($write), 'LS004',
			'and does not admit a write, the library '
			  . ($loaded ? 'being loaded' : 'not being loaded yet'));
	}
}
$node->safe_psql('postgres',
	"ALTER ROLE configured SET lease.token = 'L=$next'");
refused(session($node, user => 'configured')->query($write),
	'LS004', 'nor does a setting of the role');
$node->safe_psql('postgres',
	"ALTER ROLE configured RESET lease.token;"
	  . " ALTER DATABASE postgres SET lease.token = 'L=$next'");
refused(session($node)->query($write), 'LS004', 'nor one of the database');
$node->safe_psql('postgres', 'ALTER DATABASE postgres RESET lease.token');
$s = session($node, sql => 'SELECT count(*) FROM lease.status');
foreach my $whose ('ROLE configured', 'DATABASE postgres', 'ROLE ALL')
{
	refused($s->query("ALTER $whose SET lease.token = 'L=$next'"),
		'55P02', "ALTER $whose, the library being loaded, is refused");
}

# Nor can anything take it away.  RESET itself may be refused.
$s = with_token("L=$next");
is($s->query("$write; DISCARD ALL")->{error}, '', 'DISCARD ALL');
is($s->query("$write; RESET ALL; $write")->{error},
	'', 'and RESET ALL leave the token alone');
foreach my $loaded (0, 1)
{
	foreach my $command (
		'RESET lease.token',
		'SET lease.token TO DEFAULT',
		"SET lease.token = ''",
		"SET lease.token = 'L=$epoch'",
		"SELECT set_config('lease.token', 'M=$other', false)",
		"BEGIN; SET LOCAL lease.token = ''; COMMIT",
		'DISCARD ALL',
		'RESET ALL')
	{
		$s = with_token("L=$next");
		$s->do($write) if $loaded;
		$s->query($command);
		$s->query('ROLLBACK');
		is($s->query($write)->{sqlstate},
			'', "$command leaves it alone, the library "
			  . ($loaded ? 'being loaded' : 'not being loaded yet'));
		is($s->do('SHOW lease.token'), "L=$next", 'and it is still shown');
	}
}

$node->stop;
done_testing();
