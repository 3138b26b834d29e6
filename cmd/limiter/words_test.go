//go:build unix

package main_test

import (
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// goWords are words of Go code. The user of the command writes commands and flags.
var goWords = regexp.MustCompile(`migrations\.|\bctx\b|WithSchema|WithCitus|WithQueryExecMode|TokenBucket|FixedWindow`)

func TestNoGoInErrors(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "empty.db")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, url := range map[string]string{"postgres": emptyPostgres(t), "sqlite": "sqlite:" + file} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, c := range []struct {
				args, want string
			}{
				{"doctor", "limiter migrate up"},
				{"sweep", "limiter migrate up"},
				{"peek login alice", "limiter migrate up"},
				{"block login alice --for 1h --limit 3 --window 1h", "limiter migrate up"},
				{"block login alice --for 1h --capacity 5", "--interval is 0s"},
				{"block login alice --for 1h --capacity 5 --interval 9999d", "--capacity"},
				{"override set login alice --capacity 5 --refill 2000000000 --interval 1s", "--refill"},
				{"override set login alice --limit 3 --window 99999d", "--window is "},
			} {
				a := limiterCLI(t, url, strings.Fields(c.args)...)
				contains(t, a.stdout+a.stderr, c.want)
				if word := goWords.FindString(a.stdout + a.stderr); word != "" || a.code == 0 {
					t.Errorf("limiter %s: exit code %d, and it says %q:\n%s%s", c.args, a.code, word, a.stdout, a.stderr)
				}
			}
		})
	}
}

func TestDurations(t *testing.T) {
	t.Parallel()
	db := migratedSQLite(t)
	for _, c := range []struct {
		text string
		want string // of the block, or of the error
	}{
		{"1d", "for another 24h0m0s"},
		{"9d16h", "for another 9d15h"},
		{"1.5d", "for another 36h0m0s"},
		{"90m", "for another 1h30m0s"},
		{"-1d", "--for is -24h0m0s"},
		{"1d-1h", `"1d-1h" is no duration`},
		{"d", `"d" is no duration`},
		{"1w", `"1w" is no duration; write one such as 90s, 1h30m or 7d`},
		{"999999d", "is too long"},
	} {
		succeeds(t, db.url, "reset", "login", "alice")
		a := limiterCLI(t, db.url, "block", "login", "alice", "--for="+c.text, "--capacity", "1", "--interval", "1us")
		contains(t, a.stdout+a.stderr, c.want)
		if want := map[bool]int{true: 0, false: 2}[strings.HasPrefix(c.want, "for")]; a.code != want {
			t.Errorf("%s: exit code %d, want %d", c.text, a.code, want)
		}
	}
	succeeds(t, db.url, "sweep", "--for", "1d", "--timeout", "1d")
	succeeds(t, db.url, "top", "--once", "--every", "1d")
	contains(t, succeeds(t, db.url, "override", "set", "login", "alice", "--limit", "3", "--window", "7d", "--expires-in", "30d").stdout, "3 per window of 7d0h")
}

func TestDatabaseForms(t *testing.T) {
	t.Parallel()
	t.Run("keywords", func(t *testing.T) {
		t.Parallel()
		db := migratedPostgres(t)
		use(t, db.store, "login", bucket, "alice", 1)
		u, err := url.Parse(db.url)
		if err != nil {
			t.Fatal(err)
		}
		password, _ := u.User.Password()
		keywords := "host=" + u.Hostname() + " port=" + u.Port() + " user=" + u.User.Username() + " dbname=" + u.Path[1:]
		if password != "" {
			keywords += " password='" + password + "'"
		}
		contains(t, succeeds(t, keywords, "peek", "login", "alice").stdout, "1 of 5")
		nothingFound(t, keywords)
		contains(t, succeeds(t, keywords+" default_query_exec_mode = exec", "doctor").stdout, "exec; there is no pooler")
	})
	for _, c := range []struct{ name, url, want string }{
		{"no path", "sqlite:", "write the path of the file, such as sqlite:app.db"},
		{"memory", "sqlite::memory:", "such as sqlite:app.db"},
		{"a URI of SQLite", "sqlite:file:app.db", "write the path alone"},
		{"wrong keywords", "host=x password=hunter2 port", "keyword/value"},
		{"another database", "mysql://user:hunter2@host/db", "postgres://..., 'host=... dbname=...' or sqlite:PATH"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, args := range [][]string{{"peek", "login", "alice"}, {"migrate", "up"}} {
				fails(t, c.url, 2, []string{c.want}, args...)
				if a := limiterCLI(t, c.url, args...); strings.Contains(a.stderr, "hunter2") {
					t.Errorf("it prints the password: %s", a.stderr)
				}
			}
		})
	}
}

func TestMigrateDownAsks(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db target) {
		use(t, db.store, "login", bucket, "alice", 1)
		use(t, db.store, "login", bucket, "bob", 1)
		succeeds(t, db.url, "override", "set", "login", "alice", "--capacity", "7", "--interval", "1m")
		want := []string{"about 2 rows of limiters and 1 override", "--yes"}
		if file, ok := strings.CutPrefix(db.url, "sqlite:"); ok {
			want = append(want, "the tables in file "+file)
		} else {
			u, err := url.Parse(db.url)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, `database "`+u.Path[1:]+`", schema "public" on host `+u.Hostname()+", port "+u.Port())
		}
		fails(t, db.url, 2, want, "migrate", "down")
		contains(t, succeeds(t, db.url, "peek", "login", "alice").stdout, "1 of 5")
	})
}
