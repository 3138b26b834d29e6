package cutproxy

import (
	"sync"
	"time"
)

// Trap is a cut that waits for its connection, or has one.
type Trap struct {
	Cut
	proxy    *Proxy
	finished chan struct{} // closed when the server has done with its connection
	once     sync.Once

	mu       sync.Mutex
	disarmed bool
	sprung   bool
	passed   [2]int64
	sent     []byte
}

// take gives a connection the cut that waits for one, if it is for it.
func (p *Proxy) take(l *link) *Trap {
	p.mu.Lock()
	defer p.mu.Unlock()
	trap := p.armed
	if trap == nil || l.exempt || trap.Fresh && l.made != trap {
		return nil
	}
	p.armed = nil
	return trap
}

// admit returns how many of some bytes may pass, and whether the cut comes after them.
func (t *Trap) admit(d Direction, b []byte) (n int, cut bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n = len(b)
	if d == t.Direction && t.passed[d]+int64(n) >= t.After && !t.sprung && !t.disarmed {
		n, cut = int(t.After-t.passed[d]), true
		t.sprung = true
	}
	t.passed[d] += int64(n)
	if d == Request {
		t.sent = append(t.sent, b[:n]...)
	}
	return n, cut
}

// done reports whether a connection that has t can have another.
func (t *Trap) done() bool {
	if t == nil {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.disarmed && !t.sprung
}

func (t *Trap) finish() { t.once.Do(func() { close(t.finished) }) }

// Passed returns how many bytes have passed the connection since it was chosen.
func (t *Trap) Passed(d Direction) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.passed[d]
}

// Sent returns what has passed of the request.
func (t *Trap) Sent() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.sent)
}

// closeLimit is how long a server may take to be done with a connection that has ended.
const closeLimit = 30 * time.Second

// Disarm sees to it that nothing is cut any more, and reports whether something was.
// The server has done with that connection then: what it was asked for has been carried
// out, or never will be.
func (t *Trap) Disarm() (cut bool) {
	t.proxy.t.Helper()
	t.proxy.mu.Lock()
	if t.proxy.armed == t {
		t.proxy.armed = nil
	}
	t.proxy.mu.Unlock()
	t.mu.Lock()
	t.disarmed = true
	cut = t.sprung
	t.mu.Unlock()
	if cut {
		select {
		case <-t.finished:
		case <-time.After(closeLimit):
			t.proxy.t.Errorf("the server goes on with a connection that was cut after %d bytes of the %v", t.After, t.Direction)
		}
	}
	return cut
}
