package pgschema_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/pgschema"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, good := range map[string]bool{
		pgschema.Default: true, "_": true, "user": true, "app_2": true, strings.Repeat("a", 48): true,
		"": false, "App": false, "2app": false, "a-b": false, "a.b": false, `a"b`: false, "a\n": false, "é": false,
		strings.Repeat("a", 49): false,
	} {
		err := pgschema.Check(name)
		if (err == nil) != good || err != nil && !errors.Is(err, limiter.ErrInvalid) {
			t.Errorf("Check(%q) = %v, want good %v", name, err, good)
		}
	}
}
