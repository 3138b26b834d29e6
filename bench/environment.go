package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
)

// peers are the modules whose versions matter.
var peers = []string{
	"github.com/jackc/pgx/v5", "modernc.org/sqlite", "github.com/redis/go-redis/v9", "github.com/go-redis/redis_rate/v10",
	"github.com/throttled/throttled/v2", "github.com/ulule/limiter/v3", "github.com/sethvargo/go-limiter",
	"github.com/go-chi/httprate", "golang.org/x/time",
}

// describe returns what the figures depend on, as a list. What cannot be found out is left out.
func describe(ctx context.Context, b *backends) string {
	var list strings.Builder
	item := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&list, "- %s: %s\n", name, value)
		}
	}
	item("Machine", fmt.Sprintf("%d × %s, %s of memory; callers and servers share it", runtime.NumCPU(), field("/proc/cpuinfo", "model name"), gibibytes(field("/proc/meminfo", "MemTotal"))))
	item("System", strings.TrimSpace(strings.Trim(field("/etc/os-release", "PRETTY_NAME"), `"`)+", Linux "+line("/proc/sys/kernel/osrelease")))
	item("Files", fileSystem(ctx, b.dir))
	item("Go", runtime.Version())
	item("limiter", revision(ctx))
	item("PostgreSQL", b.describePostgres(ctx))
	item("Redis", b.describeRedis(ctx))
	item("Modules", modules())
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

// fileSystem returns the type of what dir is on.
func fileSystem(ctx context.Context, dir string) string {
	return output(ctx, "findmnt", "--noheadings", "--output=FSTYPE", "--target="+dir)
}

func revision(ctx context.Context) string {
	return output(ctx, "git", "describe", "--always", "--dirty", "--tags")
}

// output returns what a program prints, or nothing if it fails.
func output(ctx context.Context, program string, args ...string) string {
	out, err := exec.CommandContext(ctx, program, args...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func (b *backends) describePostgres(ctx context.Context) string {
	if b.pg == nil {
		return ""
	}
	var version, commit, fsync, buffers string
	err := b.pg.pool.QueryRow(ctx, `SELECT current_setting('server_version'), current_setting('synchronous_commit'),
		current_setting('fsync'), current_setting('shared_buffers')`).Scan(&version, &commit, &fsync, &buffers)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s; synchronous_commit = %s, fsync = %s, shared_buffers = %s; a pool of %d connections", version, commit, fsync, buffers, b.poolSize)
}

func (b *backends) describeRedis(ctx context.Context) string {
	if b.rdb == nil {
		return ""
	}
	info, err := b.rdb.Info(ctx, "server").Result()
	if err != nil {
		return ""
	}
	for _, l := range strings.Split(info, "\r\n") {
		if version, ok := strings.CutPrefix(l, "redis_version:"); ok {
			return fmt.Sprintf("%s; a pool of %d connections", version, b.rdb.Options().PoolSize)
		}
	}
	return ""
}

func modules() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	versions := make(map[string]string)
	for _, m := range info.Deps {
		versions[m.Path] = m.Version
	}
	var list []string
	for _, path := range peers {
		if v := versions[path]; v != "" {
			list = append(list, strings.TrimPrefix(path, "github.com/")+" "+v)
		}
	}
	return strings.Join(list, ", ")
}
