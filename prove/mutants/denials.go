package main

// denials are bugs of the deny cache.
var denials = []Mutant{
	{
		Name:  "denied-for-too-long",
		Bug:   "the deny cache refuses a key after its RetryAfter",
		Edits: []Edit{{"deny.go", "age <= c.maxAge && kept.refuses(op, age) {", "age <= c.maxAge {"}},
		Check: Check{Package: ".", Run: "^TestTheDenyCacheAnswersAsTheStoreWould$", Says: "want Allowed true by store"},
	},
	{
		Name:  "denied-by-a-clock-read-late",
		Bug:   "the age of a refusal counts from its answer, not from its request",
		Edits: []Edit{{"deny.go", "sent: sent, received: c.now(op)}", "sent: c.now(op), received: c.now(op)}"}},
		Check: Check{Package: ".", Run: "^TestTheDenyCacheRefusesOnlyWhatTheStoreWouldRefuse$", Says: "the cache"},
	},
	{
		Name:  "denied-after-a-refund",
		Bug:   "a refund does not invalidate the deny cache",
		Found: []string{"https://github.com/envoyproxy/ratelimit/pull/1230"},
		Edits: []Edit{{
			"denied.go",
			"	if _, found := sh.keys[key]; found {\n		delete(sh.keys, key)\n		d.held.Add(-1)\n	}\n	sh.paused++", "	sh.paused++",
		}},
		Check: Check{Package: ".", Run: "^TestGivingBackEndsARefusalAtOnce$", Says: "<nil>; want Allowed true by store"},
	},
	{
		Name:  "denied-beside-a-refund",
		CI:    true,
		Bug:   "a refusal that was requested before a refund is cached after it",
		Edits: []Edit{{"denied.go", "	if sh.gen != gen || sh.paused > 0 {", "	if sh.gen+1 < gen {"}},
		Check: Check{Package: ".", Run: "^TestTheDenyCacheRefusesOnlyWhatTheStoreWouldRefuse$", Says: "which the store would grant"},
	},
	{
		Name:  "denied-under-another-policy",
		Bug:   "a refusal on a row of another policy is cached, and judged by this policy",
		Found: []string{"https://github.com/envoyproxy/ratelimit/issues/1077"},
		Edits: []Edit{{"deny.go", "	if !b.state.Took && b.state.Wait == 0 {", "	if !b.state.Took {"}},
		Check: Check{Package: ".", Run: "^TestTheDenyCacheIsOffWhereItCouldBeWrong$", Says: "another policy: Allow = {Allowed:false"},
	},
	{
		Name:  "denied-while-frozen",
		Bug:   "the age of a refusal is read from a clock that stops while the process is frozen",
		Edits: []Edit{{"deny.go", "	return max(i.wall-then.wall, i.mono-then.mono)", "	return i.mono - then.mono"}},
		Check: Check{Package: ".", Run: "^TestAWallClockThatGoesBackEndsARefusal$", Says: "<nil>; want Allowed false by store"},
	},
	{
		Name:  "denied-when-full",
		Bug:   "a deny cache that is full refuses every key that it does not know",
		Found: []string{"https://github.com/ralksta/immich-folio/pull/62"},
		Edits: []Edit{{
			"deny.go",
			"	sent := c.now(op)\n",
			"	sent := c.now(op)\n	if kept == nil && c.keys.held.Load() >= c.keys.size {\n		*res = Result{RetryAfter: 1, Source: SourceDenyCache}\n		return nil\n	}\n",
		}},
		Check: Check{Package: ".", Run: "^TestTheDenyCacheHoldsNoMoreKeysThanItsSize$", Says: "<nil>; want Allowed true by store"},
	},
}
