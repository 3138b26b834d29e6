package prove_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cluster"
	"github.com/sqlimit/limiter/prove/internal/cutproxy"
	"github.com/sqlimit/limiter/prove/internal/outcome"
)

// rested is a little more than the idle time after which a connection is pinged.
const rested = 5*time.Second + 300*time.Millisecond

func TestFrozenFunctions(t *testing.T) {
	server := cluster.New(t, durable...)
	migrate(t, server.DSN())
	proof.Rounds(t, "functions frozen in mid-call", campaign.Sizes{CI: 1, Nightly: 20, Release: 25}, func(t *testing.T, r *campaign.Round) {
		var clients [6]*freezer
		var all sync.WaitGroup
		late := newTimerDelay()
		for i := range clients {
			f := &freezer{
				server: server, name: fmt.Sprintf("function-%d-%d", r.Number, i), ping: i%2 == 0,
				rand: rand.New(rand.NewPCG(r.Seed, uint64(i))), counts: map[string]int64{}, wrong: map[string]int64{},
			}
			for n := range frozenIn {
				f.freezes = append(f.freezes, freeze{frozenIn[n], 100*time.Millisecond + time.Duration(f.rand.Int64N(int64(most())))})
			}
			switch {
			case i < 2 && proof.Tier != campaign.CI && r.Number%20 == 0: // with the ping and without
				f.freezes = []freeze{{call: allow, lasts: 65 * time.Second}}
			case i < 2:
				f.freezes = []freeze{{call: allow, lasts: rested}}
			}
			clients[i] = f
			all.Go(func() {
				if err := f.run(t); err != nil {
					t.Errorf("%s, with pings %t: %v", f.name, f.ping, err)
				}
			})
		}
		all.Wait()
		lag := late.stop()
		for _, f := range clients {
			f.report(t, r, lag)
		}
	})
}

// frozenIn are the calls that a function is frozen in.
var frozenIn = [...]string{allow, peek, reserve, refund}

// freeze says in which call a function is frozen, and for how long.
type freeze struct {
	call  string
	lasts time.Duration
}

// most is the longest random freeze.
func most() time.Duration {
	if proof.Tier == campaign.CI {
		return time.Second
	}
	return 3 * time.Second
}

// freezer freezes a function in mid-call, again and again.
type freezer struct {
	server  *cluster.Cluster
	name    string // of its sessions and keys
	ping    bool
	rand    *rand.Rand
	freezes []freeze

	proxy    *cutproxy.Proxy
	function *function
	db       *pgx.Conn

	counts  map[string]int64
	wrong   map[string]int64 // that must not be
	longest time.Duration    // of the calls after a freeze
	resumed time.Duration    // from the end of a freeze to the answer of the call that was frozen
}

func (f *freezer) run(t *testing.T) (err error) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	f.proxy = cutproxy.New(t, f.server.Port())
	defer f.proxy.Break()
	if f.db, err = pgx.Connect(ctx, f.server.DSN()); err != nil {
		return err
	}
	defer f.db.Close(context.Background())
	dsn := dsnAt(f.proxy.Port()) + "&application_name=" + f.name
	if f.function, err = newFunction(t, dsn, f.ping); err != nil {
		return err
	}
	defer func() {
		if ended := f.function.end(); err == nil {
			err = ended
		}
	}()
	for i, e := range f.freezes {
		err := f.freeze(ctx, fmt.Sprint(f.name, "/", i), e)
		if errors.Is(err, errStuck) {
			f.counts["pools that are not pinged by us, and waited for a peer that had gone"]++
			return nil
		}
		if err != nil {
			return fmt.Errorf("freeze %d, in %s, of %v: %w", i, e.call, e.lasts, err)
		}
	}
	return nil
}

// freeze freezes the function once, in a call for a key.
func (f *freezer) freeze(ctx context.Context, key string, e freeze) error {
	told := &told{}
	for range 3 { // the first makes the row, and a connection if there is none
		first, err := f.function.take(key)
		if err != nil {
			return err
		}
		if told.note(allow, first.class); first.class != outcome.Carried {
			return fmt.Errorf("before it, it is %s: %s", first.class, first.err)
		}
	}
	release, err := f.callIn(ctx, key, e.call)
	if err != nil {
		return err
	}
	defer release()
	if err := f.function.freeze(); err != nil {
		return err
	}
	means, err := f.meanwhile(ctx, e.lasts, release)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := f.function.resume(); err != nil {
		return err
	}
	frozen, err := f.function.answer()
	if err != nil {
		return err
	}
	f.resumed = max(f.resumed, time.Since(began))
	f.counts[campaign.Freezes]++
	f.counts["frozen in "+e.call+", "+means+": "+frozen.class]++
	if !told.note(e.call, frozen.class) {
		return fmt.Errorf("the answer is %s: %s", frozen.class, frozen.err)
	}
	if err := f.judge(ctx, key, told); err != nil {
		return err
	}
	return f.afterwards(ctx, key+"/next", e, means)
}

// callIn makes the function begin a call. One call in three is held up by a lock on its row, or by
// the network if the call locks no row. release ends that.
func (f *freezer) callIn(ctx context.Context, key, call string) (release func(), err error) {
	release = func() {}
	during := f.rand.IntN(3) == 0
	switch {
	case during && call == peek:
		f.proxy.Stall()
		release = f.proxy.Resume
	case during:
		holder, err := pgx.Connect(ctx, f.server.DSN())
		if err != nil {
			return nil, err
		}
		release = func() { _ = holder.Close(context.Background()) }
		if _, err := holder.Exec(ctx, "BEGIN; SELECT FROM limiter_token_buckets WHERE convert_from(key, 'UTF8') = '"+key+"' FOR UPDATE"); err != nil {
			return release, err
		}
	}
	if err := f.function.ask(call, key); err != nil {
		return release, err
	}
	wait(ctx, time.Duration(f.rand.Int64N(int64(2*time.Millisecond))))
	if during {
		wait(ctx, 20*time.Millisecond) // it has sent the statement by now, or soon
	}
	return release, nil
}

const forgotten = "the connection is forgotten"

// errStuck is the error of a pool that pgxpool's own ping blocks. That ping has a time limit of a
// minute, and closing the connection takes 15 s more, in which it counts in the pool. PingAfterFreeze
// exists for this reason.
var errStuck = errors.New("the pool waits for a peer that has gone")

// meanwhile does something while the function is frozen for d, and says what.
func (f *freezer) meanwhile(ctx context.Context, d time.Duration, release func()) (means string, err error) {
	part := time.Duration(f.rand.Int64N(int64(d)))
	wait(ctx, part)
	means = [...]string{"nothing happens", "the session is ended", forgotten}[f.rand.IntN(3)]
	switch means {
	case "the session is ended":
		_, err = f.db.Exec(ctx, "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE application_name = $1", f.name)
	case forgotten:
		f.proxy.Strand()
	}
	release()
	wait(ctx, d-part)
	return means, err
}

// afterwards takes again. If the function was frozen for long and pings, the first call works.
// Otherwise the first call may find the connection broken, and the second one works.
func (f *freezer) afterwards(ctx context.Context, key string, e freeze, means string) error {
	const resting = 900 * time.Millisecond // and a moment before and after the freeze
	told := &told{}
	for call := range 2 {
		next, err := f.function.take(key)
		if err != nil {
			return err
		}
		told.note(allow, next.class)
		f.longest = max(f.longest, next.took)
		if next.class == outcome.Carried {
			break
		}
		f.counts["next, "+means+": "+next.class]++
		if call > 0 && !f.ping && means == forgotten && e.lasts > resting && next.class == outcome.NotApplied {
			return errStuck
		}
		if call > 0 || f.ping && e.lasts >= rested || next.class != outcome.Unknown && next.class != outcome.NotApplied {
			return fmt.Errorf("%s, and call %d after it is %s: %s", means, call+1, next.class, next.err)
		}
	}
	return f.judge(ctx, key, told)
}

// report counts what was found. Timers fired up to lag too late.
func (f *freezer) report(t *testing.T, r *campaign.Round, lag time.Duration) {
	t.Helper()
	for what, n := range f.counts {
		r.Count(what, n)
	}
	for _, what := range []string{campaign.LostTakes, campaign.DoubleCharges, campaign.OverAdmitted, lostRefunds} {
		r.None(what, f.wrong[what])
	}
	r.Most("answer of a frozen call after the freeze", f.resumed)
	r.Most("answer of a call after a freeze", f.longest)
	limit := limiter.DefaultTimeout + dialLimit + lateness() + lag
	if f.longest > limit || f.resumed > limit {
		t.Errorf("%s was answered %v after the freeze, and %v later on", f.name, f.resumed, f.longest)
	}
}
