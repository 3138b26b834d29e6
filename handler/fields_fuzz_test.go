package handler_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/memory"
)

// item is one policy, or its state, as an independent parser reads it.
type item struct {
	name   string
	params map[string]int64
}

// parse reads a field as a List of Strings with Integers for parameters.
func parse(t *testing.T, lines []string) (items []item) {
	t.Helper()
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil {
		t.Fatalf("%q is no List: %v", lines, err)
	}
	for _, member := range list {
		read, ok := member.(httpsfv.Item)
		if !ok {
			t.Fatalf("%q has a member that is no Item: %T", lines, member)
		}
		i := item{params: map[string]int64{}}
		if i.name, ok = read.Value.(string); !ok {
			t.Fatalf("%q has an item that is no String: %T", lines, read.Value)
		}
		for _, name := range read.Params.Names() {
			value, _ := read.Params.Get(name)
			if i.params[name], ok = value.(int64); !ok {
				t.Fatalf("%q: %s is no Integer: %T", lines, name, value)
			}
		}
		items = append(items, i)
	}
	return items
}

// FuzzFields checks the fields for any policy and any use of it. An independent parser can read them, and
// they agree with each other. After Retry-After the same request passes. Before t is over, no more than r
// can be used, except in the second to which t is rounded up.
func FuzzFields(f *testing.F) {
	f.Add(false, int64(10), int64(3), int64(time.Second), int64(4), int64(0))
	f.Add(true, int64(10), int64(1), int64(time.Minute), int64(10), int64(time.Second))
	f.Add(false, int64(1), int64(1), int64(time.Microsecond), int64(1), int64(1))
	f.Add(false, int64(1)<<50, int64(1)<<40, int64(time.Hour)*1e3, int64(1)<<40, int64(1)<<40)
	f.Add(true, int64(1)<<60, int64(1), int64(time.Millisecond), int64(1)<<59, int64(1))
	f.Fuzz(func(t *testing.T, window bool, limit, refill, period, cost, pause int64) {
		if limit < 1 || pause < 0 {
			t.Skip()
		}
		// Most of int64 is no policy; most of these are.
		limit, refill, period = 1+limit%(1<<60), 1+(refill&(1<<30-1)), 1+(period&(1<<55-1))
		var policy limiter.Policy = limiter.FixedWindow{Limit: limit, Window: time.Duration(period)}
		if !window {
			limit = 1 + limit%(1<<20)
			policy = limiter.TokenBucket{Capacity: limit, Refill: refill, Interval: time.Duration(period)}
		}
		cost = 1 + (cost&(1<<62-1))%limit
		c := newClock()
		now := func() time.Time { return c.now }
		l, err := limiter.New(memory.New(), "l", policy, limiter.WithClock(now))
		if err != nil {
			t.Skip()
		}
		h := handler.New(l, oneKey, handler.Cost(func(*http.Request) int64 { return cost }))(&nextHandler{})
		for range 3 {
			resp := ask(h)
			checkFields(t, c, l, resp, cost)
			c.add(time.Duration(pause % int64(48*time.Hour)))
		}
	})
}

func checkFields(t *testing.T, c *clock, l *limiter.Limiter, resp reply, cost int64) {
	t.Helper()
	policies, quotas := parse(t, resp.header.Values("RateLimit-Policy")), parse(t, resp.header.Values("RateLimit"))
	if len(policies) != 1 || len(quotas) != 1 || policies[0].name != "l" || quotas[0].name != "l" {
		t.Fatalf("policies %v, quotas %v", policies, quotas)
	}
	q, w, r := policies[0].params["q"], policies[0].params["w"], quotas[0].params["r"]
	length, hasT := quotas[0].params["t"]
	if q < 1 || w < 1 || r < 0 || r > q || hasT && length < 1 || r == 0 && !hasT {
		t.Errorf("q=%d w=%d r=%d t=%d (there: %v)", q, w, r, length, hasT)
	}
	retry, err := strconv.ParseInt(resp.header.Get("Retry-After"), 10, 64)
	switch refused := resp.status == http.StatusTooManyRequests; {
	case refused != (err == nil):
		t.Errorf("status %d with Retry-After %q", resp.status, resp.header.Get("Retry-After"))
	case refused && (retry < 1 || retry < length):
		t.Errorf("Retry-After %d, t=%d", retry, length)
	case refused:
		if res := peekAfter(t, c, l, time.Duration(retry)*time.Second); res.Remaining < cost {
			t.Errorf("after Retry-After of %d s %d are left, of a cost of %d", retry, res.Remaining, cost)
		}
	}
	const largest = 999_999_999_999_999
	if hasT && q < largest {
		if early := peekAfter(t, c, l, time.Duration(length-1)*time.Second); early.Remaining > r {
			t.Errorf("a second before t=%d is over %d are left, more than r=%d", length, early.Remaining, r)
		}
		if then := peekAfter(t, c, l, time.Duration(length)*time.Second); then.Remaining <= r && r < q && resp.status != http.StatusTooManyRequests {
			t.Errorf("after t=%d %d are left, no more than r=%d", length, then.Remaining, r)
		}
	}
}

// peekAfter looks at the key some time from now.
func peekAfter(t *testing.T, c *clock, l *limiter.Limiter, d time.Duration) limiter.Result {
	t.Helper()
	was := c.now
	defer func() { c.now = was }()
	c.add(d)
	res, err := l.Peek(t.Context(), "everybody")
	must(t, err)
	return res
}
