package main

// breakers are bugs of what keeps operations from a database that does not answer.
var breakers = []Mutant{
	{
		Name: "one-locked-row-closes-the-door",
		Bug:  "one locked row opens the breaker for every key",
		Edits: []Edit{{
			"internal/sqlstore/breaker.go",
			"!b.others && hashOf(op) != b.key || ", "",
		}},
		Check: Check{Package: "./internal/sqlstore", Run: "^TestABreakerThatOneKeyHasOpenedIsOpenForThatKeyAlone$", Says: "it is open for other keys"},
	},
	{
		Name:  "canceled-callers-close-the-door",
		Bug:   "the breaker counts callers who leave as failures of the database",
		Edits: []Edit{{"internal/sqlstore/breaker.go", "	case errors.Is(err, limiter.ErrCanceled), !limiter", "	case !errors.Is(err, limiter.ErrCanceled) && !limiter"}},
		Check: Check{Package: "./internal/sqlstore", Run: "^TestABreakerOpensAfterFiveFailuresInARow$", Says: "callers who left in between: operation 5 was not let through"},
	},
	{
		Name:  "breaker-never-asks-again",
		Bug:   "the breaker never lets a probe through, so it never learns that the database is back",
		Edits: []Edit{{"internal/sqlstore/breaker.go", "passed >= 0 && passed < b.wait {", "passed >= 0 {"}},
		Check: Check{Package: "./internal/sqlstore", Run: "^TestABreakerLetsOneThroughAtATimeThatGetsLonger$", Says: "let through after [], want [50ms"},
	},
	{
		Name:  "breaker-lets-all-through",
		CI:    true,
		Bug:   "when a probe is due, the breaker lets every operation through to a hung database",
		Edits: []Edit{{"internal/sqlstore/breaker.go", "	b.asked, b.wait = now, min(2*b.wait, lastProbe)\n", ""}},
		Check: Check{Package: "./internal/sqlstore", Run: "^TestABreakerLetsOneThroughAtATimeThatGetsLonger$", Says: "let through after [50ms 50ms"},
	},
	{
		Name:  "who-asks-alone-makes-each-probe",
		Bug:   "the next probe of a hung database is due before the last one has failed, so a lone caller waits each time",
		Edits: []Edit{{"internal/sqlstore/breaker.go", "	b.asked = now // a probe", "	if b.failures <= breakerFailures {\n		b.asked = now\n	}\n	// a probe"}},
		Check: Check{Package: "./internal/sqlstore", Run: "^TestWhoAsksAloneDoesNotMakeEachProbeOfADatabaseThatHangs$", Says: "were kept from it"},
	},
	{
		Name: "breaker-stays-open",
		Bug:  "a probe that the database answers does not close the breaker",
		Edits: []Edit{{
			"internal/sqlstore/breaker.go",
			"	case err == nil:\n		b.answered()\n", "	case err == nil:\n		if p.failures < breakerFailures {\n			b.answered()\n		}\n",
		}},
		Check: Check{Package: "./internal/sqlstore", Run: "^TestABreakerClosesWhenTheDatabaseAnswers$", Says: "it is still open"},
	},
	{
		Name:  "breaker-counts-the-past",
		Bug:   "failures of operations that were sent before the last answer count",
		Edits: []Edit{{"internal/sqlstore/breaker.go", "	if p.round != b.round.Load() {\n		return\n	}\n", ""}},
		Check: Check{Package: "./internal/sqlstore", Run: "^TestWhatWasSentBeforeTheLastAnswerDoesNotCount$", Says: "operations of before have opened it again"},
	},
	{
		Name:  "breaker-counts-callers",
		Bug:   "one failed statement opens the breaker, because each operation that it carried counts",
		Edits: []Edit{{"internal/sqlstore/breaker.go", "	if p.failures != b.failures {\n		return\n	}\n", ""}},
		Check: Check{Package: "./internal/sqlstore", Run: "^TestOfOperationsUnderWayTogetherOneFailureCounts$", Says: "and one of 64 operations: open is true"},
	},
}

// retried are bugs of sending operations again.
var retried = []Mutant{
	{
		Name: "retry-of-what-is-unknown",
		CI:   true,
		Bug:  "a take of unknown outcome is retried",
		Edits: []Edit{
			{
				"internal/sqlstore/retry.go",
				"!errors.Is(err, limiter.ErrNotApplied) || errors.Is(err, limiter.ErrOutcomeUnknown) || !r.Again(err)",
				"!errors.Is(err, limiter.ErrOutcomeUnknown) && !r.Again(err)",
			},
		},
		Check: Check{Package: "./internal/sqlstore", Run: "^TestWhatWasNotAppliedIsSentAgainTwiceAtMost$", Says: "sent 2 times, at last <nil>; want 1 times and limiter: outcome unknown"},
	},
	{
		Name:  "retries-without-a-budget",
		Bug:   "every operation is sent three times to a database at which all fail",
		Edits: []Edit{{"internal/sqlstore/retry.go", "		if spent > retryShare*(retryBurst-1) {", "		if spent > 1<<40 {"}},
		Check: Check{Package: "./internal/sqlstore", Run: "^TestOfManyOperationsATenthIsSentAgain$", Says: "4000 of 2000 were sent again"},
	},
	{
		Name:  "retry-for-who-has-left",
		Bug:   "an operation is retried for a caller who has left",
		Edits: []Edit{{"internal/sqlstore/retry.go", "gone := left(ctx); gone != nil {", "gone := left(ctx); gone != nil && !inTime {"}},
		Check: Check{Package: "./internal/sqlstore", Run: "^TestNothingIsSentAgainWhenThereIsNoTimeOrNobodyLeft$", Says: "the caller left in a statement: sent "},
	},
	{
		Name:  "refunds-retried",
		Bug:   "a refund is retried like a take, so one misclassified error refunds twice",
		Edits: []Edit{{"postgres/postgres.go", "	if op.Kind == limiter.OpRefund || op.Kind == limiter.OpCancel {", "	if op.Kind == limiter.OpCancel {"}},
		Check: Check{Package: "./postgres", Run: "^TestGiving_back_is_sent_once_even_if_it_was_not_applied$", Says: "operation 3 was sent 3 times, want 1"},
	},
}

// fallbacks are bugs of FailLocal and of who gets back what it granted.
var fallbacks = []Mutant{
	{
		Name:  "fail-local-for-any-error",
		CI:    true,
		Bug:   "FailLocal asks the fallback for every error",
		Edits: []Edit{{"failure.go", "	case l.fail == failClosed || !StoreFailed(cause) || provisional(l.store):", "	case l.fail == failClosed || l.fail == failOpen && !StoreFailed(cause) || provisional(l.store):"}},
		Check: Check{Package: ".", Run: "^TestFailLocal_asks_the_fallback_only_for_what_the_store_failed_at$", Says: "invalid: Allow = {Allowed:true"},
	},
	{
		Name:  "near-deadline-is-the-stores-failure",
		Bug:   "a caller's deadline below the time limit counts as the store's failure, so a client who chooses it passes by FailOpen",
		Edits: []Edit{{"internal/sqlstore/timekeeper.go", "		l.short = l.end.Before(now.Add(timeout))\n", ""}},
		Check: Check{Package: "./internal/sqlstore", Run: "^TestALimitEndsAnOperationInItsTime$", Says: "a_deadline_that_leaves_a_nanosecond_less"},
	},
	{
		Name:  "failure-policy-in-a-transaction",
		Bug:   "a failure policy answers in the caller's transaction, which the error has aborted",
		Edits: []Edit{{"failure.go", " || provisional(l.store):", ":"}},
		Check: Check{Package: "./postgres", Run: "^TestTransaction_in_which_a_take_fails_gets_the_error_whatever_the_failure_policy$", Says: "FailOpen, a lock timeout: Allow = {Allowed:true"},
	},
	{
		Name:  "fallback-never-charged",
		Bug:   "in an outage the fallback is read but never charged",
		Edits: []Edit{{"failure.go", "	if err := l.doOn(ctx, l.fallback, &b.op, &b.state); err != nil {", "	b.op.Kind = OpLook\n	if err := l.doOn(ctx, l.fallback, &b.op, &b.state); err != nil {"}},
		Check: Check{Package: ".", Run: "^TestFailLocal_admits_during_an_outage_what_the_policy_admits_once_more$", Says: "want 5 by each"},
	},
	{
		Name:  "fallbacks-booking-canceled-elsewhere",
		Bug:   "a booking of the fallback is canceled in the database, where it may cancel another caller's",
		Edits: []Edit{{"reserve.go", "		if r.Source == SourceLocal {\n			r.store = l.fallback\n		}\n", ""}},
		Check: Check{Package: ".", Run: "^TestFailLocal_cancels_a_reservation_where_it_was_booked$", Says: "Cancel of a booking by local asked the stores"},
	},
	{
		Name:  "booking-canceled-in-the-fallback",
		Bug:   "with FailLocal, a booking of the database is canceled in the fallback",
		Edits: []Edit{{"reserve.go", "		if r.Source == SourceLocal {", "		if l.fail == failLocal {"}},
		Check: Check{Package: ".", Run: "^TestFailLocal_cancels_a_reservation_where_it_was_booked$", Says: "Cancel of a booking by store asked the stores"},
	},
	{
		Name: "refund-to-the-fallback",
		Bug:  "a charge of the database is refunded to the fallback while the database is down",
		Edits: []Edit{{
			"refund.go",
			"	return l.giveBack(ctx, from, &op)",
			"	if gave, err := l.giveBack(ctx, from, &op); err == nil || l.fail != failLocal {\n		return gave, err\n	}\n	return l.giveBack(ctx, l.fallback, &op)",
		}},
		Check: Check{Package: ".", Run: "^TestFailLocal_leaves_refunds_and_resets_to_the_store$", Says: "Refund = <nil>"},
	},
	{
		Name:  "fallbacks-charge-refunded",
		Bug:   "a charge of the fallback is refunded to the store",
		Edits: []Edit{{"refund.go", "		if from = l.fallback; from == nil {", "		if l.fallback == nil {"}},
		Check: Check{Package: "./handler", Run: "^TestAChargeIsGivenBackOnlyWhereThereWasOne$", Says: "charged by the fallback: given back [3] to the store"},
	},
	{
		Name:  "no-charge-refunded",
		Bug:   "RefundOf refunds a request that FailOpen let pass without a charge",
		Edits: []Edit{{"refund.go", "	case res.charged == charge{}:", "	case res.charged == charge{} && !res.Allowed:"}},
		Check: Check{Package: ".", Run: "^TestRefundOf_of_what_charged_nothing_asks_no_store$", Says: "RefundOf a pass by FailOpen = true"},
	},
	{
		Name:  "success-credits-the-next-window",
		Bug:   "a login that succeeds after the edge of its window lets another failed login pass in the next one",
		Edits: []Edit{{"refund.go", "	return l.refund(ctx, from, key, n, res.charged)", "	return l.refund(ctx, from, key, n, charge{})"}},
		Check: Check{Package: "./handler", Run: "^TestASuccessThatCrossesTheEdgeDoesNotCreditTheNextWindow$", Says: "6 failed logins pass in one window, want 5"},
	},
}
