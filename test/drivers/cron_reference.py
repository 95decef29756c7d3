#!/usr/bin/env python3
#
# test/drivers/cron_reference.py
#
# Computes occurrences of cron expressions without lease, for test 042: local times with
# croniter, the instants that they are with zoneinfo.
#
# Reads lines "NUMBER <tab> EXPRESSION <tab> ZONE <tab> AFTER", the latter in seconds
# since 1970, and prints "NUMBER <tab> INSTANTS <tab> OWN": the next COUNT instants; and
# what croniter makes of the zone by itself up to the next change of the clocks there,
# at most as many.  With --version it prints that of croniter.

import sys
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from zoneinfo import ZoneInfo

from croniter import CroniterBadDateError, croniter

COUNT = 20

# A combination of days may be 40 years away.
YEARS = 60

# No change of the clocks in the zones of the test is longer; it may move an occurrence by
# so much against its neighbours.
LONGEST_CHANGE = timedelta(hours=1)

WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


def values(field, n):
    """What the nth field of an expression may be, sorted, or ["*"] if it is anything."""
    fields = ["*"] * 5
    fields[n] = field
    return croniter.expand(" ".join(fields))[0][n]


def day_fields(day):
    """Fields of the day of the month that are together what one is.

    From a day that February has not, croniter goes on too far, past the first of March,
    and past an L that comes after it in a list.
    """
    days = values(day, 2)
    late = [str(d) for d in days if d in (30, 31, "l")]
    early = [str(d) for d in days if d not in (30, 31, "l")]
    return late + ([",".join(early)] if early else [])


def weekday_fields(weekday):
    """Fields of the day of the week that are together what one is, as croniter writes
    them: 5L and friL are L5, and stand beside no other day."""
    last = []
    others = []
    for item in weekday.split(","):
        if item[-1] in "lL":
            name = item[:-1].lower()
            last.append(f"L{WEEKDAYS.index(name) if name in WEEKDAYS else name}")
        else:
            others.append(item)
    return last + ([",".join(others)] if others else [])


def parts(expression):
    """The expressions whose union it is, and of each, whether either day will do.

    croniter differs from cron(8), which lease follows, in which of the days counts as
    restricted: it asks whether the field leaves a value out, cron(8) whether there is
    no "*" in it.  And of a last weekday and a day of the month it wants both.
    """
    minute, hour, day, month, weekday = expression.split()
    either = "*" not in day and "*" not in weekday
    for days in day_fields(day):
        for weekdays in weekday_fields(weekday):
            full = "*" in (days, *values(weekdays, 4)[:1])
            if either and (full or "L" in weekdays):
                yield f"{minute} {hour} {days} {month} *", True
                yield f"{minute} {hour} * {month} {weekdays}", True
            else:
                yield f"{minute} {hour} {days} {month} {weekdays}", either


def iterate(expression, either, start):
    return croniter(
        expression,
        start,
        ret_type=datetime,
        day_or=either,
        max_years_between_matches=YEARS,
    )


def advance(iterator, heads):
    """Puts the next time of an iterator, if there ever is one, among the heads."""
    try:
        heads[iterator] = next(iterator)
    except CroniterBadDateError:
        heads.pop(iterator, None)


def union(expression, start):
    """The times of an expression after one, in order, without end."""
    heads = {}
    for part, either in parts(expression):
        advance(iterate(part, either, start), heads)
    while True:
        earliest = min(heads.values())
        yield earliest
        for iterator in [i for i, head in heads.items() if head == earliest]:
            advance(iterator, heads)


def instants_of(local, zone, twice):
    """What instants a local time is.

    PEP 495 takes one that the clocks leave out as if they had not changed, as lease does,
    and fold tells apart those that come twice.
    """
    aware = local.replace(tzinfo=zone)
    first = aware.astimezone(timezone.utc)
    found = {first}
    if twice:
        second = aware.replace(fold=1).astimezone(timezone.utc)
        # Of a time that is left out, fold is no second one.
        if second > first:
            found.add(second)
    return found


def next_instants(expression, zone, after):
    twice = values(expression.split()[1], 1) == ["*"]
    start = after.astimezone(zone).replace(tzinfo=None) - LONGEST_CHANGE
    found = set()
    for local in union(expression, start.replace(second=0, microsecond=0)):
        found |= {i for i in instants_of(local, zone, twice) if i > after}
        if len(found) >= COUNT:
            last = sorted(found)[COUNT - 1].astimezone(zone).replace(tzinfo=None)
            if local > last + LONGEST_CHANGE:
                break
    return sorted(found)[:COUNT]


@lru_cache(maxsize=None)
def next_change(zone, after):
    """A time before the next change of the clocks, by less than an hour."""
    offset = after.astimezone(zone).utcoffset()
    hour = timedelta(hours=1)
    for step in range(24 * 400):
        if (after + (step + 1) * hour).astimezone(zone).utcoffset() != offset:
            return after + step * hour
    return after + timedelta(days=399)


def own_instants(expression, zone, after):
    """What croniter makes of the zone.

    Not past the next change: of a time that the clocks leave out it makes two, or one at
    another time on the day after, and of one that comes twice now the first, now both.
    """
    until = next_change(zone, after)
    found = []
    for aware in union(expression, after.astimezone(zone)):
        instant = aware.astimezone(timezone.utc)
        if instant > until or len(found) == COUNT:
            break
        found.append(instant)
    return found


def main():
    for line in sys.stdin:
        number, expression, zone_name, after = line.rstrip("\n").split("\t")
        zone = ZoneInfo(zone_name)
        start = datetime.fromtimestamp(int(after), timezone.utc)
        print(
            number,
            *(
                " ".join(str(int(i.timestamp())) for i in instants)
                for instants in (
                    next_instants(expression, zone, start),
                    own_instants(expression, zone, start),
                )
            ),
            sep="\t",
        )


if __name__ == "__main__":
    if sys.argv[1:] == ["--version"]:
        from importlib.metadata import version

        print(version("croniter"))
    else:
        main()
