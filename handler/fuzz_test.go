package handler_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
)

// seeds are what clients have written to get round such limits, or might.
var seeds = []string{
	"", ",", " , ", "\n", "1.1.1.1", "1.1.1.1,", "10.0.0.1", "10.0.0.1, 10.0.0.2", "1.1.1.1\n10.0.0.3", "unknown", `"1.1.1.1`, "for=1.1.1.1",
	"[", "]", "[::1", "[]:1", "::", "0.0.0.0", "::ffff:1.2.3.4", "::ffff:102:304", "fe80::1%eth0", "fe80::1%", "%", "fe80::1%a,b",
	"1.1.1.1:", ":80", "1.1.1.1:99999", "2001:db8::1:80", "[2001:db8::1]:80", "2001:db8:1:2:3:4:5:6:7", "\x00", "\r\n", "\xff", "١.١.١.١",
}

// written returns a header that a client begins. Our proxies append to its last line, or lines of their own.
func written(client string, ours []string, ownLines bool) []string {
	lines := strings.Split(client, "\n")
	if ownLines {
		return append(lines, ours...)
	}
	lines[len(lines)-1] += ", " + strings.Join(ours, ", ")
	return lines
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
				key, want := handler.ClientIP(opt, handler.IPv6Prefix(128)), client.String()
				if client.Is6() {
					want += "/128"
				}
				lines := written(wrote, ours, ownLines)
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

// FuzzTrustedProxies checks that a prefix trusts exactly its addresses, and that no prefix trusts all.
func FuzzTrustedProxies(f *testing.F) {
	for _, seed := range []string{"10.0.0.1", "::ffff:10.0.0.1", "2001:db8::1", "fe80::1", "::", "0.0.0.0", "255.255.255.255", "::ffff:0:0"} {
		addr := netip.MustParseAddr(seed)
		for _, bits := range []int{-1, 0, 1, 8, 32, 64, 95, 96, 97, 104, 128, 129} {
			f.Add(addr.AsSlice(), bits, addr.AsSlice())
			f.Add(addr.AsSlice(), bits, []byte{10, 0, 0, 9})
			f.Add(addr.AsSlice(), bits, netip.MustParseAddr("::ffff:10.0.0.9").AsSlice())
		}
	}
	f.Fuzz(func(t *testing.T, rawPrefix []byte, bits int, rawPeer []byte) {
		addr, _ := netip.AddrFromSlice(rawPrefix)
		peer, ok := netip.AddrFromSlice(rawPeer)
		if !ok || peer.Unmap().IsUnspecified() {
			t.Skip("nobody's address")
		}
		prefix := netip.PrefixFrom(addr, bits)
		var opt handler.IPOption
		if text := panicOf(func() { opt = handler.TrustedProxies(prefix) }); text != "" {
			wantAdvice(t, "TrustedProxies", text, "")
			if prefix.IsValid() && prefix.Bits() > 0 && (!addr.Is4In6() || prefix.Bits() > 96) {
				t.Errorf("%v panics", prefix)
			}
			return
		}
		key := handler.ClientIP(opt, handler.IPv6Prefix(128))
		const client = "203.0.113.77"
		got, err := key(request(netip.AddrPortFrom(peer, 443).String(), client))
		want := peer.Unmap().String()
		if peer.Unmap().Is6() {
			want += "/128"
		}
		// Bit by bit, of addresses that are either both of four bytes or both of sixteen.
		a, b, n := addr.AsSlice(), peer.Unmap().AsSlice(), prefix.Bits()
		if addr.Is4In6() {
			a, n = a[12:], n-96
		}
		if len(a) == len(b) && sameBits(a, b, n) {
			want = client
		}
		if got != want || err != nil {
			t.Errorf("%v trusted, connection from %v: key %q, %v; want %q", prefix, peer, got, err, want)
		}
	})
}

func sameBits(a, b []byte, n int) bool {
	for i := range n {
		if (a[i/8]^b[i/8])&(0x80>>(i%8)) != 0 {
			return false
		}
	}
	return true
}

// FuzzAddressHeader checks that no spelling of a name reads a list that clients begin, or another header.
func FuzzAddressHeader(f *testing.F) {
	for _, seed := range []string{
		"X-Real-IP", "x-forwarded-for", "X-FORWARDED-FOR", "forwarded", "Forwarded ", "X-Forwarded-For\x00", "", "CF-Connecting-IP",
		"cloudfront-viewer-address", "a b", "a:b", "é", "X_Forwarded_For", "x\r\ny", "K",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		var opt handler.IPOption
		if text := panicOf(func() { opt = handler.AddressHeader(name) }); text != "" {
			wantAdvice(t, "AddressHeader", text, "")
			return
		}
		if name == "" || strings.ContainsAny(name, " \t\r\n:\x00,;\"()<>@[]{}/\\=?") || strings.ContainsFunc(name, func(r rune) bool { return r < '!' || r > '~' }) {
			t.Fatalf("%q is no name of a header", name)
		}
		r := request("192.0.2.1:1", "203.0.113.1")
		r.Header["Forwarded"] = []string{"203.0.113.2"}
		testenv.ErrorIs(t, testenv.ErrorOf(handler.ClientIP(opt)(r)), handler.ErrNoKey, fmt.Sprintf("%q", name))
		r.Header[http.CanonicalHeaderKey(name)] = []string{"203.0.113.3"}
		if key, err := handler.ClientIP(opt)(r); key != "203.0.113.3" || err != nil {
			t.Errorf("%q reads %q, %v of its own header", name, key, err)
		}
	})
}

// parse reads a field by an independent parser: as a List of one String, with Integers for parameters.
func parse(t *testing.T, lines []string) map[string]int64 {
	t.Helper()
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil || len(list) != 1 {
		t.Fatalf("%q is no List of one member: %v", lines, err)
	}
	item, ok := list[0].(httpsfv.Item)
	if !ok || item.Value != "l" {
		t.Fatalf("the member of %q is no Item with the String l", lines)
	}
	params := map[string]int64{}
	for _, name := range item.Params.Names() {
		value, _ := item.Params.Get(name)
		n, ok := value.(int64)
		if params[name] = n; !ok {
			t.Fatalf("%q: %s is no Integer: %T", lines, name, value)
		}
	}
	return params
}

// FuzzFields checks the fields for any policy and any use of it. An independent parser can read them, and
// they agree with each other. After Retry-After the same request passes. Before t is over, no more than r
// can be used, except in the second to which t is rounded up.
func FuzzFields(f *testing.F) {
	f.Add(false, int64(10), int64(3), int64(time.Second), int64(4), int64(0))
	f.Add(true, int64(10), int64(1), int64(time.Minute), int64(10), int64(time.Second))
	f.Add(false, int64(1), int64(1), int64(time.Microsecond), int64(1), int64(1))
	f.Add(false, int64(1)<<50, int64(1)<<40, int64(time.Hour)*1e3, int64(1)<<40, int64(1)<<40)
	f.Add(true, int64(1)<<60, int64(1), int64(time.Millisecond), int64(1)<<59, int64(1))
	f.Fuzz(func(t *testing.T, window bool, limit, refill, period, cost, pause int64) {
		if limit < 1 || pause < 0 {
			t.Skip()
		}
		// Most of int64 is no policy; most of these are.
		limit, refill, period = 1+limit%(1<<60), 1+(refill&(1<<30-1)), 1+(period&(1<<55-1))
		var policy limiter.Policy = limiter.FixedWindow{Limit: limit, Window: time.Duration(period)}
		if !window {
			limit = 1 + limit%(1<<20)
			policy = limiter.TokenBucket{Capacity: limit, Refill: refill, Interval: time.Duration(period)}
		}
		cost = 1 + (cost&(1<<62-1))%limit
		c := newClock()
		now := func() time.Time { return c.now }
		l, err := limiter.New(memory.New(), "l", policy, limiter.WithClock(now))
		if err != nil {
			t.Skip()
		}
		h := handler.New(l, oneKey, handler.Cost(func(*http.Request) int64 { return cost }))(&nextHandler{})
		for range 3 {
			resp := ask(h)
			checkFields(t, c, l, resp, cost)
			c.add(time.Duration(pause % int64(48*time.Hour)))
		}
	})
}

func checkFields(t *testing.T, c *clock, l *limiter.Limiter, resp reply, cost int64) {
	t.Helper()
	policy, quota := parse(t, resp.header.Values("RateLimit-Policy")), parse(t, resp.header.Values("RateLimit"))
	q, w, r := policy["q"], policy["w"], quota["r"]
	length, hasT := quota["t"]
	if q < 1 || w < 1 || r < 0 || r > q || hasT && length < 1 || r == 0 && !hasT {
		t.Errorf("q=%d w=%d r=%d t=%d (there: %v)", q, w, r, length, hasT)
	}
	retry, err := strconv.ParseInt(resp.header.Get("Retry-After"), 10, 64)
	switch refused := resp.status == http.StatusTooManyRequests; {
	case refused != (err == nil):
		t.Errorf("status %d with Retry-After %q", resp.status, resp.header.Get("Retry-After"))
	case refused && (retry < 1 || retry < length):
		t.Errorf("Retry-After %d, t=%d", retry, length)
	case refused:
		if res := peekAfter(t, c, l, time.Duration(retry)*time.Second); res.Remaining < cost {
			t.Errorf("after Retry-After of %d s %d are left, of a cost of %d", retry, res.Remaining, cost)
		}
	}
	const largest = 999_999_999_999_999
	if hasT && q < largest {
		if early := peekAfter(t, c, l, time.Duration(length-1)*time.Second); early.Remaining > r {
			t.Errorf("a second before t=%d is over %d are left, more than r=%d", length, early.Remaining, r)
		}
		if then := peekAfter(t, c, l, time.Duration(length)*time.Second); then.Remaining <= r && r < q && resp.status != http.StatusTooManyRequests {
			t.Errorf("after t=%d %d are left, no more than r=%d", length, then.Remaining, r)
		}
	}
}

// peekAfter looks at the key some time from now.
func peekAfter(t *testing.T, c *clock, l *limiter.Limiter, d time.Duration) limiter.Result {
	t.Helper()
	was := c.now
	defer func() { c.now = was }()
	c.add(d)
	res, err := l.Peek(t.Context(), "everybody")
	must(t, err)
	return res
}
