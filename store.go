package limiter

import (
	"context"
	"reflect"
	"time"
)

// Store keeps the state of keys. Applications make one with a store package,
// pass it to [New] and are done with it; the rest of this comment is for those
// who write one. [github.com/sqlimit/limiter/storetest] holds the tests that
// every Store must pass.
//
// Do carries out op and returns the state that it left or found, together with
// the clock reading that it used. It must be atomic: concurrent calls on one
// (Name, Key) must answer as if they had come one after another, each as
// [Op.Apply] says, on the state that the one before it left. State that
// [Row.Expired] reports as expired may be forgotten.
//
// Do must carry the operation out at most once, and must not retry one whose
// outcome it does not know. An error must match [ErrNotApplied] if the operation
// was certainly not carried out, [ErrOutcomeUnknown] if it may have been,
// [ErrMisconfigured] if an operator must act, [ErrCanceled] if ctx ended,
// [ErrInvalid] if the operation itself is at fault, and [errors.ErrUnsupported]
// if the store does not know the kind of operation or policy. Its text must not
// hold the key. A refused take is not an error. An operation that timed out in its key's
// queue, before it was sent, matches [ErrKeyBusy] and [ErrNotApplied]. An operation that
// had all of [Op.Timeout] and did not finish fails with one of the first two, and not with
// ErrCanceled: the store failed, and the failure policy answers. If the deadline of ctx
// left it less than Op.Timeout, it fails with ErrCanceled, because the caller may have
// chosen that deadline: it must not get the failure policy's answer.
//
// A Store must be safe for concurrent use by many goroutines and Limiters.
type Store interface {
	Do(ctx context.Context, op Op) (State, error)
}

// isNil reports whether a store is nil, or a nil pointer, map or function: every call of it
// would panic.
func isNil(store Store) bool {
	switch v := reflect.ValueOf(store); v.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Map, reflect.Func:
		return v.IsNil()
	default:
		return false
	}
}

// OpKind says what an [Op] does.
type OpKind uint8

const (
	// OpTake takes Cost, or books it up to MaxWait ahead, or leaves all as it is.
	OpTake OpKind = iota + 1
	// OpLook reads and changes nothing.
	OpLook
	// OpRefund gives Cost back, unless bookings are outstanding or the key is as if never
	// used.
	OpRefund
	// OpCancel takes the booking Booked back, unless others were made behind it
	// or the instant at which it may act is past.
	OpCancel
	// OpReset makes the key as if it had never been used.
	OpReset
)

// Op is one operation on one key of one limiter. A [Limiter] makes only valid
// ones: the name, key, cost and policy were checked, 0 <= Cost <= the policy's
// limit (of a refund at least 1, and without that limit), 0 <= MaxWait <= [MaxReserve].
type Op struct {
	Kind OpKind
	// Name is the limiter's name; state belongs to (Name, kind of Policy, Key).
	Name string
	// Key is the key as it is to be stored: 1 to 255 bytes of any value.
	Key    string
	Policy Policy
	// Cost is the tokens or units to take, give back or cancel; 0 for a look
	// or a reset.
	Cost int64
	// MaxWait is how far beyond now a take may book: 0 to [MaxReserve]. A cancel has that of
	// its take.
	MaxWait time.Duration
	// At is the time of the operation in nanoseconds since 1970, or 0 for the
	// store's own clock.
	At int64
	// Timeout is how long the operation may take from when the store has a
	// connection; 0 is no limit. See [WithTimeout].
	Timeout time.Duration
	// Booked is, for a cancel, what the take to be taken back had returned. For a refund
	// of a fixed window its Row.Start and Row.Period are the only window to credit; if
	// Row.Period is 0, that is the current window.
	Booked State
}

// State is what a [Store] reports of an operation.
type State struct {
	// Row is the key's state, expressed in the operation's policy: after a take
	// that was carried out, else as it was found. Only takes and looks need it;
	// refunds, cancels and resets that took may report what they left.
	Row Row
	// Now is the operation's own clock reading, in nanoseconds since 1970. It may lie behind
	// Row.At by up to [Op.Tolerance]; all durations count from it.
	Now int64
	// Tick is the resolution of the clock that Now was read from, in
	// nanoseconds; 0 is the same as 1.
	Tick int64
	// Wait is, for a request that is refused on a row which stays under another
	// policy, the time until it can pass, in nanoseconds; else it is 0, and that
	// time follows from Row.
	Wait int64
	// Took reports whether a take was granted, whether a refund gave anything back, or
	// whether a cancel or reset found a row that it could change.
	Took bool
}

// Row is the stored state of one key under one policy. The zero Row is that of
// a key that was never used. Instants are nanoseconds since 1970.
type Row struct {
	// FullAt is the instant at which a token bucket is full again.
	FullAt int64
	// Start and Used are a fixed window's frontier: the latest window that
	// anything was counted in, and the count. Windows before it are full.
	Start, Used int64
	// At is the clock reading of the latest take.
	At int64
	// Period and Limit are the policy that wrote the row: the time of one token
	// and the capacity, or a window's length and its limit.
	Period, Limit int64
}

// Expired reports whether the row can be forgotten at now: for an hour it has
// been as if it had never been used. The hour is for takes whose clock was read
// before the row vanished, and which would come back in the past.
func (r Row) Expired(now int64) bool {
	end := max(r.FullAt, r.At)
	if r.Start > 0 || r.Used > 0 { // otherwise nothing was counted since the key was new or reset
		end = max(end, r.Start+r.Period)
	}
	return end <= now-int64(SweepGrace)
}

const (
	// MaxReserve is the longest that a reservation can lie ahead.
	MaxReserve = time.Hour
	// SweepGrace is how long a row stays after it is as if never used.
	SweepGrace = time.Hour
	// ClockTolerance is how far a row may lie ahead of the clock before the
	// clock counts as stepped back. Statements that wait for each other read
	// their clocks out of order by up to 28 ms (measured on PostgreSQL 15). See
	// [Op.Tolerance].
	ClockTolerance = 2 * time.Second

	// maxClock bounds clocks such that an instant plus the longest debt stays
	// below 2^62, the highest that a table holds: the year 2079.
	maxClock = 1<<62 - 1<<60 - int64(MaxReserve)
)

// Clock returns the operation's own time or, if it has none, the reading of
// now, in nanoseconds since 1970. It is ErrInvalid if the reading lies outside
// 1970 to 2079, where instants could not be stored.
func (op Op) Clock(now func() time.Time) (int64, error) {
	if op.At != 0 {
		return op.At, nil
	}
	return checkClock(now())
}

func checkClock(t time.Time) (int64, error) {
	// UnixNano is undefined far outside these years: look at seconds first.
	if s := t.Unix(); s < 0 || s >= maxClock/int64(time.Second) || t.UnixNano() <= 0 {
		return 0, invalid("the clock says %s; set it to a time between 1970 and 2079",
			t.UTC().Format(time.RFC3339))
	}
	return t.UnixNano(), nil
}

// Tolerance returns how far, in nanoseconds, row may lie ahead of the operation's
// clock before the clock counts as stepped back: [ClockTolerance], and for an
// operation on a fixed window that brings its own time the row's window if that
// is longer. Such an operation may simply be late; the store's own clock is read
// after the row was, and cannot be.
func (op Op) Tolerance(row Row) int64 {
	if _, ok := op.Policy.(FixedWindow); ok && op.At != 0 {
		return max(int64(ClockTolerance), row.Period)
	}
	return int64(ClockTolerance)
}

// Apply is the definition of every operation: it returns the row that op leaves
// and the state that it reports when the key's row is row (the zero Row if there
// is none) and the clock reads now. If the returned row equals row there is
// nothing to write. Apply is a pure function; a Store that calls it under a
// lock, or writes its row by compare-and-set, is right.
func (op Op) Apply(row Row, now int64) (next Row, s State) {
	if w, ok := op.Policy.(FixedWindow); ok {
		w.apply(&op, &row, now, &s)
	} else {
		op.Policy.(TokenBucket).apply(&op, &row, now, &s)
	}
	return row, s
}

// probeCost is what a look asks about.
const probeCost = 1

// probe is the take that a look asks about.
func (op *Op) probe() Op {
	return Op{Kind: OpTake, Policy: op.Policy, Cost: probeCost, At: op.At}
}

// Act returns, for a cancel, the instant at which the booking may act.
func (op Op) Act() int64 {
	return op.Booked.Now + delayOf(op.Policy, &op.Booked, op.MaxWait)
}
