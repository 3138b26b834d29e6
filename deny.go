package limiter

import (
	"context"
	"time"
)

const (
	// DefaultDenyAge is the maxAge of [WithDenyCache] if 0 is passed.
	DefaultDenyAge = time.Second
	// MaxDenyAge is the highest maxAge of [WithDenyCache].
	MaxDenyAge = time.Hour
	// MaxDenySize is the highest size of [WithDenyCache] in keys. A key takes about 250 bytes and
	// its own length.
	MaxDenySize = 1 << 20
)

// WithDenyCache tells the [Limiter] to remember up to size keys that its store refused, each for at
// most maxAge. While the store would still refuse them, the Limiter refuses them from memory, so a
// flood of requests for a few keys costs no round trips. The size is 1 to [MaxDenySize]. The maxAge
// is 0 to [MaxDenyAge], and 0 means [DefaultDenyAge]. The default is no cache.
//
// The cache keeps the state of a refused key and applies the policy's own formula to requests of
// any cost and wait. It uses the latest time that the store's clock can show by now, so it refuses
// nothing that the store would let pass. It cannot know what other processes, or other Limiters of
// this process, give back or reset, that they change the policy, or that the store's clock was
// stepped. It sees such changes up to maxAge late, and a step back of the process's own clock at once.
// It sees the Limiter's own Refund, Reset, Cancel, Charge and Block at once, unless their outcome is
// unknown.
//
// The cache never lets a request pass, and [Limiter.Peek] does not use it. Its Results have
// [SourceDenyCache]. Their RetryAfter and ResetAfter may be longer than the store's by one round
// trip.
//
// The cache is off for a [FixedWindow] with CountRejected, because its refusals count, and for a
// store whose decisions may be rolled back: see [Provisional]. With [WithClock] it follows that
// clock. It holds keys as the store keeps them, so with [WithKeyDigest] it holds no plain key.
func WithDenyCache(size int, maxAge time.Duration) Option {
	return func(o *options) error {
		if size < 1 || size > MaxDenySize {
			return invalid("the deny cache's size is %d keys; it must be 1 to %d", size, MaxDenySize)
		}
		if maxAge < 0 || maxAge > MaxDenyAge {
			return invalid("the deny cache's longest age is %v; it must be up to %v, and 0 means %v", maxAge, MaxDenyAge, DefaultDenyAge)
		}
		if maxAge == 0 {
			maxAge = DefaultDenyAge
		}
		o.denySize, o.denyAge = size, maxAge
		return nil
	}
}

// Provisional is an optional interface of a [Store]. It reports whether the store's decisions may
// be undone, because they are part of a transaction that may be rolled back. On such a store
// [WithDenyCache] has no effect, and no failure policy applies: an error may have aborted the
// transaction, so the caller must always get it.
type Provisional interface {
	Provisional() bool
}

// provisional reports whether a store's decisions may be undone.
func provisional(s Store) bool {
	p, ok := s.(Provisional)
	return ok && p.Provisional()
}

// newDenyCache returns the cache for the Limiter's options, or nil.
func (l *Limiter) newDenyCache() *denyCache {
	if l.denySize == 0 {
		return nil
	}
	if (&Op{Policy: l.policy}).CountsRefusals() && l.policyFor == nil || provisional(l.store) {
		return nil
	}
	c := &denyCache{maxAge: int64(l.denyAge), base: time.Now()}
	c.refusals.init(l.denySize)
	return c
}

// denyCache refuses takes that the store would refuse. See DESIGN.md, "The deny cache stores
// states, not results".
type denyCache struct {
	refusals refusalMap
	maxAge   int64
	base     time.Time      // of the monotonic clock
	clock    func() instant // nil for the local clock
}

// instant is a reading of the local clock, in nanoseconds. The monotonic clock may stand still
// while a process is frozen, and the wall clock may be set.
type instant struct{ wall, mono int64 }

// wallTick is more than the wall clock's resolution, which is 16 ms on Windows.
const wallTick = int64(20 * time.Millisecond)

// since returns how long ago then was: the larger value of both clocks. It is negative if the wall
// clock went back. The store may have the same clock, and must then be asked, because it corrects
// the row.
func (i instant) since(then instant) int64 {
	wall, mono := i.wall-then.wall, i.mono-then.mono
	if wall < 0 || wall < mono-wallTick {
		return -1
	}
	return max(wall, mono)
}

// now reads the local clock. If op has its own time, that is the clock.
func (c *denyCache) now(op *Op) instant {
	if op.At != 0 {
		return instant{op.At, op.At}
	}
	if c.clock != nil {
		return c.clock()
	}
	t := time.Now()
	return instant{t.UnixNano(), int64(t.Sub(c.base))}
}

// refusal is what the cache keeps of a refused key. It does not change.
type refusal struct {
	key    string
	policy Policy
	state  State
	// sent and received are the local times around the store's reading of its
	// clock, state.Now: the store's time is now between state.Now plus the time
	// since received and state.Now plus the time since sent.
	sent, received instant
}

// drift is the fraction, 1/500, by which the store's clock may run faster than the local one: a
// clock that is being adjusted is up to 500 ppm off, and there are two.
const drift = 500

// refuses reports whether the policy refuses op at the latest time that the store's clock can show
// when the refusal is of this age. Later takes only lower what is left, and a refusal at one time
// implies a refusal at every earlier time.
func (r *refusal) refuses(op *Op, age int64) bool {
	if op.At == 0 { // a coarse clock showed the start of its tick
		age += age/drift + max(0, r.state.Tick-1)
	}
	// Not before the row's own time: if the store's clock is set back, the row
	// owes what it owed then.
	now := max(r.state.Now+age, r.state.Row.At)
	return op.refuses(&r.state.Row, now)
}

// ask asks the cache for a decision on the take b.op, and otherwise the store. It keeps the store's
// refusal. The store decides each look, but like a take it may convert the row to another policy.
func (c *denyCache) ask(ctx context.Context, l *Limiter, b *booking, res *Result) error {
	q, refused := c.find(&b.op, &b.state)
	refused = refused && b.op.Kind != OpLook
	if !refused {
		if err := l.doOn(ctx, l.store, &b.op, &b.state); err != nil {
			return err
		}
		c.keep(&b.op, &b.state, q)
	}
	b.op.result(&b.state, res)
	if refused {
		res.Source = SourceDenyCache
	}
	return nil
}

// question is when the cache was asked about a key.
type question struct {
	sent instant
	gen  uint64 // of the key's shard
}

// find reports whether the cache refuses op, and sets s to the state of its key. Otherwise the store
// must be asked, and its state passed to keep.
func (c *denyCache) find(op *Op, s *State) (q question, refused bool) {
	kept, gen := c.refusals.find(op.Key)
	q = question{c.now(op), gen}
	if kept == nil {
		return q, false
	}
	age := q.sent.since(kept.sent)
	if age < 0 || age > c.maxAge || kept.policy != op.Policy || !kept.refuses(op, age) {
		c.refusals.drop(kept)
		return q, false
	}
	*s = kept.state
	// The earliest time that the store's clock can show: a caller who waits for RetryAfter has
	// waited long enough.
	s.Now += max(0, q.sent.since(kept.received))
	return q, true
}

// keep keeps the store's state for op if it is a refusal that later ones follow from. A state with a
// Wait is that of a row under another policy, for which this policy's formula does not hold. A take
// that would pass was refused only because other processes kept changing the row. If refusals count, each
// one must reach the store. The state of a look is not that of a refusal.
func (c *denyCache) keep(op *Op, s *State, q question) {
	if s.Took || s.Wait != 0 || op.CountsRefusals() || op.Kind == OpLook {
		return
	}
	r := refusal{key: op.Key, policy: op.Policy, state: *s, sent: q.sent, received: c.now(op)}
	if age := r.received.since(q.sent); age >= 0 && age <= c.maxAge && r.refuses(op, age) {
		c.refusals.keep(&r, q.gen)
	}
}

// suspend forgets key. Until resume is called, the cache keeps no refusal of the key's shard. After
// that it keeps none that was requested before resume, because the store may have refused before it
// gave back.
func (c *denyCache) suspend(key string) *refusalShard {
	return c.refusals.suspend(key)
}

// carryOutAndForget is carryOut for an operation that writes the row whatever is left. If the store's clock
// was set back, the write corrects the row, and an older refusal could last too long.
func (l *Limiter) carryOutAndForget(ctx context.Context, b *booking) (Result, error) {
	if l.deny != nil {
		defer func() { l.deny.suspend(b.op.Key).resume() }()
	}
	return l.carryOut(ctx, SourceStore, b)
}
