package testenv

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"testing"
)

// fataler is a testing.TB, or the T of another package of tests.
type fataler interface {
	Helper()
	Fatal(args ...any)
}

// Must ends a test that cannot continue after err.
func Must(t fataler, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Equal checks that got is deeply equal to want. what begins the message of a failure.
func Equal[T any](t testing.TB, got, want T, what ...any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%sgot %v, want %v", fmt.Sprintln(what...), got, want)
	}
}

// ErrorOf returns the error of a call with two results.
func ErrorOf[T any](_ T, err error) error { return err }

// Logged makes the default logger write to a buffer until the test ends. The test must not be parallel.
func Logged(t testing.TB) *bytes.Buffer {
	t.Helper()
	before, buf := slog.Default(), new(bytes.Buffer)
	slog.SetDefault(slog.New(slog.NewTextHandler(buf, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return buf
}

// FreePort returns a port of 127.0.0.1 that nobody listened on a moment ago.
func FreePort() (uint16, error) {
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).AddrPort().Port(), nil
}
