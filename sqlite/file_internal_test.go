package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
)

// The last check seems to be an hour ahead if the clock was set back since.
func TestChecksAfterAClockStep(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "app.db")
	testenv.Must(t, os.WriteFile(path, nil, 0o600))
	file, err := os.Stat(path)
	testenv.Must(t, err)
	f := watch(path)
	f.files[0], f.checked = file, time.Now().Add(time.Hour).UnixNano()
	testenv.Must(t, os.Remove(path))
	if err := f.check(); !errors.Is(err, limiter.ErrMisconfigured) {
		t.Errorf("check of a file that was removed: %v, want ErrMisconfigured", err)
	}
}
