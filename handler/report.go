package handler

import "net/http"

// report passes err to OnError, or logs it if there is no OnError.
func (m *limit) report(r *http.Request, err error) {
	var onError func(error)
	if m.onError != nil {
		onError = func(err error) { m.onError(r, err) }
	}
	m.rules.Report(r.Context(), err, onError)
}
