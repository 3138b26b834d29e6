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
	"github.com/sqlimit/limiter/middleware"
)

// The fields in the form in which http.Header holds them.
const (
	policyField = "Ratelimit-Policy"
	quotaField  = "Ratelimit"
	exposeField = "Access-Control-Expose-Headers"
)

// maxInteger is the largest Integer of a Structured Field, RFC 9651, section 3.3.1.
const maxInteger = 999_999_999_999_999

// fields writes the items of one policy in the header fields.
type fields struct {
	name   string // as a String of a Structured Field
	policy string // its item of RateLimit-Policy
	step   time.Duration
	edge   func(time.Time) time.Time // the nearest instant at which a window ends; nil for other policies
	slides bool                      // what was taken comes back in parts, at times that only a refusal tells
	legacy *legacy
}

// newFields returns the fields of a limiter with the policy p. It reports false if p is none.
func newFields(name, quoted string, p limiter.Policy, withLegacy bool) (fields, bool) {
	f := fields{name: quoted}
	var buf [128]byte
	item := append(buf[:0], quoted...)
	quota := func(q int64, w time.Duration) {
		item = append(item, ";q="...)
		item = strconv.AppendInt(item, min(q, maxInteger), 10)
		if w > 0 {
			item = append(item, ";w="...)
			item = appendSeconds(item, w)
		}
	}
	switch p := p.(type) {
	case limiter.TokenBucket:
		f.step = p.Step()
		quota(p.Capacity, fillTime(p))
	case limiter.FixedWindow:
		f.edge = func(t time.Time) time.Time {
			ns, window := t.UnixNano(), int64(p.Window)
			return time.Unix(0, (ns+window/2)/window*window)
		}
		quota(p.Limit, p.Window)
	case limiter.SlidingWindow:
		f.slides = true
		quota(p.Limit, p.Window)
	case limiter.CalendarWindow:
		f.edge = func(t time.Time) time.Time {
			start, end := p.Span(t)
			if t.Sub(start) < end.Sub(t) {
				return start
			}
			return end
		}
		quota(p.Limit, 0) // the periods differ in length
	default:
		return fields{}, false
	}
	f.policy = string(item)
	if withLegacy {
		f.legacy = &legacy{resource: name, bucket: f.step > 0, edge: f.edge}
	}
	return f, true
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

// findFields sets the fields of each rule: those of the policy that decided, which may be another one
// than the limiter's own. These are prepared. Others are made for the request.
func (d *decision) findFields(m *limit) {
	if d.fields = d.one[:]; len(d.Results) > 1 {
		d.fields = make([]*fields, len(d.Results))
	}
	for i := range d.Results {
		p, own := &d.Results[i].Result, &m.own[i]
		d.fields[i] = &own.fields
		if p.Policy == nil || p.Policy == own.policy {
			continue
		}
		if f, ok := newFields(own.limiter, own.name, p.Policy, m.legacy); ok {
			d.fields[i] = &f
		}
	}
}

// setFields adds what d says to a response's header.
func (m *limit) setFields(h http.Header, d *decision) {
	policies := m.policies
	var buf [128]byte
	quotas := buf[:0]
	for i, f := range d.fields {
		if f != &m.own[i].fields {
			policies = "" // not the prepared ones
		}
		if p := &d.Results[i]; knowsQuota(p) {
			if len(quotas) > 0 {
				quotas = append(quotas, ", "...)
			}
			quotas = f.appendQuota(quotas, &p.Result)
		}
	}
	if policies == "" {
		policies = policiesOf(d.fields)
	}
	// One allocation for both lines; neither can grow into the other.
	lines := []string{join(h[policyField], policies), ""}
	h[policyField] = lines[0:1:1]
	if len(quotas) > 0 {
		lines[1] = join(h[quotaField], string(quotas))
		h[quotaField] = lines[1:2:2]
	}
	if b, f := &d.Results[d.Binding], d.fields[d.Binding]; f.legacy != nil && knowsQuota(b) {
		f.legacy.set(h, &b.Result)
	}
}

// knowsQuota reports whether the state of the key is known. A failure policy knows none.
func knowsQuota(p *middleware.RuleResult) bool {
	return p.Asked && p.Result.Source != limiter.SourcePolicy
}

// policiesOf returns the items of RateLimit-Policy.
func policiesOf(all []*fields) string {
	if len(all) == 1 {
		return all[0].policy
	}
	items := make([]string, len(all))
	for i, f := range all {
		items[i] = f.policy
	}
	return strings.Join(items, ", ")
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
