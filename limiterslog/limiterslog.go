// Package limiterslog logs why limiters made no decision, through [log/slog] and at a bounded rate.
//
// It logs failures of the store and misconfiguration, even if [limiter.FailOpen] or
// [limiter.FailLocal] hides them from the caller. It covers every operation, also refunds and charges. It
// never logs a refusal or a key. Packages handler and grpclimiter log in the same way by themselves,
// unless their option OnError is set. They also warn about requests that can never pass.
//
// Pass what [Observer] returns to [limiter.WithObserver]. Call [Log.Error] in middleware of your own,
// and for errors that no observer gets, such as [limiter.ErrNoPolicy]: nothing was sent then.
package limiterslog

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/sqlimit/limiter"
)

// interval is how long a Log is silent about a limiter and a class of errors after each line.
const interval = time.Minute

// Observer is shorthand for New(logger).Observe.
func Observer(logger *slog.Logger) limiter.Observer { return New(logger).Observe }

// Log writes errors of limiters to a logger. It writes the first error of a limiter and a class at
// once, and then at most one a minute. Each line has these attributes:
//
//   - limiter: the name of the limiter
//   - error: the error; if the store knows what to do, the text says so
//   - suppressed: how many errors of this limiter and class came since the last line, if any
//
// The classes are the errors of package limiter, such as [limiter.ErrMisconfigured]. The zero Log
// writes to [slog.Default]. A Log is safe for concurrent use.
type Log struct {
	logger *slog.Logger

	mu    sync.Mutex
	kinds map[kind]*silence
}

// kind is what a Log counts together.
type kind struct {
	limiter string
	class   any // of an error, or the cause of a warning
}

// silence is the time after a line of a kind, in which errors are counted but not written.
type silence struct {
	since      int64 // ns since 1970
	suppressed int64
}

// New returns a Log that writes to logger. A nil logger means what [slog.Default] returns when the Log
// writes.
func New(logger *slog.Logger) *Log { return &Log{logger: logger} }

// Observe is a [limiter.Observer]. It passes the error of an operation to [Log.Error].
func (l *Log) Observe(ctx context.Context, d limiter.Decision) {
	if d.Err != nil {
		l.Error(ctx, d.Limiter, d.Err)
	}
}

// Error writes an error of the limiter with this name, at the level Error. It ignores
// errors that clients can cause: [limiter.ErrCanceled], [limiter.ErrExceedsCapacity],
// [limiter.ErrExceedsMaxWait] and [limiter.ErrKeyBusy]. The err must not be nil. Errors of this
// module's stores contain no key; errors of your own store must not contain one either.
func (l *Log) Error(ctx context.Context, name string, err error) {
	if class, ofClients := classOf(err); !ofClients {
		l.write(ctx, slog.LevelError, "the rate limiter failed", kind{name, class}, err)
	}
}

// Warn writes why the limiter with this name could not let a request pass, whatever is left: such a
// request has no key, for example. Clients can cause that, so the level is Warn. Each cause is a class
// of its own. Pass only a few causes, and no key in err.
func (l *Log) Warn(ctx context.Context, name, cause string, err error) {
	l.write(ctx, slog.LevelWarn, "the rate limiter rejected a request that can never pass", kind{name, cause}, err)
}

// write writes a line, unless it must be silent about k.
func (l *Log) write(ctx context.Context, level slog.Level, message string, k kind, err error) {
	suppressed, silent := l.isSilent(k)
	if silent {
		return
	}
	attrs := []slog.Attr{slog.String("limiter", k.limiter), slog.Any("error", err)}
	if suppressed > 0 {
		attrs = append(attrs, slog.Int64("suppressed", suppressed))
	}
	logger := l.logger
	if logger == nil {
		logger = slog.Default()
	}
	logger.LogAttrs(ctx, level, message, attrs...)
}

// isSilent reports whether an error of this kind must not be written now. Otherwise it returns how many
// were suppressed since the last line.
func (l *Log) isSilent(k kind) (suppressed int64, silent bool) {
	now := time.Now().UnixNano() // the wall clock, because the monotonic one may stop while the process is frozen
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.kinds[k]
	if s == nil {
		if l.kinds == nil {
			l.kinds = map[kind]*silence{}
		}
		l.kinds[k] = &silence{since: now}
		return 0, false
	}
	// A clock that was stepped back does not silence the log.
	if passed := time.Duration(now - s.since); 0 <= passed && passed < interval {
		s.suppressed++
		return 0, true
	}
	suppressed = s.suppressed
	*s = silence{since: now}
	return suppressed, false
}

// classOf returns the class of an error, nil if it has none, and whether clients can cause it. An error
// may match several classes; the first one counts.
func classOf(err error) (class error, ofClients bool) {
	for _, class := range []error{limiter.ErrCanceled, limiter.ErrKeyBusy, limiter.ErrExceedsCapacity, limiter.ErrExceedsMaxWait} {
		if errors.Is(err, class) {
			return class, true
		}
	}
	for _, class := range []error{
		limiter.ErrMisconfigured, limiter.ErrNoPolicy, limiter.ErrInvalid, errors.ErrUnsupported,
		limiter.ErrOutcomeUnknown, limiter.ErrNotApplied,
	} {
		if errors.Is(err, class) {
			return class, false
		}
	}
	return nil, false
}
