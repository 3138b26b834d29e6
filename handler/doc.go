// Package handler limits the requests to an [http.Handler].
//
// Use it on a server, on Cloud Run, and with package awslambda in AWS Lambda. New returns
// middleware of the usual form, func(http.Handler) http.Handler:
//
//	limit := handler.New(perClient, handler.ClientIP())
//	http.Handle("GET /search", limit(search))
//
// The middleware does not wrap the ResponseWriter, so [http.Flusher], [http.Hijacker] and others
// work as before. In chi write r.With(limit).Get(path, h), in echo e.GET(path, h,
// echo.WrapMiddleware(limit)). With r.Use and e.Use all routes share one limit, and [Route] does not
// work. The router of any framework is itself a handler: limit(gin.New()).
//
// # Responses
//
// Each response has the fields RateLimit-Policy and RateLimit of
// draft-ietf-httpapi-ratelimit-headers-11. (Go spells them Ratelimit; field names are not
// case-sensitive.)
//
//   - A refusal is 429 Too Many Requests with Retry-After, Cache-Control: no-store and a problem
//     document (RFC 9457) of the draft's type quota-exceeded.
//   - If there was no decision, the answer is 503 with Retry-After.
//   - If a request has no key, or costs more than can ever pass, the answer is 400.
//   - If the function of [Cost] or [Rule] returns a negative number, or [limiter.WithPolicyFor] chooses a
//     policy that is not valid or of the wrong kind, the answer is 500.
//
// The last three have a problem document whose detail is a sentence of a fixed list, without any key,
// name or number. The log says what to fix: see [OnError].
//
// The fields tell the policy that decided, which may be the one that [limiter.WithPolicyFor] chose.
//
// # Several limiters
//
// [NewAll] asks several limiters of one store for one decision. A request is charged to all of them
// or to none. On PostgreSQL this takes one round trip if all its keys were used before:
//
//	limit := handler.NewAll([]handler.Rule{
//		{Limiter: perSecond, Key: handler.ClientIP()},
//		{Limiter: perDay, Key: handler.ClientIP()},
//	})
//
// Limiters also nest, and may then have different stores and options: limit1(limit2(next)) asks
// limit1 first, then limit2, and calls next if both let the request pass. Their policies share one
// header field. If limit2 refuses, what limit1 charged stays charged, and Retry-After is the longest
// wait of the limiters that were asked. A sliding window that let the request
// pass adds no wait, because only its refusals tell one.
//
// If limiters nest, put the one with the broader key outside. If two share a key, put the one that
// refills more slowly inside: for example, the limit per second outside and the limit per day
// inside. A request that the inner one refuses stays charged by the outer one, which has that back
// within a second.
//
// # Requests in flight
//
// [NewConcurrency] limits how many requests of a key are in flight, over all processes: "10 exports at a
// time". Put it outside of rate limits, so that a refusal by a rate limit releases the place:
//
//	inFlight(rates(next))
//
// # CORS
//
// Put CORS middleware outside of the limiter: cors(limit(next)). It then answers preflights itself,
// uncharged, and adds the headers to refusals that let scripts of other origins read them.
// [ExposeHeaders] lets scripts read the limiter's headers. If the CORS middleware must be inside,
// for example in a router, pass [SkipPreflight]. Scripts then see a refusal as a network error.
package handler
