package ledger_test

import (
	"errors"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/ledger"
	"github.com/sqlimit/limiter/prove/internal/outcome"
)

var key = ledger.ID{Kind: limiter.KindBucket, Limiter: "l", Key: "k"}

func TestEachFaultIsSeen(t *testing.T) {
	for _, c := range []struct {
		name                  string
		told, unknown, stored int64 // of a key of 10
		lost, double, over    int64
	}{
		{"as told", 7, 0, 7, 0, 0, 0},
		{"nothing", 0, 0, 0, 0, 0, 0},
		{"one unknown was carried out", 5, 2, 7, 0, 0, 0},
		{"one unknown was not", 5, 2, 5, 0, 0, 0},
		{"lost", 5, 0, 3, 2, 0, 0},
		{"lost, with one unknown", 5, 2, 3, 2, 0, 0},
		{"twice", 5, 0, 10, 0, 5, 0},
		{"one unknown carried out twice", 2, 3, 8, 0, 3, 0},
		{"above the capacity", 11, 0, 11, 0, 0, 1},
		{"callers were told more than there is", 12, 0, 10, 2, 0, 2},
		{"nobody was told", 0, 0, 3, 0, 3, 0},
	} {
		l := ledger.New()
		for n := range c.told + c.unknown {
			class := outcome.Carried
			if n >= c.told {
				class = outcome.Unknown
			}
			l.Note(class, errors.New("text"), ledger.Take{ID: key, Capacity: 10, Cost: 1})
		}
		v := compare(t, l, c.name, map[ledger.ID]int64{key: c.stored}, c.lost, c.double)
		if v.Over != c.over || v.Oldest.IsZero() != (c.lost == 0) || (v.Found == nil) != (c.lost+c.double+c.over == 0) {
			t.Errorf("%s: %+v, want %d over", c.name, v, c.over)
		}
		compare(t, l, c.name+", and one more", map[ledger.ID]int64{key: c.stored + 1}, 0, 1)
		if v := l.Compare(nil); v.Lost == 0 {
			t.Errorf("%s: it is gone, and %+v", c.name, v)
		}
	}
	l, err := ledger.New(), errors.Join(limiter.ErrNotApplied, limiter.ErrOutcomeUnknown)
	if l.Note(outcome.Of(false, err), err); l.WrongErrors() == nil {
		t.Error("an answer of two classes is not wrong")
	}
}

// compare checks what a comparison finds, and that the next one does not find it again.
func compare(t *testing.T, l *ledger.Ledger, name string, stored map[ledger.ID]int64, lost, double int64) ledger.Verdict {
	t.Helper()
	v := l.Compare(stored)
	if again := l.Compare(stored); v.Lost != lost || v.Double != double || again.Lost != 0 || again.Double != 0 {
		t.Errorf("%s: %+v, then %+v, want %d lost and %d double, then none", name, v, again, lost, double)
	}
	return v
}

// The row that only a decision uses tells whether it was carried out. Its other rows must agree.
func TestAllOrNothing(t *testing.T) {
	own, other := ledger.ID{Kind: limiter.KindBucket, Limiter: "l", Key: "own"}, ledger.ID{Kind: limiter.KindWindow, Limiter: "l", Key: "k"}
	takes := []ledger.Take{{own, 10, 1}, {key, 10, 2}, {other, 10, 3}}
	for _, c := range []struct {
		name, class  string
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
		compare(t, l, c.name, c.stored, c.lost, c.double)
	}
}
