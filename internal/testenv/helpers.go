package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"strings"
	"sync/atomic"
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
		t.Errorf("%sgot %+v, want %+v", fmt.Sprintln(what...), got, want)
	}
}

// ErrorIs checks that err matches want. what begins the message of a failure.
func ErrorIs(t testing.TB, err, want error, what ...any) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%sgot the error %v, want %v", fmt.Sprintln(what...), err, want)
	}
}

// Contains checks that text has all parts in it.
func Contains(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("want %q in:\n%s", part, text)
		}
	}
}

// Panics checks that call panics with a value that has want in its text.
func Panics(t testing.TB, want string, call func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), want) {
			t.Errorf("panic %v, want one with %q", p, want)
		}
	}()
	call()
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

// countdown is a context that ends after a number of calls of Err.
type countdown struct {
	context.Context
	left atomic.Int64
}

func (c *countdown) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// Looks returns a context whose Err is nil n times, and then [context.Canceled].
func Looks(ctx context.Context, n int64) context.Context {
	c := &countdown{Context: ctx}
	c.left.Store(n)
	return c
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
