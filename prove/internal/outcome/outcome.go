// Package outcome names what an answer says of its charge, and finds answers that say two things.
package outcome

import (
	"errors"

	"github.com/sqlimit/limiter"
)

// The classes of answers.
const (
	Carried       = "carried out"
	Refused       = "refused"
	NotApplied    = "not applied"
	Unknown       = "unknown"
	Canceled      = "canceled"
	CanceledLate  = "canceled, unknown"
	Misconfigured = "misconfigured"
	Invalid       = "invalid"
	Other         = "of no class" // an error that has no class, or several that exclude each other
)

// Of returns the class of an answer. Carried is whether it says so, if it is no error.
func Of(carried bool, err error) string {
	if err == nil {
		if carried {
			return Carried
		}
		return Refused
	}
	class, n := Other, 0
	for of, target := range map[string]error{
		NotApplied: limiter.ErrNotApplied, Unknown: limiter.ErrOutcomeUnknown, Canceled: limiter.ErrCanceled,
		Misconfigured: limiter.ErrMisconfigured, Invalid: limiter.ErrInvalid,
	} {
		if errors.Is(err, target) {
			class = of
			n++
		}
	}
	switch {
	case n == 2 && errors.Is(err, limiter.ErrCanceled) && errors.Is(err, limiter.ErrOutcomeUnknown):
		return CanceledLate
	case n > 1:
		return Other
	}
	return class
}
