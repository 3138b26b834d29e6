package handler

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/sqlimit/limiter"
)

// problem is a problem document, RFC 9457, with the extension that the draft adds.
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

// quotaExceeded is the body of a refusal. It does not name a policy that is hidden.
func quotaExceeded(name string, hide bool) []byte {
	p := problem{
		Type:   typeQuotaExceeded,
		Title:  "Request cannot be satisfied as assigned quota has been exceeded",
		Status: http.StatusTooManyRequests,
	}
	if !hide {
		p.Violated = []string{name}
	}
	return p.body()
}

// refuse answers a refused request, or in a dry run only reports it.
func (m *middleware) refuse(w http.ResponseWriter, r *http.Request, next http.Handler, res *limiter.Result) {
	if m.onRefusal != nil {
		m.onRefusal(r, *res)
	}
	if m.dryRun {
		next.ServeHTTP(w, r)
		return
	}
	h := w.Header()
	h.Set("Retry-After", strconv.FormatInt(atLeastOne(res.RetryAfter), 10))
	h.Set("Cache-Control", "no-store")
	if m.refusal != nil {
		m.refusal.ServeHTTP(w, r)
		return
	}
	write(w, http.StatusTooManyRequests, m.problem)
}

// retryUndecided is the Retry-After, in seconds, of an answer without a decision.
// When a database comes back nobody knows; a second spares it a hurried crowd.
const retryUndecided = "1"

// undecided answers a request that there is no decision on, or lets it pass if an
// option says so.
func (m *middleware) undecided(w http.ResponseWriter, r *http.Request, next http.Handler, err error, status int) {
	if m.onError != nil {
		m.onError(r, err)
	}
	if m.dryRun {
		next.ServeHTTP(w, r.WithContext(&decision{Context: r.Context(), none: true}))
		return
	}
	if m.failOpen && !errors.Is(err, ErrNoKey) && limiter.StoreFailed(err) {
		passed := limiter.Result{Allowed: true, Source: limiter.SourcePolicy}
		next.ServeHTTP(w, r.WithContext(&decision{Context: r.Context(), result: passed}))
		return
	}
	p := problem{Title: http.StatusText(status), Status: status}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	if status == http.StatusServiceUnavailable {
		p.Type, p.Title = typeReducedCapacity, "Request cannot be satisfied due to temporary server capacity constraints"
		h.Set("Retry-After", retryUndecided)
	}
	write(w, status, p.body())
}

func write(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // who has gone does not read it
}
