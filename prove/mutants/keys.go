package main

// keys are bugs of what a request is limited by.
var keys = []Mutant{
	{
		Name:  "limiters-share-keys",
		CI:    true,
		Bug:   "two limiters share the state of a key",
		Found: []string{"https://github.com/spring-cloud/spring-cloud-gateway/issues/2288"},
		Edits: []Edit{
			{"memory/memory.go", "e.key != op.Key || e.name != op.Name ||", "e.key != op.Key ||"},
			{"memory/memory.go", " + 31*maphash.String(s.seed, op.Name)", ""},
		},
		Check: Check{Package: "./memory", Run: "^TestStore$/^keys$", Says: "is the same key as one before it"},
	},
	{
		Name: "names-joined-by-an-underscore",
		Bug:  "the limiter's name and the key are joined, so that (a, b_c) and (a_b, c) are one key",
		Edits: []Edit{{
			"memory/memory.go",
			"	hash := maphash.String(s.seed, op.Key)", "	op.Name, op.Key = \"\", op.Name+\"_\"+op.Key\n	hash := maphash.String(s.seed, op.Key)",
		}},
		Check: Check{Package: "./memory", Run: "^TestStore$/^keys$", Says: "pair 1, [\"a_b\" \"c\"], runs into one before it"},
	},
	{
		Name:  "hash-is-a-key-of-its-own",
		Bug:   "a key that looks like the hash of another key shares its state",
		Edits: []Edit{{"key.go", "&& len(key) <= maxKey && key[0] != 0 {", "&& len(key) <= maxKey {"}},
		Check: Check{Package: ".", Run: "^TestStoredKey$", Says: "want it stored as it is: false"},
	},
	{
		Name:  "digest-without-its-secret",
		Bug:   "WithKeyDigest stores a hash without a secret, which can be found by trying all addresses",
		Edits: []Edit{{"key.go", "hmac.New(sha256.New, k.secret)", "hmac.New(sha256.New, nil)"}},
		Check: Check{Package: "./memory", Run: "^TestStore$/^keys$", Says: "want it to pass"},
	},
	{
		Name: "joined-keys-collide",
		Bug:  "joined keys do not tell where one ends and the next begins",
		Edits: []Edit{
			{
				"handler/key.go",
				"			joined = strconv.AppendInt(joined, int64(len(k)), 10)\n			joined = append(joined, ':')", "			joined = append(joined, '_')",
			},
			{"handler/key.go", "	\"strconv\"\n", ""},
		},
		Check: Check{Package: "./handler", Run: "^TestNoTwoListsOfKeysAreJoinedAlike$", Says: "are joined to"},
	},
	{
		Name:  "one-credential-many-keys",
		Bug:   "the last of several header lines is the key, but the application may read the first as the credential",
		Found: []string{"https://github.com/hyperdxio/hyperdx/issues/2775"},
		Edits: []Edit{
			{"handler/key.go", "if len(lines) != 1 || lines[0] == \"\" {", "if len(lines) == 0 || lines[0] == \"\" {"},
			{"handler/key.go", "		return lines[0], nil", "		return lines[len(lines)-1], nil"},
		},
		Check: Check{Package: "./handler", Run: "^TestKeysOfARequest$", Says: "two lines of a header: \"k2\""},
	},
}

// addresses are bugs of finding the client's address.
var addresses = []Mutant{
	{
		Name:  "mapped-addresses-in-one-prefix",
		Bug:   "IPv4-mapped addresses are masked as IPv6, so all of IPv4 is one key",
		Found: []string{"https://nvd.nist.gov/vuln/detail/CVE-2026-30827"},
		Edits: []Edit{{"handler/clientip.go", "addr = addr.Unmap().WithZone(\"\")", "addr = addr.WithZone(\"\")"}},
		Check: Check{Package: "./handler", Run: "^TestMappedAddressesAreKnownByValueNotNotation$", Says: "key \"::/56\", error <nil>; want \"1.2.3.4\""},
	},
	{
		Name:  "mapped-addresses-by-notation",
		Bug:   "an address is recognized as IPv4-mapped by its notation, not its value",
		Found: []string{"https://github.com/express-rate-limit/express-rate-limit/pull/667"},
		Edits: []Edit{
			{"handler/clientip.go", "	return plainAddr(netip.ParseAddr(s))\n", "	addr, err := netip.ParseAddr(s)\n	if b := addr.As16(); err == nil && strings.Contains(s, \".\") {\n		addr = netip.AddrFrom4([4]byte(b[12:]))\n	}\n	return plainAddr(addr, err)\n"},
			{"handler/clientip.go", "addr = addr.Unmap().WithZone(\"\")", "addr = addr.WithZone(\"\")"},
		},
		Check: Check{Package: "./handler", Run: "^TestMappedAddressesAreKnownByValueNotNotation$", Says: "key \"1.2.3.4\", error <nil>; want \"2001:db8:1234:5600::/56\""},
	},
	{
		Name:  "each-ipv6-address-a-key",
		Bug:   "a client with an IPv6 network has a key for each of its addresses",
		Found: []string{"https://github.com/block/buzz/pull/3784"},
		Edits: []Edit{{"handler/ipoption.go", "	defaultIPv6Prefix = 64", "	defaultIPv6Prefix = 128"}},
		Check: Check{Package: "./handler", Run: "^TestByDefaultTheKeyIsThePeersAddress$", Says: "want \"2001:db8:1:2::/64\""},
	},
	{
		Name:  "leftmost-address",
		CI:    true,
		Bug:   "the client is the leftmost address in X-Forwarded-For, which the client writes",
		Found: []string{"https://github.com/migadu/alps/pull/18"},
		Edits: []Edit{{
			"handler/ipoption.go",
			"		for _, line := range slices.Backward(r.Header[\"X-Forwarded-For\"]) {\n",
			"		for _, line := range r.Header[\"X-Forwarded-For\"] {\n			elements := strings.Split(line, \",\")\n			slices.Reverse(elements)\n			line = strings.Join(elements, \",\")\n",
		}},
		Check: Check{Package: "./handler", Run: "^TestTrustedProxiesReadUpToTheFirstThatIsNotOne$", Says: "key \"1.1.1.1\", error <nil>; want \"203.0.113.7\""},
	},
	{
		Name: "first-line-only",
		Bug:  "only the first line of X-Forwarded-For is read, as by Header.Get: that is the client's own",
		Edits: []Edit{{
			"handler/ipoption.go",
			"slices.Backward(r.Header[\"X-Forwarded-For\"])", "slices.Backward([]string{r.Header.Get(\"X-Forwarded-For\")})",
		}},
		Check: Check{Package: "./handler", Run: "^TestTrustedHopsCountFromTheRight$", Says: "key \"1.1.1.1\", error <nil>; want \"203.0.113.7\""},
	},
	{
		Name:  "header-from-anybody",
		Bug:   "X-Forwarded-For is believed from every peer",
		Found: []string{"https://github.com/leodip/goiabada/issues/87", "https://github.com/qjoly/talosctl-oidc/pull/128"},
		Edits: []Edit{{"handler/ipoption.go", "		if err != nil || !trusted(addr) {", "		if err != nil {"}},
		Check: Check{Package: "./handler", Run: "^TestTrustedProxiesReadUpToTheFirstThatIsNotOne$", Says: "key \"1.1.1.1\", error <nil>; want \"198.51.100.1\""},
	},
	{
		Name:  "no-address-is-a-key",
		Bug:   "clients without an address share one key",
		Found: []string{"https://github.com/Eshajha19/agri/issues/2504", "https://github.com/dj-bolt/django-bolt/pull/314"},
		Edits: []Edit{{"handler/clientip.go", "		return netip.Addr{}, errNoPeer", "		return netip.IPv4Unspecified(), nil"}},
		Check: Check{Package: "./handler", Run: "^TestByDefaultTheKeyIsThePeersAddress$", Says: "key \"0.0.0.0\", error <nil>; want none"},
	},
	{
		Name: "lambda-address-from-a-header",
		Bug:  "in Lambda the client's address is read from a header, not from the gateway",
		Edits: []Edit{{
			"handler/awslambda/rest.go",
			"			addr:      e.RequestContext.Identity.SourceIP,",
			"			addr:      cmp.Or(strings.Split(headerOf(e.MultiValueHeaders, e.Headers).Get(\"X-Forwarded-For\"), \",\")[0], e.RequestContext.Identity.SourceIP),",
		}, {"handler/awslambda/rest.go", "import (\n", "import (\n	\"cmp\"\n	\"strings\"\n"}},
		Check: Check{Package: "./handler/awslambda", Run: "^TestNoHeaderChangesTheKey$", Says: "got 200, want 429"},
	},
}

// answers are bugs of what a client is told.
var answers = []Mutant{
	{
		Name:  "outage-is-429",
		Bug:   "a client gets 429 when the database is down",
		Found: []string{"https://github.com/istio/istio/issues/12115", "https://github.com/firecrawl/firecrawl/issues/3728"},
		Edits: []Edit{{"handler/handler.go", "	return http.StatusServiceUnavailable\n", "	return http.StatusTooManyRequests\n"}},
		Check: Check{Package: "./handler", Run: "^TestWithoutADecisionTheAnswerIsAnErrorAndNeverAPass$", Says: "status 429, want 503"},
	},
	{
		Name:  "handler-fails-open-for-any-error",
		Bug:   "the handler's FailOpen lets requests pass for every error",
		Edits: []Edit{{"handler/answer.go", "!errors.Is(err, ErrNoKey) && limiter.StoreFailed(err) {", "!errors.Is(err, ErrNoKey) {"}},
		Check: Check{Package: "./handler", Run: "^TestWithoutADecisionTheAnswerIsAnErrorAndNeverAPass$", Says: "status 418, want 503"},
	},
	{
		Name:  "retry-after-rounded-down",
		Bug:   "Retry-After is rounded down to seconds, so a client that waits for it is refused again",
		Found: []string{"https://github.com/hashicorp/boundary/pull/4094", "https://github.com/fastify/fastify-rate-limit/pull/325"},
		Edits: []Edit{
			{"handler/quota.go", "return max(1, seconds(d))", "return int64(d / time.Second)"},
		},
		Check: Check{Package: "./handler", Run: "^TestRequestsPassUntilTheLimitAndAgainAfterRetryAfter$", Says: "Retry-After: [\"89\"], want \"90\""},
	},
	{
		Name:  "headers-from-a-second-read",
		CI:    true,
		Bug:   "the headers are read again after the decision, and include the requests of others",
		Found: []string{"https://github.com/Kuadrant/limitador/pull/157"},
		Edits: []Edit{{
			"handler/handler.go",
			"		if !m.hide {\n			m.fields.set(w.Header(), &res)",
			"		if !m.hide {\n			if again, err := m.limiter.AllowN(r.Context(), key, 0); err == nil {\n				res.Remaining, res.ResetAfter = again.Remaining, again.ResetAfter\n			}\n			m.fields.set(w.Header(), &res)",
		}},
		Check: Check{Package: "./handler", Run: "^TestHeadersTellOfTheDecisionAndNotOfWhatCameAfterIt$", Says: "want 3 left"},
	},
	{
		Name: "uploads-left-behind",
		Bug:  "temporary files of uploads are left behind, because net/http does not see the form",
		Found: []string{
			"https://github.com/golang/go/issues/58809",
			"https://github.com/open-telemetry/opentelemetry-go-contrib/issues/9070",
		},
		Edits: []Edit{{"handler/context.go", "	outer.MultipartForm, outer.Pattern = inner.MultipartForm, inner.Pattern\n", ""}},
		Check: Check{Package: "./handler", Run: "^TestTheServerRemovesTheFilesOfAnUpload$", Says: "of 1 files in TMPDIR 1 are left"},
	},
	{
		Name:  "redirect-as-success",
		Bug:   "a login behind a function counts as successful by its status, which may be a redirect back to the form",
		Edits: []Edit{{"handler/awslambda/limit.go", "				out, err = next(r.Context(), event)\n", "				out, err = next(r.Context(), event)\n				handler.Succeeded(r.Context())\n"}},
		Check: Check{Package: "./handler/awslambda", Run: "^TestWithChargeFailuresOnlyWhatTheFunctionSaysHasSucceeded$", Says: "5 left, <nil>; want 303 and 4 left"},
	},
	{
		Name:  "retry-after-of-the-innermost",
		Bug:   "Retry-After is the wait of the inner limiter, although an outer one will refuse for longer",
		Edits: []Edit{{"handler/context.go", "	for d := decisionOf(ctx); d != nil; d = decisionOf(d.Context) {\n		if d.fields != nil {", "	for d := decisionOf(ctx); d != nil; d = nil {\n		if d.fields != nil {"}},
		Check: Check{Package: "./handler", Run: "^TestRetryAfterIsTheLongestWaitOfAllLimitersThatWereAsked$", Says: "Retry-After: [\"2\"], want \"60\""},
	},
	{
		Name:  "late-refund",
		Bug:   "a charge that has refilled by itself is refunded, which lifts later charges of others",
		Edits: []Edit{{"handler/handler.go", "d.succeeded.Load() && time.Since(begin) < res.ResetAfter {", "d.succeeded.Load() && time.Since(begin) < 1<<62 {"}},
		Check: Check{Package: "./handler", Run: "^TestALateRefundDoesNotLiftWhatOthersWereCharged$", Says: "1 left, <nil>; want none"},
	},
}
