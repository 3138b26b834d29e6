package grpclimiter_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/grpclimiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/internal/keyleak"
	"github.com/sqlimit/limiter/internal/testenv"
)

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
				if got := status.Convert(err).Message(); got != c.message {
					t.Errorf("message %q, want %q", got, c.message)
				}
			}
			text := log.String()
			if strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=WARN") || !strings.Contains(text, "limiter=api") || !strings.Contains(text, c.fix) {
				t.Errorf("the log is %s\nwant one line that says %q", text, c.fix)
			}
			if found := keyleak.Of(secret).In(log.Bytes()); len(found) > 0 {
				t.Errorf("the key is in the log as %v: %s", found, text)
			}
		})
	}
}
