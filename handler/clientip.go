package handler

import (
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"

	"github.com/sqlimit/limiter/middleware"
)

// ClientIP returns a KeyFunc for the client's address. Without an option that is RemoteAddr, the
// other end of the connection, and no header is read. Behind a proxy RemoteAddr is the proxy's
// address, one key for all clients. There, pass an option:
//
//	Application Load Balancer of AWS           TrustedHops(1)
//	CloudFront, and nothing else can connect   AddressHeader("CloudFront-Viewer-Address")
//	Cloudflare, and nothing else can connect   AddressHeader("CF-Connecting-IP")
//	Cloud Run                                  TrustedHops(1)
//	Cloud Run, external Application LB         TrustedHops(2), and ingress from it only
//	nginx, Kubernetes: proxies whose           TrustedProxies(prefixes...)
//	addresses are known
//
// In Lambda, package awslambda sets RemoteAddr, so no option is needed.
//
// Without an option, the first request with X-Forwarded-For or Forwarded makes ClientIP log a
// warning to slog.Default, once. If clients connect without a proxy, a client wrote the header, and
// nothing is wrong. Requests whose RemoteAddr has no port cause no warning, such as those of
// package awslambda, because no server set that RemoteAddr.
//
// The key of an IPv4 address is the address: "192.0.2.1". The key of an IPv6 address is its prefix,
// "2001:db8:1:2::/64", because one client has all addresses in it: see [IPv6Prefix]. An IPv4
// address that is mapped into IPv6 counts as the IPv4 address, in any notation.
//
// An address may have a port and, for IPv6, brackets, which are required with a port. ClientIP
// drops zones, ports and surrounding blanks. It accepts no names, quotes or "unknown", and not
// 0.0.0.0 or ::, which belong to no client. If the client's address is missing or unreadable, the
// error matches [ErrNoKey]. Another address instead could be one that the client wrote, or one key
// for all clients. No error text contains an address.
//
// ClientIP panics if an option is invalid; the text says what to do.
func ClientIP(opts ...IPOption) KeyFunc {
	o := ipOptions{bits: defaultIPv6Prefix}
	for _, opt := range opts {
		if opt == nil {
			panic("handler: an option of ClientIP is nil; leave it out")
		}
		opt(&o)
	}
	find, bits := o.find, o.bits
	if find == nil {
		find = new(untrusting).peerAddr
	}
	return func(r *http.Request) (string, error) {
		addr, err := find(r)
		if err != nil {
			return "", err
		}
		return addrKey(addr, bits), nil
	}
}

// These texts are made once, because clients can cause the errors at will.
var (
	errNoPeer      = noAddress("RemoteAddr is no address; behind a Unix socket use TrustedHops or AddressHeader; in Lambda the event has none: a health check, or an event of another kind than the function is for")
	errUnforwarded = noAddress("a trusted proxy sent no X-Forwarded-For; every proxy must append the address that it sees, and no trusted prefix may contain clients")
	errFewHops     = noAddress("X-Forwarded-For has fewer addresses than TrustedHops; without a proxy, leave TrustedHops out; otherwise every proxy must append the address that it sees, and no request may bypass the proxies")
	errBadHop      = noAddress("X-Forwarded-For has no address where the client's belongs; every proxy must append the address that it sees")
)

func noAddress(format string, args ...any) error {
	return middleware.NoKey(middleware.WithoutAddress, format, args...)
}

// untrusting finds clients without a trusted proxy.
type untrusting struct{ warned atomic.Bool }

// peerAddr is the function peerAddr with a warning about an untrusted proxy.
func (u *untrusting) peerAddr(r *http.Request) (netip.Addr, error) {
	if !u.warned.Load() {
		u.warn(r)
	}
	return peerAddr(r)
}

func (u *untrusting) warn(r *http.Request) {
	for _, name := range []string{"X-Forwarded-For", "Forwarded"} {
		if len(r.Header[name]) == 0 {
			continue
		}
		// An adapter or middleware put the client's address there, without a port.
		if _, err := netip.ParseAddrPort(r.RemoteAddr); err == nil && u.warned.CompareAndSwap(false, true) {
			slog.Default().WarnContext(r.Context(), "handler.ClientIP trusts no proxy, but a request was forwarded:"+
				" all clients behind one proxy share a key; pass TrustedProxies, TrustedHops or AddressHeader", "header", name)
		}
	}
}

// peerAddr returns the address at the other end of the connection.
func peerAddr(r *http.Request) (netip.Addr, error) {
	addr, ok := readAddr(r.RemoteAddr)
	if !ok {
		return netip.Addr{}, errNoPeer
	}
	return addr, nil
}

// readAddr reads an address that may have brackets and a port, and reports whether it can be a
// client's. The address is never a mapped one and has no zone, because masks and prefixes would not
// work on those.
func readAddr(s string) (netip.Addr, bool) {
	s = strings.Trim(s, " \t")
	switch {
	case strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]"):
		addr, err := netip.ParseAddr(s[1 : len(s)-1])
		if addr.Is4() { // as ParseAddrPort has it: brackets are for IPv6
			return netip.Addr{}, false
		}
		return plainAddr(addr, err)
	case strings.HasPrefix(s, "["), strings.Count(s, ":") == 1:
		withPort, err := netip.ParseAddrPort(s)
		return plainAddr(withPort.Addr(), err)
	}
	return plainAddr(netip.ParseAddr(s))
}

// plainAddr returns an address in the one form that each address has here.
func plainAddr(addr netip.Addr, err error) (netip.Addr, bool) {
	addr = addr.Unmap().WithZone("")
	return addr, err == nil && !addr.IsUnspecified()
}

// addrKey returns the key of an address from readAddr.
func addrKey(addr netip.Addr, bits int) string {
	var buf [len("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128")]byte
	if addr.Is4() {
		return string(addr.AppendTo(buf[:0]))
	}
	return string(netip.PrefixFrom(addr, bits).Masked().AppendTo(buf[:0]))
}
