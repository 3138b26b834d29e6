package main

// outcomes are bugs in what is made of an error.
var outcomes = []Mutant{
	{
		Name: "lost-answer-is-not-applied",
		Bug:  "a connection that broke after the statement was sent counts as not sent",
		Edits: []Edit{{
			"postgres/errors.go",
			"	default:\n		class = limiter.ErrOutcomeUnknown", "	default:\n		class = limiter.ErrNotApplied",
		}},
		Check: Check{Package: "./postgres", Run: "^TestInterpretError_gives_every_error_its_class$", Says: "EOF, want it to match limiter: outcome unknown"},
		Also:  []Check{harness("TestConnectionsAreCutAtEveryByte", "but it was told map[not applied:1]")},
	},
	{
		Name: "terminated-is-not-applied",
		Bug:  "a backend that was terminated in mid-statement counts as not applied",
		Edits: []Edit{{
			"postgres/errors.go",
			"	case adminShutdown, crashShutdown, completionUnknown:", "	case crashShutdown, completionUnknown:",
		}, {"postgres/errors.go", "cannotConnectNow, idleSession:", "cannotConnectNow, idleSession, adminShutdown:"}},
		Check: Check{
			Package: "./postgres", Run: "^TestBackend_that_is_terminated_in_mid_statement_leaves_the_outcome_unknown$",
			Says: "limiter: not applied: FATAL: terminating connection",
		},
	},
	{
		Name:  "commit-safe-to-retry",
		CI:    true,
		Bug:   "a commit whose answer was lost counts as not sent, as pgx says of the simple protocol",
		Edits: []Edit{{"postgres/tx.go", "func (commitError) SafeToRetry() bool { return false }", "func (commitError) SafeToRetry() bool { return true }"}},
		Check: Check{Package: "./postgres", Run: "^TestCommit_of_a_take_under_the_lock_whose_answer_is_lost_has_an_unknown_outcome$", Says: `matches "limiter: not applied": true, want false`},
	},
	{
		Name: "simple-protocol",
		Bug:  "takes are sent in the simple protocol, in which a lost answer looks like nothing sent",
		Edits: []Edit{{
			"postgres/postgres.go",
			"	case pgx.QueryExecModeSimpleProtocol:\n		return true", "	case pgx.QueryExecModeSimpleProtocol:\n		return false",
		}},
		Check: Check{
			Package: "./postgres", Run: "^TestStatements_are_not_sent_in_the_simple_protocol_that_a_pool_asks_for$",
			Says: "in the simple protocol",
		},
	},
	{
		Name: "bad-input-is-a-failure",
		Bug:  "an error caused by the key or the numbers counts as the store's failure, which FailOpen lets pass",
		Edits: []Edit{{
			"postgres/errors.go",
			"	case \"21\", \"22\", \"23\", \"54\": // the statement's own data\n		return limiter.ErrInvalid, \"\"", "	case \"21\", \"22\", \"23\", \"54\": // the statement's own data\n		return limiter.ErrNotApplied, \"\"",
		}},
		Check: Check{Package: "./postgres", Run: "^TestInterpretError_gives_every_error_its_class$", Says: "(SQLSTATE 22021), want it to match limiter: invalid"},
	},
	{
		Name:  "fail-open-for-any-error",
		Bug:   "FailOpen lets requests pass for every error",
		Edits: []Edit{{"failure.go", "	case l.fail == failClosed || !StoreFailed(cause) || provisional(l.store):", "	case l.fail == failClosed || provisional(l.store):"}},
		Check: Check{Package: ".", Run: "^TestFailOpen_opens_no_door_to_bad_input_or_a_caller_who_left$", Says: "= {Allowed:true"},
	},
	{
		Name: "error-tells-the-key",
		Bug:  "an error's text holds the database's detail, and with it the key",
		Edits: []Edit{{
			"postgres/errors.go",
			"		class, advice = s.classifyState(server)", "		class, advice = s.classifyState(server)\n		advice += server.Detail",
		}},
		Check: Check{Package: "./postgres", Run: "^TestInterpretError_gives_every_error_its_class$", Says: "tells the key"},
	},
}

// connections are bugs of what statements run on.
var connections = []Mutant{
	{
		Name:  "read-only-connection-kept",
		CI:    true,
		Bug:   "after a failover, a connection to a server that is now a replica goes back into the pool",
		Found: []string{"https://github.com/envoyproxy/ratelimit/pull/1191", "https://github.com/formancehq/go-libs/pull/601"},
		Edits: []Edit{{
			"postgres/errors.go",
			"	case readOnlyTransaction, undefinedStatement, duplicateStatement:\n		return true", "	case undefinedStatement, duplicateStatement:\n		return true",
		}},
		Check: Check{Package: "./postgres", Run: "^TestServer_that_is_read_only_loses_its_connection$", Says: "(SQLSTATE 25006)"},
	},
	{
		Name:  "frozen-connection-trusted",
		Bug:   "after a freeze, the store uses a connection that the server closed long ago",
		Found: []string{"https://github.com/brianc/node-postgres/issues/2112", "https://github.com/brianc/node-postgres/issues/2243"},
		Edits: []Edit{{"postgres/thaw.go", "	return rest < 0 || max(rest, idle) > restedFor", "	return rest < 0 || idle > restedFor"}},
		Check: Check{Package: "./postgres", Run: "^TestAfterAFreezeNoConnectionIsHandedOutThatTheServerHasClosed$", Says: "limiter: outcome unknown"},
	},
	{
		Name:  "given-up-connection-holds-its-place",
		Bug:   "a connection to a silent peer goes back to the pool, which waits 15 s to close it",
		Edits: []Edit{{"postgres/release.go", "	if !pg.IsClosed() {", "	if pg != nil {"}},
		Check: Check{
			Package: "./postgres", Run: "^TestConnection_that_was_given_up_leaves_its_pool$",
			Says: "its peer has gone without a word: the connection is in the pool still",
		},
	},
	{
		Name:  "given-up-connection-is-never-released",
		Bug:   "a connection that was given up keeps its place in the pool forever",
		Edits: []Edit{{"postgres/release.go", "	go func() {", "	return\n	go func() {"}},
		Check: Check{
			Package: "./postgres", Run: "^TestConnection_that_was_given_up_leaves_its_pool$",
			Says: ": the connection is in the pool still",
		},
	},
	{
		Name:  "isolation-of-the-database",
		Bug:   "takes run in the isolation level that the database has by default",
		Found: []string{"https://github.com/bucket4j/bucket4j/pull/606"},
		Edits: []Edit{{"postgres/tx.go", "pgx.TxOptions{IsoLevel: pgx.ReadCommitted}", "pgx.TxOptions{}"}},
		Check: Check{
			Package: "./postgres", Run: "^TestPool_whose_transactions_are_stricter_is_asked_for_read_committed_after_the_first_conflict$",
			Says: "takes were committed in",
		},
	},
	{
		Name:  "callers-transaction-committed",
		Bug:   "a COMMIT of the store's own ends the caller's transaction",
		Edits: []Edit{{"postgres/tx.go", "c.PgConn().TxStatus() != 'I' {", "c.PgConn().TxStatus() == 0 {"}},
		Check: Check{Package: "./postgres", Run: "^TestTransaction_on_a_connection_stays_the_callers$", Says: "others see the take before the caller's commit"},
	},
	{
		Name:  "sqlite-snapshot-is-stale",
		Bug:   "a transaction whose snapshot is stale at its first write fails instead of being run again",
		Found: []string{"https://github.com/ovumcy/ovumcy-web/pull/155"},
		Edits: []Edit{{"internal/sqlitecode/sqlitecode.go", "return coder.Code() & 0xff", "return coder.Code()"}},
		Check: Check{Package: "./sqlite", Run: "^TestWhatIsTakenBetweenReadingAndWritingCounts$", Says: "database is locked (517)"},
		Also:  []Check{harness("TestHistoriesOnSQLite", "database is locked (517)")},
	},
	{
		Name:  "sqlite-decided-on-a-snapshot",
		Bug:   "in SQLite a take is decided by a read before the transaction that writes",
		Edits: []Edit{{"sqlite/do.go", "	row, now, err := s.read(ctx, tx, t, &op, key)", "	row, now, err := s.read(ctx, s.reader, t, &op, key)"}},
		Check: Check{Package: "./sqlite", Run: "^TestWhatIsTakenBetweenReadingAndWritingCounts$", Says: "one was granted that somebody else had taken"},
	},
}

// queues are bugs of takes that wait to go out together.
var queues = []Mutant{
	{
		Name: "queue-refuses-too-early",
		Bug:  "a take that was not granted in a merged statement is refused by a clock that was read before the lock",
		Edits: []Edit{{
			"internal/batch/lead.go",
			"				back = append(back, c)\n", "				if err == nil && !c.Undecided {\n					c.finish(nil)\n					continue\n				}\n				back = append(back, c)\n",
		}},
		Check: Check{Package: "./internal/batch", Run: "^TestTakesOfOneKeyMergeAndAreGrantedInTheirOrder$", Says: "want 1, 16 and 6"},
	},
	{
		Name:  "queue-ends-with-a-caller",
		Bug:   "a shared statement is canceled when one of its callers leaves",
		Edits: []Edit{{"internal/batch/lead.go", "context.WithoutCancel(head.ctx)", "head.ctx"}},
		Check: Check{Package: "./internal/batch", Run: "^TestACallerWhoLeavesInMidStatementEndsItForNobody$", Says: "of the others took, want 2"},
	},
	{
		Name:  "queue-mixes-costs",
		Bug:   "takes of different costs are merged, all at the cost of the first",
		Edits: []Edit{{"internal/batch/call.go", "a.Cost == b.Cost && a.MaxWait", "a.MaxWait"}},
		Check: Check{Package: "./postgres", Run: "^TestOperations_of_one_key_that_meet$", Says: "no order explains the answers"},
	},
	{
		Name: "queue-sends-twice",
		Bug:  "merged takes of unknown outcome are sent again one by one",
		Edits: []Edit{{
			"internal/batch/lead.go",
			"&& !errors.Is(err, limiter.ErrOutcomeUnknown)", "&& !errors.Is(err, limiter.ErrInvalid)",
		}},
		Check: Check{Package: "./internal/batch", Run: "^TestWhatMayHaveBeenAppliedIsNotSentAgain$", Says: "5 statements, want 3"},
		Also:  []Check{harness("TestConnectionsAreCutAtEveryByte", "double charges: ")},
	},
	{
		Name: "queue-charges-who-has-left",
		CI:   true,
		Bug:  "a caller who left while it waited is charged",
		Edits: []Edit{{
			"internal/batch/key.go",
			"			case c.left:\n", "",
		}, {
			"internal/batch/key.go",
			"k.waiting[0].left {", "k.waiting[0].left && k.waiting[0].sent {",
		}},
		Check: Check{Package: "./internal/batch", Run: "^TestACallerWhoLeavesWhileItWaitsIsNotCharged$", Says: "sent map["},
	},
	{
		Name:  "queue-fails-together",
		Bug:   "one row that the database rejects fails all takes of the statement",
		Edits: []Edit{{"internal/batch/lead.go", "	retry := err != nil && calls > 1", "	retry := err != nil && calls < 1"}},
		Check: Check{Package: "./internal/batch", Run: "^TestOneBadRowDecidesForNoOther$", Says: "the bad row was sent 1 times, want once with others and once alone"},
	},
	{
		Name:  "queue-passes-busy-keys",
		CI:    true,
		Bug:   "an operation that times out in its key's queue counts as the store's failure, which FailOpen lets pass",
		Edits: []Edit{{"internal/batch/queue.go", "		class = errKeyBusy\n", ""}},
		Check: Check{Package: "./postgres", Run: "^TestBusy_key_that_times_out_in_its_queue_does_not_pass_by_FailOpen$", Says: "want a refusal with ErrKeyBusy"},
	},
	{
		Name:  "queue-lets-a-key-go-twice",
		Bug:   "operations other than plain takes do not queue in the process, and use up the pool",
		Edits: []Edit{{"postgres/postgres.go", "if op.Timeout <= 0 {", "if op.Timeout <= 0 || !merges(&op) {"}},
		Check: Check{Package: "./postgres", Run: "^TestBusy_key_holds_one_connection_whatever_its_callers_do$", Says: "the key holds 2 connections, want 1"},
	},
}
