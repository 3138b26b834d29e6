package sqlite

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
)

func TestTimeSpentBehindOthersIsNotTheDatabasesFailure(t *testing.T) {
	t.Parallel()
	for name, carriedOut := range map[string]bool{"others are carried out": true, "nobody is carried out": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const limit = 100 * time.Millisecond
				s := &Store{writing: make(chan struct{}, 1)}
				meanwhile := func() {
					if carriedOut {
						s.commits.Add(1)
					}
				}
				s.writing <- struct{}{}
				ctx, stop := s.deadlines.WithTimeout(t.Context(), limit)
				defer stop()
				time.AfterFunc(limit/2, meanwhile)
				if err := s.startWriting(ctx); !errors.Is(err, limiter.ErrNotApplied) || errors.Is(err, limiter.ErrKeyBusy) != carriedOut {
					t.Errorf("a caller whose time is over: %v; want ErrNotApplied, and ErrKeyBusy: %t", err, carriedOut)
				}

				ctx, stop = s.deadlines.WithTimeout(t.Context(), limit)
				defer stop()
				time.AfterFunc(limit*9/10, func() {
					meanwhile()
					s.stopWriting()
				})
				if err := s.startWriting(ctx); err != nil {
					t.Errorf("a caller whose turn comes: %v", err)
				}
				<-time.After(limit / 2)
				if (ctx.Err() == nil) != carriedOut {
					t.Errorf("after its turn came: %v; want the full time again: %t", ctx.Err(), carriedOut)
				}
			})
		})
	}
}
