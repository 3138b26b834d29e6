package database

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/sqlitecode"
)

// connectTimeout is how long connecting may take, unless the URL says otherwise.
const connectTimeout = 3 * time.Second

// Explain adds what to do to an error of a statement, if it knows that. The error then matches
// [limiter.ErrMisconfigured].
func (db *DB) Explain(err error) error {
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
			advice = "grant the role what limiter doctor prints; to connect, it needs CONNECT on the database"
		case "3D000": // no such database
			advice = "create the database, or correct its name in the URL"
		case "25006": // read-only
			advice = "name the primary in the URL"
		}
	case strings.Contains(err.Error(), "no such table"):
		advice = "create the tables by limiter migrate up"
	case db.file != nil:
		advice = sqlitecode.Advice(sqlitecode.Of(err))
	}
	if advice == "" {
		return err
	}
	return fmt.Errorf("%w: %w; %s", limiter.ErrMisconfigured, err, advice)
}

// goTexts are texts of the library that name Go code, and what the user of the command does instead.
var goTexts = []struct {
	text *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`run limiter migrate up(?: --schema \S+)?, or migrations\.Up\(ctx(?:, [^()]*(?:\([^()]*\))?)*\)(?:, or goose)?(?:: see https://\S*[^\s:])?`), "run limiter migrate up"},
	{regexp.MustCompile(`run migrations\.Down of`), "run limiter migrate down of"},
	{regexp.MustCompile(`pass another name to WithSchema`), "pass another --schema"},
	{regexp.MustCompile(`; if Citus distributes the tables, pass postgres\.WithCitus\(\)`), "; run limiter doctor"},
}

// Text returns an error for the user of the command, who writes commands and flags and no Go.
func Text(err error) string {
	text := strings.TrimPrefix(err.Error(), "limiter: ")
	for _, g := range goTexts {
		text = g.text.ReplaceAllString(text, g.with)
	}
	return text
}

// Line returns an error as [Text] does, in one line. An error of connecting has a line for each attempt.
func Line(err error) string {
	var lines []string
	for line := range strings.Lines(Text(err)) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if len(lines) < 2 {
		return strings.Join(lines, "")
	}
	return lines[0] + " " + strings.Join(lines[1:], "; ")
}

// isMissing reports whether a table is missing.
func isMissing(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && server.Code == "42P01" || strings.Contains(err.Error(), "no such table")
}

// isDenied reports whether the role lacks a privilege.
func isDenied(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && server.Code == "42501"
}

// isShort reports whether the server lacks space on its disk, memory or another resource.
func isShort(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && strings.HasPrefix(server.Code, "53")
}
