package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
)

// peers are the modules whose versions matter.
var peers = []string{
	"github.com/jackc/pgx/v5", "modernc.org/sqlite", "github.com/redis/go-redis/v9", "github.com/go-redis/redis_rate/v10", "github.com/redis/rueidis",
	"github.com/throttled/throttled/v2", "github.com/ulule/limiter/v3", "github.com/sethvargo/go-limiter",
	"github.com/go-chi/httprate", "golang.org/x/time",
}

// describe returns what the figures depend on, as a list. What cannot be found out is left out.
func describe(ctx context.Context, b *backends) string {
	var memory float64
	_, _ = fmt.Sscanf(field("/proc/meminfo", "MemTotal"), "%f kB", &memory) // 0 if it is unknown
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")                  // empty on another system
	var list strings.Builder
	for _, item := range [][2]string{
		{"Machine", fmt.Sprintf("%d × %s, %.0f GiB of memory; callers and servers share it", runtime.NumCPU(), field("/proc/cpuinfo", "model name"), memory/(1<<20))},
		{"System", strings.TrimSpace(strings.Trim(field("/etc/os-release", "PRETTY_NAME"), `"`) + ", Linux " + string(kernel))},
		{"Files", output(ctx, "findmnt", "--noheadings", "--output=FSTYPE", "--target="+b.temp)},
		{"Go", runtime.Version()},
		{"limiter", output(ctx, "git", "describe", "--always", "--dirty", "--tags")},
		{"PostgreSQL", b.describePostgres(ctx)},
		{"Redis", b.describeRedis(ctx)},
		{"Modules", modules()},
	} {
		if item[1] != "" {
			fmt.Fprintf(&list, "- %s: %s\n", item[0], item[1])
		}
	}
	return list.String()
}

// describePostgres returns the version of the server and the settings that figures depend on.
func (b *backends) describePostgres(ctx context.Context) (text string) {
	if b.pg == nil {
		return ""
	}
	_ = b.pg.QueryRow(ctx, `SELECT format('%s; synchronous_commit = %s, fsync = %s, shared_buffers = %s; a pool of %s connections',
		current_setting('server_version'), current_setting('synchronous_commit'), current_setting('fsync'),
		current_setting('shared_buffers'), $1::int)`, b.pg.Config().MaxConns).Scan(&text) // empty if it fails
	return text
}

func (b *backends) describeRedis(ctx context.Context) string {
	if b.rdb == nil {
		return ""
	}
	info, _ := b.rdb.Info(ctx, "server").Result() // empty if it fails
	_, after, _ := strings.Cut(info, "redis_version:")
	version, _, _ := strings.Cut(after, "\r\n")
	return fmt.Sprintf("%s; a pool of %d connections", version, redisPoolSize)
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

// field returns the value of the first line "name: value" or "name=value" of a file.
func field(path, name string) string {
	text, _ := os.ReadFile(path) // empty on another system
	if found := regexp.MustCompile(`(?m)^` + name + `\s*[:=]\s*(.*)$`).FindSubmatch(text); found != nil {
		return string(found[1])
	}
	return ""
}

// output returns what a program prints, or nothing if it fails.
func output(ctx context.Context, program string, args ...string) string {
	out, err := exec.CommandContext(ctx, program, args...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
