# What stands in doc/ about pg_lease: the manual page names every subcommand and every
# option and formats without a warning, the unit is one for systemd, and the scripts of
# the sidecar for Kubernetes do what they say, as far as that can be seen without it.
#
# Whatever it takes that is not there is skipped.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use IPC::Run ();
use LeaseTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $doc = "$FindBin::RealBin/../../doc";

# output_of(COMMAND...) runs a command and returns all that it prints.
sub output_of
{
	my @command = @_;
	my $output = '';

	IPC::Run::run(\@command, '>', \$output, '2>&1', IPC::Run::timeout($PATIENCE));
	return $output;
}

# have(PROGRAM) tells whether a program is there.
sub have
{
	my ($program) = @_;

	return grep { -x "$_/$program" } split /:/, $ENV{PATH};
}

# until_true(CONDITION, NAME) waits until a condition is true.
sub until_true
{
	my ($condition, $name) = @_;

	foreach (1 .. $PATIENCE * 50)
	{
		return if $condition->();
		select(undef, undef, undef, 0.02);
	}
	die "timed out waiting for $name";
}

#----
# The manual page
#----

my $page = slurp_file("$doc/pg_lease.1") =~ s/\\-/-/gr =~ s/\\f[BIR]//gr;
foreach my $subcommand (output_of('pg_lease', '--help') =~ /^  (\w+) +\w/mg)
{
	next if $subcommand eq 'pg_lease';
	like($page, qr/^pg_lease $subcommand /m, "the manual page has pg_lease $subcommand");
	my @missing =
	  grep { index($page, $_) < 0 } output_of('pg_lease', $subcommand, '--help') =~ /(--[a-z][a-z-]+)/g;
	is("@missing", '', '... with all its options');
}

SKIP:
{
	skip 'man is needed', 1 unless have('man');
	local $ENV{MANWIDTH} = 80;
	IPC::Run::run([ 'man', '--warnings', '-E', 'UTF-8', '-l', "$doc/pg_lease.1" ],
		'>', \my $text, '2>', \my $warnings);
	skip 'this man cannot show a file', 1 if $? != 0 && $warnings =~ /usage|option/i;
	is($warnings, '', 'it is shown without a warning');
}

#----
# systemd
#----

SKIP:
{
	skip 'systemd-analyze is needed', 2 unless have('systemd-analyze');
	my $unit = slurp_file("$doc/systemd/planner.service");
	my $copy = PostgreSQL::Test::Utils::tempdir . '/planner.service';
	my $user = getpwuid($>);

	like($unit, qr/^ExecStart=\S+\/pg_lease run --lease=\S+ .*-- \S/m, 'the unit starts pg_lease run');
	$unit =~ s/^ExecStart=\S+/ExecStart=\/bin\/true/m;
	$unit =~ s/^User=.*/User=$user/m;
	append_to_file($copy, $unit);
	my $answer = output_of('systemd-analyze', 'verify', '--man=no', $copy);
	unlike($answer, qr/\Q$copy\E|planner\.service: (?!.*no such)/i, 'systemd finds nothing wrong with it')
	  or diag($answer);
}

#----
# The sidecar
#----

my $place = PostgreSQL::Test::Utils::tempdir;
my $yaml = slurp_file("$doc/kubernetes/sidecar.yaml");
my %scripts;

mkdir "$place/lease" or die;
while ($yaml =~ /^  ([\w-]+): \|\n((?:    .*\n|\n)+)/mg)
{
	my ($name, $script) = ($1, $2);
	$script =~ s/^    //mg;
	$script =~ s/\/lease\//$place\/lease\//g;
	$script =~ s/\/scripts\//$place\//g;
	$script =~ s/exec \/usr\/local\/bin\/planner/exec $place\/planner/;
	append_to_file("$place/$name", $script);
	chmod 0755, "$place/$name";
	$scripts{$name} = 1;
}
is_deeply([ sort keys %scripts ], [qw(end-scheduler hold scheduler sidecar)], 'the sidecar has its scripts');
append_to_file("$place/planner",
	"#!/bin/sh\necho \"\$LEASE_EPOCH \$PGOPTIONS\" >$place/started\nexec sleep 1000\n");
chmod 0755, "$place/planner";

# start(SCRIPT, ENVIRONMENT) starts a script in a process group of its own.
sub start
{
	my ($script, %environment) = @_;
	my $pid = fork() // die;

	if ($pid == 0)
	{
		setpgrp;
		$ENV{$_} = $environment{$_} foreach keys %environment;
		exec "$place/$script" or die;
	}
	return $pid;
}

# Two containers: the scheduler waits, gets the environment, and dies with the grant.
my @grants = ([ 5, q{-c a=it\'s\ "x" -c lease.token=planner=5} ], [ 6, '-c lease.token=planner=6' ]);
foreach my $grant (@grants)
{
	my ($epoch, $options) = @$grant;
	my $scheduler = start('scheduler');
	my $hold = start('hold', LEASE_NAME => 'planner', LEASE_EPOCH => $epoch, PGOPTIONS => $options);

	until_true(sub { -s "$place/started" }, 'the scheduler to start');
	is(slurp_file("$place/started"), "$epoch $options\n", 'the scheduler starts with the environment of the grant');
	kill 'TERM', -$hold;
	waitpid $hold, 0;
	is($?, 0, '... the script ends when told so');
	ok(!-e "$place/lease/environment", '... leaves no environment');
	waitpid $scheduler, 0;
	is($? & 127, 9, '... and has killed the scheduler');
	unlink "$place/started";
}

# A sidecar that was killed: the next one kills the scheduler first.
my $scheduler = start('scheduler');
my $hold = start('hold', LEASE_NAME => 'planner', LEASE_EPOCH => 7, PGOPTIONS => '-c lease.token=planner=7');
until_true(sub { -s "$place/started" }, 'the scheduler to start');
kill 'KILL', -$hold;
waitpid $hold, 0;
ok(kill(0, $scheduler), 'if the sidecar is killed, the scheduler goes on');
is(system("$place/end-scheduler"), 0, '... until the next one begins');
waitpid $scheduler, 0;
is($? & 127, 9, '... which kills it');

done_testing();
