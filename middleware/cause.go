package middleware

import (
	"errors"
	"fmt"

	"github.com/sqlimit/limiter"
)

// Cause is why a request gets no decision. Its text is a sentence for clients. The list of causes is
// fixed, so clients never get a key, a name or a number.
type Cause uint8

// The causes. The last five belong to errors that match [ErrNoKey].
const (
	NoDecision     Cause = iota // any other error, mostly a failure of the store
	Misused                     // limiter.ErrInvalid: a negative cost, or a policy of the wrong kind
	TooCostly                   // limiter.ErrExceedsCapacity
	WithoutKey                  // no key, for no cause below
	WithoutAddress              // the client's address is unknown
	WithoutField                // a header or metadata is missing, empty or repeated
	WithoutRoute                // the router matched no route
	WithoutUser                 // authentication found no user
)

var sentences = [...]string{
	NoDecision:     "The rate limiter could not decide.",
	Misused:        "The rate limiter was used wrongly.",
	TooCostly:      "The request costs more than its rate limit ever admits.",
	WithoutKey:     "The request has no key for its rate limit.",
	WithoutAddress: "The client's address is unknown.",
	WithoutField:   "A required header field is missing, empty or repeated.",
	WithoutRoute:   "The request matched no route.",
	WithoutUser:    "The request has no authenticated user.",
}

// String returns the sentence for clients.
func (c Cause) String() string {
	if int(c) >= len(sentences) {
		c = NoDecision
	}
	return sentences[c]
}

// CauseOf returns the cause of an error of [Rules.Decide].
func CauseOf(err error) Cause {
	var e *keyError
	switch {
	case errors.As(err, &e):
		return e.cause
	case errors.Is(err, ErrNoKey):
		return WithoutKey
	case errors.Is(err, limiter.ErrExceedsCapacity):
		return TooCostly
	case errors.Is(err, limiter.ErrInvalid):
		return Misused
	}
	return NoDecision
}

// NoKey returns the error of a key function that finds no key. It matches [ErrNoKey], and clients get
// the sentence of the cause. [Rules.Report] logs the text: it must say what to fix, and must not
// contain a key. A cause that is not one of a missing key counts as [WithoutKey].
func NoKey(c Cause, format string, args ...any) error {
	if c < WithoutKey || int(c) >= len(sentences) {
		c = WithoutKey
	}
	return &keyError{c, fmt.Sprintf(format, args...)}
}

// keyError is an error whose text may be logged.
type keyError struct {
	cause Cause
	text  string
}

func (e *keyError) Error() string { return ErrNoKey.Error() + ": " + e.text }

func (*keyError) Unwrap() error { return ErrNoKey }

var errForeign = NoKey(WithoutKey, "the key function returned an error, whose text may hold a key; set OnError to see it")

// toLog returns what the log says about a request that cannot pass. An application may have put a key
// into an error that it wrote, or that it wrapped around one of NoKey.
func toLog(err error) error {
	var e *keyError
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, ErrNoKey):
		return errForeign
	}
	return fmt.Errorf("%w; raise the limit, or let Cost return less", err)
}
