package witness

import (
	"errors"
	"fmt"
	"sort"

	"github.com/sqlimit/limiter"
)

// CheckGivenBack returns what is wrong with takes and with refunds of granted ones. Refunds return
// no state and move the row back, so there is no order to find; but what all calls took can be
// counted. opened is the row before them: it is partly used, and nothing comes back by time until
// they have ended. left is the row after them.
func CheckGivenBack(calls []Call, opened, left limiter.Row) error {
	var given, taken ledger
	for _, c := range calls {
		switch {
		case c.granted():
			taken.add(c)
		case c.Op.Kind == limiter.OpRefund && c.State.Took:
			given.add(c)
		case c.Op.Kind == limiter.OpRefund:
			return fmt.Errorf("refund: %d were not given back", c.Op.Cost)
		}
	}
	taken.sort()
	given.sort()
	var errs []error
	for _, c := range calls {
		if c.Op.Kind == limiter.OpRefund {
			continue
		}
		had, err := since(opened, c.State.Row)
		if err == nil {
			err = c.possible(had, &taken, &given)
		}
		if err != nil {
			errs = append(errs, err)
			break // the others say the same
		}
	}
	had, err := since(opened, left)
	if want := taken.total() - given.total(); err == nil && had != want {
		err = fmt.Errorf("sum: %d were taken and %d given back, but the row has %d", taken.total(), given.total(), had)
	}
	return errors.Join(append(errs, err)...)
}

// since returns what a row has more than one before it.
func since(opened, row limiter.Row) (int64, error) {
	if row.Period != opened.Period || row.Limit != opened.Limit || row.Start != opened.Start || (row.FullAt-opened.FullAt)%row.Period != 0 {
		return 0, fmt.Errorf("sum: no takes and refunds make of %+v\n%+v", opened, row)
	}
	return (row.FullAt-opened.FullAt)/row.Period + row.Used - opened.Used, nil
}

// possible returns an error if a call that had so much taken, or was told so, cannot have.
func (c Call) possible(had int64, taken, given *ledger) error {
	least := taken.ended.before(c.Began) - given.began.before(c.Ended+1)
	most := taken.began.before(c.Ended+1) - given.ended.before(c.Began)
	row := c.State.Row
	if c.granted() {
		least += c.Op.Cost
		if row.FullAt > 0 && row.FullAt > c.State.Now+row.Period*row.Limit || row.Used > row.Limit {
			return fmt.Errorf("bound: %+v grants more than the policy allows", c.State)
		}
	} else if _, want := c.apply(row); want != c.State {
		return fmt.Errorf("answer: to operation %d for %d\n is %+v\nwant %+v", c.Op.Kind, c.Op.Cost, c.State, want)
	}
	if had < least || had > most {
		return fmt.Errorf("answer: operation %d for %d was told of %d taken, when that was %d to %d: %+v", c.Op.Kind, c.Op.Cost, had, least, most, c.State)
	}
	return nil
}

// ledger is amounts by when their calls began, and by when they ended.
type ledger struct{ began, ended amounts }

// amounts are in the order of their time, each with the sum up to it.
type amounts []struct{ at, sum int64 }

func (l *ledger) add(c Call) {
	l.began = append(l.began, struct{ at, sum int64 }{c.Began, c.Op.Cost})
	l.ended = append(l.ended, struct{ at, sum int64 }{c.Ended, c.Op.Cost})
}

func (l *ledger) sort() {
	for _, a := range []amounts{l.began, l.ended} {
		sort.Slice(a, func(i, j int) bool { return a[i].at < a[j].at })
		for i := 1; i < len(a); i++ {
			a[i].sum += a[i-1].sum
		}
	}
}

// before returns the sum of what is before an instant.
func (a amounts) before(at int64) int64 {
	if i := sort.Search(len(a), func(i int) bool { return a[i].at >= at }); i > 0 {
		return a[i-1].sum
	}
	return 0
}

func (l *ledger) total() int64 { return l.ended.before(1 << 62) }
