package testenv

import (
	"bytes"
	"log/slog"
	"testing"
)

// Logged makes the default logger write to a buffer until the test ends. The test must not be parallel.
func Logged(t testing.TB) *bytes.Buffer {
	t.Helper()
	before, buf := slog.Default(), new(bytes.Buffer)
	slog.SetDefault(slog.New(slog.NewTextHandler(buf, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return buf
}
