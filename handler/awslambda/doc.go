// Package awslambda serves the HTTP events of AWS Lambda with an [http.Handler] and limits them.
//
// Use it in a Lambda function behind a REST API or HTTP API of API Gateway, a function URL, or an
// Application Load Balancer (ALB). [Handler] serves all four kinds of events, so that one program
// runs on a server and in Lambda:
//
//	limit := handler.New(perClient, handler.ClientIP())
//	lambda.Start(awslambda.Handler(limit(mux), nil))
//
// [REST], [HTTPAPI], [FunctionURL] and [ALB] serve one kind of event. If a function takes the event
// itself, limit it with [LimitREST], [LimitHTTPAPI], [LimitFunctionURL] or [LimitALB]:
//
//	limit := awslambda.LimitHTTPAPI(perClient, handler.ClientIP())
//	lambda.Start(limit(func(ctx context.Context, event events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
//		...
//	}))
//
// The limiter's responses have the form of the event. [LimitAllREST], [LimitAllHTTPAPI],
// [LimitAllFunctionURL] and [LimitAllALB] ask several limiters for one decision, as
// [handler.NewAll] does.
//
// # Addresses
//
// RemoteAddr is the address in the event's requestContext, without a port: the peer of the gateway,
// whatever headers it sent. [handler.ClientIP] needs no option for it. Behind CloudFront the peer is
// CloudFront: see ClientIP.
//
// An ALB's event has no such field. RemoteAddr is then the last element of X-Forwarded-For, which the
// load balancer appends, without its port. Leave the attribute
// routing.http.xff_header_processing.mode at append. With preserve, clients choose the address. With
// remove there is no address, and ClientIP refuses the request. The load balancer's health checks have
// no address either: serve their path outside of the limiter.
//
// # Paths
//
// The path is what the gateway sends. In an HTTP API with a named stage it begins with the stage. In
// a REST API whose custom domain has a base path, it begins with that base path. [http.StripPrefix]
// removes them. An HTTP API has already unescaped the path, in both payload formats. This package
// does not unescape it again, and "%2F" cannot be told from "/". The other gateways send the path as
// the client did.
//
// # Responses
//
// Responses are buffered, and Flush sends nothing, because Lambda sends a response when the function
// returns. For a function URL with the invoke mode RESPONSE_STREAM, pass the limited handler to
// package lambdaurl of aws-lambda-go.
//
// A body is sent in base64 if it is not UTF-8, if it has a Content-Encoding, or if base64 is shorter
// than a JSON string, because Lambda accepts 6 MB of JSON. A REST API decodes base64 only for its
// binary media types, so for a REST API a body without control characters stays text.
//
// If an event has one value per header name, several lines are joined by commas, except Set-Cookie.
// An ALB has room for several cookies only if its target group has multi-value headers enabled.
//
// A panic is not recovered. It ends the process, as in any Lambda function.
//
// After each invocation, even after a panic, the adapters remove the temporary files of
// [http.Request.MultipartForm]. They cannot see a form that was parsed on a copy of the request.
// [http.StripPrefix], [http.MaxBytesHandler] and Request.WithContext make such copies. If they are
// outside of a limiter, the handler that parses a form must call RemoveAll itself.
//
// # Deadlines
//
// A request's context ends with the invocation. If 200 ms are left at the call, a limiter.Limiter returns at least
// 50 ms before that, even if the store hangs. After a timeout, the failure policy applies if the operation had
// the full time of limiter.WithTimeout. Otherwise the answer is 503. So keep that time (250 ms by default) at least
// 100 ms below what is left of the invocation.
package awslambda
