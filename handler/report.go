package handler

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/sqlimit/limiter"
)

// report passes err to OnError, or logs it if there is no OnError: why there was no decision, or
// why a charge was not given back. It ignores clients that left, which could fill the log.
func (m *middleware) report(r *http.Request, err error) {
	switch {
	case errors.Is(err, limiter.ErrCanceled):
	case m.onError != nil:
		m.onError(r, err)
	case !ofClients(err):
		m.log.write(r.Context(), m.limiter.Name(), err)
	}
}

// ofClients reports whether clients can cause err. The application may have written the text of
// an ErrNoKey, and put a key into it.
func ofClients(err error) bool {
	return errors.Is(err, ErrNoKey) || errors.Is(err, limiter.ErrExceedsCapacity) || errors.Is(err, limiter.ErrKeyBusy)
}

// errorLog writes errors to slog.Default(), at most one a minute.
type errorLog struct {
	last atomic.Int64 // when it wrote, in ns since 1970; 0: never
}

func (l *errorLog) write(ctx context.Context, name string, err error) {
	now, last := time.Now().UnixNano(), l.last.Load()
	if since := time.Duration(now - last); 0 <= since && since < time.Minute || !l.last.CompareAndSwap(last, now) {
		return // a clock that went back does not silence the log
	}
	slog.Default().ErrorContext(ctx, "the rate limiter failed", "limiter", name, "error", err)
}
