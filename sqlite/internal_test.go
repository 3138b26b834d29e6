package sqlite

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/sqlimit/limiter/internal/testenv"
)

// Statements of a transaction on the only connection must stay prepared until it ends.
func TestCloseWaitsForTransactions(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "limiter.db"))
	testenv.Must(t, err)
	defer db.Close()
	db.SetMaxOpenConns(1)
	p := &sqlPool{db: db}
	tx, err := p.beginTx(t.Context(), []statement{"size"}, nil)
	testenv.Must(t, err)
	closed := make(chan error, 1)
	go func() { closed <- p.close() }()
	select {
	case err := <-closed:
		t.Fatalf("close does not wait for the transaction: %v", err)
	case <-time.After(10 * time.Millisecond):
	}
	testenv.Must(t, tx.query(t.Context(), "size", nil))
	tx.rollback()
	testenv.Must(t, <-closed)
	testenv.ErrorIs(t, testenv.ErrorOf(p.beginTx(t.Context(), nil, nil)), errClosed, "a transaction after Close")
}
