package prove_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cluster"
)

// nodes is how many processes there are, or what stands for them: limiters with a store,
// a pool and a fallback of their own.
const nodes = 3

// node is one process's limiter, and what it admitted.
type node struct {
	limiter  *limiter.Limiter
	admitted map[limiter.Source]int64
}

func TestFailLocalInOutages(t *testing.T) {
	server := cluster.New(t)
	migrate(t, server.DSN())
	policy := limiter.TokenBucket{Capacity: 30, Refill: 20, Interval: time.Second}
	proof.Rounds(t, "outages with FailLocal", campaign.Sizes{CI: 2, Nightly: 30, Release: 100}, func(t *testing.T, r *campaign.Round) {
		ctx, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		all := make([]*node, nodes)
		for i := range all {
			all[i] = newNode(t, server.DSN(), policy)
		}
		begin := time.Now()
		var callers sync.WaitGroup
		stop := make(chan struct{})
		for i, n := range all {
			rnd := rand.New(rand.NewPCG(r.Seed, uint64(i)))
			callers.Go(func() { n.ask(ctx, t, rnd, r.Seed, stop) })
		}
		pause(ctx, r, 200*time.Millisecond)
		down := time.Now()
		server.Kill()
		pause(ctx, r, 500*time.Millisecond)
		server.Start()
		up := time.Now()
		recovered(ctx, t, all[0].limiter, r)
		close(stop)
		callers.Wait()
		took, gone := time.Since(begin), time.Since(down)
		var byStore, local, over int64
		for _, n := range all {
			byStore += n.admitted[limiter.SourceStore]
			over += max(0, n.admitted[limiter.SourceLocal]-atMost(policy, gone))
			local += n.admitted[limiter.SourceLocal]
		}
		if local == 0 {
			t.Error("no fallback admitted anything")
		}
		r.Count("admitted by a fallback", local)
		over += max(0, byStore-atMost(policy, took))
		r.None(campaign.OverAdmitted, over)
		r.Count(campaign.ClusterKills, 1)
		r.Count("admitted by the store", byStore)
		r.Most("outage", up.Sub(down))
		if t.Failed() {
			t.Logf("in %v, %v of it without the database, the store admitted %d", took, gone, byStore)
		}
	})
}

// atMost is what a bucket admits in some stretch of time.
func atMost(p limiter.TokenBucket, d time.Duration) int64 {
	return p.Capacity + int64(d/p.Step()) + 1
}

func newNode(t *testing.T, dsn string, policy limiter.Policy) *node {
	t.Helper()
	store, err := postgres.Open(dsn + "&pool_max_conns=4")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	l, err := limiter.New(store, "outage", policy, limiter.FailLocal(memory.New()))
	if err != nil {
		t.Fatal(err)
	}
	return &node{l, map[limiter.Source]int64{}}
}

// ask takes one by one, faster than the policy allows, until it is told to stop.
func (n *node) ask(ctx context.Context, t *testing.T, rnd *rand.Rand, key uint64, stop <-chan struct{}) {
	for {
		res, err := n.limiter.Allow(ctx, keyOf(key))
		switch {
		case err != nil && !errors.Is(err, limiter.ErrCanceled):
			t.Errorf("with FailLocal a failure of the store is no error: %v", err)
			return
		case res.Allowed:
			n.admitted[res.Source]++
		}
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(rnd.IntN(2000)) * time.Microsecond):
		}
	}
}

// recovered waits until the store decides again, and keeps how long that took.
func recovered(ctx context.Context, t *testing.T, l *limiter.Limiter, r *campaign.Round) {
	t.Helper()
	begin := time.Now()
	for {
		res, err := l.Peek(ctx, "another key")
		if err != nil {
			t.Fatal(err)
		}
		if res.Source == limiter.SourceStore {
			break
		}
		if time.Since(begin) > recovery {
			t.Fatalf("%v after the server let somebody in the store is not asked", recovery)
		}
		wait(ctx, time.Millisecond)
	}
	r.Most("recovery", time.Since(begin))
}
