package overrides

import "time"

// WithClocks sets the clocks of the process: the wall clock and the monotonic one.
func WithClocks(wall func() time.Time, monotonic func() time.Duration) Option {
	return func(o *options) error {
		o.now = func() instant { return instant{wall().UnixNano(), monotonic()} }
		return nil
	}
}
