package prove_test

import (
	"context"
	"errors"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/borrow"
	"github.com/sqlimit/limiter/memory"
	"github.com/sqlimit/limiter/prove/internal/spending"
)

// A spender takes tokens of one key ahead. It prints each event before it continues. SIGTERM has it give back, and end.
type spender struct {
	DSN, Key string
	Policy   limiter.TokenBucket
	Failure  string // the failure policy: "open", "local", or "" for FailClosed
	Timeout  time.Duration
	Callers  int
	Pause    time.Duration // of a caller between two takes; at times a tenth of it, or three times as long
	Seed     uint64
}

const (
	spenderName = "spender" // the name of all limiters
	ahead       = 400       // how many tokens a spender takes ahead at most, and spends within spendTime
	spendTime   = 200 * time.Millisecond
)

func init() { register("spender", spendUntilTold) }

func spendUntilTold(s spender) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	store, closeStore, err := (&worker{DSN: s.DSN}).open(ctx)
	if err != nil {
		return err
	}
	defer closeStore()
	note := reporter[spending.Event]()
	fast, err := borrow.New(spending.Recorder{Store: store, Note: note}, ahead, spendTime)
	if err != nil {
		return err
	}
	failure := map[string]limiter.Option{"open": limiter.FailOpen(), "local": limiter.FailLocal(memory.New()), "": limiter.FailClosed()}
	l, err := limiter.New(fast, spenderName, s.Policy, failure[s.Failure], limiter.WithTimeout(s.Timeout))
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	for i := range s.Callers {
		all.Go(func() {
			for r := workerOf(s.Seed, i); ctx.Err() == nil; {
				pause := []time.Duration{s.Pause / 10, s.Pause, 3 * s.Pause}[r.IntN(3)]
				for range 1 + r.IntN(50) {
					e := spending.Event{From: time.Now().UnixNano(), Tokens: 1}
					res, err := l.Allow(context.Background(), s.Key)
					if errors.Is(err, limiter.ErrInvalid) || errors.Is(err, limiter.ErrMisconfigured) {
						panic(err)
					}
					if e.To, e.Source = time.Now().UnixNano(), res.Source; res.Allowed {
						note(e)
					}
					wait(ctx, pause)
				}
			}
		})
	}
	all.Wait()
	return fast.Shutdown(context.Background())
}

// spends is a spender that runs, and what it did.
type spends struct {
	*child
	mu     sync.Mutex
	events []spending.Event
}

func (p *spends) note(e spending.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, e)
}

// did returns the events so far.
func (p *spends) did() []spending.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.events[:len(p.events):len(p.events)]
}

// let returns how many tokens the process let pass by a source since an instant.
func (p *spends) let(source limiter.Source, since time.Time) int64 {
	return spending.Sum(p.did(), source, since.UnixNano())
}
