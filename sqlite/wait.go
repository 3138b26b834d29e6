package sqlite

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/opcontext"
	"github.com/sqlimit/limiter/internal/sqlitecode"
)

const (
	// longestWait is how long an operation without a time limit waits for a lock.
	longestWait              = 5 * time.Second
	firstPause, longestPause = 100 * time.Microsecond, 5 * time.Millisecond
)

// startWriting waits until this caller may write, in order of arrival. If others were carried out
// meanwhile, the database works: the caller gets its full time again, and a timeout is [limiter.ErrKeyBusy].
func (s *Store) startWriting(ctx context.Context) error {
	select {
	case s.writing <- struct{}{}:
		return nil
	default:
	}
	before := s.commits.Load()
	select {
	case s.writing <- struct{}{}:
		if s.commits.Load() != before {
			opcontext.Renew(ctx)
			return nil
		}
		if ctx.Err() == nil {
			return nil
		}
		s.stopWriting()
	case <-ctx.Done():
	}
	return batch.Unsent(ctx, s.commits.Load() != before)
}

// startWritingFor is startWriting for operations that wait in no queue.
func (s *Store) startWritingFor(ctx context.Context, operations int) error {
	s.counters.Queued.Add(int64(operations))
	defer s.counters.Queued.Add(-int64(operations))
	return s.startWriting(ctx)
}

// tryStartWriting reports whether this caller may write at once, because nobody else writes or
// waits.
func (s *Store) tryStartWriting() bool {
	if s.waiting.Load() > 0 {
		return false
	}
	select {
	case s.writing <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s *Store) stopWriting() {
	s.tidyLog()
	if s.pausing.Load() {
		<-time.After(slowWrite)
	}
	<-s.writing
}

// attempt calls f until it meets no lock of another connection. A statement that SQLite refused
// because of a lock did nothing, so attempt tries it again, as often as SQLite itself would. If f
// fails with an error without a class, nothing was done.
func attempt(ctx context.Context, f func(context.Context) error) error {
	var deadline time.Time
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		if ctx.Err() != nil {
			return batch.Unsent(ctx, deadline.IsZero())
		}
		err := f(ctx)
		if err == nil {
			return nil
		}
		now := time.Now()
		if deadline.IsZero() {
			deadline = now.Add(longestWait)
		}
		if !sqlitecode.IsBusy(err) || now.After(deadline) && !opcontext.HasTimeLimit(ctx) {
			return interpretError(ctx, err, false)
		}
		// Half the pause and a random part of the rest, so that two waiters do not collide again.
		timer := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return opcontext.Interrupted(ctx, limiter.ErrNotApplied, nil)
		}
	}
}
