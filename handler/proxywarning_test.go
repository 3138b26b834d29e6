package handler_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/internal/testenv"
)

func TestClientIPWarnsOfAnUntrustedProxy(t *testing.T) {
	hops := handler.TrustedHops(1)
	proxies := handler.TrustedProxies(netip.MustParsePrefix("10.0.0.0/8"))
	for _, c := range []struct {
		name   string
		key    handler.KeyFunc
		remote string
		header string
		warns  bool
	}{
		{"X-Forwarded-For", handler.ClientIP(), "10.0.0.1:443", "X-Forwarded-For", true},
		{"Forwarded", handler.ClientIP(), "10.0.0.1:443", "Forwarded", true},
		{"IPv6", handler.ClientIP(handler.IPv6Prefix(56)), "[2001:db8::1]:443", "X-Forwarded-For", true},
		{"joined keys", handler.Join(oneKey, handler.ClientIP()), "10.0.0.1:443", "X-Forwarded-For", true},
		{"no proxy", handler.ClientIP(), "192.0.2.1:443", "X-Other", false},
		{"hops are trusted", handler.ClientIP(hops), "10.0.0.1:443", "X-Forwarded-For", false},
		{"a stranger, where proxies are trusted", handler.ClientIP(proxies), "192.0.2.1:443", "X-Forwarded-For", false},
		{"a header is trusted", handler.ClientIP(handler.AddressHeader("X-Real-IP")), "10.0.0.1:443", "X-Real-IP", false},
		{"another key", oneKey, "10.0.0.1:443", "X-Forwarded-For", false},
		// An adapter for Lambda, or middleware in front, has put the client's address there.
		{"an address without a port", handler.ClientIP(), "192.0.2.1", "X-Forwarded-For", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := testenv.Logged(t)
			h := handler.New(newLimiter(t, newClock(), "l", limiter.PerMinute(60)), c.key)(&nextHandler{})
			for range 10 {
				r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
				r.RemoteAddr = c.remote
				r.Header.Set(c.header, "203.0.113.7")
				askBy(h, r)
			}
			text := log.String()
			if lines := strings.Count(text, "\n"); lines > 1 || (lines == 1) != c.warns {
				t.Errorf("%d lines are logged, want a warning: %v: %s", lines, c.warns, text)
			}
			if c.warns && (!strings.Contains(text, "level=WARN") || !strings.Contains(text, c.header) || !strings.Contains(text, "TrustedHops")) {
				t.Errorf("the warning does not say what to do: %s", text)
			}
			if strings.Contains(text, "203.0.113.7") || strings.Contains(text, "10.0.0.1") {
				t.Errorf("the warning holds an address: %s", text)
			}
		})
	}
}
