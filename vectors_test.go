package limiter_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"math/big"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

var updateVectors = flag.Bool("update-vectors", false, "write the histories of the oracles to storetest/vectors.jsonl")

// vectorsOfOracles is how many histories at the end of storetest/vectors.jsonl are the oracles'. The
// ones before them are from a model outside of this module.
const vectorsOfOracles = 20

// TestVectorsAreThoseOfTheOracles checks that the histories with charges, takes of what is there and
// blocks have the outcomes of the exact models, which know nothing of Op.Apply.
func TestVectorsAreThoseOfTheOracles(t *testing.T) {
	t.Parallel()
	const file = "storetest/vectors.jsonl"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	lines = lines[:len(lines)-1] // the rest after the last line feed, which is empty
	var want []byte
	for seed := range uint64(vectorsOfOracles) {
		line, err := json.Marshal(newVector(seed))
		if err != nil {
			t.Fatal(err)
		}
		want = append(append(want, line...), '\n')
	}
	if *updateVectors {
		first := lines
		for i, line := range lines {
			if bytes.Contains(line, []byte(`"op":"charge"`)) {
				first = lines[:i]
				break
			}
		}
		if err := os.WriteFile(file, append(bytes.Join(first, nil), want...), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if len(lines) < vectorsOfOracles || !bytes.Equal(bytes.Join(lines[len(lines)-vectorsOfOracles:], nil), want) {
		t.Errorf("the last %d lines of %s are not those of the oracles; run go test -run Vectors -update-vectors .", vectorsOfOracles, file)
	}
}

// The lines of the file: see package storetest.
type (
	vector struct {
		Policy map[string]any `json:"policy"`
		Ops    []vectorOp     `json:"ops"`
	}
	vectorOp struct {
		At      int64         `json:"at"`
		Op      string        `json:"op"`
		Key     string        `json:"key"`
		N       int64         `json:"n,omitempty"`
		MaxWait int64         `json:"max_wait,omitempty"`
		Want    vectorOutcome `json:"want"`
	}
	vectorOutcome struct {
		Allowed    *bool  `json:"allowed,omitempty"`
		Limit      *int64 `json:"limit,omitempty"`
		Remaining  *int64 `json:"remaining,omitempty"`
		Used       *int64 `json:"used,omitempty"`
		RetryAfter *int64 `json:"retry_after,omitempty"`
		ResetAfter *int64 `json:"reset_after,omitempty"`
		Delay      *int64 `json:"delay,omitempty"`
		Taken      *int64 `json:"taken,omitempty"`
		Gave       *bool  `json:"gave,omitempty"`
	}
)

// exactKey is a key by one of the oracles.
type exactKey interface {
	// tell returns Remaining, Used, ResetAfter and the time until a cost fits.
	tell(now int64) (remaining, used, reset int64, wait func(cost int64) int64)
	take(cost, maxWait, now int64) bool
	takeUpTo(n, now int64) int64
	charge(n, now int64) bool
	block(d, now int64)
	refund(n, now int64) bool
}

func newVector(seed uint64) vector {
	r := rand.New(rand.NewPCG(seed, 1))
	pick := func(of ...int64) int64 { return of[r.IntN(len(of))] }
	var v vector
	var fresh func() exactKey
	var limit, span int64
	counts := false
	switch seed % 5 {
	case 0, 1:
		p := limiter.TokenBucket{Capacity: pick(1, 2, 5, 1000), Refill: pick(1, 3, 7), Interval: time.Duration(pick(1e6, 2e9, 60e9, 86_400e9))}
		limit, span = p.Capacity, int64(p.Step())
		v.Policy = map[string]any{"kind": "token_bucket", "capacity": p.Capacity, "refill": p.Refill, "interval": p.Interval}
		fresh = func() exactKey { return &exactBucket{p: p} }
	default:
		counts = seed%5 == 4
		p := limiter.FixedWindow{Limit: pick(1, 2, 5, 1000), Window: time.Duration(pick(1e6, 1e9, 60e9, 86_400e9)), CountRejected: counts}
		limit, span = p.Limit, int64(p.Window)
		v.Policy = map[string]any{"kind": "fixed_window", "limit": p.Limit, "window": p.Window, "count_rejected": counts}
		fresh = func() exactKey { return &exactWindow{windowOracle{policy: p, counts: map[int64]int64{}}} }
	}
	keys := map[string]exactKey{"a": fresh(), "b": fresh()}
	now, due := start+r.Int64N(86_400e9), int64(0)
	for range 36 {
		switch r.IntN(5) {
		case 0, 1: // at the same instant
		case 2:
			now += r.Int64N(span)
		case 3:
			now += r.Int64N(3 * span)
		default: // when the latest refusal ends, or just before
			now = max(now, due-r.Int64N(2))
		}
		op := vectorOp{At: now, Key: string("aaab"[r.IntN(4)]), N: pick(1, 1, 1+r.Int64N(limit), limit)}
		k := keys[op.Key]
		drawVectorOp(r, &op, k, limit, span, counts)
		if op.Op == "reset" {
			keys[op.Key] = fresh()
		}
		if op.Want.RetryAfter != nil && *op.Want.RetryAfter > 0 && *op.Want.RetryAfter < 1<<50 {
			due = now + *op.Want.RetryAfter
		}
		v.Ops = append(v.Ops, op)
	}
	return v
}

// drawVectorOp chooses an operation, and fills in what the oracle says.
func drawVectorOp(r *rand.Rand, op *vectorOp, k exactKey, limit, span int64, counts bool) {
	now := op.At
	allowed := func(ok bool, cost, maxWait int64) {
		remaining, used, reset, wait := k.tell(now)
		retry := int64(0)
		if !ok || op.Op == "charge" {
			retry = max(0, wait(cost)-maxWait)
		}
		op.Want = vectorOutcome{
			Allowed: &ok, Limit: &limit, Remaining: &remaining, Used: &used, RetryAfter: &retry, ResetAfter: &reset,
			Delay: op.Want.Delay, Taken: op.Want.Taken,
		}
	}
	kind := r.IntN(20)
	switch {
	case kind < 5 || counts && (kind == 5 || kind == 6 || kind == 7 || kind == 8 || kind == 9):
		op.Op = "allow"
		allowed(k.take(op.N, 0, now), op.N, 0)
	case kind < 8:
		op.Op, op.N = "allow_up_to", op.N+r.Int64N(3)
		taken := k.takeUpTo(op.N, now)
		op.Want.Taken = &taken
		allowed(taken > 0, 1, 0)
	case kind < 10:
		op.Op, op.MaxWait = "reserve", r.Int64N(min(4*span, int64(limiter.MaxReserve)))
		_, _, _, wait := k.tell(now)
		delay := max(0, wait(op.N))
		ok := k.take(op.N, op.MaxWait, now)
		if ok {
			op.Want.Delay = &delay
		}
		allowed(ok, op.N, op.MaxWait)
	case kind < 14:
		op.Op, op.N = "charge", op.N+r.Int64N(1+2*limit)*r.Int64N(2)
		allowed(k.charge(op.N, now), 1, 0)
	case kind < 16:
		op.Op = "peek"
		_, _, _, wait := k.tell(now)
		allowed(wait(op.N) <= 0, op.N, 0)
	case kind < 18:
		op.Op = "refund"
		gave := k.refund(op.N, now)
		op.Want = vectorOutcome{Gave: &gave}
	case kind < 19:
		op.Op, op.N, op.MaxWait = "block", 0, 1+r.Int64N(3*span)
		k.block(op.MaxWait, now)
	default:
		op.Op, op.N = "reset", 0
	}
}

// exactBucket is a bucketOracle of one policy.
type exactBucket struct {
	bucketOracle
	p limiter.TokenBucket
}

func (k *exactBucket) tell(now int64) (remaining, used, reset int64, wait func(cost int64) int64) {
	level := k.under(k.p, now)
	until := func(tokens int64) int64 { // negative if there are more
		ns := times(new(big.Rat).Sub(rat(tokens), level), k.p.Step())
		if !ns.IsInt() {
			panic("a part of a nanosecond")
		}
		return ns.Num().Int64()
	}
	if level.Sign() > 0 {
		remaining = new(big.Int).Quo(level.Num(), level.Denom()).Int64()
	}
	return remaining, 0, until(k.p.Capacity), until
}

func (k *exactBucket) take(cost, maxWait, now int64) bool {
	took, _ := k.bucketOracle.take(k.p, cost, time.Duration(maxWait), now)
	return took
}
func (k *exactBucket) takeUpTo(n, now int64) int64 { return k.bucketOracle.takeUpTo(k.p, n, now) }
func (k *exactBucket) charge(n, now int64) bool    { return k.bucketOracle.charge(k.p, n, now) }
func (k *exactBucket) block(d, now int64)          { k.bucketOracle.block(k.p, d, now) }

// exactWindow is a windowOracle.
type exactWindow struct{ windowOracle }

func (k *exactWindow) tell(now int64) (remaining, used, reset int64, wait func(cost int64) int64) {
	length, limit := int64(k.policy.Window), k.policy.Limit
	w := max(now/length, k.last)
	used = k.counts[w]
	wait = func(cost int64) int64 {
		if cost <= limit-k.counts[w] {
			return w*length - now
		}
		return (w+1)*length - now
	}
	if reset = max(0, w*length-now); used > 0 {
		reset = (w+1)*length - now
	}
	if w > now/length || used == full {
		return 0, limit, reset, wait
	}
	return max(0, limit-used), used, reset, wait
}

func (k *exactWindow) take(cost, maxWait, now int64) bool {
	took, _ := k.windowOracle.take(cost, time.Duration(maxWait), now)
	return took
}

func (k *exactWindow) charge(n, now int64) bool {
	room, _ := k.windowOracle.charge(n, now)
	return room
}
func (k *exactWindow) block(d, now int64) { k.windowOracle.block(d, now) }
func (k *exactWindow) refund(n, now int64) bool {
	return k.windowOracle.refund(n, now/int64(k.policy.Window), now)
}
