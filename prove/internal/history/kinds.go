package history

import "github.com/sqlimit/limiter"

// kind is what the witness knows of a kind of policy, beside [limiter.Op.Apply].
type kind struct {
	policy limiter.Policy // any of the kind
	// bounded checks the promise of the policy itself.
	bounded func(k *rowHistory)
	// blocked returns the latest end of a block that may have left a row. It is nil if the row tells more.
	blocked func(row *limiter.Row) int64
	// oneLength is whether only keys are checked whose periods are all equal, because a change of the
	// period may shorten a block.
	oneLength bool
}

var kinds = map[limiter.PolicyKind]kind{
	limiter.KindBucket: {policy: limiter.TokenBucket{}, bounded: (*rowHistory).boundedBucket},
	limiter.KindWindow: {
		policy: limiter.FixedWindow{}, bounded: (*rowHistory).boundedWindows, oneLength: true,
		blocked: func(row *limiter.Row) int64 { return row.Start + row.Period - 1 },
	},
}

// kindOf returns what is known of the kind of a call's policy.
func kindOf(c *Call) kind { return kinds[limiter.KindOf(c.Op.Policy)] }
