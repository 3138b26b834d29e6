// Package otellimiter reports the decisions of limiters, and the work of their store, as
// OpenTelemetry metrics.
//
// Pass what [Observer] returns to [limiter.WithObserver], and pass the store to [Watch]:
//
//	login, err := limiter.New(store, "login", limiter.PerMinute(5),
//		limiter.WithObserver(otellimiter.Observer(provider)))
//	watch, err := otellimiter.Watch(provider, store)
//
// # Metrics
//
// Observer records these metrics:
//
//   - sqlimit.decisions, a counter: the decisions of the store, the deny cache and the failure policy.
//     A Peek is also a decision.
//   - sqlimit.decision.duration, a histogram in seconds
//   - sqlimit.units, a counter: what decisions and charges took. A Peek and a refusal take nothing.
//
// They have these attributes:
//
//   - sqlimit.limiter: the name that was passed to limiter.New
//   - sqlimit.result: allowed, refused or error, as the caller got it
//   - sqlimit.source: store, deny_cache, local or policy, as [limiter.Source.String] returns it
//   - error.type, if the store made no decision: not_applied, outcome_unknown, misconfigured, key_busy,
//     canceled, invalid, unsupported or _OTHER. If FailOpen or FailLocal applies, error.type is set
//     and the result is allowed or refused.
//   - sqlimit.operation, only of sqlimit.units: take, take_up_to, charge or acquire, as
//     [limiter.OpKind.String] returns it. The result of a charge says whether there was room for it.
//
// Watch reports the counters sqlimit.store.statements, sqlimit.store.rows, sqlimit.store.units and
// sqlimit.store.retries, which [limiter.StoreStats] explains. It also reports the gauge
// sqlimit.store.breaker.state, which is 1 while the breaker is open and otherwise 0.
//
// No attribute contains a key. Charge, Block, Refund, RefundOf, Cancel, Reset, Release and Extend are not
// decisions. Of these, sqlimit.units counts charges, and sqlimit.store.units counts all.
//
// # Several observers
//
// A Limiter has one observer. To use more, pass a function that calls each of them.
package otellimiter
