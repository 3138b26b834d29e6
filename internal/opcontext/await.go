package opcontext

import "context"

// Await waits until it receives from answered or ctx has ended, and reports whether ctx has ended. The
// channel is new and has room for two values: the sender sends true when the operation is answered, and a
// [Context] sends false when it ends.
//
// If ctx is a Context, Await waits for the caller's context itself, because a Context that must learn of its
// caller's end costs more than the wait.
func Await(ctx context.Context, answered chan bool) (ended bool) {
	if c, ok := ctx.(*Context); ok {
		if c.sendEnd(answered) {
			return true
		}
		ctx = c.Context
	}
	select {
	case is := <-answered:
		return !is
	case <-ctx.Done():
		return true
	}
}

// sendEnd makes the context send false to answered when it ends, and reports whether it has ended.
func (c *Context) sendEnd(answered chan<- bool) (ended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered = answered
	if c.checkCaller(); c.err == nil {
		c.deadlines.schedule(c, c.due)
	}
	return c.err != nil
}
