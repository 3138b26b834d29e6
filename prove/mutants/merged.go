package main

// merged are bugs of the statements that take from many keys at once.
var merged = []Mutant{
	{
		Name: "merged-cold-key-unclamped",
		Bug:  "concurrent takes of an unused key are all granted",
		Edits: []Edit{{
			"postgres/sql/bucket_takes.sql",
			"least(a.units, a.capacity * a.step / a.spend) AS units", "a.units",
		}},
		Check: Check{Package: "./postgres", Run: "^TestTakes_that_go_together_on_any_row$", Says: " times {Kind:"},
	},
	{
		Name: "merged-all-granted",
		Bug:  "if one of several merged takes is granted, all are reported as granted",
		Edits: []Edit{{
			"postgres/sql/bucket_takes.sql",
			"granted = least(a.units, (a.at + b.capacity * b.step - greatest(b.full_at, a.at)) / a.spend)", "granted = a.units",
		}},
		Check: Check{Package: "./postgres", Run: "^TestTakes_that_go_together_on_any_row$", Says: " times {Kind:"},
	},
	{
		Name: "merged-by-a-snapshot",
		CI:   true,
		Bug:  "the number of merged takes to grant is read before the row is locked",
		Edits: []Edit{
			{
				"postgres/sql/bucket_takes.sql",
				"            + least(a.units, (a.at + b.capacity * b.step - greatest(b.full_at, a.at)) / a.spend) * a.spend,",
				"            + least(a.units, (a.at + a.capacity * a.step - greatest(a.full_at, a.at)) / a.spend) * a.spend,",
			},
			{
				"postgres/sql/bucket_takes.sql",
				"granted = least(a.units, (a.at + b.capacity * b.step - greatest(b.full_at, a.at)) / a.spend)",
				"granted = least(a.units, (a.at + a.capacity * a.step - greatest(a.full_at, a.at)) / a.spend)",
			},
			{
				"postgres/sql/bucket_takes.sql",
				"AND greatest(b.full_at, a.at) + a.spend <= a.at + b.capacity * b.step\n    RETURNING",
				"AND greatest(a.full_at, a.at) + a.spend <= a.at + a.capacity * a.step\n    RETURNING",
			},
		},
		Check: Check{Package: "./postgres", Run: "^TestTakes_that_go_together_count_what_was_taken_while_they_waited$", Says: "want the 1 that was left"},
	},
	{
		Name: "merged-updates-before-it-adds",
		Bug:  "merged takes insert a row while they hold locks on others, so two statements deadlock",
		Edits: []Edit{
			{"postgres/sql/bucket_takes.sql", "SELECT 0::bigint AS i, limiter,", "SELECT i, '', '', granted, at, full_at, at FROM taken\nUNION ALL\nSELECT 0, limiter,"},
			{"postgres/sql/bucket_takes.sql", "FROM added\nUNION ALL\nSELECT i, '', '', granted, at, full_at, at FROM taken\n", "FROM added\n"},
		},
		Check: Check{Package: "./postgres", Run: "^TestTakes_that_go_together_never_wait_for_each_other$", Says: "deadlock detected"},
	},
	{
		Name: "merged-window-over-its-limit",
		Bug:  "merged takes fill a window beyond its limit",
		Edits: []Edit{{
			"postgres/sql/window_takes.sql",
			"THEN b.used + least(a.units, (b.lim - b.used) / a.cost) * a.cost", "THEN b.used + a.units * a.cost",
		}},
		Check: Check{Package: "./postgres", Run: "^TestTakes_that_go_together_on_any_row$", Says: " times {Kind:"},
	},
	{
		Name: "merged-one-more",
		Bug:  "takes that share a SQLite transaction are granted one too many",
		Edits: []Edit{{
			"sqlite/merge.go",
			"		call.Answer(answer(call.Op, state))\n",
			"		state.Took = state.Took || row.Used+call.Op.Cost == row.Limit+1\n		call.Answer(answer(call.Op, state))\n",
		}},
		Check: harness("TestProcessesThatShareAFileAdmitExactly", "over-admitted: "),
	},
	{
		Name: "merged-takes-stored-short",
		Bug:  "one of the equal takes that share a SQLite statement is granted but not stored",
		Edits: []Edit{
			{"sqlite/table.go", "now+units*op.Cost*step", "now+max(1, units-1)*op.Cost*step"},
			{"sqlite/table.go", "units*op.Cost, now, length", "max(1, units-1)*op.Cost, now, length"},
		},
		Check: Check{Package: "./sqlite", Run: "^TestEqualTakesThatMeetAreUnitsOfOneUpsert$", Says: "take 0: "},
	},
	{
		Name:  "merged-not-committed",
		Bug:   "takes of several keys that share a SQLite transaction are answered but not committed",
		Edits: []Edit{{"sqlite/merge.go", "		return commit(ctx, c.tx)", "		if len(groups) > 1 {\n			return nil\n		}\n		return commit(ctx, c.tx)"}},
		Check: Check{Package: "./sqlite", Run: "^TestTakesThatMeetShareATransaction$", Says: " takes were 0 transactions, want 1"},
		Also:  []Check{harness("TestProcessesThatAreKilledForgetNothingThatTheyAcknowledged", "acknowledged takes lost: ")},
	},
	{
		Name: "merged-refuses-too-late",
		Bug:  "in SQLite a take passes if anything at all is left in the bucket",
		Edits: []Edit{{
			"sqlite/sql/bucket_take.sql",
			"  AND max(b.full_at, excluded.at) + excluded.full_at - excluded.at <= ?", "  AND max(b.full_at, excluded.at) < ?",
		}},
		Check: Check{Package: "./sqlite", Run: "^TestEqualTakesThatMeetAreUnitsOfOneUpsert$", Says: "take 41: "},
	},
	{
		Name:  "locked-rows-hold-up-everybody",
		Bug:   "statements that wait for locked rows count as in flight all the time, so two of them block all other keys",
		Edits: []Edit{{"internal/batch/watch.go", "	if q.limits.LockWait == 0 || len(st.groups) != 1 {", "	if q.limits.LockWait >= 0 || len(st.groups) != 1 {"}},
		Check: Check{Package: "./internal/batch", Run: "^TestRowsThatSomebodyHasLockedHoldUpNobodyElse$", Says: "; want it granted"},
	},
	{
		Name:  "locked-rows-hold-up-who-came-along",
		Bug:   "after a statement with several locked rows, the other rows wait 100 ms for each two of those again",
		Edits: []Edit{{"internal/batch/watch.go", "wait /= 10", "wait /= 1"}},
		Check: Check{Package: "./internal/batch", Run: "^TestRowsThatSomebodyHasLockedHoldUpNobodyElse$", Says: "; want it granted within"},
	},
	{
		Name:  "the-heads-time-for-all",
		Bug:   "when the first waiter times out, all waiters behind it also get a timeout",
		Edits: []Edit{{"internal/batch/lead.go", "if err == nil || ctx.Err() == nil {", "if err == nil || ctx.Err() != nil {"}},
		Check: Check{Package: "./internal/batch", Run: "^TestTheTimeLimitOfTheFirstCallIsNotThatOfTheOthers$", Says: "of the 2 calls behind it took"},
	},
	{
		Name:  "who-left-while-waiting-again-passes",
		Bug:   "a caller who leaves before its second statement gets a failure of the store, which FailOpen lets pass",
		Edits: []Edit{{"internal/sqlstore/limit.go", "		if err := l.Context.Err(); err != nil { // also", "		if err := l.Context.Err(); err != nil && !l.lingers { // also"}},
		Check: Check{Package: "./internal/sqlstore", Run: "^TestAwaitEndsWithTheCaller$", Says: "after a statement, limit 1s: Ended: <nil>"},
	},
}
