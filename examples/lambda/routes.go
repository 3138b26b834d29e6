package main

import (
	"encoding/json"
	"net/http"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/examples/lambda/page"
	"github.com/sqlimit/limiter/handler"
)

// routes returns the handler of all routes, behind their limiters. A route with two limits asks for
// one decision: a request that either limit refuses is charged to neither. The middleware logs why there
// was no decision, at most once a minute for each route and cause.
func routes(store Store, client handler.KeyFunc, policies map[string]limiter.Policy) (http.Handler, error) {
	limiters, err := newLimiters(store, policies)
	if err != nil {
		return nil, err
	}
	limit := func(name string, opts ...handler.Option) func(http.Handler) http.Handler {
		return handler.New(limiters[name], client, opts...)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", page.Explain(limit("page")(page.Handler())))
	mux.Handle("GET /search", limit("search")(http.HandlerFunc(search)))
	mux.Handle("POST /export", handler.NewAll([]handler.Rule{
		{Limiter: limiters["export-burst"], Key: client},
		{Limiter: limiters["export-day"], Key: client},
	})(http.HandlerFunc(export)))
	// The limit by address stops one client from trying many accounts. The limit by account
	// stops many clients from trying one. Both charge failures only, so frequent logins are
	// not refused. Both are hidden, because the quota of an account is not its callers' own.
	mux.Handle("POST /login", handler.NewAll([]handler.Rule{
		{Limiter: limiters["login-address"], Key: client},
		{Limiter: limiters["login-account"], Key: account},
	}, handler.ChargeFailures(), handler.HideQuota())(http.HandlerFunc(login)))

	// GET /limits sends the client's quotas in the headers, and charges none of them. It reads
	// the database once for each limit, so it has a limit of its own. That one is hidden,
	// because it would show only how often the page polls.
	var look []handler.Rule
	for _, name := range byAddress {
		look = append(look, handler.Rule{Limiter: limiters[name], Key: client, Cost: free})
	}
	mux.Handle("GET /limits", limit("limits", handler.HideQuota())(
		handler.NewAll(look)(status(http.StatusNoContent))))

	// Cloud Run reserves /healthz. A probe has no address, so /health has no limit.
	mux.Handle("GET /health", health(store, readClocks))
	return http.MaxBytesHandler(mux, maxBody), nil
}

// maxBody is the longest body of a request, in bytes. A login needs less, and the other
// routes read no body. Without a limit a client could fill the memory and /tmp.
const maxBody = 4 << 10

// free is the cost of a request that is charged to no limit.
func free(*http.Request) int64 { return 0 }

// search reads the query only: FormValue would also read a body.
func search(w http.ResponseWriter, r *http.Request) {
	answer(w, http.StatusOK, map[string]any{"query": r.URL.Query().Get("q"), "found": []string{}})
}

func export(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{"rows": 0})
}

// answer sends value as JSON.
func answer(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value) // an error means that the client has left
}

// status returns a handler that sends a status without a body.
func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}
