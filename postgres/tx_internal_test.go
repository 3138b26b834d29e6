package postgres

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"

	"github.com/sqlimit/limiter"
)

// fakeTx notes what was called on it.
type fakeTx struct {
	DB
	calls  []string
	failed error // of a commit
}

func (tx *fakeTx) Commit(context.Context) error {
	tx.calls = append(tx.calls, "commit")
	return tx.failed
}

func (tx *fakeTx) Rollback(context.Context) error {
	tx.calls = append(tx.calls, "rollback")
	return errors.New("conn closed")
}

func TestCommitKeepsTheFirstError(t *testing.T) {
	t.Parallel()
	lost := safe{&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}}
	failed := state("40001")
	cases := []struct {
		name      string
		f, commit error
		calls     []string
		is, class error
	}{
		{"all is well", nil, nil, []string{"commit", "rollback"}, nil, nil},
		{"f fails", failed, nil, []string{"rollback"}, failed, limiter.ErrNotApplied},
		{"commit is lost", nil, lost, []string{"commit", "rollback"}, lost, limiter.ErrOutcomeUnknown},
		{"commit is refused", nil, failed, []string{"commit", "rollback"}, failed, limiter.ErrNotApplied},
	}
	s := &Store{options: options{schema: "public"}}
	for _, c := range cases {
		tx := &fakeTx{failed: c.commit}
		err := commit(t.Context(), tx, func(DB) error { return c.f })
		if !errors.Is(err, c.is) || !slices.Equal(tx.calls, c.calls) {
			t.Errorf("%s: %v after %v; want %v after %v", c.name, err, tx.calls, c.is, c.calls)
		}
		if err := s.interpretError(t.Context(), write, err); !errors.Is(err, c.class) {
			t.Errorf("%s: %v, want it to match %v", c.name, err, c.class)
		}
	}
}
