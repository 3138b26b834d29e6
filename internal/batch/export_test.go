package batch

// Keys returns how many keys have a queue.
func (q *Queue) Keys() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.keys)
}
