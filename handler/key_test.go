package handler_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/internal/testenv"
)

// request returns one from the peer with X-Forwarded-For in the lines given.
func request(peer string, forwarded ...string) *http.Request {
	return &http.Request{RemoteAddr: peer, Header: http.Header{"X-Forwarded-For": forwarded}}
}

// noKey stands in tables for an error that matches ErrNoKey.
const noKey = ""

// checkKey checks the key of a request, and that an error tells nothing of what the request says.
func checkKey(t *testing.T, key handler.KeyFunc, r *http.Request, want string) {
	t.Helper()
	got, err := key(r)
	if got != want || (err != nil) != (want == noKey) || err != nil && !errors.Is(err, handler.ErrNoKey) {
		t.Errorf("%q, %q: key %q, error %v; want %q", r.RemoteAddr, r.Header, got, err, want)
	}
	said := []string{r.RemoteAddr}
	for _, lines := range r.Header {
		said = append(said, lines...)
	}
	for _, s := range said {
		if s = strings.Trim(s, " \t"); err != nil && len(s) > 3 && strings.Contains(err.Error(), s) {
			t.Errorf("the error tells what the request said: %v", err)
		}
	}
}

func TestClientIP(t *testing.T) {
	t.Parallel()
	peers := map[string]string{
		"192.0.2.1:1234":              "192.0.2.1",
		"192.0.2.1":                   "192.0.2.1", // adapters for Lambda have no port to give
		"[2001:db8:1:2:3:4:5:6]:1234": "2001:db8:1:2::/64",
		"[2001:db8:1:2:3:4:5:6]":      "2001:db8:1:2::/64",
		"2001:db8:1:2:3:4:5:6":        "2001:db8:1:2::/64",
		"2001:DB8:1:2::F":             "2001:db8:1:2::/64",
		"[::1]:1234":                  "::/64",
		"[fe80::1%eth0]:1234":         "fe80::/64",
		"fe80::1%eth0":                "fe80::/64",
		"[::ffff:192.0.2.1]:1234":     "192.0.2.1",
		"::ffff:192.0.2.1%eth0":       "192.0.2.1",
	}
	for _, peer := range []string{ // "@" is a Unix socket; 01 is octal to some
		"", "@", ":1234", "localhost:1234", "0.0.0.0:1234", "[::]:1234", "::", "::%eth0", "[::ffff:0.0.0.0]:1234",
		"192.0.2.1:http", "192.0.2.1:65536", "192.0.2.1:", "192.0.2.1%eth0", "192.0.2.01:1234", "[192.0.2.1]:1234", "[192.0.2.1]",
		"[2001:db8::1", "[2001:db8::1]1234", "2001:db8:1:2:3:4:5:6:1234", "192.0.2.1, 192.0.2.2", "192.0.2.1\x00",
	} {
		peers[peer] = noKey
	}
	for peer, want := range peers {
		r := request(peer, "203.0.113.9") // what the client writes is not looked at
		r.Header.Set("X-Real-Ip", "203.0.113.9")
		r.Header.Set("Forwarded", "for=203.0.113.9")
		checkKey(t, handler.ClientIP(), r, want)
	}
}

// An address has one key in every notation, and not all of IPv4 falls into one prefix.
func TestMappedAddresses(t *testing.T) {
	t.Parallel()
	key := handler.ClientIP(handler.IPv6Prefix(56))
	for peer, want := range map[string]string{
		"::ffff:1.2.3.4":              "1.2.3.4",
		"::ffff:102:304":              "1.2.3.4",
		"2001:db8:1234:5678::1.2.3.4": "2001:db8:1234:5600::/56",
		"2001:db8:1234:5678::102:304": "2001:db8:1234:5600::/56",
		"64:ff9b::1.2.3.4":            "64:ff9b::/56",
		"::1.2.3.4":                   "::/56",
		"::fffe:1.2.3.4":              "::/56",
		"::1:ffff:1.2.3.4":            "::/56",
	} {
		checkKey(t, key, request(peer), want)
		checkKey(t, key, request("["+peer+"]:443"), want)
	}
}

// A different bit within the prefix is another client; one after it is the same client.
func TestAddressesShareAKeyByPrefix(t *testing.T) {
	t.Parallel()
	addr := netip.MustParseAddr("2001:db8:1111:2222:3333:4444:5555:6666")
	for bits := 32; bits <= 128; bits++ {
		key := handler.ClientIP(handler.IPv6Prefix(bits))
		a, err := key(request(addr.String()))
		must(t, err)
		for bit := range 128 {
			other := addr.As16()
			other[bit/8] ^= 0x80 >> (bit % 8)
			b, err := key(request(netip.AddrPortFrom(netip.AddrFrom16(other), 443).String()))
			must(t, err)
			if same := bit >= bits; same != (a == b) {
				t.Fatalf("IPv6Prefix(%d): keys %q and %q of addresses that differ in bit %d; same key wanted: %t", bits, a, b, bit, same)
			}
		}
	}
}

// It cannot run beside other tests, whose allocations it would count.
func TestKeyCostsOneAllocation(t *testing.T) {
	proxies := handler.TrustedProxies(netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:aaaa::/48"))
	viewed := &http.Request{Header: http.Header{"Cloudfront-Viewer-Address": {"2001:db8:1:2:3:4:5:6:46532"}}}
	for _, c := range []struct {
		name    string
		key     handler.KeyFunc
		request *http.Request
	}{
		{"IPv4", handler.ClientIP(), request("203.0.113.77:65535")},
		{"IPv6", handler.ClientIP(), request("[2001:db8:1111:2222:3333:4444:5555:6666]:65535")},
		{"IPv6Prefix(128)", handler.ClientIP(handler.IPv6Prefix(128)), request("[2001:db8:1111:2222:3333:4444:5555:6666]:65535")},
		{"TrustedProxies", handler.ClientIP(proxies), request("10.0.0.1:443", "1.1.1.1", "203.0.113.77, 10.0.0.2", "2001:db8:aaaa::1")},
		{"TrustedHops", handler.ClientIP(handler.TrustedHops(2)), request("10.0.0.1:443", "1.1.1.1, 203.0.113.77, 35.191.0.1")},
		{"AddressHeader", handler.ClientIP(handler.AddressHeader("CloudFront-Viewer-Address")), viewed},
	} {
		got := testing.AllocsPerRun(1000, func() {
			must(t, testenv.ErrorOf(c.key(c.request)))
		})
		if got > 1 {
			t.Errorf("%s: %v allocations; want the key alone", c.name, got)
		}
	}
}

func TestTrustedHops(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		hops  int
		lines []string
		want  string
	}{
		{"after what the client wrote", 1, []string{"1.1.1.1, 203.0.113.7"}, "203.0.113.7"},
		{"blanks and tabs", 1, []string{"1.1.1.1 ,\t 203.0.113.7 \t"}, "203.0.113.7"},
		{"a line of its own", 1, []string{"1.1.1.1", "203.0.113.7"}, "203.0.113.7"},
		{"a hop that is not the client's is not read", 2, []string{"203.0.113.7, unknown"}, "203.0.113.7"},
		{"the limit", 16, []string{"203.0.113.7" + strings.Repeat(", 10.0.0.1", 15)}, "203.0.113.7"},
		{"no header", 1, nil, noKey},
		{"an empty header", 1, []string{""}, noKey},
		{"fewer elements", 2, []string{"203.0.113.7"}, noKey},
		{"nothing after the client's comma", 1, []string{"1.1.1.1,"}, noKey},
		{"an empty element counts", 2, []string{"1.1.1.1, , 10.0.0.1"}, noKey},
		{"an empty line counts", 1, []string{"1.1.1.1", ""}, noKey},
	} {
		key := handler.ClientIP(handler.TrustedHops(test.hops))
		checkKey(t, key, request("10.0.0.9:1", test.lines...), test.want)
		checkKey(t, key, request("@", test.lines...), test.want) // the peer does not matter
	}
}

func TestTrustedProxies(t *testing.T) {
	t.Parallel()
	prefixes := []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"),
		netip.MustParsePrefix("192.0.2.8/32"),
		netip.MustParsePrefix("2001:db8:aaaa::1/48"), // bits beyond the prefix do not matter
		netip.MustParsePrefix("fe80::/10"),
		netip.MustParsePrefix("::ffff:172.16.0.0/108"), // is 172.16.0.0/12
	}
	key := handler.ClientIP(handler.TrustedProxies(prefixes...))
	prefixes[0] = netip.MustParsePrefix("198.51.100.0/24") // the option has a copy
	for _, test := range []struct {
		name, peer string
		lines      []string
		want       string
	}{
		{"a stranger", "198.51.100.1:1", []string{"1.1.1.1"}, "198.51.100.1"},
		{"a stranger who writes our address", "198.51.100.1:1", []string{"10.0.0.1"}, "198.51.100.1"},
		{"one proxy", "10.0.0.1:1", []string{"203.0.113.7"}, "203.0.113.7"},
		{"what the client wrote", "10.0.0.1:1", []string{"1.1.1.1, 203.0.113.7"}, "203.0.113.7"},
		{"proxies of several prefixes", "192.0.2.8:1", []string{"1.1.1.1, 203.0.113.7, 10.0.0.2,2001:db8:aaaa:9::1"}, "203.0.113.7"},
		{"a peer in a mapped prefix", "172.24.0.1:1", []string{"203.0.113.7"}, "203.0.113.7"},
		{"a peer beside a mapped prefix", "172.15.0.1:1", []string{"203.0.113.7"}, "172.15.0.1"},
		{"a mapped hop", "10.0.0.1:1", []string{"203.0.113.7, ::ffff:a00:2"}, "203.0.113.7"},
		{"a peer with a zone", "[fe80::1%eth0]:1", []string{"203.0.113.7"}, "203.0.113.7"},
		{"all ours", "10.0.0.1:1", []string{"10.0.0.7, 10.0.0.3, 10.0.0.2"}, "10.0.0.7"},
		{"a proxy without a header", "10.0.0.1:1", nil, noKey},
		{"a proxy with an empty header", "10.0.0.1:1", []string{""}, noKey},
		{"a proxy on a Unix socket", "@", []string{"203.0.113.7"}, noKey},
		{"nothing at the client's place", "10.0.0.1:1", []string{"1.1.1.1,"}, noKey},
		{"nothing between proxies", "10.0.0.1:1", []string{"1.1.1.1, , 10.0.0.2"}, noKey},
		{"an empty last line", "10.0.0.1:1", []string{"1.1.1.1", ""}, noKey},
		{"nothing left of all ours", "10.0.0.1:1", []string{", 10.0.0.2"}, noKey},
	} {
		checkKey(t, key, request(test.peer, test.lines...), test.want)
	}
}

func TestAddressHeader(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, header string
		lines        []string
		want         string
	}{
		{"IPv4", "X-Real-IP", []string{"203.0.113.7"}, "203.0.113.7"},
		{"IPv6", "CF-Connecting-IP", []string{"2001:db8:1:2::7"}, "2001:db8:1:2::/64"},
		{"a name in lower case", "cf-connecting-ip", []string{"203.0.113.7"}, "203.0.113.7"},
		{"CloudFront", "CloudFront-Viewer-Address", []string{"203.0.113.7:46532"}, "203.0.113.7"},
		{"CloudFront, IPv6", "CloudFront-Viewer-Address", []string{"2001:db8:1:2:3:4:5:6:46532"}, "2001:db8:1:2::/64"},
		{"CloudFront, short IPv6", "CloudFront-Viewer-Address", []string{"2001:db8::a:b:c:d:4433"}, "2001:db8::/64"},
		{"CloudFront, a port that could be part of it", "CloudFront-Viewer-Address", []string{"2001::b:c:d:e:f:4433"}, "2001:0:0:b::/64"},
		{"CloudFront, brackets", "CloudFront-Viewer-Address", []string{"[2001:db8:1:2::7]:46532"}, "2001:db8:1:2::/64"},
		{"CloudFront, no port", "CloudFront-Viewer-Address", []string{"203.0.113.7"}, "203.0.113.7"},
		{"none", "X-Real-IP", nil, noKey},
		{"empty", "X-Real-IP", []string{""}, noKey},
		{"two lines", "X-Real-IP", []string{"203.0.113.7", "203.0.113.7"}, noKey},
		{"a line and an empty one", "X-Real-IP", []string{"203.0.113.7", ""}, noKey},
		{"CloudFront, no port of IPv6", "CloudFront-Viewer-Address", []string{"2001:db8:1:2:3:4:5:6"}, noKey},
		{"CloudFront, a bad port", "CloudFront-Viewer-Address", []string{"2001:db8:1:2:3:4:5:6:65536"}, noKey},
		{"CloudFront, a port that is none", "CloudFront-Viewer-Address", []string{"2001:db8:1:2::abcd"}, noKey},
		{"CloudFront, two ports", "CloudFront-Viewer-Address", []string{"203.0.113.7:80:80"}, noKey},
		{"CloudFront, nobody's", "CloudFront-Viewer-Address", []string{":::443"}, noKey},
	} {
		r := request("10.0.0.1:1", "1.1.1.1")
		for _, line := range test.lines {
			r.Header.Add(test.header, line)
		}
		checkKey(t, handler.ClientIP(handler.AddressHeader(test.header)), r, test.want)
	}
}

func TestClientIPWarnsOfAnUntrustedProxy(t *testing.T) {
	hops := handler.TrustedHops(1)
	proxies := handler.TrustedProxies(netip.MustParsePrefix("10.0.0.0/8"))
	for _, c := range []struct {
		name   string
		key    handler.KeyFunc
		remote string
		header string
		warns  int
	}{
		{"X-Forwarded-For", handler.ClientIP(), "10.0.0.1:443", "X-Forwarded-For", 1},
		{"Forwarded", handler.ClientIP(), "10.0.0.1:443", "Forwarded", 1},
		{"IPv6", handler.ClientIP(handler.IPv6Prefix(56)), "[2001:db8::1]:443", "X-Forwarded-For", 1},
		{"joined keys", handler.Join(oneKey, handler.ClientIP()), "10.0.0.1:443", "X-Forwarded-For", 1},
		{"no proxy", handler.ClientIP(), "192.0.2.1:443", "X-Other", 0},
		{"hops are trusted", handler.ClientIP(hops), "10.0.0.1:443", "X-Forwarded-For", 0},
		{"a stranger, where proxies are trusted", handler.ClientIP(proxies), "192.0.2.1:443", "X-Forwarded-For", 0},
		{"a header is trusted", handler.ClientIP(handler.AddressHeader("X-Real-IP")), "10.0.0.1:443", "X-Real-IP", 0},
		{"another key", oneKey, "10.0.0.1:443", "X-Forwarded-For", 0},
		// An adapter for Lambda, or middleware in front, has put the client's address there.
		{"an address without a port", handler.ClientIP(), "192.0.2.1", "X-Forwarded-For", 0},
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
			testenv.Equal(t, strings.Count(text, "\n"), c.warns, "lines of the log", text)
			if c.warns > 0 {
				testenv.Contains(t, text, "level=WARN", c.header, "TrustedHops")
			}
			if strings.Contains(text, "203.0.113.7") || strings.Contains(text, "10.0.0.1") {
				t.Errorf("the warning holds an address: %s", text)
			}
		})
	}
}

func TestKeysOfARequest(t *testing.T) {
	t.Parallel()
	user := handler.User(func(r *http.Request) string {
		name, _, _ := r.BasicAuth()
		return name
	})
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.Header = http.Header{"X-Api-Key": {"k1"}, "X-Empty": {""}}
	r.SetBasicAuth("alice", "secret")
	r.Pattern = "/a"
	broken := errors.New("broken")
	for _, c := range []struct {
		name string
		key  handler.KeyFunc
		want string
		err  error
	}{
		{"a header", handler.Header("x-api-key"), "k1", nil},
		{"an empty header", handler.Header("X-Empty"), "", handler.ErrNoKey},
		{"a user", user, "alice", nil},
		{"a route", handler.Route(), "/a", nil},
		{"a part of ten bytes", handler.Join(func(*http.Request) (string, error) { return "0123456789", nil }), "10:0123456789", nil},
		{"route and user", handler.Join(handler.Route(), user), "2:/a5:alice", nil},
		{"a missing part", handler.Join(user, handler.Header("X-Missing")), "", handler.ErrNoKey},
		{"an empty part", handler.Join(user, func(*http.Request) (string, error) { return "", nil }), "", handler.ErrNoKey},
		{"a part that fails", handler.Join(user, func(*http.Request) (string, error) { return "", broken }), "", broken},
	} {
		got, err := c.key(r)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %q, %v; want %q, %v", c.name, got, err, c.want, c.err)
		}
		if err != nil && (strings.Contains(err.Error(), "alice") || strings.Contains(err.Error(), "k1")) {
			t.Errorf("%s: the error holds the key: %v", c.name, err)
		}
	}
}

// All lists of up to three short keys, of which one may look like the end of another.
func TestJoinedKeysDiffer(t *testing.T) {
	t.Parallel()
	parts := []string{"1", ":", "_", "11", "1:", ":1", "1_", "_1", "::", "__", ":_", "_:", "2:1", "1:1"}
	lists := [][]string{nil}
	for i := 0; len(lists[i]) < 3; i++ { // all lists of one to three parts
		for _, part := range parts {
			lists = append(lists, append(slices.Clip(lists[i]), part))
		}
	}
	joined := map[string][]string{}
	for _, list := range lists[1:] {
		var keys []handler.KeyFunc
		for _, part := range list {
			keys = append(keys, func(*http.Request) (string, error) { return part, nil })
		}
		key, err := handler.Join(keys...)(nil)
		if other := joined[key]; err != nil || other != nil {
			t.Fatalf("%q are joined to %q, as are %q (%v)", list, key, other, err)
		}
		joined[key] = list
	}
}
