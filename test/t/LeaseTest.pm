# What the TAP tests of lease share: servers with the extension in them, client
# sessions that can be left waiting, paused and asked for what an error carried, and
# what is left to chance.

package LeaseTest;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(
  new_server session refused wait_until wait_for_event wait_for_fence
  commits_in_order libfaketime one_of maybe_sleep $PATIENCE $AHEAD
);

# Seconds that a test waits for what must happen.
our $PATIENCE = $PostgreSQL::Test::Utils::timeout_default;

# To a session with this setting, grants of up to ten minutes are over.
our $AHEAD = "SET lease.clock_offset = '11min'";

# new_server(NAME, CONFIGURATION, PARAMETERS OF init) makes and starts a server
# with the extension and a table "work" that the lease L protects.
sub new_server
{
	my ($name, $configuration, %parameters) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init(%parameters);
	$node->append_conf('postgresql.conf', $configuration // '');
	$node->start;
	$node->safe_psql(
		'postgres', q{
		CREATE EXTENSION lease;
		CREATE TABLE work (id bigserial, epoch bigint, who text);
		SELECT lease.create('L', ttl => '10 min'), lease.protect('work', 'L');
	});
	return $node;
}

# session(NODE, ...) opens a session; see LeaseTest::Session.
sub session
{
	return LeaseTest::Session->new(@_);
}

# refused(ANSWER, SQLSTATE, NAME) passes if an answer is the error of that SQLSTATE.
sub refused
{
	my ($answer, $sqlstate, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return is($answer->{sqlstate}, $sqlstate, $name)
	  || diag($answer->{error} eq '' ? "answer: $answer->{rows}" : $answer->{error});
}

# wait_until(NODE, QUERY, NAME) waits until a query is true, and dies if that takes
# too long: nothing after it would mean what it says.
sub wait_until
{
	my ($node, $query, $name) = @_;

	$node->poll_query_until('postgres', $query)
	  or die "timed out waiting for: $name";
}

# wait_for_event(NODE, SESSION, EVENT) waits until a session's server process
# waits for an event, as pg_stat_activity names it.
sub wait_for_event
{
	my ($node, $session, $event) = @_;

	wait_until($node,
		"SELECT wait_event = '$event' FROM pg_stat_activity WHERE pid = "
		  . $session->backend,
		"process " . $session->backend . " to wait for $event");
}

# wait_for_fence(NODE, SESSION) waits until a session waits for a fence lock.
sub wait_for_fence
{
	my ($node, $session) = @_;

	wait_until($node,
		"SELECT count(*) = 1 FROM pg_locks WHERE NOT granted"
		  . " AND locktype = 'advisory' AND objsubid = 27411 AND pid = "
		  . $session->backend,
		"process " . $session->backend . " to wait for the fence lock");
}

# commits_in_order(NODE, SLOT, TABLE) returns the rows inserted into a table, in the
# order in which their transactions committed, each as a hash of its columns; it
# consumes them from the slot, whose plugin is test_decoding.
sub commits_in_order
{
	my ($node, $slot, $table) = @_;
	my @rows;

	foreach my $change (
		split /\n/,
		$node->safe_psql('postgres',
			"SELECT data FROM pg_logical_slot_get_changes('$slot', NULL, NULL,"
			  . " 'include-xids', '1')"))
	{
		next unless $change =~ /^table public\.\Q$table\E: INSERT: (.*)/;
		my $columns = $1;
		my %row;
		$row{$1} = $2
		  while $columns =~ /(\w+)\[[^]]+\]:(?|'((?:[^']|'')*)'|(\S+))/g;
		push @rows, \%row;
	}
	return @rows;
}

# libfaketime returns the library that shifts the clock of a program into which it is
# preloaded, if it is installed.
sub libfaketime
{
	my ($library) =
	  grep { -f } glob '/usr/lib/*/faketime/libfaketime.so.1'
	  . ' /usr/lib{64,}/faketime/libfaketime.so.1 /usr/local/lib/faketime/libfaketime.so.1';

	return $library;
}

# one_of(LIST) is one of them.
sub one_of
{
	return $_[ rand @_ ];
}

# maybe_sleep(SECONDS) is a command for psql that now and then takes some time, at most
# so many seconds.
sub maybe_sleep
{
	my ($seconds) = @_;

	return rand() < 0.3
	  ? sprintf("SELECT pg_sleep(%.3f) \\g /dev/null\n", rand($seconds))
	  : '';
}

# LeaseTest::Session is a psql process whose answers can be awaited later.
#
# An answer is a hash: rows (as psql prints them, unaligned), error (all that came
# on standard error), sqlstate (of the first error in it, or '').
package LeaseTest::Session;

use strict;
use warnings FATAL => 'all';

use IPC::Run ();
use Time::HiRes qw(time);

# new(NODE, database => ..., user => ..., options => ..., sql => ...) connects, with
# start-up options and a first command if given.
sub new
{
	my ($class, $node, %arguments) = @_;
	my $connection = $node->connstr($arguments{database} // 'postgres');
	my $self = bless {
		stdin => '', stdout => '', stderr => '', asked => 0, answered => 0
	}, $class;

	$connection .= " user=$arguments{user}" if defined $arguments{user};
	local $ENV{PGOPTIONS} = $arguments{options} // '';
	local $ENV{PGCLIENTENCODING} = 'UTF8';
	$self->{run} = IPC::Run::start(
		[
			'psql', '-XAtq', '-v', 'VERBOSITY=verbose', '-d', $connection,
			'-f', '-'
		],
		'<', \$self->{stdin}, '>', \$self->{stdout}, '2>', \$self->{stderr});
	my $answer = $self->query('SELECT pg_backend_pid()');
	die "could not connect: $answer->{error}" if $answer->{rows} !~ /^\d+$/;
	$self->{backend} = $answer->{rows};
	$self->do($arguments{sql}) if defined $arguments{sql};
	return $self;
}

# backend returns the process number of the server process.
sub backend
{
	my ($self) = @_;

	return $self->{backend};
}

# client returns the process number of psql.
sub client
{
	my ($self) = @_;

	$self->{client} //= $self->query('\! echo $PPID')->{rows};
	return $self->{client};
}

# ask(SQL) sends statements without waiting for their answer.
sub ask
{
	my ($self, $sql) = @_;
	my $mark = 'answer ' . ++$self->{asked};

	$sql .= ';' unless $sql =~ /^\\|(?:;|\\g)\s*$/;
	$self->{stdin} .= "$sql\n\\echo $mark\n\\warn $mark\n";
	$self->{run}->pump_nb;
	return;
}

# answer waits for the answer to the oldest question that has none yet, for at
# most some seconds; it dies if none comes.
sub answer
{
	my ($self, $seconds) = @_;
	my $mark = 'answer ' . ++$self->{answered};
	my $until = time + ($seconds // $LeaseTest::PATIENCE);
	my %answer;

	while ($self->{stdout} !~ /^$mark\n/m || $self->{stderr} !~ /^$mark\n/m)
	{
		die "no answer after "
		  . ($seconds // $LeaseTest::PATIENCE)
		  . " s; so far: $self->{stdout}$self->{stderr}"
		  if time > $until;
		die "psql has ended: $self->{stderr}" unless $self->{run}->pumpable;
		$self->{run}->pump_nb;
		select(undef, undef, undef, 0.002);
	}
	$self->{stdout} =~ s/^(.*?)\n?^$mark\n//ms and $answer{rows} = $1;
	$self->{stderr} =~ s/^(.*?)\n?^$mark\n//ms and $answer{error} = $1;
	$answer{sqlstate} =
	  $answer{error} =~ /(?:ERROR|FATAL):  ([0-9A-Z]{5}):/ ? $1 : '';
	return \%answer;
}

# query(SQL) sends statements and waits for the answer.
sub query
{
	my ($self, $sql) = @_;

	$self->ask($sql);
	return $self->answer;
}

# do(SQL) sends statements that must succeed, and returns their rows.
sub do
{
	my ($self, $sql) = @_;
	my $answer = $self->query($sql);

	die "$sql: $answer->{error}" if $answer->{error} =~ /(?:ERROR|FATAL):/;
	return $answer->{rows};
}

# pause and resume stop and continue psql.
sub pause
{
	my ($self) = @_;

	kill 'STOP', $self->client or die "cannot stop psql: $!";
	return;
}

sub resume
{
	my ($self) = @_;

	kill 'CONT', $self->client or die "cannot continue psql: $!";
	return;
}

# quit ends the session.
sub quit
{
	my ($self) = @_;

	$self->{stdin} .= "\\q\n";
	eval { $self->{run}->finish; };
	return;
}

1;
