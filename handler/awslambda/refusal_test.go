package awslambda_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/internal/testenv"
)

func TestRefusalsOfEveryGateway(t *testing.T) {
	t.Parallel()
	for _, g := range gateways() {
		for _, way := range []string{"handler", "function"} {
			t.Run(g.name+"/"+way, func(t *testing.T) {
				t.Parallel()
				h := limited(&g, newLimiter(t, 2), handler.ClientIP())[way]
				for i := range 2 {
					a := g.send(t, h, request(t, "GET", "/", ""))
					if a.status != http.StatusOK || a.header.Get("X-Own") != "yes" {
						t.Fatalf("request %d: %+v", i, a)
					}
					if got, want := a.header.Get("RateLimit-Policy"), `"orders";q=2;w=3600`; got != want {
						t.Errorf("request %d: RateLimit-Policy: %s, want %s", i, got, want)
					}
					if got, want := a.header.Get("RateLimit"), fmt.Sprintf(`"orders";r=%d;t=`, 1-i); !strings.HasPrefix(got, want) {
						t.Errorf("request %d: RateLimit: %s, want %s...", i, got, want)
					}
				}
				a := g.send(t, h, request(t, "GET", "/", ""))
				if a.status != http.StatusTooManyRequests {
					t.Fatalf("the third request: %+v", a)
				}
				for name, want := range map[string]string{
					"Retry-After":      "1800",
					"Cache-Control":    "no-store",
					"Content-Type":     "application/problem+json",
					"RateLimit-Policy": `"orders";q=2;w=3600`,
					"RateLimit":        `"orders";r=0;t=1800`,
					"X-Own":            "",
				} {
					if got := strings.Join(a.header.Values(name), ", "); got != want {
						t.Errorf("%s: %s, want %s", name, got, want)
					}
				}
				var problem struct {
					Type     string   `json:"type"`
					Status   int      `json:"status"`
					Violated []string `json:"violated-policies"`
				}
				must(t, json.Unmarshal([]byte(a.body), &problem))
				if !strings.HasSuffix(problem.Type, "#quota-exceeded") || problem.Status != 429 || !reflect.DeepEqual(problem.Violated, []string{"orders"}) {
					t.Errorf("the problem is %s", a.body)
				}
			})
		}
	}
}

func TestNoHeaderChangesTheKey(t *testing.T) {
	t.Parallel()
	for _, g := range gateways() {
		for _, way := range []string{"handler", "function"} {
			h := limited(&g, newLimiter(t, 1), handler.ClientIP())[way]
			for i, spoofed := range []http.Header{
				{},
				{"X-Forwarded-For": {"203.0.113.1"}},
				{"X-Forwarded-For": {"203.0.113.1, 203.0.113.2"}},
				{"X-Forwarded-For": {"203.0.113.1", "203.0.113.2"}},
				{"X-Forwarded-For": {"203.0.113.1,"}},
				{"X-Forwarded-For": {""}},
				{"X-Real-Ip": {"203.0.113.1"}, "Forwarded": {"for=203.0.113.1"}, "Cf-Connecting-Ip": {"203.0.113.1"}},
			} {
				r := request(t, "GET", "/", "")
				maps.Copy(r.Header, spoofed)
				want := http.StatusTooManyRequests
				if i == 0 {
					want = http.StatusOK
				}
				if a := g.send(t, h, r); a.status != want {
					t.Errorf("%s, %s: %v got %d, want %d", g.name, way, spoofed, a.status, want)
				}
			}
		}
	}
}

// The attribute routing.http.xff_client_port.enabled adds ports.
func TestALBWithClientPorts(t *testing.T) {
	log := testenv.Logged(t)
	for forwarded, want := range map[string][2]string{ // RemoteAddr and the key
		"203.0.113.1:50000, 192.0.2.1:50001":    {"192.0.2.1", "192.0.2.1"},
		"[2001:db8:1:2::3]:50000":               {"2001:db8:1:2::3", "2001:db8:1:2::/64"},
		"2001:db8:1:2::3":                       {"2001:db8:1:2::3", "2001:db8:1:2::/64"},
		"203.0.113.1:50000, 192.0.2.1:no-port ": {"192.0.2.1:no-port", ""},
	} {
		event := albEvent(request(t, "GET", "/", ""), "", true)
		event["multiValueHeaders"].(map[string][]string)["x-forwarded-for"] = []string{forwarded}
		payload, err := json.Marshal(event)
		must(t, err)
		r, _ := seen(t, payload)
		key, err := handler.ClientIP()(r)
		if r.RemoteAddr != want[0] || key != want[1] || (err == nil) != (key != "") {
			t.Errorf("%s: from %q, with the key %q, %v; want %q", forwarded, r.RemoteAddr, key, err, want)
		}
	}
	if log.Len() > 0 {
		t.Errorf("ClientIP warned of a proxy: %s", log)
	}
}
