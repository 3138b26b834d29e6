package spending

import (
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
)

const ttl = 200 * time.Millisecond

func ms(n int64) int64 { return 1e18 + n*int64(time.Millisecond) }

func took(at, tokens int64) Event { return Event{From: ms(at), To: ms(at + 1), Tokens: tokens} }

func spent(from, to, tokens int64) Event {
	return Event{Source: limiter.SourceStore, From: ms(from), To: ms(to), Tokens: tokens}
}

func TestEachFaultIsSeen(t *testing.T) {
	p := limiter.TokenBucket{Capacity: 100, Refill: 100, Interval: time.Second}
	for what, c := range map[string]struct {
		events      []Event
		over, stale int64
	}{
		"nothing":                             {},
		"all that may pass at once":           {[]Event{took(0, 121), spent(1, 2, 121)}, 0, 0},
		"one more at once":                    {[]Event{took(0, 122), spent(1, 2, 122)}, 1, 0},
		"all that may pass in 1.01 s":         {[]Event{took(0, 121), spent(1, 2, 121), took(900, 100), spent(1001, 1002, 100)}, 0, 0},
		"one more in 1.01 s":                  {[]Event{took(0, 121), spent(1, 2, 121), took(900, 101), spent(1001, 1002, 101)}, 1, 0},
		"requests that last":                  {[]Event{took(0, 121), spent(1, 2, 121), took(2, 90), spent(2, 3000, 90)}, 0, 0},
		"spent before it was taken":           {[]Event{spent(1, 2, 1), took(50, 1)}, 0, 1},
		"spent within the ttl":                {[]Event{took(0, 1), spent(199, 200, 1)}, 0, 0},
		"spent after the ttl":                 {[]Event{took(0, 2), spent(211, 212, 1)}, 0, 1},
		"spent after the ttl, and a new take": {[]Event{took(0, 2), spent(211, 212, 2), took(250, 9)}, 0, 2},
		"after the ttl by FailOpen":           {[]Event{took(0, 1), {limiter.SourcePolicy, ms(211), ms(212), 1}}, 0, 0},
	} {
		t.Run(what, func(t *testing.T) {
			testenv.Equal(t, [2]int64{Over(p, ttl, c.events), Stale(ttl, c.events)}, [2]int64{c.over, c.stale}, "over and stale")
		})
	}
	testenv.Equal(t, Sum([]Event{spent(1, 2, 3), spent(2, 3, 4), took(4, 5)}, limiter.SourceStore, ms(2)), 4, "the sum")
}
