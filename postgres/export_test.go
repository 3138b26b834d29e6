package postgres

import (
	"context"
	"fmt"
	"reflect"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/sqlstore"
)

// Statements returns the rendered statements of a store by their names, so that
// tests can prepare and explain them.
func Statements(schema string, asyncCommit bool) map[string]string {
	v := reflect.ValueOf(render(schema, asyncCommit))
	texts := map[string]string{}
	for i := range v.NumField() {
		texts[v.Type().Field(i).Name] = v.Field(i).String()
	}
	return texts
}

// Files returns the names of the embedded files.
func Files() []string {
	entries, err := files.ReadDir("sql")
	if err != nil {
		panic(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Release gives a connection back to its pool.
func Release(conn *pgxpool.Conn) { release(conn) }

// SchemaVersion is the version that Check wants.
const SchemaVersion = schemaVersion

// Held is a Store whose takes are decided under the row's lock, as are those that
// lost every race before.
type Held struct{ *Store }

func (h Held) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	table, err := h.table(op.Policy)
	if err != nil {
		return limiter.State{}, err
	}
	if op.Kind == limiter.OpTake {
		table = loser{table}
	}
	s, err := sqlstore.Do(ctx, table, op)
	if err != nil {
		return limiter.State{}, fmt.Errorf("postgres: %w", err)
	}
	return s, nil
}

// loser loses every race but the one under the lock.
type loser struct{ sqlstore.Table }

func (loser) Take(context.Context, limiter.Op) (limiter.State, bool, error) {
	return limiter.State{}, false, nil
}

func (loser) Look(context.Context, limiter.Op) (sqlstore.Reading, error) {
	return sqlstore.Reading{Now: 1}, nil // a key that was never used, so that there is something to write
}

func (loser) Swap(context.Context, limiter.Op, limiter.Row, limiter.Row) (bool, error) {
	return false, nil
}

// Foreseen is a Store whose single takes expect to be granted, or refused, whatever
// they are.
type Foreseen struct {
	*Store
	Refused bool
}

func (f Foreseen) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	table, err := f.table(op.Policy)
	if err != nil {
		return limiter.State{}, err
	}
	if w, ok := op.Policy.(limiter.FixedWindow); op.Kind == limiter.OpTake && (!ok || !w.CountRejected) {
		table = foreseen{table, f}
	}
	s, err := sqlstore.Do(ctx, table, op)
	if err != nil {
		return limiter.State{}, fmt.Errorf("postgres: %w", err)
	}
	return s, nil
}

type foreseen struct {
	sqlstore.Table
	f Foreseen
}

func (t foreseen) Take(ctx context.Context, op limiter.Op) (s limiter.State, decided bool, err error) {
	table := t.Table.(hotTable)
	err = t.f.run(ctx, write, func(db DB) (err error) {
		if t.f.Refused {
			s, decided, err = t.f.stillRefused(ctx, db, table, op)
		} else {
			_, grant := table.statements()
			s, decided, err = table.hot(ctx, db, grant, op)
		}
		return err
	})
	if err != nil || decided {
		return s, decided, err
	}
	return t.Table.Take(ctx, op)
}
