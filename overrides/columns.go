package overrides

import (
	"github.com/sqlimit/limiter"
	rows "github.com/sqlimit/limiter/internal/override"
)

// KindLimit is the kind of an override of the limit alone: see [Base]. Only Capacity is set then.
const KindLimit = rows.Limit

// Columns are the columns of the table limiter_overrides that hold a policy, for tools that write the
// table. A column that the policy does not have is NULL in the table and 0 here. Period is in nanoseconds.
type Columns struct {
	Kind                     string
	Capacity, Refill, Period int64
}

// ColumnsOf returns the columns of a policy. They are zero for nil and for a pointer.
func ColumnsOf(p limiter.Policy) Columns { return Columns(rows.ColumnsOf(p)) }

// Policy returns the policy of the columns, or nil for [KindLimit]. It does not check the policy, as
// [limiter.New] does. The error matches [limiter.ErrMisconfigured] if this release does not know the kind.
func (c Columns) Policy() (limiter.Policy, error) { return rows.Columns(c).Policy() }
