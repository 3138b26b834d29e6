package awslambda_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"testing"

	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/internal/testenv"
)

// A limited handler and a limited function respond as the limited handler does on a server.
func TestRefusalsOfEveryGateway(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string]func() []handler.Rule{
		"one limiter":  func() []handler.Rule { return oneRule(t, 2) },
		"two limiters": func() []handler.Rule { return newRules(t) },
	} {
		for _, g := range gateways() {
			for way, h := range limited(&g, rules) {
				t.Run(name+"/"+g.name+"/"+way, func(t *testing.T) {
					server := limitedHandler(rules())
					for i, status := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
						want := serverReply(t, server, request(t, "POST", "/orders", "")).comparable()
						if got := g.send(t, h, request(t, "POST", "/orders", "")).comparable(); want.status != status || !reflect.DeepEqual(got, want) {
							t.Errorf("request %d\n%v\non a server\n%v", i, got, want)
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
				equal(t, g.send(t, h, r).status, want, g.name, way, spoofed)
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
	equal(t, log.String(), "", "the log of ClientIP")
}
