package wallclock_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sqlimit/limiter/prove/internal/wallclock"
)

const childVariable = "LIMITER_WALLCLOCK_CHILD"

func TestMain(m *testing.M) {
	if d, err := time.ParseDuration(os.Getenv(childVariable)); err == nil {
		if err := wallclock.Shift(d); err != nil {
			panic(err)
		}
		began := time.Now()
		<-time.After(20 * time.Millisecond)
		if passed := time.Since(began); passed < 20*time.Millisecond || passed > time.Minute {
			panic(passed)
		}
		fmt.Println(time.Now().UTC().Format(time.RFC3339))
		// Asked for it, it tells how much time has passed by either clock.
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			now := time.Now()
			fmt.Println(now.Round(0).Sub(began.Round(0)).Nanoseconds(), now.Sub(began).Nanoseconds())
		}
		return
	}
	os.Exit(m.Run())
}

func TestAProcessIsAheadOrBehindOfItsHost(t *testing.T) {
	for _, d := range []time.Duration{time.Hour, -time.Hour, 400 * 24 * time.Hour} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childVariable+"="+d.String())
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		told, err := time.Parse(time.RFC3339, strings.TrimSpace(string(out)))
		if err != nil {
			t.Fatal(err)
		}
		if off := time.Until(told) - d; off.Abs() > 30*time.Second {
			t.Errorf("a process that is to be ahead by %v is so by %v", d, off+d)
		}
	}
}

func TestAProcessThatStandsStillMissesTimeOnItsWallClockAlone(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"=0s")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(pipe)
	if _, err := out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	for _, missed := range []time.Duration{0, 65 * time.Second, 2 * time.Hour, -time.Minute} {
		if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if err := wallclock.ShiftOther(cmd.Process.Pid, missed); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(in, "\n"); err != nil {
			t.Fatal(err)
		}
		var wall, monotonic time.Duration
		if _, err := fmt.Fscanln(out, &wall, &monotonic); err != nil {
			t.Fatal(err)
		}
		if off := wall - monotonic - missed; off.Abs() > time.Second || monotonic > 30*time.Second {
			t.Errorf("set ahead by %v, by its wall clock %v have passed, by the other one %v", missed, wall, monotonic)
		}
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if err := wallclock.ShiftOther(os.Getpid(), time.Hour); err == nil {
		t.Error("a clock is set that is that of its host")
	}
}
