package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqlimit/limiter"
)

type sweeper interface {
	Sweep(ctx context.Context, limit int64) (removed int64, err error)
}

// sweeper returns the store as one that can sweep, or skips the case.
func (f *fixture) sweeper() sweeper {
	f.Helper()
	sw, ok := f.store.(sweeper)
	if !ok {
		f.Skip("the store has no Sweep")
	}
	return sw
}

// sweepAll sweeps, limit rows at a time, until nothing is left to remove.
func (f *fixture) sweepAll(sw sweeper, limit int64) (total int64) {
	f.Helper()
	for {
		n, err := sw.Sweep(context.Background(), limit)
		f.ok(err, "Sweep(%d)", limit)
		if n < 0 || n > limit {
			f.Fatalf("Sweep(%d) removed %d", limit, n)
		}
		if n == 0 {
			return total
		}
		total += n
	}
}

// days is far more than any row of these cases counts for.
const days = 100 * 24 * time.Hour

// countdown is a context that ends after it was looked at a number of times.
type countdown struct {
	context.Context
	left atomic.Int64
}

// looks returns a context that ends after n looks at its Err.
func looks(n int64) *countdown {
	c := &countdown{Context: context.Background()}
	c.left.Store(n)
	return c
}

func (c *countdown) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

var sweepCases = []testCase{
	{
		"Sweep removes what has expired",
		"a row that is expired by the store's clock is removed, and up to limit of them at a time",
		func(f *fixture) {
			sw := f.sweeper()
			f.sweepAll(sw, 1000)
			now := f.storeNow()
			use := func(kept bool) {
				for name, p := range plain(2, s, s) {
					l := f.limiter(name, p)
					for i := range 25 {
						f.now = now.Add(-days)
						f.passes(l, fmt.Sprint("old", i), 2)
						f.now = now.Add(days)
						if key := fmt.Sprint("new", i%5); kept || i >= 5 {
							f.refuses(l, key, 1)
						} else {
							f.passes(l, key, 2)
						}
					}
				}
			}
			use(false)
			if n := f.sweepAll(sw, 7); n != 75 {
				f.Errorf("Sweep removed %d rows in all, want 75", n)
			}
			use(true)
		},
	},
	{
		"Sweep keeps what may still count",
		"a row stays until an hour after its bucket is full or its window is over: takes may be under way whose clock was read before",
		func(f *fixture) {
			sw := f.sweeper()
			f.sweepAll(sw, 1000)
			now := f.storeNow()
			b, w := f.limiter("b", bucket(2, time.Minute)), f.limiter("w", window(2, time.Minute))
			slow, long := f.limiter("slow", bucket(1, 10*days)), f.limiter("long", window(1, 100*days))
			f.now = now.Add(-50 * time.Minute)
			f.passes(b, "k", 2) // full 48 minutes ago
			f.passes(w, "k", 2)
			f.now = now.Add(-days)
			f.passes(slow, "k", 1) // full in 900 days
			f.passes(long, "k", 1) // in a window that runs, unless it has just begun
			edge := f.now.Add(f.peek(long, "k").ResetAfter).Before(now.Add(-limiter.SweepGrace + time.Minute))
			want := int64(0)
			if edge {
				want = 1
			}
			if n := f.sweepAll(sw, 1000); n > want {
				f.Errorf("Sweep removed %d rows, want %d", n, want)
			}
			f.refuses(slow, "k", 1)
			f.now = now.Add(-50*time.Minute + ms)
			f.refuses(b, "k", 1)
			f.refuses(w, "k", 1)
		},
	},
	{
		"Sweep reaches every row, however short its calls",
		"calls that end long before they have read every row delete all expired rows in the end",
		func(f *fixture) {
			sw := f.sweeper()
			f.sweepAll(sw, 1000)
			b, w := f.limiter("b", bucket(1, s)), f.limiter("w", window(1, s))
			now := f.storeNow()
			f.now = now.Add(days)
			f.concurrently(16, func(i int) bool { // more than five pages that stay, before the expired rows
				for j := range 90 {
					f.allowed(b, fmt.Sprint("a", i, "-", j), 1)
				}
				return true
			})
			const plenty = 1 << 40
			whole := looks(plenty)
			if n, err := sw.Sweep(whole, 1000); n != 0 || err != nil {
				f.Fatalf("Sweep removed %d rows, %v, want 0", n, err)
			}
			share := max(1, (plenty-whole.left.Load())/3)
			const expired = 20
			f.now = now.Add(-days)
			for i := range expired {
				f.passes(b, fmt.Sprint("z", i), 1)
				f.passes(w, fmt.Sprint("z", i), 1)
			}
			removed := int64(0)
			for call := 0; removed < 2*expired; call++ {
				if call == 200 {
					f.Fatalf("%d calls, each a third of a whole sweep or one statement, removed %d of %d expired rows", call, removed, 2*expired)
				}
				n, err := sw.Sweep(looks(share), 1000)
				if err != nil && !errors.Is(err, limiter.ErrCanceled) {
					f.Fatalf("Sweep: %v", err)
				}
				removed += n
			}
		},
	},
	{
		"Sweep checks its arguments",
		"a limit below 1 is ErrInvalid, and a context that has ended ErrCanceled",
		func(f *fixture) {
			sw := f.sweeper()
			for _, limit := range []int64{0, -1} {
				if n, err := sw.Sweep(context.Background(), limit); n != 0 || !errors.Is(err, limiter.ErrInvalid) {
					f.Errorf("Sweep(%d) = %d, %v, want ErrInvalid", limit, n, err)
				}
			}
			if n, err := sw.Sweep(context.Background(), 1); n > 1 || err != nil {
				f.Errorf("Sweep(1) = %d, %v, want at most 1 and no error", n, err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if n, err := sw.Sweep(ctx, 10); n != 0 || !errors.Is(err, limiter.ErrCanceled) || !errors.Is(err, context.Canceled) {
				f.Errorf("Sweep with a canceled context = %d, %v, want ErrCanceled and context.Canceled", n, err)
			}
		},
	},
	{
		"Sweep beside traffic changes no decision",
		"sweeps that run while keys are in use remove nothing that counts",
		func(f *fixture) {
			sw := f.sweeper()
			now := f.storeNow()
			old := f.limiter("old", bucket(1, s))
			f.now = now.Add(-days)
			for i := range 100 {
				f.passes(old, fmt.Sprint(i), 1)
			}
			f.now = now.Add(time.Hour)
			var stop atomic.Bool
			var sweeping sync.WaitGroup
			sweeping.Go(func() {
				for !stop.Load() {
					if _, err := sw.Sweep(context.Background(), 10); err != nil {
						f.Errorf("Sweep: %v", err)
						return
					}
				}
			})
			for name, p := range plain(50, time.Hour, days) {
				f.mixed(f.limiter(name, p))
			}
			stop.Store(true)
			sweeping.Wait()
		},
	},
}
