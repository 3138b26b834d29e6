package leases_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/leases"
	"github.com/sqlimit/limiter/prove/internal/outcome"
)

const hold = int64(time.Second)

// call returns the two events of a call. The store's clock is that of the answer.
func call(kind limiter.OpKind, id, sent, answered int64, class string) []leases.Event {
	return []leases.Event{
		{Kind: kind, ID: id, Hold: hold, At: sent},
		{Kind: kind, ID: id, Hold: hold, At: answered, Now: answered, Class: class},
	}
}

func TestStepsAreKnown(t *testing.T) {
	const limit, at, day = 2, 1000, 24 * time.Hour
	end := 110 + hold // of the first lease, without a step
	for name, c := range map[string]struct {
		step        time.Duration
		sent        int64 // a third acquire
		class       string
		before      []leases.Event
		held, wrong int
	}{
		"leases end by a step forward":                  {step: time.Second, sent: at, class: outcome.Carried, held: 2},
		"a refusal after that":                          {step: time.Second, sent: at, class: outcome.Refused, held: 2, wrong: 1},
		"leases end earlier by a step forward":          {step: 300, sent: end - 310, class: outcome.Carried, held: 2},
		"one more before they end":                      {step: -day, sent: end + int64(day) - 11, class: outcome.Carried, held: 3},
		"a refusal before they end":                     {step: -day, sent: end + int64(day) - 1, class: outcome.Refused, held: 2},
		"a refusal after they end":                      {step: -day, sent: end + int64(day), class: outcome.Refused, held: 2, wrong: 1},
		"too late an end counts as ended":               {step: -day - 2*time.Second, sent: at, class: outcome.Carried, held: 2},
		"a refusal for too late an end":                 {step: -day - 2*time.Second, sent: at, class: outcome.Refused, held: 2, wrong: 1},
		"a refusal when that end is near":               {step: -day - 2*time.Second, sent: end + 100, class: outcome.Refused, held: 2},
		"a refusal for a lease that had been released":  {step: -day, sent: at, class: outcome.Refused, held: 2, wrong: 1, before: call(limiter.OpRelease, 1, 300, 310, outcome.Carried)},
		"one more before a step":                        {step: day, sent: at, class: outcome.Refused, held: 3, wrong: 1, before: call(limiter.OpAcquire, 4, 300, 310, outcome.Carried)},
		"a refusal before a step although one was free": {step: -day, sent: at, class: outcome.Carried, held: 2, wrong: 1, before: append(call(limiter.OpRelease, 1, 300, 310, outcome.Carried), call(limiter.OpAcquire, 4, 320, 330, outcome.Refused)...)},
	} {
		var told leases.Ledger
		for _, e := range slices.Concat(call(limiter.OpAcquire, 1, 100, 110, outcome.Carried), call(limiter.OpAcquire, 2, 200, 210, outcome.Carried), c.before) {
			told.Note(e)
		}
		told.Step(limit, at, c.step)
		for _, e := range call(limiter.OpAcquire, 3, c.sent, c.sent+10, c.class) {
			e.Now += int64(c.step)
			told.Note(e)
		}
		if held, wrong := told.Check(limit); held != c.held || len(wrong) != c.wrong {
			t.Errorf("%s: %d held and %q; want %d and %d", name, held, wrong, c.held, c.wrong)
		}
	}
}

func TestEachFaultIsSeen(t *testing.T) {
	const limit = 2
	of := func(kind limiter.OpKind) func(id, sent int64, class string) []leases.Event {
		return func(id, sent int64, class string) []leases.Event { return call(kind, id, sent, sent+10, class) }
	}
	acquire, release, extend := of(limiter.OpAcquire), of(limiter.OpRelease), of(limiter.OpExtend)
	two := [][]leases.Event{acquire(1, 100, outcome.Carried), acquire(2, 200, outcome.Carried)}
	end := 110 + hold // of the first of them
	for name, c := range map[string]struct {
		calls       [][]leases.Event
		held, wrong int
	}{
		"as many as the limit":                  {[][]leases.Event{acquire(3, 300, outcome.Refused)}, 2, 0},
		"one more":                              {[][]leases.Event{acquire(3, 300, outcome.Carried)}, 3, 0},
		"after a release":                       {[][]leases.Event{release(1, 300, outcome.Carried), acquire(3, 320, outcome.Carried)}, 2, 0},
		"after a release of unknown outcome":    {[][]leases.Event{release(1, 300, outcome.Unknown), acquire(3, 320, outcome.Carried)}, 2, 0},
		"at the end of a lease":                 {[][]leases.Event{acquire(3, end-10, outcome.Carried)}, 2, 0},
		"before the end":                        {[][]leases.Event{acquire(3, end-11, outcome.Carried)}, 3, 0},
		"before the end of an extended lease":   {[][]leases.Event{extend(1, 300, outcome.Carried), acquire(3, end, outcome.Carried)}, 3, 0},
		"of unknown outcome":                    {[][]leases.Event{acquire(3, 300, outcome.Unknown)}, 2, 0},
		"a refusal after a release":             {[][]leases.Event{release(1, 300, outcome.Carried), acquire(3, 320, outcome.Refused)}, 2, 1},
		"a refusal after a release that failed": {[][]leases.Event{release(1, 300, outcome.Unknown), acquire(3, 320, outcome.Refused)}, 2, 0},
		"a refusal at the end of a lease":       {[][]leases.Event{acquire(3, end, outcome.Refused)}, 2, 1},
		"a refusal before the end":              {[][]leases.Event{acquire(3, end-1, outcome.Refused)}, 2, 0},
		"a release that finds nothing":          {[][]leases.Event{release(1, 300, outcome.Refused)}, 2, 1},
		"a late release that finds nothing":     {[][]leases.Event{release(1, end, outcome.Refused)}, 2, 0},
		"a second release that finds nothing":   {[][]leases.Event{release(1, 300, outcome.Unknown), release(1, 320, outcome.Refused)}, 2, 0},
		"an Extend that finds nothing":          {[][]leases.Event{extend(1, 300, outcome.Refused)}, 2, 1},
		"a late Extend that finds nothing":      {[][]leases.Event{extend(1, end, outcome.Refused)}, 2, 0},
		"an invalid acquire":                    {[][]leases.Event{acquire(3, 300, outcome.Invalid)}, 2, 1},
	} {
		var told leases.Ledger
		for _, e := range slices.Concat(append(two[:2:2], c.calls...)...) {
			told.Note(e)
		}
		if held, wrong := told.Check(limit); held != c.held || len(wrong) != c.wrong {
			t.Errorf("%s: %d held and %q; want %d and %d", name, held, wrong, c.held, c.wrong)
		}
	}
}
