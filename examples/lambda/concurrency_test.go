package main

import (
	"maps"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

// A hundred clients at one address, each with its own connection, send requests at the same
// time, and twenty of them are allowed. A 503 fails the test as a wrong count does.
func TestAHundredClientsAtOnceGetExactlyWhatIsAllowed(t *testing.T) {
	const clients, allowed = 100, 20
	onEach(t, func(t *testing.T, env map[string]string) {
		// Nothing refills while the test runs. The window is 30 years long, and the next
		// one begins in 2029.
		changed := maps.Clone(policies)
		changed["search"] = limiter.TokenBucket{Capacity: allowed, Refill: 1, Interval: 24 * time.Hour}
		changed["export-burst"] = limiter.TokenBucket{Capacity: clients, Refill: 1, Interval: 24 * time.Hour}
		changed["export-day"] = limiter.FixedWindow{Limit: allowed, Window: 262_980 * time.Hour}
		url := start(t, env, changed)

		for _, route := range []struct{ method, path string }{{http.MethodGet, "/search"}, {http.MethodPost, "/export"}} {
			var mu sync.Mutex
			codes := map[int]int{}
			begin := make(chan struct{})
			var wait sync.WaitGroup
			for range clients {
				wait.Go(func() {
					transport := &http.Transport{}
					defer transport.CloseIdleConnections()
					client := &http.Client{Transport: transport, Timeout: testTimeout}
					<-begin
					req, err := http.NewRequestWithContext(t.Context(), route.method, url+route.path, http.NoBody)
					if err != nil {
						t.Error(err)
						return
					}
					resp, err := client.Do(req)
					if err != nil {
						t.Error(err)
						return
					}
					_ = resp.Body.Close()
					mu.Lock()
					defer mu.Unlock()
					codes[resp.StatusCode]++
				})
			}
			close(begin)
			wait.Wait()
			if want := map[int]int{http.StatusOK: allowed, http.StatusTooManyRequests: clients - allowed}; !maps.Equal(codes, want) {
				t.Errorf("%s %s: statuses %v, want %v", route.method, route.path, codes, want)
			}
		}
	})
}
