package prove_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/prove/internal/cluster"
	"github.com/sqlimit/limiter/prove/internal/kinds"
	"github.com/sqlimit/limiter/prove/internal/outcome"
)

// freezing is the name of the helper that is frozen, and of its limiter.
const freezing = "freezing"

const (
	freezingDSN  = "LIMITER_PROVE_DSN"
	freezingPing = "LIMITER_PROVE_PING"
)

func init() { helpers[freezing] = answerCalls }

// answerCalls is a function as in Lambda: it has one connection, does what each line that
// it reads says with the key there, and writes a line with class, duration and error.
func answerCalls() error {
	config, err := pgxpool.ParseConfig(os.Getenv(freezingDSN))
	if err != nil {
		return err
	}
	config.MaxConns = 1
	config.ConnConfig.ConnectTimeout = dialLimit
	if os.Getenv(freezingPing) != "" {
		postgres.PingAfterFreeze(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return err
	}
	store, err := postgres.New(pool)
	if err != nil {
		return err
	}
	l, err := limiter.New(store, freezing, kinds.Lasting[0].Policy)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		call, key, _ := strings.Cut(lines.Text(), " ")
		began := time.Now()
		carried, err := freezable[call](context.Background(), l, key)
		took := time.Since(began)
		fmt.Printf("%s\t%d\t%s\n", outcome.Of(carried, err), took, strings.ReplaceAll(fmt.Sprint(err), "\n", " "))
	}
	return lines.Err()
}

// allow, peek, reserve and refund are calls in which a function is frozen.
const (
	allow   = "Allow"
	peek    = "Peek"
	reserve = "Reserve"
	refund  = "Refund"
)

// freezable carries such a call out, and reports whether it was.
var freezable = map[string]func(ctx context.Context, l *limiter.Limiter, key string) (carried bool, err error){
	allow: func(ctx context.Context, l *limiter.Limiter, key string) (bool, error) {
		res, err := l.Allow(ctx, key)
		return res.Allowed, err
	},
	peek: func(ctx context.Context, l *limiter.Limiter, key string) (bool, error) {
		res, err := l.Peek(ctx, key)
		return res.Allowed, err
	},
	reserve: func(ctx context.Context, l *limiter.Limiter, key string) (bool, error) {
		r, err := l.Reserve(ctx, key, 1, time.Minute)
		return r.Allowed, err
	},
	refund: func(ctx context.Context, l *limiter.Limiter, key string) (bool, error) {
		return l.Refund(ctx, key, 1)
	},
}

type function struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
}

type said struct {
	class string
	took  time.Duration
	err   string
}

func newFunction(t *testing.T, dsn string, ping bool) (*function, error) {
	t.Helper()
	env := []string{freezingDSN + "=" + dsn}
	if ping {
		env = append(env, freezingPing+"=1")
	}
	f := &function{cmd: helper(t, freezing, env...), lines: make(chan string, 1)}
	f.cmd.Stderr = os.Stderr
	f.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := f.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	f.in = in
	if err := f.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(f.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			f.lines <- lines.Text()
		}
	}()
	return f, nil
}

func (f *function) end() error {
	_ = f.cmd.Process.Signal(syscall.SIGCONT) // it may have ended
	_ = f.in.Close()
	for range f.lines { // until there are no more
	}
	return f.cmd.Wait()
}

func (f *function) ask(call, key string) error {
	_, err := io.WriteString(f.in, call+" "+key+"\n")
	return err
}

func (f *function) answer() (s said, err error) {
	select {
	case line, ok := <-f.lines:
		fields := strings.Split(line, "\t")
		if !ok || len(fields) != 3 {
			return s, fmt.Errorf("the function answers %q", line)
		}
		took, err := strconv.ParseInt(fields[1], 10, 64)
		return said{fields[0], time.Duration(took), fields[2]}, err
	case <-time.After(waitLimit):
		return s, fmt.Errorf("the function does not answer within %v", waitLimit)
	}
}

func (f *function) take(key string) (said, error) {
	if err := f.ask(allow, key); err != nil {
		return said{}, err
	}
	return f.answer()
}

// freeze stops the function, and waits until it stands still.
func (f *function) freeze() error {
	err := f.cmd.Process.Signal(syscall.SIGSTOP)
	cluster.Stopped(f.cmd.Process.Pid)
	return err
}

func (f *function) resume() error { return f.cmd.Process.Signal(syscall.SIGCONT) }
