package sqlite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
)

// Each case runs steps; only the last may fail.
func TestWatchedFile(t *testing.T) {
	t.Parallel()
	dir, err := os.Getwd()
	testenv.Must(t, err)
	testenv.Equal(t, watch("app.db").path, filepath.Join(dir, "app.db"), "a path in the working directory")
	steps := map[string]func(f *watchedFile, path string) error{
		"remove":        func(_ *watchedFile, path string) error { return os.Remove(path) },
		"empty":         func(_ *watchedFile, path string) error { return os.Truncate(path, 0) },
		"away":          func(_ *watchedFile, path string) error { return os.Rename(path, path+".away") },
		"back":          func(_ *watchedFile, path string) error { return os.Rename(path+".away", path) },
		"replace":       func(_ *watchedFile, path string) error { return os.Rename(path+"-shm", path) }, // -shm serves as another file
		"almost 100 ms": func(*watchedFile, string) error { <-time.After(checkEvery - 1); return nil },
		"1 ns":          func(*watchedFile, string) error { <-time.After(1); return nil },
		"clock back":    func(f *watchedFile, _ string) error { f.checked = time.Now().Add(1).UnixNano(); return nil },
		"hold":          func(f *watchedFile, _ string) error { f.hold(); return nil },
		"release":       func(f *watchedFile, _ string) error { f.release(); return nil },
		"use":           func(f *watchedFile, _ string) error { return f.check() },
		"check now":     func(f *watchedFile, _ string) error { return f.checkNow() },
		"connect":       func(f *watchedFile, _ string) error { return f.opened(nil) },
		"forget":        func(f *watchedFile, _ string) error { f.files[0] = nil; return nil },
		"miss": func(f *watchedFile, _ string) error {
			testenv.ErrorIs(t, f.checkNow(), limiter.ErrMisconfigured, "a check")
			return nil
		},
		"first connect": func(f *watchedFile, _ string) error { before := f.files[0]; f.files[0] = nil; return f.opened(before) },
	}
	for _, c := range []struct {
		name, steps, want string // want is a part of the error; empty: none
	}{
		{"a check counts for 100 ms", "remove, almost 100 ms, use", ""},
		{"a check counts no longer than 100 ms", "remove, almost 100 ms, 1 ns, use", ": the database was removed, replaced or emptied while this process had it open; put it back"},
		{"a check does not count if the clock is set back", "remove, clock back, use", "no such file or directory"},
		{"a check counts for 32 uses", "check now, remove" + strings.Repeat(", use", checkUses), ""},
		{"a check counts for no more than 32 uses", "check now, remove" + strings.Repeat(", use", checkUses+1), "the database was removed"},
		{"a failed check counts for 100 ms", "away, miss, back, use", "the database was removed"},
		{"the file is back", "away, miss, back, check now", ""},
		{"the file is empty", "empty, check now", "the file is empty"},
		{"another file", "replace, check now", "there is another file"},
		{"another file at a connection", "replace, connect", "there is another file"},
		{"another file at the first connection", "replace, first connect", "there is another file"},
		{"the file is gone after the first connection", "remove, forget, connect", "the database was removed"},
		{"nothing was found yet", "remove, forget, check now", ""},
		{"a log is missed while a connection is open", "hold, hold, release, remove -wal, check now", "the file -wal of the database was removed"},
		{"a log may go with the last connection", "hold, hold, release, release, remove -wal, remove -shm, check now", ""},
		{"a log may go without a connection", "check now, remove -wal, check now", ""},
		{"a log that comes after its connection", "away -wal, hold, back -wal, check now, remove -wal, check now", "the file -wal of"},
		{"a log may be empty", "hold, empty -wal, check now", ""},
		{"an index may not be empty", "hold, empty -shm, check now", "the file -shm of the database was removed, replaced or emptied"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "app.db")
			for i, suffix := range suffixes {
				testenv.Must(t, os.WriteFile(path+suffix, make([]byte, 1+i), 0o600))
			}
			synctest.Test(t, func(t *testing.T) {
				f := watch(path)
				testenv.Must(t, f.opened(nil))
				testenv.Must(t, f.checkNow())
				testenv.Equal(t, f.logSize(), 2, "the size of the log")
				var err error
				for step := range strings.SplitSeq(c.steps, ", ") {
					testenv.Must(t, err)
					step, suffix, _ := strings.Cut(step, " -")
					if suffix != "" {
						suffix = "-" + suffix
					}
					err = steps[step](f, path+suffix)
				}
				if c.want == "" {
					testenv.Must(t, err)
					return
				}
				testenv.ErrorIs(t, err, limiter.ErrMisconfigured, "the last step")
				testenv.Contains(t, err.Error(), c.want)
			})
		})
	}
}
