#!/usr/bin/python3
"""A scheduler in Python, with psycopg2.

    scheduler.py NAME

It waits in line for the lease "maintenance", does what is due while it leads, and
waits in line again when it has lost the lease or its connection. "sweep" has all its
effects in the database, "report" has some outside. SIGTERM: finish what is being done,
release, end.

The connection is libpq's environment's. ARCHIVE is how to connect to the archive, which
compares epochs; REPORTS is a plain file, which compares nothing. What happens is
printed, a line each.
"""

import json
import os
import select
import signal
import sys
import time
from contextlib import contextmanager
from datetime import timedelta

import psycopg2
from psycopg2.extensions import POLL_OK, POLL_READ, set_wait_callback

LEASE = "maintenance"
WAIT = 2        # seconds in line, before it looks whether it is to end


def now():
    """Seconds on a clock that nobody sets, and that runs while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lost(Exception):
    """It leads no longer, or cannot know whether it does."""


class Scheduler:
    def __init__(self, name):
        self.name = name
        # An incarnation of a process, so that a restarted one is another.
        self.holder = f"{name}/{os.getpid()}/{int(time.time())}"
        self.connection = None
        self.epoch = None
        self.patience = 0       # no answer of a server is awaited beyond this instant
        self.deadline = 0       # nor is anything begun beyond this one
        self.renewal = 0
        self.ended = False
        signal.signal(signal.SIGTERM, self.on_end)
        set_wait_callback(self.wait)

    def on_end(self, *_):
        self.ended = True

    def say(self, message):
        sys.stdout.write(f"{self.name} {message}\n")    # in one piece
        sys.stdout.flush()

    def wait(self, connection):
        """Waits for a server in place of the driver, which would wait for ever."""
        while (state := connection.poll()) != POLL_OK:
            left = self.patience - now()
            if left <= 0:
                raise Lost("has no answer in time")
            fd = connection.fileno()
            if state == POLL_READ:
                select.select([fd], [], [], left)
            else:
                select.select([], [fd], [], left)

    def row(self, sql, *parameters):
        with self.connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return cursor.fetchone() if cursor.description else None

    @contextmanager
    def transaction(self):
        """COMMIT at its end. An exception that leaves it costs the connection: see run."""
        self.row("BEGIN")
        yield
        self.row("COMMIT")

    # Leading

    def connect(self):
        self.patience = now() + WAIT
        self.connection = psycopg2.connect("")
        self.connection.autocommit = True

    def compete(self):
        """Returns when it leads, with an epoch, or is to end."""
        # Who was cut off may have been granted the lease and not told, and would wait
        # in line for himself. Under the new epoch nothing can happen any more that was
        # sent under the old one.
        self.epoch, = self.row(
            "SELECT epoch FROM lease.acquire(%s, %s, reclaim => true)", LEASE, self.holder)
        since = now()
        while self.epoch is None and not self.ended:
            self.patience = now() + 2 * WAIT
            _, _, _, self.epoch, *_ = self.row(
                "CALL lease.await(%s, %s, timeout => %s, waited => %s)",
                LEASE, self.holder, timedelta(seconds=WAIT),
                timedelta(milliseconds=int(1000 * (now() - since))))
        if self.epoch is not None:
            self.patience = now() + WAIT
            self.renew()
            self.say(f"leads under epoch {self.epoch}")

    def renew(self):
        """Renews the grant. From when the request was sent, not from when it was
        answered, it can be relied on for as long as the answer says."""
        sent = now()
        outcome, remaining = self.row(
            "SELECT outcome, remaining FROM lease.renew(%s, %s)", LEASE, self.epoch)
        if outcome != "renewed":
            raise Lost(f"cannot renew epoch {self.epoch}: {outcome}")
        self.deadline = self.patience = sent + remaining.total_seconds()
        self.renewal = sent + remaining.total_seconds() / 3

    def renew_in_time(self):
        """Renews when a third of the time has passed."""
        if now() >= self.renewal:
            self.renew()

    def must_lead(self):
        """To be called before whatever no fence protects."""
        if now() >= self.deadline:
            raise Lost(f"has let its time under epoch {self.epoch} pass")

    def lead(self):
        tasks = {"sweep": self.sweep, "report": self.report}
        while not self.ended:
            with self.connection.cursor() as cursor:
                cursor.execute("SELECT task, due_at FROM lease.due() WHERE ready AND lease = %s", [LEASE])
                due = cursor.fetchall()
            if not due:
                time.sleep(0.1)
                self.renew_in_time()
            for task, due_at in due:
                if self.ended:
                    break
                self.renew_in_time()
                tasks[task](due_at)
        self.row("SELECT lease.release(%s, %s)", LEASE, self.epoch)
        self.say(f"releases epoch {self.epoch}")

    # Working

    def sweep(self, due_at):
        """Begins, works and finishes in one transaction: all of that happens once."""
        with self.transaction():
            outcome, attempt = self.row(
                "SELECT outcome, attempt FROM lease.begin_occurrence('sweep', %s, %s)",
                due_at, self.epoch)
            if outcome == "started":
                # Work that is wrong is to count as an attempt that failed, and not to be
                # begun at once again.
                verdict, result = "done", None
                self.row("SAVEPOINT work")
                try:
                    time.sleep(0.1)     # sweeps
                    self.row("INSERT INTO ledger VALUES ('sweep', %s, %s, %s)",
                             due_at, self.epoch, self.name)
                except (psycopg2.DataError, psycopg2.IntegrityError) as error:
                    self.row("ROLLBACK TO work")
                    verdict, result = "failed", json.dumps(str(error))
                self.row("SELECT lease.finish_occurrence('sweep', %s, %s, %s, %s, %s)",
                         due_at, attempt, self.epoch, verdict, result)

    def report(self, due_at):
        """Acts outside of the database, too."""
        # First for the record: whoever comes after this one has to know what may have
        # happened outside, and that somebody said it can be borne.
        with self.transaction():
            outcome, attempt = self.row(
                "SELECT outcome, attempt FROM lease.begin_occurrence('report', %s, %s)",
                due_at, self.epoch)
            if outcome == "started":
                token, key = self.row(
                    "SELECT token, key FROM lease.begin_action('print', %s, 'report', %s,"
                    " acknowledge => 'a report that is printed twice is thrown away')",
                    self.epoch, due_at)
                self.row("SELECT lease.begin_action('archive', %s, 'report', %s)",
                         self.epoch, due_at)
        if outcome != "started":
            return

        # This check can come as close to the effect as one likes: a process may be
        # stopped in between.
        self.must_lead()
        time.sleep(0.3)         # what it takes to get there
        with open(os.environ["REPORTS"], "a", encoding="utf-8") as reports:
            reports.write(f"{key} {token} {self.name}\n")

        # This provider compares the token itself.
        time.sleep(0.1)
        self.patience = now() + WAIT
        archive = psycopg2.connect(os.environ["ARCHIVE"])
        try:
            with archive, archive.cursor() as cursor:
                cursor.execute("SELECT put(%s, %s, %s)", (key, token, self.name))
        finally:
            archive.close()
        self.patience = self.deadline

        # In the database the effect and the verdict are one.
        with self.transaction():
            self.row("SELECT lease.guard(%s, %s)", LEASE, self.epoch)
            self.row("INSERT INTO ledger VALUES ('report', %s, %s, %s)",
                     due_at, self.epoch, self.name)
            standing, settled = self.row(
                "SELECT standing, settled FROM lease.finish_occurrence('report', %s, %s, %s)",
                due_at, attempt, self.epoch)
            if not settled:
                raise Lost(f"finds that its attempt is {standing}")

    def run(self):
        while not self.ended:
            try:
                if self.connection is None:
                    self.connect()
                self.compete()
                if self.epoch is not None:
                    self.lead()
            except Lost as lost:
                self.say(lost)
            except psycopg2.Error as error:
                message = str(error).partition("\n")[0] or "no reason is given"
                if error.pgcode:
                    self.say(f"is refused with SQLSTATE {error.pgcode}: {message}")
                elif self.connection is not None:
                    self.say(f"has lost its connection: {message}")
                time.sleep(0.1)
            else:
                continue
            # On a new connection nothing is left of what was under way.
            if self.connection is not None:
                self.connection.close()
                self.connection = None


Scheduler(sys.argv[1]).run()
