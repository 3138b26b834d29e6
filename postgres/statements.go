package postgres

import (
	"embed"
	"fmt"
	"regexp"
	"strings"

	"github.com/sqlimit/limiter/internal/pgschema"
)

// files are templates of statements. Those of one table begin with its kind. The others, except
// check, version and overrides, are rendered for each table.
//
//go:embed sql/*.sql
var files embed.FS

// tableStatements are the rendered statements on one table.
type tableStatements struct {
	take, takes, count, refund, cancel            string // of a file of the table's own
	read, insert, swap, lock, reset, start, sweep string
	add, clock                                    string // of a decision over several limits
	sample, before, page, remove                  string // on Citus, instead of takes, count, start and sweep
}

// statements returns the statements on t.
func (o *options) statements(t *table) tableStatements {
	n := len(t.columns)
	state := t.columns[:n-policyColumns]
	both := []string{
		"/* table */", pgschema.Quote(o.schema) + "." + t.name,
		"/* columns */", strings.Join(t.columns, ", "),
		"/* columns or 0 */", each("coalesce(b.%s, 0)", t.columns),
		"/* state = 0 */", each("%s = 0", state),
		"/* new */", parameters(3, n),
		"/* unused */", strings.Repeat("0, ", n-policyColumns) + parameters(3, policyColumns),
		"/* old */", parameters(3+n, n),
		"/* end */", t.end,
	}
	shared := func(file string) string { return o.text(file, both...) }
	own := func(file string) string { return o.text(t.kind + "_" + file) }
	texts := tableStatements{
		refund: own("refund"), cancel: own("cancel"),
		read: shared("read"), insert: shared("insert"), swap: shared("swap"), lock: shared("lock"),
		reset: shared("reset"), add: shared("add"), clock: o.text("clock"),
	}
	if o.citus {
		texts.take, texts.read = own("take_citus"), shared("read_citus")
		texts.sample, texts.before = shared("sample_citus"), shared("before_citus")
		texts.page, texts.remove = shared("page_citus"), shared("remove_citus")
		return texts
	}
	texts.take, texts.takes = own("take"), own("takes")
	texts.start, texts.sweep = shared("start"), shared("sweep")
	if t.counts {
		texts.count = own("count")
	}
	return texts
}

// comments matches the comments at the head of the files.
var comments = regexp.MustCompile(`(?m)^\s*--.*\n`)

// text renders a file: see [options.render].
func (o *options) text(file string, pairs ...string) string {
	return o.render(readFile(file), pairs...)
}

func readFile(file string) string {
	b, err := files.ReadFile("sql/" + file + ".sql")
	if err != nil {
		panic(err) // no file has this name
	}
	return string(b)
}

// render replaces pairs, the schema and the way to commit in a text, and removes comments.
func (o *options) render(text string, pairs ...string) string {
	commit := ""
	if o.asyncCommit {
		// It holds for the statement's own transaction only.
		commit = " FROM pg_catalog.set_config('synchronous_commit', 'off', true)"
	}
	fill := strings.NewReplacer(append(pairs, "/* schema */", pgschema.Quote(o.schema)+".",
		"/* commit */", commit, "/* and commit */", strings.Replace(commit, " FROM ", ", ", 1))...)
	return strings.TrimSpace(fill.Replace(comments.ReplaceAllString(text, "")))
}

// each returns a list with one element for each column.
func each(format string, columns []string) string {
	list := make([]string, len(columns))
	for i, c := range columns {
		list[i] = fmt.Sprintf(format, c)
	}
	return strings.Join(list, ", ")
}

// parameters returns a list of n parameters.
func parameters(first, n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("$%d::bigint", first+i)
	}
	return strings.Join(list, ", ")
}
