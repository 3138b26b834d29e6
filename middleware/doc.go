// Package middleware decides on requests by one limiter or several. It finds keys and costs, asks for
// one decision, and gives back what was taken. It knows no transport: the caller reads requests and
// writes responses.
//
// Import it to write middleware for another transport, such as a message queue. Applications import
// the finished ones: package handler for net/http, handler/awslambda for events of AWS Lambda, and
// grpclimiter for gRPC. [handler.FieldItems] and [handler.RetryAfter] write the fields that clients get.
//
//	rules, err := middleware.New(middleware.Rule[*Message]{Limiter: l, Key: sender}, false)
//	...
//	var d middleware.Decision
//	err = rules.Decide(ctx, message, &d)
//	switch {
//	case err != nil: // no decision was made
//	case !d.Result.Allowed: // try again after d.Result.RetryAfter
//	}
//
// [handler.FieldItems]: https://pkg.go.dev/github.com/sqlimit/limiter/handler#FieldItems
// [handler.RetryAfter]: https://pkg.go.dev/github.com/sqlimit/limiter/handler#RetryAfter
package middleware
