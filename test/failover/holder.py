"""A client of the failover run: it competes for a lease and writes under it.

    holder.py hold|draft NAME LEASE

One connection, to whichever of the servers in PGHOST and PGPORT is the primary. When
that is lost it connects again, and at once writes under the epoch that it was last
told, whether that was committed or not: it does not know better, so the fence has to.
"hold" acquires, writes, renews and releases; now and then it takes longer over a
transaction than its grant lasts. "draft" acquires and rolls back, so that epochs are
told of which no row of the database knows.

SIGUSR1: stop (as by SIGSTOP) between the next write and its COMMIT. SIGTERM: end.

Each event is a line on standard output, for COPY: instant (one clock for all clients,
in seconds), holder, event, lease, epoch, number of the write, port of the server, detail.
"""

import os
import random
import signal
import sys
import time

import psycopg2

TTL = 1.0           # of the lease, as the run makes it
PAUSE = 0.005       # between two statements of a holder
DRAFT_PAUSE = 0.001


class Refused(Exception):
    """The server has refused something with an SQLSTATE of lease."""


class Holder:
    def __init__(self, name, lease):
        self.name = name
        self.lease = lease
        self.connection = None
        self.epoch = None       # the last that it was told and not refused
        self.writes = 0
        self.pause = False
        self.ended = False
        signal.signal(signal.SIGUSR1, self.on_pause)
        signal.signal(signal.SIGTERM, self.on_end)

    def on_pause(self, *_):
        self.pause = True

    def on_end(self, *_):
        self.ended = True

    def note(self, event, number="", detail=""):
        epoch = "" if self.epoch is None else self.epoch
        port = self.connection.info.port if self.connection else ""
        print(f"{time.monotonic():.6f},{self.name},{event},{self.lease},{epoch},"
              f"{number},{port},{detail}", flush=True)

    def statement(self, sql, *parameters):
        """Runs a statement, or COMMIT, and turns what lease refuses into Refused."""
        try:
            if sql == "COMMIT":
                self.connection.commit()
                return None
            with self.connection.cursor() as cursor:
                cursor.execute(sql, parameters)
                return cursor.fetchone() if cursor.description else None
        except psycopg2.Error as error:
            if not (error.pgcode or "").startswith("LS"):
                raise
            self.note("refused", detail=f"{sql.split('(')[0]} {error.pgcode}")
            self.connection.rollback()
            raise Refused from error

    def connect(self):
        while not self.ended:
            try:
                self.connection = psycopg2.connect("")
                self.note("connected")
                return
            except psycopg2.OperationalError:
                time.sleep(0.05)

    def acquire(self):
        """Begins a transaction that acquires, and tells whether it does.

        A grant commits synchronously all the same.
        """
        self.statement("SET LOCAL synchronous_commit = off")
        outcome, epoch = self.statement(
            "SELECT outcome, epoch FROM lease.acquire(%s, %s)", self.lease, self.name)
        if outcome != "granted":
            self.connection.rollback()
            return False
        self.epoch = epoch
        self.note("told")
        return True

    def write(self, stall=0):
        """One transaction under the epoch."""
        self.writes += 1
        self.statement("SELECT lease.guard(%s, %s)", self.lease, self.epoch)
        self.statement("INSERT INTO work VALUES (%s, %s, %s)",
                       self.name, self.epoch, self.writes)
        time.sleep(stall)
        if self.pause and not stall:
            self.pause = False
            self.note("stopped", self.writes)
            os.kill(os.getpid(), signal.SIGSTOP)
            self.note("resumed", self.writes)
        self.statement("COMMIT")
        self.note("wrote", self.writes)

    def lead(self):
        """Writes and renews for a while, and releases."""
        stall = random.random() < 0.1
        renewed = time.monotonic()
        for _ in range(random.randint(5, 30)):
            self.write()
            if self.ended:
                break
            time.sleep(PAUSE)
            if time.monotonic() > renewed + TTL / 3:
                outcome, = self.statement(
                    "SELECT outcome FROM lease.renew(%s, %s)", self.lease, self.epoch)
                self.statement("COMMIT")
                renewed = time.monotonic()
                if outcome != "renewed":
                    self.note("refused", detail=f"renew {outcome}")
                    raise Refused
        if stall:
            self.write(TTL * 1.3)
        self.statement("SELECT lease.release(%s, %s)", self.lease, self.epoch)
        self.statement("COMMIT")
        self.epoch = None

    def hold(self):
        if self.epoch is not None:
            self.write()
        while not self.ended:
            if self.acquire():
                self.statement("INSERT INTO grants VALUES (%s, %s, %s)",
                               self.lease, self.epoch, self.name)
                self.statement("COMMIT")
                self.note("granted")
                self.lead()
            time.sleep(PAUSE)

    def draft(self):
        while not self.ended:
            if self.acquire():
                self.connection.rollback()
            time.sleep(DRAFT_PAUSE)

    def run(self, what):
        while not self.ended:
            try:
                if self.connection is None:
                    self.connect()
                what()
            except Refused:
                self.epoch = None
            except (psycopg2.OperationalError, psycopg2.InterfaceError):
                self.note("lost")
                self.connection.close()
                self.connection = None


holder = Holder(*sys.argv[2:4])
holder.run({"hold": holder.hold, "draft": holder.draft}[sys.argv[1]])
