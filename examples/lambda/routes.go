package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/examples/lambda/page"
	"github.com/sqlimit/limiter/handler"
)

// routes returns the service, behind its limiters. Those of one route nest: the
// outer one is asked first, and what it charged stays charged if the inner one
// refuses, so that the scarcer quota is inside.
func routes(store Store, client handler.KeyFunc, policies map[string]limiter.Policy) (http.Handler, error) {
	limiters, err := newLimiters(store, policies)
	if err != nil {
		return nil, err
	}
	limit := func(name string, key handler.KeyFunc, opts ...handler.Option) func(http.Handler) http.Handler {
		return handler.New(limiters[name], key, append(opts, handler.OnError(logError))...)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", limit("page", client)(page.Handler()))
	mux.Handle("GET /search", limit("search", client)(http.HandlerFunc(search)))
	mux.Handle("POST /export",
		limit("export-burst", client)(limit("export-day", client)(http.HandlerFunc(export))))
	// By address first, so that one client cannot try many accounts, then by account,
	// so that many clients cannot try one. Only failures count: nobody is locked out for
	// logging in often.
	mux.Handle("POST /login", http.MaxBytesHandler(
		limit("login-address", client, handler.ChargeFailures())(
			limit("login-account", account, handler.ChargeFailures(), handler.HideQuota())(http.HandlerFunc(login))), maxForm))

	// What the caller has left: nothing is charged, and the headers are the answer.
	look := http.Handler(status(http.StatusNoContent))
	for _, name := range slices.Backward(byAddress) {
		look = limit(name, client, handler.Cost(func(*http.Request) int64 { return 0 }))(look)
	}
	// To look costs reads of the database, and has a limit that is not shown: what it
	// would show is how often the page looks.
	mux.Handle("GET /limits", limit("limits", client, handler.HideQuota())(look))

	// Not /healthz, which Cloud Run answers itself. Probes have no address to be
	// limited by.
	mux.Handle("GET /health", health(store))
	return mux, nil
}

// logError logs why there was no decision. Requests without a key may be a client's
// affair, and could fill the log; but if it is TRUSTED_HOPS that is wrong, all have none:
// the first is logged.
func logError(r *http.Request, err error) {
	report := func() {
		slog.ErrorContext(r.Context(), "no decision", "route", r.Pattern, "error", err)
	}
	if errors.Is(err, handler.ErrNoKey) {
		firstWithoutKey.Do(report)
		return
	}
	report()
}

var firstWithoutKey sync.Once

func search(w http.ResponseWriter, r *http.Request) {
	answer(w, http.StatusOK, map[string]any{"query": r.FormValue("q"), "found": []string{}})
}

func export(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{"rows": 0})
}

// answer sends value as JSON.
func answer(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value) // who has gone does not read it
}

// status answers with a status and nothing else.
func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// healthTimeout is how long a database that is well needs at most to say so.
const healthTimeout = 2 * time.Second

func health(store Store) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
		defer cancel()
		if err := store.Check(ctx); err != nil {
			slog.ErrorContext(ctx, "not healthy", "error", err)
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}
