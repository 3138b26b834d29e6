package campaign

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"
)

// report is what a campaign has done so far.
type report struct {
	Tier      Tier              `json:"tier"`
	Seed      uint64            `json:"seed"`
	Fraction  float64           `json:"fraction,omitempty"`
	Began     time.Time         `json:"began"`
	Ended     time.Time         `json:"ended"`
	Versions  map[string]string `json:"versions"`
	Scenarios []*scenario       `json:"scenarios"`
	Totals    map[string]int64  `json:"totals"`
}

// scenario is what the rounds of a scenario have counted.
type scenario struct {
	Name    string           `json:"name"`
	Rounds  int              `json:"rounds"`
	Wanted  int              `json:"wanted"`
	Seconds float64          `json:"seconds"`
	Counts  map[string]int64 `json:"counts"`
	Most    map[string]int64 `json:"most_ms"` // milliseconds
	// Failed is the rounds that failed, and what they counted.
	Failed []failure `json:"failed,omitempty"`
}

// failure is a round that failed.
type failure struct {
	Round  int              `json:"round"`
	Counts map[string]int64 `json:"counts"`
}

func newReport(o Options) *report {
	return &report{Tier: o.Tier, Seed: o.Seed, Fraction: o.Fraction, Began: time.Now().UTC().Truncate(time.Second), Versions: o.Versions, Scenarios: []*scenario{}}
}

func (c *Campaign) resume() error {
	r, err := readReport(c.Report)
	if err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	if r.Tier != c.Tier || c.Seed != 0 && c.Seed != r.Seed || c.Fraction != r.Fraction {
		return fmt.Errorf("resume %s: it is of tier %s, seed %d and fraction %v", c.Report, r.Tier, r.Seed, r.Fraction)
	}
	if !maps.Equal(r.Versions, c.Versions) {
		return fmt.Errorf("resume %s: it is of other versions: %v, and here are %v", c.Report, r.Versions, c.Versions)
	}
	c.Seed, c.report = r.Seed, r
	return nil
}

func readReport(path string) (*report, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := new(report)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// spare keeps hours of work from being written over.
func (c *Campaign) spare() error {
	if c.Tier == CI || c.Report == "" || c.Round > 0 {
		return nil
	}
	r, err := readReport(c.Report)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%s is there, of %d scenarios; go on with -resume, name another one by -report, or remove it", c.Report, len(r.Scenarios))
}

// scenario returns what is kept of a scenario.
func (r *report) scenario(name string, wanted int) *scenario {
	for _, s := range r.Scenarios {
		if s.Name == name {
			return s
		}
	}
	s := &scenario{Name: name, Wanted: wanted, Counts: map[string]int64{}, Most: map[string]int64{}}
	r.Scenarios = append(r.Scenarios, s)
	return s
}

func (s *scenario) add(r *Round, took time.Duration) {
	s.Rounds = r.Number
	s.Seconds += took.Seconds()
	for what, n := range r.counts {
		s.Counts[what] += n
	}
	for what, n := range r.most {
		s.Most[what] = max(s.Most[what], n)
	}
}

// total adds up what there is so far.
func (r *report) total() {
	r.Ended = time.Now().UTC().Truncate(time.Second)
	r.Totals = map[string]int64{}
	for _, s := range r.Scenarios {
		for what, n := range s.Counts {
			r.Totals[what] += n
		}
	}
}

// write puts the report in place of the one before, whole or not at all.
func (r *report) write(path string) error {
	if path == "" {
		return nil
	}
	r.total()
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	next := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".next")
	if err := os.WriteFile(next, append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// End writes the report for the last time. That of a single round is none.
func (c *Campaign) End() error {
	if c.Round > 0 {
		return nil
	}
	return c.report.write(c.Report)
}

// Summary returns the totals as lines of text, with seed and versions.
func (c *Campaign) Summary() string {
	c.report.total()
	text, err := json.MarshalIndent(c.report, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(text)
}
