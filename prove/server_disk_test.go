package prove_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cluster"
	"github.com/sqlimit/limiter/prove/internal/outcome"
)

// sqlState is the server's code of an error, if it has one.
func sqlState(err error) string {
	if server, ok := errors.AsType[*pgconn.PgError](err); ok {
		return server.Code
	}
	return ""
}

// noRoom is the code of a full disk.
const noRoom = "53100"

func TestFullDisk(t *testing.T) {
	disk := cluster.NewDisk(t, 100)
	server := cluster.NewOn(t, disk, durable...)
	migrate(t, server.DSN())
	load := newLoad(t, stores(t, 2, server.DSN()+"&pool_max_conns=8"))
	proof.Rounds(t, "disks full", campaign.Sizes{CI: 1, Nightly: 5, Release: 20}, func(t *testing.T, r *campaign.Round) {
		load.renew(t, server.DSN())
		stop := load.start(t.Context(), r.Rand, 16)
		load.recovers(t, r, time.Now())
		pause(t.Context(), r, 200*time.Millisecond)
		disk.Fill()
		fillTables(t, server.DSN())

		lim := load.limiters[0][0]
		load.untilRefusedRoom(t, lim)
		var granted int64
		var err error
		for range 20 {
			class, failed := load.take(t.Context(), lim, "recovery", 1)
			if class == outcome.Carried {
				granted++
			}
			err = errors.Join(err, failed)
		}
		if granted == 0 {
			t.Errorf("a key that there is cannot be used any more: %v", err)
		}
		r.Count("granted on a full disk", granted)

		disk.Free()
		began := time.Now()
		load.recovers(t, r, began)
		load.grants(t, r, lim, fmt.Sprintf("%d/another", load.epoch), began)
		stop()
		load.exact(t, r, server.DSN())
	})
}

// fillTables uses up the room that the tables have, with rows of which none is charged.
func fillTables(t *testing.T, dsn string) {
	t.Helper()
	conn := connection(t, dsn)
	defer conn.Close(context.Background())
	for n := 0; ; n++ {
		_, err := conn.Exec(t.Context(), `INSERT INTO limiter_token_buckets (full_at, at, step, capacity, granted, limiter, key)
			SELECT 0, 0, 1, 1, 0, 'filler', int4send($1 * 100 + i) FROM generate_series(1, 100) AS i`, n)
		if sqlState(err) == noRoom {
			return
		}
		if err != nil || n > 1000 {
			t.Fatalf("after %d rows of a table on a full disk: %v", n*100, err)
		}
	}
}

// untilRefusedRoom takes from new keys until there is no room for one.
func (l *load) untilRefusedRoom(t *testing.T, lim *limiter.Limiter) {
	t.Helper()
	for n := range 10_000 {
		class, err := l.take(t.Context(), lim, fmt.Sprintf("%d/new/%d", l.epoch, n), 1)
		if sqlState(err) == noRoom {
			if class != outcome.NotApplied {
				t.Errorf("a new key on a full disk is %s: %v", class, err)
			}
			return
		}
	}
	t.Error("a full disk has room for 10,000 keys")
}

// A server that cannot write its log of changes ends at once, with all that is under way,
// and does not come up before there is room.
func TestFullLog(t *testing.T) {
	disk := cluster.NewDisk(t, 32)
	server := cluster.NewWithLogOn(t, disk, durable...)
	migrate(t, server.DSN())
	load := newLoad(t, stores(t, 2, server.DSN()+"&pool_max_conns=8"))
	proof.Rounds(t, "logs full", campaign.Sizes{CI: 1, Nightly: 5, Release: 20}, func(t *testing.T, r *campaign.Round) {
		stop := load.begin(t, r, server.DSN())
		pause(t.Context(), r, 200*time.Millisecond)
		disk.Fill()
		fillLog(t, server.DSN())
		pause(t.Context(), r, 300*time.Millisecond)
		disk.Free()
		server.Revive()
		load.recovers(t, r, time.Now())
		stop()
		load.exact(t, r, server.DSN())
	})
}

// fillLog writes to the log of changes until the server ends over it.
func fillLog(t *testing.T, dsn string) {
	t.Helper()
	conn := connection(t, dsn)
	defer conn.Close(context.Background())
	for range 1000 {
		if _, err := conn.Exec(t.Context(), `SELECT pg_logical_emit_message(true, 'x', repeat('x', 100000))`); err != nil {
			return
		}
	}
	t.Error("a full disk has room for 100 MB")
}
