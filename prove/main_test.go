package prove_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/prove/internal/campaign"
)

var must = testenv.Must

var (
	tier      = flag.String("tier", "ci", "how much is done: ci (10 minutes), nightly (2 hours) or release (6 hours)")
	seed      = flag.Uint64("seed", 0, "what all randomness comes from; 0 chooses one")
	report    = flag.String("report", "report-TIER.json", "the file that the report is written to, as JSON, after each round")
	round     = flag.Int("round", 0, "the number of the only round to be run")
	fraction  = flag.Float64("fraction", 0, "the part of the tier's rounds to be run, above 0 to 1; 0 is all")
	perCaller = flag.Int("calls", 150, "how many calls each caller makes in a round of a history")
)

// proof is the campaign of this run.
var proof *campaign.Campaign

// helpers are what scenarios start this program as, by the word in helperVariable. They run no tests.
var helpers = map[string]func() error{}

const (
	helperVariable = "LIMITER_PROVE_HELPER"
	jobVariable    = "LIMITER_PROVE_JOB" // what a helper has to do, as JSON
)

func register[Job any](name string, run func(job Job) error) {
	helpers[name] = func() error {
		var job Job
		if err := json.Unmarshal([]byte(os.Getenv(jobVariable)), &job); err != nil {
			return err
		}
		return run(job)
	}
}

func TestMain(m *testing.M) {
	if name := os.Getenv(helperVariable); name != "" {
		if err := helpers[name](); err != nil {
			fmt.Fprintln(os.Stderr, "prove:", name+":", err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if err := errors.Join(testenv.CheckRequired(), begin()); err != nil {
		fmt.Fprintln(os.Stderr, "prove:", err)
		os.Exit(2)
	}
	code := m.Run()
	text, err := proof.End()
	if err != nil {
		fmt.Fprintln(os.Stderr, "prove:", err)
		code = max(code, 1)
	}
	fmt.Println(text)
	os.Exit(code)
}

// helper returns the command that is this program as a helper.
func helper(t testing.TB, name string, job any) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(job)
	must(t, err)
	return testenv.Self(t, helperVariable+"="+name, jobVariable+"="+string(text))
}

func begin() (err error) {
	proof, err = campaign.New(campaign.Options{
		Tier: campaign.Tier(*tier), Seed: *seed, Report: strings.Replace(*report, "TIER", *tier, 1), Round: *round, Fraction: *fraction,
		Versions: versions(),
	})
	return err
}

// versions tells what is tested, and with what.
func versions() map[string]string {
	programs, _, _ := testenv.PostgreSQL(context.Background()) // a scenario says why there is none
	v := map[string]string{
		"go": runtime.Version(), "limiter": output("git", "describe", "--always", "--dirty"),
		"postgres": output(filepath.Join(programs, "postgres"), "--version"), "pgbouncer": strings.Split(output("/usr/sbin/pgbouncer", "--version"), "\n")[0],
		"system": runtime.GOOS + "/" + runtime.GOARCH + ", " + fmt.Sprint(runtime.NumCPU()) + " cores",
	}
	for _, module := range strings.Split(output("go", "list", "-m", "github.com/jackc/pgx/v5", "modernc.org/sqlite"), "\n") {
		name, version, _ := strings.Cut(module, " ")
		v[name] = version
	}
	return v
}

// output is what a program prints, or why it does not.
func output(program string, args ...string) string {
	out, err := exec.Command(program, args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err.Error()
	}
	return strings.TrimSpace(string(out))
}
