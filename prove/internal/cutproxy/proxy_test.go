package cutproxy_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/prove/internal/cutproxy"
)

const words = "a request of 24 bytes..."

// echo is a server that answers each byte with itself, and counts what it has got.
func echo(t *testing.T, got *atomic.Int64) (port int) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	testenv.Must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			go func() {
				defer conn.Close()
				for b := make([]byte, 1); testenv.ErrorOf(conn.Read(b)) == nil; got.Add(1) {
					_, _ = conn.Write(b)
				}
			}()
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

func TestExactlySoManyBytesPass(t *testing.T) {
	for i := range 4 * (len(words) + 1) {
		cut := cutproxy.Cut{Direction: cutproxy.Direction(i % 2), Reset: i/2%2 > 0, Fresh: i%3 == 0, After: int64(i / 4)}
		var got atomic.Int64
		p := cutproxy.New(t, echo(t, &got))
		trap := p.Arm(cut)
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp4", fmt.Sprintf("127.0.0.1:%d", p.Port()))
		testenv.Must(t, err)
		testenv.Must(t, testenv.ErrorOf(io.WriteString(conn, words)))
		answer, err := io.ReadAll(conn)
		_ = conn.Close()
		if !trap.Disarm() {
			t.Fatalf("%+v: it was not cut", cut)
		}
		// The server may answer before it has all of the request.
		most, exact := int64(len(words)), string(answer) == words[:cut.After]
		if cut.Direction == cutproxy.Request {
			most, exact = cut.After, strings.HasPrefix(words[:cut.After], string(answer))
		}
		if n := got.Load(); n < min(cut.After, most) || n > most || !exact || cut.Reset != errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%+v: the server got %d bytes, the client %q, %v", cut, n, answer, err)
		}
	}
}
