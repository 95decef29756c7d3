// The life of a lease through JDBC; the arguments are parameters of the URL.
//
// test/t/013_drivers.pl starts this, with PGHOST and the like in the environment, and
// compares what it prints with what every driver has to print.

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.SQLWarning;
import java.sql.Statement;
import java.sql.Types;
import java.util.Map;

public class Jdbc {
	/** A value of a type that the driver has no method for: it goes without a type. */
	record Untyped(String value) {}

	static String url;

	final String mode;
	final String lease;
	final String table;
	final String guard = "SELECT lease.guard(?, ?)";
	final String write;
	final Connection connection;
	final PreparedStatement preparedGuard;
	final PreparedStatement preparedWrite;

	/** Connects, with autocommit on or off, and makes a lease and its table. */
	Jdbc(String mode) throws SQLException {
		this.mode = mode;
		lease = "job-" + mode;
		table = "plan_" + mode;
		write = "INSERT INTO " + table + " (epoch, what) VALUES (?, ?)";
		connection = DriverManager.getConnection(url);
		connection.setAutoCommit(mode.equals("on"));

		begin();
		run("SELECT lease.create(?, ttl => ?)", lease, new Untyped("10 min"));
		run("CREATE TABLE " + table + " (id serial, epoch bigint, what text)");
		run("SELECT lease.protect(?, ?)", table, lease);
		end("COMMIT");

		preparedGuard = connection.prepareStatement(guard);
		preparedWrite = connection.prepareStatement(write);
	}

	void say(String name, Object result) {
		System.out.println(mode + ": " + name + ": " + result);
	}

	/** With autocommit off the driver begins at the first statement. */
	void begin() throws SQLException {
		if (connection.getAutoCommit())
			run("BEGIN");
	}

	void end(String how) throws SQLException {
		if (connection.getAutoCommit())
			run(how);
		else if (how.equals("COMMIT"))
			connection.commit();
		else
			connection.rollback();
	}

	static void bind(PreparedStatement statement, Object... parameters)
			throws SQLException {
		for (int i = 0; i < parameters.length; i++) {
			Object parameter = parameters[i];

			if (parameter == null)
				statement.setNull(i + 1, Types.OTHER);
			else if (parameter instanceof Untyped untyped)
				statement.setObject(i + 1, untyped.value(), Types.OTHER);
			else if (parameter instanceof Long number)
				statement.setLong(i + 1, number);
			else if (parameter instanceof Boolean flag)
				statement.setBoolean(i + 1, flag);
			else if (parameter instanceof Object[] array)
				statement.setArray(i + 1, statement.getConnection().createArrayOf(
					array instanceof Long[] ? "bigint" : "text", array));
			else
				statement.setString(i + 1, (String) parameter);
		}
	}

	void run(String sql, Object... parameters) throws SQLException {
		try (PreparedStatement statement = connection.prepareStatement(sql)) {
			bind(statement, parameters);
			statement.execute();
		}
	}

	interface Work {
		void run() throws SQLException;
	}

	/** Runs a transaction and tells how it ended. */
	String transaction(Work work) throws SQLException {
		try {
			begin();
			work.run();
			end("COMMIT");
			return "committed";
		} catch (SQLException error) {
			end("ROLLBACK");
			return error.getSQLState();
		}
	}

	String guarded(long epoch, Work work) throws SQLException {
		return transaction(() -> {
			run(guard, lease, epoch);
			work.run();
		});
	}

	/** Hands two statements to the driver at once. */
	String message(long epoch) throws SQLException {
		String end = "committed";

		try {
			run(guard + "; " + write, lease, epoch, epoch, "message");
		} catch (SQLException error) {
			end = error.getSQLState();
		}
		if (!connection.getAutoCommit())
			connection.commit();
		return end;
	}

	/** Returns the row of a statement that is a transaction of its own. */
	static Object[] row(Connection connection, String sql, Object... parameters)
			throws SQLException {
		Object[] row;

		try (PreparedStatement statement = connection.prepareStatement(sql)) {
			bind(statement, parameters);
			try (ResultSet result = statement.executeQuery()) {
				result.next();
				row = new Object[result.getMetaData().getColumnCount()];
				for (int i = 0; i < row.length; i++)
					row[i] = result.getObject(i + 1);
			}
		}
		if (!connection.getAutoCommit())
			connection.commit();
		return row;
	}

	Object one(String sql, Object... parameters) throws SQLException {
		return row(connection, sql, parameters)[0];
	}

	long count(String what) throws SQLException {
		return (Long) one("SELECT count(*) FROM " + table + " WHERE what = ?", what);
	}

	void batch(long epoch, String what) throws SQLException {
		for (int i = 0; i < 10; i++) {
			bind(preparedWrite, epoch, what);
			preparedWrite.addBatch();
		}
		preparedWrite.executeBatch();
	}

	void life() throws SQLException {
		// A lease, and who has it: read by a statement that is executed again, when
		// the driver knows the types and asks for results in binary.
		Object[] got = row(connection,
			"SELECT outcome, epoch FROM lease.acquire(?, ?)", lease, "a/1");
		long epoch = (Long) got[1];
		boolean exact = true;
		String text = (String) one(
			"SELECT epoch::text FROM lease.status WHERE name = ?", lease);
		for (int i = 0; i < 3; i++)
			exact &= text.equals(
				one("SELECT epoch FROM lease.status WHERE name = ?", lease).toString());
		say("acquire", got[0]);
		say("epoch is exact", exact && text.equals(Long.toString(epoch)));
		got = row(connection,
			"SELECT outcome, epoch FROM lease.acquire(?, ?)", lease, "b/1");
		say("acquire by another", got[0] + ", " + (got[1] == null ? "no epoch" : got[1]));

		// Writes with and without a guard
		say("write without a guard", transaction(() -> run(write, epoch, "none")));
		say("guarded write", guarded(epoch, () -> run(write, epoch, "guarded")));
		say("write after that", transaction(() -> run(write, epoch, "after")));
		say("savepoint rolled back", transaction(() -> {
			run("SAVEPOINT s");
			run(guard, lease, epoch);
			run("ROLLBACK TO s");
			run(write, epoch, "savepoint");
		}));
		say("one message", message(epoch));
		try (PreparedStatement statement = connection.prepareStatement(guard)) {
			bind(statement, lease, epoch);
			statement.execute();
			SQLWarning warning = statement.getWarnings();
			say("guard alone", warning == null ? "no warning" : warning.getSQLState());
		}
		if (!connection.getAutoCommit())
			connection.commit();

		// Prepared statements, guarded and not, until their plans are generic
		int committed = 0;
		int refused = 0;
		bind(preparedGuard, lease, epoch);
		for (int i = 0; i < 8; i++) {
			bind(preparedWrite, epoch, "prepared");
			if (transaction(() -> {
				preparedGuard.execute();
				preparedWrite.execute();
			}).equals("committed"))
				committed++;
			bind(preparedWrite, epoch, "unguarded");
			if (transaction(preparedWrite::execute).equals("LS004"))
				refused++;
		}
		say("prepared statements", committed + " committed, " + refused + " refused");

		// Many rows
		guarded(epoch, () -> batch(epoch, "batch"));
		String unguarded = transaction(() -> batch(epoch, "no batch"));
		say("batch", count("batch") + " written");
		say("batch without a guard", unguarded);

		// A COMMIT after an error does not commit, whether the driver says so or not.
		begin();
		run(guard, lease, epoch);
		run(write, epoch, "failed");
		try {
			run("SELECT 1 / 0");
		} catch (SQLException error) {
			// as expected
		}
		try {
			end("COMMIT");
		} catch (SQLException error) {
			end("ROLLBACK");
		}
		say("COMMIT after an error", count("failed") + " written");

		// NULL, strings and arrays
		say("NULL holds", one("SELECT lease.holds(?, ?)", lease, null));
		say("NULL guard", transaction(() -> run(guard, lease, null)));
		say("renew", one("SELECT outcome FROM lease.renew(?, ?)", lease, epoch));
		say("renew for a time", one("SELECT outcome FROM lease.renew(?, ?, ?)",
			lease, epoch, new Untyped("11 min")));
		say("renew for a time of NULL", one("SELECT outcome FROM lease.renew(?, ?, ?)",
			lease, epoch, null));
		say("renew many", one("SELECT outcome FROM lease.renew_many(?, ?)",
			new String[] {lease}, new Long[] {epoch}));

		// Another connection takes over while a transaction is open.
		long later;
		String end;
		try (Connection other = DriverManager.getConnection(url)) {
			begin();
			run(guard, lease, epoch);
			run(write, epoch, "lost");
			got = row(other,
				"SELECT outcome, epoch FROM lease.acquire(?, ?, reclaim => ?)",
				lease, "a/1", true);
			later = (Long) got[1];
			try {
				end("COMMIT");
				end = "committed";
			} catch (SQLException error) {
				end("ROLLBACK");
				end = error.getSQLState();
			}
		}
		say("reclaim", got[0]);
		say("next epoch is greater", later > epoch);
		say("COMMIT under the old epoch", end);
		say("guard under the old epoch", guarded(epoch, () -> {}));
		say("renew of the old epoch",
			one("SELECT outcome FROM lease.renew(?, ?)", lease, epoch));
		say("write under the next epoch",
			guarded(later, () -> run(write, later, "later")));

		say("release", one("SELECT lease.release(?, ?)", lease, later));
		say("release again", one("SELECT lease.release(?, ?)", lease, later));
		say("guard after the release", guarded(later, () -> {}));
		say("rows", one("SELECT string_agg(what || ' ' || n, ', ' ORDER BY what)"
			+ " FROM (SELECT what, count(*) AS n FROM " + table
			+ " GROUP BY what) AS w"));
		connection.close();
	}

	public static void main(String[] arguments) throws SQLException {
		Map<String, String> environment = System.getenv();

		url = "jdbc:postgresql://" + environment.get("PGHOST") + ":"
			+ environment.get("PGPORT") + "/" + environment.get("PGDATABASE")
			+ "?user=" + environment.get("PGUSER");
		for (String argument : arguments)
			url += "&" + argument;
		for (String mode : new String[] {"off", "on"})
			new Jdbc(mode).life();
	}
}
