package main

import (
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/sqlimit/limiter"
)

// perClient is what each client may do.
var perClient = limiter.TokenBucket{Capacity: 10, Refill: 1, Interval: time.Second}

// newHandler returns a service that asks the limiter before it answers.
func newHandler(store limiter.Store) (http.Handler, error) {
	clients, err := limiter.New(store, "client", perClient)
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, err := clientKey(r.RemoteAddr)
		if err != nil {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		res, err := clients.Allow(r.Context(), key)
		switch {
		case err != nil:
			slog.Error("no decision", "error", err)
			w.Header().Set("Retry-After", "1")
			http.Error(w, "try again later", http.StatusServiceUnavailable)
		case !res.Allowed:
			w.Header().Set("Retry-After", strconv.Itoa(seconds(res.RetryAfter)))
			http.Error(w, "too many requests", http.StatusTooManyRequests)
		default:
			_, _ = fmt.Fprintf(w, "hello; %d of %d requests left\n", res.Remaining, res.Limit)
		}
	}), nil
}

// clientKey is what a client is limited by: its address, or for IPv6 the /64,
// all of which is one customer's.
func clientKey(remote string) (string, error) {
	peer, err := netip.ParseAddrPort(remote)
	if err != nil {
		return "", err
	}
	addr := peer.Addr().Unmap().WithZone("")
	if addr.Is4() {
		return addr.String(), nil
	}
	prefix, err := addr.Prefix(64)
	return prefix.String(), err
}

// seconds rounds a wait up to the whole seconds that the header speaks of.
func seconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }
