package awslambda_test

import (
	"encoding/base64"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// forwarded returns the request's header with what a gateway adds.
func forwarded(r *http.Request) http.Header {
	h := r.Header.Clone()
	h.Set("Host", r.Host)
	h.Set("X-Forwarded-For", strings.Join(append(h.Values("X-Forwarded-For"), client), ", "))
	h.Set("X-Forwarded-Proto", "https")
	return h
}

func setBody(event map[string]any, body string) map[string]any {
	event["body"], event["isBase64Encoded"] = body, !utf8.ValidString(body)
	if !utf8.ValidString(body) {
		event["body"] = base64.StdEncoding.EncodeToString([]byte(body))
	}
	return event
}

func last(values map[string][]string) map[string]string {
	lasts := make(map[string]string)
	for name, v := range values {
		lasts[name] = v[len(v)-1]
	}
	return lasts
}

func restEvent(r *http.Request, body, path string, resource any) map[string]any {
	h, query := forwarded(r), r.URL.Query()
	return setBody(map[string]any{
		"resource": "/{proxy+}", "path": path, "httpMethod": r.Method,
		"headers": last(h), "multiValueHeaders": h,
		"queryStringParameters": last(query), "multiValueQueryStringParameters": query,
		"requestContext": map[string]any{
			"resourceId": resource, "protocol": "HTTP/1.1", "domainName": r.Host,
			"identity": map[string]any{"sourceIp": client},
		},
	}, body)
}

// headerOf returns the header of the fields of a response that a gateway reads.
func headerOf(values map[string]string, lists map[string][]string, cookies []string) http.Header {
	h := make(http.Header)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		h.Add(name, values[name])
	}
	for name, lines := range lists {
		h[http.CanonicalHeaderKey(name)] = lines
	}
	for _, cookie := range cookies {
		h.Add("Set-Cookie", cookie)
	}
	return h
}

func restHeader(_ *testing.T, res *lambdaResponse) http.Header {
	return headerOf(res.Headers, res.MultiValueHeaders, nil)
}

func v2Event(r *http.Request, body, path, domain string) map[string]any {
	headers := make(map[string]string)
	for name, lines := range forwarded(r) {
		headers[strings.ToLower(name)] = strings.Join(lines, ",")
	}
	event := map[string]any{
		"version": "2.0", "routeKey": "$default", "rawPath": path, "rawQueryString": r.URL.RawQuery, "headers": headers,
		"requestContext": map[string]any{
			"domainName": domain,
			"http":       map[string]any{"method": r.Method, "path": r.URL.Path, "protocol": "HTTP/1.1", "sourceIp": client},
		},
	}
	if cookie, ok := headers["cookie"]; ok {
		event["cookies"] = strings.Split(cookie, "; ")
		if !strings.Contains(domain, "lambda-url") {
			delete(headers, "cookie")
		}
	}
	return setBody(event, body)
}

func v2Header(_ *testing.T, res *lambdaResponse) http.Header {
	return headerOf(res.Headers, nil, res.Cookies)
}

func albEvent(r *http.Request, body string, multi bool) map[string]any {
	event := map[string]any{
		"httpMethod": r.Method, "path": r.URL.EscapedPath(),
		"requestContext": map[string]any{"elb": map[string]any{"targetGroupArn": "arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/t/1"}},
	}
	header := make(map[string][]string)
	for name, lines := range forwarded(r) {
		header[strings.ToLower(name)] = lines
	}
	query := make(map[string][]string)
	for part := range strings.SplitSeq(r.URL.RawQuery, "&") {
		if name, value, _ := strings.Cut(part, "="); name != "" {
			query[name] = append(query[name], value)
		}
	}
	if multi {
		// What the client sent comes first, and then again with its address.
		header["x-forwarded-for"] = append(slices.Clone(r.Header["X-Forwarded-For"]), header["x-forwarded-for"]...)
		event["multiValueHeaders"], event["multiValueQueryStringParameters"] = header, query
	} else {
		event["headers"], event["queryStringParameters"] = last(header), last(query)
	}
	return setBody(event, body)
}

func albHeader(multi bool) func(*testing.T, *lambdaResponse) http.Header {
	return func(t *testing.T, res *lambdaResponse) http.Header {
		t.Helper()
		code, phrase, _ := strings.Cut(res.StatusDescription, " ")
		if len(code) != 3 || phrase == "" {
			t.Errorf("the status description is %q; an ALB answers that with 502", res.StatusDescription)
		}
		if multi {
			return headerOf(nil, res.MultiValueHeaders, nil)
		}
		if res.Headers == nil {
			t.Error("the response has no headers; an ALB answers that with 502")
		}
		return headerOf(res.Headers, nil, nil)
	}
}
