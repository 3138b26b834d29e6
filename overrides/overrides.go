// Package overrides gives single keys a policy of their own: a customer who may do more for a day, or
// an abuser who may do less. Operators write the policies to the table limiter_overrides, and running
// processes follow within seconds.
//
// [New] returns a function for [limiter.WithPolicyFor]:
//
//	l, err := limiter.New(store, "api", limiter.PerMinute(100),
//		limiter.WithPolicyFor(overrides.New(store, "api", overrides.MaxAge(10*time.Second))))
//
// The function keeps a copy of the limiter's overrides. If the copy is too old, one caller starts a
// read of all of them in one query and waits for it, while the others use the old copy. Other
// decisions send no statement for their policy. A read has a goroutine, which ends with it.
//
// A key in the table has the form that stores use: see [limiter.StoredKey]. Package migrations creates
// the table.
package overrides

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqlimit/limiter"
	rows "github.com/sqlimit/limiter/internal/override"
)

const (
	// most is how many overrides a limiter may have. Their copy takes about 2 MB in each process.
	most = 10_000
	// readTimeout is how long a read may take.
	readTimeout = time.Second
	// frozenAfter is the age at which a read was certainly frozen with its process. Its connection
	// may be dead, so the next caller begins another read.
	frozenAfter = 2 * readTimeout
)

// Source is where overrides come from. The stores of packages postgres and sqlite are sources.
type Source interface {
	// Overrides returns at most limit overrides of the limiter with this name. It leaves out those
	// that have expired. It must end with ctx, and be safe for concurrent use. It may continue after
	// the request that started it, so a store on the request's transaction is not a source.
	Overrides(ctx context.Context, name string, limit int) ([]limiter.Override, error)
}

// New returns a function for [limiter.WithPolicyFor] that looks for the key among the overrides of the
// limiter with this name. It returns nil for a key without one, and then the policy of [limiter.New]
// decides. New does no I/O. The function is safe for concurrent use.
//
// A change in the database takes effect at the first request after [MaxAge]. Other requests may use
// the old copy for one second more, while the new one is read. An override ends at its ExpiresAt by
// the process's clock, without a new read.
//
// A read ends after one second. If it fails, the old copy stays in use; a process that has no copy uses
// the policy of [limiter.New]. The next request after MaxAge tries again. [OnError] gets the error. A
// missing table is such a failure, and so are more than 10,000 overrides.
//
// A request waits for a read at most half of the time that its context leaves, and then uses the old
// copy. The first requests of a process have none: they wait until their contexts end, and fail with
// [limiter.ErrCanceled]. The read continues for later requests.
//
// The policies must be of the same kind as the limiter's. Otherwise requests with their keys fail with
// [limiter.ErrInvalid]. An override of the limit alone needs [Base].
//
// New panics if an option is nil. If another argument of New is not valid, the function fails with an
// error that matches [limiter.ErrInvalid], and so does every request.
func New(source Source, name string, opts ...Option) func(ctx context.Context, key string) (limiter.Policy, error) {
	return newCache(source, name, opts).policyFor
}

// cache holds a copy of the overrides of a limiter.
type cache struct {
	options
	source Source
	name   string
	wrong  error // from the arguments; nil if they are valid

	current atomic.Pointer[snapshot] // nil before the end of the first read

	mu      sync.Mutex
	reading *reading // nil if there is none
}

// reading is a read in a goroutine of its own. Its callers may leave, and the read continues for the
// others.
type reading struct {
	began  instant
	cancel context.CancelFunc
	done   chan struct{} // closed when current has the result
}

// snapshot is an immutable copy of the overrides.
type snapshot struct {
	read  instant // when the read began, or when it failed; if it was frozen, when it began
	byKey map[string]override
}

type override struct {
	policy limiter.Policy
	wrong  error     // if it is set, requests of the key fail with it
	ends   time.Time // zero if the override never ends
}

// instant is a reading of both clocks of the process.
type instant struct {
	wall      int64         // ns since 1970
	monotonic time.Duration // since processClock was called; it may not count time in which the process is frozen
}

// since returns the time since u. While a process is frozen, the monotonic clock may stand still, and
// the wall clock may be stepped back. So the longer time counts.
func (t instant) since(u instant) time.Duration {
	return max(time.Duration(t.wall-u.wall), t.monotonic-u.monotonic)
}

func newCache(source Source, name string, opts []Option) *cache {
	for i, opt := range opts {
		if opt == nil {
			panic(fmt.Sprintf("overrides: option %d of New is nil; leave it out", i))
		}
	}
	c := &cache{source: source, name: name}
	c.maxAge, c.onError, c.now = 10*time.Second, c.log, processClock()
	c.wrong = c.check(opts)
	return c
}

// processClock returns a function that reads both clocks.
func processClock() func() instant {
	start := time.Now()
	return func() instant {
		now := time.Now()
		return instant{now.UnixNano(), now.Sub(start)}
	}
}

// check applies the options and returns what is wrong with the arguments.
func (c *cache) check(opts []Option) error {
	if v := reflect.ValueOf(c.source); c.source == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return invalid("the source of New is nil (%T); pass the store", c.source)
	}
	if err := rows.CheckName(c.name); err != nil {
		return fmt.Errorf("overrides: New: %w", err)
	}
	for _, opt := range opts {
		if err := opt(&c.options); err != nil {
			return err
		}
	}
	return nil
}

// policyFor returns the policy of a key, nil if there is no override.
func (c *cache) policyFor(ctx context.Context, key string) (limiter.Policy, error) {
	if c.wrong != nil {
		return nil, c.wrong
	}
	now, copied := c.now(), c.current.Load()
	if copied == nil || now.since(copied.read) >= c.maxAge {
		var err error
		if copied, err = c.refresh(ctx, copied); err != nil {
			return nil, err
		}
		now = c.now()
	}
	if len(copied.byKey) == 0 {
		return nil, nil
	}
	stored, err := limiter.StoredKey(key, c.secret)
	if err != nil {
		return nil, err
	}
	o := copied.byKey[stored] // the zero override is none
	if !o.ends.IsZero() && !o.ends.After(time.Unix(0, now.wall)) {
		return nil, nil
	}
	return o.policy, o.wrong
}

// refresh returns a new copy. It returns old if another caller waits for the read already, or if the
// read takes half of the time that ctx leaves: the decision needs the rest.
func (c *cache) refresh(ctx context.Context, old *snapshot) (*snapshot, error) {
	c.mu.Lock()
	now, latest, r := c.now(), c.current.Load(), c.reading
	if latest != nil && (old == nil || now.since(latest.read) < c.maxAge) {
		c.mu.Unlock()
		return latest, nil // a read has ended in the meantime
	}
	begins := r == nil || now.since(r.began) >= frozenAfter
	if begins {
		r = c.begin(ctx, now)
	}
	c.mu.Unlock()

	if old != nil && !begins {
		return old, nil
	}
	if deadline, ok := ctx.Deadline(); ok && old != nil {
		half, cancel := context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
		ctx = half
	}
	select {
	case <-r.done:
		return c.current.Load(), nil
	case <-ctx.Done():
		if old != nil {
			return old, nil
		}
		return nil, ctx.Err()
	}
}

// begin starts a read. The callers that wait for a frozen read wait for this one from now on. The
// caller of begin must hold mu.
func (c *cache) begin(ctx context.Context, now instant) *reading {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	r := &reading{now, cancel, make(chan struct{})}
	if frozen := c.reading; frozen != nil {
		frozen.cancel()
		r.done = frozen.done
	}
	c.reading = r
	go func() {
		defer cancel()
		byKey, wrong, err := c.read(ctx)
		c.end(r, byKey, wrong, err)
	}()
	return r
}

// end keeps the result of a read, and wakes the callers that wait for it. wrong is the first
// error of an override that cannot be applied.
func (c *cache) end(r *reading, byKey map[string]override, wrong, err error) {
	c.mu.Lock()
	if c.reading != r {
		c.mu.Unlock()
		return // another read has replaced this one
	}
	c.reading = nil
	latest := &snapshot{r.began, byKey}
	if err != nil {
		if now := c.now(); now.since(r.began) < frozenAfter {
			latest.read = now
		}
		if old := c.current.Load(); old != nil {
			latest.byKey = old.byKey
		}
	}
	c.current.Store(latest)
	c.mu.Unlock()
	if err = cmp.Or(err, wrong); err != nil {
		c.onError(fmt.Errorf("overrides: limiter %q: %w", c.name, err))
	}
	close(r.done)
}

// read reads all overrides. A panic of the source is an error, because no caller could recover it. wrong is
// the first error of an override that cannot be applied.
func (c *cache) read(ctx context.Context) (_ map[string]override, wrong, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: the source panicked: %v", limiter.ErrNotApplied, p)
		}
	}()
	list, err := c.source.Overrides(ctx, c.name, most+1)
	if err != nil {
		return nil, nil, err
	}
	if len(list) > most {
		return nil, nil, fmt.Errorf("%w: there are more than %d overrides; delete some, or choose policies by plan in a function of your own for WithPolicyFor",
			limiter.ErrMisconfigured, most)
	}
	byKey := make(map[string]override, len(list))
	for _, o := range list {
		own := override{policy: o.Policy, ends: o.ExpiresAt}
		if o.Limit != 0 {
			own.policy, own.wrong = withLimit(c.base, o.Limit)
			wrong = cmp.Or(wrong, own.wrong)
		}
		byKey[o.Key] = own
	}
	return byKey, wrong, nil
}

// log reports errors if there is no [OnError]. It is called at most once per [MaxAge].
func (c *cache) log(err error) {
	slog.Default().Error("limiter: some or all overrides are not applied; see package overrides", "error", err)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("overrides: %w: %s", limiter.ErrInvalid, fmt.Sprintf(format, args...))
}
