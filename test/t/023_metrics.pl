# The query files for exporters in doc/metrics.
#
# Every query in them runs, as a member of pg_monitor, and has the columns that the file
# says; and both files export what is in lease.metric, under the same names, as the same
# kinds, each figure once.
#
# Only as much of YAML is read here as these files use.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use LeaseTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $files = "$FindBin::RealBin/../../doc/metrics";
my $node = new_server('metrics');

# Something of each: a lease that is held and one that is expired, with progress and
# without, a peer that is stale; a task of which one occurrence is done, one has failed for
# good, one is being done and one is due, and one that has nothing yet.  The fourth lease
# was never granted.
$node->safe_psql(
	'postgres', q{
	CREATE ROLE exporter LOGIN IN ROLE pg_monitor;
	SELECT lease.create('expired'), lease.create('silent'), lease.create('never');
	SELECT lease.acquire('L', 'A'), lease.acquire('silent', 'A'), lease.beat('A');
	SELECT lease.progress(name, epoch) FROM lease.status WHERE name = 'L';
	SET lease.clock_offset = '-1 h';
	SELECT lease.acquire('expired', 'B'), lease.beat('B', '{"owns": ["job"]}');
	SELECT lease.progress(name, epoch) FROM lease.status WHERE name = 'expired';
});
$node->safe_psql(
	'postgres', q{
	SET lease.clock_offset = '-5 h';
	SELECT lease.create_task('busy', 'L', every => '1 h', anchor => now() - interval '30 min',
		misfire => 'all', misfire_window => '270 min', max_attempts => 1);
	SELECT lease.create_task('idle', 'L', cron => '0 0 29 2 *', enabled => false);
	RESET lease.clock_offset;
	DO $$
	DECLARE
		due timestamptz[] := ARRAY(SELECT due_at FROM lease.due('busy') ORDER BY due_at);
		epoch bigint := (SELECT epoch FROM lease.status WHERE name = 'L');
	BEGIN
		PERFORM lease.begin_occurrence('busy', d, epoch) FROM unnest(due[1:3]) AS d;
		PERFORM lease.finish_occurrence('busy', due[1], 1, epoch),
			lease.finish_occurrence('busy', due[2], 1, epoch, 'failed');
	END
	$$;
});
is( $node->safe_psql(
		'postgres', q{
		SELECT labels->>'task', metric, CASE WHEN metric LIKE '%seconds' THEN round(value / 60) ELSE value END
		FROM lease.metric WHERE subject = 'task' ORDER BY 1, 2},
		connstr => $node->connstr('postgres') . ' user=exporter'),
	join("\n",
		'busy|lease_task_done_age_seconds|210', 'busy|lease_task_enabled|1',
		'busy|lease_task_last_failed|1', 'busy|lease_task_late_seconds|30',
		'busy|lease_task_passed_over_total|1', 'busy|lease_task_ready|1',
		'busy|lease_task_running|1', 'busy|lease_task_waiting|0',
		'idle|lease_task_done_age_seconds|300', 'idle|lease_task_enabled|0',
		'idle|lease_task_last_failed|0', 'idle|lease_task_late_seconds|0',
		'idle|lease_task_passed_over_total|0', 'idle|lease_task_ready|0',
		'idle|lease_task_running|0', 'idle|lease_task_waiting|0'),
	'lease.metric tells of tasks, also whoever is no member of the role of their lease');
my $expected = $node->safe_psql('postgres',
	'SELECT DISTINCT metric, kind FROM lease.metric ORDER BY 1');
is(scalar(split /\n/, $expected), 23, 'lease.metric has all there is');

# answer(QUERY) runs a query as the exporter and returns its columns and rows.
sub answer
{
	my ($query) = @_;
	my ($status, $out, $err) = $node->psql('postgres', $query,
		connstr => $node->connstr('postgres') . ' user=exporter',
		extra_params => [ '-P', 'tuples_only=off', '-P', 'footer=off' ]);
	die "$query: $err" if $status != 0;
	my ($header, @rows) = split /\n/, $out;
	return ([ split /\|/, $header ], [ map { [ split /\|/, $_, -1 ] } @rows ]);
}

# series(NAME, LABEL, VALUE) adds a figure to those of a file; what is empty is none.
my %series;

sub series
{
	my ($name, $label, $value) = @_;

	return if $value eq '';
	fail("$name of $label is exported twice") if $series{"$name $label"}++;
}

# queries(TEXT) takes a file apart: each query with the text that follows it.
sub queries
{
	my ($text) = @_;
	my @found;

	while ($text =~ /^( *)query: >-\n((?:\1 +\S.*\n)+)((?:(?! *query: >-)(?!\S+:\n).*\n)*)/mg)
	{
		my ($query, $rest) = ($2, $3);
		my $before = substr($text, 0, $-[0]);
		$query =~ s/\s+/ /g;
		push @found, [ $before =~ /([a-z_]+):? *\n\z/, $query, $rest ];
	}
	return @found;
}

my $all = $node->safe_psql('postgres',
	"SELECT metric || ' ' || (SELECT value FROM jsonb_each_text(labels)) FROM lease.metric ORDER BY 1");

# postgres_exporter: name of the query and of the column make the metric.
my %kinds;
foreach my $found (queries(slurp_file("$files/postgres_exporter.yaml")))
{
	my ($namespace, $query, $rest) = @$found;
	my ($columns, $rows) = answer($query);
	my %usage = $rest =~ /^    - ([a-z_]+):\n +usage: ([A-Z]+)\n +description: \S/mg;

	is("@{[sort @$columns]}", "@{[sort keys %usage]}",
		"postgres_exporter: the columns of $namespace");
	is($usage{ $columns->[0] }, 'LABEL', 'of which the first is the label');
	foreach my $i (1 .. $#$columns)
	{
		$kinds{"${namespace}_$columns->[$i]"} = lc $usage{ $columns->[$i] };
		foreach my $row (@$rows)
		{
			isnt($row->[$i], '', "$columns->[$i] of $row->[0] is not null");
			series("${namespace}_$columns->[$i]", $row->[0], $row->[$i]);
		}
	}
}
is(join("\n", map { "$_|$kinds{$_}" } sort keys %kinds),
	$expected, 'postgres_exporter: all metrics of all kinds');
is(join("\n", sort keys %series), $all, 'and all figures');

# sql_exporter: metrics refer to columns of queries.
my $text = slurp_file("$files/sql_exporter.yml");
my %answers = map { $_->[0] => [ answer($_->[1]) ] } queries($text);
%kinds = ();
%series = ();
while ($text =~ /^  - metric_name: (\S+)\n    type: (\S+)\n    help: \S.*\n    key_labels: \[(\S+)\]\n    values: \[(\S+)\]\n    query_ref: (\S+)\n/mg)
{
	my ($name, $kind, $label, $value, $query) = ($1, $2, $3, $4, $5);
	my ($columns, $rows) = @{ $answers{$query} };
	my %at = map { $columns->[$_] => $_ } 0 .. $#$columns;

	ok(exists $at{$label} && exists $at{$value}, "sql_exporter: the columns of $name");
	$kinds{$name} = $kind;
	series($name, $_->[ $at{$label} ], $_->[ $at{$value} ]) foreach @$rows;
}
is(join("\n", map { "$_|$kinds{$_}" } sort keys %kinds),
	$expected, 'sql_exporter: all metrics of all kinds');
is(join("\n", sort keys %series), $all, 'and all figures');

$node->stop;
done_testing();
