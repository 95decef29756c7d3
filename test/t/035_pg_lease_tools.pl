# The subcommands of pg_lease that show and administer leases: what they print, for
# people and as JSON, their exit codes, and that a wrong command line changes nothing.
#
# Names of holders and reasons hold what breaks careless programs.  The subcommands
# that go on until they are stopped have a test of their own.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use IPC::Run ();
use JSON::PP;
use LeaseTest;
use PostgreSQL::Test::Utils;
use Test::More;

my @subcommands = qw(status watch history release revoke handover doctor);

# What a holder or a reason may be; SQL literals of the same
my $hostile = qq{he said "5%s" \\ 'ja' \$1 {a,b} \x{fc}\x{65e5}\x{672c}};
my $hostile_sql = "\$q\$$hostile\$q\$";

my $node = new_server('tools', 'fsync = on');
my $connection = $node->connstr('postgres');

# pg_lease(ARGUMENT...) runs the program and returns its exit code, what it printed,
# and its messages.
sub pg_lease
{
	my @arguments = @_;
	my ($out, $error) = ('', '');

	utf8::encode($_) foreach @arguments;
	IPC::Run::run([ 'pg_lease', @arguments ], '>', \$out, '2>', \$error);
	my $status = $?;
	utf8::decode($out);
	utf8::decode($error);
	return {
		code => $status & 127 ? "signal $status" : $status >> 8,
		out => $out,
		error => $error
	};
}

# ask(SUBCOMMAND, ARGUMENT...) does so with the server of this test.
sub ask
{
	my ($subcommand, @arguments) = @_;

	return pg_lease($subcommand, '-d', $connection, @arguments);
}

# objects(ANSWER) parses what was printed as JSON, an object a line.
sub objects
{
	my ($answer) = @_;

	return map { JSON::PP->new->decode($_) } split /\n/, $answer->{out};
}

# sql(SQL) executes SQL, which may have any characters.
sub sql
{
	my ($sql) = @_;

	utf8::encode($sql);
	return $node->safe_psql('postgres', $sql);
}

# event_count returns how many events there are: whatever changes a lease makes one.
sub event_count
{
	return sql('SELECT count(*) FROM lease.event');
}

local $ENV{PGCLIENTENCODING} = 'UTF8';

#----
# The command line
#----

program_help_ok('pg_lease');
program_version_ok('pg_lease');
program_options_handling_ok('pg_lease');

foreach my $subcommand (@subcommands)
{
	my $help = pg_lease($subcommand, '--help');
	is($help->{code}, 0, "$subcommand --help ends with 0");
	like($help->{out}, qr/^Usage:\n  pg_lease $subcommand /m, "... and says how to call it");
	is($help->{error}, '', '... and nothing else');
	is(scalar(grep { length > 80 } split /\n/, $help->{out}), 0, '... on lines that fit');
}

my $events = event_count();
my $epoch = sql("SELECT epoch FROM lease.acquire('L', 'a')");

foreach my $wrong (
	[ [], qr/no subcommand/ ],
	[ ['stauts'], qr/unrecognized subcommand "stauts"/ ],
	[ ['--json'], qr/unrecognized option "--json"/ ],
	[ [ 'status', '--bad' ], qr/unrecognized option/ ],
	[ [ 'status', '--watch=1m' ], qr/"1m" of --watch is not a duration/ ],
	[ [ 'status', '--watch=0' ], qr/at least 100ms/ ],
	[ [ 'status', '--watch=-1' ], qr/not a duration/ ],
	[ [ 'status', '--watch=0x10' ], qr/not a duration/ ],
	[ [ 'status', '--watch=1e3' ], qr/not a duration/ ],
	[ [ 'status', '--watch=1.2.3' ], qr/not a duration/ ],
	[ [ 'status', '--watch=.' ], qr/not a duration/ ],
	[ [ 'status', '--watch=99999999999h' ], qr/longer than 100 years/ ],
	[ [ 'watch', '--since=3' ], qr/needs the name of one lease/ ],
	[ [ 'watch', '--since=3', 'L', 'M' ], qr/needs the name of one lease/ ],
	[ [ 'watch', '--since=L=x' ], qr/"x" is not a valid number/ ],
	[ [ 'watch', '--since=-1', 'L' ], qr/"-1" is not a valid number/ ],
	[ [ 'watch', '--since=9223372036854775808', 'L' ], qr/not a valid number/ ],
	[ [ 'watch', '--since={"L"' ], qr/not valid JSON/ ],
	[ [ 'watch', '--since={"L": "3"}' ], qr/not a valid number/ ],
	[ ['history'], qr/name of one lease/ ],
	[ [ 'history', 'L', 'M' ], qr/name of one lease/ ],
	[ [ 'history', 'L', '--limit=0' ], qr/"0" is not a valid limit/ ],
	[ [ 'history', 'L', '--since=x' ], qr/"x" is not a valid number/ ],
	[ ['release'], qr/name of a lease and an epoch/ ],
	[ [ 'release', 'L' ], qr/name of a lease and an epoch/ ],
	[ [ 'release', 'L', '0' ], qr/"0" is not a valid epoch/ ],
	[ [ 'release', 'L', "$epoch " ], qr/is not a valid epoch/ ],
	[ [ 'release', 'L', '' ], qr/"" is not a valid epoch/ ],
	[ [ 'release', 'L', $epoch, 'L' ], qr/name of a lease and an epoch/ ],
	[ [ 'release', 'L', $epoch, '--reserve=1min' ], qr/--reserve needs --successor/ ],
	[ [ 'release', 'L', $epoch, '--successor=b', '--reserve=soon' ], qr/not a duration/ ],
	[ ['revoke'], qr/name of one lease/ ],
	[ [ 'revoke', 'L', 'M' ], qr/name of one lease/ ],
	[ [ 'revoke', 'L', '--reason' ], qr/requires an argument/ ],
	[ ['handover'], qr/name of one lease/ ],
	[ [ 'handover', 'L', '--successor' ], qr/requires an argument/ ],
	[ [ 'doctor', 'L' ], qr/unexpected argument "L"/ ],
	[ [ 'doctor', '--severity=fatal' ], qr/unrecognized severity "fatal"/ ])
{
	my ($arguments, $message) = @$wrong;
	my ($subcommand, @rest) = @$arguments;
	my $is_known = grep { defined $subcommand && $_ eq $subcommand } @subcommands;
	my $answer = $is_known ? ask($subcommand, @rest) : pg_lease(@$arguments);
	my $help = $is_known ? "pg_lease $subcommand --help" : 'pg_lease --help';

	is($answer->{code}, 64, "pg_lease @$arguments: ends with 64");
	like($answer->{error}, $message, '... and says why');
	like($answer->{error}, qr/Try "$help"/, '... and where help is');
	is($answer->{out}, '', '... and prints nothing');
}
is(event_count(), $events + 1, 'wrong command lines have changed nothing');

#----
# Connections
#----

my $answer = pg_lease('status', '-d', "host=" . $node->host . " port=1");
is($answer->{code}, 69, 'without a server it ends with 69');
like($answer->{error}, qr/connection to server/, '... and says why');

$answer = pg_lease('release', '-d', $node->connstr('nowhere'), 'L', $epoch);
is($answer->{code}, 69, 'without a database, too');

$answer = pg_lease('status', '-d', $node->connstr('template1'));
is($answer->{code}, 70, 'without the extension it ends with 70');
like($answer->{error}, qr/SQLSTATE [0-9A-Z]{5}.*CREATE EXTENSION lease/s, '... and says what to do');

$answer = pg_lease('status', '-h', $node->host, '-p', $node->port, '-d', 'postgres', '-U', 'postgres', 'L');
SKIP:
{
	skip 'the superuser has another name', 1 if sql('SELECT current_user') ne 'postgres';
	is($answer->{code}, 0, 'it connects as the options say');
}

{
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	local $ENV{PGDATABASE} = 'postgres';
	is(pg_lease('status', 'L')->{code}, 0, '... or the environment');
}

my $uri = 'postgresql:///postgres?port=' . $node->port . '&host=' . $node->host =~ s,/,%2F,gr;
is(pg_lease('status', '-d', $uri, 'L')->{code}, 0, '... or a URI');

sql('CREATE ROLE nobody LOGIN');
$answer = ask('revoke', '-U', 'nobody', 'L');
is($answer->{code}, 70, 'an error of the server ends it with 70');
like($answer->{error}, qr/SQLSTATE 42501/, '... with its SQLSTATE');

$answer = ask('release', 'L', $epoch, '--successor', 'x' x 300);
is($answer->{code}, 70, 'what the server does not accept, too');
like($answer->{error}, qr/SQLSTATE 22023/, '... with its SQLSTATE');

# Also one that would be the loss of the connection to who goes on until stopped.
my $locker = session($node);
$locker->do('BEGIN; LOCK TABLE lease.lease');
{
	local $ENV{PGOPTIONS} = '-c statement_timeout=100';
	foreach my $arguments ([ 'status', 'L' ], [ 'doctor' ])
	{
		$answer = ask(@$arguments);
		is($answer->{code}, 70, "an error that may go away ends @$arguments with 70");
		like($answer->{error}, qr/SQLSTATE 57014/, '... with its SQLSTATE');
	}
}
$locker->quit;

# A password, from the environment or the terminal.
sql("CREATE ROLE secretive LOGIN PASSWORD 'secret' IN ROLE pg_monitor");
my $hba = $node->data_dir . '/pg_hba.conf';
my $rules = slurp_file($hba);
unlink $hba;
append_to_file($hba, "local all secretive scram-sha-256\n$rules");
$node->reload;
my $asking = "$connection user=secretive";
is(pg_lease('status', '-w', '-d', $asking)->{code}, 69, '-w asks for no password');
{
	local $ENV{PGPASSWORD} = 'secret';
	is(pg_lease('status', '-d', $asking)->{code}, 0, 'a password may be in the environment');
	local $ENV{PGPASSWORD} = 'wrong';
	is(pg_lease('status', '-d', $asking)->{code}, 69, '... and has to be right');
}
SKIP:
{
	skip 'IO::Pty is needed for a terminal', 4 unless eval { require IO::Pty; IO::Pty->new };
	foreach my $arguments ([ '-d', $asking ], [ '-W', '-d', $connection ])
	{
		my ($keys, $screen) = ('', '');
		my $run = IPC::Run::start([ 'pg_lease', 'status', @$arguments, 'L' ],
			'<pty<', \$keys, '>pty>', \$screen, IPC::Run::timeout($PATIENCE));
		$run->pump until $screen =~ /Password: /;
		$keys = "secret\n";
		$run->finish;
		is(join(' ', $run->full_results), '0', "it asks for a password: @$arguments[0]");
		unlike($screen, qr/secret\b/, '... which does not show');
	}
}

#----
# status
#----

$answer = ask('status', 'never');
is($answer->{code}, 1, 'no such lease: it ends with 1');
like($answer->{error}, qr/lease "never" does not exist/, '... and says so');

$answer = ask('status', '--json', 'L', q{'; DROP TABLE work; --}, "a\nb", '%s%n', $hostile);
is($answer->{code}, 1, 'hostile names are names of no lease');
is(scalar(my @found = objects($answer)), 1, '... and the one that is there is shown');

sql(qq{
	SELECT lease.create('never-held'), lease.create('shard/eu'), lease.create('revoked'), lease.create('kept');
	SELECT lease.acquire('shard/eu', $hostile_sql, metadata => '{"zone": [1, null]}', ttl => '40 h');
	SELECT lease.acquire('revoked', 'r');
	SELECT lease.revoke('revoked', $hostile_sql);
	SELECT lease.acquire('kept', 'k');
});
sql("SELECT lease.release('kept', epoch, $hostile_sql, '10 min') FROM lease.status WHERE name = 'kept'");
sql("SELECT lease.progress('shard/eu', epoch, '{\"done\": 5}') FROM lease.status WHERE name = 'shard/eu'");
sql("SELECT lease.request_handover('shard/eu', 'next', 'deploy')");

$answer = ask('status', '--json');
is($answer->{code}, 0, 'status ends with 0');
my %lease = map { $_->{name} => $_ } objects($answer);
is_deeply(
	[ sort keys %lease ],
	[ sort qw(L never-held shard/eu revoked kept) ],
	'it shows every lease');

is($lease{'never-held'}{state}, 'free', 'a lease that was never held: free');
is_deeply(
	[ @{ $lease{'never-held'} }{qw(epoch holder acquired_at last_end reason metadata)} ],
	[ (undef) x 6 ],
	'... with nulls for what is not known');
is($lease{'shard/eu'}{holder}, $hostile, 'a hostile holder is shown as it is');
ok($lease{'shard/eu'}{held}, '... and holds it');
ok( $lease{'shard/eu'}{remaining} > 39 * 3600 && $lease{'shard/eu'}{remaining} <= 40 * 3600,
	'... for so many seconds');
is_deeply($lease{'shard/eu'}{metadata}, { zone => [ 1, undef ] }, '... with its metadata');
is_deeply(
	[ @{ $lease{'shard/eu'} }{qw(handover_to handover_reason reports)} ],
	[ 'next', 'deploy', 1 ],
	'... and whom it is to make way for');
is($lease{revoked}{reason}, $hostile, 'a hostile reason is shown as it is');
is_deeply([ @{ $lease{kept} }{qw(state successor)} ], [ 'reserved', $hostile ], '... and so is a successor');
is_deeply($lease{L}{candidates}, [], 'nobody waits');

my $waiter = session($node);
$waiter->ask("CALL lease.await('L', 'waiter', priority => 3)");
wait_until($node, "SELECT count(*) = 1 FROM lease.candidate", 'a candidate');
my ($waited_for) = objects(ask('status', '--json', 'L'));
is($waited_for->{candidates}[0]{pid}, $waiter->backend, 'who waits is shown');
is($waited_for->{candidates}[0]{priority}, 3, '... with the priority');

$answer = ask('status');
like($answer->{out}, qr/^ L +\| held +\| 00:00:\d\d +\| 00:09:\d\d +\| +$epoch \| a +\| +\| 1, 00:00:\d\d/m,
	'the table shows holder, times and candidates');
like($answer->{out}, qr/^ never-held +\| free +\| +\| +\| +\| +\| +\| +\|/m, '... nothing for what is not known');
like($answer->{out}, qr/^ shard\/eu +\| held +\| 00:\S+ +\| 39:59:\S+ .*\Q$hostile\E.*progress 00:00:\d\d ago.*to step down for next: deploy/m,
	'... progress, more than 24 hours, and a request to step down');
like($answer->{out}, qr/^ revoked .*revoked: \Q$hostile\E/m, '... the reason of a revocation');
like($answer->{out}, qr/^ kept +\| reserved +\| +\| 00:09:\d\d .*\Q$hostile\E/m, '... and for whom a lease is reserved');
unlike(ask('status', 'L')->{out}, qr/shard/, 'only the lease that was asked for is shown');
like(ask('status', '-x', 'L')->{out}, qr/^Holder  \| a$/m, '--expanded has a line for each column');

#----
# release and revoke
#----

$answer = ask('release', 'L', $epoch + 1000);
is($answer->{code}, 1, 'release of another epoch ends with 1');
like($answer->{out}, qr/^L: epoch \d+ is not held, nothing was changed$/, '... and says so');
is(sql("SELECT lease.holds('L', $epoch)"), 't', '... and leaves the grant alone');
is(ask('release', $hostile, $epoch)->{code}, 1, '... of a lease that does not exist, too');

$answer = ask('release', 'L', $epoch, '--successor', $hostile, '--reserve', '1.5h');
is($answer->{code}, 0, 'release ends with 0');
is($answer->{out}, "L: epoch $epoch released\n", '... and says so');
my ($released) = objects(ask('status', '--json', 'L'));
is_deeply([ @{$released}{qw(state successor last_end)} ], [ 'reserved', $hostile, 'released' ],
	'... and reserves the lease for the successor');
is(sql("SELECT available_at - now() BETWEEN '1:29' AND '1:30' FROM lease.status WHERE name = 'L'"),
	't', '... for the time that was given');
is(ask('release', 'L', $epoch)->{code}, 1, 'a second release changes nothing');

$answer = ask('revoke', 'shard/eu', '--reason', $hostile);
is($answer->{code}, 0, 'revoke ends with 0');
like($answer->{out}, qr/^shard\/eu: epoch \d+ revoked$/, '... and says so');
my ($revoked) = objects(ask('status', '--json', 'shard/eu'));
is_deeply([ @{$revoked}{qw(held reason)} ], [ JSON::PP::false, $hostile ], '... with the reason');
is(ask('revoke', 'shard/eu')->{code}, 1, 'a second revocation ends with 1');
$answer = ask('revoke', 'never');
is($answer->{code}, 1, '... as does that of a lease that does not exist');
like($answer->{error}, qr/SQLSTATE LS005.*hint/s, '... with what the server says');

sql("SELECT lease.create('handed'); SELECT lease.acquire('handed', 'leader')");
$answer = ask('handover', 'handed', '--successor', $hostile, '--reason', $hostile);
is($answer->{code}, 0, 'handover ends with 0');
like($answer->{out}, qr/^handed: the holder of epoch \d+ was asked to step down$/, '... and says so');
my ($handed) = objects(ask('status', '--json', 'handed'));
is_deeply(
	[ @{$handed}{qw(held handover_to handover_reason)} ],
	[ JSON::PP::true, $hostile, $hostile ],
	'... in favour of whom, and why');
sql("SELECT lease.revoke('handed')");
$answer = ask('handover', 'handed');
is($answer->{code}, 1, 'where nobody holds it, handover ends with 1');
is($answer->{out}, "handed: nobody holds it\n", '... and says so');
is(ask('handover', 'never')->{code}, 1, '... as for a lease that does not exist');
sql("SELECT lease.drop('handed')");

sql("SELECT lease.revoke('L')");
is($waiter->answer->{sqlstate}, '', 'the candidate gets the lease');
$waiter->quit;

#----
# history
#----

$answer = ask('history', 'shard/eu');
is($answer->{code}, 0, 'history ends with 0');
like($answer->{out}, qr/^ +2 \| .* \| granted +\| +\d+ \| \Q$hostile\E/m, '... and shows the events');
my @history = objects(ask('history', '--json', 'shard/eu'));
is_deeply([ map { $_->{seq} } @history ], [ 1 .. @history ], '... all of them, in order');
is_deeply([ map { $_->{kind} } @history ], [qw(created granted handover revoked)], '... with their kinds');
is($history[1]{holder}, $hostile, '... and the holder');
is($history[0]{epoch}, undef, '... and nulls');
is_deeply($history[3]{detail}, { reason => $hostile }, '... and details');
is_deeply([ map { $_->{seq} } objects(ask('history', '--json', '-n', 2, 'shard/eu')) ], [ 3, 4 ],
	'--limit is of the latest');
is_deeply([ map { $_->{seq} } objects(ask('history', '--json', '--since=1', '--limit=2', 'shard/eu')) ],
	[ 3, 4 ], '... also of those that --since leaves');
is_deeply([ map { $_->{seq} } objects(ask('history', '--json', '--since=3', 'shard/eu')) ], [4],
	'--since leaves those that come after');
is(ask('history', '--json', '--since=4', 'shard/eu')->{out}, '', '... or none');
sql("SELECT lease.drop('shard/eu')");
is((objects(ask('history', '--json', '-n', 1, 'shard/eu')))[0]{kind}, 'dropped', 'a lease that was dropped has a history');
$answer = ask('history', $hostile);
is($answer->{code}, 1, 'one that never was ends it with 1');
like($answer->{error}, qr/lease "\Q$hostile\E" has no history \(SQLSTATE LS005\)/, '... and says so');

#----
# doctor
#----

$answer = ask('doctor', '--severity=error');
is($answer->{code}, 0, 'a doctor that finds nothing ends with 0');
is($answer->{out}, "Nothing was found.\n", '... and says so');
is(ask('doctor', '--severity=error', '--json')->{out}, '', '... in JSON by silence');

sql('ALTER TABLE work DISABLE TRIGGER lease_fence');
$answer = ask('doctor', '--severity=error');
is($answer->{code}, 1, 'one that finds something ends with 1');
like($answer->{out}, qr/^error     table public\.work\n {10}\S.*\n {12}ALTER TABLE public\.work ENABLE TRIGGER lease_fence;\n\n1 finding\n/,
	'... and says what, and what to do');
my ($finding) = objects(ask('doctor', '--json'));
is_deeply([ @{$finding}{qw(severity object)} ], [ 'error', 'table public.work' ], '... in JSON, too');
sql($finding->{remedy});
is(ask('doctor', '--severity=error')->{code}, 0, 'what it said to do has mended it');
is(ask('doctor', '--severity=warning')->{code}, 0, '... and there are no warnings');
$answer = ask('doctor');
like($answer->{out}, qr/^notice /m, 'notices are shown');
is($answer->{code}, 0, '... and do not count');
is(ask('doctor', '--severity=notice')->{code}, 1, '... unless they are asked for');

#----
# Control characters, of which the server refuses only those of ASCII
#----

my $controls = "red\x{9b}31m next\x{85}line";
my $controls_sql = "\$q\$$controls\$q\$";
my $visible = 'red\u009B31m next\u0085line';

sql(qq{
	SELECT lease.create('C'), lease.acquire('C', $controls_sql);
	CREATE TABLE "$controls" (); SELECT lease.protect('"$controls"', 'C');
	ALTER TABLE "$controls" DISABLE TRIGGER lease_fence;
});

# watch(ARGUMENT...) returns the first two events of the lease, as watch prints them.
sub watch
{
	my ($out, $error);

	IPC::Run::run(
		[ 'bash', '-c', 'pg_lease watch --since=0 --interval=1h "$@" | head -n 2', 'bash',
			'-d', $connection, @_, 'C' ],
		'>', \$out, '2>', \$error, IPC::Run::timeout($PATIENCE));
	utf8::decode($out);
	return { out => $out, error => $error };
}

my %json = (
	status => ask('status', '--json', 'C'),
	history => ask('history', '--json', 'C'),
	watch => watch('--json'),
	doctor => ask('doctor', '--json', '--severity=error'),
	log => ask('run', '--log-format=json', '--lease=C', '--no-wait', 'true'));
my %text = (
	status => ask('status', 'C'),
	history => ask('history', 'C'),
	watch => watch(),
	doctor => ask('doctor', '--severity=error'),
	log => ask('run', '--lease=C', '--no-wait', 'true'));

foreach my $what (sort keys %text)
{
	foreach my $told ($text{$what}, $json{$what})
	{
		my $all = $told->{out} . $told->{error};

		unlike($all, qr/[^\P{Control}\n]/, "no control character is written: $what");
		like($all, qr/\Q$visible\E/, '... but what it is');
	}
}
$json{log}{out} = $json{log}{error};
my %last = map { $_ => (objects($json{$_}))[-1] } keys %json;
is($last{$_}{holder}, $controls, "JSON has it: $_") foreach qw(status history watch);
is($last{doctor}{object}, qq{table public."$controls"}, '... doctor');
like($last{log}{message}, qr/latest holder \Q$controls\E$/, '... log');
sql(qq{ALTER TABLE "$controls" ENABLE TRIGGER lease_fence});

$answer = ask('run', "--lease=two\nlines", '--no-wait', 'true');
like($answer->{error}, qr/\A(\S+ \S+ UTC .* lease "two\\nlines": .*\n)+\z/, 'each line of the log is one line');
$answer = ask('run', "--lease=two\nlines", '--no-wait', '--log-format=json', 'true');
is($_->{lease}, "two\nlines", '... also as JSON') foreach objects({ out => $answer->{error} });

#----
# Others than the superuser, and other settings
#----

sql(q{
	CREATE ROLE watcher LOGIN IN ROLE pg_monitor;
	ALTER ROLE watcher SET search_path = trap, pg_catalog;
	ALTER ROLE watcher SET IntervalStyle = 'iso_8601';
	ALTER ROLE watcher SET default_transaction_isolation = 'serializable';
	CREATE SCHEMA trap;
	GRANT USAGE ON SCHEMA trap TO watcher;
	CREATE FUNCTION trap.equal(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
	CREATE OPERATOR trap.= (FUNCTION = trap.equal, LEFTARG = text, RIGHTARG = text);
	CREATE FUNCTION trap.now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT timestamptz 'epoch' $$;
});
$connection .= ' user=watcher';
my @plain = objects(ask('status', '--json', 'L'));
is(scalar(@plain), 1, 'the search_path of a role changes nothing');
is($plain[0]{ttl}, 600, '... nor do its settings');
is(ask($_->[0], @{$_}[ 1 .. $#$_ ])->{code}, 0, "pg_monitor may call $_->[0]")
  foreach [ 'status', 'L' ], [ 'history', 'L' ], [ 'doctor', '--severity=error' ];
is(ask('revoke', 'L')->{code}, 70, '... but not revoke');

$node->stop;
done_testing();
