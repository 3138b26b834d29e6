package prove_test

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/kinds"
	"github.com/sqlimit/limiter/prove/internal/ledger"
)

// request is what a caller is about to ask for: a take, or a decision over several limits. No other
// request has the first key of several, so that its row tells whether the decision was charged.
type request []want

// want is cost of a key.
type want struct {
	kind int // of kinds.Lasting
	key  string
	cost int64
}

const (
	// severalOf is of how many requests one is over several limits.
	severalOf = 4
	// sharedLimits is how many limits such a request has at most, beside its own.
	sharedLimits = 4
)

// draw returns the next request.
func draw(r *rand.Rand) request {
	q := request{drawWant(r)}
	if r.IntN(severalOf) > 0 {
		return q
	}
	q[0].key = fmt.Sprintf("own %016x", r.Uint64())
	for range 1 + r.IntN(sharedLimits) {
		q = append(q, drawWant(r))
	}
	return q
}

// drawWant returns some of the hot key, a warm one, or one that is cold.
func drawWant(r *rand.Rand) want {
	w := want{kind: r.IntN(len(kinds.Lasting)), key: "hot", cost: 1 + r.Int64N(3)}
	switch p := r.IntN(10); {
	case p < 3:
		w.key = fmt.Sprint("cold ", r.IntN(1000))
	case p < 7:
		w.key = fmt.Sprint("warm ", r.IntN(16))
	}
	return w
}

// ask makes the request with limiters of kinds.Lasting.
func (q request) ask(ctx context.Context, of []*limiter.Limiter) (limiter.Result, error) {
	if len(q) == 1 {
		return of[q[0].kind].AllowN(ctx, q[0].key, q[0].cost)
	}
	var claims []limiter.Claim
	for _, w := range q {
		claims = append(claims, limiter.Claim{Limiter: of[w.kind], Key: w.key, Cost: w.cost})
	}
	r, err := limiter.AllowAll(ctx, claims...)
	return r.Result, err
}

// takes returns what a ledger enters of the request.
func (q request) takes() (takes []ledger.Take) {
	for _, w := range q {
		kind := kinds.Lasting[w.kind]
		id := ledger.ID{Kind: limiter.KindOf(kind.Policy), Limiter: kind.Name, Key: w.key}
		takes = append(takes, ledger.Take{ID: id, Capacity: kinds.Limit(kind.Policy), Cost: w.cost})
	}
	return takes
}
