package testenv

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// required lists the words that LIMITER_TEST_REQUIRE may have.
var required = []string{"postgres", "pgbouncer", "pgpool", "goose", "chromium", "tmpfs", "cc"}

// CheckRequired returns an error if LIMITER_TEST_REQUIRE has an unknown word.
func CheckRequired() error {
	for _, what := range List("LIMITER_TEST_REQUIRE") {
		if !slices.Contains(required, what) {
			return fmt.Errorf("LIMITER_TEST_REQUIRE has %q; it knows %s", what, strings.Join(required, ", "))
		}
	}
	return nil
}

// Unavailable ends a test that lacks what. The test fails if LIMITER_TEST_REQUIRE has that word;
// otherwise it is skipped.
func Unavailable(t testing.TB, what string, reason error) {
	t.Helper()
	if slices.Contains(List("LIMITER_TEST_REQUIRE"), what) {
		t.Fatalf("LIMITER_TEST_REQUIRE asks for %s: %v", what, reason)
	}
	t.Skipf("no %s: %v", what, reason)
}

// skippedShort counts the tests that SkipShort skipped.
var skippedShort atomic.Int64

// SkippedShort returns how many tests [SkipShort] skipped in this process.
func SkippedShort() int64 { return skippedShort.Load() }

// SkipShort skips a test that needs a PostgreSQL server, if go test runs with -short. It does not if the
// environment names a server, or if LIMITER_TEST_REQUIRE has "postgres". Every test that starts or finds a
// server calls it first; those of package dbtest do so in EachPostgres.
func SkipShort(t testing.TB) {
	t.Helper()
	if !testing.Short() || slices.Contains(List("LIMITER_TEST_REQUIRE"), "postgres") {
		return
	}
	for _, variable := range []string{"LIMITER_TEST_POSTGRES_DSN", "LIMITER_TEST_POSTGRES_IMAGES"} {
		if os.Getenv(variable) != "" {
			return
		}
	}
	skippedShort.Add(1)
	t.Skip("-short leaves out tests that need PostgreSQL; set LIMITER_TEST_POSTGRES_DSN to run them")
}

// List returns the items of an environment variable that holds a list separated by commas.
func List(variable string) []string {
	return strings.FieldsFunc(os.Getenv(variable), func(r rune) bool { return r == ',' || r == ' ' })
}
