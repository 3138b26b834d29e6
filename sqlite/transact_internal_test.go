package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
)

// failing is a transaction on empty tables, one of whose steps fails.
type failing struct{ step, fails int }

var errFailing = errors.New("this step fails")

func (f *failing) next() error {
	if f.step++; f.step == f.fails {
		return errFailing
	}
	return nil
}

func (f *failing) query(context.Context, statement, func([]driver.Value) error, ...any) error {
	return f.next()
}
func (f *failing) exec(context.Context, statement, ...any) (int64, error) { return 1, f.next() }
func (f *failing) commit(context.Context) error                           { return f.next() }
func (f *failing) rollback()                                              {}

func TestTransactionThatFailsAtAnyStepAnswersNoGrant(t *testing.T) {
	const steps = 5 // two rows are read and written, then the commit
	for fails := 1; fails <= steps+1; fails++ {
		var groups []*batch.Group
		for _, key := range []string{"a", "b"} {
			op := limiter.Op{Kind: limiter.OpTake, Name: "l", Key: key, Policy: limiter.PerDay(5), Cost: 1}
			groups = append(groups, &batch.Group{Calls: []*batch.Call{batch.NewCall(op)}, Equal: true})
		}
		tx := &failing{fails: fails}
		err := (&Store{now: time.Now}).carryOut(t.Context(), tx, groups)
		if tx.step != min(fails, steps) || errors.Is(err, errFailing) != (fails <= steps) {
			t.Fatalf("step %d of %d: %v after %d steps", fails, steps, err, tx.step)
		}
		for _, g := range groups {
			if g.Calls[0].Answered() != (err == nil) {
				t.Errorf("step %d: the take of %s is answered: %t", fails, g.Op().Key, g.Calls[0].Answered())
			}
		}
	}
}
