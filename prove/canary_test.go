package prove_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cluster"
	"github.com/sqlimit/limiter/prove/internal/cutproxy"
)

// It is why the store never uses the simple protocol, and puts an error of its own around a batch and
// that of a COMMIT. Once this fails pgx may be relied on, and both can be thought over.
func TestPgxSimpleProtocolIsUnsafe(t *testing.T) {
	proof.Rounds(t, "the canary of pgx", campaign.Sizes{CI: 1, Nightly: 1, Release: 1}, func(t *testing.T, r *campaign.Round) {
		c := cluster.New(t, "fsync=off")
		proxy := cutproxy.New(t, c.Port())
		config, err := pgx.ParseConfig(c.DSN())
		if err != nil {
			t.Fatal(err)
		}
		db, err := pgx.ConnectConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close(t.Context())
		if _, err := db.Exec(t.Context(), "CREATE TABLE canary (n int)"); err != nil {
			t.Fatal(err)
		}
		config = config.Copy()
		config.Port, config.DefaultQueryExecMode = uint16(proxy.Port()), pgx.QueryExecModeSimpleProtocol
		var wrong int64
		for after := range int64(8) {
			conn, err := pgx.ConnectConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			trap := proxy.Arm(cutproxy.Cut{Direction: cutproxy.Response, After: after})
			_, err = conn.Exec(t.Context(), "INSERT INTO canary VALUES ($1)", after)
			trap.Disarm()
			_ = conn.Close(context.WithoutCancel(t.Context()))
			var stored bool
			if err := db.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM canary WHERE n = $1)", after).Scan(&stored); err != nil {
				t.Fatal(err)
			}
			if stored && pgconn.SafeToRetry(err) {
				wrong++
			}
		}
		r.Count("committed, and called safe to retry by pgx in the simple protocol", wrong)
		if wrong == 0 {
			t.Error("pgx does not call it safe to retry any more")
		}
	})
}
