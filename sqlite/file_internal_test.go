package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

// The last check seems to be an hour ahead if the clock was set back since.
func TestChecksAfterAClockStep(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "app.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	f := watch(path)
	f.files[0], f.checked = file, time.Now().Add(time.Hour).UnixNano()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := f.check(); !errors.Is(err, limiter.ErrMisconfigured) {
		t.Errorf("check of a file that was removed: %v, want ErrMisconfigured", err)
	}
}
