package grpclimiter_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/grpclimiter"
	"github.com/sqlimit/limiter/handler"
)

func TestClientIP(t *testing.T) {
	t.Parallel()
	proxies := handler.TrustedProxies(netip.MustParsePrefix("10.0.0.0/24"))
	forwarded := func(lines ...string) (pairs []string) {
		for _, line := range lines {
			pairs = append(pairs, "x-forwarded-for", line)
		}
		return pairs
	}
	for _, tt := range []struct {
		name, peer string
		opts       []handler.IPOption
		pairs      []string
		key        string // "": the call has none
	}{
		{"IPv6CountsByAnotherPrefix", "[2001:db8:1:2:3:4:5:6]:50000", []handler.IPOption{handler.IPv6Prefix(48)}, nil, "2001:db8:1::/48"},
		{"AForwardedAddressWithoutTrustIsNotRead", "192.0.2.1:50000", nil, forwarded("203.0.113.7"), "192.0.2.1"},
		{"AForwardedAddressFromAStrangerIsNotRead", "192.0.2.1:50000", []handler.IPOption{proxies}, forwarded("203.0.113.7"), "192.0.2.1"},
		{"WhatTheClientWroteIsLeftOfTheProxys", "10.0.0.1:443", []handler.IPOption{proxies}, forwarded("1.1.1.1, 203.0.113.7, 10.0.0.2"), "203.0.113.7"},
		{"SeveralValuesAreOneList", "10.0.0.1:443", []handler.IPOption{proxies}, forwarded("1.1.1.1", "203.0.113.7"), "203.0.113.7"},
		{"AProxyThatForwardsNonsense", "10.0.0.1:443", []handler.IPOption{proxies}, forwarded("1.1.1.1, unknown"), ""},
		{"TrustedHops", "192.0.2.1:50000", []handler.IPOption{handler.TrustedHops(2)}, forwarded("1.1.1.1, 203.0.113.7, 198.51.100.1"), "203.0.113.7"},
		{"AddressHeaderTwice", "192.0.2.1:50000", []handler.IPOption{handler.AddressHeader("X-Real-IP")}, []string{"x-real-ip", "1.1.1.1", "x-real-ip", "203.0.113.7"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLimiter(t, limiter.PerMinute(2))
			_, client := serveFrom(t, tt.peer, grpclimiter.New(l, grpclimiter.ClientIP(tt.opts...)))
			_, err := call(t, client, tt.pairs...)
			if tt.key == "" {
				wantCode(t, err, codes.InvalidArgument, 0)
				return
			}
			wantCode(t, err, codes.OK, 0)
			if got := left(t, l, tt.key); got != 1 {
				t.Errorf("%s has %d left, want 1", tt.key, got)
			}
		})
	}
}

func TestKeysOfMetadataAndMethod(t *testing.T) {
	t.Parallel()
	const method = "/grpc.testing.TestService/UnaryCall"
	for _, tt := range []struct {
		name  string
		key   grpclimiter.KeyFunc
		pairs []string
		want  string // "": the call has none
	}{
		{"Metadata", grpclimiter.Metadata("X-Api-Key"), []string{"x-api-key", "k1"}, "k1"},
		{"BinaryMetadata", grpclimiter.Metadata("id-bin"), []string{"id-bin", "\x00\xff"}, "\x00\xff"},
		{"NoMetadata", grpclimiter.Metadata("x-api-key"), nil, ""},
		{"EmptyMetadata", grpclimiter.Metadata("x-api-key"), []string{"x-api-key", ""}, ""},
		{"MetadataTwice", grpclimiter.Metadata("x-api-key"), []string{"x-api-key", "k1", "x-api-key", "k2"}, ""},
		{"Method", grpclimiter.Method(), nil, method},
		{"Join", grpclimiter.Join(grpclimiter.Method(), grpclimiter.Metadata("x-api-key")), []string{"x-api-key", "k1"}, "35:" + method + "2:k1"},
		{"JoinWithoutOne", grpclimiter.Join(grpclimiter.Method(), grpclimiter.Metadata("x-api-key")), nil, ""},
		{"JoinWithAnEmptyOne", grpclimiter.Join(emptyKey), nil, ""},
		{"AnEmptyKey", emptyKey, nil, ""},
		{"AFunctionThatFails", func(context.Context, grpclimiter.Call) (string, error) { return "", errors.New("secret") }, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var failure error
			onError := grpclimiter.OnError(func(_ context.Context, _ grpclimiter.Call, err error) { failure = err })
			l := newLimiter(t, limiter.PerMinute(2))
			s, client := serve(t, grpclimiter.New(l, tt.key, onError))
			_, err := call(t, client, tt.pairs...)
			if tt.want != "" {
				wantCode(t, err, codes.OK, 0)
				if got := left(t, l, tt.want); got != 1 {
					t.Errorf("%q has %d left, want 1", tt.want, got)
				}
				return
			}
			wantCode(t, err, codes.InvalidArgument, 0)
			if !errors.Is(failure, grpclimiter.ErrNoKey) || !errors.Is(failure, handler.ErrNoKey) {
				t.Errorf("OnError got %v, want ErrNoKey", failure)
			}
			if strings.Contains(err.Error(), "secret") || s.calls.Load() != 0 {
				t.Errorf("error %v, %d calls", err, s.calls.Load())
			}
		})
	}
}

func emptyKey(context.Context, grpclimiter.Call) (string, error) { return "", nil }
