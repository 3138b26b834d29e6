package handler_test

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/internal/testenv"
)

// request returns one from the peer with X-Forwarded-For in the lines given.
func request(peer string, forwarded ...string) *http.Request {
	return &http.Request{RemoteAddr: peer, Header: http.Header{"X-Forwarded-For": forwarded}}
}

// noKey stands in tables for an error that matches ErrNoKey.
const noKey = ""

func checkKey(t *testing.T, key handler.KeyFunc, r *http.Request, want string) {
	t.Helper()
	got, err := key(r)
	if want != noKey {
		if got != want || err != nil {
			t.Errorf("key %q, error %v; want %q", got, err, want)
		}
		return
	}
	if got != "" || !errors.Is(err, handler.ErrNoKey) {
		t.Errorf("key %q, error %v; want none and ErrNoKey", got, err)
		return
	}
	said := []string{r.RemoteAddr}
	for _, lines := range r.Header {
		said = append(said, lines...)
	}
	for _, s := range said {
		if s = strings.Trim(s, " \t"); len(s) > 3 && strings.Contains(err.Error(), s) {
			t.Errorf("the error tells what the request said: %v", err)
		}
	}
}

func TestClientIP(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ peer, want string }{
		{"192.0.2.1:1234", "192.0.2.1"},
		{"192.0.2.1", "192.0.2.1"}, // adapters for Lambda have no port to give
		{"[2001:db8:1:2:3:4:5:6]:1234", "2001:db8:1:2::/64"},
		{"[2001:db8:1:2:3:4:5:6]", "2001:db8:1:2::/64"},
		{"2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"},
		{"2001:DB8:1:2::F", "2001:db8:1:2::/64"},
		{"[::1]:1234", "::/64"},
		{"[fe80::1%eth0]:1234", "fe80::/64"},
		{"fe80::1%eth0", "fe80::/64"},
		{"[::ffff:192.0.2.1]:1234", "192.0.2.1"},
		{"::ffff:192.0.2.1%eth0", "192.0.2.1"},

		{"", noKey},
		{"@", noKey}, // a Unix socket
		{":1234", noKey},
		{"localhost:1234", noKey},
		{"0.0.0.0:1234", noKey},
		{"[::]:1234", noKey},
		{"::", noKey},
		{"::%eth0", noKey},
		{"[::ffff:0.0.0.0]:1234", noKey},
		{"192.0.2.1:http", noKey},
		{"192.0.2.1:65536", noKey},
		{"192.0.2.1:", noKey},
		{"192.0.2.1%eth0", noKey},
		{"192.0.2.01:1234", noKey}, // octal to some
		{"[192.0.2.1]:1234", noKey},
		{"[192.0.2.1]", noKey},
		{"[2001:db8::1", noKey},
		{"[2001:db8::1]1234", noKey},
		{"2001:db8:1:2:3:4:5:6:1234", noKey},
		{"192.0.2.1, 192.0.2.2", noKey},
		{"192.0.2.1\x00", noKey},
	} {
		t.Run(test.peer, func(t *testing.T) {
			t.Parallel()
			// What the client writes is not looked at.
			r := request(test.peer, "203.0.113.9")
			r.Header.Set("X-Real-Ip", "203.0.113.9")
			r.Header.Set("Forwarded", "for=203.0.113.9")
			checkKey(t, handler.ClientIP(), r, test.want)
		})
	}
}

// By notation, a client could leave its prefix by writing the last 32 bits in
// decimal, and all of IPv4 could fall into one.
func TestMappedAddresses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ peer, want string }{
		{"::ffff:1.2.3.4", "1.2.3.4"},
		{"::ffff:102:304", "1.2.3.4"},
		{"2001:db8:1234:5678::1.2.3.4", "2001:db8:1234:5600::/56"},
		{"2001:db8:1234:5678::102:304", "2001:db8:1234:5600::/56"},
		{"64:ff9b::1.2.3.4", "64:ff9b::/56"},
		{"::1.2.3.4", "::/56"},
		{"::fffe:1.2.3.4", "::/56"},
		{"::1:ffff:1.2.3.4", "::/56"},
	} {
		t.Run(test.peer, func(t *testing.T) {
			t.Parallel()
			key := handler.ClientIP(handler.IPv6Prefix(56))
			checkKey(t, key, request(test.peer), test.want)
			checkKey(t, key, request("["+test.peer+"]:443"), test.want)
		})
	}
}

// A bit within the prefix is another client, one behind it the same.
func TestAddressesShareAKeyByPrefix(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		bits := 32 + random.IntN(97)
		if random.IntN(2) == 0 {
			bits = 64
		}
		var raw [16]byte
		for i := range raw {
			raw[i] = byte(random.Uint32())
		}
		raw[0] |= 0x20 // neither mapped nor unspecified, with one bit turned
		raw[1] |= 0x18
		bit := random.IntN(128)
		other := raw
		other[bit/8] ^= 0x80 >> (bit % 8)

		key := handler.ClientIP(handler.IPv6Prefix(bits))
		a, err := key(request(netip.AddrFrom16(raw).String()))
		must(t, err)
		b, err := key(request(netip.AddrPortFrom(netip.AddrFrom16(other), 443).String()))
		must(t, err)
		if same := bit >= bits; same != (a == b) {
			t.Fatalf("keys %q and %q of addresses that differ in bit %d, by %d bits", a, b, bit, bits)
		}
	}
}

// It cannot run beside other tests, whose allocations it would count.
func TestKeyCostsOneAllocation(t *testing.T) {
	for _, b := range costs() {
		got := testing.AllocsPerRun(1000, func() {
			must(t, testenv.ErrorOf(b.key(b.request)))
		})
		if got > 1 {
			t.Errorf("%s: %v allocations; want the key alone", b.name, got)
		}
	}
}

type cost struct {
	name    string
	key     handler.KeyFunc
	request *http.Request
}

func costs() []cost {
	proxies := handler.TrustedProxies(netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:aaaa::/48"))
	viewed := &http.Request{Header: http.Header{"Cloudfront-Viewer-Address": {"2001:db8:1:2:3:4:5:6:46532"}}}
	return []cost{
		{"IPv4", handler.ClientIP(), request("203.0.113.77:65535")},
		{"IPv6", handler.ClientIP(), request("[2001:db8:1111:2222:3333:4444:5555:6666]:65535")},
		{"IPv6Prefix(128)", handler.ClientIP(handler.IPv6Prefix(128)), request("[2001:db8:1111:2222:3333:4444:5555:6666]:65535")},
		{"TrustedProxies", handler.ClientIP(proxies), request("10.0.0.1:443", "1.1.1.1", "203.0.113.77, 10.0.0.2", "2001:db8:aaaa::1")},
		{"TrustedHops", handler.ClientIP(handler.TrustedHops(2)), request("10.0.0.1:443", "1.1.1.1, 203.0.113.77, 35.191.0.1")},
		{"AddressHeader", handler.ClientIP(handler.AddressHeader("CloudFront-Viewer-Address")), viewed},
	}
}
