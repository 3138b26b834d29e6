package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sqlimit/limiter/internal/testenv"
)

func TestCheckReportsWhatASystemLacks(t *testing.T) {
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "")
	type files map[string]string
	onLinux := files{"a.go": "package a\n\nfunc A() { b() }\n", "b_linux.go": "package a\n\nfunc b() {}\n"}
	large := files{"a.go": "package a\n\nfunc A() int { return 1 << 40 }\n"}
	for _, c := range []struct {
		name, system string
		files        files
		says         string // empty: nothing is wrong
	}{
		{"a function of another system", "windows/amd64", onLinux, "a.go:3:12: undefined: b"},
		{"a function of this system", "linux/amd64", onLinux, ""},
		{"a number beyond an int of 32 bits", "linux/386", large, "overflows"},
		{"a number within an int of 64 bits", "linux/amd64", large, ""},
		{"a test that needs another system", "windows/amd64", files{
			"a.go": "package a\n", "a_test.go": "package a\n\nimport \"syscall\"\n\nvar _ = syscall.Mkfifo\n",
		}, "undefined: syscall.Mkfifo"},
		{"a test that uses what another file of tests exports", "windows/amd64", files{
			"a.go": "package a\n\nimport \"os\"\n\nfunc b() { os.Getpid() }\n", "export_test.go": "package a\n\nvar B = b\n",
			"a_test.go": "package a_test\n\nimport \"example.com/a\"\n\nvar _ = a.B\n",
		}, ""},
		{"a file that is not Go", "linux/amd64", files{"a.go": "package a\n\nfunc {\n"}, "a.go:3:6: "},
		{"an operating system alone", "windows", nil, `"windows" is not a system`},
		{"an unknown processor", "linux/z80", nil, `"linux/z80" is not a system`},
		{"an unknown operating system", "cpm/amd64", large, "unsupported GOOS/GOARCH pair cpm/amd64"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			testenv.Must(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.com/a\n\ngo 1.26\n"), 0o644))
			for name, text := range c.files {
				testenv.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
			}
			checked, err := check(t.Context(), dir, c.system)
			switch {
			case c.says == "" && (err != nil || checked == 0):
				t.Errorf("%d packages, %v; want at least 1 and no error", checked, err)
			case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
				t.Errorf("error %v, want one that says %q", err, c.says)
			}
		})
	}
}
