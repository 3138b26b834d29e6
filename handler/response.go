package handler

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/sqlimit/limiter/middleware"
)

// problem is a problem document (RFC 9457) with the draft's extension.
type problem struct {
	Type     string   `json:"type,omitempty"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail,omitempty"`
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

// refuse responds to a refused request that can pass after wait, or in a dry run only reports it.
func (m *limit) refuse(w http.ResponseWriter, r *http.Request, next http.Handler, d *decision, wait time.Duration) {
	if m.onRefusal != nil {
		m.onRefusal(r, d.Result)
	}
	if m.dryRun {
		next.ServeHTTP(w, r)
		return
	}
	h := w.Header()
	h.Set("Retry-After", retryAfter(d, wait))
	h.Set("Cache-Control", "no-store")
	if m.refusal != nil {
		m.refusal.ServeHTTP(w, r)
		return
	}
	body := m.problem
	if body == nil {
		body = quotaExceeded(d.Violated())
	}
	write(w, http.StatusTooManyRequests, body)
}

// retryNoDecision is the Retry-After of a response without a decision. It spares a database that
// comes back the clients that would retry at once.
const retryNoDecision = time.Second

// noDecision responds to a request without a decision, or lets it pass if an option says so.
func (m *limit) noDecision(w http.ResponseWriter, r *http.Request, next http.Handler, d *decision, err error) {
	m.report(r, err)
	if d.none = m.dryRun; d.none || m.failOpen && d.Pass(err) {
		pass(w, r, next, d)
		return
	}
	cause := middleware.CauseOf(err)
	status := statusOf(cause)
	p := problem{Title: http.StatusText(status), Status: status, Detail: cause.String()}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	if status == http.StatusServiceUnavailable {
		p.Type, p.Title = typeReducedCapacity, "Request cannot be satisfied due to temporary server capacity constraints"
		h.Set("Retry-After", retryAfter(r.Context(), retryNoDecision))
	}
	write(w, status, p.body())
}

func write(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // who has gone does not read it
}
