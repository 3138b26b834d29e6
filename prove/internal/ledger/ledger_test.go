package ledger_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/ledger"
	"github.com/sqlimit/limiter/prove/internal/outcome"
)

var key = ledger.ID{Kind: limiter.KindBucket, Limiter: "l", Key: "k"}

// note notes n answers of a class to takes of cost.
func note(l *ledger.Ledger, n int64, class string, capacity, cost int64) {
	for range n {
		l.Note(class, errors.New("text"), ledger.Take{ID: key, Capacity: capacity, Cost: cost})
	}
}

func TestAnswersThatNoFaultExplainsAreWrong(t *testing.T) {
	for _, c := range []struct {
		allowed bool
		err     error
		want    string
		wrong   bool
	}{
		{true, nil, outcome.Carried, false},
		{false, nil, outcome.Refused, false},
		{false, fmt.Errorf("x: %w", limiter.ErrNotApplied), outcome.NotApplied, false},
		{false, fmt.Errorf("x: %w", limiter.ErrOutcomeUnknown), outcome.Unknown, false},
		{false, errors.Join(limiter.ErrKeyBusy, limiter.ErrNotApplied), outcome.NotApplied, false},
		{false, errors.Join(limiter.ErrNotApplied, limiter.ErrOutcomeUnknown), outcome.Other, true},
		{false, limiter.ErrInvalid, outcome.Invalid, true},
		{false, limiter.ErrMisconfigured, outcome.Misconfigured, true},
		{false, limiter.ErrCanceled, outcome.Canceled, true},
		{false, errors.Join(limiter.ErrCanceled, limiter.ErrOutcomeUnknown), outcome.CanceledLate, true},
		{false, errors.New("of no class"), outcome.Other, true},
	} {
		l, got := ledger.New(), outcome.Of(c.allowed, c.err)
		l.Note(got, c.err, ledger.Take{ID: key, Capacity: 10, Cost: 1})
		if got != c.want || (l.WrongErrors() != nil) != c.wrong {
			t.Errorf("%t, %v is %s, want %s; wrong: %v", c.allowed, c.err, got, c.want, l.WrongErrors())
		}
	}
}

func TestStoredIsWhatCallersWereTold(t *testing.T) {
	type counts struct{ lost, double, over int64 }
	for _, c := range []struct {
		name                  string
		told, unknown, stored int64
		want                  counts
	}{
		{"as told", 7, 0, 7, counts{}},
		{"nothing", 0, 0, 0, counts{}},
		{"one unknown was carried out", 5, 2, 7, counts{}},
		{"one unknown was not", 5, 2, 5, counts{}},
		{"lost", 5, 0, 3, counts{lost: 2}},
		{"lost, with one unknown", 5, 2, 3, counts{lost: 2}},
		{"twice", 5, 0, 10, counts{double: 5}},
		{"one unknown carried out twice", 2, 3, 8, counts{double: 3}},
		{"above the capacity", 11, 0, 11, counts{over: 1}},
		{"callers were told more than there is", 12, 0, 10, counts{lost: 2, over: 2}},
		{"nobody was told", 0, 0, 3, counts{double: 3}},
	} {
		l := ledger.New()
		note(l, c.told, outcome.Carried, 10, 1)
		note(l, c.unknown, outcome.Unknown, 10, 1)
		stored := map[ledger.ID]int64{key: c.stored}
		v := l.Compare(stored)
		if got := (counts{v.Lost, v.Double, v.Over}); got != c.want || (len(v.Found) > 0) != (c.want != counts{}) {
			t.Errorf("%s: %+v (%q), want %+v", c.name, got, v.Found, c.want)
		}
		if v.Oldest.IsZero() != (c.want.lost == 0) {
			t.Errorf("%s: the oldest that is lost was told at %v", c.name, v.Oldest)
		}
		if v := l.Compare(stored); v.Lost != 0 || v.Double != 0 {
			t.Errorf("%s: what was found is found again: %+v", c.name, v)
		}
	}
}

func TestLaterComparisons(t *testing.T) {
	for _, c := range []struct {
		name, class   string
		stored, later int64
		lost, double  int64
	}{
		{"a row that is gone has lost what it had before", outcome.Carried, 1, 0, 1, 0},
		{"an unknown outcome excuses one charge, until it is compared", outcome.Unknown, 0, 1, 0, 1},
	} {
		l := ledger.New()
		note(l, 1, c.class, 10, 1)
		if v := l.Compare(map[ledger.ID]int64{key: c.stored}); v.Found != nil {
			t.Errorf("%s: at first %+v", c.name, v)
		}
		if v := l.Compare(map[ledger.ID]int64{key: c.later}); v.Lost != c.lost || v.Double != c.double {
			t.Errorf("%s: later %+v, want %d lost and %d double", c.name, v, c.lost, c.double)
		}
	}
}

// A decision of unknown outcome is known by the row that only it uses. Then its other rows have to
// agree, as exactly as if the caller had been told.
func TestAllOrNothing(t *testing.T) {
	own, other := ledger.ID{Kind: limiter.KindBucket, Limiter: "l", Key: "own"}, ledger.ID{Kind: limiter.KindWindow, Limiter: "l", Key: "k"}
	takes := []ledger.Take{{own, 10, 1}, {key, 10, 2}, {other, 10, 3}}
	for _, c := range []struct {
		name         string
		class        string
		stored       map[ledger.ID]int64
		lost, double int64
	}{
		{"as told", outcome.Carried, map[ledger.ID]int64{own: 1, key: 2, other: 3}, 0, 0},
		{"told, and a part is missing", outcome.Carried, map[ledger.ID]int64{own: 1, key: 2}, 1, 0},
		{"told, and a part of a take is missing", outcome.Carried, map[ledger.ID]int64{own: 1, key: 1, other: 3}, 1, 0},
		{"carried out", outcome.Unknown, map[ledger.ID]int64{own: 1, key: 2, other: 3}, 0, 0},
		{"not carried out", outcome.Unknown, nil, 0, 0},
		{"carried out in part", outcome.Unknown, map[ledger.ID]int64{own: 1, other: 3}, 1, 0},
		{"carried out but for its own row", outcome.Unknown, map[ledger.ID]int64{key: 2, other: 3}, 0, 5},
		{"carried out twice", outcome.Unknown, map[ledger.ID]int64{own: 2, key: 4, other: 6}, 0, 6},
		{"not applied, but in part", outcome.NotApplied, map[ledger.ID]int64{key: 2}, 0, 2},
	} {
		l := ledger.New()
		l.Note(c.class, nil, takes...)
		if v := l.Compare(c.stored); v.Lost != c.lost || v.Double != c.double {
			t.Errorf("%s: %+v, want %d lost and %d double", c.name, v, c.lost, c.double)
		}
		if v := l.Compare(c.stored); v.Lost != 0 || v.Double != 0 {
			t.Errorf("%s: what was found is found again: %+v", c.name, v)
		}
	}
}
