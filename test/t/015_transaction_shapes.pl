# Every shape of a transaction, with a takeover at every point of it.  G3, G4.
#
# A holder guards a transaction, writes to a protected table in one statement, and ends
# it in some way.  Somebody else takes the lease over before that statement, in the
# middle of it, after it, or not at all.  Whatever the isolation level, nothing of a
# superseded holder arrives, and its COMMIT says so; and everything of a holder that
# has not been superseded does.
#
# The first test is a table: way to end and moment of the takeover against isolation
# level; in each cell the SQLSTATE of the end (or ok) and the number of rows that have
# arrived.  Behind it are the shapes that do not fit into a table.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use LeaseTest;
use Test::More;

my $GATE = 4711;    # an advisory lock at which the statement waits
my $node = new_server('shapes', "max_prepared_transactions = 10\n");
my $holder = session($node);
my $taker = session($node, sql => $AHEAD);
my $keeper = session($node);

# A statement that can be held up in the middle: after its first row.
$node->safe_psql(
	'postgres', qq{
	SELECT lease.create('M', ttl => '10 min');
	CREATE TABLE also (who text);
	SELECT lease.protect('also', 'M');
	CREATE FUNCTION gate(i int) RETURNS boolean LANGUAGE plpgsql AS \$\$
	BEGIN
		IF i = 2 THEN
			PERFORM pg_advisory_xact_lock_shared($GATE);
		END IF;
		RETURN true;
	END \$\$;
});
my $WRITE = "INSERT INTO work (who) SELECT 'A' FROM generate_series(1, 3) i WHERE gate(i)";

# begin_anew(LEASE) grants a lease to the holder anew; it returns the epoch.
sub begin_anew
{
	my ($lease) = @_;
	$lease //= 'L';

	$keeper->do("SELECT lease.revoke('$lease')");
	return $keeper->do("SELECT epoch FROM lease.acquire('$lease', 'A')");
}

# take_over(LEASE) has somebody else take it over.
sub take_over
{
	my ($lease) = @_;
	$lease //= 'L';

	$taker->do("SELECT epoch FROM lease.acquire('$lease', 'B')") =~ /^\d+$/
	  or die "no takeover";
	return;
}

# write_with_takeover(MOMENT, STATEMENT) has the holder write, with a takeover before, during or
# after that, or never; it returns the answer to the statement.
sub write_with_takeover
{
	my ($moment, $write) = @_;
	my $answer;

	$write //= $WRITE;
	take_over() if $moment eq 'before';
	$keeper->do("SELECT pg_advisory_lock($GATE)") if $moment eq 'during';
	$holder->ask($write);
	if ($moment eq 'during')
	{
		wait_for_event($node, $holder, 'advisory');
		take_over();
		$keeper->do("SELECT pg_advisory_unlock($GATE)");
	}
	$answer = $holder->answer;
	take_over() if $moment eq 'after';
	return $answer;
}

# arrived(TABLE) counts the rows that have arrived so far.
sub arrived
{
	my ($table) = @_;

	return $keeper->do("SELECT count(*) FROM $table");
}

#----
# The table
#----

# Ways to end a transaction: what comes before the write, after it, and at the end.
my @ENDS = (
	[ 'COMMIT', '', '', 'COMMIT' ],
	[ 'ROLLBACK', '', '', 'ROLLBACK' ],
	[ 'ROLLBACK TO, COMMIT', 'SAVEPOINT s', 'ROLLBACK TO s', 'COMMIT' ],
	[ 'guard in it, ROLLBACK TO, COMMIT', 'in savepoint', 'ROLLBACK TO s', 'COMMIT' ],
	[ 'RELEASE, COMMIT', 'SAVEPOINT s', 'RELEASE s', 'COMMIT' ],
	[ 'PREPARE', '', '', "PREPARE TRANSACTION 'shape'" ],
	[ 'COMMIT AND CHAIN', '', '', 'COMMIT AND CHAIN' ],
	[
		'CONSTRAINTS IMMEDIATE, COMMIT', 'SET CONSTRAINTS ALL IMMEDIATE',
		'SET CONSTRAINTS ALL DEFERRED', 'COMMIT'
	]);
my @LEVELS = ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE');

# cell(LEVEL, MOMENT, END) runs one transaction and returns what became of it.
sub cell
{
	my ($level, $moment, $end) = @_;
	my (undef, $first, $then, $last) = @$end;
	my $before = arrived('work');
	my $epoch = begin_anew();
	my $answer;

	$holder->do("BEGIN ISOLATION LEVEL $level");
	if ($first eq 'in savepoint')
	{
		$holder->do("SAVEPOINT s; SELECT lease.guard('L', $epoch)");
	}
	else
	{
		$holder->do("SELECT lease.guard('L', $epoch)");
		$holder->do($first) if $first ne '';
	}
	$answer = write_with_takeover($moment);
	die "write: $answer->{error}" if $answer->{sqlstate} ne '';
	$holder->do($then) if $then ne '';
	$answer = $holder->query($last);
	my $cell = $answer->{sqlstate} || 'ok';

	# In what follows, also in the transaction that is chained, the guard is gone.
	$answer = $holder->query("INSERT INTO work (who) VALUES ('unguarded')");
	$cell .= "!$answer->{sqlstate}" if $answer->{sqlstate} ne 'LS004';
	$holder->query('ROLLBACK');
	return sprintf '%s %d', $cell, arrived('work') - $before;
}

my $table = '';
foreach my $end (@ENDS)
{
	foreach my $moment ('never', 'before', 'during', 'after')
	{
		my $line = join ' | ', map { sprintf '%-7s', cell($_, $moment, $end) } @LEVELS;
		$line =~ s/\s+$//;
		$table .= sprintf "%-33s| %-7s| %s\n", $end->[0], $moment, $line;
	}
}
note $table;
is($table, <<'EXPECTED', 'isolation level x moment of the takeover x way to end');
COMMIT                           | never  | ok 3    | ok 3    | ok 3
COMMIT                           | before | LS001 0 | LS001 0 | LS001 0
COMMIT                           | during | LS001 0 | LS001 0 | LS001 0
COMMIT                           | after  | LS001 0 | LS001 0 | LS001 0
ROLLBACK                         | never  | ok 0    | ok 0    | ok 0
ROLLBACK                         | before | ok 0    | ok 0    | ok 0
ROLLBACK                         | during | ok 0    | ok 0    | ok 0
ROLLBACK                         | after  | ok 0    | ok 0    | ok 0
ROLLBACK TO, COMMIT              | never  | ok 0    | ok 0    | ok 0
ROLLBACK TO, COMMIT              | before | LS001 0 | LS001 0 | LS001 0
ROLLBACK TO, COMMIT              | during | LS001 0 | LS001 0 | LS001 0
ROLLBACK TO, COMMIT              | after  | LS001 0 | LS001 0 | LS001 0
guard in it, ROLLBACK TO, COMMIT | never  | ok 0    | ok 0    | ok 0
guard in it, ROLLBACK TO, COMMIT | before | ok 0    | ok 0    | ok 0
guard in it, ROLLBACK TO, COMMIT | during | ok 0    | ok 0    | ok 0
guard in it, ROLLBACK TO, COMMIT | after  | ok 0    | ok 0    | ok 0
RELEASE, COMMIT                  | never  | ok 3    | ok 3    | ok 3
RELEASE, COMMIT                  | before | LS001 0 | LS001 0 | LS001 0
RELEASE, COMMIT                  | during | LS001 0 | LS001 0 | LS001 0
RELEASE, COMMIT                  | after  | LS001 0 | LS001 0 | LS001 0
PREPARE                          | never  | 0A000 0 | 0A000 0 | 0A000 0
PREPARE                          | before | 0A000 0 | 0A000 0 | 0A000 0
PREPARE                          | during | 0A000 0 | 0A000 0 | 0A000 0
PREPARE                          | after  | 0A000 0 | 0A000 0 | 0A000 0
COMMIT AND CHAIN                 | never  | ok 3    | ok 3    | ok 3
COMMIT AND CHAIN                 | before | LS001 0 | LS001 0 | LS001 0
COMMIT AND CHAIN                 | during | LS001 0 | LS001 0 | LS001 0
COMMIT AND CHAIN                 | after  | LS001 0 | LS001 0 | LS001 0
CONSTRAINTS IMMEDIATE, COMMIT    | never  | ok 3    | ok 3    | ok 3
CONSTRAINTS IMMEDIATE, COMMIT    | before | LS001 0 | LS001 0 | LS001 0
CONSTRAINTS IMMEDIATE, COMMIT    | during | LS001 0 | LS001 0 | LS001 0
CONSTRAINTS IMMEDIATE, COMMIT    | after  | LS001 0 | LS001 0 | LS001 0
EXPECTED

#----
# Statements of their own, guarded by the start-up option
#----

subtest 'an implicit transaction with the start-up option' => sub {
	my $before = arrived('work');
	my $epoch = begin_anew();
	my $guarded = session($node, options => "-c lease.token=L=$epoch");

	is($guarded->query($WRITE)->{sqlstate}, '', 'a statement is admitted');
	$keeper->do("SELECT pg_advisory_lock($GATE)");
	$guarded->ask($WRITE);
	wait_for_event($node, $guarded, 'advisory');
	take_over();
	$keeper->do("SELECT pg_advisory_unlock($GATE)");
	refused($guarded->answer, 'LS001', 'refused at its COMMIT after a takeover in the middle');
	refused($guarded->query($WRITE), 'LS001', 'and at its first row after that');
	is(arrived('work') - $before, 3, 'only the first one has arrived');
	$guarded->quit;
};

#----
# Shapes that do not fit into the table
#----

subtest 'a READ ONLY transaction' => sub {
	my $epoch = begin_anew();

	$holder->do("BEGIN READ ONLY; SELECT lease.guard('L', $epoch); SELECT count(*) FROM work");
	is($holder->query('COMMIT')->{sqlstate}, '', 'commits under its grant');
	$holder->do("BEGIN READ ONLY; SELECT lease.guard('L', $epoch); SELECT count(*) FROM work");
	refused($holder->query("INSERT INTO work (who) VALUES ('A')"), '25006', 'writes nothing');
	$holder->query('ROLLBACK');
	$holder->do("BEGIN READ ONLY; SELECT lease.guard('L', $epoch); SELECT count(*) FROM work");
	take_over();
	refused($holder->query('COMMIT'), 'LS001',
		'is told at COMMIT that what it read may be out of date');
};

subtest 'a parallel query in the transaction' => sub {
	my $before = arrived('work');

	$holder->do("CREATE TABLE IF NOT EXISTS big AS SELECT i FROM generate_series(1, 20000) i;"
		  . " ALTER TABLE big SET (parallel_workers = 2)");
	my $settings = "SET LOCAL parallel_setup_cost = 0; SET LOCAL parallel_tuple_cost = 0;"
	  . " SET LOCAL min_parallel_table_scan_size = 0; SET LOCAL max_parallel_workers_per_gather = 2";
	foreach my $takeover (0, 1)
	{
		my $epoch = begin_anew();

		$holder->do("BEGIN; $settings; SELECT lease.guard('L', $epoch)");
		like($holder->do('EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) SELECT count(*) FROM big WHERE i > 1'),
			qr/Workers Planned: 2/, 'there are workers');
		$holder->do("INSERT INTO work (who) SELECT 'A' FROM (SELECT count(*) FROM big) c");
		take_over() if $takeover;
		$holder->do('SELECT count(*) FROM big WHERE i > 1');
		my $answer = $holder->query('COMMIT');
		is($answer->{sqlstate}, $takeover ? 'LS001' : '',
			$takeover ? 'refused after a takeover' : 'commits');
	}
	is(arrived('work') - $before, 1, 'one row has arrived');
};

subtest 'guards of several leases' => sub {
	foreach my $lost ('', 'L', 'M')
	{
		my @before = (arrived('work'), arrived('also'));
		my ($l, $m) = (begin_anew('L'), begin_anew('M'));

		$holder->do("BEGIN; SELECT lease.guard('M', $m), lease.guard('L', $l)");
		$holder->do("INSERT INTO work (who) VALUES ('A')");
		$holder->do("INSERT INTO also VALUES ('A')");
		take_over($lost) if $lost;
		my $answer = $holder->query('COMMIT');
		is($answer->{sqlstate}, $lost ? 'LS001' : '', $lost ? "$lost is lost" : 'none is lost');
		like($answer->{error}, qr/lease "$lost"/, 'the error names it') if $lost;
		is_deeply([ arrived('work') - $before[0], arrived('also') - $before[1] ],
			$lost ? [ 0, 0 ] : [ 1, 1 ], 'all arrives, or nothing');
	}
};

subtest 'the same lease at two epochs' => sub {
	my $before = arrived('work');
	my $epoch = begin_anew();

	$holder->do("BEGIN; SELECT lease.guard('L', $epoch); INSERT INTO work (who) VALUES ('A')");
	my $next = $keeper->do("SELECT epoch FROM lease.acquire('L', 'A', reclaim => true)");
	$holder->do("SELECT lease.guard('L', $next); INSERT INTO work (who) VALUES ('A')");
	refused($holder->query('COMMIT'), 'LS001', 'one of them is superseded');
	$holder->do("BEGIN; SELECT lease.guard('L', $next)");
	refused($holder->query("SELECT lease.guard('L', $epoch)"), 'LS001', 'and is no more admitted');
	$holder->query('ROLLBACK');
	is(arrived('work') - $before, 0, 'nothing has arrived');
};

subtest 'a lease that is dropped, or dropped and created again, before COMMIT' => sub {
	foreach my $again (0, 1)
	{
		my $before = arrived('work');
		my $epoch = begin_anew();

		$holder->do("BEGIN; SELECT lease.guard('L', $epoch); INSERT INTO work (who) VALUES ('A')");
		$keeper->do("SELECT lease.drop('L', force => true)");
		$keeper->do("SELECT lease.create('L', ttl => '10 min'), lease.acquire('L', 'A')") if $again;
		refused($holder->query('COMMIT'), $again ? 'LS001' : 'LS005', $again ? 'created again' : 'dropped');
		is(arrived('work') - $before, 0, 'nothing has arrived');
		$keeper->do("SELECT lease.create('L', ttl => '10 min')") unless $again;
	}
};

subtest 'an error and another try inside a DO block' => sub {
	my $retry = qq{DO \$\$
		BEGIN
			BEGIN
				$WRITE;
				RAISE 'something else';
			EXCEPTION WHEN raise_exception THEN
				INSERT INTO work (who) VALUES ('A');
			END;
		END \$\$};

	foreach my $moment ('never', 'before', 'during', 'after')
	{
		my $before = arrived('work');
		my $epoch = begin_anew();

		$holder->do("BEGIN; SELECT lease.guard('L', $epoch)");
		my $answer = write_with_takeover($moment, $retry);
		is($answer->{sqlstate}, '', "the block itself, takeover: $moment");
		is($holder->query('COMMIT')->{sqlstate}, $moment eq 'never' ? '' : 'LS001', 'COMMIT');
		is(arrived('work') - $before, $moment eq 'never' ? 1 : 0, 'what has arrived');
	}

	# A block that catches the refusal and tries again is refused again.
	my $before = arrived('work');
	my $epoch = begin_anew();
	take_over();
	my $answer = $holder->query(qq{DO \$\$
		BEGIN
			FOR i IN 1..3 LOOP
				BEGIN
					PERFORM lease.guard('L', $epoch);
					INSERT INTO work (who) VALUES ('A');
				EXCEPTION WHEN SQLSTATE 'LS001' THEN
					RAISE WARNING 'refused';
				END;
			END LOOP;
			INSERT INTO work (who) VALUES ('A');
		END \$\$});
	is(scalar(() = $answer->{error} =~ /WARNING: .* refused/g), 3, 'refused three times');
	refused($answer, 'LS004', 'and what no guard stands for');
	is(arrived('work') - $before, 0, 'nothing has arrived');
};

subtest 'many statements in one transaction' => sub {
	my $before = arrived('work');
	my $epoch = begin_anew();

	$holder->do("BEGIN; SELECT lease.guard('L', $epoch)");
	$holder->do("INSERT INTO work (who) VALUES ('A'); SAVEPOINT s$_; UPDATE work SET who = 'A' WHERE who = 'A'; RELEASE s$_")
	  foreach (1 .. 200);
	take_over();
	$holder->do("DELETE FROM work WHERE who = 'A'");
	refused($holder->query('COMMIT'), 'LS001', 'refused');
	is(arrived('work') - $before, 0, 'nothing has arrived');
};

$_->quit foreach ($holder, $taker, $keeper);
$node->stop;
done_testing();
