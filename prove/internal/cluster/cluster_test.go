package cluster_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter/prove/internal/cluster"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := cluster.RemoveTemplate(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func TestWhatWasCommittedSurvivesAKill(t *testing.T) {
	c := cluster.New(t)
	do := func(sql string) {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), c.DSN())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	do("CREATE TABLE kept (n int)")
	for range 3 {
		do("INSERT INTO kept VALUES (1)")
		c.Kill()
		c.Start()
	}
	do("SELECT 1 / (count(*) = 3)::int FROM kept")
	c.Stop()
	c.Start()
	do("SELECT 1 / (count(*) = 3)::int FROM kept")
}
