//go:build unix

package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	program "github.com/sqlimit/limiter/cmd/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
)

var must = testenv.Must

// asProgram is set in the environment of a process that runs the program instead of the tests. So
// the test binary has the program in it, and a cached result never hides a change.
const asProgram = "LIMITER_TEST_AS_PROGRAM=1"

func TestMain(m *testing.M) {
	if slices.Contains(os.Environ(), asProgram) {
		program.Main()
	}
	code := m.Run()
	if shared != nil {
		if err := shared.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// answer is what a run of the program left.
type answer struct {
	stdout, stderr string
	code           int
}

// command returns a run of the program on a database, with nothing from the test's environment that
// could lead to another one.
func command(ctx context.Context, url string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = []string{asProgram, "PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "TERM=xterm-256color"}
	if url != "" {
		cmd.Env = append(cmd.Env, "DATABASE_URL="+url)
	}
	return cmd
}

// limiterCLI runs the program.
func limiterCLI(t *testing.T, url string, args ...string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := command(ctx, url, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	a := answer{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
	for _, out := range []string{a.stdout, a.stderr} {
		if i := strings.IndexFunc(out, isControl); i >= 0 {
			t.Errorf("limiter %q printed the control character %q", args, out[i:i+1])
		}
		if strings.Contains(out, "hunter2") {
			t.Errorf("limiter %q printed the password:\n%s", args, out)
		}
		if word := goWords.FindString(out); a.code != 0 && word != "" {
			t.Errorf("limiter %q printed a word of Go, %q:\n%s", args, word, out)
		}
	}
	return a
}

// goWords are words of Go code. The user of the command writes commands and flags.
var goWords = regexp.MustCompile(`migrations\.|\bctx\b|WithSchema|WithCitus|WithQueryExecMode|TokenBucket|FixedWindow`)

func isControl(r rune) bool {
	return r != '\n' && r != '\t' && (r < ' ' || r >= 0x7f && r < 0xa0 || r == 0x202e)
}

// succeeds runs the program and wants exit code 0.
func succeeds(t *testing.T, url string, args ...string) answer {
	t.Helper()
	a := limiterCLI(t, url, args...)
	if a.code != 0 {
		t.Fatalf("limiter %q: exit code %d\n%s%s", args, a.code, a.stdout, a.stderr)
	}
	return a
}

// fails runs the program and wants an exit code, and texts on standard error.
func fails(t *testing.T, url string, code int, texts []string, args ...string) {
	t.Helper()
	a := limiterCLI(t, url, args...)
	if a.code != code {
		t.Errorf("limiter %q: exit code %d, want %d\n%s%s", args, a.code, code, a.stdout, a.stderr)
	}
	contains(t, a.stderr, texts...)
}

// contains wants texts in what the program printed.
func contains(t *testing.T, out string, texts ...string) {
	t.Helper()
	for _, want := range texts {
		if !strings.Contains(out, want) {
			t.Errorf("want %q in:\n%s", want, out)
		}
	}
}

// decode reads JSON with exactly the fields of T.
func decode[T any](t *testing.T, a answer) T {
	t.Helper()
	var v T
	dec := json.NewDecoder(strings.NewReader(a.stdout))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%v in:\n%s%s", err, a.stdout, a.stderr)
	}
	return v
}
