package sqlite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/sqlitecode"
	"github.com/sqlimit/limiter/internal/sqlstore"
)

const (
	// longestWait is how long an operation without a time limit waits for a lock.
	longestWait              = 5 * time.Second
	firstPause, longestPause = 100 * time.Microsecond, 5 * time.Millisecond
)

// enter waits until this caller may write, in order of arrival.
func (s *Store) enter(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return sqlstore.Interrupted(ctx, limiter.ErrNotApplied, nil)
	}
}

// enterAlone reports whether this caller may write at once, because nobody else writes or waits.
func (s *Store) enterAlone() bool {
	if s.waiting.Load() > 0 {
		return false
	}
	select {
	case s.turn <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s *Store) leave() { <-s.turn }

// errBusy is the error of an operation that timed out in this process without meeting a lock. The
// database is not at fault, so no failure policy answers.
var errBusy = fmt.Errorf("%w: %w: too many operations wait in this process", limiter.ErrNotApplied, limiter.ErrKeyBusy)

// attempt calls f until it meets no lock of another connection. A statement that SQLite refused
// because of a lock did nothing, so attempt tries it again, as often as SQLite itself would. If f
// fails with an error without a class, nothing was done.
func attempt(ctx context.Context, f func(context.Context) error) error {
	var deadline time.Time
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		if ctx.Err() != nil {
			class := limiter.ErrNotApplied
			if deadline.IsZero() && sqlstore.Ended(ctx) == nil {
				class = errBusy
			}
			return sqlstore.Interrupted(ctx, class, nil)
		}
		err := f(ctx)
		if err == nil {
			return nil
		}
		now := time.Now()
		if deadline.IsZero() {
			deadline = now.Add(longestWait)
		}
		if !sqlitecode.IsBusy(err) || now.After(deadline) && !sqlstore.Limited(ctx) {
			return interpretError(ctx, err, false)
		}
		// Half the pause and a random part of the rest, so that two waiters do not collide again.
		timer := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return sqlstore.Interrupted(ctx, limiter.ErrNotApplied, nil)
		}
	}
}
