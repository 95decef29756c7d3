# Through the drivers that programs use.  G2, G3, G4, G9, G10.
#
# One life of a lease: acquired, guarded, written under, renewed, superseded with a
# transaction open, released.  Each driver goes through it with its own idea of when a
# transaction begins, of prepared statements, of batches and pipelines, and of the
# types of parameters and results; each has to see the same outcomes and SQLSTATEs, and
# to leave the same rows.  Epochs are greater than what a double can hold exactly.
#
# The programs in test/drivers print a line "autocommit: check: result" for each.  A
# driver that is not installed is skipped, unless LEASE_ALL_DRIVERS is set.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use IPC::Run ();
use LeaseTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $FLOOR = '4611686018427387904';
my $JAR = '/usr/share/java/postgresql.jar';
my $programs = "$FindBin::RealBin/../drivers";

# What is expected of all, by autocommit where it matters
my @LIFE = (
	'acquire: granted',
	'epoch is exact: true',
	'acquire by another: held, no epoch',
	'write without a guard: LS004',
	'guarded write: committed',
	'write after that: LS004',
	'savepoint rolled back: LS004',
	'one message: committed',
	{ off => 'guard alone: no warning', on => 'guard alone: 01000' },
	'prepared statements: 8 committed, 8 refused',
	'batch: 10 written',
	'batch without a guard: LS004',
	'COMMIT after an error: 0 written',
	'NULL holds: false',
	'NULL guard: 22004',
	'renew: renewed',
	'renew for a time: renewed',
	'renew for a time of NULL: renewed',
	'renew many: renewed',
	'reclaim: granted',
	'next epoch is greater: true',
	'COMMIT under the old epoch: LS001',
	'guard under the old epoch: LS001',
	'renew of the old epoch: superseded',
	'write under the next epoch: committed',
	'release: true',
	'release again: false',
	'guard after the release: LS003',
	'rows: batch 10, guarded 1, later 1, message 1, prepared 8');

# Clients find the server through a Unix socket; JDBC needs TCP.
my $node = new_server('drivers', "listen_addresses = '127.0.0.1'");
append_to_file($node->data_dir . '/pg_hba.conf',
	"host all all 127.0.0.1/32 trust\n");
$node->reload;
$ENV{PGPORT} = $node->port;
$ENV{PGUSER} = $node->safe_psql('postgres', 'SELECT current_user');

# expected(MODES, INSTEAD, MORE) returns the lines that a program has to print, some of
# them with another result than most, and what only some drivers can do.
sub expected
{
	my ($modes, $instead, $more) = @_;
	my @lines;

	foreach my $mode (@$modes)
	{
		foreach my $line (@LIFE)
		{
			my ($check, $result) =
			  split /: /, ref $line ? $line->{$mode} : $line, 2;

			$result = $instead->{"$mode: $check"} // $instead->{$check} // $result;
			push @lines, "$mode: $check: $result";
			push @lines, map { "$mode: $_" } @$more
			  if $check eq 'COMMIT after an error';
		}
	}
	return \@lines;
}

# driver(NAME, COMMAND, PROBE, ...) runs a program, in a database of its own, if the
# command PROBE tells that its driver is installed.
sub driver
{
	my ($name, $command, $probe, %options) = @_;

  SKIP:
	{
		if (!eval { run_command($probe); $? == 0 })
		{
			fail("$name is not installed"), return if $ENV{LEASE_ALL_DRIVERS};
			skip "$name is not installed", 2;
		}

		(my $database = lc $name) =~ s/\W+/_/g;
		$node->safe_psql('postgres', "CREATE DATABASE $database");
		$node->safe_psql($database,
			"CREATE EXTENSION lease; SELECT lease.raise_floor($FLOOR)");
		local $ENV{PGDATABASE} = $database;
		local $ENV{PGHOST} = $options{host} // $node->host;
		my ($stdout, $stderr) = ('', '');
		IPC::Run::run($command, '<', \undef, '>', \$stdout, '2>', \$stderr,
			IPC::Run::timeout($PATIENCE));
		is_deeply(
			[ split /\n/, $stdout ],
			expected(
				$options{modes} // [ 'off', 'on' ],
				$options{instead} // {},
				$options{more} // []),
			$name);
		is($stderr, '', "$name: no other error");
	}
	return;
}

# Debian's drivers are for Debian's interpreters.
my $python = -x '/usr/bin/python3' ? '/usr/bin/python3' : 'python3';
driver(
	'psycopg2',
	[ $python, "$programs/python.py", 'psycopg2' ],
	[ $python, '-c', 'import psycopg2' ]);

# Parameters that the server binds, binary results, and the pipelines of libpq
driver(
	'psycopg',
	[ $python, "$programs/python.py", 'psycopg' ],
	[ $python, '-c', 'import psycopg' ],
	more => [
		'pipeline: committed',
		'pipeline without BEGIN: committed',
		'pipeline without a guard: LS004',
		'pipeline under another epoch: LS003'
	],
	instead => {
		rows =>
		  'batch 10, guarded 1, later 1, message 1, pipeline 2, prepared 8'
	});

driver('DBD::Pg', [ $^X, "$programs/dbd_pg.pl" ], [ $^X, '-MDBD::Pg', '-e', '1' ]);

# Node finds Debian's driver by itself, and the one that npm has installed if it is told.
if (!defined $ENV{NODE_PATH})
{
	my ($path, $error) = ('', '');

	eval { IPC::Run::run([ 'npm', 'root', '-g' ], '>', \$path, '2>', \$error) };
	$ENV{NODE_PATH} = $1 if $path =~ /^(.+)$/m;
}

# Newer versions than Debian's say that their queue is going to go.
driver(
	'node-pg',
	[ 'node', '--no-deprecation', "$programs/node.js" ],
	[ 'node', '-e', 'require("pg")' ],
	modes => ['on'],
	more => [
		'queue: BEGIN SELECT INSERT COMMIT',
		'queue without a guard: BEGIN LS004 ROLLBACK',
		'queue under another epoch: BEGIN LS003 25P02 ROLLBACK'
	],
	instead => {
		rows => 'batch 10, guarded 1, later 1, message 1, prepared 8, queue 1'
	});

# Debian's packages for Go are sources at a fixed place.
local $ENV{GO111MODULE} = 'off';
local $ENV{GOPATH} = '/usr/share/gocode';
local $ENV{GOCACHE} = PostgreSQL::Test::Utils::tempdir();
driver(
	'lib pq',
	[ 'go', 'run', "$programs/pq.go" ],
	[ 'go', 'list', 'github.com/lib/pq' ],
	modes => ['on']);

# JDBC in its ways of sending: prepared by the server with results in binary; as simple
# queries, where it takes two statements apart so that the second is on its own; and
# with a savepoint around every statement, where an error spoils nothing else.
sub jdbc
{
	my ($name, $parameters, %options) = @_;
	my @java = ('java', '-XX:TieredStopAtLevel=1', '-cp', $JAR);

	driver(
		$name,
		[ @java, "$programs/Jdbc.java", @$parameters ],
		[ 'sh', '-c', "test -f $JAR && java -version" ],
		host => '127.0.0.1',
		%options);
	return;
}

jdbc('JDBC', [ 'prepareThreshold=1', 'binaryTransfer=true' ]);
jdbc(
	'JDBC, simple',
	['preferQueryMode=simple'],
	instead => {
		'on: one message' => 'LS004',
		'on: rows' => 'batch 10, guarded 1, later 1, prepared 8'
	});
jdbc(
	'JDBC, with savepoints',
	[ 'autosave=always', 'prepareThreshold=-1', 'reWriteBatchedInserts=true' ],
	instead => {
		'COMMIT after an error' => '1 written',
		rows => 'batch 10, failed 1, guarded 1, later 1, message 1, prepared 8'
	});

$node->stop;
done_testing();
