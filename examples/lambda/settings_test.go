package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter/internal/testenv"
)

// variables returns the names of all environment variables that the program reads.
func variables(t *testing.T) (names []string) {
	t.Helper()
	must(t, testenv.ErrorOf(readSettings(func(name string) string {
		names = append(names, name)
		return ""
	})))
	slices.Sort(names)
	return slices.Compact(names)
}

func TestEmptyEnvironment(t *testing.T) {
	t.Parallel()
	s, err := readSettings(func(string) string { return "" })
	if err != nil || s.databaseURL != "" || s.port != "8080" || s.trustedHops != 0 || s.inLambda || !strings.HasSuffix(s.sqlite, "limiter-example.db") {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestTrustedHopsSetting(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]int{"": 0, "0": 0, "1": 1, "2": 2, "16": 16, "17": -1, "300": -1, "-1": -1, "one": -1, "1.0": -1} {
		s, err := readSettings(lookup(map[string]string{"TRUSTED_HOPS": value}))
		switch {
		case want < 0 && (err == nil || !strings.Contains(err.Error(), "TRUSTED_HOPS")):
			t.Errorf("TRUSTED_HOPS=%s: %v, want an error that names it", value, err)
		case want >= 0 && (err != nil || s.trustedHops != want):
			t.Errorf("TRUSTED_HOPS=%s: %d, %v; want %d", value, s.trustedHops, err, want)
		}
	}
}

func TestPoolSettings(t *testing.T) {
	t.Parallel()
	type pool struct {
		conns                           int32
		lifetime, jitter, idle, connect time.Duration
	}
	server := pool{10, 30 * time.Minute, 5 * time.Minute, 5 * time.Minute, 3 * time.Second}
	function := pool{2, 10 * time.Minute, time.Minute, 2 * time.Minute, 3 * time.Second}
	said := pool{7, time.Hour, time.Second, time.Minute, 9 * time.Second}
	for _, c := range []struct {
		dsn      string
		inLambda bool
		want     pool
	}{
		{"postgres://user@localhost/db", false, server},
		{"postgres://user@localhost/db", true, function},
		{"host=localhost user=user", true, function},
		{"postgres://user@localhost/db?pool_max_conns=7&pool_max_conn_lifetime=1h&pool_max_conn_lifetime_jitter=1s&pool_max_conn_idle_time=1m&connect_timeout=9", true, said},
		{"host=localhost pool_max_conns=7 pool_max_conn_lifetime=1h pool_max_conn_lifetime_jitter=1s pool_max_conn_idle_time=1m connect_timeout=9", false, said},
	} {
		config, err := poolConfig(settings{databaseURL: c.dsn, inLambda: c.inLambda})
		if err != nil {
			t.Errorf("%s: %v", c.dsn, err)
			continue
		}
		got := pool{config.MaxConns, config.MaxConnLifetime, config.MaxConnLifetimeJitter, config.MaxConnIdleTime, config.ConnConfig.ConnectTimeout}
		if got != c.want {
			t.Errorf("%s, in Lambda %t: %+v, want %+v", c.dsn, c.inLambda, got, c.want)
		}
		if config.MinConns != 0 || config.MinIdleConns != 0 {
			t.Errorf("%s: the pool connects in the background", c.dsn)
		}
		if config.ShouldPing == nil || config.PingTimeout == 0 {
			t.Errorf("%s: the pool does not notice a freeze", c.dsn)
		}
	}
	if pgx, err := pgxpool.ParseConfig("host=localhost"); err != nil || pgx.MaxConnLifetime == server.lifetime {
		t.Errorf("these settings are the defaults of pgx (%v), so the test shows nothing", err)
	}
}

func TestInvalidDSNIsNotQuoted(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{"postgres://user:secret/word@localhost/db", "postgres//user:secret@localhost", "secret", "host=localhost password=secret pool_max_conns=many"} {
		store, err := openStore(t.Context(), settings{databaseURL: dsn})
		if err == nil {
			_ = store.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "DATABASE_URL") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v; want an error that names DATABASE_URL and does not quote it", dsn, err)
		}
	}
}
