package grpclimiter_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/grpclimiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/internal/keyleak"
	"github.com/sqlimit/limiter/internal/testenv"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	const method, client = "/grpc.testing.TestService/UnaryCall", "192.0.2.1:50000"
	apiKey := grpclimiter.Metadata("X-Api-Key")
	methodAndKey := grpclimiter.Join(grpclimiter.Method(), apiKey)
	proxies := grpclimiter.ClientIP(handler.TrustedProxies(netip.MustParsePrefix("10.0.0.0/24")))
	for _, tt := range []struct {
		name  string
		key   grpclimiter.KeyFunc
		peer  string
		pairs []string // of metadata
		want  string   // "": the call has none
	}{
		{"Metadata", apiKey, client, []string{"x-api-key", "k1"}, "k1"},
		{"BinaryMetadata", grpclimiter.Metadata("id-bin"), client, []string{"id-bin", "\x00\xff"}, "\x00\xff"},
		{"EmptyMetadata", apiKey, client, []string{"x-api-key", ""}, ""},
		{"MetadataTwice", apiKey, client, []string{"x-api-key", "k1", "x-api-key", "k2"}, ""},
		{"Method", grpclimiter.Method(), client, nil, method},
		{"Join", methodAndKey, client, []string{"x-api-key", "k1"}, "35:" + method + "2:k1"},
		{"JoinWithoutOne", methodAndKey, client, nil, ""},
		{"IPv6CountsByAnotherPrefix", grpclimiter.ClientIP(handler.IPv6Prefix(48)), "[2001:db8:1:2:3:4:5:6]:50000", nil, "2001:db8:1::/48"},
		{"AForwardedAddressWithoutTrustIsNotRead", grpclimiter.ClientIP(), client, []string{"x-forwarded-for", "203.0.113.7"}, "192.0.2.1"},
		{"WhatTheClientWroteIsLeftOfTheProxys", proxies, "10.0.0.1:443", []string{"x-forwarded-for", "1.1.1.1, 203.0.113.7, 10.0.0.2"}, "203.0.113.7"},
		{"SeveralValuesAreOneList", proxies, "10.0.0.1:443", []string{"x-forwarded-for", "1.1.1.1", "x-forwarded-for", "203.0.113.7"}, "203.0.113.7"},
		{"TrustedHops", grpclimiter.ClientIP(handler.TrustedHops(2)), client, []string{"x-forwarded-for", "1.1.1.1, 203.0.113.7, 198.51.100.1"}, "203.0.113.7"},
		{"AddressHeaderTwice", grpclimiter.ClientIP(handler.AddressHeader("X-Api-Key")), client, []string{"x-api-key", "1.1.1.1", "x-api-key", "203.0.113.7"}, ""},
	} {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(tt.pairs...))
		ctx = peer.NewContext(ctx, &peer.Peer{Addr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(tt.peer))})
		got, err := tt.key(ctx, grpclimiter.Call{FullMethod: method})
		if got != tt.want || (err == nil) != (tt.want != "") || err != nil && !errors.Is(err, grpclimiter.ErrNoKey) {
			t.Errorf("%s: %q, %v; want %q", tt.name, got, err, tt.want)
		}
	}
}

func emptyKey(context.Context, grpclimiter.Call) (string, error) { return "", nil }

func TestMistakes(t *testing.T) {
	const secret = "alice-9f31c2-and-more@example.com"
	tenant := grpclimiter.Metadata("x-tenant")
	for _, c := range []struct {
		name    string
		key     grpclimiter.KeyFunc
		cost    int64
		message string
		fix     string // in the log
	}{
		{"TrustedHops without a proxy", grpclimiter.ClientIP(handler.TrustedHops(1)), 1, "The client's address is unknown.", "without a proxy, leave TrustedHops out"},
		{"no metadata", tenant, 1, "A required header field is missing, empty or repeated.", "the metadata has 0 values of x-tenant; clients must send one"},
		{"an empty part of a key", grpclimiter.Join(oneKey, emptyKey), 1, "The request has no key for its rate limit.", "every function must return a key"},
		{"a cost above the capacity", oneKey, 100, "The request costs more than its rate limit ever admits.", "the cost is 100; the policy admits at most 60; raise the limit, or let Cost return less"},
		{"an error that the application wraps", func(ctx context.Context, call grpclimiter.Call) (string, error) {
			_, err := tenant(ctx, call)
			return "", fmt.Errorf("%s: %w", secret, err)
		}, 1, "A required header field is missing, empty or repeated.", "the metadata has 0 values of x-tenant; clients must send one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := testenv.Logged(t)
			l := newLimiter(t, limiter.PerMinute(60))
			_, client := serve(t, grpclimiter.New(l, c.key, grpclimiter.Cost(costIs(c.cost))))
			for range 2 {
				_, err := call(t, client, "x-api-key", secret, "x-api-key", secret)
				wantCode(t, err, codes.InvalidArgument, 0)
				testenv.Equal(t, status.Convert(err).Message(), c.message, "message")
			}
			text := log.String()
			testenv.Equal(t, strings.Count(text, "\n"), 1, "lines of the log")
			testenv.Contains(t, text, "level=WARN", "limiter=api", c.fix)
			testenv.Equal(t, keyleak.Of(secret).In(log.Bytes()), nil, "traces of the key in the log", text)
		})
	}
}
