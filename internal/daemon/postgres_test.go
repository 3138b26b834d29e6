package daemon_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter/internal/daemon"
)

func TestURLIsReadBack(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1", "/var/run/postgresql"} {
		dsn := daemon.URL(host, 5433, "us er", "p:a/s@s?'", "name")
		config, err := pgx.ParseConfig(dsn)
		if err != nil {
			t.Fatalf("%s: %v", dsn, err)
		}
		if config.Host != host || config.Port != 5433 || config.User != "us er" ||
			config.Password != "p:a/s@s?'" || config.Database != "name" || config.TLSConfig != nil {
			t.Errorf("%s is read as %+v", dsn, config.Config)
		}
	}
}
