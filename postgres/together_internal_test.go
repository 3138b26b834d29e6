package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/tables"
	"github.com/sqlimit/limiter/internal/testenv"
)

// A decision waits for its first key until the store has answered the operation that held it. When its
// time ends, it waits for its next key, a slot or a connection, where nobody is answered.
func TestAllTimesOutAfterABusyKey(t *testing.T) {
	t.Parallel()
	const timeout = time.Second
	op := func(key string, timeout time.Duration) limiter.Op {
		return limiter.Op{Kind: limiter.OpTake, Name: "test", Key: key, Policy: limiter.PerHour(5), Cost: 1, Timeout: timeout}
	}
	reserve := func(ctx context.Context, s *Store, all *sync.WaitGroup, n int) {
		for i := range n {
			reservation := op(fmt.Sprint("b", i), 10*timeout)
			reservation.MaxWait = time.Hour
			all.Go(func() { _, _ = s.Do(ctx, reservation) })
			synctest.Wait()
		}
	}
	for where, block := range map[string]func(ctx context.Context, s *Store, all *sync.WaitGroup){
		"its next key": func(ctx context.Context, s *Store, all *sync.WaitGroup) {
			reserve(ctx, s, all, singleStatements+1) // the last one waits for one of the others to end
		},
		"a slot": func(ctx context.Context, s *Store, all *sync.WaitGroup) {
			reserve(ctx, s, all, singleStatements)
		},
		"a connection": func(context.Context, *Store, *sync.WaitGroup) {},
	} {
		for _, answered := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				config, err := pgxpool.ParseConfig("postgres://app@127.0.0.1/app")
				testenv.Must(t, err)
				config.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				pool, err := pgxpool.NewWithConfig(ctx, config)
				testenv.Must(t, err)
				defer pool.Close()
				s, err := New(pool)
				testenv.Must(t, err)
				busy := op("a", timeout)
				held, err := batch.HoldAll(ctx, []*batch.Queue{s.tableOf(busy.Policy).queue}, []limiter.Op{busy})
				testenv.Must(t, err)
				var all sync.WaitGroup
				block(ctx, s, &all)
				var decision sync.WaitGroup
				decision.Go(func() {
					_, err := s.DoAll(ctx, []limiter.Op{busy, op(fmt.Sprint("b", singleStatements), timeout)})
					if !errors.Is(err, limiter.ErrNotApplied) || errors.Is(err, limiter.ErrKeyBusy) != answered || limiter.StoreFailed(err) == answered {
						t.Errorf("waiting for %s, its first key answered %v: %v", where, answered, err)
					}
				})
				synctest.Wait()
				<-time.After(timeout / 2)
				held.End(answered, nil)
				decision.Wait()
				stop()
				all.Wait()
				// The decision has given back its keys and its slot, whatever it waited for when its time
				// ended.
				queue := s.tableOf(busy.Policy).queue
				wait, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				again, err := batch.HoldAll(wait, []*batch.Queue{queue, queue}, []limiter.Op{busy, op(fmt.Sprint("b", singleStatements), timeout)})
				if err != nil {
					t.Errorf("waiting for %s: the keys are still held: %v", where, err)
				}
				again.End(true, nil)
			})
		}
	}
}

// streamed is the answer of a statement whose last row comes before an error.
type streamed struct {
	pgx.Rows
	rows [][]any
	err  error
}

func (r *streamed) Next() bool { r.rows = r.rows[1:]; return len(r.rows) > 0 }
func (r *streamed) Err() error { return r.err }
func (*streamed) Close()       {}

func (r *streamed) Scan(to ...any) error {
	for i, v := range r.rows[0] {
		switch to := to[i].(type) {
		case *int64:
			*to = v.(int64)
		case *string:
			*to = v.(string)
		}
	}
	return nil
}

// answers is a DB that answers each query with rows.
type answers struct {
	DB
	*streamed
}

func (a answers) Query(context.Context, string, ...any) (pgx.Rows, error) { return a.streamed, nil }

func TestMergedAnswers(t *testing.T) {
	t.Parallel()
	const now int64 = 1_800_000_000_000_000_000
	grant := func(number int64, name, key string) []any { return []any{number, name, key, int64(1), now, now, now} }
	late := errors.New("after the last row")
	for _, c := range []struct {
		name string
		rows [][]any
		late error
		err  error
		took []bool // nil: no answers
	}{
		{"an added row comes with its key", [][]any{grant(0, "n", "6231"), grant(0, "n", "6230")}, nil, nil, []bool{true, true}},
		{"rows before a late error count for nothing", [][]any{grant(1, "", ""), grant(2, "", "")}, late, late, nil},
		{"a row of another key is an error", [][]any{grant(1, "", ""), grant(0, "n", "7a")}, nil, limiter.ErrOutcomeUnknown, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var groups []*batch.Group
			for i := range 2 {
				groups = append(groups, &batch.Group{Calls: []*batch.Call{batch.NewCall(limiter.Op{
					Kind: limiter.OpTake, Name: "n", Key: fmt.Sprint("b", i), Policy: limiter.PerHour(3), Cost: 1,
				})}})
			}
			table := &table{Table: tables.All[0], kind: kinds[limiter.KindBucket], sql: tableStatements{takes: "takes"}}
			db := answers{streamed: &streamed{rows: append([][]any{nil}, c.rows...), err: c.late}}
			done, err := new(Store).takeMerged(t.Context(), db, table, groups)
			if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) || done != (len(c.took) == len(groups)) {
				t.Errorf("done %t, %v; want %d decided and %v", done, err, len(c.took), c.err)
			}
			var took []bool
			for _, g := range groups {
				if c := g.Calls[0]; c.Decided() {
					took = append(took, c.State().Took)
				}
			}
			if !slices.Equal(took, c.took) {
				t.Errorf("answers %v, want %v", took, c.took)
			}
		})
	}
}
