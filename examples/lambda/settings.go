package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/sqlimit/limiter/handler"
)

// settings holds the values of the environment.
type settings struct {
	// databaseURL is the DSN of PostgreSQL. If it is empty, the program uses SQLite.
	databaseURL string
	// sqlite is the path of the SQLite file.
	sqlite string
	// port is the port that the server listens on.
	port string
	// trustedHops is the number of proxies in front of the server.
	trustedHops int
	// inLambda reports whether Lambda started the process.
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
	if err != nil || hops > 16 { // the maximum of handler.TrustedHops
		return settings{}, fmt.Errorf("TRUSTED_HOPS is %q; set it to the number of proxies, 0 to 16: 1 on Cloud Run, 2 behind its load balancer, 0 if clients connect directly", getenv("TRUSTED_HOPS"))
	}
	s.trustedHops = int(hops)
	return s, nil
}

// client returns the key of a request: the client's address. In Lambda the event has it,
// and no client can forge it. A server behind proxies reads it from the header that they
// append to.
func (s settings) client() handler.KeyFunc {
	if s.inLambda || s.trustedHops == 0 {
		return handler.ClientIP()
	}
	return handler.ClientIP(handler.TrustedHops(s.trustedHops))
}
