package main

// policies are bugs of the math.
var policies = []Mutant{
	{
		Name:  "refusals-stop-the-refill",
		Bug:   "a refusal resets the time of the last refill, so a polling client never gets a token back",
		Found: []string{"https://github.com/svix/diom/pull/115"},
		Edits: []Edit{{
			"bucket.go",
			"	if b.refuses(op, &s.Row, now) {\n		return\n	}\n	s.Row.FullAt",
			"	if step := int64(b.Step()); b.refuses(op, &s.Row, now) {\n		row.FullAt = now + (max(0, row.FullAt-now)+step-1)/step*step\n		return\n	}\n	s.Row.FullAt",
		}},
		Check: Check{Package: "./memory", Run: "^TestStore$/^refill$", Says: "passed in 90 intervals after the burst, want 90"},
	},
	{
		Name:  "refill-in-whole-tokens",
		CI:    true,
		Bug:   "a take drops the fraction of a token that has refilled",
		Found: []string{"https://github.com/firecracker-microvm/firecracker/pull/3370", "https://github.com/attune-io/attune/issues/739"},
		Edits: []Edit{{
			"bucket.go",
			"	s.Row.FullAt = max(s.Row.FullAt, now) + op.Cost*int64(b.Step())",
			"	step := int64(b.Step())\n	s.Row.FullAt = now + ((max(0, s.Row.FullAt-now)+step-1)/step+op.Cost)*step",
		}},
		Check: Check{Package: "./memory", Run: "^TestStore$/^refill$", Says: "passed in 90 intervals after the burst, want 90"},
	},
	{
		Name: "refill-rounded-up",
		Bug:  "the time of a token is rounded down, which gives more tokens than were asked for",
		Edits: []Edit{{
			"bucket.go",
			"return (b.Interval-1)/time.Duration(b.Refill) + 1", "return b.Interval / time.Duration(b.Refill)",
		}},
		Check: Check{Package: "./memory", Run: "^TestStore$/^vectors$", Says: "want {\"allowed\":true,\"limit\":1000,\"remaining\":999,\"used\":0,\"retry_after\":0,\"reset_after\":666666667}"},
	},
	{
		Name:  "bucket-refuses-the-last",
		Bug:   "a bucket refuses a take that would empty it",
		Found: []string{"https://github.com/nerves-hub/nerves_hub_web/pull/1161"},
		Edits: []Edit{{
			"bucket.go",
			"return b.late(row.FullAt, op.Cost, now) > int64(op.MaxWait)", "return b.late(row.FullAt, op.Cost, now) >= int64(op.MaxWait)",
		}},
		Check: Check{Package: "./memory", Run: "^TestStore$/^decisions$", Says: "want {Allowed:true Limit:5 Remaining:0"},
	},
	{
		Name:  "cost-overflows",
		Bug:   "a large cost overflows and passes",
		Found: []string{"https://github.com/redis/redis/pull/14826"},
		Edits: []Edit{{"limiter.go", "	if n > l.policy.limit() {", "	if n > l.policy.limit() && n < 1<<40 {"}},
		Check: Check{Package: "./memory", Run: "^TestStore$/^decisions$", Says: "want ErrExceedsCapacity"},
	},
	{
		Name:  "cost-negative",
		Bug:   "a negative cost fills the bucket",
		Found: []string{"https://github.com/alisaifee/limits/pull/362", "https://github.com/songzhibin97/gkit/pull/133"},
		Edits: []Edit{{"limiter.go", "	if n < 0 {\n		return invalid(\"the cost is", "	if n < -1<<40 {\n		return invalid(\"the cost is"}},
		Check: Check{Package: "./memory", Run: "^TestStore$/^decisions$", Says: "AllowN(-1) = {Allowed:true"},
	},
	{
		Name:  "retry-after-too-early",
		Bug:   "the wait is rounded down, so a caller that waits for it is refused again",
		Found: []string{"https://github.com/brandur/redis-cell/issues/56"},
		Edits: []Edit{{"result.go", "	return ns - ns%tick + tick", "	return ns - ns%tick"}},
		Check: Check{Package: "./postgres", Run: "^TestRetryAfter_is_tight_to_the_microsecond$", Says: "Took = false, want true"},
	},
	{
		Name:  "policy-change-fills-the-bucket",
		Bug:   "a policy change gives every key a full bucket",
		Edits: []Edit{{"bucket.go", "		left = min(left, q)", "		_ = q"}},
		Check: Check{Package: "./memory", Run: "^TestStore$/^policy_changes$", Says: "want {Allowed:true Limit:100 Remaining:5"},
	},
	{
		Name:  "policy-change-drops-bookings",
		Bug:   "a policy change forgets bookings",
		Edits: []Edit{{"bucket.go", "		return row.FullAt - was + reach", "		return now + reach"}},
		Check: Check{Package: "./memory", Run: "^TestStore$/^policy_changes$", Says: "Delay 500ms, want true, 2.5s"},
	},
}

// clocks are bugs that a clock that is set makes visible.
var clocks = []Mutant{
	{
		Name:  "clock-step-freezes-keys",
		Bug:   "after a step back of the clock, keys stay refused until it has caught up",
		Found: []string{"https://github.com/ProfessionalWiki/MediaWiki-MCP-Server/issues/557"},
		Edits: []Edit{{"bucket.go", "	if row.At > now+op.Tolerance(*row) {", "	if row.At > now+op.Tolerance(*row)+1<<60 {"}},
		Check: Check{Package: "./memory", Run: "^TestStore$/^clock_steps$", Says: "after the clock was set back by 3s: RetryAfter 4s, want 1s"},
		Also:  []Check{harness("TestStepsOfTheServersClockGrantNothingAndLockNobodyOut$/^clock_steps_between_statements", "a take is to come back in")},
	},
	{
		Name:  "clock-step-fills-buckets",
		Bug:   "a step back of the clock fills every bucket",
		Edits: []Edit{{"bucket.go", "		row.FullAt = max(0, now+row.FullAt-row.At)", "		row.FullAt = now"}},
		Check: Check{Package: "./memory", Run: "^TestStore$/^clock_steps$", Says: "after the clock was set back by 3s: AllowN(1) = {Allowed:true"},
		Also:  []Check{harness("TestStepsOfTheServersClockGrantNothingAndLockNobodyOut$/^clock_steps_between_statements", "over-admitted: ")},
	},
	{
		Name:  "clock-step-unseen-in-SQL",
		CI:    true,
		Bug:   "the hot statement decides on a row that lies ahead of its clock",
		Edits: []Edit{{"postgres/sql/bucket_take.sql", "\n      AND b.at <= excluded.at + 2000000000", ""}},
		Check: Check{Package: "./postgres", Run: "^TestStore$/^postgres/^connection$/^clock_steps$", Says: "back: a take"},
	},
	{
		Name:  "delay-on-the-rows-clock",
		Bug:   "after a small step back a reservation counts its delay from the row's clock, and acts inside a full window",
		Edits: []Edit{{"window.go", "	d := max(0, s.Row.Start-s.Now)", "	d := max(0, s.Row.Start-s.clock())"}},
		Check: Check{Package: "./memory", Run: "^TestStore$/^clock_steps$", Says: "Delay 500ms, want 990ms"},
	},
	{
		Name: "waits-on-the-rows-clock-in-SQL",
		Bug:  "a refusal reports the row's clock as its own, so RetryAfter is too short after a small step back",
		Edits: []Edit{{
			"postgres/sql/window_take.sql",
			"SELECT 0, at, window_start, used, row_at FROM unfit", "SELECT 0, greatest(at, row_at), window_start, used, row_at FROM unfit",
		}},
		Check: Check{Package: "./postgres", Run: "^TestStore$/^postgres/^connection$/^clock_steps$", Says: "want {Allowed:false Limit:100"},
	},
	{
		Name:  "clock-of-the-transaction",
		Bug:   "the clock is read at the start of the transaction and does not advance in it",
		Edits: []Edit{{"postgres/sql/bucket_take.sql", "pg_catalog.clock_timestamp()", "pg_catalog.now()"}},
		Check: Check{Package: "./postgres", Run: "^TestClock_goes_on_within_a_transaction$", Says: "before it began"},
	},
	{
		Name: "clock-in-milliseconds",
		Bug:  "the database's clock is truncated to milliseconds",
		Edits: []Edit{{
			"postgres/sql/bucket_take.sql",
			"* 1000000::double precision)::bigint * 1000)", "* 1000::double precision)::bigint * 1000000)",
		}},
		Check: Check{Package: "./postgres", Run: "^TestClock_has_all_microseconds$", Says: "whole milliseconds"},
	},
	{
		Name: "clock-of-the-application",
		Bug:  "the application's clock decides instead of the database's",
		Edits: []Edit{{
			"postgres/args.go",
			"c.args = append(c.args, nil)", "c.add(time.Now().UnixNano())",
		}, {"postgres/args.go", "import (\n", "import (\n	\"time\"\n"}},
		Check: Check{Package: "./postgres", Run: "^TestClock_is_the_databases$", Says: "want the server's"},
		Also:  []Check{harness("TestHistoriesOnPostgreSQL", "the store's clock was ")},
	},
}

// giveBacks are bugs of refunds and cancels.
var giveBacks = []Mutant{
	{
		Name: "refund-under-bookings",
		Bug:  "a refund gives back booked time",
		Edits: []Edit{{
			"bucket.go",
			"if row.FullAt > now && row.FullAt <= now+row.Limit*row.Period {", "if row.FullAt > now {",
		}},
		Check: Check{Package: "./memory", Run: "^TestStore$/^give_back$", Says: "Refund(1) at 999.999999ms = true, <nil>, want false"},
	},
	{
		Name: "refund-of-a-window-ahead",
		Bug:  "a refund credits a later window that is booked",
		Edits: []Edit{{
			"window.go",
			"if row.Used > 0 && row.Start <= clock && row.Start+row.Period > clock &&", "if row.Used > 0 && row.Start+row.Period > clock &&",
		}},
		Check: Check{Package: "./memory", Run: "^TestStore$/^give_back$", Says: "Refund(2) at 0s = true, <nil>, want false"},
	},
	{
		Name: "late-refund-credits-a-later-window",
		Bug:  "a refund after the end of the charged window credits the next window",
		Edits: []Edit{{
			"postgres/sql/window_refund.sql",
			"  AND ($5::bigint = 0 OR b.win = $5::bigint AND b.window_start = $6::bigint)\n", "  AND ($5::bigint = 0 OR $6::bigint >= 0)\n",
		}},
		Check: Check{Package: "./postgres", Run: "^TestStore$/^postgres/^connection$/^give_back$", Says: "at 10s = true, <nil>, want false"},
	},
	{
		Name:  "refund-of-an-unused-key",
		Bug:   "a refund of a bucket that has refilled by itself reports that it gave something back",
		Edits: []Edit{{"postgres/sql/bucket_refund.sql", "  AND b.full_at > clock.at\n", ""}},
		Check: Check{Package: "./postgres", Run: "^TestStore$/^postgres/^connection$/^give_back$", Says: "= true, <nil>, want false"},
	},
	{
		Name:  "cancel-under-bookings",
		Bug:   "a booking is canceled although others were made behind it",
		Edits: []Edit{{"bucket.go", "if row.FullAt == op.Booked.Row.FullAt &&", "if row.FullAt >= op.Booked.Row.FullAt &&"}},
		Check: Check{Package: "./memory", Run: "^TestStore$/^give_back$", Says: "a second booking for 2s"},
	},
	{
		Name:  "cancel-too-late",
		Bug:   "a booking is canceled after the instant at which it was acted on",
		Edits: []Edit{{"postgres/sql/bucket_cancel.sql", "\n  AND clock.at <= $7::bigint", "\n  AND $7::bigint > 0"}},
		Check: Check{Package: "./postgres", Run: "^TestOperations_on_any_row$", Says: ": {Kind:4 "},
	},
	{
		Name: "refund-applied-twice",
		Bug:  "a refund is applied twice",
		Edits: []Edit{{
			"sqlite/do.go",
			"	next, state := op.Apply(row, now)\n	if next != row {",
			"	next, state := op.Apply(row, now)\n	if op.Kind == limiter.OpRefund {\n		next, state = op.Apply(next, now)\n	}\n	if next != row {",
		}},
		Check: harness("TestHistoriesOnSQLite", "given back by nobody, or twice"),
	},
	{
		Name: "cancel-gives-back-too-much",
		Bug:  "a cancel gives back one more than was charged",
		Edits: []Edit{{
			"sqlite/do.go",
			"	next, state := op.Apply(row, now)\n	if next != row {",
			"	next, state := op.Apply(row, now)\n	if op.Kind == limiter.OpCancel && state.Took {\n		next.FullAt, next.Used = max(0, next.FullAt-row.Period), max(0, next.Used-1)\n	}\n	if next != row {",
		}},
		Check: harness("TestHistoriesOnSQLite", "given back by nobody, or twice"),
	},
	{
		Name: "refund-sent-twice",
		CI:   true,
		Bug:  "a refund of unknown outcome is retried",
		Edits: []Edit{
			{
				"internal/sqlstore/retry.go",
				"!errors.Is(err, limiter.ErrNotApplied) || errors.Is(err, limiter.ErrOutcomeUnknown) || !r.Again(err)", "errors.Is(err, limiter.ErrCanceled)",
			},
		},
		Check: Check{
			Package: "./postgres", Run: "^TestGiving_back_that_is_terminated_in_mid_statement_is_not_sent_again$",
			Says: "was carried out by somebody",
		},
	},
}
