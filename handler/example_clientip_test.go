package handler_test

import (
	"fmt"
	"net/http"
	"net/netip"

	"github.com/sqlimit/limiter/handler"
)

// Without options, it is the other end of the connection that counts.
func ExampleClientIP() {
	key := handler.ClientIP()
	fmt.Println(key(&http.Request{RemoteAddr: "203.0.113.7:49152"}))
	fmt.Println(key(&http.Request{RemoteAddr: "[2001:db8:1:2::7]:49152"}))
	fmt.Println(key(&http.Request{RemoteAddr: "[::ffff:203.0.113.7]:49152"}))
	// Output:
	// 203.0.113.7 <nil>
	// 2001:db8:1:2::/64 <nil>
	// 203.0.113.7 <nil>
}

// The header counts only if a proxy sent it.
func ExampleTrustedProxies() {
	key := handler.ClientIP(handler.TrustedProxies(netip.MustParsePrefix("10.0.0.0/28")))
	h := http.Header{"X-Forwarded-For": {"1.1.1.1, 203.0.113.7, 10.0.0.2"}}
	fmt.Println(key(&http.Request{RemoteAddr: "10.0.0.1:443", Header: h}))
	fmt.Println(key(&http.Request{RemoteAddr: "198.51.100.9:443", Header: h}))
	// Output:
	// 203.0.113.7 <nil>
	// 198.51.100.9 <nil>
}

// A request that came around the proxy lacks the header, and is refused.
func ExampleAddressHeader() {
	key := handler.ClientIP(handler.AddressHeader("CF-Connecting-IP"))
	r := &http.Request{RemoteAddr: "198.51.100.9:443", Header: http.Header{}}
	_, err := key(r)
	fmt.Println(err)
	r.Header.Set("CF-Connecting-IP", "203.0.113.7")
	fmt.Println(key(r))
	// Output:
	// limiter: the request has no key: the request does not have one line CF-Connecting-IP with one address; the proxy must set it on every request, and no request may bypass the proxy
	// 203.0.113.7 <nil>
}

// Some providers give each customer 56 bits: who has many networks of 64 is one
// client then.
func ExampleIPv6Prefix() {
	key := handler.ClientIP(handler.IPv6Prefix(56))
	fmt.Println(key(&http.Request{RemoteAddr: "[2001:db8:1:234::7]:49152"}))
	// Output: 2001:db8:1:200::/56 <nil>
}
