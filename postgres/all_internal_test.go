package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
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
