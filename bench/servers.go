package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/sqlimit/limiter/bench/internal/machine"
)

// startTimeout is how long a server may take until it answers.
const startTimeout = 30 * time.Second

// startRedis starts a server that keeps nothing on disk, and returns its address.
func (b *backends) startRedis(ctx context.Context) (addr string, err error) {
	port, err := machine.FreePort(ctx)
	if err != nil {
		return "", err
	}
	addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	// It is stopped by its end, also if ctx has ended before.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "redis-server",
		"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--save", "", "--appendonly", "no", "--dir", b.dir)
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("no Redis on this host; install redis-server, or pass -redis: %w", err)
	}
	b.atClose(func() error {
		err := cmd.Process.Kill()
		_ = cmd.Wait()                         // it was killed
		if errors.Is(err, os.ErrProcessDone) { // by the signal that this process got
			return nil
		}
		return err
	})
	return addr, listening(ctx, addr)
}

// listening waits until somebody listens on addr.
func listening(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}
