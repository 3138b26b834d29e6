// Package grpclimiter limits the calls to a gRPC server.
//
// [New] returns an interceptor for unary calls and for streams:
//
//	limit := grpclimiter.New(perClient, grpclimiter.ClientIP())
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(limit.Unary),
//		grpc.ChainStreamInterceptor(limit.Stream),
//	)
//
// Each call is charged once, before the server handles it. A stream is charged when it opens,
// however many messages follow. Health checks and reflection are calls like any other: leave them
// out with [Skip].
//
// # Responses
//
// The response metadata of each decision has the fields ratelimit-policy and ratelimit of
// draft-ietf-httpapi-ratelimit-headers-11, as package handler writes them. A call that is not
// handled ends with one of these codes:
//
//   - RESOURCE_EXHAUSTED: the call was refused. The status has an errdetails.RetryInfo, whose delay
//     is rounded up to the millisecond. The metadata has retry-after in seconds.
//   - UNAVAILABLE: there was no decision. RetryInfo and retry-after say 1 second.
//   - INVALID_ARGUMENT: the call has no key, or costs more than can ever pass.
//   - INTERNAL: the function of [Cost] or [Rule] returned a negative number, or
//     [limiter.WithPolicyFor] chose a policy that is not valid or of the wrong kind.
//   - CANCELED or DEADLINE_EXCEEDED: the caller left, or the deadline is too close.
//
// The message of RESOURCE_EXHAUSTED names the limiters that refused the call. The other messages are
// sentences of a fixed list, without any key, name or number. The log says what to fix: see [OnError].
//
// # Several limiters
//
// [NewAll] asks several limiters of one store for one decision. A call is charged to all of them or
// to none. Interceptors can also be chained. Each of them then adds its own lines of metadata. A call
// that the second one refuses stays charged by the first, and retry-after is the second one's.
package grpclimiter
