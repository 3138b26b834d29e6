package handler_test

import (
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
)

// named is a limiter with another name.
type named struct {
	*fixedLimiter
	name string
}

func (n named) Name() string { return n.name }

func TestFieldItems(t *testing.T) {
	t.Parallel()
	used := limiter.Result{Allowed: true, Limit: 10, Remaining: 9, ResetAfter: time.Second, Source: limiter.SourceStore}
	chosen := used
	chosen.Policy = limiter.PerMinute(20)
	for _, test := range []struct {
		what, name    string
		result        limiter.Result
		policy, quota string
	}{
		{"a decision", "a-Z_0.9:/x", used, `"a-Z_0.9:/x";q=10;w=1`, `"a-Z_0.9:/x";r=9;t=1`},
		{"a name that must be escaped", `say "\n"`, used, `"say \"\\n\"";q=10;w=1`, `"say \"\\n\"";r=9;t=1`},
		{"a limiter that was not asked", "l", limiter.Result{}, `"l";q=10;w=1`, ""},
		{"a failure policy", "l", limiter.Result{Allowed: true, Source: limiter.SourcePolicy}, `"l";q=10;w=1`, ""},
		{"the policy that decided", "l", chosen, `"l";q=20;w=60`, `"l";r=9;t=1`},
	} {
		l := named{&fixedLimiter{}, test.name}
		if policy, quota := handler.FieldItems(l, test.result); policy != test.policy || quota != test.quota {
			t.Errorf("%s: %s and %s, want %s and %s", test.what, policy, quota, test.policy, test.quota)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("FieldItems of a limiter without a policy does not panic")
		}
	}()
	handler.FieldItems(noPolicy{}, used)
}

func TestRetryAfterIsRoundedUp(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]string{-1: "1", 0: "1", 1: "1", time.Second: "1", time.Second + 1: "2"} {
		if got := handler.RetryAfter(wait); got != want {
			t.Errorf("RetryAfter(%v) = %s, want %s", wait, got, want)
		}
	}
}
