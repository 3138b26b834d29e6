package prove_test

import (
	"errors"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cluster"
	"github.com/sqlimit/limiter/prove/internal/cutproxy"
	"github.com/sqlimit/limiter/prove/internal/spending"
)

var (
	// refilling is a bucket that the spenders empty.
	refilling = limiter.TokenBucket{Capacity: 2000, Refill: 2000, Interval: time.Second}
	// large is a bucket that they do not empty. Nothing comes back in a round.
	large = limiter.TokenBucket{Capacity: 100_000, Refill: 1, Interval: time.Hour}
	// small is a bucket that they empty. Nothing comes back in a round.
	small = limiter.TokenBucket{Capacity: 8000, Refill: 1, Interval: time.Hour}
)

// borrowing is a server for spenders.
type borrowing struct {
	server *cluster.Cluster
	store  limiter.Store
}

// borrowRound is a round of spenders.
type borrowRound struct {
	*testing.T
	*campaign.Round
	spender
	running, killed []*spends
	limiter         *limiter.Limiter // of another process, on the store itself
}

func (on borrowing) round(t *testing.T, r *campaign.Round, p limiter.TokenBucket) *borrowRound {
	t.Helper()
	l, err := limiter.New(on.store, spenderName, p)
	must(t, err)
	s := spender{DSN: on.server.DSN(), Key: keyOf(r.Seed), Policy: p, Timeout: limiter.DefaultTimeout, Callers: 8, Pause: time.Millisecond}
	return &borrowRound{T: t, Round: r, spender: s, limiter: l}
}

// start starts processes, and waits until all of them let requests pass.
func (b *borrowRound) start(processes int) {
	b.Helper()
	for range processes {
		p := &spends{}
		b.spender.Seed = b.Rand.Uint64()
		p.child = startReporting(b, "spender", b.spender, p.note)
		b.running = append(b.running, p)
	}
	b.await(limiter.SourceStore, time.Unix(0, 0))
}

// await waits until each process has let requests pass by a source since an instant.
func (b *borrowRound) await(source limiter.Source, since time.Time) {
	b.Helper()
	if !await(b, waitLimit, func() bool {
		return !slices.ContainsFunc(b.running, func(p *spends) bool { return p.let(source, since) < 20 })
	}) {
		b.Fatalf("a process lets nothing pass by %v", source)
	}
}

// atMost checks how many tokens each process let pass since an instant.
func (b *borrowRound) atMost(what string, tokens int64, since time.Time) {
	b.Helper()
	for _, p := range b.running {
		if passed := p.let(limiter.SourceStore, since); passed > tokens {
			b.Errorf("%s a process let %d tokens pass, want at most %d", what, passed, tokens)
		}
	}
}

// kill kills a process, which gives nothing back, and starts another.
func (b *borrowRound) kill() {
	b.Helper()
	b.running[0].kill(b)
	b.killed, b.running = append(b.killed, b.running[0]), b.running[1:]
	b.Count(campaign.ProcessKills, 1)
	b.start(1)
}

// freeze freezes a process until what it holds is too old.
func (b *borrowRound) freeze() {
	process, held := b.running[0].cmd.Process, int64(0)
	for tries := 0; tries == 0 || b.Policy == large && held <= 0 && tries < 20; tries++ {
		pause(b.Context(), b.Round, 50*time.Millisecond)
		must(b, process.Signal(syscall.SIGSTOP))
		wait(b.Context(), 2*spendTime)
		events := b.running[0].did()
		held = spending.Sum(events, 0, 0) - spending.Sum(events, limiter.SourceStore, 0) - int64(b.Callers) // may have spent more
		must(b, process.Signal(syscall.SIGCONT))
		b.Count(campaign.Freezes, 1)
	}
	b.Count("tokens that frozen processes held", max(0, held))
	testenv.Equal(b, b.Policy == large && held <= 0, false, "no process held tokens when it was frozen")
}

// stop ends all processes, and returns what they did. None may have spent a token after its time.
func (b *borrowRound) stop() (all []spending.Event) {
	b.Helper()
	for _, p := range b.running {
		must(b, p.cmd.Process.Signal(syscall.SIGTERM))
		<-p.ended
		if err := errors.Join(p.err, p.cmd.Wait()); err != nil {
			b.Errorf("a process does not end: %v\n%s", err, &p.stderr)
		}
	}
	for _, p := range append(b.killed, b.running...) {
		all = append(all, p.did()...)
		b.None("tokens spent too late", spending.Stale(spendTime, p.did()))
	}
	b.Count(campaign.Operations, int64(len(all)))
	return all
}

// Processes take tokens of one key ahead.
func TestBorrow(t *testing.T) {
	on := borrowing{server: cluster.New(t, "fsync=off")}
	migrate(t, on.server.DSN())
	on.store = openStore(t, on.server.DSN())
	t.Run("a process freezes or crashes", on.crashes)
	t.Run("another process changes the key", on.changes)
	t.Run("the store fails", on.failures)
	t.Run("the key is overloaded", on.overload)
}

// A frozen process finds its tokens too old. A process that crashes loses its tokens until the bucket refills.
func (on borrowing) crashes(t *testing.T) {
	proof.Rounds(t, "tokens taken ahead", campaign.Sizes{CI: 3, Nightly: 150, Release: 300}, func(t *testing.T, r *campaign.Round) {
		p, processes := refilling, []int{2, 1, 4}[r.Number%3]
		if processes == 2 {
			p = large
		}
		b := on.round(t, r, p)
		b.start(processes)
		faults := []func(){b.kill, b.freeze}
		for _, i := range r.Rand.Perm(len(faults)) {
			pause(t.Context(), r, spendTime)
			faults[i]()
			wait(t.Context(), spendTime) // a process that froze gives back what it held, unless it is killed before
		}
		all := b.stop()
		r.None(campaign.OverAdmitted, spending.Over(b.Policy, spendTime, all))
		res, err := b.limiter.Peek(t.Context(), b.Key)
		must(t, err)
		if p == large {
			lost := p.Capacity - res.Remaining - spending.Sum(all, limiter.SourceStore, 0)
			r.Count("tokens that killed processes lost", lost)
			// It held and gave back at most ahead each. The callers' last answers were not heard.
			if most := 2*ahead + int64(b.Callers); lost < 0 || lost > most {
				t.Errorf("%d tokens are lost, want at most %d", lost, most)
			}
			return
		}
		wait(t.Context(), res.ResetAfter)
		if res, err := b.limiter.AllowN(t.Context(), b.Key, p.Capacity); err != nil || !res.Allowed {
			t.Errorf("the tokens did not come back: %+v, %v", res, err)
		}
	})
}

// What another process does takes effect within the ttl.
func (on borrowing) changes(t *testing.T) {
	proof.Rounds(t, "tokens taken ahead beside other operations", campaign.Sizes{CI: 1, Nightly: 50, Release: 100}, func(t *testing.T, r *campaign.Round) {
		b := on.round(t, r, small)
		ctx, key, l := t.Context(), b.Key, b.limiter
		fewer, err := limiter.New(on.store, spenderName, limiter.TokenBucket{Capacity: 10, Refill: 1, Interval: time.Hour})
		must(t, err)
		b.start(2)
		reset := func() error { return l.Reset(ctx, key) }
		for _, c := range []struct {
			what     string
			do, undo func() error
		}{
			{"a block", func() error { return l.Block(ctx, key, time.Minute) }, reset},
			{"a charge", func() error { return testenv.ErrorOf(l.Charge(ctx, key, small.Capacity)) }, reset},
			{"a take of all that was left", func() error { return testenv.ErrorOf(l.AllowUpTo(ctx, key, small.Capacity)) }, func() error {
				return testenv.ErrorOf(l.Refund(ctx, key, small.Capacity/2))
			}},
			{"a change of policy", func() error { return testenv.ErrorOf(fewer.AllowN(ctx, key, 10)) }, reset},
		} {
			must(t, c.do())
			done := time.Now()
			wait(ctx, spendTime+100*time.Millisecond)
			b.atMost("after "+c.what, ahead, done)
			b.atMost("a ttl after "+c.what, 0, done.Add(spendTime))
			must(t, c.undo())
			undone := time.Now()
			b.await(limiter.SourceStore, undone)
			r.Most("until each process spent what another one gave back", time.Since(undone))
		}
		must(t, reset())
		done := time.Now()
		for res, err := l.Peek(ctx, key); err == nil && res.Remaining > 0 && time.Since(done) < waitLimit; res, err = l.Peek(ctx, key) {
			wait(ctx, interval)
		}
		if passed := spending.Sum(b.stop(), limiter.SourceStore, done.UnixNano()); passed > small.Capacity+2*ahead {
			t.Errorf("%d tokens passed after a reset", passed)
		}
	})
}

// Processes spend what they hold for the ttl. Then the failure policy decides.
func (on borrowing) failures(t *testing.T) {
	front := cutproxy.New(t, on.server.Port())
	faults := [...]struct{ begin, end func() }{
		{front.Stall, front.Cut},
		{func() { front.Refuse(true); front.Break() }, func() { front.Refuse(false) }},
	}
	policies := [...]struct {
		name   string
		source limiter.Source
	}{{"open", limiter.SourcePolicy}, {"local", limiter.SourceLocal}}
	proof.Rounds(t, "tokens taken ahead of a store that fails", campaign.Sizes{CI: 2, Nightly: 50, Release: 100}, func(t *testing.T, r *campaign.Round) {
		fail, fault := policies[r.Number%2], faults[r.Number/2%2]
		b := on.round(t, r, small)
		b.DSN, b.Failure = dsnAt(front.Port()), fail.name
		b.start(1)
		fault.begin()
		failed := time.Now()
		b.await(fail.source, failed)
		wait(t.Context(), spendTime)
		b.atMost("after the store failed", ahead, failed)
		b.atMost("a ttl after the store failed", 0, failed.Add(spendTime))
		fault.end()
		b.await(limiter.SourceStore, time.Now())
		all := b.stop()
		r.None(campaign.OverAdmitted, spending.Over(b.Policy, spendTime, all))
		if local := spending.Sum(all, limiter.SourceLocal, 0); local > small.Capacity {
			t.Errorf("%d tokens passed by FailLocal", local)
		}
	})
}

// An overloaded key is no failure of the store.
func (on borrowing) overload(t *testing.T) {
	proof.Rounds(t, "tokens taken ahead of an overloaded key", campaign.Sizes{CI: 1, Nightly: 30, Release: 60}, func(t *testing.T, r *campaign.Round) {
		b := on.round(t, r, refilling)
		b.Failure, b.Timeout, b.Callers, b.Pause = "open", limiter.DefaultTimeout, 1000, 20*time.Millisecond
		b.start(2)
		wait(t.Context(), time.Second)
		all := b.stop()
		r.None(campaign.OverAdmitted, spending.Over(b.Policy, spendTime, all))
		r.None("tokens passed by FailOpen", spending.Sum(all, limiter.SourcePolicy, 0))
	})
}
