package campaign

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"
)

// Report is what a campaign writes: package figures reads it.
type Report struct {
	Tier      Tier              `json:"tier"`
	Seed      uint64            `json:"seed"`
	Fraction  float64           `json:"fraction,omitempty"`
	Began     time.Time         `json:"began"`
	Ended     time.Time         `json:"ended"`
	Versions  map[string]string `json:"versions"`
	Scenarios []*scenario       `json:"scenarios"`
	Totals    map[string]int64  `json:"totals"`
}

type scenario struct {
	Name    string           `json:"name"`
	Rounds  int              `json:"rounds"`
	Wanted  int              `json:"wanted"`
	Seconds float64          `json:"seconds"`
	Counts  map[string]int64 `json:"counts"`
	Most    map[string]int64 `json:"most_ms"` // milliseconds
}

func newReport(o Options) *Report {
	return &Report{Tier: o.Tier, Seed: o.Seed, Fraction: o.Fraction, Began: time.Now().UTC().Truncate(time.Second), Versions: o.Versions, Scenarios: []*scenario{}}
}

func (r *Report) scenario(name string, wanted int) *scenario {
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

func (r *Report) total() {
	r.Ended = time.Now().UTC().Truncate(time.Second)
	r.Totals = map[string]int64{}
	for _, s := range r.Scenarios {
		for what, n := range s.Counts {
			r.Totals[what] += n
		}
	}
}

func (r *Report) write(path string) error {
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
