# Cron expressions, compared with another implementation.  G5.
#
# When an occurrence is follows from the expression, the zone and nothing else, so
# another program has to come to the same instants: test/drivers/cron_reference.py, with
# croniter, which is used here only.  Compared are the next 20 occurrences of a table of
# expressions and of random ones, in four zones, after instants of which some are shortly
# before a change of the clocks.
#
# Where the two differ on purpose, and what is compared there:
#
#  - croniter's zones: up to the next change of the clocks, what it makes of a zone by
#    itself.  At a change it follows no rule that could be told; past the first one, and
#    at it, its local times are compared, each made an instant by PEP 495.  That is the
#    rule of src/schedule.c: a time that is left out counts as if the clocks had not
#    changed, one that comes twice counts once, but twice where each hour has a time.
#  - days of both kinds: croniter takes either day unless a field has all values; lease,
#    like cron(8), unless there is a "*" in a field, so that the 1-31 is a restriction and
#    the */2 is none.  It is asked for both days then, or for the one and for the other.
#  - L: 5L, a last Friday, is L5 there, stands beside no other day in a list, and with
#    a day of the month both have to be right.  It is asked for each by itself.
#  - days that not each month has: from the 30th or 31st of February croniter 1.3.5 goes
#    past the first of March, and past an L.  It is asked for each by itself, too.
#  - what lease refuses and croniter takes (5/10, */90, 0 0 31 2 mon) is not compared;
#    test schedules has it.
#
# LEASE_TEST_SEED repeats the choices of a run.  Without croniter this is skipped, unless
# LEASE_ALL_DRIVERS is set.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use IPC::Run ();
use LeaseTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::Local qw(timegm);

my $RANDOM = 300;    # expressions

# By zone, instants a day or two and some minutes before each change of its clocks in
# 2026; and for all, elsewhere in the calendar: 2100 is no leap year.
my %BEFORE_CHANGE = (
	'UTC' => [],
	'Europe/Berlin' => [
		'2026-03-27 12:00:00', '2026-03-29 00:52:30',
		'2026-10-23 12:00:00', '2026-10-25 00:45:00'
	],
	'America/New_York' => [
		'2026-03-06 12:00:00', '2026-03-08 06:52:30',
		'2026-10-30 12:00:00', '2026-11-01 05:45:00'
	],
	'Australia/Lord_Howe' => [
		'2026-10-02 00:00:00', '2026-10-03 15:22:30',
		'2026-04-03 00:00:00', '2026-04-04 14:45:00'
	]);
my @AFTER = (
	'2026-01-15 12:00:00', '2027-12-30 23:59:59', '2028-02-27 00:00:00', '2099-12-30 10:00:00');

my @EXPRESSIONS = (
	# each minute, each hour, steps
	'* * * * *', '*/2 * * * *', '*/5 * * * *', '*/7 * * * *', '*/15 * * * *', '0-59/45 * * * *',
	'0 * * * *', '30 * * * *', '45 * * * *', '59 * * * *', '15,45 * * * *', '7-9,57 * * * *',
	'10-40/15 * * * *', '5 */2 * * *', '20 */3 * * *', '0 */5 * * *', '50 1-23/2 * * *', '30 0-23 * * *',
	# each day, many of them where clocks change
	'0 0 * * *', '30 1 * * *', '0 2 * * *', '15 2 * * *', '30 2 * * *', '0 3 * * *',
	'30 2,3 * * *', '*/15 2 * * *', '*/20 1-3 * * *', '45 1,13 * * *', '59 23 * * *', '0,30 0-4/2 * * *',
	'0 12 * * *', '30 8-18/2 * * *', '0 9,12,18 * * *',
	# days of the week
	'0 0 * * 0', '0 0 * * 7', '30 2 * * sun', '0 12 * * mon-fri', '0 12 * * 1-5', '15 6 * * Sat,SUN',
	'0 0 * * fri-sun', '0 0 * * 5-7', '0 4 * * 1-7/2', '0 4 * * */2', '0 4 * * */3', '30 1 * * 0,6',
	'0 0 * * 5L', '30 2 * * 0L', '0 3 * * 7L', '0 12 * * MONL', '0 12 * * 1L,3L', '0 12 * * 1,5L',
	# days of the month
	'0 0 1 * *', '30 2 29 * *', '0 0 30 * *', '0 12 31 * *', '0 0 */2 * *', '0 0 */10 * *',
	'0 0 1-7 * *', '0 0 5,15,25 * *', '0 0 28-31 * *', '0 0 L * *', '30 2 l * *', '0 0 1,15,L * *',
	'0 0 10-20/5,L * *', '0 0 30,L * *', '0 0 1,2,31 * *',
	# months
	'0 0 1 1 *', '0 0 1 jan,jul *', '0 0 1 */3 *', '30 2 * 3,10 *', '0 0 31 1-12/2 *', '0 12 L feb *',
	'0 0 29 2 *', '59 23 31 dec *', '0 0 29 FEB-apr *', '* * 1 1 *',
	# days of both kinds: either, and where there is a "*", both
	'0 0 13 * fri', '0 0 1,15 * mon', '0 12 L * sun', '0 12 15 * 5L', '0 12 L * 1L', '0 0 1-31 * mon',
	'0 0 13 * 0-6', '0 0 13 * 0-7', '30 2 25-31 3,10 0', '0 0 */2 * mon', '0 0 1-7 * */2', '0 0 */5 * */3',
	'0 0 */2 * 5L', '0 0 */9,L * tue', '0 0 29 2 */6', '0 0 29 2 mon');

my $program = "$FindBin::RealBin/../drivers/cron_reference.py";

# Debian's packages are for Debian's interpreter.
my $python = -x '/usr/bin/python3' ? '/usr/bin/python3' : 'python3';
if (!IPC::Run::run(
		[
			$python, '-c',
			'import croniter, zoneinfo; zoneinfo.ZoneInfo("Europe/Berlin")'
		],
		'&>', '/dev/null'))
{
	die 'croniter is not installed' if $ENV{LEASE_ALL_DRIVERS};
	plan skip_all => 'croniter is not installed (Debian: python3-croniter)';
}

my $seed = $ENV{LEASE_TEST_SEED} // int(rand(2**31));
srand $seed;
note "LEASE_TEST_SEED=$seed";
note 'croniter ' . (run_command([ $python, $program, '--version' ]))[0];

#----
# Random expressions
#----

my @MONTHS = qw(jan feb mar apr may jun jul aug sep oct nov dec);
my @WEEKDAYS = qw(sun mon tue wed thu fri sat);

# between(LOW, HIGH) is a number from one to the other.
sub between
{
	my ($low, $high) = @_;

	return $low + int(rand($high - $low + 1));
}

# item(LOW, HIGH) is a value, a range, or either with a step, of a list.
sub item
{
	my ($low, $high) = @_;
	my $value = between($low, $high);
	my $kind = rand();

	return $value if $kind < 0.5 || $value == $high;
	return "$value-" . between($value + 1, $high) if $kind < 0.75;
	return '*/' . between(1, $high - $low) if $kind < 0.8;
	my $end = between($value + 1, $high);
	return "$value-$end/" . between(1, $end - $value);
}

# field(LOW, HIGH, STARS) is a field; so many of them are "*" alone.
sub field
{
	my ($low, $high, $stars) = @_;

	return '*' if rand() < $stars;
	return '*/' . between(1, $high - $low) if rand() < 0.15;
	return join(',', map { item($low, $high) } 1 .. one_of(1, 1, 1, 2, 3));
}

# named(FIELD, FIRST, NAMES) has names instead of some of the numbers outside of steps.
sub named
{
	my ($field, $first, @names) = @_;

	return $field if rand() < 0.5;
	return $field =~ s{(?<![/\d])(\d+)}{ rand() < 0.5 ? $names[ ($1 - $first) % @names ] : $1 }ger;
}

# weekday(DAY) is a field of days of the week, beside that of the day of the month; */20
# is never a last Friday.
sub weekday
{
	my ($day) = @_;

	return between(0, 7) . 'L' if rand() < 0.15 && $day !~ m{\*/};
	my $field = field(0, 6, 0.5);
	return 7 if $field eq '0' && rand() < 0.5;
	$field .= ',' . between(0, 7) . 'L' if $field ne '*' && rand() < 0.1;
	return named($field, 0, @WEEKDAYS);
}

# day is a field of days of the month, one of which is in each month.
sub day
{
	my $field = field(1, 28, 0.4);
	my $kind = rand();

	return $field if $kind < 0.75;
	my $late = one_of('L', 29 .. 31, '25-31', '30,L');
	return $field eq '*' ? 'L' : "$field,$late";
}

# random_expression is one, every other within the hours in which clocks change.
sub random_expression
{
	my $hour = rand() < 0.5 ? field(0, 23, 0.3) : item(1, 3) =~ s{^\*/.*}{*}r;
	my $day = day();

	return join(' ', field(0, 59, 0.05), $hour, $day,
		named(field(1, 12, 0.6), 1, @MONTHS), weekday($day));
}

my @random = map { random_expression() } 1 .. $RANDOM;

#----
# Comparison
#----

# seconds(INSTANT) are those since 1970.
sub seconds
{
	my ($year, $month, $day, @time) = split /[- :]/, $_[0];

	return timegm(reverse(@time), $day, $month - 1, $year);
}

# Of each question: expression, zone, after, of which a random expression has one of the
# instants and another.
my @questions;
foreach my $zone (sort keys %BEFORE_CHANGE)
{
	my @after = (@AFTER, @{ $BEFORE_CHANGE{$zone} });

	foreach my $expression (@EXPRESSIONS)
	{
		push @questions, map { [ $expression, $zone, seconds($_) ] } @after;
	}
	foreach my $expression (@random)
	{
		push @questions, map { [ $expression, $zone, $_ ] }
		  between(946_684_800, 4_102_444_800), seconds(one_of(@after));
	}
}

my $node = new_server('cron_reference');
my $file = "$PostgreSQL::Test::Utils::tmp_check/cron_questions";
append_to_file($file,
	join('', map { join("\t", $_, @{ $questions[$_] }) . "\n" } 0 .. $#questions));
$node->safe_psql(
	'postgres', qq{
	CREATE TABLE question (number int, expression text, zone text, after bigint);
	\\copy question FROM '$file'
});

my $stderr = '';
my $reference = '';
IPC::Run::run([ $python, $program ], '<', $file, '>', \$reference, '2>', \$stderr)
  or die "no answer from croniter: $stderr";
my $ours = $node->safe_psql(
	'postgres', q{
	SELECT q.number, (SELECT string_agg(extract(epoch FROM o)::bigint::text, ' ' ORDER BY n)
			FROM lease.occurrences(q.expression, q.zone, after => to_timestamp(q.after), until => '6000-01-01', up_to => 20)
				WITH ORDINALITY AS x(o, n))
	FROM question q ORDER BY q.number});

my (%wrong, %of_own);
my @ours = split /\n/, $ours;
my @reference = split /\n/, $reference;
is(scalar(@reference), scalar(@questions), 'an answer to each question from croniter');
is(scalar(@ours), scalar(@questions), 'and from lease');

# compare(NUMBER, WHAT, OURS, THEIRS) notes a difference, the first one of an expression.
sub compare
{
	my ($number, $what, $our, $their) = @_;
	my ($expression, $zone, $after) = @{ $questions[$number] };

	return if $our eq $their;
	$wrong{$expression} //=
	  "in $zone after $after, $what:\n lease:    $our\n croniter: $their";
	return;
}

foreach my $number (0 .. $#questions)
{
	my (undef, $our) = split /\|/, $ours[$number];
	my (undef, $their, $own) = split /\t/, $reference[$number], -1;
	my @own = split / /, $own;

	compare($number, 'all', $our, $their);
	$of_own{ $questions[$number][1] } += @own;
	compare($number, 'by its own reckoning', join(' ', (split / /, $our)[ 0 .. $#own ]), $own)
	  if @own;
}
foreach my $expression (@EXPRESSIONS)
{
	is($wrong{$expression}, undef, $expression);
}
my @wrong = grep { defined $wrong{$_} } @random;
is(scalar(@wrong), 0, "$RANDOM random expressions")
  || diag(map { "$_: $wrong{$_}\n" } @wrong);

# It is not for want of something to compare.
cmp_ok(scalar(@EXPRESSIONS), '>=', 60, 'expressions enough');
is(scalar(grep { (() = /\d+/g) == 21 } @ours), scalar(@questions), 'each with 20 occurrences');
note 'compared by its own reckoning: '
  . join(', ', map { "$of_own{$_} in $_" } sort keys %of_own);
cmp_ok($of_own{$_}, '>', 1000, "many by its own reckoning in $_")
  foreach sort keys %BEFORE_CHANGE;

$node->stop;
done_testing();
