package sqlstore

import "context"

// Await waits until it can receive from done, or ctx has ended, and reports whether
// ctx has. A [Limit] does not have to hear of its caller's end for that, which would
// cost more than the wait.
func Await(ctx context.Context, done <-chan struct{}) (ended bool) {
	select {
	case <-done:
		return false
	default:
	}
	l, ok := ctx.(*Limit)
	if !ok {
		return await(done, ctx.Done(), nil)
	}
	return await(done, l.ended(), l.Context.Done())
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

// ended returns a channel that is closed when the operation has used up its time.
func (l *Limit) ended() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wait()
	return l.done
}
