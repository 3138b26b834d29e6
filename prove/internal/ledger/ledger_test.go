package ledger_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/ledger"
)

var (
	allowed = limiter.Result{Allowed: true}
	key     = ledger.ID{Limiter: "l", Key: "k"}
)

func TestClassesOfAnswersAreToldApart(t *testing.T) {
	for _, c := range []struct {
		result limiter.Result
		err    error
		want   string
	}{
		{allowed, nil, ledger.Granted},
		{limiter.Result{}, nil, ledger.Refused},
		{limiter.Result{}, fmt.Errorf("x: %w", limiter.ErrNotApplied), ledger.NotApplied},
		{limiter.Result{}, fmt.Errorf("x: %w", limiter.ErrOutcomeUnknown), ledger.Unknown},
		{limiter.Result{}, errors.Join(limiter.ErrKeyBusy, limiter.ErrNotApplied), ledger.NotApplied},
		{limiter.Result{}, limiter.ErrInvalid, ledger.Wrong},
		{limiter.Result{}, limiter.ErrMisconfigured, ledger.Wrong},
		{limiter.Result{}, errors.Join(limiter.ErrCanceled, limiter.ErrOutcomeUnknown), ledger.Wrong},
		{limiter.Result{}, errors.New("of no class"), ledger.Wrong},
	} {
		if got := ledger.Classify(c.result, c.err); got != c.want {
			t.Errorf("%+v, %v is %s, want %s", c.result, c.err, got, c.want)
		}
	}
}

func TestWhatIsStoredIsComparedWithWhatCallersWereTold(t *testing.T) {
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

func TestLostTakesAreCountedAndNotWhatTheyCost(t *testing.T) {
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
