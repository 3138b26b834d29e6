package handler

import (
	"strconv"
	"strings"
	"time"

	"github.com/sqlimit/limiter"
)

// effectiveWindow returns the draft's t in seconds: how long no more than what remains can be used.
// That is the time until a bucket gains its next token or a window ends. With the time until the
// quota is whole, clients that spread their requests evenly would slow down for nothing. It is
// rounded up and never longer than Retry-After. It is 0 if nothing has been used, or after a grant that
// leaves something of a sliding window.
func (f *fields) effectiveWindow(res *limiter.Result) int64 {
	t := f.until(res, min(res.Remaining+1, res.Limit))
	if !res.Allowed {
		t = min(t, res.RetryAfter)
	}
	if res.Remaining == 0 {
		t = max(t, 1)
	}
	return seconds(t)
}

// wait returns how long the limiter would make a request of the same cost wait after the
// decision: 0 if it would let it pass at once.
func (f *fields) wait(res *limiter.Result, cost int64) time.Duration {
	switch {
	case !res.Allowed:
		return res.RetryAfter
	case res.Remaining >= cost || res.Source == limiter.SourcePolicy:
		return 0 // the failure policy knows no quota
	}
	return f.until(res, cost)
}

// until returns the time from the decision until n can be used at once. A bucket is full
// after ResetAfter, and has one token less each step before that. A window begins anew. For a sliding
// window it is RetryAfter, which is 0 after a grant.
func (f *fields) until(res *limiter.Result, n int64) time.Duration {
	if f.slides {
		return res.RetryAfter
	}
	return res.ResetAfter - time.Duration(res.Limit-n)*f.step // which is 0 for a window
}

// seconds rounds up, so that no client comes too early.
func seconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}

// appendSeconds appends d in seconds, rounded up and at least 1.
func appendSeconds(b []byte, d time.Duration) []byte {
	return strconv.AppendInt(b, atLeastOne(d), 10)
}

// atLeastOne is what a client can be told to wait: 0 would be no wait.
func atLeastOne(d time.Duration) int64 { return max(1, seconds(d)) }

// quote returns s as a String of a Structured Field, RFC 9651, section 4.1.6.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			panic("handler: the limiter's name has characters that no header can hold; use printable ASCII")
		}
		if s[i] == '"' || s[i] == '\\' {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
	b.WriteByte('"')
	return b.String()
}
