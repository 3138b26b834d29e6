package cutproxy

import (
	"io"
	"net"
	"sync"
	"time"
)

type link struct {
	*Proxy
	client, server *net.TCPConn
	exempt         bool  // from cuts
	made           *Trap // what was armed when it was made

	trap     *Trap // the cut to be made; nil if there is none
	severed  bool  // it was cut: nothing more passes
	settled  int   // how many have called settle
	stranded bool  // nothing passes any more
	aborted  bool
}

// run passes bytes in both directions, of which head has been read, until both ends are done.
func (l *link) run(head []byte) {
	defer l.server.Close()
	var both sync.WaitGroup
	both.Go(func() {
		if l.pass(Request, head) {
			l.pump(Request, l.client)
		}
		_ = l.server.CloseWrite()
		_, _ = io.Copy(io.Discard, l.client) // unread bytes would make an RST of the end that is to come
	})
	both.Go(func() {
		l.pump(Response, l.server)
		_, _ = io.Copy(io.Discard, l.server) // after a cut, what the server still says is for nobody
		l.mu.Lock()
		defer l.mu.Unlock()
		l.settle()
		if !l.severed {
			_ = l.client.CloseWrite()
		}
	})
	both.Wait()
}

// settle tells those who wait for the end of a connection. The cut and the end of the server each call it.
func (l *link) settle() {
	if l.settled++; l.settled == 2 {
		close(l.trap.finished)
	}
}

func (l *link) pump(d Direction, from io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !l.pass(d, buf[:n]) || err != nil {
			return
		}
	}
}

// pass passes bytes on, up to the cut, and reports whether more may follow.
func (l *link) pass(d Direction, b []byte) bool {
	n, cut := l.admit(d, b)
	to := l.server
	if d == Response {
		to = l.client
	}
	if n > 0 {
		if _, err := to.Write(b[:n]); err != nil && !cut {
			return false
		}
	}
	if cut {
		if l.trap.Reset {
			_ = l.client.SetLinger(0)
			_ = l.client.Close()
		} else {
			_ = l.client.CloseWrite()
		}
		_ = l.server.CloseWrite()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.settle()
	}
	return n > 0 && !cut
}

// admit waits until bytes may pass, and returns how many may, and whether the cut comes after them.
func (l *link) admit(d Direction, b []byte) (n int, cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for (l.stalled || l.stranded) && !l.aborted {
		l.changed.Wait()
	}
	if l.severed || l.aborted {
		return 0, false
	}
	if t := l.armed; d == Request && (l.trap == nil || l.trap.disarmed) {
		l.trap = nil
		if t != nil && !l.exempt && (!t.Fresh || l.made == t) {
			l.trap, l.armed = t, nil
		}
	}
	t := l.trap
	if t == nil {
		return len(b), false
	}
	n = len(b)
	if d == t.Direction && t.passed[d]+int64(n) >= t.After && !t.disarmed {
		n, cut = int(t.After-t.passed[d]), true
		t.sprung, l.severed = true, true // where the request is cut, no answer to it may pass
	}
	t.passed[d] += int64(n)
	if d == Request {
		t.sent = append(t.sent, b[:n]...)
	}
	return n, cut
}

// abort is called under the lock.
func (l *link) abort() {
	l.aborted = true
	for _, conn := range []*net.TCPConn{l.client, l.server} {
		if conn != nil {
			_ = conn.SetLinger(0)
			_ = conn.Close()
		}
	}
	l.changed.Broadcast()
}

// Trap is a cut that waits for its connection, or has one.
type Trap struct {
	Cut
	proxy    *Proxy
	finished chan struct{} // closed when the server has done with its connection

	disarmed, sprung bool
	passed           [2]int64
	sent             []byte
}

// Passed returns how many bytes have passed the connection since it was chosen, in each direction.
func (t *Trap) Passed() [2]int64 {
	t.proxy.mu.Lock()
	defer t.proxy.mu.Unlock()
	return t.passed
}

// Sent returns what has passed of the request.
func (t *Trap) Sent() string {
	t.proxy.mu.Lock()
	defer t.proxy.mu.Unlock()
	return string(t.sent)
}

// closeLimit is how long a server may take to be done with a connection that has ended.
const closeLimit = 30 * time.Second

// Disarm sees to it that nothing is cut any more, and reports whether something was. The server has done with
// that connection then: what it was asked for has been carried out, or never will be.
func (t *Trap) Disarm() (cut bool) {
	t.proxy.t.Helper()
	t.proxy.mu.Lock()
	if t.proxy.armed == t {
		t.proxy.armed = nil
	}
	t.disarmed = true
	cut = t.sprung
	t.proxy.mu.Unlock()
	if cut {
		select {
		case <-t.finished:
		case <-time.After(closeLimit):
			t.proxy.t.Errorf("the server goes on with a connection that was cut after %d bytes of the %v", t.After, t.Direction)
		}
	}
	return cut
}
