package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/sqlstore"
)

// SchemaVersion is the latest migration that the statements need.
const SchemaVersion = schemaVersion

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

// Hold calls f while it holds the row of op, with a function that carries out the take op as the
// second look does.
func (s *Store) Hold(ctx context.Context, op limiter.Op, f func(take func() (limiter.State, error)) error) error {
	t, err := s.table(op.Policy)
	if err != nil {
		return err
	}
	return t.Hold(ctx, op, func(held sqlstore.Table) error {
		return f(func() (limiter.State, error) { return sqlstore.Do(ctx, undecided{held}, op) })
	})
}

// undecided is a table whose hot statement decides nothing, so that the second look does. That loses
// no race while the row is held.
type undecided struct{ sqlstore.Table }

func (undecided) Take(context.Context, limiter.Op) (limiter.State, bool, error) {
	return limiter.State{}, false, nil
}

func (undecided) Hold(context.Context, limiter.Op, func(sqlstore.Table) error) error {
	return errors.New("somebody else wrote a row that was held")
}
