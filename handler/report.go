package handler

import (
	"errors"
	"net/http"

	"github.com/sqlimit/limiter"
)

// report passes err to OnError, or logs it if there is no OnError: why there was no decision, or
// why a charge was not given back. It ignores clients that left, which could fill the log. It does not
// log an ErrNoKey: the application may have written its text, and put a key into it.
func (m *middleware) report(r *http.Request, err error) {
	switch {
	case errors.Is(err, limiter.ErrCanceled):
	case m.onError != nil:
		m.onError(r, err)
	case !errors.Is(err, ErrNoKey):
		m.log.Error(r.Context(), m.name, err)
	}
}
