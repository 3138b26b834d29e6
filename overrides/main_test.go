package overrides_test

import (
	"testing"

	"github.com/sqlimit/limiter/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }
