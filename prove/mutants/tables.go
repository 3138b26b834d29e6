package main

// tables are bugs of the tables and of what they are asked for.
var tables = []Mutant{
	{
		Name: "tables-unlogged",
		CI:   true,
		Bug:  "the tables are UNLOGGED, so a crash of the server loses all takes",
		Edits: []Edit{{
			"migrations/postgres/00001_create_limiter_tables.sql",
			"CREATE TABLE /* schema */limiter_token_buckets", "CREATE UNLOGGED TABLE /* schema */limiter_token_buckets",
		}},
		Check: harness("TestAClusterThatIsKilledForgetsNothingThatItAcknowledged", "acknowledged takes lost"),
	},
	{
		Name:  "commits-asynchronous",
		Bug:   "takes are acknowledged before they are on disk, without WithAsyncCommit",
		Edits: []Edit{{"postgres/statements.go", "	if o.asyncCommit {", "	if o.asyncCommit || true {"}},
		Check: Check{Package: "./postgres", Run: "^TestAsyncCommit_is_for_the_takes_alone$", Says: "committed with off, want on"},
		Also:  []Check{harness("TestAClusterThatIsKilledForgetsNothingThatItAcknowledged", "acknowledged takes lost: ")},
	},
	{
		Name:  "column-of-reals",
		Bug:   "an instant is stored as a floating-point number, which cannot hold its nanoseconds",
		Edits: []Edit{{"migrations/sqlite/00001_create_limiter_tables.sql", "    full_at  INTEGER NOT NULL,", "    full_at  REAL    NOT NULL,"}},
		Check: Check{Package: "./sqlite", Run: "^TestOperationsOnAnyRow$", Says: "a column is not an integer"},
	},
	{
		Name: "table-not-strict",
		Bug:  "SQLite stores an overflowed integer as a real, and accepts text in any column",
		Edits: []Edit{{
			"migrations/sqlite/00001_create_limiter_tables.sql",
			"buckets_granted_check CHECK (granted >= 0)\n) STRICT,", "buckets_granted_check CHECK (granted >= 0)\n)",
		}},
		Check: Check{Package: "./migrations", Run: "^TestSQLiteColumnsRejectOtherTypes$", Says: "takes 1.5"},
	},
	{
		Name:  "tables-adopted-unseen",
		Bug:   "tables that lack a constraint are recorded as migrated",
		Edits: []Edit{{"migrations/layout.go", "{ return d.wanted || d.kind != kindParameter }", "{ return d.kind != kindConstraint && d.kind != kindParameter }"}},
		Check: Check{Package: "./migrations", Run: "^TestUpSaysWhatDiffersAndLeavesNoTrace$/^sqlite$", Says: "Up: <nil>, want ErrMisconfigured"},
	},
	{
		Name:  "schema-by-the-search-path",
		Bug:   "a table is found by search_path, which may lead to another user's table",
		Edits: []Edit{{"postgres/sql/look.sql", "LEFT JOIN /* table */", "LEFT JOIN limiter_token_buckets"}},
		Check: Check{Package: "./postgres", Run: "^TestSession_settings_do_not_change_any_answer$", Says: "column b.limiter does not exist"},
	},
	{
		Name:  "schema-in-the-text",
		Bug:   "any string is accepted as the name of a schema in statements",
		Found: []string{"https://github.com/vutran1710/PyrateLimiter/pull/286"},
		Edits: []Edit{{"internal/pgschema/pgschema.go", "	if pattern.MatchString(name) {", "	if len(name) < 1<<20 {"}},
		Check: Check{Package: "./internal/pgschema", Run: "^TestCheck$", Says: "want good false"},
	},
	{
		Name:  "key-in-the-text",
		Bug:   "a key is put into the text of a statement",
		Found: []string{"https://github.com/vutran1710/PyrateLimiter/pull/287"},
		Edits: []Edit{{
			"postgres/table.go",
			"		return t.sql.reset, args",
			"		return strings.Replace(t.sql.reset, \"$2::bytea\", \"coalesce(nullif($2::bytea, $2::bytea), '\"+op.Key+\"')\", 1), args",
		}, {"postgres/table.go", "import (\n	\"context\"\n", "import (\n	\"context\"\n	\"strings\"\n"}},
		Check: Check{Package: "./postgres", Run: "^TestStore$/^postgres/^connection$/^keys$", Says: "Reset at 0s: limiter"},
	},
	{
		Name:  "operator-of-somebody-else",
		Bug:   "an operator is called with types that another user's operator fits better",
		Edits: []Edit{{"postgres/sql/bucket_take.sql", "* 1000000::double precision)", "* 1000000)"}},
		Check: Check{Package: "./postgres", Run: "^TestStatements_use_the_operators_of_pg_catalog_alone$", Says: "bucketTake: ERROR"},
	},
}

// sweeps are bugs of removing what has expired.
var sweeps = []Mutant{
	{
		Name:  "sweep-forgets-the-first-window",
		Bug:   "a window that starts at 1970 counts as reset, and is swept while it runs",
		Edits: []Edit{{"sqlite/table.go", "window_start > 0 OR used > 0", "window_start > 0"}},
		Check: Check{Package: "./sqlite", Run: "^TestStoreWhoseClockIsSteppedBack$/^the_first_day_of_time$", Says: "want it to be refused"},
	},
	{
		Name:  "sweep-removes-what-counts",
		Bug:   "a sweep deletes buckets by their last use, although they are not full again",
		Found: []string{"https://github.com/hpcloud/tail/pull/105"},
		Edits: []Edit{
			{"postgres/sql/sweep.sql", "greatest(/* end */, at) AS", "at AS"},
			{"postgres/sql/sweep.sql", "greatest(/* end */, at) <=", "b.at <="},
		},
		Check: Check{Package: "./postgres", Run: "^TestSweep_removes_what_expired_an_hour_ago_and_nothing_else$", Says: "rows are left, want 1511 each"},
	},
	{
		Name:  "sweep-does-not-look-again",
		CI:    true,
		Bug:   "a sweep deletes a row that was charged after the sweep had read it",
		Edits: []Edit{{"postgres/sql/sweep.sql", "\n      AND greatest(/* end */, at) <= clock.now - $5::bigint", "\n      AND clock.now > $5::bigint"}},
		Check: Check{Package: "./postgres", Run: "^TestSweep_keeps_a_row_that_is_taken_from_while_it_is_under_way$", Says: "the row that was taken from is gone"},
	},
	{
		Name:  "sweep-of-what-was-just-used",
		Bug:   "a sweep of SQLite deletes rows that expired less than an hour ago",
		Edits: []Edit{{"sqlite/sweep.go", "	before := now - int64(limiter.SweepGrace)", "	before := now - int64(limiter.SweepGrace)>>30"}},
		Check: harness("TestHistoriesOnSQLite", "removed too soon"),
	},
	{
		Name:  "sweep-always-from-the-first-row",
		Bug:   "each sweep starts at the first row, and one that is too short never reaches the last",
		Edits: []Edit{{"internal/sqlstore/sweep.go", "at, begun := s.places[table]", "at, begun := Cursor{}, true"}},
		Check: Check{Package: "./internal/sqlstore", Run: "^TestSweep_that_is_always_too_short_deletes_every_expired_row_in_the_end$", Says: "calls left 1000 and"},
	},
	{
		Name:  "sweep-without-grace",
		Bug:   "a sweep deletes a row as soon as it expires, and a take with an older clock recreates it in the past",
		Edits: []Edit{{"store.go", "return end <= now-int64(SweepGrace)", "return end <= now"}},
		Check: Check{Package: "./memory", Run: "^TestStore$/^sweep$", Says: "Sweep removed 2 rows, want 0"},
	},
}
