//go:build unix

package main_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/creack/pty"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/cmd/limiter/internal/database"
	"github.com/sqlimit/limiter/internal/testenv"
)

type topped struct {
	RowsRead int64    `json:"rows_read"`
	Rows     int64    `json:"rows"`
	All      bool     `json:"all"`
	Known    []string `json:"known_limiters"`
	Limiters []struct {
		Limiter string `json:"limiter"`
		Keys    []struct {
			keyOf
			stateOf
		} `json:"keys"`
	} `json:"limiters"`
}

func TestTop(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db target) {
		for i := range int64(5) {
			use(t, db.store, "login", bucket, "user"+strconv.FormatInt(i, 10), i+1)
		}
		use(t, db.store, "exports", window, "a", 4)
		got := decode[topped](t, succeeds(t, db.url, "top", "-n", "3", "-o", "json"))
		if got.RowsRead != 6 || !got.All || len(got.Limiters) != 2 || len(got.Limiters[0].Keys) != 3 {
			t.Fatalf("%+v", got)
		}
		for i, k := range got.Limiters[0].Keys {
			if *k.Key != fmt.Sprintf("user%d", 4-i) || k.Used != int64(5-i) {
				t.Errorf("place %d: %s %+v", i, *k.Key, k)
			}
		}
		contains(t, succeeds(t, db.url, "top", "exports").stdout, "exports\n   40 %  4 of 10  unused in")
		if out := succeeds(t, db.url, "top", "exports").stdout; strings.Contains(out, "login") {
			t.Error(out)
		}
		contains(t, succeeds(t, db.url, "top", "unknown").stdout, "unknown: no key in use was found; known limiters: exports, login")
	})
}

func TestTopOfALargeTable(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db target) {
		use(t, db.store, "small", bucket, "alice", 3)
		rows := map[bool]string{true: "60000", false: "150000"}[strings.HasPrefix(db.url, "sqlite:")]
		db.exec(t, expired(db.url, rows))
		got := decode[topped](t, succeeds(t, db.url, "top", "-o", "json"))
		if want, _ := strconv.ParseInt(rows, 10, 64); got.Rows < want/2 || got.Rows > want*2 {
			t.Errorf("about %d rows, want about %d", got.Rows, want)
		}
		contains(t, succeeds(t, db.url, "top").stdout, " % of about ")
		if got.All || got.RowsRead < 1000 || got.RowsRead > 110_000 {
			t.Errorf("read %d rows, all: %v", got.RowsRead, got.All)
		}
		if l := got.Limiters[0]; l.Limiter != "small" || len(l.Keys) != 1 || l.Keys[0].Used != 3 {
			t.Errorf("a small limiter beside a large one: %+v", l)
		}
	})
}

type terminal struct {
	t      *testing.T
	cmd    *exec.Cmd
	file   *os.File
	output strings.Builder
}

func openTerminal(t *testing.T, columns uint16, url string, args ...string) *terminal {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	cmd := command(ctx, url, args...)
	file, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: columns})
	must(t, err)
	t.Cleanup(func() { file.Close() })
	return &terminal{t: t, cmd: cmd, file: file}
}

// read reads what the program prints next. It returns false at the end of the output.
func (x *terminal) read() bool {
	buf := make([]byte, 4096)
	n, err := x.file.Read(buf)
	x.output.Write(buf[:n])
	return err == nil
}

// await reads until the program has printed text.
func (x *terminal) await(text string) {
	x.t.Helper()
	for !strings.Contains(ansi.Strip(x.output.String()), text) {
		if !x.read() {
			x.t.Fatalf("no %q in %q", text, x.output.String())
		}
	}
}

func (x *terminal) press(keys string) {
	x.t.Helper()
	must(x.t, testenv.ErrorOf(x.file.WriteString(keys)))
}

// wantEnd waits for the end of the program and compares its exit code.
func (x *terminal) wantEnd(code int) {
	x.t.Helper()
	for x.read() {
	}
	_ = x.cmd.Wait()
	testenv.Equal(x.t, x.cmd.ProcessState.ExitCode(), code, fmt.Sprintf("%q: exit code", x.output.String()))
}

func TestTopOnATerminal(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db target) {
		for _, key := range []string{strings.Repeat("k", 250), strings.Repeat("界", 80), "\x1b[31m\u202e", strings.Repeat("\xff", 100)} {
			use(t, db.store, strings.Repeat("l", 64), bucket, key, 1)
		}
		use(t, db.store, "login", bucket, "\x1b]0;owned\x07"+strings.Repeat("x", 200)+"end", 2)
		once := openTerminal(t, 80, db.url, "top", "--once")
		once.wantEnd(0)
		for line := range strings.Lines(once.output.String()) {
			line = strings.TrimRight(line, "\r\n")
			if ansi.StringWidth(line) > 80 || strings.ContainsFunc(line, isControl) {
				t.Errorf("%d columns: %q", ansi.StringWidth(line), line)
			}
		}
		x := openTerminal(t, 80, db.url, "top")
		x.await("q quits")
		x.await(`\x1b]0;owned\a`)
		use(t, db.store, "exports", window, "late", 7)
		x.await("7 of 10")
		x.press("q")
		x.wantEnd(0)
		if out := x.output.String(); strings.Contains(out, "\x1b]0;") || strings.Contains(out, strings.Repeat("x", 80)) {
			t.Errorf("%q", out)
		}
	})
}

func TestSweepInterrupt(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db target) {
		db.exec(t, expired(db.url, "40000"))
		x := openTerminal(t, 80, db.url, "sweep")
		for _, text := range []string{" %, ", "rows deleted", "rows/s", "s left"} {
			x.await(text)
		}
		must(t, x.cmd.Process.Signal(os.Interrupt))
		x.wantEnd(130)
		contains(t, x.output.String(), "there may be more")
	})
}

func TestTopInterrupt(t *testing.T) {
	t.Parallel()
	db := migratedSQLite(t)
	for name, interrupt := range map[string]func(x *terminal){
		"Ctrl-C":  func(x *terminal) { x.press("\x03") },
		"SIGTERM": func(x *terminal) { _ = x.cmd.Process.Signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := openTerminal(t, 80, db.url, "top")
			x.await("q quits")
			interrupt(x)
			x.wantEnd(130)
		})
	}
}

func TestTopPages(t *testing.T) {
	t.Parallel()
	db := migratedSQLite(t)
	for i := range 20 { // each fuller than the one before; the names sort the other way around
		name := strings.Repeat(string(rune('t'-i)), 10)
		use(t, db.store, name, limiter.FixedWindow{Limit: 100, Window: window.Window}, "key", int64(100-i))
	}
	out := succeeds(t, db.url, "top").stdout
	if first, last := strings.Index(out, "tttt"), strings.Index(out, "aaaa"); first < 0 || first > last {
		t.Errorf("the fullest limiter is not the first one:\n%s", out)
	}
	x := openTerminal(t, 80, db.url, "top")
	x.await("tttttttttt")
	x.await("13 more limiters")
	x.await("PgDn scroll")
	if strings.Contains(x.output.String(), "mmmm") {
		t.Errorf("more limiters than fit: %q", x.output.String())
	}
	x.press("\x1b[6~") // page down
	x.await("mmmmmmmmmm")
	x.press("\x1b[6~")
	x.await("ffffffffff")
	x.press("q")
	x.wantEnd(0)
}

func openDatabase(t *testing.T, url string) *database.DB {
	t.Helper()
	db, err := database.Open(t.Context(), database.Options{URL: url})
	must(t, err)
	t.Cleanup(db.Close)
	return db
}

// A reading of large tables looks at 50 limiters.
func TestTopTurns(t *testing.T) {
	t.Parallel()
	target := migratedSQLite(t)
	for i := range 60 {
		use(t, target.store, fmt.Sprintf("limiter%02d", i), bucket, "key", 1)
	}
	db := openDatabase(t, target.url)
	top := database.NewTop(db, "", 10)
	for reading, want := range []int{50, 60} {
		r, err := top.Read(t.Context())
		must(t, err)
		found := 0
		for _, l := range r.Limiters {
			found += len(l.Keys)
		}
		if found != want || len(r.Limiters) != 60 || r.Total != 60 {
			t.Errorf("reading %d: keys of %d limiters of %d, of %d rows; want %d of 60", reading, found, len(r.Limiters), r.Total, want)
		}
	}
}

func TestTopExact(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db target) {
		const rows = 9000 // more than a statement reads
		db.exec(t, expired(db.url, strconv.Itoa(rows)))
		succeeds(t, db.url, "block", "old", "victim", "--for", "1h", "--capacity", "1", "--interval", "1s")
		use(t, db.store, "other", bucket, "alice", 5)
		got := decode[topped](t, succeeds(t, db.url, "top", "--exact", "old", "-o", "json"))
		testenv.Equal(t, [2]int64{got.RowsRead, got.Rows}, [2]int64{rows + 1, rows + 1}, "rows that it read, and rows")
		testenv.Equal(t, got.All, true, "it read all rows")
		if len(got.Limiters) != 1 || len(got.Limiters[0].Keys) != 1 || *got.Limiters[0].Keys[0].Key != "victim" || got.Limiters[0].Keys[0].Allowed {
			t.Errorf("the blocked key is not found: %+v", got.Limiters)
		}
		x := openTerminal(t, 80, db.url, "top", "--exact", "old")
		for _, text := range []string{"rows read, ", `"victim"`} {
			x.await(text)
		}
		x.wantEnd(0)
		contains(t, succeeds(t, db.url, "top", "--exact", "unknown").stdout, "known limiters: old, other")
	})
}

func TestTopExactProgress(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, target target) {
		target.exec(t, expired(target.url, "9000"))
		db := openDatabase(t, target.url)
		var rows []int64
		var shares []float64
		if _, err := db.Exact(t.Context(), "old", 10, 10*time.Second, func(read int64, share float64) {
			rows, shares = append(rows, read), append(shares, share)
		}); err != nil {
			t.Fatal(err)
		}
		if len(rows) < 4 || !slices.IsSorted(rows) || !slices.IsSorted(shares) || shares[0] >= 0.5 || slices.Max(shares) < 0.8 {
			t.Errorf("it reports %d rows and the shares %.2f", rows, shares)
		}
		canceled, cancel := context.WithCancel(t.Context())
		calls := 0
		_, err := db.Exact(canceled, "old", 10, 10*time.Second, func(int64, float64) { calls++; cancel() })
		testenv.ErrorIs(t, err, context.Canceled, "canceled after the first statement")
		testenv.Equal(t, calls, 1, "statements")
	})
}
