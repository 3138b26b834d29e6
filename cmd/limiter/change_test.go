//go:build unix

package main_test

import (
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/overrides"
)

func TestReset(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db target) {
		use(t, db.store, "login", bucket, "alice", 5)
		use(t, db.store, "login", window, "alice", 10) // of the policy before
		contains(t, succeeds(t, db.url, "reset", "login", "alice").stdout, `reset "alice" of limiter login`)
		use(t, db.store, "login", bucket, "alice", 5)
		use(t, db.store, "login", window, "alice", 10)

		contains(t, succeeds(t, db.url, "reset", "login", "alice", "-o", "json").stdout, `"key": "alice"`, `"reset": true`)
		contains(t, succeeds(t, db.url, "reset", "login", "bob", "-o", "json").stdout, `"key": "bob"`, `"reset": false`)
	})
}

func TestBlock(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db target) {
		// No key has a policy yet.
		got := decode[peeked](t, succeeds(t, db.url, "block", "new", "alice", "--for", "1h", "--limit", "3", "--window", "1h", "-o", "json"))
		if len(got.States) != 1 || got.States[0].Allowed || got.States[0].Policy.Limit != 3 {
			t.Errorf("%+v, want a window of 3 that refuses", got)
		}
		for name, p := range map[string]limiter.Policy{"login": bucket, "exports": window, "uploads": slidingWindow} {
			use(t, db.store, name, p, "alice", 1)
			contains(t, succeeds(t, db.url, "block", name, "alice", "--for", "2h").stdout, "refused    for another")
			s := decode[peeked](t, succeeds(t, db.url, "peek", name, "alice", "-o", "json")).States[0]
			if s.Allowed || s.RetryAfter < 2*3600-60 {
				t.Errorf("%+v, want a refusal for 2 h", s)
			}
			// An unused key takes the policy of another key.
			contains(t, succeeds(t, db.url, "block", name, "bob", "--for", "2h").stdout, "refused    for another")
			succeeds(t, db.url, "reset", name, "bob")
			use(t, db.store, name, p, "bob", 1)
		}
		fails(t, db.url, 2, []string{"policies of kind bucket"}, "block", "login", "alice", "--for", "1h", "--limit", "3", "--window", "1h")
		fails(t, db.url, 2, []string{`limiter "logim" has no row; known limiters: `, "--capacity"}, "block", "logim", "alice", "--for", "1h")

		// The key's own row is of a former policy, and a limiter of requests in flight has the same name.
		use(t, db.store, "moved", bucket, "alice", 1)
		use(t, db.store, "moved", slidingWindow, "bob", 1)
		c, err := limiter.NewConcurrency(db.store, "moved", limiter.InFlight{Limit: 3, Hold: time.Hour}, limiter.WithTimeout(10*time.Second))
		must(t, err)
		must(t, testenv.ErrorOf(c.TryAcquire(t.Context(), "alice")))
		succeeds(t, db.url, "block", "moved", "alice", "--for", "2h")
		for _, p := range []limiter.Policy{bucket, slidingWindow} {
			l, err := limiter.New(db.store, "moved", p, limiter.WithTimeout(10*time.Second))
			must(t, err)
			if res, err := l.Allow(t.Context(), "alice"); err != nil || res.Allowed {
				t.Errorf("%T: %+v, %v; want a refusal", p, res, err)
			}
		}
	})
}

type overridden struct {
	keyOf
	Policy    policyOf   `json:"policy"`
	Note      string     `json:"note"`
	ExpiresAt *time.Time `json:"expires_at"`
	Expired   bool       `json:"expired"`
}

func TestOverride(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db target) {
		contains(t, succeeds(t, db.url, "override", "set", "login", "alice", "--capacity", "50", "--interval", "1h", "--note", "by \x1b[31mBob", "--expires-in", "1h").stdout,
			`"alice"`, "bucket of 50", `by \x1b[31mBob`)
		succeeds(t, db.url, "override", "set", "exports", "alice", "--limit", "70", "--window", "24h", "--count-rejected")
		ends := time.Now().Add(time.Hour)
		succeeds(t, db.url, "override", "set", "login", "alice", "--capacity", "60", "--refill", "2", "--interval", "1h", "--note", "more", "--expires-in", "1h")

		chosen := overrides.New(db.store.(overrides.Source), "login")
		if p, err := chosen(t.Context(), "alice"); err != nil || p != (limiter.TokenBucket{Capacity: 60, Refill: 2, Interval: time.Hour}) {
			t.Errorf("policy %+v, %v", p, err)
		}
		list := decode[[]overridden](t, succeeds(t, db.url, "override", "list", "-o", "json"))
		if len(list) != 2 || list[0].Policy != (policyOf{Kind: "window", Limit: 70, Window: 86400, CountRejected: true}) || list[0].ExpiresAt != nil {
			t.Fatalf("%+v", list)
		}
		if o := list[1]; *o.Key != "alice" || o.Note != "more" || o.Expired || o.ExpiresAt.Before(ends) {
			t.Errorf("%+v", o)
		}
		if got := succeeds(t, db.url, "override", "list", "login").stdout; strings.Count(got, "\n") != 2 {
			t.Errorf("%s", got)
		}
		contains(t, succeeds(t, db.url, "override", "rm", "login", "alice", "-o", "json").stdout, `"login"`, `"alice"`, `"removed": true`)
		fails(t, db.url, 1, []string{"has no override"}, "override", "rm", "login", "alice")

		use(t, db.store, "login", bucket, "bob", 1)
		contains(t, succeeds(t, db.url, "override", "set", "logim", "alice", "--limit", "5").stdout, "limiter logim has no row; known limiters: login\n")
		fails(t, db.url, 2, []string{"kind bucket"}, "override", "set", "login", "bob", "--limit", "5", "--window", "1h")
		fails(t, db.url, 2, []string{"kind bucket"}, "override", "set", "login", "bob", "--limit", "5")

		use(t, db.store, "uploads", slidingWindow, "bob", 1)
		fails(t, db.url, 2, []string{"kind sliding"}, "override", "set", "uploads", "bob", "--limit", "5", "--window", "1h")
		fails(t, db.url, 2, []string{"--window is 15ms"}, "override", "set", "uploads", "bob", "--limit", "5", "--window", "15ms", "--sliding")
		contains(t, succeeds(t, db.url, "override", "set", "uploads", "carol", "--limit", "5").stdout, "limit of 5")
		contains(t, succeeds(t, db.url, "override", "set", "uploads", "bob", "--limit", "5", "--window", "1h", "--sliding").stdout, "5 in any 1h")
		chosen = overrides.New(db.store.(overrides.Source), "uploads")
		if p, err := chosen(t.Context(), "bob"); err != nil || p != (limiter.SlidingWindow{Limit: 5, Window: time.Hour}) {
			t.Errorf("policy %+v, %v", p, err)
		}

		// The limit alone is an override of any policy.
		contains(t, succeeds(t, db.url, "override", "set", "mails", "alice", "--limit", "2000", "--expires-in", "30d").stdout, "limit of 2000")
		contains(t, succeeds(t, db.url, "override", "list").stdout, "mails", "limit of 2000")
		limits, err := db.store.(overrides.Source).Overrides(t.Context(), "mails", 9)
		if err != nil || len(limits) != 1 || limits[0].Limit != 2000 || limits[0].Policy != nil || limits[0].Key != "alice" {
			t.Errorf("%+v, %v; want a limit of 2000 for alice", limits, err)
		}
		db.exec(t, "UPDATE limiter_overrides SET expires_at = 0 WHERE limiter = 'mails'")
		contains(t, succeeds(t, db.url, "override", "list", "mails", "-o", "json").stdout, `"expired": true`)
	})
}

func TestRoles(t *testing.T) {
	t.Parallel()
	db := migratedPostgres(t)
	use(t, db.store, "login", bucket, "alice", 1)
	changes := []string{
		"reset login alice", "block login alice --for 1h", "sweep",
		"override set login alice --capacity 7 --interval 1m", "override rm login alice",
	}
	reads := []string{"peek login alice", "top", "override list", "migrate status"}
	const overrides = `GRANT SELECT, INSERT, UPDATE, DELETE ON "public".limiter_overrides TO`
	for _, c := range []struct {
		name   string
		grants []string
		may    []string
		not    []string
	}{
		{"nothing", nil, nil, reads[:1]},
		{"to read", []string{"GRANT SELECT ON ALL TABLES IN SCHEMA public TO %s"}, reads, changes},
		{"what an application needs", applicationGrants, reads[:2], changes[2:]},
		{"to write overrides", []string{"GRANT USAGE ON SCHEMA public TO %s", overrides + " %s"}, append(reads[2:3:3], changes[3:]...), reads[:1]},
	} {
		t.Run("a role that may do "+c.name, func(t *testing.T) {
			role := newRole(t, db, c.grants...)
			for _, args := range c.not {
				want := []string{"permission denied", "grant"}
				if strings.HasPrefix(args, "override") {
					want[1] = "what limiter doctor prints"
				}
				fails(t, role, 4, want, strings.Fields(args)...)
			}
			for _, args := range c.may {
				succeeds(t, role, strings.Fields(args)...)
			}
		})
	}
	role := newRole(t, db, applicationGrants...)
	contains(t, succeeds(t, role, "doctor").stdout, "ok  overrides", "limiter override set and rm need "+overrides)
	writer := newRole(t, db, append([]string{overrides + " %s"}, applicationGrants...)...)
	contains(t, succeeds(t, writer, "doctor").stdout, "the role may read and write them")
}

func TestSchema(t *testing.T) {
	t.Parallel()
	url := emptyPostgres(t)
	execute(t, url, `CREATE SCHEMA "user"`)
	succeeds(t, url, "migrate", "up", "--schema", "user")
	succeeds(t, url, "block", "login", "alice", "--for", "1h", "--capacity", "5", "--interval", "1m", "--schema", "user")
	contains(t, succeeds(t, url, "peek", "login", "alice", "--schema", "user").stdout, "refused")
	succeeds(t, url, "sweep", "--schema", "user")
	fails(t, url, 4, []string{"--schema"}, "peek", "login", "alice")
	fails(t, url, 2, []string{"schema's name"}, "peek", "login", "alice", "--schema", `x"; DROP TABLE y`)
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db target) {
		use(t, db.store, "login", bucket, "alice", 1)
		use(t, db.store, "exports", window, "alice", 1)
		contains(t, succeeds(t, db.url, "__complete", "peek", "").stdout, "exports\nlogin\n")
		contains(t, succeeds(t, db.url, "__complete", "over").stdout, "override")
		contains(t, succeeds(t, db.url, "__complete", "").stdout, "override")
		contains(t, succeeds(t, db.url, "completion", "bash").stdout, "complete -o default")
		// A name that no limiter can have does not reach the shell.
		db.exec(t, "UPDATE limiter_token_buckets SET limiter = '\x1b[2J'")
		if got := succeeds(t, db.url, "__complete", "peek", "").stdout; strings.Contains(got, "2J") || !strings.Contains(got, "exports") {
			t.Errorf("%q", got)
		}
	})
}

type migrated struct {
	Version   int64      `json:"version"`
	Name      string     `json:"name"`
	AppliedAt *time.Time `json:"applied_at"`
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	cycle := func(t *testing.T, url, place string) {
		t.Helper()
		succeeds(t, url, "migrate", "up")
		for _, m := range decode[[]migrated](t, succeeds(t, url, "migrate", "status", "-o", "json")) {
			if m.AppliedAt == nil || time.Since(*m.AppliedAt).Abs() > time.Hour {
				t.Errorf("%+v, want that it was applied now", m)
			}
		}
		contains(t, succeeds(t, url, "migrate", "up").stdout, "00001_create_limiter_tables.sql")
		for _, key := range []string{"alice", "bob"} {
			succeeds(t, url, "block", "login", key, "--for", "1h", "--capacity", "5", "--interval", "1m")
		}
		succeeds(t, url, "override", "set", "login", "alice", "--capacity", "7", "--interval", "1m")
		fails(t, url, 2, []string{"about 2 rows of limiters and 1 override", "--yes", place}, "migrate", "down")
		contains(t, succeeds(t, url, "peek", "login", "alice").stdout, "refused")
		contains(t, succeeds(t, url, "migrate", "down", "--yes").stderr, "dropped", place)
		fails(t, url, 4, []string{strings.TrimPrefix(place, "the tables in "), "records no migration"}, "migrate", "down")
		fails(t, url, 4, []string{"records no migration"}, "migrate", "down", "--yes")
		fails(t, url, 4, []string{"migrate up"}, "peek", "login", "alice")
		if a := limiterCLI(t, url, "migrate", "status"); a.code != 5 || a.stderr != "" {
			t.Errorf("%+v, want exit code 5", a)
		}
	}
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		db := emptyPostgres(t)
		u, err := url.Parse(db)
		must(t, err)
		fails(t, strings.Replace(db, u.Path, "/none", 1), 4, []string{"create the database"}, "migrate", "down")
		cycle(t, db, `database "`+u.Path[1:]+`", schema "public" on host `+u.Hostname()+", port "+u.Port())
		succeeds(t, db, "migrate", "up")
		execute(t, db, "TRUNCATE limiter_goose_version")
		fails(t, db, 4, []string{"restore the rows of limiter_goose_version", "DROP TABLE"}, "migrate", "down", "--yes")
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "new.db")
		cycle(t, "sqlite:"+file, "the tables in file "+file)
	})
}

type swept struct {
	Deleted  int64    `json:"deleted"`
	Complete bool     `json:"complete"`
	Visited  *float64 `json:"visited"`
	Position string   `json:"position"`
	Seconds  float64  `json:"seconds"`
}

// expired returns a statement that adds n rows that a sweep deletes.
func expired(url string, n string) string {
	bytes := map[bool]string{true: "BLOB", false: "bytea"}[strings.HasPrefix(url, "sqlite:")]
	return `WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < ` + n + `)
		INSERT INTO limiter_token_buckets (limiter, key, full_at, at, step, capacity, granted)
		SELECT 'old', CAST('k' || n AS ` + bytes + `), 1, 1, 1000, 1, 0 FROM i`
}

func TestSweep(t *testing.T) {
	t.Parallel()
	start := strings.TrimSuffix(strings.Repeat("0,", len(migrations.Tables())), ",")
	onBoth(t, func(t *testing.T, db target) {
		use(t, db.store, "login", bucket, "alice", 1)
		db.exec(t, expired(db.url, "20200"))
		if got := decode[swept](t, succeeds(t, db.url, "sweep", "--limit", "200", "-o", "json")); got.Deleted != 200 || got.Complete {
			t.Errorf("%+v, want 200 rows deleted", got)
		}
		first := decode[swept](t, succeeds(t, db.url, "sweep", "--from", start, "--limit", "9000", "-o", "json"))
		if first.Deleted != 9000 || first.Complete || first.Position == "" || first.Position == start {
			t.Fatalf("%+v", first)
		}
		if pages := !strings.HasPrefix(db.url, "sqlite:"); pages != (first.Visited != nil) || pages && (*first.Visited <= 0 || *first.Visited >= 1) {
			t.Errorf("visited %v", first.Visited)
		}
		stopped := succeeds(t, db.url, "sweep", "--from", first.Position, "--for", "1ms")
		contains(t, stopped.stdout, "there may be more: to continue, pass --from ")
		testenv.Equal(t, strings.Contains(stopped.stdout, "it holds a key"), strings.HasPrefix(db.url, "sqlite:"), "warns of a key:", stopped.stdout)
		if got := decode[swept](t, succeeds(t, db.url, "sweep", "--from", first.Position, "-o", "json")); !got.Complete || got.Position != "" {
			t.Errorf("%+v", got)
		}
		contains(t, succeeds(t, db.url, "sweep").stdout, "deleted 0 rows", "no other row has expired")
		contains(t, succeeds(t, db.url, "peek", "login", "alice").stdout, "1 of 5")
	})
}
