// The life of a lease through Go's database/sql and lib/pq.
//
// test/t/013_drivers.pl starts this, with PGHOST and the like in the environment, and
// compares what it prints with what every driver has to print.

package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"

	"github.com/lib/pq"
)

const (
	mode  = "on"
	lease = "job-on"
	table = "plan_on"
	guard = "SELECT lease.guard($1, $2)"
	write = "INSERT INTO " + table + " (epoch, what) VALUES ($1, $2)"
	count = "SELECT count(*) FROM " + table + " WHERE what = $1"
)

var background = context.Background()

// A statement with its parameters; prepared, if it has been.
type statement struct {
	text       string
	prepared   *sql.Stmt
	parameters []interface{}
}

// say prints the result of a check.
func say(name string, result interface{}) {
	fmt.Printf("%s: %s: %v\n", mode, name, result)
}

// must ends the program if something failed that must not.
func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// state returns the SQLSTATE of an error.
func state(err error) string {
	if failure, ok := err.(*pq.Error); ok {
		return string(failure.Code)
	}
	return err.Error()
}

// transaction runs statements in a transaction and tells how that ended.
func transaction(session *sql.Conn, statements ...statement) string {
	tx, err := session.BeginTx(background, nil)
	must(err)
	for _, s := range statements {
		if s.prepared != nil {
			_, err = tx.Stmt(s.prepared).Exec(s.parameters...)
		} else {
			_, err = tx.Exec(s.text, s.parameters...)
		}
		if err != nil {
			tx.Rollback()
			return state(err)
		}
	}
	if err = tx.Commit(); err != nil {
		return state(err)
	}
	return "committed"
}

// do makes a statement.
func do(text string, parameters ...interface{}) statement {
	return statement{text: text, parameters: parameters}
}

// one runs a statement of its own and returns the one value of its result.
func one(session *sql.Conn, text string, parameters ...interface{}) interface{} {
	var value interface{}

	must(session.QueryRowContext(background, text, parameters...).Scan(&value))
	if bytes, ok := value.([]byte); ok {
		return string(bytes)
	}
	return value
}

// acquire returns the outcome and, if there is one, the epoch.
func acquire(session *sql.Conn, holder string, reclaim bool) (string, sql.NullInt64) {
	var outcome string
	var epoch sql.NullInt64

	must(session.QueryRowContext(background,
		"SELECT outcome, epoch FROM lease.acquire($1, $2, reclaim => $3)",
		lease, holder, reclaim).Scan(&outcome, &epoch))
	return outcome, epoch
}

func main() {
	log.SetFlags(0)

	// Warnings arrive at the connector.
	var warnings []string
	connector, err := pq.NewConnector("sslmode=disable")
	must(err)
	db := sql.OpenDB(pq.ConnectorWithNoticeHandler(connector, func(notice *pq.Error) {
		warnings = append(warnings, string(notice.Code))
	}))
	session, err := db.Conn(background)
	must(err)
	other, err := db.Conn(background)
	must(err)

	if end := transaction(session,
		do("SELECT lease.create($1, ttl => $2)", lease, "10 min"),
		do("CREATE TABLE "+table+" (id serial, epoch bigint, what text)"),
		do("SELECT lease.protect($1, $2)", table, lease)); end != "committed" {
		log.Fatal(end)
	}

	// A lease, and who has it
	outcome, granted := acquire(session, "a/1", false)
	epoch := granted.Int64
	say("acquire", outcome)
	say("epoch is exact", fmt.Sprint(epoch) ==
		one(session, "SELECT epoch::text FROM lease.status WHERE name = $1", lease))
	outcome, none := acquire(session, "b/1", false)
	say("acquire by another", outcome+map[bool]string{false: ", no epoch", true: ", an epoch"}[none.Valid])

	// Writes with and without a guard
	say("write without a guard", transaction(session, do(write, epoch, "none")))
	say("guarded write", transaction(session, do(guard, lease, epoch), do(write, epoch, "guarded")))
	say("write after that", transaction(session, do(write, epoch, "after")))
	say("savepoint rolled back", transaction(session, do("SAVEPOINT s"), do(guard, lease, epoch),
		do("ROLLBACK TO s"), do(write, epoch, "savepoint")))
	_, err = session.ExecContext(background, fmt.Sprintf(
		"SELECT lease.guard('%s', %d); INSERT INTO %s (epoch, what) VALUES (%d, 'message')",
		lease, epoch, table, epoch))
	must(err)
	say("one message", "committed")
	warnings = nil
	_, err = session.ExecContext(background, guard, lease, epoch)
	must(err)
	if len(warnings) == 1 {
		say("guard alone", warnings[0])
	} else {
		say("guard alone", warnings)
	}

	// Statements prepared once and used until their plans are generic
	preparedGuard, err := session.PrepareContext(background, guard)
	must(err)
	preparedWrite, err := session.PrepareContext(background, write)
	must(err)
	ends := map[string]int{}
	for i := 0; i < 8; i++ {
		ends[transaction(session,
			statement{prepared: preparedGuard, parameters: []interface{}{lease, epoch}},
			statement{prepared: preparedWrite, parameters: []interface{}{epoch, "prepared"}})]++
		ends[transaction(session,
			statement{prepared: preparedWrite, parameters: []interface{}{epoch, "unguarded"}})]++
	}
	say("prepared statements", fmt.Sprintf("%d committed, %d refused", ends["committed"], ends["LS004"]))

	// Many rows, by COPY: the driver's way to send a batch
	batch := func(guarded bool) string {
		tx, err := session.BeginTx(background, nil)
		must(err)
		defer tx.Rollback()
		if guarded {
			_, err = tx.Exec(guard, lease, epoch)
			must(err)
		}
		copying, err := tx.Prepare(pq.CopyIn(table, "epoch", "what"))
		must(err)
		for i := 0; i < 10; i++ {
			if _, err = copying.Exec(epoch, "batch"); err != nil {
				return state(err)
			}
		}
		if _, err = copying.Exec(); err != nil {
			return state(err)
		}
		must(copying.Close())
		must(tx.Commit())
		return fmt.Sprint(one(session, count, "batch"), " written")
	}
	say("batch", batch(true))
	say("batch without a guard", batch(false))

	// A COMMIT after an error does not commit, whether the driver says so or not.
	tx, err := session.BeginTx(background, nil)
	must(err)
	_, err = tx.Exec(guard, lease, epoch)
	must(err)
	_, err = tx.Exec(write, epoch, "failed")
	must(err)
	if _, err = tx.Exec("SELECT 1 / 0"); err == nil {
		log.Fatal("no error")
	}
	tx.Commit()
	say("COMMIT after an error", fmt.Sprint(one(session, count, "failed"), " written"))

	// NULL, strings and arrays
	renewed := "SELECT outcome FROM lease.renew($1, $2, $3)"
	say("NULL holds", one(session, "SELECT lease.holds($1, $2)", lease, nil))
	say("NULL guard", transaction(session, do(guard, lease, nil)))
	say("renew", one(session, "SELECT outcome FROM lease.renew($1, $2)", lease, epoch))
	say("renew for a time", one(session, renewed, lease, epoch, "11 min"))
	say("renew for a time of NULL", one(session, renewed, lease, epoch, nil))
	say("renew many", one(session, "SELECT outcome FROM lease.renew_many($1, $2)",
		pq.Array([]string{lease}), pq.Array([]int64{epoch})))

	// Another connection takes over while a transaction is open.
	tx, err = session.BeginTx(background, nil)
	must(err)
	_, err = tx.Exec(guard, lease, epoch)
	must(err)
	_, err = tx.Exec(write, epoch, "lost")
	must(err)
	outcome, granted = acquire(other, "a/1", true)
	later := granted.Int64
	result := "committed"
	if err = tx.Commit(); err != nil {
		result = state(err)
	}
	say("reclaim", outcome)
	say("next epoch is greater", later > epoch)
	say("COMMIT under the old epoch", result)
	say("guard under the old epoch", transaction(session, do(guard, lease, epoch)))
	say("renew of the old epoch", one(session, "SELECT outcome FROM lease.renew($1, $2)", lease, epoch))
	say("write under the next epoch", transaction(session, do(guard, lease, later), do(write, later, "later")))

	say("release", one(session, "SELECT lease.release($1, $2)", lease, later))
	say("release again", one(session, "SELECT lease.release($1, $2)", lease, later))
	say("guard after the release", transaction(session, do(guard, lease, later)))
	say("rows", one(session, "SELECT string_agg(what || ' ' || n, ', ' ORDER BY what)"+
		" FROM (SELECT what, count(*) AS n FROM "+table+" GROUP BY what) AS w"))
	os.Exit(0)
}
