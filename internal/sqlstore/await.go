package sqlstore

import "context"

// Await waits until it can receive from done or ctx has ended, and reports whether ctx has ended.
// If ctx is a [Limit], Await waits for the caller's context itself, because a Limit that must learn
// of its caller's end costs more than the wait.
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
