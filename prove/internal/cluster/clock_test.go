package cluster_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter/prove/internal/cluster"
)

func TestTheClockOfAServerIsSetWhileItRuns(t *testing.T) {
	server, clock := cluster.NewWithClock(t)
	conn, err := pgx.Connect(t.Context(), server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	const year = 8766 * time.Hour
	for _, ahead := range []time.Duration{0, time.Millisecond, -time.Millisecond, time.Hour, 10 * year, -40 * year, 0} {
		clock.Set(ahead)
		before := clock.Now()
		var now time.Time
		if err := conn.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&now); err != nil {
			t.Fatal(err)
		}
		after := time.Now().Add(ahead + time.Millisecond)
		if now.Before(before) || now.After(after) {
			t.Errorf("%v ahead it is %v, want %v to %v", ahead, now, before, after)
		}
	}
}
