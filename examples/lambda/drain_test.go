package main

import (
	"io"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sqlimit/limiter/internal/testenv"
)

// listens waits until the server logs its address.
func listens(t *testing.T, p *process) (address string) {
	t.Helper()
	said := regexp.MustCompile(`listening url=http://localhost:(\d+)`)
	p.await(t, "the server does not listen", func() bool {
		if m := said.FindStringSubmatch(p.output.String()); m != nil {
			address = net.JoinHostPort("127.0.0.1", m[1])
		}
		return address != ""
	})
	return address
}

func drainsAtSIGTERM(t *testing.T, binary string) {
	p := launch(t, binary, map[string]string{"PORT": "0", "LIMITER_SQLITE": filepath.Join(t.TempDir(), "limiter.db")})
	address := listens(t, p)
	conn, err := net.Dial("tcp", address)
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(testTimeout)))

	const form = "user=alice&password=open+sesame"
	must(t, testenv.ErrorOf(io.WriteString(conn, "POST /login HTTP/1.1\r\nHost: example.com\r\nContent-Type: application/x-www-form-urlencoded\r\n"+
		"Expect: 100-continue\r\nContent-Length: 31\r\n\r\n")))
	// The server sends 100 when the handler reads the body: the request is in flight.
	const goOn = "HTTP/1.1 100 Continue\r\n\r\n"
	buf := make([]byte, len(goOn))
	if _, err := io.ReadFull(conn, buf); err != nil || string(buf) != goOn {
		t.Fatalf("%q, %v\n%s", buf, err, &p.output)
	}
	must(t, p.Process.Signal(syscall.SIGTERM))
	p.await(t, "the server still takes connections", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	must(t, testenv.ErrorOf(io.WriteString(conn, form)))
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200 OK\r\n") || !strings.Contains(string(answer), `{"welcome":"alice"}`) {
		t.Errorf("the response to the request in flight is %q, %v", answer, err)
	}
	p.wait(t)
	if p.err != nil {
		t.Errorf("the process ended with %v\n%s", p.err, &p.output)
	}
}
