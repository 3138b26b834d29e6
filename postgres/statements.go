package postgres

import (
	"embed"
	"regexp"
	"strings"

	"github.com/sqlimit/limiter/internal/pgschema"
)

//go:embed sql/*.sql
var files embed.FS

// statements are the texts of sql/*.sql, rendered for one store.
type statements struct {
	bucketTake, bucketLook, bucketSwap, bucketInsert, bucketLock  string
	bucketRefund, bucketCancel, bucketReset, bucketSweep          string
	windowTake, windowCount, windowLook, windowSwap, windowInsert string
	windowLock, windowRefund, windowCancel, windowReset           string
	windowSweep, bucketTakes, windowTakes, check, version         string
	bucketStart, windowStart                                      string
}

// comments matches the comments at the head of the files.
var comments = regexp.MustCompile(`(?m)^\s*--.*\n`)

func render(schema string, asyncCommit bool) statements {
	commit := ""
	if asyncCommit {
		// Local to the statement's own transaction.
		commit = " FROM pg_catalog.set_config('synchronous_commit', 'off', true)"
	}
	fill := strings.NewReplacer("/* schema */", pgschema.Quote(schema)+".",
		"/* commit */", commit, "/* and commit */", strings.Replace(commit, " FROM ", ", ", 1))
	text := func(name string) string {
		b, err := files.ReadFile("sql/" + name + ".sql")
		if err != nil {
			panic(err) // a name below is not that of an embedded file
		}
		return strings.TrimSpace(fill.Replace(comments.ReplaceAllString(string(b), "")))
	}
	return statements{
		bucketTake: text("bucket_take"), bucketLook: text("bucket_look"),
		bucketSwap: text("bucket_swap"), bucketInsert: text("bucket_insert"),
		bucketLock:   text("bucket_lock"),
		bucketRefund: text("bucket_refund"), bucketCancel: text("bucket_cancel"),
		bucketReset: text("bucket_reset"), bucketSweep: text("bucket_sweep"),
		windowTake: text("window_take"), windowCount: text("window_count"),
		windowLook: text("window_look"), windowLock: text("window_lock"),
		windowSwap: text("window_swap"), windowInsert: text("window_insert"),
		windowRefund: text("window_refund"), windowCancel: text("window_cancel"),
		windowReset: text("window_reset"), windowSweep: text("window_sweep"),
		bucketTakes: text("bucket_takes"), windowTakes: text("window_takes"),
		bucketStart: text("bucket_start"), windowStart: text("window_start"),
		check: text("check"), version: text("version"),
	}
}
