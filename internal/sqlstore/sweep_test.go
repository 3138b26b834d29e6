package sqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/sqlstore"
)

// answer is what a table says to one statement of a sweep.
type answer struct {
	removed int64
	read    int
	err     error
}

// table answers in order; it notes what it was asked in log, and its n-th page
// ends at the key n.
func table(name string, log *[]string, answers ...answer) sqlstore.SweepPage {
	n := 0
	return func(_ context.Context, after sqlstore.Cursor, limit int) (sqlstore.Page, error) {
		*log = append(*log, fmt.Sprintf("%s after %s%s: %d", name, after.Name, after.Key, limit))
		if n == len(answers) {
			return sqlstore.Page{}, errors.New("asked too often")
		}
		a := answers[n]
		n++
		return sqlstore.Page{
			Removed: a.removed, Read: a.read,
			Last: sqlstore.Cursor{Name: name, Key: []byte(fmt.Sprint(n))},
		}, a.err
	}
}

func TestSweep_goes_page_by_page_and_table_by_table(t *testing.T) {
	t.Parallel()
	const full = sqlstore.PageSize
	cases := []struct {
		name    string
		limit   int
		a, b    []answer
		log     []string
		removed int64
		err     error
	}{
		{"nothing there", 5, []answer{{}}, []answer{{}}, []string{"a after : 5", "b after : 5"}, 0, nil},
		{"less than a page", 5000, []answer{{3, 10, nil}}, []answer{{4, 4, nil}}, []string{"a after : 250", "b after : 250"}, 7, nil},
		{
			"pages, of which one has nothing to remove", 5000,
			[]answer{{full, full, nil}, {0, full, nil}, {1, full - 1, nil}},
			[]answer{{2, full, nil}, {}},
			[]string{"a after : 250", "a after a1: 250", "a after a2: 250", "b after : 250", "b after b1: 250"},
			full + 3, nil,
		},
		{
			"the limit ends it within a table", 400,
			[]answer{{full, full, nil}, {150, full, nil}},
			nil,
			[]string{"a after : 250", "a after a1: 150"},
			400, nil,
		},
		{
			"the limit is for all tables together", 10,
			[]answer{{7, 7, nil}},
			[]answer{{3, full, nil}},
			[]string{"a after : 10", "b after : 3"},
			10, nil,
		},
		{"the first fails", 10, []answer{{err: errBroken}}, nil, []string{"a after : 10"}, 0, errBroken},
		{
			"one in the middle fails", 5000,
			[]answer{{full, full, nil}, {5, 5, nil}},
			[]answer{{2, full, nil}, {err: errBroken}},
			[]string{"a after : 250", "a after a1: 250", "b after : 250", "b after b1: 250"},
			full + 7, errBroken,
		},
		{"no limit", 0, nil, nil, nil, 0, limiter.ErrInvalid},
		{"less than none", -1, nil, nil, nil, 0, limiter.ErrInvalid},
	}
	for _, c := range cases {
		var log []string
		removed, err := sqlstore.Sweep(t.Context(), c.limit, table("a", &log, c.a...), table("b", &log, c.b...))
		if removed != c.removed || !errors.Is(err, c.err) {
			t.Errorf("%s: Sweep = %d, %v; want %d, %v", c.name, removed, err, c.removed, c.err)
		}
		if !slices.Equal(log, c.log) {
			t.Errorf("%s: asked\n%q, want\n%q", c.name, log, c.log)
		}
	}
}

func TestSweep_rests_for_as_long_as_its_statements_take(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		takes, want time.Duration // of three statements, and of two rests between them
		canceled    bool          // in the first rest, which the second statement tells
	}{
		{takes: 10 * ms, want: 50 * ms},
		{takes: time.Second, want: 3200 * ms}, // not for longer than 100 ms
		{takes: 10 * ms, want: 15 * ms, canceled: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.canceled {
				time.AfterFunc(15*ms, cancel)
			}
			pages := []int{sqlstore.PageSize, sqlstore.PageSize, 1}
			begin := time.Now()
			_, err := sqlstore.Sweep(ctx, 5000, func(ctx context.Context, _ sqlstore.Cursor, _ int) (sqlstore.Page, error) {
				if ctx.Err() != nil {
					return sqlstore.Page{}, ctx.Err()
				}
				<-time.After(c.takes)
				read := pages[0]
				pages = pages[1:]
				return sqlstore.Page{Read: read}, nil
			})
			if took := time.Since(begin); took != c.want || (err != nil) != c.canceled {
				t.Errorf("statements of %v: a sweep of %v, %v; want one of %v", c.takes, took, err, c.want)
			}
		})
	}
}
