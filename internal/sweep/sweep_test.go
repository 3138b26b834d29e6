package sweep_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/sweep"
	"github.com/sqlimit/limiter/internal/testenv"
)

const ms = time.Millisecond

var errBroken = errors.New("broken")

// rows is a table: its keys in order, and whether each has expired.
type rows struct {
	name    string
	keys    []string
	expired map[string]bool
	random  func(n int) int // chooses where a sweep starts
	failing string          // page that fails, by the key that it comes after
	total   int64           // what each page reports

	log *[]string // of the pages, by the key that they come after
}

// newRows returns a table of n rows that stay.
func newRows(name string, n int, log *[]string) *rows {
	r := &rows{name: name, expired: map[string]bool{}, random: func(int) int { return 0 }, failing: "none", log: log}
	for i := range n {
		r.keys = append(r.keys, key(i))
	}
	return r
}

func key(i int) string { return fmt.Sprintf("%05d", i) }

func (r *rows) expire(from, to int) *rows {
	for i := from; i < to; i++ {
		r.expired[key(i)] = true
	}
	return r
}

func (r *rows) table() sweep.Table {
	return sweep.Table{
		Random: func(context.Context) (c sweep.Cursor, err error) {
			if len(r.keys) > 0 {
				if i := r.random(len(r.keys)); i > 0 {
					c = sweep.Cursor{Name: r.name, Key: []byte(r.keys[i-1])}
				}
			}
			return c, nil
		},
		Page: func(_ context.Context, after sweep.Cursor, limit int64) (p sweep.Page, err error) {
			*r.log = append(*r.log, fmt.Sprintf("%s %s", r.name, after.Key))
			if string(after.Key) == r.failing {
				return p, errBroken
			}
			first, found := slices.BinarySearch(r.keys, string(after.Key))
			if found {
				first++
			}
			page := slices.Clone(r.keys[first:min(len(r.keys), first+sweep.PageSize)])
			p.End = len(page) < sweep.PageSize
			p.Visited, p.Total = int64(len(page)), r.total
			for _, k := range page {
				p.Last = sweep.Cursor{Name: r.name, Key: []byte(k)}
				if r.expired[k] && p.Removed < limit {
					p.Removed++
					delete(r.expired, k)
					r.keys = slices.DeleteFunc(r.keys, func(have string) bool { return have == k })
				}
			}
			return p, nil
		},
	}
}

// of returns the entries of a log that are of one table.
func of(name string, log []string) (pages []string) {
	for _, entry := range log {
		if entry[:len(name)] == name {
			pages = append(pages, entry)
		}
	}
	return pages
}

func TestSweepVisitsEachPageOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		rows  int
		start int
		log   []string
	}{
		{"an empty table", 0, 0, []string{"a "}},
		{"less than a page", 10, 0, []string{"a "}},
		{"less than a page, from its middle", 10, 5, []string{"a 00004", "a "}},
		{"a page", 250, 0, []string{"a ", "a 00249"}},
		{"pages", 600, 0, []string{"a ", "a 00249", "a 00499"}},
		{"pages, from the first row of the second", 600, 250, []string{"a 00249", "a 00499", "a "}},
		{"pages, from the middle", 600, 300, []string{"a 00299", "a 00549", "a ", "a 00249"}},
		{"pages, from the last row", 600, 599, []string{"a 00598", "a ", "a 00249", "a 00499"}},
	} {
		var log []string
		a, b := newRows("a", c.rows, &log), newRows("b", 3, &log).expire(1, 2)
		a.random = func(int) int { return c.start }
		var s sweep.Sweeper
		if n, err := s.Sweep(t.Context(), 10, a.table(), b.table()); n != 1 || err != nil {
			t.Errorf("%s: Sweep = %d, %v, want 1", c.name, n, err)
		}
		testenv.Equal(t, fmt.Sprintf("%q", of("a", log)), fmt.Sprintf("%q", c.log), c.name, "the pages after")
		testenv.Equal(t, len(of("b", log)), 1, c.name, "pages of the other table")
	}
}

func TestTablesInTurn(t *testing.T) {
	t.Parallel()
	var log []string
	a, b := newRows("a", 800, &log), newRows("b", 300, &log)
	var s sweep.Sweeper
	if n, err := s.Sweep(t.Context(), 10, a.table(), b.table()); n != 0 || err != nil {
		t.Errorf("Sweep = %d, %v", n, err)
	}
	want := []string{"a ", "b ", "a 00249", "b 00249", "a 00499", "a 00749"}
	if log[0] == "b " { // which is first is random
		want = []string{"b ", "a ", "b 00249", "a 00249", "a 00499", "a 00749"}
	}
	testenv.Equal(t, fmt.Sprintf("%q", log), fmt.Sprintf("%q", want), "the pages after")
}

func TestSweepContinues(t *testing.T) {
	t.Parallel()
	var log []string
	a := newRows("a", 1000, &log).expire(100, 150)
	var s sweep.Sweeper
	sweep := func(ctx context.Context, limit, removed int64, want error, pages ...string) {
		t.Helper()
		log = nil
		if n, err := s.Sweep(ctx, limit, a.table()); n != removed || !errors.Is(err, want) {
			t.Errorf("Sweep = %d, %v; want %d, %v", n, err, removed, want)
		}
		testenv.Equal(t, fmt.Sprintf("%q", log), fmt.Sprintf("%q", pages), "the pages after")
	}
	// The limit leaves expired rows in the page.
	sweep(t.Context(), 20, 20, nil, "a ")
	sweep(t.Context(), 20, 20, nil, "a ")
	sweep(testenv.Looks(t.Context(), 2), 20, 10, limiter.ErrCanceled, "a ", "a 00289")
	a.expire(700, 701)
	a.failing = "00789"
	sweep(t.Context(), 20, 1, errBroken, "a 00539", "a 00789")
	sweep(t.Context(), 20, 0, errBroken, "a 00789")
	a.failing = "none"
	sweep(t.Context(), 20, 0, nil, "a 00789", "a ", "a 00299", "a 00549")
	sweep(testenv.Looks(t.Context(), 0), 20, 0, limiter.ErrCanceled)
}

func TestSweepWithoutARandomRow(t *testing.T) {
	t.Parallel()
	var log []string
	a := newRows("a", 300, &log)
	a.random = func(int) int { return 200 }
	chooses := 0
	table := a.table()
	table.Random = func(context.Context) (sweep.Cursor, error) { chooses++; return sweep.Cursor{}, errBroken }
	var s sweep.Sweeper
	testenv.ErrorIs(t, testenv.ErrorOf(s.Sweep(t.Context(), 10, table)), errBroken, "Sweep")
	if _, err := s.Sweep(t.Context(), 10, table); err != nil || !slices.Equal(log, []string{"a ", "a 00249"}) || chooses != 1 {
		t.Errorf("a second Sweep: %v, the pages after %q, and it chose %d times", err, log, chooses-1)
	}
}

func TestShortSweeps(t *testing.T) {
	if testing.Short() {
		t.Skip("it visits 21,000 rows thousands of times: a short run tests shorter sweeps")
	}
	t.Parallel()
	const live, expired = 20_000, 1000
	for _, c := range []struct {
		name  string
		calls int  // of two pages, while the larger table has more than 80
		from  int  // where the expired rows are
		keep  bool // whether all calls are of one Store
	}{
		{"calls of one store, the expired rows last", 100, live, true},
		{"each call in a new store, the expired rows last", 8000, live, false},
		{"each call in a new store, the expired rows first", 8000, 0, false},
	} {
		synctest.Test(t, func(t *testing.T) { // where no statement takes any time, so that nothing rests
			var log []string
			a := newRows("a", live+expired, &log).expire(c.from, c.from+expired)
			b := newRows("b", 1000, &log).expire(0, 500)
			a.random = func(n int) int { return rand.IntN(n) - rand.IntN(sweep.PageSize) }
			b.random = a.random
			s := &sweep.Sweeper{}
			for call := 0; len(a.expired)+len(b.expired) > 0; call++ {
				if call == c.calls {
					t.Fatalf("%s: %d calls left %d and %d expired rows of %d and %d",
						c.name, call, len(a.expired), len(b.expired), expired, 500)
				}
				if !c.keep {
					s = &sweep.Sweeper{}
				}
				_, err := s.Sweep(testenv.Looks(t.Context(), 2), live, a.table(), b.table())
				if err != nil && !errors.Is(err, limiter.ErrCanceled) {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestLimit(t *testing.T) {
	t.Parallel()
	for _, limit := range []int64{1, 249, 250, 251, 700, 1199, 1200, 5000} {
		var log []string
		a, b := newRows("a", 1000, &log).expire(0, 700), newRows("b", 500, &log).expire(0, 500)
		var s sweep.Sweeper
		left := int64(1200)
		for left > 0 {
			n, err := s.Sweep(t.Context(), limit, a.table(), b.table())
			if want := min(limit, left); n != want || err != nil {
				t.Fatalf("Sweep(%d) = %d, %v; want %d", limit, n, err, want)
			}
			left -= n
		}
		if n, err := s.Sweep(t.Context(), limit, a.table(), b.table()); n != 0 || err != nil {
			t.Errorf("a Sweep(%d) of what is left = %d, %v", limit, n, err)
		}
	}
	for _, limit := range []int64{0, -1} {
		var s sweep.Sweeper
		if n, err := s.Sweep(t.Context(), limit, newRows("a", 1, nil).table()); n != 0 || !errors.Is(err, limiter.ErrInvalid) {
			t.Errorf("Sweep(%d) = %d, %v, want ErrInvalid", limit, n, err)
		}
	}
}

func TestSweepRests(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		takes, want time.Duration // of three statements, and of two rests between them
		canceled    bool          // in the first rest
	}{
		{takes: 10 * ms, want: 90 * ms},
		{takes: time.Second, want: 3200 * ms}, // not for longer than 100 ms
		{takes: 10 * ms, want: 15 * ms, canceled: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.canceled {
				time.AfterFunc(15*ms, cancel)
			}
			left := 3
			begin := time.Now()
			var s sweep.Sweeper
			_, err := s.Sweep(ctx, 5000, sweep.Table{
				Random: func(context.Context) (sweep.Cursor, error) { return sweep.Cursor{}, nil },
				Page: func(context.Context, sweep.Cursor, int64) (sweep.Page, error) {
					<-time.After(c.takes)
					left--
					return sweep.Page{End: left == 0}, nil
				},
			})
			testenv.Equal(t, time.Since(begin), c.want, "a sweep with statements of", c.takes)
			testenv.Equal(t, err != nil, c.canceled, "a sweep with statements of", c.takes, "fails:", err)
		})
	}
}

func TestCursorOrder(t *testing.T) {
	t.Parallel()
	a, b := sweep.Cursor{Name: "a", Key: []byte("z")}, sweep.Cursor{Name: "b", Key: []byte("y")}
	testenv.Equal(t, a.Compare(b) < 0 && b.Compare(a) > 0, true, "the name decides before the key:", a.Compare(b), b.Compare(a))
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
