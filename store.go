package limiter

import (
	"context"
	"fmt"
	"reflect"
	"time"
)

// Store keeps the state of keys. Applications get one from package postgres, sqlite or memory and
// pass it to [New]. The rest of this comment is for authors of a new store; package
// [github.com/sqlimit/limiter/storetest] tests its requirements.
//
// Do carries out op and returns the resulting state and the clock reading that it used. It must be
// atomic: concurrent calls for one (Name, Key) return what they would return one after another,
// each as [Op.Apply] says. A Store may forget state for which [Row.Expired] returns true.
//
// Do carries out an operation at most once. It must not retry an operation whose outcome it does
// not know. Its error matches one of these, and its text does not contain the key:
//
//   - [ErrNotApplied]: the operation was certainly not carried out.
//   - [ErrOutcomeUnknown]: the operation may have been carried out.
//   - [ErrKeyBusy] and [ErrNotApplied]: the operation timed out behind others. For DoAll, see [ErrKeyBusy].
//   - [ErrMisconfigured]: an operator must act.
//   - [ErrCanceled]: ctx ended, or its deadline left too little time.
//   - [ErrInvalid]: the operation itself is wrong.
//   - [errors.ErrUnsupported]: the store does not know the kind of operation or policy.
//
// A refused take is not an error. An operation that had all of [Op.Timeout] and did not finish
// fails with ErrNotApplied or ErrOutcomeUnknown, so that the failure policy applies. If the
// deadline of ctx left less than Op.Timeout, it fails with ErrCanceled. The caller may have chosen
// that deadline, and must not get the failure policy's result.
//
// A Store must be safe for concurrent use by any number of goroutines and Limiters.
type Store interface {
	Do(ctx context.Context, op Op) (State, error)
}

// isNil reports whether a store is nil, or a nil pointer, map or function. Every call of such a
// store would panic.
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

// OpKind is what an [Op] does. The zero OpKind is not valid.
type OpKind uint8

const (
	// OpTake takes Cost, or books it up to MaxWait ahead. If neither is possible, it is refused.
	OpTake OpKind = iota + 1
	// OpLook reads the state and takes nothing. It changes a row only if another policy wrote
	// the row, or if it is refused and the clock was stepped back.
	OpLook
	// OpRefund gives Cost back. It gives nothing back while bookings are outstanding, or if the key
	// is unused.
	OpRefund
	// OpCancel cancels the booking Booked. It does nothing if a later turn is booked, or if the
	// booking's turn has come. See [Reservation.Cancel].
	OpCancel
	// OpReset makes the key unused.
	OpReset
	// OpTakeUpTo takes as many of Cost as there is room for. If there is room for none, it is
	// refused.
	OpTakeUpTo
	// OpCharge takes Cost, also if there is no room for it.
	OpCharge
	// OpBlock refuses takes until Cost nanoseconds have passed.
	OpBlock
	// OpAcquire takes a place for the time Hold, under an ID. If none is free, it is refused. Only an
	// [InFlight] has places.
	OpAcquire
	// OpRelease frees the place of the ID. It does nothing if there is none.
	OpRelease
	// OpExtend makes the place of the ID held for the time Hold from now on, unless its time is over.
	OpExtend
)

// String returns the name of k in lower case, for use as a metric label.
func (k OpKind) String() string {
	switch k {
	case OpTake:
		return "take"
	case OpLook:
		return "look"
	case OpRefund:
		return "refund"
	case OpCancel:
		return "cancel"
	case OpReset:
		return "reset"
	case OpTakeUpTo:
		return "take_up_to"
	case OpCharge:
		return "charge"
	case OpBlock:
		return "block"
	case OpAcquire:
		return "acquire"
	case OpRelease:
		return "release"
	case OpExtend:
		return "extend"
	}
	return fmt.Sprintf("operation(%d)", uint8(k))
}

// Op is one operation on one key of one limiter. A [Limiter] makes only valid ones: it checks the
// name, key, cost and policy. Cost is 0 to the policy's limit, and MaxWait is 0 to [MaxReserve]. A
// refund, a charge or a take of up to Cost has a Cost of at least 1, which may be above the limit.
type Op struct {
	Kind OpKind
	// Name is the limiter's name. State belongs to (Name, kind of Policy, Key).
	Name string
	// Key is the key as the store keeps it: 1 to 255 arbitrary bytes.
	Key    string
	Policy Policy
	// Cost is the number of tokens or units to take, give back or cancel. For a look it is the cost
	// of the take that it asks about, which may be 0. It is 0 for a reset. For a block it is a time in
	// nanoseconds, 1 to [MaxBlock].
	Cost int64
	// MaxWait is how far ahead of now a take may book: 0 to [MaxReserve]. A look and a cancel have the
	// MaxWait of their take.
	MaxWait time.Duration
	// At is the time of the operation in nanoseconds since 1970; 0 means the store's clock.
	At int64
	// Timeout is how long the operation may take, counted from when the store has a connection; 0
	// means no limit. See [WithTimeout].
	Timeout time.Duration
	// Booked is, for a cancel, the State that the take returned. For a refund of a window, Row.Start and
	// Row.Period name the only window or slice to credit. If Row.Period is 0, that is the current window, or
	// the oldest slices that count.
	Booked State
	// ID is the number of the lease of an acquire, a release or an extend: 1 to 2^63 - 1.
	ID int64
	// Hold is how long the lease of an acquire or an extend lasts, from the clock of the operation on: 1 ms
	// to [MaxHold].
	Hold time.Duration
}

// State is what a [Store] returns for an operation.
type State struct {
	// Row is the key's state in terms of the operation's policy: after a take or acquire that was granted,
	// a charge or a block, otherwise as the store found it. Takes, acquires, looks and charges must set
	// it. Blocks may set it, and so may refunds, cancels, resets, releases and extends that changed the row.
	Row Row
	// Now is the clock reading of the operation in nanoseconds since 1970. All durations count from
	// it. It may be behind Row.At by up to [Op.Tolerance].
	Now int64
	// Tick is the resolution in nanoseconds of the clock that Now was read from; 0 means 1.
	Tick int64
	// Wait is set for a refused request whose row stays under another policy: the time in
	// nanoseconds until the request can pass. Otherwise it is 0, and that time follows from Row.
	Wait int64
	// Taken is how much an [OpTakeUpTo] took.
	Taken int64
	// Took reports whether a take or an acquire was granted, whether a charge had room, or whether a refund
	// gave anything back. A release or an extend took if it found its lease, and a cancel or a reset if it
	// found a row that it could change. It is true for a block.
	Took bool
}

// Row is the stored state of one key under one policy. The zero Row means that there is no row.
// Instants are in nanoseconds since 1970.
type Row struct {
	// FullAt is the instant at which a token bucket is full again.
	FullAt int64
	// Start is the start of the latest window in which anything was counted, and Used is the count.
	// All windows before it are closed. Of a sliding window it is the start of the newest slice.
	Start, Used int64
	// At is the clock reading of the latest take, acquire or extend.
	At int64
	// List is a list of numbers of 8 bytes each, for kinds of limit that keep more than one count. It is a
	// string so that Rows can be compared. Of requests in flight it has the ends of all leases, in their
	// order, and then their ids. Of a sliding window it has 18 sums, oldest first: what was counted up to and
	// including each slice. It is empty if nothing was counted since a reset.
	List string
	// Period and Limit are the policy that wrote the row: the step and the capacity of a bucket, or
	// the length and the limit of a window. Of a sliding window Period is the length of a slice. Leases have
	// no Period.
	Period, Limit int64
}

// Expired reports whether a store may forget the row at now: its bucket has been full, its window over, or
// its last lease ended, for one hour ([SweepGrace]). The hour protects takes whose clock was read before the
// row was deleted.
func (r Row) Expired(now int64) bool { return r.expires() <= now }

func (r *Row) expires() int64 {
	end := max(r.FullAt, r.At)
	switch {
	case r.List != "" && r.Period > 0: // slices, the newest of which starts at Start
		end = max(end, r.Start+(sliceCount+1)*r.Period)
	case r.Start > 0 || r.Used > 0: // otherwise nothing was counted since the key was new or reset
		end = max(end, r.Start+r.Period)
	case r.Period == 0:
		for _, l := range leases(r) {
			end = max(end, l.end)
		}
	}
	return end + int64(SweepGrace)
}

const (
	// MaxReserve is how far ahead a reservation can be at most.
	MaxReserve = time.Hour
	// MaxBlock is how long [Limiter.Block] can block a key at most: 5 years of 365.25 days.
	MaxBlock = 43_830 * time.Hour
	// SweepGrace is how long a row stays after its bucket is full, its window is over, or its last lease
	// has ended.
	SweepGrace = time.Hour
	// ClockTolerance is how far a row may be ahead of the clock before the store concludes that the
	// clock was stepped back. Statements that wait for each other read their clocks out of order, by
	// less than their time limits. See [Op.Tolerance].
	ClockTolerance = 2 * time.Second

	// maxClock is the latest clock reading, in the year 2079. An instant plus the longest debt then
	// stays below 2^62, the highest value that a table holds.
	maxClock = 1<<62 - maxDebt - int64(MaxReserve)

	// maxDebt is how far ahead of the clock a charge can put the instant at which a bucket is full:
	// 36 years in nanoseconds.
	maxDebt = 1 << 60
)

// Clock returns the operation's own time or, if it has none, the reading of now, in nanoseconds
// since 1970. The error is [ErrInvalid] if the reading is not between 1970 and 2079.
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

// Tolerance returns how far, in nanoseconds, row may be ahead of the operation's clock before the
// clock counts as stepped back. That is [ClockTolerance]. For an operation on a window with
// its own time it is the shorter of the row's window and the policy's if that is longer, because such an
// operation may be late. The store's own clock cannot be late: it is read after the row.
func (op Op) Tolerance(row Row) int64 {
	if op.At != 0 {
		return op.tolerance(row)
	}
	return int64(ClockTolerance)
}

// Apply defines every operation. It takes the key's row (the zero Row if there is none) and a clock
// reading in nanoseconds since 1970. It returns the row after the operation and the State that the
// store must return. If next equals row, the store writes nothing.
//
// Apply is a pure function. A Store is correct if it calls Apply under a lock, or writes the row by
// compare-and-set.
func (op Op) Apply(row Row, now int64) (next Row, s State) {
	op.apply(&row, now, &s)
	return row, s
}

// taken returns how much op took, given what the store returned.
func (op *Op) taken(s *State) int64 {
	switch {
	case op.Kind == OpTakeUpTo:
		return s.Taken
	case (op.Kind == OpTake || op.Kind == OpAcquire) && s.Took, op.Kind == OpCharge:
		return op.Cost
	}
	return 0
}

// needs is the cost for which there must be room. For a charge it is that of the take after it.
func (op *Op) needs() int64 {
	switch op.Kind {
	case OpTakeUpTo, OpCharge:
		return 1
	default:
		return op.Cost
	}
}

// probe returns the take that a look asks about.
func (op *Op) probe() Op {
	return Op{Kind: OpTake, Policy: op.Policy, Cost: op.Cost, MaxWait: op.MaxWait, At: op.At}
}

// Act returns, for a cancel, the instant at which the booking's turn comes, in nanoseconds since
// 1970.
func (op Op) Act() int64 {
	return op.Booked.Now + delayOf(&op, &op.Booked)
}
