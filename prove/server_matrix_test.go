package prove_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cluster"
	"github.com/sqlimit/limiter/prove/internal/outcome"
	"github.com/sqlimit/limiter/prove/internal/tables"
)

func TestFaultMatrixServer(t *testing.T) {
	server := newServer(t, "max_connections=20")
	execute(t, server.DSN(), "CREATE ROLE application LOGIN", "CREATE ROLE "+secured+" LOGIN PASSWORD 'first'",
		"GRANT SELECT, INSERT, UPDATE ON "+tables.Names+" TO application, "+secured,
		"CREATE DATABASE "+apart)
	migrate(t, inDatabase(server, apart))
	server.AskPassword(secured)
	proof.Rounds(t, "faults of the server", campaign.Sizes{CI: 1, Nightly: 5, Release: 10}, func(t *testing.T, r *campaign.Round) {
		for _, f := range serverFaults {
			t.Run(f.name, func(t *testing.T) { f.look(t, r, server) })
		}
	})
}

// What a full disk does depends on what is on it.
func TestFaultMatrixServerOfAFullDisk(t *testing.T) {
	for _, c := range []struct {
		fault
		megabytes int
		server    func(t testing.TB, disk *cluster.Disk, settings ...string) *cluster.Cluster
		fill      func(t *testing.T, dsn string)
	}{
		{fault{name: "no room for a new key", class: outcome.NotApplied, state: noRoom, fresh: true, probes: 1000, answers: true}, 100, cluster.NewOn, fillTables},
		{fault{name: "no room for the log of changes", class: outcome.Unknown, also: []string{outcome.NotApplied}}, 32, cluster.NewWithLogOn, fillLog},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk := cluster.NewDisk(t, c.megabytes)
			server := c.server(t, disk, durable...)
			migrate(t, server.DSN())
			c.begin = func(t *testing.T, on *target) func() {
				disk.Fill()
				c.fill(t, on.server.DSN())
				return func() {
					disk.Free()
					on.server.Revive()
				}
			}
			proof.Rounds(t, c.name, campaign.Sizes{CI: 1, Nightly: 5, Release: 10}, func(t *testing.T, r *campaign.Round) { c.look(t, r, server) })
		})
	}
}

// serverFaults are the rows of the fault matrix that the server itself is the cause of.
var serverFaults = []fault{
	{name: "down at start", class: outcome.NotApplied, cold: true, begin: killed},
	{name: "down", class: outcome.Unknown, also: []string{outcome.NotApplied}, begin: killed},
	{name: "down in mid-statement", class: outcome.Unknown, also: []string{outcome.NotApplied}, held: true, begin: killed},
	{name: "starting up", class: outcome.NotApplied, state: "57P03", cold: true, begin: func(_ *testing.T, on *target) func() {
		on.server.Withhold()
		return on.server.Release
	}},
	{name: "shutting down", class: outcome.NotApplied, state: "57P03", cold: true, begin: shuttingDown},
	{name: "shut down in mid-statement", class: outcome.Unknown, state: "57P01", also: []string{outcome.NotApplied}, held: true, begin: func(_ *testing.T, on *target) func() {
		on.server.Stop()
		return on.server.Start
	}},
	{name: "too many connections", class: outcome.NotApplied, state: "53300", cold: true, begin: noConnectionLeft, dsn: asRole},
	{name: "the session is terminated", class: outcome.Unknown, state: "57P01", held: true, begin: signaled("pg_terminate_backend")},
	{name: "the statement is canceled", class: outcome.NotApplied, state: "57014", held: true, begin: signaled("pg_cancel_backend")},
	{name: "deadlock", class: outcome.Carried, held: true, begin: deadlocked},
	{name: "deadlock again and again", class: outcome.NotApplied, state: deadlock, answers: true, begin: changed(victim,
		"DROP TRIGGER victim ON limiter_token_buckets; DROP FUNCTION victim")},
	{name: "another session crashes", class: outcome.Unknown, also: []string{outcome.NotApplied}, held: true, probes: 4, begin: crashed},
	{name: "the session stands still", class: outcome.Unknown, also: []string{outcome.NotApplied}, probes: 2, begin: sessionStopped},
	{name: "the server stands still", class: outcome.Unknown, also: []string{outcome.NotApplied}, slow: true, begin: func(_ *testing.T, on *target) func() {
		return on.server.Freeze()
	}},
	{name: "commits hang", class: outcome.Unknown, also: []string{outcome.NotApplied}, begin: setting("synchronous_standby_names", "'nobody'")},
	{name: "read-only", class: outcome.NotApplied, state: "25006", begin: setting("default_transaction_read_only", "on")},
	{name: "tables missing", class: outcome.Misconfigured, state: "42P01", begin: changed(
		"ALTER TABLE limiter_token_buckets RENAME TO renamed", "ALTER TABLE renamed RENAME TO limiter_token_buckets")},
	{name: "a column missing, as in an older schema", class: outcome.Misconfigured, state: "42703", begin: changed(
		"ALTER TABLE limiter_token_buckets RENAME granted TO renamed", "ALTER TABLE limiter_token_buckets RENAME renamed TO granted")},
	{name: "a column more, as in a newer schema", class: outcome.Carried, begin: changed(
		"ALTER TABLE limiter_token_buckets ADD more bigint NOT NULL DEFAULT 1", "ALTER TABLE limiter_token_buckets DROP more")},
	{name: "no rights", class: outcome.Misconfigured, state: "42501", dsn: asRole, begin: changed(
		"REVOKE UPDATE ON limiter_token_buckets FROM application", "GRANT UPDATE ON limiter_token_buckets TO application")},
	{name: "no login", class: outcome.Misconfigured, state: "28000", cold: true, dsn: asRole, begin: changed(
		"ALTER ROLE application NOLOGIN", "ALTER ROLE application LOGIN")},
	{name: "the password changed", class: outcome.Misconfigured, state: "28P01", cold: true, dsn: loggedIn(secured + ":first"), begin: changed(
		"ALTER ROLE "+secured+" PASSWORD 'second'", "ALTER ROLE "+secured+" PASSWORD 'first'")},
	{name: "the database dropped", class: outcome.Misconfigured, state: "3D000", cold: true, database: apart, begin: dropped},
}

const (
	secured = "secured" // a role that is asked for its password
	apart   = "apart"   // another database that has the tables
)

// inDatabase is the DSN of the superuser on another database.
func inDatabase(server *cluster.Cluster, name string) string {
	return strings.Replace(server.DSN(), "/postgres?", "/"+name+"?", 1)
}

func dropped(t *testing.T, on *target) func() {
	execute(t, on.server.DSN(), "DROP DATABASE "+apart)
	return func() {
		execute(t, on.server.DSN(), "CREATE DATABASE "+apart)
		migrate(t, inDatabase(on.server, apart))
	}
}

// victim makes each take the victim of a deadlock. Real deadlocks would not hit every retry.
const victim = `CREATE FUNCTION victim() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	RAISE EXCEPTION 'a deadlock' USING ERRCODE = '` + deadlock + `';
END $$;
CREATE TRIGGER victim BEFORE INSERT OR UPDATE ON limiter_token_buckets FOR EACH ROW EXECUTE FUNCTION victim()`

// deadlocked makes the session that has locked the row wait for the take. The server finds the deadlock in
// the session with the shorter deadlock_timeout: that of the take.
func deadlocked(t *testing.T, on *target) func() {
	found := func() int { return strings.Count(on.server.Log(), "ERROR:  deadlock detected") }
	before := found()
	executeOn(t, on.holder, "SET deadlock_timeout = '1min'", "LOCK limiter_token_buckets IN SHARE MODE", "ROLLBACK")
	if n := found() - before; n > 1 { // none if the lock_timeout of the take ends its wait first
		t.Errorf("the server found %d deadlocks, want 1 at most", n)
	}
	return func() {}
}

// asRole is the DSN of a role that is no superuser.
func asRole(server *cluster.Cluster) string { return loggedIn("application")(server) }

// loggedIn returns the DSN of a role, which may have a password.
func loggedIn(role string) func(*cluster.Cluster) string {
	return func(server *cluster.Cluster) string { return strings.Replace(server.DSN(), "postgres@", role+"@", 1) }
}

func killed(_ *testing.T, on *target) func() {
	on.server.Kill()
	return on.server.Start
}

// shuttingDown has the server wait for its last session before it ends.
func shuttingDown(t *testing.T, on *target) func() {
	last := connection(t, on.server.DSN())
	on.server.Drain()
	return func() {
		_ = last.Close(context.Background())
		on.server.AwaitEnd()
		on.server.Start()
	}
}

// noConnectionLeft takes all that the server has for those who are no superusers.
func noConnectionLeft(t *testing.T, on *target) func() {
	var taken []*pgx.Conn
	for {
		conn, err := pgx.Connect(t.Context(), asRole(on.server))
		if err != nil {
			if sqlState(err) != "53300" {
				t.Fatal(err)
			}
			break
		}
		taken = append(taken, conn)
	}
	return func() {
		for _, conn := range taken {
			_ = conn.Close(context.Background())
		}
	}
}

// signaled ends a statement that is under way, or the session with it.
func signaled(function string) func(*testing.T, *target) func() {
	return func(t *testing.T, on *target) func() {
		if !query[bool](t, on.server.DSN(), "SELECT "+function+"($1)", on.pid) {
			t.Fatalf("%s(%d) does nothing", function, on.pid)
		}
		return func() {}
	}
}

// crashed kills a session that has nothing to do with ours.
func crashed(t *testing.T, on *target) func() {
	other := connection(t, on.server.DSN())
	t.Cleanup(func() { _ = other.Close(context.Background()) })
	must(t, syscall.Kill(int(other.PgConn().PID()), syscall.SIGKILL))
	return on.server.Await
}

func sessionStopped(t *testing.T, on *target) func() {
	pid := query[int](t, on.server.DSN(), aBackend)
	must(t, syscall.Kill(pid, syscall.SIGSTOP))
	return func() {
		must(t, syscall.Kill(pid, syscall.SIGCONT))
		// What it had been sent it carries out now.
		until(t, on.server.DSN(), fmt.Sprint("SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = ", pid))
	}
}

func setting(name, value string) func(*testing.T, *target) func() {
	return func(t *testing.T, on *target) func() {
		before := query[string](t, on.server.DSN(), "SHOW "+name)
		apply := func(sql string, changed bool) {
			execute(t, on.server.DSN(), sql, "SELECT pg_reload_conf()")
			for (query[string](t, on.server.DSN(), "SHOW "+name) != before) != changed {
				wait(t.Context(), interval)
			}
		}
		apply("ALTER SYSTEM SET "+name+" = "+value, true)
		return func() { apply("ALTER SYSTEM RESET "+name, false) }
	}
}

// changed changes the database, and changes it back.
func changed(begin, end string) func(*testing.T, *target) func() {
	return func(t *testing.T, on *target) func() {
		execute(t, on.server.DSN(), begin)
		return func() { execute(t, on.server.DSN(), end) }
	}
}

// After a step of its clock, the server ends waits for locks too early.
func TestClockStepWhileAllQueues(t *testing.T) {
	server, clock := newServerWithClock(t)
	l, err := limiter.New(openStore(t, server.DSN()), "name", limiter.TokenBucket{Capacity: 9, Refill: 1, Interval: year}, limiter.WithTimeout(waitLimit))
	must(t, err)
	var all limiter.AllResult
	take := func() {
		all, err = limiter.AllowAll(t.Context(), limiter.Claim{Limiter: l, Key: "k"}, limiter.Claim{Limiter: l, Key: "l"})
	}
	take()
	other := connection(t, server.DSN())
	executeOn(t, other, "BEGIN", "SELECT FROM limiter_token_buckets FOR UPDATE", `SELECT pg_advisory_xact_lock(hashtextextended(
		encode('k', 'hex'), hashtextextended('name', hashtextextended('"public".limiter_token_buckets', 0))))`)
	var call sync.WaitGroup
	call.Go(take)
	until(t, server.DSN(), "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
	clock.Set(clock.Ahead() + time.Hour)
	wait(t.Context(), 1200*time.Millisecond) // the server looks at its clock after a second
	must(t, other.Close(t.Context()))
	if call.Wait(); err != nil || !all.Allowed {
		t.Errorf("after the step: %+v, %v", all.Result, err)
	}
}
