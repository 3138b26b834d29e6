package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/sqlimit/limiter/handler"
)

// settings are what the environment says.
type settings struct {
	// databaseURL is the DSN of PostgreSQL; without one, sqlite is used.
	databaseURL string
	// sqlite is the path of the SQLite file.
	sqlite string
	// port is what the server listens on.
	port string
	// trustedHops is how many proxies every request to the server comes through.
	trustedHops int
	// inLambda tells that Lambda has started the process.
	inLambda bool
}

func readSettings(getenv func(string) string) (settings, error) {
	s := settings{
		databaseURL: getenv("DATABASE_URL"),
		sqlite:      cmp.Or(getenv("LIMITER_SQLITE"), filepath.Join(os.TempDir(), "limiter-example.db")),
		port:        cmp.Or(getenv("PORT"), "8080"),
		inLambda:    getenv("AWS_LAMBDA_RUNTIME_API") != "",
	}
	hops, err := strconv.ParseUint(cmp.Or(getenv("TRUSTED_HOPS"), "0"), 10, 8)
	if hops > 16 { // what handler.TrustedHops takes
		err = strconv.ErrRange
	}
	if err != nil {
		return settings{}, fmt.Errorf("TRUSTED_HOPS is not a number of proxies: set it to 1 on Cloud Run, to 2 behind its load balancer, to 0 if clients connect themselves: %w", err)
	}
	s.trustedHops = int(hops)
	return s, nil
}

// client returns what a request is limited by: its address. In Lambda it is in the
// event, where no client can write; a server has it from its proxies, if there are any.
func (s settings) client() handler.KeyFunc {
	if s.inLambda || s.trustedHops == 0 {
		return handler.ClientIP()
	}
	return handler.ClientIP(handler.TrustedHops(s.trustedHops))
}
