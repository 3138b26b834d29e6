package main

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

const (
	// healthTimeout bounds one check of the database.
	healthTimeout = 2 * time.Second
	// healthMaxAge is how long GET /health repeats the result of a check. An instance
	// checks the database at most once a second, however many requests arrive.
	healthMaxAge = time.Second
)

// instant is a reading of both local clocks. The monotonic clock may stand still while
// the process is frozen, and the wall clock may be set.
type instant struct{ wall, mono time.Duration }

var processStart = time.Now()

// readClocks reads the clocks of this process.
func readClocks() instant {
	now := time.Now()
	return instant{time.Duration(now.UnixNano()), now.Sub(processStart)}
}

// within reports whether now is less than d after then on both clocks. It reports false
// if the wall clock went back.
func (now instant) within(d time.Duration, then instant) bool {
	return now.wall >= then.wall && max(now.wall-then.wall, now.mono-then.mono) < d
}

// health returns the handler of GET /health. It sends 204 if the store passes its check,
// and 503 otherwise. Concurrent requests share one check. It logs the first of consecutive failures.
func health(store Store, clock func() instant) http.HandlerFunc {
	var (
		mu      sync.Mutex // held during a check: the other requests wait for its result
		checked instant    // when err was found
		known   bool       // whether there was a check
		err     error
	)
	return func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if !known || !clock().within(healthMaxAge, checked) {
			// The result is for all requests, so this client cannot cancel the check.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), healthTimeout)
			defer cancel()
			failedBefore := err != nil
			if err = store.Check(ctx); err != nil && !failedBefore {
				slog.ErrorContext(ctx, "health check failed", "error", err)
			}
			checked, known = clock(), true
		}
		if err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}
