package otellimiter

import (
	"errors"
	"slices"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/sqlimit/limiter"
)

// The names of the attributes.
const (
	limiterKey = attribute.Key("sqlimit.limiter")
	resultKey  = attribute.Key("sqlimit.result")
	sourceKey  = attribute.Key("sqlimit.source")
	opKey      = attribute.Key("sqlimit.operation")
	errorKey   = attribute.Key("error.type")
)

// results are the values of sqlimit.result.
var results = [...]string{"allowed", "refused", "error"}

const (
	allowed = iota
	refused
	failed
)

// classes are the values of error.type and their errors. If an error matches several, the first one
// counts. Classes that do not blame the store come first, as in [limiter.StoreFailed].
var classes = [...]struct {
	name string
	err  error
}{
	{name: ""}, // no error
	{"canceled", limiter.ErrCanceled},
	{"key_busy", limiter.ErrKeyBusy},
	{"misconfigured", limiter.ErrMisconfigured},
	{"invalid", limiter.ErrInvalid},
	{"unsupported", errors.ErrUnsupported},
	{"outcome_unknown", limiter.ErrOutcomeUnknown},
	{"not_applied", limiter.ErrNotApplied},
	{name: "_OTHER"},
}

// sources is the number of sources, of which [limiter.SourcePolicy] is the last.
const sources = int(limiter.SourcePolicy) + 1

// series holds the attributes of one outcome, as options of the instruments and of span events.
type series struct {
	attrs  []attribute.KeyValue
	add    []metric.AddOption
	units  [len(takers)][]metric.AddOption
	record []metric.RecordOption
	event  []trace.EventOption
}

// takers are the operations that take units.
var takers = [...]limiter.OpKind{limiter.OpTake, limiter.OpTakeUpTo, limiter.OpCharge, limiter.OpAcquire}

// ofUnits returns the options of the units that op took.
func (s *series) ofUnits(op limiter.OpKind) []metric.AddOption {
	for i, taker := range takers {
		if op == taker {
			return s.units[i]
		}
	}
	return s.newUnits(op) // an operation of a later version
}

func (s *series) newUnits(op limiter.OpKind) []metric.AddOption {
	attrs := append(slices.Clip(s.attrs), opKey.String(op.String()))
	return []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(attrs...))}
}

// outcomes holds the series of one limiter. Each is made when it is first needed, and kept.
type outcomes struct {
	name string
	made [len(results)][sources][len(classes)]atomic.Pointer[series]
}

// series returns the series of a decision.
func (o *outcomes) series(d *limiter.Decision) *series {
	result, source, class := resultOf(d), d.Result.Source, classOf(d.Err)
	if int(source) >= sources {
		return o.newSeries(result, source, class) // a source of a later version
	}
	place := &o.made[result][source][class]
	s := place.Load()
	if s == nil {
		s = o.newSeries(result, source, class)
		place.Store(s) // two goroutines may do this at once, with equal series
	}
	return s
}

func (o *outcomes) newSeries(result int, source limiter.Source, class int) *series {
	attrs := []attribute.KeyValue{
		limiterKey.String(o.name), resultKey.String(results[result]), sourceKey.String(source.String()),
	}
	if class > 0 {
		attrs = append(attrs, errorKey.String(classes[class].name))
	}
	set := metric.WithAttributeSet(attribute.NewSet(attrs...))
	s := &series{
		attrs: attrs, add: []metric.AddOption{set}, record: []metric.RecordOption{set},
		event: []trace.EventOption{trace.WithAttributes(attrs...)},
	}
	for i, op := range takers {
		s.units[i] = s.newUnits(op)
	}
	return s
}

// resultOf returns the index in results of what the caller got. The result of a failure policy is not
// an error.
func resultOf(d *limiter.Decision) int {
	switch {
	case d.Result.Allowed:
		return allowed
	case d.Err != nil && d.Result.Source != limiter.SourceLocal:
		return failed
	}
	return refused
}

// classOf returns the index of an error in classes.
func classOf(err error) int {
	if err == nil {
		return 0
	}
	for i, class := range classes {
		if class.err != nil && errors.Is(err, class.err) {
			return i
		}
	}
	return len(classes) - 1
}
