# Parameters without types, as drivers send them.  G10.
#
# Through the extended protocol, with nothing said about the type of any parameter,
# every call resolves and means the same.  pgbench sends its variables like that;
# so do psql (from version 16 on, with \bind) and DBD::Pg.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use LeaseTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('untyped');
$node->safe_psql('postgres', "SELECT lease.create('M', ttl => '10 min')");

# The life of a lease, every value of it a parameter.  pgbench can make no array of a
# variable, so the batches are for an epoch that is known beforehand, and stale.
my $life = q{
SELECT epoch AS e FROM lease.acquire(:name, :holder) \gset
SELECT epoch AS e FROM lease.acquire(:name, :holder, :ttl, :yes, :metadata) \gset
SELECT 1 / (outcome = :renewed)::int FROM lease.renew(:name, :e);
SELECT 1 / (outcome = :renewed)::int FROM lease.renew(:name, :e, :ttl);
SELECT 1 / lease.holds(:name, :e)::int;
SELECT 1 / (lease.remaining(:name, :e) > :zero)::int;
SELECT 1 / lease.progress(:name, :e)::int;
SELECT 1 / lease.progress(:name, :e, :metadata, :ttl)::int;
SELECT lease.beat(:holder);
SELECT lease.beat(:holder, :metadata, :ttl);
SELECT 1 / lease.retire(:holder)::int;
BEGIN;
SELECT lease.guard(:name, :e);
INSERT INTO work (epoch, who) VALUES (:e, :holder);
COMMIT;
SELECT 1 / lease.release(:name, :e, :holder, :ttl)::int;
SELECT 1 / (NOT lease.release(:name, :e))::int;
SELECT 1 / (count(*) = 1)::int FROM lease.acquire_many(:names, :holder);
SELECT 1 / (count(*) = 1)::int FROM lease.renew_many(:names, :epochs);
SELECT 1 / (count(*) = 1)::int FROM lease.release_many(:names, :epochs);
SELECT lease.revoke(:other, :reason);
SELECT lease.alter(:other, :ttl);
SELECT lease.create(:new, :ttl);
SELECT lease.drop(:new, :yes);
};

foreach my $mode ('extended', 'prepared')
{
	$node->pgbench(
		"-n -c 1 -t 3 -M $mode -D name=L -D holder=A -D yes=true -D renewed=renewed"
		  . ' -D zero=0 -D other=M -D new=N -D reason=because -D ttl=00:05:00'
		  . ' -D metadata={"pid":42} -D names={M} -D epochs={1}',
		0,
		[qr{number of transactions actually processed: 3/3}],
		[qr{^(?!.*ERROR)}s],
		"pgbench -M $mode",
		{ "010_$mode" => $life });
}
is( $node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT epoch) FROM work'),
	'6|6', 'all of them wrote, each under an epoch of its own');
is( $node->safe_psql('postgres',
		"SELECT state, last_end, successor FROM lease.status WHERE name = 'L'"),
	'reserved|released|A',
	'and the lease is in the state that was asked for');

# The same epochs, one at a time, through psql
SKIP:
{
	my ($version) = `psql --version` =~ /(\d+)/;
	skip 'psql has \bind from version 16 on', 3 if $version < 16;

	my $s = session($node);
	my $epoch = $s->do("SELECT epoch FROM lease.acquire(\$1, \$2) \\bind L A \\g");
	is( $s->do(
			"SELECT outcome FROM lease.renew(\$1, \$2) \\bind L $epoch \\g"),
		'renewed',
		'psql: renew');
	is( $s->query(
			"BEGIN;\nSELECT lease.guard(\$1, \$2) \\bind L $epoch \\g\nCOMMIT;")
		  ->{error},
		'',
		'psql: guard');
	is($s->do("SELECT lease.release(\$1, \$2) \\bind L $epoch \\g"),
		't', 'psql: release');
}

SKIP:
{
	skip 'DBD::Pg is not installed', 5 unless eval { require DBD::Pg; 1 };

	my $dbh = DBI->connect(
		'dbi:Pg:dbname=postgres;host=' . $node->host . ';port=' . $node->port,
		'', '', { RaiseError => 1, PrintError => 0, pg_server_prepare => 1 });
	my $epoch =
	  $dbh->selectrow_array('SELECT epoch FROM lease.acquire(?, ?)', {}, 'L', 'A');
	cmp_ok($epoch, '>', 0, 'DBD::Pg: acquire');
	is( $dbh->selectrow_array(
			'SELECT outcome FROM lease.renew(?, ?, ?)',
			{}, 'L', $epoch, '5 minutes'),
		'renewed',
		'DBD::Pg: renew');
	ok($dbh->selectrow_array('SELECT lease.holds(?, ?)', {}, 'L', $epoch),
		'DBD::Pg: holds');
	$dbh->begin_work;
	$dbh->do('SELECT lease.guard(?, ?)', {}, 'L', $epoch);
	$dbh->do('INSERT INTO work (epoch) VALUES (?)', {}, $epoch);
	ok($dbh->commit, 'DBD::Pg: guard');
	ok($dbh->selectrow_array('SELECT lease.release(?, ?)', {}, 'L', $epoch),
		'DBD::Pg: release');
	$dbh->disconnect;
}

$node->stop;
done_testing();
