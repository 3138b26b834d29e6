package postgres

import (
	"embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/pgschema"
	"github.com/sqlimit/limiter/internal/tables"
)

// files are templates of statements. Those of one table begin with its kind. The others are rendered for each
// table, except all, check, clock, distributed_citus, overrides and version.
//
//go:embed sql/*.sql
var files embed.FS

// tableStatements are the rendered statements on one table.
type tableStatements struct {
	take, takes, count                     string // of a file of the table's own
	refund, cancel, release                string // likewise
	read, insert, swap, lock, reset, sweep string
	skip                                   string // lock, unless another session has locked the row
	keyLock                                string // before the statements of settleLocked, and of AllowAll
	add                                    string // of a release, and of a decision over several limits
	clock                                  string // of a decision over several limits
	sample, before, page, remove           string // on Citus, instead of takes, count and sweep

	all map[string]string // sections of the statement for several rows; nil if the kind has none
}

// rendering is what texts depend on, besides the name of the schema.
type rendering struct {
	asyncCommit bool
	citus       bool
	boundsWaits bool // the Store ends the lock waits of its statements itself
}

// tableKey identifies the statements on a table.
type tableKey struct {
	rendering
	kind     limiter.PolicyKind
	calendar bool
}

// rendered has the texts that all Stores of the process share, by [tableKey] and [allKey]. Rendering them
// takes longer than a decision, and a caller may make a Store for each transaction.
var rendered sync.Map

// once returns the text for key. It calls render if no Store of the process has done so.
func once[T any](key any, render func() T) T {
	text, ok := rendered.Load(key)
	if !ok {
		text, _ = rendered.LoadOrStore(key, render())
	}
	return text.(T)
}

// schemaMark stands for the schema in texts that are shared.
const schemaMark = "{schema}"

// inSchema fills in the schema.
func (o *options) inSchema(text string) string {
	return strings.ReplaceAll(text, schemaMark, pgschema.Quote(o.schema))
}

// onTable returns the Store's statements on t.
func (o *options) onTable(t *tables.Table, calendar bool) tableStatements {
	sql := once(tableKey{o.rendering, t.Kind, calendar}, func() tableStatements { return o.statements(t, calendar) })
	for _, text := range []*string{
		&sql.take, &sql.takes, &sql.count, &sql.refund, &sql.cancel, &sql.release,
		&sql.read, &sql.insert, &sql.swap, &sql.lock, &sql.reset, &sql.sweep,
		&sql.skip, &sql.keyLock, &sql.add, &sql.clock, &sql.sample, &sql.before, &sql.page, &sql.remove,
	} {
		*text = o.inSchema(*text)
	}
	return sql
}

// statements returns the statements on t, of a calendar or of the other policies. Those that the kind has no
// file for are empty.
func (r rendering) statements(t *tables.Table, calendar bool) tableStatements {
	n := len(t.Columns)
	state, policy := t.Columns[:n-t.PolicyColumns], t.Columns[n-t.PolicyColumns:]
	zero := func(column string) string {
		if slices.Contains(t.Lists, column) {
			return "ARRAY[]::bigint[]"
		}
		return "0"
	}
	// A list is compared by a function, because others may have an operator for its type.
	unchanged := func(column, parameter string) string {
		if slices.Contains(t.Lists, column) {
			return "pg_catalog.array_eq(" + column + ", " + parameter + ")"
		}
		return column + " = " + parameter
	}
	both := []string{
		"/* columns */", strings.Join(t.Columns, ", "),
		"/* columns or 0 */", each(t.Columns, ", ", func(_ int, c string) string { return "coalesce(b." + c + ", " + zero(c) + ")" }),
		"/* state = 0 */", each(state, ", ", func(_ int, c string) string { return c + " = " + zero(c) }),
		"/* new */", each(t.Columns, ", ", func(i int, c string) string { return parameter(t, c, 3+i) }),
		"/* unused */", each(state, ", ", func(_ int, c string) string { return zero(c) }) + ", " +
			each(policy, ", ", func(i int, c string) string { return parameter(t, c, 3+i) }),
		"/* unchanged */", each(t.Columns, " AND ", func(i int, c string) string { return unchanged(c, parameter(t, c, 3+n+i)) }),
		"/* end */", t.Render(t.End, false),
	}
	// A rendered text names the table for its rows, and for the advisory lock of a key.
	ofTable := func(text string) string { return strings.ReplaceAll(text, "/* table */", schemaMark+"."+t.Name) }
	shared := func(file string, pairs ...string) string { return ofTable(r.text(file, append(pairs, both...)...)) }
	own := func(file string) string { return ofTable(r.render(oneBranch(readFile(t.Prefix+"_"+file), calendar))) }
	texts := tableStatements{
		refund: own("refund"), cancel: own("cancel"), release: own("release"),
		read: shared("read"), insert: shared("insert"), swap: shared("swap"), lock: shared("lock", "/* skip */", ""),
		keyLock: shared("key_lock"), add: shared("add"), reset: shared("reset"), clock: r.text("clock"),
		all: r.sections("all_"+t.Prefix, calendar),
	}
	if texts.release == "" { // leases are no claims of AllowAll
		texts.skip = shared("lock", "/* skip */", r.skipLocked())
	}
	if r.citus {
		texts.refund, texts.cancel = withoutClock(texts.refund), withoutClock(texts.cancel)
		texts.take, texts.read = own("take_citus"), shared("read_citus")
		texts.lock = shared("lock_citus")
		texts.skip = texts.lock
		texts.sample, texts.before = shared("sample_citus"), shared("before_citus")
		texts.page, texts.remove = shared("page_citus"), shared("remove_citus")
		return texts
	}
	texts.take, texts.takes, texts.count = own("take"), own("takes"), own("count")
	texts.sweep = shared("sweep")
	return texts
}

// nameOf returns the name of a table with its schema.
func (o *options) nameOf(t *tables.Table) string { return pgschema.Quote(o.schema) + "." + t.Name }

// tableNames returns the names of all tables with their schema.
func (o *options) tableNames() []string { return convert(tables.All, o.nameOf) }

// checkText renders the statement of [Store.Check].
func (o *options) checkText() string {
	every := o.tableNames()
	for i, t := range tables.All {
		every[i] = fmt.Sprintf("NOT EXISTS (SELECT limiter, key, %s, granted FROM %s WHERE false)", strings.Join(t.Columns, ", "), every[i])
	}
	return o.inSchema(o.text("check", "/* every table */", strings.Join(every, "\nAND ")))
}

// clock matches the CTE that reads the clock, unless the operation has its own time.
var clock = regexp.MustCompile(`(?s)WITH clock AS MATERIALIZED \(\s*SELECT coalesce\((\$\d::bigint), .*? AS at, true AS bounded\s*\)\s*`)

// withoutClock removes that CTE, for which Citus would open a transaction and copy its row to the
// worker. The operation must have a time.
func withoutClock(text string) string {
	if text == "" {
		return ""
	}
	at := clock.FindStringSubmatch(text)[1]
	return strings.NewReplacer("FROM clock\n", "", "clock.at", at).Replace(clock.ReplaceAllString(text, ""))
}

// branches matches the parts of a text that differ between fixed windows and calendars.
var branches = regexp.MustCompile(`(?s)/\* if fixed \*/(.*?)/\* if calendar \*/(.*?)/\* end if \*/`)

// oneBranch returns the text for a calendar, or that for a fixed window.
func oneBranch(text string, calendar bool) string {
	if calendar {
		return branches.ReplaceAllString(text, "${2}")
	}
	return branches.ReplaceAllString(text, "${1}")
}

// eitherBranch returns a text that decides by start, which is -1 for a fixed window. What is only for a
// calendar stays a branch.
func eitherBranch(text, start string) string {
	return branches.ReplaceAllStringFunc(text, func(both string) string {
		if of := branches.FindStringSubmatch(both); of[1] != "" {
			return "CASE WHEN " + start + " < 0 THEN " + of[1] + " ELSE " + of[2] + " END"
		}
		return both
	})
}

// comments matches the comments at the head of the files.
var comments = regexp.MustCompile(`(?m)^\s*--.*\n`)

// text renders a file: see [rendering.render].
func (r rendering) text(file string, pairs ...string) string {
	return r.render(readFile(file), pairs...)
}

// readFile returns a file of directory sql. It returns "" if there is none: a kind has few files that it
// needs.
func readFile(file string) string {
	b, _ := files.ReadFile("sql/" + file + ".sql")
	return string(b)
}

// lockMarks matches the markers of lock waits and the word after them, and parameterRefs a parameter.
var (
	lockMarks     = regexp.MustCompile(`/\* (lock_timeout|key_lock|keys_lock|try_lock) \*/([a-z0-9$:]+)`)
	parameterRefs = regexp.MustCompile(`\$(\d+)`)
)

// boundLockWait makes a statement set its own lock_timeout from one more parameter. NULL leaves the
// session's. The server evaluates the marked word, and with it the setting, before the statement locks
// anything. A marker key_lock or keys_lock adds a second parameter: how long the statement may wait for the
// advisory lock of its key. With NULL it takes no such lock. With try_lock, a statement for which that parameter
// is not NULL takes the lock if it is free, and otherwise changes nothing. See [Store.bounded].
func (r rendering) boundLockWait(text string) string {
	if !r.boundsWaits {
		return lockMarks.ReplaceAllString(text, "${2}")
	}
	last := 2 // the limiter and the key
	for _, ref := range parameterRefs.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(ref[1])
		last = max(last, n)
	}
	bound := func(timeout, word string) string {
		return fmt.Sprintf("CASE WHEN pg_catalog.set_config('lock_timeout', "+
			"coalesce(%s::text, pg_catalog.current_setting('lock_timeout')), true) IS NOT NULL THEN %s END", timeout, word)
	}
	return lockMarks.ReplaceAllStringFunc(text, func(marked string) string {
		mark := lockMarks.FindStringSubmatch(marked)
		wait := fmt.Sprintf("$%d::bigint", last+2)
		if mark[1] == "try_lock" {
			return "(" + wait + " IS NULL OR pg_catalog.pg_try_advisory_xact_lock(" + keyID + "))"
		}
		word := bound(fmt.Sprintf("$%d", last+1), mark[2])
		if mark[1] != "lock_timeout" {
			word = bound(wait, "CASE WHEN "+wait+" IS NULL OR "+keyLock+" THEN "+word+" END")
		}
		if mark[1] == "keys_lock" {
			word = strings.NewReplacer("$1::text", "($1::text[])[1]", "$2::bytea", "($2::bytea[])[1]").Replace(word)
		}
		return word
	})
}

// keyLock takes the advisory lock of a key until the statement's transaction ends; keyID is the number of that
// lock. A statement for several keys takes none.
const (
	keyLock = "pg_catalog.pg_advisory_xact_lock(" + keyID + ") IS NOT NULL"
	keyID   = "pg_catalog.hashtextextended(pg_catalog.encode($2::bytea, 'hex'), " +
		"pg_catalog.hashtextextended($1::text, pg_catalog.hashtextextended('/* table */', 0)))"
)

// skipLocked returns the end of a FOR UPDATE that must not wait for a locked row. It is empty on Citus
// and in the caller's transaction, where the statement waits.
func (r rendering) skipLocked() string {
	if !r.boundsWaits {
		return ""
	}
	return " SKIP LOCKED"
}

// withoutFlush makes the statement's own transaction not wait until its commit is on disk.
const withoutFlush = " FROM pg_catalog.set_config('synchronous_commit', 'off', true)"

// render replaces pairs and the way to commit in a text, and removes comments. The schema is [schemaMark].
func (r rendering) render(text string, pairs ...string) string {
	commit := ""
	if r.asyncCommit {
		commit = withoutFlush
	}
	fill := strings.NewReplacer(append(pairs, "/* schema */", schemaMark+".",
		"/* commit */", commit)...)
	return r.boundLockWait(strings.TrimSpace(fill.Replace(comments.ReplaceAllString(text, ""))))
}

// each returns a list with one element for each column.
func each(columns []string, separator string, element func(i int, column string) string) string {
	list := make([]string, len(columns))
	for i, c := range columns {
		list[i] = element(i, c)
	}
	return strings.Join(list, separator)
}

// parameter returns the parameter n for a column.
func parameter(t *tables.Table, column string, n int) string {
	if slices.Contains(t.Lists, column) {
		return fmt.Sprintf("$%d::bigint[]", n)
	}
	return fmt.Sprintf("$%d::bigint", n)
}
