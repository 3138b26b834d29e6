package opcontext

import "context"

// Await waits until it can receive from done or ctx has ended, and reports whether ctx has ended.
// If ctx is a [Context], Await waits for the caller's context itself, because a Context that must
// learn of its caller's end costs more than the wait.
func Await(ctx context.Context, done <-chan struct{}) (ended bool) {
	select {
	case <-done:
		return false
	default:
	}
	c, ok := ctx.(*Context)
	if !ok {
		return await(done, ctx.Done(), nil)
	}
	return await(done, c.timerDone(), c.Context.Done())
}

func await(done, first, second <-chan struct{}) (ended bool) {
	select {
	case <-done:
		return false
	case <-first:
	case <-second:
	}
	return true
}

// timerDone returns a channel that is closed when the operation has used up its time.
func (c *Context) timerDone() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.startTimer()
	return c.done
}
