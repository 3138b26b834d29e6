// Package ledger keeps what the callers of limiters were told, key by key, and compares
// it with what a database has stored. It is for keys that get nothing back by time, so
// that each charge can be counted for as long as its key is used.
package ledger

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sqlimit/limiter"
)

// ID is what an account is found by.
type ID struct {
	Window       bool // a fixed window, else a token bucket: each has a table
	Limiter, Key string
}

// Charge is one that a caller was told to be carried out, and when.
type Charge struct {
	Cost int64
	Told time.Time
}

// account is what callers were told of a key.
type account struct {
	capacity int64
	told     []Charge // with what was found to be stored besides
	unknown  int64    // cost of those whose outcome nobody knows
	admitted int64    // all that callers were ever told
}

// Ledger is safe for concurrent use. Make one with [New].
type Ledger struct {
	mu       sync.Mutex
	accounts map[ID]*account
	classes  map[string]int64
	wrong    []error
	calls    int64
}

// New returns a Ledger without accounts.
func New() *Ledger {
	return &Ledger{accounts: map[ID]*account{}, classes: map[string]int64{}}
}

// Granted, Refused, NotApplied and Unknown are what [Ledger.Note] finds.
const (
	Granted    = "granted"
	Refused    = "refused"
	NotApplied = "not applied"
	Unknown    = "unknown"
	Wrong      = "wrong"
)

// Classify returns what an answer says of its charge. A server that fails is neither
// misconfigured, nor the caller's fault.
func Classify(r limiter.Result, err error) string {
	switch {
	case err == nil && r.Allowed:
		return Granted
	case err == nil:
		return Refused
	case errors.Is(err, limiter.ErrKeyBusy):
		return NotApplied
	case !limiter.StoreFailed(err):
		return Wrong
	case errors.Is(err, limiter.ErrOutcomeUnknown):
		return Unknown
	}
	return NotApplied
}

// Note enters what a caller was told who asked for cost of a key, and returns what
// [Classify] does.
func (l *Ledger) Note(id ID, capacity, cost int64, r limiter.Result, err error) string {
	class := Classify(r, err)
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	l.classes[class]++
	switch class {
	case Wrong:
		l.wrong = append(l.wrong, err)
	case Granted:
		a := l.account(id, capacity)
		a.told = append(a.told, Charge{cost, now})
		a.admitted += cost
	case Unknown:
		l.account(id, capacity).unknown += cost
	}
	return class
}

func (l *Ledger) account(id ID, capacity int64) *account {
	a := l.accounts[id]
	if a == nil {
		a = &account{capacity: capacity}
		l.accounts[id] = a
	}
	return a
}

// Classes returns how many calls had which outcome, and forgets it.
func (l *Ledger) Classes() map[string]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer clear(l.classes)
	return maps.Clone(l.classes)
}

// WrongErrors returns those that no fault of a server explains.
func (l *Ledger) WrongErrors() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.wrong) == 0 {
		return nil
	}
	return fmt.Errorf("%d answers are of a wrong class, among them: %w", len(l.wrong), errors.Join(l.wrong[:min(len(l.wrong), 3)]...))
}

// Verdict is what a comparison found.
type Verdict struct {
	// Lost is how many takes callers were told of that are not stored. Double is what is
	// stored though nobody can have been charged it, and Over what is above the capacity,
	// in what takes cost.
	Lost, Double, Over int64
	// Oldest is when the earliest of what is lost was told, the zero time if nothing is.
	Oldest time.Time
	// Keys is how many were compared, and Found what is wrong with the first ones.
	Keys  int
	Found []string
}

// Compare compares what is stored with what callers were told, while nothing is under
// way. From then on it is what is stored that counts: what is lost is found once, and
// so is what an unknown outcome has left.
func (l *Ledger) Compare(stored map[ID]int64) Verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range stored {
		l.account(id, stored[id]) // one that nobody was told of: all of it is too much
	}
	v := Verdict{Keys: len(l.accounts)}
	for _, id := range slices.SortedFunc(maps.Keys(l.accounts), compareIDs) {
		v.compare(id, l.accounts[id], stored[id])
	}
	return v
}

func (v *Verdict) compare(id ID, a *account, stored int64) {
	sum, kept, found := int64(0), int64(0), 0
	for _, c := range a.told {
		if sum += c.Cost; sum <= stored {
			kept, found = sum, found+1
		} else if v.Oldest.IsZero() || c.Told.Before(v.Oldest) {
			v.Oldest = c.Told
		}
	}
	lost, double := max(0, sum-stored), max(0, stored-sum-a.unknown)
	over := max(0, max(stored, a.admitted)-a.capacity)
	if lost > 0 || double > 0 || over > 0 {
		v.Found = append(v.Found, fmt.Sprintf("%+v: %d are stored of %d told and %d unknown, of at most %d: %d lost, %d too many, %d over",
			id, stored, sum, a.unknown, a.capacity, lost, double, over))
	}
	v.Lost, v.Double, v.Over = v.Lost+int64(len(a.told)-found), v.Double+double, v.Over+over
	a.told, a.unknown = a.told[:found], 0
	if stored > kept {
		a.told = append(a.told, Charge{stored - kept, time.Now()})
	}
	a.admitted -= lost // it can be had again, which is not to be found at each comparison
}

// Forget removes all accounts.
func (l *Ledger) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.accounts)
}
