package dashboards_test

import (
	"os"
	"strings"
	"testing"

	"github.com/sqlimit/limiter/dashboards"
	"github.com/sqlimit/limiter/internal/testenv"
)

func read(t *testing.T, file string) dashboards.Dashboard {
	t.Helper()
	d, err := dashboards.Read(file)
	testenv.Must(t, err)
	return d
}

func TestPanels(t *testing.T) {
	t.Parallel()
	uids := map[string]bool{}
	for _, file := range []string{"decisions.json", "keys.json"} {
		d := read(t, file)
		if uids[d.UID] || d.UID == "" || d.Title == "" || len(d.Panels) < 5 {
			t.Errorf("%s: uid %q, title %q, %d panels", file, d.UID, d.Title, len(d.Panels))
		}
		uids[d.UID] = true
		ids, taken := map[int]bool{}, map[[2]int]string{}
		for _, p := range d.Panels {
			if ids[p.ID] || p.ID < 1 || p.Title == "" || p.Description == "" || p.Type == "" || len(p.Targets) == 0 {
				t.Errorf("%s: a panel is not complete: %+v", file, p)
			}
			ids[p.ID] = true
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" || x > 23 {
						t.Fatalf("%s: %q is over %q, or outside of the 24 columns", file, p.Title, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
			refs := map[string]bool{}
			for _, target := range p.Targets {
				if refs[target.RefID] || target.RefID == "" || (target.Expr == "") == (target.RawSQL == "") {
					t.Errorf("%s: %q has the target %+v", file, p.Title, target)
				}
				refs[target.RefID] = true
			}
		}
	}
}

func TestPicture(t *testing.T) {
	t.Parallel()
	svg, err := os.ReadFile("decisions.svg")
	testenv.Must(t, err)
	for _, p := range read(t, "decisions.json").Panels {
		if !strings.Contains(string(svg), ">"+p.Title+"<") {
			t.Errorf("decisions.svg does not have %q; draw it again as dashboards/picture says", p.Title)
		}
	}
}
