package grpclimiter

import (
	"context"

	"google.golang.org/grpc/metadata"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/middleware"
)

// The names of the metadata.
const (
	policyField     = "ratelimit-policy"
	quotaField      = "ratelimit"
	retryAfterField = "retry-after"
)

// addFields adds what d says to the metadata of a response.
func addFields(md metadata.MD, d *middleware.Decision) {
	for i := range d.Results {
		policy, quota := handler.FieldItems(d.Results[i].Limiter, d.Results[i].Result)
		add(md, policyField, policy)
		if quota != "" {
			add(md, quotaField, quota)
		}
	}
}

// add appends an item to a list in one line, as package handler does.
func add(md metadata.MD, name, item string) {
	if lines := md[name]; len(lines) > 0 {
		lines[0] += ", " + item
		return
	}
	md[name] = []string{item}
}

type resultKey struct{}

// decided is what withResult keeps.
type decided struct {
	result limiter.Result
	known  bool // false if there is no decision; it then hides that of an outer interceptor
}

func withResult(ctx context.Context, res limiter.Result, known bool) context.Context {
	return context.WithValue(ctx, resultKey{}, decided{res, known})
}

// ResultFromContext returns the decision on a call, from the context that the server's method gets.
// It reports false if the call was skipped, or if a dry run could not decide. If FailOpen let the
// call pass, the Source is [limiter.SourcePolicy]. With [NewAll] it is the decision as a whole. In a
// chain of interceptors it is that of the last one.
func ResultFromContext(ctx context.Context) (limiter.Result, bool) {
	d, _ := ctx.Value(resultKey{}).(decided)
	return d.result, d.known
}
