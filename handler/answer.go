package handler

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/sqlimit/limiter"
)

// problem is a problem document (RFC 9457) with the draft's extension.
type problem struct {
	Type     string   `json:"type,omitempty"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Violated []string `json:"violated-policies,omitempty"`
}

// Problem types of draft-ietf-httpapi-ratelimit-headers-11, section 5.
const (
	typeQuotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	typeReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

func (p problem) body() []byte {
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings and a number
	}
	return append(body, '\n')
}

// quotaExceeded is the body of a refusal by the policies with these names. Hidden policies have no
// names.
func quotaExceeded(names []string) []byte {
	return problem{
		Type:     typeQuotaExceeded,
		Title:    "Request cannot be satisfied as assigned quota has been exceeded",
		Status:   http.StatusTooManyRequests,
		Violated: names,
	}.body()
}

// violated returns the names of the policies that had no room.
func (d *decision) violated() (names []string) {
	for i := range d.parts {
		if p := &d.parts[i]; p.result != nil && !p.result.Allowed {
			names = append(names, p.rule.name)
		}
	}
	return names
}

// refuse answers a refused request, or in a dry run only reports it.
func (m *middleware) refuse(w http.ResponseWriter, r *http.Request, next http.Handler, d *decision) {
	if m.onRefusal != nil {
		m.onRefusal(r, d.result)
	}
	if m.dryRun {
		next.ServeHTTP(w, r)
		return
	}
	h := w.Header()
	h.Set("Retry-After", retryAfter(d, d.result.RetryAfter))
	h.Set("Cache-Control", "no-store")
	if m.refusal != nil {
		m.refusal.ServeHTTP(w, r)
		return
	}
	body := m.problem
	if body == nil {
		body = quotaExceeded(d.violated())
	}
	write(w, http.StatusTooManyRequests, body)
}

// retryUndecided is the Retry-After of an answer without a decision. It spares a database that
// comes back the clients that would retry at once.
const retryUndecided = time.Second

// undecided answers a request without a decision, or lets it pass if an option says so.
func (m *middleware) undecided(w http.ResponseWriter, r *http.Request, next http.Handler, err error, status int) {
	m.report(r, err)
	if m.dryRun {
		pass(w, r, next, &decision{Context: r.Context(), none: true})
		return
	}
	if m.failOpen && !errors.Is(err, ErrNoKey) && limiter.StoreFailed(err) {
		passed := limiter.Result{Allowed: true, Source: limiter.SourcePolicy}
		pass(w, r, next, &decision{Context: r.Context(), result: passed})
		return
	}
	p := problem{Title: http.StatusText(status), Status: status}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	if status == http.StatusServiceUnavailable {
		p.Type, p.Title = typeReducedCapacity, "Request cannot be satisfied due to temporary server capacity constraints"
		h.Set("Retry-After", retryAfter(r.Context(), retryUndecided))
	}
	write(w, status, p.body())
}

func write(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // who has gone does not read it
}
