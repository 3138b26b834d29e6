package overrides_test

import (
	"testing"

	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/testenv"
)

var must = testenv.Must

func TestMain(m *testing.M) { dbtest.Main(m) }
