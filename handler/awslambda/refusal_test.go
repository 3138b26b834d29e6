package awslambda_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/internal/testenv"
)

func TestRefusalsOfEveryGateway(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		rules    func() []handler.Rule
		policies string
		quotas   [3]string // the third request is refused, and charged to no limiter
		violated string
	}{
		{
			"one limiter", func() []handler.Rule { return oneRule(t, 2) },
			`"orders";q=2;w=3600`,
			[3]string{`"orders";r=1;t=1800`, `"orders";r=0;t=1800`, `"orders";r=0;t=1800`},
			"orders",
		},
		{
			"two limiters", func() []handler.Rule { return newRules(t) },
			`"burst";q=2;w=3600, "hour";q=3;w=3600`,
			[3]string{`"burst";r=1;t=1800, "hour";r=2;t=3600`, `"burst";r=0;t=1800, "hour";r=1;t=3600`, `"burst";r=0;t=1800, "hour";r=1;t=3600`},
			"burst",
		},
	} {
		for _, g := range gateways() {
			for way, h := range limited(&g, tt.rules) {
				t.Run(tt.name+"/"+g.name+"/"+way, func(t *testing.T) {
					t.Parallel()
					for i, quota := range tt.quotas {
						a := g.send(t, h, request(t, "POST", "/orders", ""))
						status, want := http.StatusOK, map[string]string{"RateLimit-Policy": tt.policies, "RateLimit": quota, "X-Own": "yes", "Retry-After": ""}
						if i == 2 {
							status, want["X-Own"], want["Retry-After"] = http.StatusTooManyRequests, "", "1800"
							want["Cache-Control"], want["Content-Type"] = "no-store", "application/problem+json"
						}
						if a.status != status {
							t.Fatalf("request %d: %+v, want %d", i, a, status)
						}
						for name, want := range want {
							if got := strings.Join(a.header.Values(name), ", "); got != want {
								t.Errorf("request %d: %s: %s, want %s", i, name, got, want)
							}
						}
						if i < 2 {
							continue
						}
						var problem struct {
							Type     string   `json:"type"`
							Status   int      `json:"status"`
							Violated []string `json:"violated-policies"`
						}
						must(t, json.Unmarshal([]byte(a.body), &problem))
						if !strings.HasSuffix(problem.Type, "#quota-exceeded") || problem.Status != 429 || !slices.Equal(problem.Violated, []string{tt.violated}) {
							t.Errorf("the problem is %s", a.body)
						}
					}
				})
			}
		}
	}
}

func TestNoHeaderChangesTheKey(t *testing.T) {
	t.Parallel()
	for _, g := range gateways() {
		for way, h := range limited(&g, func() []handler.Rule { return oneRule(t, 1) }) {
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
