package testenv

import (
	"fmt"
	"os"
	"slices"
	"strings"
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

// List returns the items of an environment variable that holds a list separated by commas.
func List(variable string) []string {
	return strings.FieldsFunc(os.Getenv(variable), func(r rune) bool { return r == ',' || r == ' ' })
}
