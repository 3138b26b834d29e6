// Package otellimiter makes OpenTelemetry metrics of the decisions of limiters and of what their
// store does.
//
// Pass what [Observer] returns to [limiter.WithObserver], and pass the store to [Watch]:
//
//	login, err := limiter.New(store, "login", limiter.PerMinute(5),
//		limiter.WithObserver(otellimiter.Observer(provider)))
//	watch, err := otellimiter.Watch(provider, store)
//
// # Metrics
//
// From Observer, for each decision:
//
//   - sqlimit.decisions, a counter: the decisions of the store, the deny cache and the failure policy.
//     A Peek is a decision.
//   - sqlimit.decision.duration, a histogram in seconds
//   - sqlimit.units, a counter: what the decisions took. A Peek and a refusal take nothing.
//
// They have these attributes:
//
//   - sqlimit.limiter: the name that was passed to limiter.New
//   - sqlimit.result: allowed, refused or error, as the caller got it
//   - sqlimit.source: store, deny_cache, local or policy, as [limiter.Source.String] returns it
//   - error.type, if the store made no decision: not_applied, outcome_unknown, misconfigured, key_busy,
//     canceled, invalid, unsupported or _OTHER. With FailOpen and FailLocal the result is then not
//     error.
//
// From Watch, when the metrics are read: the counters sqlimit.store.statements, sqlimit.store.rows,
// sqlimit.store.units and sqlimit.store.retries, which [limiter.StoreStats] explains, and the gauge
// sqlimit.store.breaker.state, which is 1 while the breaker is open and otherwise 0.
//
// No attribute contains a key. Charge, Block, Refund, RefundOf, Cancel and Reset are no decisions:
// limiters tell observers nothing of them. They are among sqlimit.store.units.
//
// # Several observers
//
// A Limiter has one observer. To use more, pass a function that calls each of them.
package otellimiter
