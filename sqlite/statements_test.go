package sqlite_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/sqlimit/limiter/sqlite"
)

// Every statement can be pasted into sqlite3, and finds its rows by the primary key.
func TestStatements(t *testing.T) {
	t.Parallel()
	store := openFile(t)
	for name, text := range sqlite.Statements() {
		// The driver prepares what follows a statement anew each time; a comment at the end would hide
		// what others append.
		lines := strings.Split(text, "\n")
		if strings.Contains(text, "/*") {
			t.Errorf("%s.sql has a placeholder left in it:\n%s", name, text)
		}
		if last := lines[len(lines)-1]; !strings.HasSuffix(last, ";") || strings.Contains(last, "--") {
			t.Errorf("%s.sql ends with %q; want the end of a statement", name, last)
		}
		if !strings.HasPrefix(text, "-- ") {
			t.Errorf("%s.sql does not say what it does", name)
		}
		args := make([]any, highest(text))
		for i := range args {
			args[i] = 1
		}
		rows, err := store.DB().QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+text, args...)
		if err != nil {
			t.Errorf("%s.sql: %v", name, err)
			continue
		}
		for rows.Next() {
			var id, parent, unused int
			var detail string
			must(t, rows.Scan(&id, &parent, &unused, &detail))
			if strings.HasPrefix(detail, "SCAN limiter") && name != "lock" {
				t.Errorf("%s.sql reads a whole table: %s", name, detail)
			}
		}
		must(t, rows.Err())
		rows.Close()
	}
}

var parameter = regexp.MustCompile(`\?(\d*)`)

// highest returns the number of the last parameter. One without a number is one more than those before.
func highest(text string) (n int) {
	for _, m := range parameter.FindAllStringSubmatch(text, -1) {
		i, err := strconv.Atoi(m[1])
		if err != nil {
			i = n + 1
		}
		n = max(n, i)
	}
	return n
}
