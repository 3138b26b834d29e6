// Package machine tells what a benchmark ran on.
package machine

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// Item is something that figures depend on.
type Item struct{ Name, Value string }

// Describe returns what the figures of a benchmark depend on, as a list in Markdown. The benchmark
// keeps its files in dir; empty is the system's directory for temporary files. What could not be found
// out is left out.
func Describe(ctx context.Context, dir string, more ...Item) string {
	var list strings.Builder
	for _, item := range append([]Item{
		{"Machine", fmt.Sprintf("%d × %s, %s of memory; callers and servers share it", runtime.NumCPU(), field("/proc/cpuinfo", "model name"), gibibytes(field("/proc/meminfo", "MemTotal")))},
		{"System", strings.TrimSpace(strings.Trim(field("/etc/os-release", "PRETTY_NAME"), `"`) + ", Linux " + line("/proc/sys/kernel/osrelease"))},
		{"Files", output(ctx, "findmnt", "--noheadings", "--output=FSTYPE", "--target="+cmp.Or(dir, os.TempDir()))},
		{"Go", runtime.Version()},
		{"limiter", output(ctx, "git", "describe", "--always", "--dirty", "--tags")},
	}, more...) {
		if item.Value != "" {
			fmt.Fprintf(&list, "- %s: %s\n", item.Name, item.Value)
		}
	}
	return list.String()
}

// field returns the value of the first line "name: value" or "name=value" of a file.
func field(path, name string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(strings.Replace(lines.Text(), "=", ":", 1), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func line(path string) string {
	content, _ := os.ReadFile(path) // empty on a system that has no such file
	return strings.TrimSpace(string(content))
}

// gibibytes returns "24105000 kB" in GiB.
func gibibytes(kilobytes string) string {
	var n float64
	if _, err := fmt.Sscanf(kilobytes, "%f kB", &n); err != nil {
		return "an unknown amount"
	}
	return fmt.Sprintf("%.0f GiB", n/(1<<20))
}

// output returns what a program prints, or nothing if it fails.
func output(ctx context.Context, program string, args ...string) string {
	out, err := exec.CommandContext(ctx, program, args...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
