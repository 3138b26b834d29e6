package handler_test

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/sqlimit/limiter/handler"
)

// FuzzTrustedProxies checks that exactly the addresses of a prefix, mapped or not, are
// believed what they say of others, and that no prefix believes everybody.
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

// FuzzAddressHeader checks that no spelling of a name lets the lists be read that clients
// begin, and that of any other name exactly that header is read.
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
		if key, err := handler.ClientIP(opt)(r); !errors.Is(err, handler.ErrNoKey) {
			t.Errorf("%q reads %q, %v without such a header", name, key, err)
		}
		r.Header[http.CanonicalHeaderKey(name)] = []string{"203.0.113.3"}
		if key, err := handler.ClientIP(opt)(r); key != "203.0.113.3" || err != nil {
			t.Errorf("%q reads %q, %v of its own header", name, key, err)
		}
	})
}
