package handler

import (
	"math"
	"math/bits"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sqlimit/limiter"
)

// The fields in the form in which http.Header holds them.
const (
	policyField = "Ratelimit-Policy"
	quotaField  = "Ratelimit"
	exposeField = "Access-Control-Expose-Headers"
)

// maxInteger is the largest Integer of a Structured Field, RFC 9651, section 3.3.1.
const maxInteger = 999_999_999_999_999

// fields writes one limiter's part of the header fields.
type fields struct {
	name   string // as a String of a Structured Field
	policy string // its item of RateLimit-Policy
	step   time.Duration
	window time.Duration
	legacy *legacy
}

func newFields(name string, p limiter.Policy, withLegacy bool) fields {
	f := fields{name: quote(name)}
	item := []byte(f.name)
	quota := func(q int64, w time.Duration) {
		item = append(item, ";q="...)
		item = strconv.AppendInt(item, min(q, maxInteger), 10)
		item = append(item, ";w="...)
		item = appendSeconds(item, w)
	}
	switch p := p.(type) {
	case limiter.TokenBucket:
		f.step = p.Step()
		quota(p.Capacity, fillTime(p))
	case limiter.FixedWindow:
		f.window = p.Window
		quota(p.Limit, p.Window)
	default:
		panic("handler: the limiter has no policy; pass what limiter.New returned")
	}
	f.policy = string(item)
	if withLegacy {
		f.legacy = &legacy{resource: name, window: f.window, now: time.Now}
	}
	return f
}

// fillTime returns how long an empty bucket takes to fill. The sum of its steps,
// each rounded up to the nanosecond, would make two seconds of 9 tokens a second.
func fillTime(b limiter.TokenBucket) time.Duration {
	if b.Step() <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(b.Capacity), uint64(b.Interval))
	if hi >= uint64(b.Refill) {
		return math.MaxInt64
	}
	ns, _ := bits.Div64(hi, lo, uint64(b.Refill))
	return time.Duration(min(ns, math.MaxInt64))
}

// set adds what res says to a response's header.
func (f *fields) set(h http.Header, res *limiter.Result) {
	// One allocation for both lines; neither can grow into the other.
	lines := []string{join(h[policyField], f.policy), ""}
	h[policyField] = lines[0:1:1]
	if res.Source != limiter.SourcePolicy { // which knows no quota
		var buf [128]byte
		lines[1] = join(h[quotaField], string(f.appendQuota(buf[:0], res)))
		h[quotaField] = lines[1:2:2]
		if f.legacy != nil {
			f.legacy.set(h, res)
		}
	}
}

// exposed returns the names of the fields that an answer may have.
func exposed(hidden, withLegacy bool) string {
	switch {
	case hidden:
		return "Retry-After"
	case withLegacy:
		return "RateLimit-Policy, RateLimit, Retry-After, " + legacyNames
	}
	return "RateLimit-Policy, RateLimit, Retry-After"
}

// exposeTo lets scripts of other origins read fields. Nested limiters may have done so already.
func exposeTo(h http.Header, names string) {
	if !slices.Contains(h[exposeField], names) {
		h.Add(exposeField, names)
	}
}

// join appends an item to a list that nested limiters share.
func join(lines []string, item string) string {
	if len(lines) == 0 {
		return item
	}
	return strings.Join(lines, ", ") + ", " + item
}

// appendQuota appends the item of RateLimit: the name and r. If the quota is not whole, it also
// appends t.
func (f *fields) appendQuota(b []byte, res *limiter.Result) []byte {
	b = append(b, f.name...)
	b = append(b, ";r="...)
	b = strconv.AppendInt(b, min(res.Remaining, maxInteger), 10)
	if t := f.effectiveWindow(res); t > 0 {
		b = append(b, ";t="...)
		b = strconv.AppendInt(b, t, 10)
	}
	return b
}
