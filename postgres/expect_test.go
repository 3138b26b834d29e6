package postgres_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/postgres"
)

// tracer notes the statements that a pool sends.
type tracer struct {
	mu    sync.Mutex
	sent  []string
	names map[string]string // by text
}

func newTracer(schema string) *tracer {
	r := &tracer{names: map[string]string{}}
	for name, text := range postgres.Statements(schema, false) {
		r.names[text] = name
	}
	return r
}

func (r *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if name, ok := r.names[data.SQL]; ok {
		r.sent = append(r.sent, name)
	}
	return ctx
}

func (*tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// take returns what was sent since it was called last.
func (r *tracer) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent := r.sent
	r.sent = nil
	return sent
}

// in puts a tracer into a pool.
func (r *tracer) in(c *pgxpool.Config) { c.ConnConfig.Tracer = r }

func TestTakes_whose_outcome_can_be_foreseen_ask_for_that_first(t *testing.T) {
	steps := []struct {
		name string
		// by is whose take it is: "" is the store's, "other" another process's, and
		// "refund" one that another process gives back.
		by     string
		cost   int64
		took   bool
		bucket []string
		window []string
	}{
		{"of a key never seen", "", 1, true, []string{"bucketTake"}, []string{"windowTake"}},
		{"with much left", "", 3, true, []string{"bucketGrant"}, []string{"windowGrant"}},
		{"with half left", "", 1, true, []string{"bucketGrant"}, []string{"windowGrant"}},
		{"with less left", "", 1, true, []string{"bucketTake"}, []string{"windowTake"}},
		{"whose rest somebody else takes", "other", 2, true, nil, nil},
		{"and is refused", "", 1, false, []string{"bucketTake"}, []string{"windowTake"}},
		{"that was refused", "", 1, false, []string{"bucketRead"}, []string{"windowRead"}},
		{"that is given back elsewhere", "refund", 8, true, nil, nil},
		{"and is granted", "", 1, true, []string{"bucketRead", "bucketTake"}, []string{"windowRead", "windowTake"}},
		{"that has much left, for others", "other", 7, true, nil, nil},
		{"and is refused for once", "", 1, false, []string{"bucketGrant", "bucketTake"}, []string{"windowGrant", "windowTake"}},
		{"that costs more than there is", "", 2, false, []string{"bucketRead"}, []string{"windowRead"}},
	}
	onPostgres(t, func(t *testing.T, d *database) {
		for _, policy := range []limiter.Policy{slow(8), long(8)} {
			schema := d.schema(t)
			r := newTracer(schema)
			store, other := d.store(t, schema, r.in), d.store(t, schema, nil)
			for _, step := range steps {
				switch step.by {
				case "other":
					do(t, other, take(policy, "k", step.cost))
					continue
				case "refund":
					refund := take(policy, "k", step.cost)
					refund.Kind = limiter.OpRefund
					do(t, other, refund)
					continue
				}
				op := take(policy, "k", step.cost)
				op.Timeout = patience
				if s := do(t, store, op); s.Took != step.took {
					t.Errorf("%T: a take %s: %+v, want Took %v", policy, step.name, s, step.took)
				}
				want := step.bucket
				if _, window := policy.(limiter.FixedWindow); window {
					want = step.window
				}
				if sent := r.take(); !slices.Equal(sent, want) {
					t.Errorf("%T: a take %s sent %v, want %v", policy, step.name, sent, want)
				}
			}
		}
	})
}

func TestTakes_with_a_time_of_their_own_foresee_nothing(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		r := newTracer(schema)
		store := d.store(t, schema, r.in)
		for _, at := range []int64{0, time.Now().UnixNano(), time.Now().UnixNano()} {
			op := take(slow(9), "k", 1)
			op.At, op.Timeout = at, patience
			do(t, store, op)
		}
		if sent := r.take(); !slices.Equal(sent, []string{"bucketTake", "bucketTake", "bucketTake"}) {
			t.Errorf("sent %v", sent)
		}
	})
}

func TestTakes_forget_what_they_expected_of_a_row_that_is_another_policys(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for _, c := range []struct {
			policy, other limiter.Policy
			sent          []string
		}{
			{slow(8), slow(9), []string{"bucketGrant", "bucketTake", "bucketLook", "bucketTake", "bucketLook"}},
			{long(8), long(9), []string{"windowGrant", "windowTake", "windowLook", "windowTake", "windowLook"}},
		} {
			schema := d.schema(t)
			r := newTracer(schema)
			store := d.store(t, schema, r.in)
			do(t, store, take(c.policy, "k", 1))
			if s := do(t, d.store(t, schema, nil), take(c.other, "k", 7)); !s.Took {
				t.Fatalf("%T: the other policy: %+v", c.policy, s)
			}
			r.take()
			for range 2 { // each is refused by a row that stays as it is
				if s := do(t, store, take(c.policy, "k", 4)); s.Took {
					t.Errorf("%T: Took, want a refusal", c.policy)
				}
			}
			if sent := r.take(); !slices.Equal(sent, c.sent) {
				t.Errorf("%T: sent %v, want %v", c.policy, sent, c.sent)
			}
		}
	})
}

func TestTakes_of_a_limiter_with_a_row_in_each_table_are_told_apart(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		r := newTracer(schema)
		store := d.store(t, schema, r.in)
		do(t, store, take(slow(1), "k", 1))
		do(t, store, take(long(9), "k", 1))
		r.take()
		do(t, store, take(slow(1), "k", 1))
		do(t, store, take(long(9), "k", 1))
		if sent := r.take(); !slices.Equal(sent, []string{"bucketRead", "windowGrant"}) {
			t.Errorf("sent %v", sent)
		}
	})
}
