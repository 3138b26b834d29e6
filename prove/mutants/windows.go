package main

// windows are bugs of the statements that count in a fixed window.
var windows = []Mutant{
	{
		Name: "window-decided-in-a-subquery",
		Bug:  "whether a request fits into its window is read in a subquery, before the row was locked",
		Edits: []Edit{{
			"postgres/sql/window_take.sql",
			`OR CASE WHEN b.used + excluded.used <= b.lim THEN b.window_start ELSE b.window_start + b.win END
           <= greatest`,
			`OR CASE WHEN (SELECT s.used FROM /* schema */limiter_fixed_windows AS s WHERE s.limiter = $1::text AND s.key = $2::bytea)
                + excluded.used <= b.lim THEN b.window_start ELSE b.window_start + b.win END
           <= greatest`,
		}},
		Check: Check{Package: "./postgres", Run: "^TestWindow_edge_that_passes_while_takes_wait_for_the_row$", Says: "Took = true, want false"},
	},
	{
		Name: "window-reopened",
		Bug:  "a statement whose clock was read before the edge reopens the old window",
		Edits: []Edit{{
			"postgres/sql/window_take.sql",
			"WHEN b.window_start < excluded.window_start THEN excluded.window_start", "WHEN b.window_start <> excluded.window_start THEN excluded.window_start",
		}},
		Check: Check{Package: "./postgres", Run: "^TestWindow_edge_that_passes_while_takes_wait_for_the_row$", Says: "used in window"},
	},
	{
		Name:  "window-keeps-its-count",
		Bug:   "a new window begins with the count of the one before",
		Found: []string{"https://github.com/express-rate-limit/rate-limit-redis/issues/216"},
		Edits: []Edit{{
			"postgres/sql/window_take.sql",
			"WHEN b.window_start >= excluded.window_start AND b.used + excluded.used <= b.lim THEN b.used + excluded.used",
			"WHEN b.used + excluded.used <= b.lim THEN b.used + excluded.used",
		}},
		Check: Check{Package: "./postgres", Run: "^TestOperations_on_any_row$", Says: "want {"},
	},
	{
		Name:  "window-refuses-the-last",
		Bug:   "with a limit of n, only n - 1 requests pass",
		Found: []string{"https://github.com/akira-io/laravel-sisp/issues/113"},
		Edits: []Edit{{"window.go", "if row.Used+cost <= w.Limit {", "if row.Used+cost < w.Limit {"}},
		Check: Check{Package: "./memory", Run: "^TestStore$/^windows$", Says: "want it to pass"},
	},
	{
		Name:  "window-passes-one-more",
		CI:    true,
		Bug:   "with CountRejected, the limit is compared with the count before the request",
		Found: []string{"https://github.com/api7/aisix/issues/950"},
		Edits: []Edit{{
			"postgres/sql/window_count.sql",
			"AND b.used <= b.lim THEN 1", "AND b.used - $5::bigint <= b.lim THEN 1",
		}},
		Check: Check{Package: "./postgres", Run: "^TestSingleTakeSendsOneStatement$", Says: "a take after others took the rest"},
	},
	{
		Name: "window-count-overflows",
		Bug:  "the count of refused requests exceeds the range of the column",
		Edits: []Edit{{
			"window.go",
			"s.Row.Used = min(s.Row.Used+op.Cost, maxUsed)", "s.Row.Used += op.Cost",
		}},
		Check: Check{Package: "./memory", Run: "^TestStore$/^decisions$", Says: "want it refused, Used 4611686018427387904"},
	},
	{
		Name:  "window-count-of-32-bits",
		Bug:   "a window's count is a 32-bit integer",
		Found: []string{"https://github.com/systemd/systemd/pull/27342"},
		Edits: []Edit{{
			"migrations/postgres/00001_create_limiter_tables.sql",
			"    used         bigint           NOT NULL,", "    used         integer          NOT NULL,",
		}},
		Check: Check{Package: "./postgres", Run: "^TestStore$/^postgres/^connection$/^decisions$", Says: "out of range"},
	},
}
