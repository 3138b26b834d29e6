package sqlite

import (
	"context"
	"time"

	"github.com/sqlimit/limiter"
)

// FileURI and Statement are tested by themselves.
var FileURI = fileURI

// InterpretError is interpretError in a context that has not ended.
func InterpretError(err error, writes bool) error {
	return interpretError(context.Background(), err, writes)
}

// SetClock gives s another clock, before its first use.
func (s *Store) SetClock(now func() time.Time) { s.now = now }

// Statements returns the text of every statement, by name.
func Statements() (map[string]string, error) {
	entries, err := files.ReadDir("sql")
	texts := map[string]string{}
	for _, e := range entries {
		name := e.Name()[:len(e.Name())-len(".sql")]
		if texts[name], err = statement(name).text(); err != nil {
			return nil, err
		}
	}
	return texts, err
}

// Swap is the compare-and-set of the second look.
func (s *Store) Swap(ctx context.Context, op limiter.Op, from, to limiter.Row) (bool, error) {
	t, err := s.table(op.Policy)
	if err != nil {
		return false, err
	}
	return t.Swap(ctx, op, from, to)
}
