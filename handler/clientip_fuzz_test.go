package handler_test

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/sqlimit/limiter/handler"
)

// seeds are what clients have written to get round such limits, or might.
var seeds = []string{
	"", ",", " , ", "\n", "1.1.1.1", "1.1.1.1,", "10.0.0.1", "10.0.0.1, 10.0.0.2", "1.1.1.1\n10.0.0.3", "unknown", `"1.1.1.1`, "for=1.1.1.1",
	"[", "]", "[::1", "[]:1", "::", "0.0.0.0", "::ffff:1.2.3.4", "::ffff:102:304", "fe80::1%eth0", "fe80::1%", "%", "fe80::1%a,b",
	"1.1.1.1:", ":80", "1.1.1.1:99999", "2001:db8::1:80", "[2001:db8::1]:80", "2001:db8:1:2:3:4:5:6:7", "\x00", "\r\n", "\xff", "١.١.١.١",
}

// written returns the lines of a header that a client begins and our proxies
// append to: to its last line, or in lines of their own.
func written(client string, ours []string, ownLines bool) [][]string {
	lines := strings.Split(client, "\n")
	if ownLines {
		return [][]string{lines, ours}
	}
	lines[len(lines)-1] += ", " + strings.Join(ours, ", ")
	return [][]string{lines}
}

func FuzzForgedElementsNeverChangeTheKey(f *testing.F) {
	for i, seed := range seeds {
		f.Add(seed, []byte{203, 0, 113, byte(i)}, i%2 == 0)
		f.Add(seed, []byte{0x20, 1, 0xd, 0xb8, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, byte(i)}, i%2 == 1)
	}
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:aaaa::/48")}
	behind := []string{"10.0.0.2", "2001:db8:aaaa::3", "10.0.0.4:55"}
	f.Fuzz(func(t *testing.T, wrote string, raw []byte, ownLines bool) {
		client, ok := netip.AddrFromSlice(raw)
		client = client.Unmap()
		if !ok || client.IsUnspecified() || proxies[0].Contains(client) || proxies[1].Contains(client) {
			t.Skip("not the address of a client")
		}
		for n := range len(behind) + 1 {
			ours := append([]string{client.String()}, behind[:n]...)
			for name, opt := range map[string]handler.IPOption{
				"TrustedProxies": handler.TrustedProxies(proxies...),
				"TrustedHops":    handler.TrustedHops(n + 1),
			} {
				key := handler.ClientIP(opt)
				want, err := key(request("10.0.0.9:443", ours...))
				if err != nil {
					t.Fatalf("%s, %d proxies behind: %v", name, n, err)
				}
				var lines []string
				for _, part := range written(wrote, ours, ownLines) {
					lines = append(lines, part...)
				}
				if got, err := key(request("10.0.0.9:443", lines...)); got != want || err != nil {
					t.Errorf("%s, %d proxies behind: key %q, error %v for %q; want %q", name, n, got, err, lines, want)
				}
			}
		}
	})
}

func FuzzKeyIsCanonical(f *testing.F) {
	for i, seed := range seeds {
		f.Add(seed, "1.1.1.1", "203.0.113.7:5", "[2001:db8::7]:443", i)
		f.Add("10.0.0.1:1", seed, "10.0.0.2", seed, i)
		f.Add("10.0.0.1:1", "10.0.0.2", seed, seed, i)
	}
	f.Fuzz(func(t *testing.T, peer, above, below, single string, n int) {
		bits := 32 + int(uint(n)%97)
		r := request(peer, above, below)
		r.Header.Set("X-Real-Ip", single)
		r.Header.Set("Cloudfront-Viewer-Address", single)
		for name, opts := range map[string][]handler.IPOption{
			"RemoteAddr":     nil,
			"TrustedProxies": {handler.TrustedProxies(netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fe80::/10"))},
			"TrustedHops":    {handler.TrustedHops(1 + int(uint(n)%4))},
			"X-Real-IP":      {handler.AddressHeader("X-Real-IP")},
			"CloudFront":     {handler.AddressHeader("CloudFront-Viewer-Address")},
		} {
			checkCanonical(t, name, handler.ClientIP(append(opts, handler.IPv6Prefix(bits))...), r, bits)
		}
	})
}

// checkCanonical checks that there is an error or the one form of an address.
func checkCanonical(t *testing.T, name string, key handler.KeyFunc, r *http.Request, bits int) {
	t.Helper()
	got, err := key(r)
	if err != nil {
		if got != "" || !errors.Is(err, handler.ErrNoKey) {
			t.Errorf("%s: key %q, error %v; want none and ErrNoKey", name, got, err)
		}
		return
	}
	addr, _ := netip.ParseAddr(got)
	prefix, _ := netip.ParsePrefix(got)
	isIPv4 := addr.Is4() && !addr.IsUnspecified() && addr.String() == got
	isPrefix := prefix.Bits() == bits && prefix == prefix.Masked() && prefix.Addr().Is6() && !prefix.Addr().Is4In6() && prefix.String() == got
	if !isIPv4 && !isPrefix {
		t.Errorf("%s: key %q is neither an IPv4 address nor an IPv6 prefix of %d bits in its one form", name, got, bits)
	}
}
