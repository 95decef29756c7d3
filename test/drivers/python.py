"""The life of a lease through psycopg2 or psycopg (3), as the argument says.

test/t/013_drivers.pl starts this, with PGHOST and the like in the environment, and
compares what it prints with what every driver has to print.
"""

import importlib
import logging
import sys

driver = importlib.import_module(sys.argv[1])
pipelines = hasattr(driver, "Pipeline")     # psycopg 3

# It logs what it raises anyway.
logging.getLogger("psycopg").setLevel(logging.ERROR)


class Session:
    """A connection, with autocommit on or off."""

    def __init__(self, autocommit):
        self.warnings = []
        self.connection = driver.connect("")
        self.connection.autocommit = autocommit
        if pipelines:
            self.connection.add_notice_handler(
                lambda diagnostic: self.warnings.append(diagnostic.sqlstate))
            # binary results, each statement prepared at its first use
            self.connection.prepare_threshold = 0
            self.cursor = self.connection.cursor(binary=True)
        else:
            self.cursor = self.connection.cursor()

    def begin(self):
        """With autocommit off the driver begins at the first statement."""
        if self.connection.autocommit:
            self.cursor.execute("BEGIN")

    def end(self, how):
        if self.connection.autocommit:
            self.cursor.execute(how)
        elif how == "COMMIT":
            self.connection.commit()
        else:
            self.connection.rollback()

    def transaction(self, *statements):
        """Runs statements, each with its parameters, and tells how that ended."""
        try:
            self.begin()
            for sql, *parameters in statements:
                self.cursor.execute(sql, parameters or None)
            self.end("COMMIT")
            return "committed"
        except driver.Error as error:
            self.end("ROLLBACK")
            return error.diag.sqlstate

    def message(self, sql):
        """Sends several statements in one message."""
        if pipelines:
            self.connection.execute(sql, prepare=False)
        else:
            self.cursor.execute(sql)
        if not self.connection.autocommit:
            self.connection.commit()

    def row(self, sql, *parameters):
        """Returns the row of a statement that is a transaction of its own."""
        self.cursor.execute(sql, parameters or None)
        row = self.cursor.fetchone()
        if not self.connection.autocommit:
            self.connection.commit()
        return row

    def one(self, sql, *parameters):
        return self.row(sql, *parameters)[0]


def life(mode):
    def say(name, result):
        if isinstance(result, bool):
            result = str(result).lower()
        print(f"{mode}: {name}: {result}")

    lease = f"job-{mode}"
    table = f"plan_{mode}"
    guard = "SELECT lease.guard(%s, %s)"
    write = f"INSERT INTO {table} (epoch, what) VALUES (%s, %s)"
    count = f"SELECT count(*) FROM {table}"
    session = Session(mode == "on")

    session.transaction(
        ("SELECT lease.create(%s, ttl => %s)", lease, "10 min"),
        (f"CREATE TABLE {table} (id serial, epoch bigint, what text)",),
        ("SELECT lease.protect(%s, %s)", table, lease))

    # A lease, and who has it
    outcome, epoch = session.row(
        "SELECT outcome, epoch FROM lease.acquire(%s, %s)", lease, "a/1")
    say("acquire", outcome)
    say("epoch is exact", str(epoch) == session.one(
        "SELECT epoch::text FROM lease.status WHERE name = %s", lease))
    outcome, none = session.row(
        "SELECT outcome, epoch FROM lease.acquire(%s, %s)", lease, "b/1")
    say("acquire by another", f"{outcome}, {'no epoch' if none is None else none}")

    # Writes with and without a guard
    say("write without a guard", session.transaction((write, epoch, "none")))
    say("guarded write", session.transaction(
        (guard, lease, epoch), (write, epoch, "guarded")))
    say("write after that", session.transaction((write, epoch, "after")))
    say("savepoint rolled back", session.transaction(
        ("SAVEPOINT s",), (guard, lease, epoch), ("ROLLBACK TO s",),
        (write, epoch, "savepoint")))
    session.message(
        f"SELECT lease.guard('{lease}', {epoch});"
        f" INSERT INTO {table} (epoch, what) VALUES ({epoch}, 'message')")
    say("one message", "committed")
    session.warnings.clear()
    session.one(guard, lease, epoch)
    if not pipelines:
        session.warnings += [
            "01000" for notice in session.connection.notices
            if notice.startswith("WARNING:  guard of lease")]
    say("guard alone", " ".join(session.warnings) or "no warning")

    # Prepared statements, guarded and not, until their plans are generic
    if pipelines:
        prepared_guard, prepared_write = (guard,), (write,)
    else:
        session.transaction(
            ("PREPARE guard AS SELECT lease.guard($1, $2)",),
            (f"PREPARE write AS INSERT INTO {table} (epoch, what) VALUES ($1, $2)",))
        prepared_guard, prepared_write = (
            ("EXECUTE guard (%s, %s)",), ("EXECUTE write (%s, %s)",))
    ends = []
    for _ in range(8):
        ends.append(session.transaction(
            (*prepared_guard, lease, epoch), (*prepared_write, epoch, "prepared")))
        ends.append(session.transaction((*prepared_write, epoch, "unguarded")))
    say("prepared statements",
        f"{ends.count('committed')} committed, {ends.count('LS004')} refused")

    # Many rows
    session.begin()
    session.cursor.execute(guard, (lease, epoch))
    session.cursor.executemany(write, [(epoch, "batch")] * 10)
    session.end("COMMIT")
    try:
        session.begin()
        session.cursor.executemany(write, [(epoch, "no batch")] * 10)
        session.end("COMMIT")
        result = "committed"
    except driver.Error as error:
        session.end("ROLLBACK")
        result = error.diag.sqlstate
    say("batch", str(session.one(count + " WHERE what = 'batch'")) + " written")
    say("batch without a guard", result)

    # A COMMIT after an error does not commit, whether the driver says so or not.
    session.begin()
    session.cursor.execute(guard, (lease, epoch))
    session.cursor.execute(write, (epoch, "failed"))
    try:
        session.cursor.execute("SELECT 1 / 0")
    except driver.Error:
        pass
    session.end("COMMIT")
    say("COMMIT after an error",
        f"{session.one(count + ' WHERE what = %s', 'failed')} written")

    if pipelines:
        def pipeline(*statements, block=True):
            try:
                with session.connection.pipeline():
                    if block:
                        session.begin()
                    for sql, *parameters in statements:
                        session.cursor.execute(sql, parameters)
                    if block:
                        session.end("COMMIT")
                if not session.connection.autocommit:
                    session.connection.commit()
                return "committed"
            except driver.Error as error:
                session.end("ROLLBACK")
                return error.diag.sqlstate

        say("pipeline", pipeline((guard, lease, epoch), (write, epoch, "pipeline")))
        # Without BEGIN, what is sent between two syncs is a transaction, too.
        say("pipeline without BEGIN", pipeline(
            (guard, lease, epoch), (write, epoch, "pipeline"), block=False))
        say("pipeline without a guard", pipeline((write, epoch, "none")))
        say("pipeline under another epoch", pipeline(
            (guard, lease, epoch + 1), (write, epoch, "none")))

    # NULL, strings and arrays
    say("NULL holds", session.one("SELECT lease.holds(%s, %s)", lease, None))
    say("NULL guard", session.transaction((guard, lease, None)))
    say("renew", session.one(
        "SELECT outcome FROM lease.renew(%s, %s)", lease, epoch))
    say("renew for a time", session.one(
        "SELECT outcome FROM lease.renew(%s, %s, %s)", lease, epoch, "11 min"))
    say("renew for a time of NULL", session.one(
        "SELECT outcome FROM lease.renew(%s, %s, %s)", lease, epoch, None))
    say("renew many", session.one(
        "SELECT outcome FROM lease.renew_many(%s, %s)", [lease], [epoch]))

    # Another connection takes over while a transaction is open.
    other = Session(True)
    session.begin()
    session.cursor.execute(guard, (lease, epoch))
    session.cursor.execute(write, (epoch, "lost"))
    outcome, later = other.row(
        "SELECT outcome, epoch FROM lease.acquire(%s, %s, reclaim => %s)",
        lease, "a/1", True)
    try:
        session.end("COMMIT")
        result = "committed"
    except driver.Error as error:
        result = error.diag.sqlstate
        session.end("ROLLBACK")
    say("reclaim", outcome)
    say("next epoch is greater", later > epoch)
    say("COMMIT under the old epoch", result)
    say("guard under the old epoch", session.transaction((guard, lease, epoch)))
    say("renew of the old epoch", session.one(
        "SELECT outcome FROM lease.renew(%s, %s)", lease, epoch))
    say("write under the next epoch", session.transaction(
        (guard, lease, later), (write, later, "later")))

    say("release", session.one("SELECT lease.release(%s, %s)", lease, later))
    say("release again", session.one("SELECT lease.release(%s, %s)", lease, later))
    say("guard after the release", session.transaction((guard, lease, later)))
    say("rows", session.one(
        "SELECT string_agg(what || ' ' || n, ', ' ORDER BY what)"
        f" FROM (SELECT what, count(*) AS n FROM {table} GROUP BY what) AS w"))


for mode in ("off", "on"):
    life(mode)
