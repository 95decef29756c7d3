# The records of a lease, compacted: a million to a thousand.  Section 5.5 of the contract.
#
# Nearly all of them are decisions that were to be kept for no time; some below the boundary
# are kept for ever, and stay in their places.
#
#  - They verify before and after, and what was kept is there.
#  - Neither to verify nor to compact them takes more memory than for 10,000.
#  - After that, any one record that is missing, altered, or altered and digested anew,
#    whether it is below the boundary or above, is found and named, and so are the
#    boundary and the row of the chain.  Somebody who is superuser does that here, with the
#    trigger disabled, in transactions that are rolled back.
#  - A decision that was compacted can be made anew; one that was kept stands.
#
# LEASE_TEST_SEED repeats the choices of a run; LEASE_TEST_RECORDS is for another number.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use LeaseTest;
use List::Util qw(shuffle);
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $RECORDS = $ENV{LEASE_TEST_RECORDS} // 1_000_000;
my $FEW = 10_000;       # with which memory is compared
my $ABOVE = 500;        # that many stay above the boundary,
my $BELOW = 499;        # and that many below
my $SAMPLE = 25;        # of each of these somebody alters
my $MORE_MEMORY = 1.5;  # at most, as a ratio

my $seed = $ENV{LEASE_TEST_SEED} // int(rand(2**31));
srand $seed;
note "LEASE_TEST_SEED=$seed";

die "LEASE_TEST_RECORDS must be a multiple of 1000, and $FEW or more"
  if $RECORDS % 1000 != 0 || $RECORDS < $FEW;

# Few shared buffers, because those that a process has touched count as its memory, and
# so does a compiler that it has loaded.
my $node = new_server(
	'compact', q{
shared_buffers = 8MB
jit = off
max_wal_size = 4GB
synchronous_commit = off
log_statement = none
});
my $s = session($node);

# timed(NAME, SQL) executes something that may take long, tells how long it took, and
# returns its rows.
sub timed
{
	my ($name, $sql) = @_;
	my $started = time;

	$s->ask($sql);
	my $answer = $s->answer(100 * $PATIENCE);
	die $answer->{error} if $answer->{error} ne '';
	note sprintf '%s: %.1f s', $name, time - $started;
	return $answer->{rows};
}

#----
# Memory
#----

# peak(SESSION, PROGRAM) returns the most memory that a server process had while a program
# ran, in kilobytes; undef where the system does not tell.
sub peak
{
	my ($session, $program) = @_;
	my $process = '/proc/' . $session->backend;

	open(my $reset, '>', "$process/clear_refs") or return $program->() && undef;
	print $reset "5\n";
	close $reset or return $program->() && undef;
	$program->();
	my ($peak) = slurp_file("$process/status") =~ /^VmHWM:\s+(\d+) kB/m;
	return $peak;
}

# compact_and_verify(LEASE, RECORDS) does it all for one lease, and returns the peaks of
# its three steps.
sub compact_and_verify
{
	my ($lease, $records) = @_;
	my $up_to = $records - $ABOVE;
	my $every = int($up_to / ($BELOW + 1));
	my $last_kept = $every * $BELOW;
	my $boundary = $records + 1;
	my $remaining = $BELOW + $ABOVE + 1;
	my %peak;

	my $epoch = $s->do("SELECT epoch FROM lease.acquire('$lease', 'A')");
	timed("$lease: $records are decided", "CALL fill('$lease', $epoch, $records, $every, $last_kept)");

	# A session that has done nothing yet, and a vacuum, so that the measured steps do the same.
	$s->do('VACUUM ANALYZE lease.record; VACUUM lease.record_chain');
	$s->quit;
	$s = session($node);
	my $verify =
	  "SELECT verified, records, removed, last_seq, problem FROM lease.verify_authority('$lease')";
	$peak{before} = peak($s, sub {
		is(timed("$lease: verified", $verify),
			"t|$records|0|$records|", "$lease: $records records verify");
	});
	$peak{compact} = peak($s, sub {
		is( timed("$lease: compacted",
				"SELECT * FROM lease.compact('$lease', $epoch, before => $up_to + 1)"),
			join('|', $up_to - $BELOW, $up_to, $remaining, ''),
			"are compacted to $remaining");
	});
	$peak{after} = peak($s, sub {
		is( timed("$lease: verified again", $verify),
			join('|', 't', $remaining, $up_to - $BELOW, $boundary, ''),
			'and verify');
	});
	is( $s->do("SELECT count(*), min(seq), max(seq), min(kept_until) FROM lease.record"
			  . " WHERE lease = '$lease' AND seq <= $up_to"),
		join('|', $BELOW, $every, $last_kept, 'infinity'),
		'what was to be kept is there');
	is( $s->do("SELECT seq, up_to, removed, kept, epoch, holder FROM lease.boundary WHERE lease = '$lease'"),
		join('|', $boundary, $up_to, $up_to - $BELOW, $BELOW, $epoch, 'A'),
		'and the boundary says what is not');
	is( $s->do("SELECT position FROM lease.floor WHERE floor = '$lease#records'"),
		$up_to + 1, 'as does the floor of the records');
	is( $s->do("SELECT outcome, seq FROM lease.decide('$lease', $epoch, 's$every', 'yes', '{\"n\": $every}')"),
		"identical|$every", 'a decision that was kept stands');
	is( $s->do("BEGIN; SELECT outcome, seq FROM lease.decide('$lease', $epoch, 's1', 'no'); ROLLBACK"),
		'recorded|' . ($boundary + 1), 'one that was not can be made anew');
	return \%peak;
}

$s->do(
	q{SELECT lease.create('few', ttl => '10 h'), lease.create('many', ttl => '10 h');
	CREATE PROCEDURE fill(name text, epoch bigint, records int, every int, last_kept int) LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1..records LOOP
			PERFORM lease.decide(name, epoch, 's' || i, 'yes', jsonb_build_object('n', i),
				keep => CASE WHEN i % every = 0 AND i <= last_kept THEN NULL ELSE interval '0' END);
			IF i % 1000 = 0 THEN
				COMMIT;
			END IF;
		END LOOP;
	END;
	$$});

my $few = compact_and_verify('few', $FEW);
my $many = compact_and_verify('many', $RECORDS);

SKIP:
{
	skip 'the peak of a process\'s memory is not told here', 3
	  if grep { !defined } values %$few, values %$many;
	foreach my $step ('before', 'compact', 'after')
	{
		note "$step: $few->{$step} kB for $FEW records, $many->{$step} kB for $RECORDS";
		cmp_ok($many->{$step}, '<', $MORE_MEMORY * $few->{$step},
			"memory is bounded ($step)");
	}
}

#----
# What somebody alters
#----

my $up_to = $RECORDS - $ABOVE;
my $boundary = $RECORDS + 1;
my $every = int($up_to / ($BELOW + 1));

# found(SQL) is what is found of the lease after some statements, which are undone.
sub found
{
	my ($sql) = @_;

	my $answer = $s->query(
		'BEGIN; ALTER TABLE lease.record DISABLE TRIGGER lease_keep_events;'
		  . " $sql; SELECT problem FROM lease.verify_authority('many'); ROLLBACK");
	die "$sql: $answer->{error}" if $answer->{error} ne '';
	return $answer->{rows};
}

# Of a decision
my %column = (
	kind => "'declared'",
	subject => "subject || ' '",
	from_state => "'old'",
	to_state => "'new'",
	verdict => "'no'",
	from_position => "'0'",
	from_phase => "'0'",
	position => "'0'",
	phase => "'0'",
	detail => "detail || '{\"more\": 1}'",
	kept_until => "'-infinity'",
	epoch => 'epoch + 1',
	holder => "'B'",
	at => "at + interval '1 us'",
	xid => "'3'",
	digest => 'sha256(digest)',
	previous => 'sha256(previous)');

my @below = (shuffle map { $every * $_ } 1 .. $BELOW)[ 0 .. $SAMPLE - 1 ];
my @above = (shuffle $up_to + 1 .. $RECORDS)[ 0 .. $SAMPLE - 1 ];
my (%right, @wrong);

# expect(SQL, PROBLEM) notes whether just that is found.
sub expect
{
	my ($sql, $problem, $kind) = @_;
	my $found = found($sql);

	$right{$kind}++, return if $found eq $problem;
	push @wrong, "$sql: found \"$found\", not \"$problem\"";
	return;
}

# The column "attempt" is null unless the record is a settlement, by a constraint.
is( $s->do(
		"SELECT string_agg(attname, ' ' ORDER BY attname) FROM pg_attribute"
		  . " WHERE attrelid = 'lease.record'::regclass AND attnum > 0 AND NOT attisdropped"),
	join(' ', sort keys %column, 'attempt', 'lease', 'seq'),
	'every column is tried');
my @columns = shuffle keys %column;
foreach my $record (@below, @above, $up_to + 1, $RECORDS)
{
	my $one = "lease = 'many' AND seq = $record";
	my $column = shift @columns;
	push @columns, $column;

	expect("DELETE FROM lease.record WHERE $one", "record $record is missing", 'missing');
	expect("UPDATE lease.record SET $column = $column{$column} WHERE $one",
		"record $record was altered", 'altered');
	expect(
		"UPDATE lease.record SET verdict = 'no' WHERE $one;"
		  . " UPDATE lease.record r SET digest = lease.record_digest(r) WHERE $one",
		$record <= $up_to
		? "a record up to $up_to was altered, and digested anew"
		: 'record ' . ($record + 1) . ', or the digest of the one before it, was altered',
		'digested anew');
}
is(join("\n", @wrong), '', 'each of 52 records that is missing or altered is found and named');
is(join(' ', map { "$_ $right{$_}" } sort keys %right),
	'altered 52 digested anew 52 missing 52', 'all of them were tried');

my $other = "lease = 'many' AND seq";
my %boundary = (
	"DELETE FROM lease.record WHERE $other = $boundary" =>
	  "the boundary, record $boundary, is missing",
	"UPDATE lease.record SET kind = 'declared' WHERE $other = $boundary" =>
	  "the boundary, record $boundary, was altered",
	"UPDATE lease.record SET detail = detail || '{\"removed\": 1}' WHERE $other = $boundary" =>
	  "the boundary, record $boundary, was altered",
	"UPDATE lease.record SET holder = 'B' WHERE $other = $boundary;"
	  . " UPDATE lease.record r SET digest = lease.record_digest(r) WHERE $other = $boundary" =>
	  'the row of lease.record_chain was altered',
	"DELETE FROM lease.record_chain WHERE lease = 'many'" =>
	  'the row of lease.record_chain is missing',
	"UPDATE lease.record_chain SET boundary = NULL WHERE lease = 'many'" =>
	  'the row of lease.record_chain was altered: it says nothing of the boundary',
	"UPDATE lease.record_chain SET last_seq = last_seq + 1 WHERE lease = 'many'" =>
	  'the row of lease.record_chain was altered',
	"UPDATE lease.record_chain SET last_digest = sha256(last_digest) WHERE lease = 'many'" =>
	  'the row of lease.record_chain was altered',
	"UPDATE lease.floor SET position = position - 1 WHERE floor = 'many#records'" =>
	  'floor "many#records" does not agree with the boundary',
	"DELETE FROM lease.record WHERE $other BETWEEN $up_to + 1 AND $up_to + 2" =>
	  'records ' . ($up_to + 1) . ' to ' . ($up_to + 2) . ' are missing',
	"DELETE FROM lease.record WHERE $other <= $every * 2" =>
	  "2 records up to $up_to are missing",
	# What was removed comes back
	"INSERT INTO lease.record SELECT lease, 1, kind, subject || '!', from_state, to_state, verdict, attempt,"
	  . ' from_position, from_phase, position, phase, detail, kept_until, epoch, holder, at, xid, NULL, digest'
	  . " FROM lease.record WHERE $other = $every;"
	  . " UPDATE lease.record r SET digest = lease.record_digest(r) WHERE $other = 1" =>
	  'record 1 is there although it was compacted');
foreach my $sql (sort keys %boundary)
{
	is(found($sql), $boundary{$sql}, "found: $boundary{$sql}");
}
is(found('SELECT'), '', 'and nothing of what is as it was');

$node->stop;
done_testing();
