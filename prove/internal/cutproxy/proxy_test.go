package cutproxy_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/prove/internal/cutproxy"
)

// echo is a server that answers each byte with itself, and counts what it has got.
func echo(t *testing.T, got *atomic.Int64) (port int) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	testenv.Must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(io.MultiWriter(counter{got}, conn), conn)
			}()
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

type counter struct{ n *atomic.Int64 }

func (c counter) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return len(b), nil
}

func dial(t *testing.T, p *cutproxy.Proxy) net.Conn {
	t.Helper()
	conn, err := net.DialTCP("tcp4", nil, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: p.Port()})
	testenv.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	testenv.Must(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return conn
}

// ask sends what is echoed, and returns what came back before the connection ended.
func ask(t *testing.T, conn net.Conn, request string) (string, error) {
	t.Helper()
	testenv.Must(t, testenv.ErrorOf(io.WriteString(conn, request)))
	answer := make([]byte, len(request))
	n, err := io.ReadFull(conn, answer)
	return string(answer[:n]), err
}

const words = "a request of 24 bytes..."

func TestExactlySoManyBytesPass(t *testing.T) {
	for _, fresh := range []bool{false, true} {
		for _, reset := range []bool{false, true} {
			for after := range int64(len(words) + 1) {
				for _, direction := range []cutproxy.Direction{cutproxy.Request, cutproxy.Response} {
					var got atomic.Int64
					p := cutproxy.New(t, echo(t, &got))
					var conn net.Conn
					if !fresh {
						conn = dial(t, p)
						testenv.Must(t, testenv.ErrorOf(ask(t, conn, words)))
					}
					got.Store(0)
					trap := p.Arm(cutproxy.Cut{Direction: direction, After: after, Reset: reset, Fresh: fresh})
					if fresh {
						conn = dial(t, p)
					}
					answer, err := ask(t, conn, words)
					if err == nil { // all of the answer came, and then the end
						_, err = conn.Read(make([]byte, 1))
					}
					if !trap.Disarm() {
						t.Fatalf("%v after %d: it was not cut", direction, after)
					}
					// The server answers before it has all of the request, it may be.
					most, exact := int64(len(words)), answer == words[:after]
					if direction == cutproxy.Request {
						most, exact = after, strings.HasPrefix(words, answer)
					}
					if n := got.Load(); n < min(after, most) || n > most || !exact {
						t.Errorf("%v after %d: the server got %d bytes, the client %q", direction, after, n, answer)
					}
					if reset != errors.Is(err, syscall.ECONNRESET) {
						t.Errorf("%v after %d, RST %t: the client sees %v", direction, after, reset, err)
					}
				}
			}
		}
	}
}

func TestOneConnectionIsCut(t *testing.T) {
	var got atomic.Int64
	p := cutproxy.New(t, echo(t, &got))
	idle, used := dial(t, p), dial(t, p)
	for _, conn := range []net.Conn{idle, used} {
		testenv.Must(t, testenv.ErrorOf(ask(t, conn, words)))
	}
	trap := p.Arm(cutproxy.Cut{After: 3})
	if _, err := ask(t, used, words); err == nil || !trap.Disarm() {
		t.Error("it was not cut")
	}
	for _, conn := range []net.Conn{idle, dial(t, p)} {
		if answer, err := ask(t, conn, words); err != nil || answer != words {
			t.Errorf("another one gets %q, %v", answer, err)
		}
	}
	if p.Arm(cutproxy.Cut{}).Disarm() {
		t.Error("a cut without a connection was made")
	}
	if _, err := ask(t, idle, words); err != nil {
		t.Errorf("a cut was made that had been called off: %v", err)
	}
	p.Break()
	if _, err := idle.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a broken connection: %v", err)
	}
}

func TestPoint(t *testing.T) {
	var first, second atomic.Int64
	p := cutproxy.New(t, echo(t, &first))
	old := dial(t, p)
	testenv.Must(t, testenv.ErrorOf(ask(t, old, words)))
	p.Point(echo(t, &second))
	for _, conn := range []net.Conn{old, dial(t, p)} {
		if answer, err := ask(t, conn, words); err != nil || answer != words {
			t.Errorf("the proxy answered %q, %v", answer, err)
		}
	}
	if first.Load() != int64(2*len(words)) || second.Load() != int64(len(words)) || p.Accepted() != 2 {
		t.Errorf("the servers got %d and %d bytes on %d connections, want %d and %d on 2",
			first.Load(), second.Load(), p.Accepted(), 2*len(words), len(words))
	}
}
