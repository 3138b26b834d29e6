package handler

import (
	"fmt"
	"iter"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sqlimit/limiter/handler/internal/field"
)

const (
	// defaultIPv6Prefix is the network of one link (RFC 4291, section 2.5.4): a
	// host can take any address in it.
	defaultIPv6Prefix = 64
	// minIPv6Prefix is what registries give to one provider at least: a shorter
	// prefix counts strangers as one.
	minIPv6Prefix = 32
	// maxTrustedHops is more proxies than anybody has in a row; a greater number
	// is a mistake.
	maxTrustedHops = 16
)

// IPOption changes how [ClientIP] finds the client and what its key is. [TrustedProxies],
// [TrustedHops] and [AddressHeader] exclude each other.
type IPOption func(*ipOptions)

type ipOptions struct {
	bits int                                     // of an IPv6 address
	find func(*http.Request) (netip.Addr, error) // nil: peerAddr
	by   string                                  // the option that set find
}

// findBy sets how the client is found.
func (o *ipOptions) findBy(option string, find func(*http.Request) (netip.Addr, error)) {
	if o.find != nil {
		panic(fmt.Sprintf("handler: ClientIP got %s and %s; pass one of TrustedProxies, TrustedHops and AddressHeader, once", o.by, option))
	}
	o.find, o.by = find, option
}

// IPv6Prefix sets how many leading bits of an IPv6 address are the key: 32 to 128. IPv4 addresses
// always count whole.
//
// The default is 64, the network of one link, because a host can use any address in it. Providers
// give a customer more than one such network: 256 in a /56 and 65,536 in a /48, each with its own
// key. Fewer bits count them as one. But they also merge neighbors if the provider gives each a
// /64, as mobile networks do, and one neighbor can then use up the limit of all. To bound both, add
// a second limiter by 48 bits, with a larger limit, outside of the first one.
//
// Use 128 where a network maps many IPv4 clients into one IPv6 prefix, as translators do.
func IPv6Prefix(bits int) IPOption {
	if bits < minIPv6Prefix || bits > 128 {
		panic(fmt.Sprintf("handler: IPv6Prefix got %d bits; pass %d to 128, such as 64 or 56", bits, minIPv6Prefix))
	}
	return func(o *ipOptions) { o.bits = bits }
}

// TrustedProxies sets the addresses of your proxies. Each of them must append the address that it
// sees to X-Forwarded-For. If a connection comes from elsewhere, its address is the client, and the
// header is not read. Otherwise all lines of the header are read from the right. The first address
// that is not a proxy is the client; if all are proxies, it is the leftmost. What clients write is
// to the left of that and is never read.
//
// An element that cannot be read, even an empty one, ends the search with an error that matches
// [ErrNoKey]. So does a proxy that sends no such header, because its clients could not be told
// apart. Health checks of the proxy itself have no header either: [Skip] them.
//
// A client that connects from one of the prefixes chooses its own key. So list only the proxies,
// not the network that they share with others. Prefixes of 0 bits panic, because they trust every
// client.
func TrustedProxies(prefixes ...netip.Prefix) IPOption {
	if len(prefixes) == 0 {
		panic("handler: TrustedProxies got no prefixes; pass those of the proxies' addresses, or leave it out")
	}
	proxies := make([]netip.Prefix, len(prefixes))
	for i, p := range prefixes {
		proxies[i] = checkProxies(p)
	}
	trusted := func(addr netip.Addr) bool {
		return slices.ContainsFunc(proxies, func(p netip.Prefix) bool { return p.Contains(addr) })
	}
	find := func(r *http.Request) (netip.Addr, error) {
		addr, err := peerAddr(r)
		if err != nil || !trusted(addr) {
			return addr, err
		}
		none := true
		for element := range forwardedFor(r) {
			none = false
			var ok bool
			if addr, ok = readAddr(element); !ok {
				return netip.Addr{}, errBadHop
			}
			if !trusted(addr) {
				return addr, nil
			}
		}
		if none {
			return netip.Addr{}, errUnforwarded
		}
		return addr, nil
	}
	return func(o *ipOptions) { o.findBy("TrustedProxies", find) }
}

// checkProxies returns a prefix in the form that addresses from readAddr are
// compared with.
func checkProxies(p netip.Prefix) netip.Prefix {
	switch {
	case !p.IsValid():
		panic("handler: TrustedProxies got a prefix that is not valid; make it with netip.MustParsePrefix")
	case p.Bits() == 0:
		panic("handler: TrustedProxies got a prefix of no bits, so that every client could choose its key; list the proxies, or use TrustedHops where their addresses are not known")
	case !p.Addr().Is4In6():
		return p.Masked()
	case p.Bits() <= 96:
		panic("handler: TrustedProxies got a prefix of mapped addresses that holds all of IPv4; write it as IPv4, such as 192.0.2.0/24")
	}
	return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96).Masked()
}

// TrustedHops sets how many of your proxies every request passes through: 1 to 16. Each of them
// must append the address that it sees to X-Forwarded-For. The client is the n-th element from the
// right over all lines of the header; 1 is the last one. Empty elements count. RemoteAddr is not
// used.
//
// If the header has fewer elements, the error matches [ErrNoKey]: the request bypassed a proxy, or
// a proxy does not append. A request that bypasses the proxies with a header of its own cannot be
// detected, and chooses its key. So do clients if n is greater than the number of proxies. Make
// sure that only the last proxy can connect, for example with the ingress setting of Cloud Run.
func TrustedHops(n int) IPOption {
	if n < 1 || n > maxTrustedHops {
		panic(fmt.Sprintf("handler: TrustedHops got %d; pass the number of proxies in front, 1 to %d, or leave it out if there are none", n, maxTrustedHops))
	}
	find := func(r *http.Request) (netip.Addr, error) {
		left := n
		for element := range forwardedFor(r) {
			if left--; left > 0 {
				continue
			}
			addr, ok := readAddr(element)
			if !ok {
				return netip.Addr{}, errBadHop
			}
			return addr, nil
		}
		return netip.Addr{}, errFewHops
	}
	return func(o *ipOptions) { o.findBy("TrustedHops", find) }
}

// forwardedFor yields the elements of X-Forwarded-For from the right. Proxies
// append to the last line or write one of their own below it, so that several
// lines are one list; an empty line is one empty element.
func forwardedFor(r *http.Request) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, line := range slices.Backward(r.Header["X-Forwarded-For"]) {
			for comma := len(line); comma >= 0; {
				line = line[:comma]
				comma = strings.LastIndexByte(line, ',')
				if !yield(line[comma+1:]) {
					return
				}
			}
		}
	}
}

// AddressHeader reads the client's address from a header in which the proxy puts that address
// alone, such as X-Real-IP, CF-Connecting-IP or CloudFront-Viewer-Address. If a request has no such
// line, several lines, or anything but one address, the error matches [ErrNoKey]. In
// CloudFront-Viewer-Address a port follows the last colon, with or without brackets around an IPv6
// address, because CloudFront writes none.
//
// The proxy must set the header on every request and overwrite the client's, and nothing else may
// be able to connect: the sender of the header chooses the key. RemoteAddr is not used.
// AddressHeader panics for X-Forwarded-For and Forwarded, which are lists that clients begin.
func AddressHeader(name string) IPOption {
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case !field.IsName(name):
		panic(fmt.Sprintf("handler: AddressHeader got %q, which is not a valid header name; pass a name such as \"X-Real-IP\"", name))
	case canonical == "Host":
		panic("handler: Go does not keep Host as a header, and it holds no client's address; pass a name such as \"X-Real-IP\"")
	case canonical == "X-Forwarded-For":
		panic("handler: AddressHeader cannot read X-Forwarded-For, a list that clients begin; use TrustedProxies or TrustedHops")
	case canonical == "Forwarded":
		panic("handler: the header Forwarded is not read; let the proxies append to X-Forwarded-For and use TrustedProxies or TrustedHops, or name a header that holds one address")
	}
	read := readAddr
	if canonical == "Cloudfront-Viewer-Address" {
		read = readViewer
	}
	errNotOne := noAddress("the request does not have one line %s with one address; the proxy must set it on every request, and no request may bypass the proxy", name)
	find := func(r *http.Request) (netip.Addr, error) {
		if lines := r.Header[canonical]; len(lines) == 1 {
			if addr, ok := read(lines[0]); ok {
				return addr, nil
			}
		}
		return netip.Addr{}, errNotOne
	}
	return func(o *ipOptions) { o.findBy("AddressHeader", find) }
}

// readViewer reads an address with a port, where an IPv6 address need not have
// brackets: readAddr would take the port of "2001:db8::1:4433" for a part of it.
func readViewer(s string) (netip.Addr, bool) {
	s = strings.Trim(s, " \t")
	if strings.HasPrefix(s, "[") || strings.Count(s, ":") < 2 {
		return readAddr(s)
	}
	colon := strings.LastIndexByte(s, ':')
	if _, err := strconv.ParseUint(s[colon+1:], 10, 16); err != nil {
		return netip.Addr{}, false
	}
	return plainAddr(netip.ParseAddr(s[:colon]))
}
