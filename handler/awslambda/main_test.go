package awslambda_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sqlimit/limiter/internal/testenv"
)

var must = testenv.Must

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
