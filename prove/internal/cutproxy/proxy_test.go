package cutproxy_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sqlimit/limiter/prove/internal/cutproxy"
)

// echo is a server that answers each byte with itself, and counts what it has got.
func echo(t *testing.T, got *atomic.Int64) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
	return listener.Addr().String()
}

type counter struct{ n *atomic.Int64 }

func (c counter) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return len(b), nil
}

func dial(t *testing.T, p *cutproxy.Proxy) net.Conn {
	t.Helper()
	conn, err := net.DialTCP("tcp4", nil, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(p.Port())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// ask sends what is echoed, and returns what came back before the connection ended.
func ask(t *testing.T, conn net.Conn, request string) (string, error) {
	t.Helper()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
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
						if _, err := ask(t, conn, words); err != nil {
							t.Fatal(err)
						}
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

func TestOneConnectionIsCutAndNoneThatIsNotUsed(t *testing.T) {
	var got atomic.Int64
	p := cutproxy.New(t, echo(t, &got))
	idle, used := dial(t, p), dial(t, p)
	for _, conn := range []net.Conn{idle, used} {
		if _, err := ask(t, conn, words); err != nil {
			t.Fatal(err)
		}
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

// The code of a request to cancel: see the protocol of PostgreSQL.
func TestARequestToCancelIsNotCut(t *testing.T) {
	var got atomic.Int64
	p := cutproxy.New(t, echo(t, &got))
	trap := p.Arm(cutproxy.Cut{Fresh: true})
	request := string(append([]byte{0, 0, 0, 16, 4, 210, 22, 46}, make([]byte, 8)...))
	if answer, err := ask(t, dial(t, p), request); err != nil || answer != request {
		t.Errorf("it gets %q, %v", answer, err)
	}
	if trap.Disarm() {
		t.Error("it was cut")
	}
}

func TestNothingPassesAStalledProxyAndNothingIsLost(t *testing.T) {
	var got atomic.Int64
	p := cutproxy.New(t, echo(t, &got))
	conn := dial(t, p)
	if _, err := ask(t, conn, words); err != nil {
		t.Fatal(err)
	}
	got.Store(0)
	p.Stall()
	p.Stall()
	if _, err := io.WriteString(conn, words); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil || got.Load() > 0 {
		t.Errorf("%d bytes reached the client, %d the server", n, got.Load())
	}
	p.Resume()
	p.Resume()
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, len(words))
	if _, err := io.ReadFull(conn, answer); err != nil || !bytes.Equal(answer, []byte(words)) {
		t.Errorf("afterwards comes %q, %v", answer, err)
	}
}

func TestAStrandedConnectionStaysSilentAndANewOneWorks(t *testing.T) {
	var got atomic.Int64
	p := cutproxy.New(t, echo(t, &got))
	conn := dial(t, p)
	if _, err := ask(t, conn, words); err != nil {
		t.Fatal(err)
	}
	p.Strand()
	p.Strand()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if answer, err := ask(t, conn, words); answer != "" || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it gets %q, %v", answer, err)
	}
	if answer, err := ask(t, dial(t, p), words); answer != words || err != nil {
		t.Errorf("a new one gets %q, %v", answer, err)
	}
}

func TestARefusedConnectionEndsAtOnce(t *testing.T) {
	var got atomic.Int64
	p := cutproxy.New(t, echo(t, &got))
	p.Refuse(true)
	if n, err := dial(t, p).Read(make([]byte, 1)); n > 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it reads %d bytes, %v", n, err)
	}
	p.Refuse(false)
	if answer, err := ask(t, dial(t, p), words); answer != words || err != nil {
		t.Errorf("a later one gets %q, %v", answer, err)
	}
}
