package grpclimiter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/middleware"
)

// retryNoDecision is the delay after a call without a decision. It keeps clients from retrying at once
// against a database that has only begun to recover.
const retryNoDecision = time.Second

// refusal returns the status of a call that d refuses, and nil if the call may pass.
func (i *Interceptor) refusal(ctx context.Context, call Call, d *middleware.Decision, md metadata.MD) error {
	if d.Result.Allowed {
		return nil
	}
	if i.onRefusal != nil {
		i.onRefusal(ctx, call, d.Result)
	}
	if i.dryRun {
		return nil
	}
	message := "rate limit exceeded"
	if names := d.Violated(); len(names) > 0 && !i.hide {
		message += ": " + strings.Join(names, ", ")
	}
	return retryable(codes.ResourceExhausted, message, d.Result.RetryAfter, md)
}

// noDecision returns the status of a call without a decision, or its context if an option lets it
// pass.
func (i *Interceptor) noDecision(ctx context.Context, call Call, d *middleware.Decision, err error, md metadata.MD) (context.Context, error) {
	i.report(ctx, call, err)
	cause := middleware.CauseOf(err)
	switch {
	case i.dryRun:
		return withResult(ctx, limiter.Result{}, false), nil
	case i.failOpen && d.Pass(err):
		return withResult(ctx, d.Result, true), nil
	case cause == middleware.Misused: // not the client's fault
		return ctx, status.Error(codes.Internal, cause.String())
	case cause != middleware.NoDecision: // no wait would help
		return ctx, status.Error(codes.InvalidArgument, cause.String())
	case errors.Is(err, limiter.ErrCanceled):
		if errors.Is(err, context.DeadlineExceeded) {
			return ctx, status.FromContextError(context.DeadlineExceeded).Err()
		}
		return ctx, status.FromContextError(context.Canceled).Err()
	}
	return ctx, retryable(codes.Unavailable, cause.String(), retryNoDecision, md)
}

// retryable returns a status that tells the client when to retry, and adds the same to md.
func retryable(code codes.Code, message string, wait time.Duration, md metadata.MD) error {
	md[retryAfterField] = []string{handler.RetryAfter(wait)}
	info := &errdetails.RetryInfo{RetryDelay: durationpb.New(toMilliseconds(wait))}
	s, err := status.New(code, message).WithDetails(info)
	if err != nil {
		panic(fmt.Sprintf("grpclimiter: %v", err)) // the code is not OK, and RetryInfo can be encoded
	}
	return s.Err()
}

// toMilliseconds rounds up, so that no client comes too early. It is at least 1 ms.
func toMilliseconds(d time.Duration) time.Duration {
	d = min(max(d, 1), math.MaxInt64-time.Millisecond) // the sum does not overflow
	return (d - 1).Truncate(time.Millisecond) + time.Millisecond
}

// report passes err to OnError, or logs it if there is no OnError.
func (i *Interceptor) report(ctx context.Context, call Call, err error) {
	var onError func(error)
	if i.onError != nil {
		onError = func(err error) { i.onError(ctx, call, err) }
	}
	i.rules.Report(ctx, err, onError)
}
