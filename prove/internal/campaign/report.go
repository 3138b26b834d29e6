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

func (r *Report) scenario(name string, wanted int) *scenario {
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

// text returns the report as JSON, as of now.
func (r *Report) text() ([]byte, error) {
	r.Ended = time.Now().UTC().Truncate(time.Second)
	r.Totals = map[string]int64{}
	for _, s := range r.Scenarios {
		for what, n := range s.Counts {
			r.Totals[what] += n
		}
	}
	return json.MarshalIndent(r, "", "\t")
}

func (r *Report) write(path string) error {
	if path == "" {
		return nil
	}
	text, err := r.text()
	if err != nil {
		return err
	}
	next := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".next")
	if err := os.WriteFile(next, append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// End returns the report, and writes it for the last time unless it is of a single round.
func (c *Campaign) End() (string, error) {
	if c.Round == 0 {
		if err := c.report.write(c.Report); err != nil {
			return "", err
		}
	}
	text, err := c.report.text()
	return string(text), err
}
