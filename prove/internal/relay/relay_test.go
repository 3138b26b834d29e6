package relay_test

import (
	"bufio"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/sqlimit/limiter/prove/internal/relay"
)

// greeter is a server that greets, and then says again what it is told.
func greeter(t *testing.T, greeting string) (port int) {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
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
			fmt.Fprintln(conn, greeting)
			go func() {
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					fmt.Fprintln(conn, lines.Text())
				}
			}()
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

type client struct {
	net.Conn
	lines *bufio.Reader
}

func dial(t *testing.T, r *relay.Relay) client {
	t.Helper()
	conn, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", r.Port()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return client{conn, bufio.NewReader(conn)}
}

func (c client) want(t *testing.T, line string) {
	t.Helper()
	if got, err := c.lines.ReadString('\n'); got != line+"\n" {
		t.Fatalf("read %q, %v, want %q", got, err, line)
	}
}

func TestARelayLeadsNewConnectionsToWhereItPoints(t *testing.T) {
	r := relay.New(t, greeter(t, "one"))
	first := dial(t, r)
	first.want(t, "one")
	r.Point(greeter(t, "two"))
	dial(t, r).want(t, "two")
	fmt.Fprintln(first, "still there")
	first.want(t, "still there")
	if n := r.Accepted(); n != 2 {
		t.Errorf("%d connections were accepted, want 2", n)
	}
}

func TestWhatAStalledRelayKeepsBackIsLostWhenItIsCut(t *testing.T) {
	r := relay.New(t, greeter(t, "one"))
	c := dial(t, r)
	c.want(t, "one")
	r.Stall()
	fmt.Fprintln(c, "lost")
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if got, err := c.lines.ReadString('\n'); err == nil {
		t.Fatalf("a stalled relay passes %q on", got)
	}
	r.Cut()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if got, err := c.lines.ReadString('\n'); err == nil {
		t.Fatalf("after a cut %q comes", got)
	}
	dial(t, r).want(t, "one")
}
