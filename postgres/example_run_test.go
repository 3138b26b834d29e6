package postgres_test

import (
	"os"
	"strings"
	"testing"

	"github.com/sqlimit/limiter"
)

// The README shows newStore to those who test their own code; this shows that it
// works. It needs an image by name: other servers are dbtest's business.
func TestTheReadmesStoreForTestsWorks(t *testing.T) {
	image, _, _ := strings.Cut(os.Getenv("LIMITER_TEST_POSTGRES_IMAGES"), ",")
	if image == "" {
		t.Skip("LIMITER_TEST_POSTGRES_IMAGES names no image")
	}
	l, err := limiter.New(newStore(t, image), "orders", limiter.PerDay(1))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} {
		if res, err := l.Allow(t.Context(), "alice"); err != nil || res.Allowed != want {
			t.Errorf("Allow = %+v, %v; want Allowed %t", res, err, want)
		}
	}
}
