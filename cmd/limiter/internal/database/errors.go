package database

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqlimit/limiter"
)

// connectTimeout is how long connecting may take, unless the URL says otherwise.
const connectTimeout = 3 * time.Second

// explain adds what to do to an error of a statement, if it knows that. The error then matches
// [limiter.ErrMisconfigured].
func (db *DB) explain(err error) error {
	if err == nil || errors.Is(err, limiter.ErrMisconfigured) { // a store has said it
		return err
	}
	var server *pgconn.PgError
	advice := ""
	switch {
	case errors.As(err, &server):
		switch server.Code {
		case "42P01", "3F000": // no such table or schema
			advice = "create the tables by limiter migrate up; for tables in another schema pass --schema"
		case "42703": // no such column
			advice = "upgrade the tables by limiter migrate up"
		case "42501": // a missing privilege
			advice = "grant the role what it needs: see limiter doctor"
		case "25006": // read-only
			advice = "name the primary in the URL"
		}
	case strings.Contains(err.Error(), "no such table"):
		advice = "create the tables by limiter migrate up"
	case strings.Contains(err.Error(), "readonly database"):
		advice = "make the file and its directory writable"
	}
	if advice == "" {
		return err
	}
	return fmt.Errorf("%w: %w; %s", limiter.ErrMisconfigured, err, advice)
}

// isDenied reports whether the role lacks a privilege.
func isDenied(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && server.Code == "42501"
}
