package handler_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sqlimit/limiter/handler"
)

func TestTrustedHops(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		hops  int
		lines []string
		want  string
	}{
		{"alone", 1, []string{"203.0.113.7"}, "203.0.113.7"},
		{"after what the client wrote", 1, []string{"1.1.1.1, 203.0.113.7"}, "203.0.113.7"},
		{"blanks and tabs", 1, []string{"1.1.1.1 ,\t 203.0.113.7 \t"}, "203.0.113.7"},
		{"a line of its own", 1, []string{"1.1.1.1", "203.0.113.7"}, "203.0.113.7"},
		{"a load balancer behind", 2, []string{"203.0.113.7, 35.191.0.1"}, "203.0.113.7"},
		{"a load balancer behind what the client wrote", 2, []string{"1.1.1.1, 203.0.113.7, 35.191.0.1"}, "203.0.113.7"},
		{"over lines", 2, []string{"1.1.1.1, 203.0.113.7", "35.191.0.1"}, "203.0.113.7"},
		{"garbage from the client", 1, []string{"\x00<script>, 203.0.113.7"}, "203.0.113.7"},
		{"an empty element from the client", 1, []string{",, 203.0.113.7"}, "203.0.113.7"},
		{"an empty line from the client", 1, []string{"", "203.0.113.7"}, "203.0.113.7"},
		{"IPv6 with a port", 1, []string{"[2001:db8:1:2::7]:5555"}, "2001:db8:1:2::/64"},
		{"a hop that is not the client's is not read", 2, []string{"203.0.113.7, unknown"}, "203.0.113.7"},
		{"the limit", 16, []string{"203.0.113.7" + strings.Repeat(", 10.0.0.1", 15)}, "203.0.113.7"},

		{"no header", 1, nil, noKey},
		{"an empty header", 1, []string{""}, noKey},
		{"fewer elements", 2, []string{"203.0.113.7"}, noKey},
		{"nothing after the client's comma", 1, []string{"1.1.1.1,"}, noKey},
		{"an empty element counts", 2, []string{"1.1.1.1, , 10.0.0.1"}, noKey},
		{"an empty line counts", 1, []string{"1.1.1.1", ""}, noKey},
		{"quotes", 1, []string{`1.1.1.1, "203.0.113.7"`}, noKey},
		{"only blanks between", 1, []string{"1.1.1.1 203.0.113.7"}, noKey},
		{"nobody's address", 1, []string{"1.1.1.1, 0.0.0.0"}, noKey},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			key := handler.ClientIP(handler.TrustedHops(test.hops))
			checkKey(t, key, request("10.0.0.9:1", test.lines...), test.want)
			checkKey(t, key, request("@", test.lines...), test.want) // the peer does not matter
		})
	}
}

func TestTrustedProxies(t *testing.T) {
	t.Parallel()
	key := handler.ClientIP(handler.TrustedProxies(
		netip.MustParsePrefix("10.0.0.0/8"),
		netip.MustParsePrefix("192.0.2.8/32"),
		netip.MustParsePrefix("2001:db8:aaaa::1/48"), // bits beyond the prefix do not matter
		netip.MustParsePrefix("fe80::/10"),
		netip.MustParsePrefix("::ffff:172.16.0.0/108"), // is 172.16.0.0/12
	))
	for _, test := range []struct {
		name, peer string
		lines      []string
		want       string
	}{
		{"a stranger", "198.51.100.1:1", []string{"1.1.1.1"}, "198.51.100.1"},
		{"a stranger who writes our address", "198.51.100.1:1", []string{"10.0.0.1"}, "198.51.100.1"},
		{"a stranger beside a proxy", "192.0.2.9:1", []string{"1.1.1.1"}, "192.0.2.9"},
		{"one proxy", "10.0.0.1:1", []string{"203.0.113.7"}, "203.0.113.7"},
		{"what the client wrote", "10.0.0.1:1", []string{"1.1.1.1, 203.0.113.7"}, "203.0.113.7"},
		{"our address written by the client", "10.0.0.1:1", []string{"10.0.0.3, 203.0.113.7"}, "203.0.113.7"},
		{"garbage from the client", "10.0.0.1:1", []string{"\x00, ,%, 203.0.113.7"}, "203.0.113.7"},
		{"two proxies", "10.0.0.1:1", []string{"1.1.1.1, 203.0.113.7, 10.0.0.2"}, "203.0.113.7"},
		{"proxies of several prefixes", "192.0.2.8:1", []string{"1.1.1.1, 203.0.113.7, 10.0.0.2,2001:db8:aaaa:9::1"}, "203.0.113.7"},
		{"lines", "10.0.0.1:1", []string{"1.1.1.1", "203.0.113.7", "10.0.0.2"}, "203.0.113.7"},
		{"a peer in a mapped prefix", "172.24.0.1:1", []string{"203.0.113.7"}, "203.0.113.7"},
		{"a peer beside a mapped prefix", "172.15.0.1:1", []string{"203.0.113.7"}, "172.15.0.1"},
		{"a mapped peer", "[::ffff:10.0.0.1]:1", []string{"203.0.113.7"}, "203.0.113.7"},
		{"a mapped hop", "10.0.0.1:1", []string{"203.0.113.7, ::ffff:a00:2"}, "203.0.113.7"},
		{"a peer with a zone", "[fe80::1%eth0]:1", []string{"203.0.113.7"}, "203.0.113.7"},
		{"all ours", "10.0.0.1:1", []string{"10.0.0.7, 10.0.0.3, 10.0.0.2"}, "10.0.0.7"},
		{"all ours, over lines", "10.0.0.1:1", []string{"10.0.0.7", "10.0.0.2"}, "10.0.0.7"},

		{"a proxy without a header", "10.0.0.1:1", nil, noKey},
		{"a proxy with an empty header", "10.0.0.1:1", []string{""}, noKey},
		{"a proxy on a Unix socket", "@", []string{"203.0.113.7"}, noKey},
		{"nothing at the client's place", "10.0.0.1:1", []string{"1.1.1.1,"}, noKey},
		{"nothing between proxies", "10.0.0.1:1", []string{"1.1.1.1, , 10.0.0.2"}, noKey},
		{"an empty last line", "10.0.0.1:1", []string{"1.1.1.1", ""}, noKey},
		{"nothing left of all ours", "10.0.0.1:1", []string{", 10.0.0.2"}, noKey},
		{"quotes", "10.0.0.1:1", []string{`1.1.1.1, "203.0.113.7"`}, noKey},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			checkKey(t, key, request(test.peer, test.lines...), test.want)
		})
	}
}

func TestTrustedProxiesCopiesItsList(t *testing.T) {
	t.Parallel()
	prefixes := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	key := handler.ClientIP(handler.TrustedProxies(prefixes...))
	prefixes[0] = netip.MustParsePrefix("198.51.100.0/24")
	checkKey(t, key, request("198.51.100.1:1", "203.0.113.7"), "198.51.100.1")
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
		{"brackets and a port", "X-Real-IP", []string{"[2001:db8:1:2::7]:443"}, "2001:db8:1:2::/64"},
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
		{"a list", "X-Real-IP", []string{"1.1.1.1, 203.0.113.7"}, noKey},
		{"nobody's", "X-Real-IP", []string{"0.0.0.0"}, noKey},
		{"CloudFront, no port of IPv6", "CloudFront-Viewer-Address", []string{"2001:db8:1:2:3:4:5:6"}, noKey},
		{"CloudFront, a bad port", "CloudFront-Viewer-Address", []string{"2001:db8:1:2:3:4:5:6:65536"}, noKey},
		{"CloudFront, a port that is none", "CloudFront-Viewer-Address", []string{"2001:db8:1:2::abcd"}, noKey},
		{"CloudFront, two ports", "CloudFront-Viewer-Address", []string{"203.0.113.7:80:80"}, noKey},
		{"CloudFront, nobody's", "CloudFront-Viewer-Address", []string{":::443"}, noKey},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := request("10.0.0.1:1", "1.1.1.1")
			for _, line := range test.lines {
				r.Header.Add(test.header, line)
			}
			checkKey(t, handler.ClientIP(handler.AddressHeader(test.header)), r, test.want)
		})
	}
}

func TestWrongIPOptionsPanic(t *testing.T) {
	t.Parallel()
	ten := netip.MustParsePrefix("10.0.0.0/8")
	for _, test := range []struct {
		name, says string
		make       func()
	}{
		{"a nil option", "leave it out", func() { handler.ClientIP(nil) }},
		{"a short prefix", "32 to 128", func() { handler.ClientIP(handler.IPv6Prefix(31)) }},
		{"a long prefix", "32 to 128", func() { handler.ClientIP(handler.IPv6Prefix(129)) }},
		{"no hops", "leave it out", func() { handler.ClientIP(handler.TrustedHops(0)) }},
		{"negative hops", "1 to 16", func() { handler.ClientIP(handler.TrustedHops(-1)) }},
		{"too many hops", "1 to 16", func() { handler.ClientIP(handler.TrustedHops(17)) }},
		{"no proxies", "leave it out", func() { handler.ClientIP(handler.TrustedProxies()) }},
		{"a zero prefix", "netip.MustParsePrefix", func() { handler.ClientIP(handler.TrustedProxies(ten, netip.Prefix{})) }},
		{"all of IPv4", "TrustedHops", func() { handler.ClientIP(handler.TrustedProxies(netip.MustParsePrefix("0.0.0.0/0"))) }},
		{"all of IPv6", "TrustedHops", func() { handler.ClientIP(handler.TrustedProxies(netip.MustParsePrefix("::/0"))) }},
		{"all of IPv4, mapped", "as IPv4", func() { handler.ClientIP(handler.TrustedProxies(netip.MustParsePrefix("::ffff:0:0/96"))) }},
		{"more than IPv4, mapped", "as IPv4", func() { handler.ClientIP(handler.TrustedProxies(netip.MustParsePrefix("::ffff:1.2.3.4/90"))) }},
		{"no header", "X-Real-IP", func() { handler.ClientIP(handler.AddressHeader("")) }},
		{"a header with a colon", "X-Real-IP", func() { handler.ClientIP(handler.AddressHeader("X-Real-IP:")) }},
		{"a header with a blank", "X-Real-IP", func() { handler.ClientIP(handler.AddressHeader("X Real IP")) }},
		{"a header that is not ASCII", "X-Real-IP", func() { handler.ClientIP(handler.AddressHeader("X-Réal-IP")) }},
		{"Host as an address", "X-Real-IP", func() { handler.ClientIP(handler.AddressHeader("host")) }},
		{"X-Forwarded-For as an address", "TrustedHops", func() { handler.ClientIP(handler.AddressHeader("x-forwarded-for")) }},
		{"Forwarded as an address", "X-Forwarded-For", func() { handler.ClientIP(handler.AddressHeader("forwarded")) }},
		{"proxies and hops", "TrustedProxies and TrustedHops", func() { handler.ClientIP(handler.TrustedProxies(ten), handler.TrustedHops(1)) }},
		{"hops and a header", "TrustedHops and AddressHeader", func() { handler.ClientIP(handler.TrustedHops(1), handler.AddressHeader("X-Real-IP")) }},
		{"a header and proxies", "AddressHeader and TrustedProxies", func() { handler.ClientIP(handler.AddressHeader("X-Real-IP"), handler.TrustedProxies(ten)) }},
		{"hops twice", "once", func() { handler.ClientIP(handler.TrustedHops(1), handler.TrustedHops(2)) }},
	} {
		wantPanic(t, test.name, test.says, test.make)
	}
}
