package cluster

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Unavailable ends the test for want of one of the words of LIMITER_TEST_REQUIRE: as
// failed if that names it, else as skipped.
func Unavailable(t testing.TB, what string, reason error) {
	t.Helper()
	required := strings.FieldsFunc(os.Getenv("LIMITER_TEST_REQUIRE"), func(r rune) bool { return r == ',' || r == ' ' })
	if slices.Contains(required, what) {
		t.Fatalf("cluster: LIMITER_TEST_REQUIRE asks for %s: %v", what, reason)
	}
	t.Skipf("cluster: no %s: %v", what, reason)
}
