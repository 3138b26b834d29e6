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

// IPOption changes how [ClientIP] finds the client and what its key is.
// [TrustedProxies], [TrustedHops] and [AddressHeader] exclude each other.
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

// IPv6Prefix tells [ClientIP] how many leading bits of an IPv6 address make the
// key, 32 to 128. IPv4 addresses always count whole.
//
// The default is 64, the network of one link: a host can take any address in it. Providers
// give a customer more than one such network: 256 in a /56, and 65,536 in a /48, each with
// a key of its own. Fewer bits count them as one, but also neighbors whose provider gives
// each a /64, as mobile networks do: one of them can then use up the limit of all. A second
// limiter by 48 bits, with a larger limit and outside of the first, bounds both.
//
// Use 128 where the network writes many IPv4 clients into one IPv6 prefix, as
// translators do.
func IPv6Prefix(bits int) IPOption {
	if bits < minIPv6Prefix || bits > 128 {
		panic(fmt.Sprintf("handler: IPv6Prefix got %d bits; pass %d to 128, such as 64 or 56", bits, minIPv6Prefix))
	}
	return func(o *ipOptions) { o.bits = bits }
}

// TrustedProxies tells [ClientIP] which addresses are those of proxies of yours,
// each of which must append the address it sees to X-Forwarded-For. A connection
// from elsewhere is the client's own, and the header is not looked at. Else the
// header, all lines of it, is read from the right, and the first address that is
// not one of the proxies is the client: what clients write stands to the left of
// that and is never read. If all are proxies, the leftmost is the client.
//
// An element that cannot be read, empty ones included, ends the search with an
// error that matches [ErrNoKey], as does a proxy that sends no such header, or
// nobody could tell its clients apart. Health checks that a proxy makes itself
// have none, either: [Skip] them.
//
// Whoever connects from one of the prefixes chooses its own key, so they must
// hold no clients: list the proxies, not the network that they share with others.
// Prefixes of no bits panic, since they trust everybody.
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

// TrustedHops tells [ClientIP] how many proxies of yours, 1 to 16, every request
// comes through, each of which must append the address it sees to
// X-Forwarded-For: the client is the n-th element from the right over all lines
// of the header, 1 being the last. Elements count even if they are empty.
// RemoteAddr is not looked at.
//
// A header of fewer elements is an error that matches [ErrNoKey]: the request
// came around a proxy, or one does not append. That a request came around them
// with a header of its own cannot be seen, and it chooses its key, as clients do
// if n is greater than the number of proxies. So make sure that nothing connects
// but the last proxy, as with the ingress setting of Cloud Run.
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

// AddressHeader tells [ClientIP] to read the client's address from a header in
// which the proxy in front puts that address alone, such as X-Real-IP,
// CF-Connecting-IP or CloudFront-Viewer-Address. A request without it, with
// several lines or with anything but one address is an error that matches
// [ErrNoKey]. In CloudFront-Viewer-Address a port follows the last colon, with
// or without brackets around an IPv6 address, as CloudFront writes none.
//
// The proxy must set the header on every request, over what the client sent, and
// nothing else may connect: who can send the header chooses the key. RemoteAddr
// is not looked at. X-Forwarded-For and Forwarded hold lists that clients begin,
// and panic.
func AddressHeader(name string) IPOption {
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case !field.IsName(name):
		panic(fmt.Sprintf("handler: AddressHeader got %q, which no header is called; pass a name such as \"X-Real-IP\"", name))
	case canonical == "Host":
		panic("handler: Host is no header of a request in Go, and holds no client's address; pass a name such as \"X-Real-IP\"")
	case canonical == "X-Forwarded-For":
		panic("handler: AddressHeader cannot read X-Forwarded-For, a list that clients begin; use TrustedProxies or TrustedHops")
	case canonical == "Forwarded":
		panic("handler: the header Forwarded is not read; let the proxies append to X-Forwarded-For and use TrustedProxies or TrustedHops, or name a header that holds one address")
	}
	read := readAddr
	if canonical == "Cloudfront-Viewer-Address" {
		read = readViewer
	}
	errNotOne := noKey("the request does not have one line %s with one address; let the proxy set it on every request, and nobody come around it", name)
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
