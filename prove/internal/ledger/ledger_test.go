package ledger_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/ledger"
	"github.com/sqlimit/limiter/prove/internal/outcome"
)

var (
	allowed = limiter.Result{Allowed: true}
	key     = ledger.ID{Kind: limiter.KindBucket, Limiter: "l", Key: "k"}
)

func TestAnswersThatNoFaultExplainsAreWrong(t *testing.T) {
	for _, c := range []struct {
		result limiter.Result
		err    error
		want   string
		wrong  bool
	}{
		{allowed, nil, outcome.Carried, false},
		{limiter.Result{}, nil, outcome.Refused, false},
		{limiter.Result{}, fmt.Errorf("x: %w", limiter.ErrNotApplied), outcome.NotApplied, false},
		{limiter.Result{}, fmt.Errorf("x: %w", limiter.ErrOutcomeUnknown), outcome.Unknown, false},
		{limiter.Result{}, errors.Join(limiter.ErrKeyBusy, limiter.ErrNotApplied), outcome.NotApplied, false},
		{limiter.Result{}, errors.Join(limiter.ErrNotApplied, limiter.ErrOutcomeUnknown), outcome.Other, true},
		{limiter.Result{}, limiter.ErrInvalid, outcome.Invalid, true},
		{limiter.Result{}, limiter.ErrMisconfigured, outcome.Misconfigured, true},
		{limiter.Result{}, limiter.ErrCanceled, outcome.Canceled, true},
		{limiter.Result{}, errors.Join(limiter.ErrCanceled, limiter.ErrOutcomeUnknown), outcome.CanceledLate, true},
		{limiter.Result{}, errors.New("of no class"), outcome.Other, true},
	} {
		l := ledger.New()
		if got := l.Note(key, 10, 1, c.result, c.err); got != c.want || (l.WrongErrors() != nil) != c.wrong {
			t.Errorf("%+v, %v is %s, want %s; wrong: %v", c.result, c.err, got, c.want, l.WrongErrors())
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
		for range c.told {
			l.Note(key, 10, 1, allowed, nil)
		}
		for range c.unknown {
			l.Note(key, 10, 1, limiter.Result{}, limiter.ErrOutcomeUnknown)
		}
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

func TestLostTakesAreCounted(t *testing.T) {
	l := ledger.New()
	for range 4 {
		l.Note(key, 100, 3, allowed, nil)
	}
	if v := l.Compare(map[ledger.ID]int64{key: 5}); v.Lost != 3 {
		t.Errorf("of 4 takes of 3, of which 5 are stored, %d are lost, want 3", v.Lost)
	}
}

// What a key had lost before it was compared is stored when it is not: the row is gone.
func TestARowThatIsGoneHasLostWhatItHadBefore(t *testing.T) {
	l := ledger.New()
	l.Note(key, 100, 1, allowed, nil)
	if v := l.Compare(map[ledger.ID]int64{key: 1}); v.Lost != 0 {
		t.Fatalf("%+v", v)
	}
	if v := l.Compare(nil); v.Lost != 1 {
		t.Errorf("%+v, want one lost", v)
	}
}

// An outcome that nobody knew is known once it has been compared: it excuses nothing
// that comes later.
func TestAnUnknownOutcomeExcusesOneCharge(t *testing.T) {
	l := ledger.New()
	l.Note(key, 10, 1, limiter.Result{}, limiter.ErrOutcomeUnknown)
	if v := l.Compare(nil); v.Double != 0 {
		t.Errorf("%+v", v)
	}
	if v := l.Compare(map[ledger.ID]int64{key: 1}); v.Double != 1 {
		t.Errorf("a charge that came after the comparison: %+v, want it to be too many", v)
	}
}

// A decision of unknown outcome is known by the row that only it uses. Then its other rows have to
// agree, as exactly as if the caller had been told.
func TestAllOrNothing(t *testing.T) {
	own, other := ledger.ID{Kind: limiter.KindBucket, Limiter: "l", Key: "own"}, ledger.ID{Kind: limiter.KindWindow, Limiter: "l", Key: "k"}
	takes := []ledger.Take{{own, 10, 1}, {key, 10, 2}, {other, 10, 3}}
	for _, c := range []struct {
		name         string
		err          error
		stored       map[ledger.ID]int64
		lost, double int64
	}{
		{"as told", nil, map[ledger.ID]int64{own: 1, key: 2, other: 3}, 0, 0},
		{"told, and a part is missing", nil, map[ledger.ID]int64{own: 1, key: 2}, 1, 0},
		{"carried out", limiter.ErrOutcomeUnknown, map[ledger.ID]int64{own: 1, key: 2, other: 3}, 0, 0},
		{"not carried out", limiter.ErrOutcomeUnknown, nil, 0, 0},
		{"carried out in part", limiter.ErrOutcomeUnknown, map[ledger.ID]int64{own: 1, other: 3}, 1, 0},
		{"carried out but for its own row", limiter.ErrOutcomeUnknown, map[ledger.ID]int64{key: 2, other: 3}, 0, 5},
		{"carried out twice", limiter.ErrOutcomeUnknown, map[ledger.ID]int64{own: 2, key: 4, other: 6}, 0, 6},
		{"not applied, but in part", limiter.ErrNotApplied, map[ledger.ID]int64{key: 2}, 0, 2},
	} {
		l := ledger.New()
		l.NoteAll(takes, limiter.Result{Allowed: c.err == nil}, c.err)
		if v := l.Compare(c.stored); v.Lost != c.lost || v.Double != c.double {
			t.Errorf("%s: %+v, want %d lost and %d double", c.name, v, c.lost, c.double)
		}
		if v := l.Compare(c.stored); v.Lost != 0 || v.Double != 0 {
			t.Errorf("%s: what was found is found again: %+v", c.name, v)
		}
	}
}
