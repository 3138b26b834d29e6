package limiter_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

func TestDenyCacheSize(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 2, 63, 1000} {
		d := newDenying(t, limiter.PerDay(1), limiter.WithDenyCache(size, time.Minute), fixed())
		refuse := func(n int) {
			for i := range n {
				d.expect(strconv.Itoa(i), 1, true, store)
				d.expect(strconv.Itoa(i), 1, false, store)
				d.expect(strconv.Itoa(i), 1, false, cache) // the latest is kept, always
			}
		}
		refuse(size)
		for i := range size { // and all of them, if they fit
			d.expect(strconv.Itoa(i), 1, false, cache)
		}
		for i := range 3 * size {
			must(t, d.Reset(t.Context(), strconv.Itoa(i)))
		}
		if counted, held := d.DenyCounts(); counted != 0 || held != 0 {
			t.Errorf("size %d: %d keys, %d counted, after all were reset", size, held, counted)
		}
		refuse(3 * size)
		if counted, held := d.DenyCounts(); counted != size || held != size {
			t.Errorf("size %d: %d keys, %d counted", size, held, counted)
		}
	}
}

func TestDenyCacheConcurrently(t *testing.T) {
	t.Parallel()
	p := limiter.TokenBucket{Capacity: 3, Refill: 1, Interval: 100 * time.Microsecond}
	d := newDenying(t, p, limiter.WithDenyCache(20, time.Second))
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range 3_000 {
				key := strconv.Itoa((i*7 + w) % 50)
				r, err := d.Reserve(context.Background(), key, int64(1+i%3), time.Duration(i%2)*time.Millisecond)
				if err != nil {
					t.Errorf("Reserve: %v", err)
				}
				switch i % 17 {
				case 0:
					_, err = d.Refund(context.Background(), key, 1)
				case 1:
					err = d.Reset(context.Background(), key)
				default:
					err = r.Cancel(context.Background())
				}
				if err != nil {
					t.Errorf("giving back: %v", err)
				}
				if counted, _ := d.DenyCounts(); counted > 20 || counted < 0 {
					t.Errorf("%d keys are held", counted)
				}
			}
		})
	}
	all.Wait()
	if counted, held := d.DenyCounts(); counted != held {
		t.Errorf("%d keys are held, %d counted", held, counted)
	}
}
