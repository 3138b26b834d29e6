package sqlite_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/keyleak"
	"github.com/sqlimit/limiter/internal/testenv"
)

// transcript has all texts about a key.
type transcript struct{ keyleak.Transcript }

func (h *transcript) said(r limiter.Result, err error) {
	h.Add("results", fmt.Appendf(nil, "%+v %#v", r, r))
	h.Add("errors", []byte(keyleak.Text(err)+keyleak.Fields(err)))
}

// limiter returns a Limiter whose observer writes to the transcript.
func (h *transcript) limiter(t *testing.T, store limiter.Store, policy limiter.Policy, opts ...limiter.Option) *limiter.Limiter {
	t.Helper()
	return newLimiter(t, store, "l", policy, append(opts, limiter.WithObserver(func(_ context.Context, d limiter.Decision) {
		h.Add("observer", fmt.Appendf(nil, "%+v %#v", d, d))
		h.said(d.Result, d.Err)
	}))...)
}

// files adds every file of a directory.
func (h *transcript) files(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		must(t, err)
		h.Add(e.Name(), text)
	}
}

func TestDigestedKeyIsNowhere(t *testing.T) {
	t.Parallel()
	secret := "the-secret-of-" + rand.Text()
	digested, plain := "alice+"+rand.Text()+"&ö@example.org", "bob+"+rand.Text()+"&é@example.net"
	with, without := &transcript{}, &transcript{}
	useKey(t, with, digested, limiter.WithKeyDigest([]byte(secret)))
	useKey(t, without, plain)

	files := []string{"app.db", "app.db-wal"} // which hold keys that are not digested
	testenv.Equal(t, with.Without([]string{digested, secret}, &without.Transcript, plain, files, slices.Concat(files, []string{"observer", "errors", "results"})), nil, "what is wrong")
}

// useKey does everything that can be done with a key, and records all texts about it.
func useKey(t *testing.T, h *transcript, key string, opts ...limiter.Option) {
	t.Helper()
	dir, ctx := t.TempDir(), t.Context()
	path := filepath.Join(dir, "app.db")
	store := openOnly(t, path)
	fails := func(what string, class error, l *limiter.Limiter, ctx context.Context) {
		t.Helper()
		res, err := l.Allow(ctx, key)
		testenv.ErrorIs(t, err, class, what)
		h.said(res, err)
	}
	fails("no tables", limiter.ErrMisconfigured, h.limiter(t, store, day, opts...), ctx)
	migrate(t, store)

	window := limiter.FixedWindow{Limit: 3, Window: 24 * time.Hour}
	counting := window
	counting.CountRejected = true
	for _, policy := range []limiter.Policy{day, window, counting} {
		l := h.limiter(t, store, policy, append(opts, limiter.WithDenyCache(10, time.Minute))...)
		var wait sync.WaitGroup
		for range 16 {
			wait.Go(func() { h.said(l.Allow(ctx, key)) })
		}
		wait.Wait()
		h.said(l.Peek(ctx, key))
		_, err := l.Refund(ctx, key, 1)
		h.said(limiter.Result{}, err)
		if r, err := l.Reserve(ctx, key, 1, time.Hour); err == nil {
			h.said(r.Result, r.Cancel(ctx))
		}
		h.said(l.Charge(ctx, key, 1))
		h.said(l.AllowUpTo(ctx, key, 2))
		res, err := limiter.AllowAll(ctx, limiter.Claim{Limiter: l, Key: key})
		h.said(res.Result, err)
		h.said(limiter.Result{}, l.Block(ctx, key, time.Second))
		h.said(limiter.Result{}, l.Reset(ctx, key))
		h.said(l.Allow(ctx, key))
	}
	past := h.limiter(t, store, limiter.PerSecond(1), append(opts, at(time.Unix(1_000_000_000, 0)))...)
	h.said(past.Allow(ctx, key+" swept"))
	if n, err := store.Sweep(ctx, 10); n == 0 || err != nil {
		t.Errorf("Sweep = %d, %v", n, err)
	}
	h.files(t, dir) // with the write-ahead log

	l := h.limiter(t, store, limiter.PerHour(100), opts...)
	_, unlock := lock(t, store)
	fails("locked", limiter.ErrNotApplied, h.limiter(t, store, limiter.PerHour(100), append(opts, limiter.WithTimeout(30*time.Millisecond))...), ctx)
	unlock()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	fails("canceled", limiter.ErrCanceled, l, ended)
	execute(t, store, `CREATE TRIGGER t BEFORE INSERT ON limiter_token_buckets BEGIN SELECT RAISE(ABORT, 'no'); END`)
	fails("constraint", limiter.ErrInvalid, l, ctx)
	must(t, store.Close())
	fails("closed", limiter.ErrNotApplied, l, ctx)
	h.files(t, dir)
	must(t, os.WriteFile(path, []byte(strings.Repeat("no database ", 100)), 0o600))
	fails("no database", limiter.ErrMisconfigured, h.limiter(t, openOnly(t, path), day, opts...), ctx)
}
