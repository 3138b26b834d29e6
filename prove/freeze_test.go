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
	"github.com/sqlimit/limiter/prove/internal/tables"
)

const (
	// rested is a little more than the idle time after which a connection is pinged.
	rested = 5*time.Second + 300*time.Millisecond
	// lostRefunds counts refunds that were acknowledged and are not stored.
	lostRefunds = "acknowledged refunds lost"
	forgotten   = "the connection is forgotten"
)

// errStuck is the error of a pool that pgxpool's own ping blocks. That ping has a time limit of a minute,
// and closing the connection takes 15 s more, in which it counts in the pool. PingAfterFreeze exists for
// this reason.
var errStuck = errors.New("the pool waits for a peer that has gone")

// freeze says in which call a function is frozen, and for how long.
type freeze struct {
	call  string
	lasts time.Duration
}

// freezer freezes a function in the middle of calls, again and again.
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
	wrong   map[string]int64 // what must not happen
	longest time.Duration    // of the calls after a freeze
	resumed time.Duration    // from the end of a freeze to the answer of the frozen call
}

func TestFrozenFunctions(t *testing.T) {
	server := cluster.New(t, durable...)
	migrate(t, server.DSN())
	most := 3 * time.Second // the longest random freeze
	if proof.Tier == campaign.CI {
		most = time.Second
	}
	proof.Rounds(t, "functions frozen in mid-call", campaign.Sizes{CI: 1, Nightly: 20, Release: 25}, func(t *testing.T, r *campaign.Round) {
		var clients [6]*freezer
		var all sync.WaitGroup
		late := newTimerDelay()
		for i := range clients {
			f := &freezer{
				server: server, name: fmt.Sprintf("function-%d-%d", r.Number, i), ping: i%2 == 0,
				rand: rand.New(rand.NewPCG(r.Seed, uint64(i))), counts: map[string]int64{}, wrong: map[string]int64{},
			}
			switch {
			case i < 2 && proof.Tier != campaign.CI && r.Number%20 == 0: // with the ping and without
				f.freezes = []freeze{{allow, 65 * time.Second}}
			case i < 2:
				f.freezes = []freeze{{allow, rested}}
			default:
				for _, call := range []string{allow, peek, reserve, refund} {
					f.freezes = append(f.freezes, freeze{call, 100*time.Millisecond + time.Duration(f.rand.Int64N(int64(most)))})
				}
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

func (f *freezer) run(t *testing.T) (err error) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	f.proxy = cutproxy.New(t, f.server.Port())
	defer f.proxy.Break()
	if f.db, err = pgx.Connect(ctx, f.server.DSN()); err != nil {
		return err
	}
	defer f.db.Close(context.Background())
	if f.function, err = newFunction(t, dsnAt(f.proxy.Port())+"&application_name="+f.name, f.ping); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.function.end()) }()
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
			return fmt.Errorf("before the freeze a take is %s: %s", first.class, first.err)
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

// afterwards takes again. If the function was frozen for long and pings, the first call works. Otherwise the
// first call may find the connection broken, and the second one works.
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

type told struct {
	charged, perhapsCharged int64
	back, perhapsBack       int64
	calls                   int64
}

// note enters an answer, and reports whether the call can have it.
func (d *told) note(call, class string) bool {
	d.calls++
	certain, perhaps := &d.charged, &d.perhapsCharged
	switch call {
	case peek: // it changes nothing, so its outcome is never unknown
		return class == outcome.Carried || class == outcome.NotApplied
	case refund:
		certain, perhaps = &d.back, &d.perhapsBack
	}
	switch class {
	case outcome.Carried:
		*certain++
	case outcome.Unknown:
		*perhaps++
	}
	return class == outcome.Carried || class == outcome.Unknown || class == outcome.NotApplied
}

// judge compares what is stored of a key with what the function was told. If it gave back, units that are
// missing were given back twice.
func (f *freezer) judge(ctx context.Context, key string, d *told) error {
	for busy := true; busy; wait(ctx, time.Millisecond) {
		if err := f.db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = $1 AND state <> 'idle')", f.name).Scan(&busy); err != nil {
			return err
		}
	}
	found, err := tables.Spent(ctx, f.db, freezing, key)
	if err != nil {
		return err
	}
	stored := found[key]
	f.counts[campaign.Operations] += d.calls
	f.counts[campaign.Unknown] += d.perhapsCharged + d.perhapsBack
	missing, tooMuch := campaign.LostTakes, campaign.DoubleCharges
	if d.back+d.perhapsBack > 0 {
		missing, tooMuch = campaign.OverAdmitted, lostRefunds
	}
	f.wrong[missing] += max(0, d.charged-d.back-d.perhapsBack-stored)
	f.wrong[tooMuch] += max(0, stored-d.charged-d.perhapsCharged+d.back)
	return nil
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
		t.Errorf("%s was answered %v after the freeze, and %v later on, want at most %v", f.name, f.resumed, f.longest, limit)
	}
}
