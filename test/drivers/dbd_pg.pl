# The life of a lease through DBD::Pg.
#
# test/t/013_drivers.pl starts this, with PGHOST and the like in the environment, and
# compares what it prints with what every driver has to print.

use strict;
use warnings FATAL => 'all';

use DBI;

# The SQLSTATE of the latest error.  The handle forgets it when a statement that
# failed is destroyed.
my $state;

# session(AUTOCOMMIT) connects; each statement is prepared by the server at its first
# use.
sub session
{
	my ($autocommit) = @_;

	return DBI->connect(
		'dbi:Pg:', '', '',
		{
			AutoCommit => $autocommit,
			RaiseError => 1,
			PrintError => 0,
			PrintWarn => 1,
			HandleError => sub { $state = $_[1]->state; return 0; },
			pg_server_prepare => 1,
			pg_switch_prepared => 1
		});
}

# life(MODE) goes through all of it with autocommit on or off.
sub life
{
	my ($mode) = @_;
	my $lease = "job-$mode";
	my $table = "plan_$mode";
	my $guard = 'SELECT lease.guard(?, ?)';
	my $write = "INSERT INTO $table (epoch, what) VALUES (?, ?)";
	my $count = "SELECT count(*) FROM $table WHERE what = ?";
	my $dbh = session($mode eq 'on');

	my $say = sub {
		my ($name, $result) = @_;
		print "$mode: $name: $result\n";
	};

	# With AutoCommit off the driver begins at the first statement.
	my $begin = sub { $dbh->begin_work if $mode eq 'on'; };

	# Runs statements, each with its parameters, and tells how that ended.
	my $transaction = sub {
		my @statements = @_;
		my $done = eval {
			$begin->();
			foreach (@statements)
			{
				my ($sql, @parameters) = @$_;

				if (ref $sql) { $sql->execute(@parameters); }
				else { $dbh->do($sql, {}, @parameters); }
			}
			$dbh->commit;
		};
		return 'committed' if $done;
		$dbh->rollback unless $dbh->{AutoCommit};
		return $state;
	};

	# The row of a statement that is a transaction of its own
	my $row = sub {
		my ($sql, @parameters) = @_;
		my @row = $dbh->selectrow_array($sql, {}, @parameters);
		$dbh->commit if $mode eq 'off';
		return wantarray ? @row : $row[0];
	};
	my $bool = sub { return $row->(@_) ? 'true' : 'false'; };

	$transaction->(
		[ 'SELECT lease.create(?, ttl => ?)', $lease, '10 min' ],
		["CREATE TABLE $table (id serial, epoch bigint, what text)"],
		[ 'SELECT lease.protect(?, ?)', $table, $lease ]);

	# A lease, and who has it
	my ($outcome, $epoch) =
	  $row->('SELECT outcome, epoch FROM lease.acquire(?, ?)', $lease, 'a/1');
	my $exact = $row->('SELECT epoch::text FROM lease.status WHERE name = ?', $lease);
	$say->('acquire', $outcome);
	$say->('epoch is exact', $epoch eq $exact ? 'true' : 'false');
	($outcome, my $none) =
	  $row->('SELECT outcome, epoch FROM lease.acquire(?, ?)', $lease, 'b/1');
	$say->('acquire by another', "$outcome, " . ($none // 'no epoch'));

	# Writes with and without a guard
	$say->('write without a guard', $transaction->([ $write, $epoch, 'none' ]));
	$say->(
		'guarded write',
		$transaction->([ $guard, $lease, $epoch ], [ $write, $epoch, 'guarded' ]));
	$say->('write after that', $transaction->([ $write, $epoch, 'after' ]));
	$say->(
		'savepoint rolled back',
		$transaction->(
			['SAVEPOINT s'], [ $guard, $lease, $epoch ],
			['ROLLBACK TO s'], [ $write, $epoch, 'savepoint' ]));
	$dbh->do("SELECT lease.guard('$lease', $epoch);"
		  . " INSERT INTO $table (epoch, what) VALUES ($epoch, 'message')");
	$dbh->commit if $mode eq 'off';
	$say->('one message', 'committed');
	{
		my $warning = 'no warning';
		local $SIG{__WARN__} =
		  sub { $warning = '01000' if $_[0] =~ /guard of lease .* guarded nothing/; };
		$row->($guard, $lease, $epoch);
		$say->('guard alone', $warning);
	}

	# Prepared statements, guarded and not, until their plans are generic
	my $prepared_guard = $dbh->prepare($guard);
	my $prepared_write = $dbh->prepare($write);
	my %ends = (committed => 0, LS004 => 0);
	foreach (1 .. 8)
	{
		$ends{
			$transaction->(
				[ $prepared_guard, $lease, $epoch ],
				[ $prepared_write, $epoch, 'prepared' ]) }++;
		$ends{ $transaction->([ $prepared_write, $epoch, 'unguarded' ]) }++;
	}
	$say->('prepared statements', "$ends{committed} committed, $ends{LS004} refused");

	# Many rows
	my $batch = sub {
		my ($what, $guarded) = @_;
		my $left = 10;
		my @rows;
		$begin->();
		$prepared_guard->execute(@$guarded) if $guarded;
		my $done = eval {
			$prepared_write->execute_for_fetch(
				sub { return $left-- > 0 ? [ $epoch, $what ] : undef; }, \@rows);
			$dbh->commit;
		};
		return 'committed' if $done;
		$dbh->rollback;

		# The driver tries all of them and raises the last error.
		return (grep { ref } @rows)[0][2];
	};
	$batch->('batch', [ $lease, $epoch ]);
	my $refused = $batch->('no batch');
	$say->('batch', $row->($count, 'batch') . ' written');
	$say->('batch without a guard', $refused);
	$_->finish foreach $prepared_guard, $prepared_write;

	# A COMMIT after an error does not commit, whether the driver says so or not.
	$begin->();
	$dbh->do($guard, {}, $lease, $epoch);
	$dbh->do($write, {}, $epoch, 'failed');
	eval { $dbh->do('SELECT 1 / 0'); };
	eval { $dbh->commit; };
	$dbh->rollback unless $dbh->{AutoCommit};
	$say->('COMMIT after an error', $row->($count, 'failed') . ' written');

	# NULL, strings and arrays
	$say->('NULL holds', $bool->('SELECT lease.holds(?, ?)', $lease, undef));
	$say->('NULL guard', $transaction->([ $guard, $lease, undef ]));
	$say->(
		'renew',
		scalar $row->('SELECT outcome FROM lease.renew(?, ?)', $lease, $epoch));
	$say->(
		'renew for a time',
		scalar $row->(
			'SELECT outcome FROM lease.renew(?, ?, ?)',
			$lease, $epoch, '11 min'));
	$say->(
		'renew for a time of NULL',
		scalar $row->(
			'SELECT outcome FROM lease.renew(?, ?, ?)',
			$lease, $epoch, undef));
	$say->(
		'renew many',
		scalar $row->(
			'SELECT outcome FROM lease.renew_many(?, ?)',
			[$lease], [$epoch]));

	# Another connection takes over while a transaction is open.
	my $other = session(1);
	$begin->();
	$dbh->do($guard, {}, $lease, $epoch);
	$dbh->do($write, {}, $epoch, 'lost');
	($outcome, my $later) = $other->selectrow_array(
		'SELECT outcome, epoch FROM lease.acquire(?, ?, reclaim => ?)',
		{}, $lease, 'a/1', 'true');
	$say->('reclaim', $outcome);
	$say->('next epoch is greater', $later > $epoch ? 'true' : 'false');
	$refused = eval { $dbh->commit; 'committed'; } // $state;
	$dbh->rollback unless $dbh->{AutoCommit};
	$say->('COMMIT under the old epoch', $refused);
	$say->('guard under the old epoch', $transaction->([ $guard, $lease, $epoch ]));
	$say->(
		'renew of the old epoch',
		scalar $row->('SELECT outcome FROM lease.renew(?, ?)', $lease, $epoch));
	$say->(
		'write under the next epoch',
		$transaction->([ $guard, $lease, $later ], [ $write, $later, 'later' ]));

	$say->('release', $bool->('SELECT lease.release(?, ?)', $lease, $later));
	$say->('release again', $bool->('SELECT lease.release(?, ?)', $lease, $later));
	$say->('guard after the release', $transaction->([ $guard, $lease, $later ]));
	$say->(
		'rows',
		scalar $row->(
			"SELECT string_agg(what || ' ' || n, ', ' ORDER BY what)"
			  . " FROM (SELECT what, count(*) AS n FROM $table GROUP BY what) AS w"));
	$other->disconnect;
	$dbh->disconnect;
	return;
}

life('off');
life('on');
