package awslambda

import (
	"cmp"
	"context"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/sqlimit/limiter/handler"
)

// ALBFunc is a Lambda function for the events of an Application Load Balancer.
type ALBFunc = func(context.Context, events.ALBTargetGroupRequest) (events.ALBTargetGroupResponse, error)

// ALB returns a function that serves the events of an Application Load Balancer with h. It panics
// if h is nil.
func ALB(h http.Handler) ALBFunc { return albForm.handle(h) }

// LimitALB is [LimitHTTPAPI] for functions that take the events of an Application Load Balancer,
// which have no route.
func LimitALB(l handler.Limiter, key handler.KeyFunc, opts ...handler.Option) func(ALBFunc) ALBFunc {
	return albForm.limit(l, key, opts)
}

// LimitAllALB is [LimitAllHTTPAPI] for functions that take the events of an Application Load
// Balancer, which have no route.
func LimitAllALB(rules []handler.Rule, opts ...handler.Option) func(ALBFunc) ALBFunc {
	return albForm.limitAll(rules, opts)
}

var albForm = form[events.ALBTargetGroupRequest, events.ALBTargetGroupResponse]{
	request: func(e *events.ALBTargetGroupRequest) message {
		var query []string // still escaped, names included
		for name, values := range sorted(e.MultiValueQueryStringParameters, e.QueryStringParameters) {
			for _, value := range values {
				query = append(query, name+"="+value)
			}
		}
		h := headerOf(e.MultiValueHeaders, e.Headers)
		return message{
			method: e.HTTPMethod,
			path:   e.Path,
			query:  strings.Join(query, "&"),
			header: h,
			addr:   lastForwarded(h),
			body:   e.Body,
			base64: e.IsBase64Encoded,
		}
	},
	response: func(e *events.ALBTargetGroupRequest, r response) events.ALBTargetGroupResponse {
		a := events.ALBTargetGroupResponse{
			StatusCode:        r.status,
			StatusDescription: description(r.status),
			Body:              r.body,
			IsBase64Encoded:   r.base64,
		}
		if multiValue(e) {
			a.MultiValueHeaders = r.header
			return a
		}
		a.Headers = r.joined() // never nil, which would be answered 502
		for i, cookie := range r.header[cookieField] {
			a.Headers[spelling(cookieField, i)] = cookie
		}
		return a
	},
	merge: func(e *events.ALBTargetGroupRequest, r *events.ALBTargetGroupResponse, h http.Header) {
		r.Headers, r.MultiValueHeaders = merged(h, r.Headers, r.MultiValueHeaders, multiValue(e))
	},
}

// multiValue reports whether the target group has multi-value headers enabled. The load balancer
// then sends and reads only MultiValueHeaders, otherwise only Headers.
func multiValue(e *events.ALBTargetGroupRequest) bool { return e.MultiValueHeaders != nil }

// lastForwarded returns the address that the load balancer appended, without the port that the attribute
// routing.http.xff_client_port.enabled adds. If the header has several lines, it is in the last one.
func lastForwarded(h http.Header) string {
	lines := h["X-Forwarded-For"]
	if len(lines) == 0 {
		return ""
	}
	last := lines[len(lines)-1]
	addr := strings.Trim(last[strings.LastIndexByte(last, ',')+1:], " \t")
	if withPort, err := netip.ParseAddrPort(addr); err == nil {
		return withPort.Addr().String()
	}
	return addr
}

// description returns the status with its reason phrase. If HTTP defines none, it is the phrase
// that net/http sends, because there must be one.
func description(status int) string {
	code := strconv.Itoa(status)
	return code + " " + cmp.Or(http.StatusText(status), "status code "+code)
}

// spelling returns the i-th spelling of name in upper and lower case. With different spellings, a
// map with one line per name has room for several lines. AWS promises to send only one.
func spelling(name string, i int) string {
	b := []byte(name)
	for at := 0; at < len(b) && i > 0; at++ {
		if b[at] != '-' {
			b[at] ^= byte(i&1) << 5
			i >>= 1
		}
	}
	return string(b)
}
