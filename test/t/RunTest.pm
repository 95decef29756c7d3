# What the tests of "pg_lease run" share: the program as a process whose log can be
# awaited, a proxy in front of the server that can misbehave, and a look at processes.

package RunTest;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use FindBin;
use lib $FindBin::RealBin;
use LeaseTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes ();

our @EXPORT = qw(
  program proxy boot_clock await_that alive running_of pids_in script contents
);

# CLOCK_BOOTTIME, which Perl does not name
my $BOOT_CLOCK = 7;

# What runs in the background of a shell, or under nohup, may have been started with
# signals ignored, which the programs would inherit.
$SIG{$_} = 'DEFAULT' foreach qw(HUP INT QUIT);

# boot_clock returns the present instant on the clock that pg_lease goes by.
sub boot_clock
{
	return Time::HiRes::clock_gettime($BOOT_CLOCK);
}

# await_that(CONDITION, NAME) waits until a condition holds, and returns when it was
# seen to; dies if that takes too long.
sub await_that
{
	my ($condition, $name) = @_;
	my $until = boot_clock() + $PATIENCE;

	until ($condition->())
	{
		die "timed out waiting for: $name" if boot_clock() > $until;
		Time::HiRes::sleep(0.002);
	}
	return boot_clock();
}

# state_of(PID) returns the state of a process as ps shows it, or '' if there is none.
sub state_of
{
	my ($pid) = @_;

	open(my $file, '<', "/proc/$pid/stat") or return '';
	my $line = <$file>;
	close $file;
	return defined $line && $line =~ /.*\) (\S)/ ? $1 : '';
}

# alive(PIDS) returns those of some processes that are there and no zombies.
sub alive
{
	return grep { state_of($_) =~ /^[^ZX]/ } @_;
}

# contents(FILE) returns what is in a file, nothing if there is none.
sub contents
{
	my ($file) = @_;

	return -e $file ? slurp_file($file) : '';
}

# pids_in(FILE, COUNT) waits until a file has that many numbers of processes.
sub pids_in
{
	my ($file, $count) = @_;
	my @pids;

	await_that(
		sub {
			@pids = contents($file) =~ /^(\d+)\n/mg;
			return @pids >= $count;
		},
		"$count processes in $file");
	return @pids;
}

# script(NAME, TEXT) makes a shell script and returns its path.
sub script
{
	my ($name, $text) = @_;
	my $path = $PostgreSQL::Test::Utils::tmp_check . "/$name.sh";

	open(my $file, '>', $path) or die "$path: $!";
	print $file "#!/bin/bash\n$text";
	close $file;
	chmod 0755, $path;
	return $path;
}

sub program
{
	return RunTest::Program->new(@_);
}

sub proxy
{
	return RunTest::Proxy->new(@_);
}

# RunTest::Program is a process of pg_lease.
package RunTest::Program;

use strict;
use warnings FATAL => 'all';

use JSON::PP ();
use LeaseTest;
use POSIX ();

# Shell commands before the program takes the place of the shell, if any
our $before;

my $started = 0;
my @running;

# new(CONNECTION, OPTIONS, COMMAND) starts "pg_lease run" with a connection string, a
# list of options and a command. Its log has renewals, and is JSON.
sub new
{
	my ($class, $connection, $options, @command) = @_;
	my $base = $PostgreSQL::Test::Utils::tmp_check . '/run_' . ++$started . "_$$";
	my $self = bless { log => "$base.log", out => "$base.out", seen => 0 }, $class;

	$self->{pid} = fork // die "fork: $!";
	if ($self->{pid} == 0)
	{
		open(STDIN, '<', '/dev/null') or die;
		open(STDOUT, '>', $self->{out}) or die;
		open(STDERR, '>', $self->{log}) or die;
		my @arguments = ('pg_lease', 'run', '-d', $connection, '--log-format=json', '-v',
			@$options, '--', @command);
		unshift @arguments, 'bash', '-c', "$before\nexec \"\$@\"", 'bash' if defined $before;
		exec(@arguments)
		  or POSIX::_exit(99);
	}
	push @running, $self;
	return $self;
}

# pid returns the number of the process.
sub pid
{
	my ($self) = @_;

	return $self->{pid};
}

# events returns all lines of its log so far. What the command writes on standard error is
# in between.
sub events
{
	my ($self) = @_;

	return map { JSON::PP::decode_json($_) }
	  grep { /^\{.*\}$/ } split /\n/, RunTest::contents($self->{log});
}

# wait_for(EVENT) waits for the next line of that kind, after the last one that was
# waited for, and returns it.
sub wait_for
{
	my ($self, $kind) = @_;
	my $found;

	RunTest::await_that(
		sub {
			my $ended = $self->has_ended;
			my @events = $self->events;
			foreach my $n ($self->{seen} .. $#events)
			{
				next unless $events[$n]->{event} eq $kind;
				$found = $events[$n];
				$self->{seen} = $n + 1;
				return 1;
			}
			die "pg_lease has ended without \"$kind\": " . $self->log if $ended;
			return 0;
		},
		"pg_lease to log \"$kind\"");
	return $found;
}

# last_of(EVENT) returns the latest line of that kind.
sub last_of
{
	my ($self, $kind) = @_;

	return (grep { $_->{event} eq $kind } $self->events)[-1];
}

# count(EVENT) returns how many lines of that kind there are.
sub count
{
	my ($self, $kind) = @_;

	return scalar grep { $_->{event} eq $kind } $self->events;
}

# deadline returns the latest instant until which it was certain of the lease.
sub deadline
{
	my ($self) = @_;

	return (grep { defined } map { $_->{deadline} } $self->events)[-1];
}

# log and output return what it, and the command, has written.
sub log
{
	my ($self) = @_;

	return RunTest::contents($self->{log});
}

sub output
{
	my ($self) = @_;

	return RunTest::contents($self->{out});
}

# guardian returns the number of the process between it and its command, when that has
# its name: it starts the command first.
sub guardian
{
	my ($self) = @_;
	my $pid;

	RunTest::await_that(
		sub {
			my @children =
			  split ' ', RunTest::contents("/proc/$self->{pid}/task/$self->{pid}/children");
			($pid) = grep { RunTest::contents("/proc/$_/comm") =~ /guardian/ } @children;
			return defined $pid;
		},
		'the guardian to be there');
	return $pid;
}

# signal(NAME) sends a signal.
sub signal
{
	my ($self, $name) = @_;

	kill $name, $self->{pid} or die "cannot send SIG$name: $!";
	return;
}

# has_ended tells whether it has ended.
sub has_ended
{
	my ($self) = @_;

	if (!defined $self->{status} && waitpid($self->{pid}, POSIX::WNOHANG()) > 0)
	{
		$self->{status} = $?;
		$self->{ended_at} = RunTest::boot_clock();
	}
	return defined $self->{status};
}

# exit_code waits for its end, and returns the code, or minus the signal.
sub exit_code
{
	my ($self) = @_;

	RunTest::await_that(sub { $self->has_ended }, 'pg_lease to end');
	return $self->{status} & 127 ? -($self->{status} & 127) : $self->{status} >> 8;
}

# Whatever the test leaves behind has to end.
END
{
	my $status = $?;

	foreach my $program (grep { !$_->has_ended } @running)
	{
		kill 'CONT', $program->pid;
		kill 'KILL', $program->pid;
		waitpid($program->pid, 0);
	}
	if ($status)
	{
		foreach my $program (@running)
		{
			print STDERR "# log of $program->{pid}:\n", map { "# $_\n" }
			  grep { !/"event":"renewed"/ } split /\n/, $program->log;
		}
	}
	$? = $status;
}

# RunTest::Proxy is a process between clients and a server. It is told, by a line
# each:
#   pass             forward everything (from the beginning)
#   hole             forward nothing, on connections that are there and on new ones
#   swallow N TEXT   of the next N requests that have a text in them, forward the
#                    request but nothing that comes back on that connection
#   mute             forward nothing that comes back on the connections that are there
#   cut              end the connections that are there
#   late SECONDS     begin only so long after with what comes on a new connection
package RunTest::Proxy;

use strict;
use warnings FATAL => 'all';

use IO::Handle;
use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;
use POSIX ();

my @proxies;

# new(NODE) starts a proxy.
sub new
{
	my ($class, $node) = @_;
	my $listener = IO::Socket::INET->new(
		LocalAddr => '127.0.0.1',
		Proto => 'tcp',
		Listen => 20,
		ReuseAddr => 1) or die "cannot listen: $!";
	my $self = bless { port => $listener->sockport }, $class;

	pipe(my $commands, $self->{commands}) or die "pipe: $!";
	pipe($self->{answers}, my $answers) or die "pipe: $!";
	$self->{commands}->autoflush(1);
	$self->{pid} = fork // die "fork: $!";
	if ($self->{pid} == 0)
	{
		close $self->{commands};
		$SIG{PIPE} = 'IGNORE';
		eval {
			serve($listener, $commands, $answers,
				$node->host . '/.s.PGSQL.' . $node->port);
			1;
		} or print STDERR "proxy: $@";
		POSIX::_exit(0);
	}
	close $commands;
	close $answers;
	close $listener;
	push @proxies, $self;
	return $self;
}

# connstr returns with what to connect through the proxy.
sub connstr
{
	my ($self) = @_;

	return "host=127.0.0.1 port=$self->{port} dbname=postgres sslmode=disable gssencmode=disable";
}

# tell(COMMAND) gives a command and waits until it is obeyed.
sub tell
{
	my ($self, $command) = @_;

	print { $self->{commands} } "$command\n";
	readline $self->{answers} or die 'the proxy has ended';
	return;
}

# swallowed returns how many replies it has begun to swallow.
sub swallowed
{
	my ($self) = @_;

	print { $self->{commands} } "count\n";
	my $count = readline $self->{answers};
	chomp $count;
	return $count;
}

# serve is what the process does.
sub serve
{
	my ($listener, $commands, $answers, $socket) = @_;
	my $select = IO::Select->new($listener, $commands);
	my (%peer, %is_client, %mute);
	my ($hole, $swallow, $text, $swallowed) = (0, 0, '', 0);
	my %waiting;
	my ($delay, @late) = (0);
	my $end = sub {
		foreach my $end (@_)
		{
			next unless $end;
			$select->remove($end);
			delete $peer{$end};
			delete $waiting{$end};
			close $end;
		}
	};

	my $join = sub {
		my ($client) = @_;
		my $server = IO::Socket::UNIX->new(Peer => $socket);
		if (!$server)
		{
			close $client;
			return;
		}
		$peer{$client} = $server;
		$peer{$server} = $client;
		$is_client{$client} = 1;
		delete $is_client{$server};
		delete $mute{$server};
		$select->add($client, $server);
	};

	$answers->autoflush(1);
	while (1)
	{
		foreach my $ready ($select->can_read(@late ? 0.01 : undef))
		{
			if ($ready == $commands)
			{
				sysread($commands, my $line, 200) or return;
				if ($line =~ /^swallow (\d+) (.*)/) { ($swallow, $text) = ($1, $2) }
				elsif ($line =~ /^hole/) { $hole = 1 }
				elsif ($line =~ /^pass/) { $hole = 0 }
				elsif ($line =~ /^mute/) { $mute{$_} = 1 foreach values %peer }
				elsif ($line =~ /^cut/) { my @ends = values %peer; $end->(@ends) }
				elsif ($line =~ /^late (\S+)/) { $delay = $1 }
				print $answers "$swallowed\n";
				next;
			}
			if ($ready == $listener)
			{
				my $client = $listener->accept or next;
				push @late, [ RunTest::boot_clock() + $delay, $client ];
				next;
			}
			next unless $peer{$ready};
			if ($hole)
			{
				# What has come stays where it is, and so does the end of a
				# connection.
				$select->remove($ready);
				$waiting{$ready} = $ready;
				next;
			}
			my $data;
			if (!sysread($ready, $data, 65536))
			{
				$end->($peer{$ready}, $ready);
				next;
			}
			if ($is_client{$ready} && $swallow > 0 && index($data, $text) >= 0)
			{
				$swallow--;
				$swallowed++;
				$mute{$peer{$ready}} = 1;
			}
			next if $mute{$ready} && !$is_client{$ready};
			syswrite($peer{$ready}, $data);
		}
		while (@late && RunTest::boot_clock() >= $late[0][0])
		{
			$join->((shift @late)->[1]);
		}
		if (!$hole && %waiting)
		{
			$select->add(values %waiting);
			%waiting = ();
		}
	}
}

END
{
	my $status = $?;

	foreach my $proxy (@proxies)
	{
		kill 'KILL', $proxy->{pid};
		waitpid($proxy->{pid}, 0);
	}
	$? = $status;
}

1;
