// Package ledger compares the answers that callers got with what a database has stored. Its keys get nothing back by
// time, so that every charge can be counted.
package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/prove/internal/outcome"
	"github.com/sqlimit/limiter/prove/internal/tables"
)

// ID identifies a key.
type ID struct {
	Kind         limiter.PolicyKind // each has a table
	Limiter, Key string
}

// Charge is a granted take, and when its caller got the answer.
type Charge struct {
	Cost int64
	Told time.Time
}

// Take is a request for cost of a key.
type Take struct {
	ID
	Capacity, Cost int64
}

type account struct {
	capacity int64
	told     []Charge // also what a comparison found stored in addition
	unknown  int64    // cost of the takes of unknown outcome
	admitted int64    // cost of all takes that were granted
}

// Ledger is safe for concurrent use. Make one with [New].
type Ledger struct {
	mu       sync.Mutex
	accounts map[ID]*account
	joint    [][]Take // decisions of unknown outcome over several keys
	classes  map[string]int64
	several  map[string]int64 // of these, the answers for several keys
	wrong    []error
}

// New returns a Ledger without accounts.
func New() *Ledger {
	return &Ledger{accounts: map[ID]*account{}, classes: map[string]int64{}, several: map[string]int64{}}
}

// Note enters the class of an answer to a request for some takes, and its error. The faults of a server explain
// answers of the classes Carried, Refused, NotApplied and Unknown only. If there are several takes, they are
// one decision. No other request may use the first of their keys: if the outcome is unknown, its row tells
// [Ledger.Compare] whether all takes were carried out or none.
func (l *Ledger) Note(class string, err error, takes ...Take) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.classes[class]++
	if len(takes) > 1 {
		l.several[class]++
	}
	switch class {
	case outcome.Carried:
		for _, take := range takes {
			l.carried(take)
			l.account(take.ID, take.Capacity).admitted += take.Cost
		}
	case outcome.Unknown:
		first := takes[0]
		l.account(first.ID, first.Capacity).unknown += first.Cost
		if len(takes) > 1 {
			l.joint = append(l.joint, takes)
		}
	case outcome.Refused, outcome.NotApplied:
	default:
		l.wrong = append(l.wrong, fmt.Errorf("%s: %w", class, err))
	}
}

func (l *Ledger) carried(take Take) {
	a := l.account(take.ID, take.Capacity)
	a.told = append(a.told, Charge{take.Cost, time.Now()})
}

func (l *Ledger) account(id ID, capacity int64) *account {
	a := l.accounts[id]
	if a == nil {
		a = &account{capacity: capacity}
		l.accounts[id] = a
	}
	return a
}

// Answers returns the number of answers of each class since the last call, also of those for several keys.
func (l *Ledger) Answers() (all, several map[string]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer clear(l.classes)
	defer clear(l.several)
	return maps.Clone(l.classes), maps.Clone(l.several)
}

// WrongErrors returns the errors that no fault of a server explains.
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
	// Lost is how many granted takes are not stored, Double the cost that no answer explains, Over that above capacity.
	Lost, Double, Over int64
	// Oldest is when the earliest lost take was granted, the zero time if none is lost.
	Oldest time.Time
	Found  []string // what is wrong, by key
}

// Compare compares what is stored with what callers were told. No call may be in flight. Later
// comparisons start from what is stored now, so each lost or unexplained take is reported once.
func (l *Ledger) Compare(stored map[ID]int64) Verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, takes := range l.joint {
		for _, take := range takes[1:] {
			if stored[takes[0].ID] > 0 {
				l.carried(take)
			}
		}
	}
	l.joint = nil
	for id := range stored {
		l.account(id, stored[id]) // if no caller was told of it, all of it is too much
	}
	var v Verdict
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
	a.admitted -= lost // it can be granted again, and must not be reported each time
}

// Forget removes all accounts.
func (l *Ledger) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.accounts)
	l.joint = nil
}

func compareIDs(a, b ID) int {
	return cmp.Or(strings.Compare(a.Limiter, b.Limiter), strings.Compare(a.Key, b.Key))
}

// Read returns what is stored of each key. A bucket's is exact until a token comes back.
func Read(ctx context.Context, conn *pgx.Conn) (map[ID]int64, error) {
	var now int64
	if err := conn.QueryRow(ctx, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000").Scan(&now); err != nil {
		return nil, err
	}
	stored := map[ID]int64{}
	err := tables.Rows(ctx, conn, "", func(kind limiter.PolicyKind, name, key string, row limiter.Row) {
		if units := rowtest.Used(kind, row, now); units > 0 {
			stored[ID{kind, name, key}] = units
		}
	})
	return stored, err
}
