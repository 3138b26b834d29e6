package handler_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
)

func TestRulesThatDoNotFitPanic(t *testing.T) {
	t.Parallel()
	c, store := newClock(), newSharedStore()
	asked := false
	observed := limiter.WithObserver(func(context.Context, limiter.Decision) { asked = true })
	plan := limiter.WithPolicyFor(func(context.Context, string) (limiter.Policy, error) {
		asked = true
		return nil, nil
	})
	rules := burstAndDay(t, store, c, 2, observed)
	planned := burstAndDay(t, store, c, 2, observed, plan)
	elsewhere := burstAndDay(t, newSharedStore(), c, 2)
	var many []handler.Rule
	for i := range limiter.MaxClaims {
		many = append(many, handler.Rule{Limiter: newOn(t, store, c, fmt.Sprint(i), limiter.PerHour(1)), Key: oneKey})
	}
	const ownName = `"burst"; give each rule a limiter with a name of its own`
	for name, test := range map[string]struct {
		rules  []handler.Rule
		opt    handler.Option
		advice string // "" if it does not panic
	}{
		"rules by plan":     {planned, handler.DryRun(), ""},
		"the most rules":    {many, handler.DryRun(), ""},
		"no rule":           {nil, handler.DryRun(), "pass 1 to 8"},
		"a rule too many":   {append(many, rules[0]), handler.DryRun(), "pass 1 to 8"},
		"one limiter twice": {[]handler.Rule{rules[0], rules[1], {Limiter: rules[0].Limiter, Key: handler.ClientIP()}}, handler.DryRun(), ownName},
		"no limiter":        {[]handler.Rule{rules[0], {Key: oneKey}}, handler.DryRun(), "limiter.New"},
		"no key":            {[]handler.Rule{rules[0], {Limiter: rules[1].Limiter}}, handler.DryRun(), "handler.ClientIP()"},
		"a nil option":      {rules, nil, "leave it out"},
		"the option Cost":   {rules, handler.Cost(costOf("n")), "Rule.Cost"},
		"two stores":        {[]handler.Rule{rules[0], elsewhere[1]}, handler.DryRun(), "one store"},
	} {
		text := panicOf(func() { handler.NewAll(test.rules, test.opt) })
		if test.advice != "" {
			wantAdvice(t, name, text, test.advice)
		} else if text != "" {
			t.Errorf("%s: the panic says %q, want none", name, text)
		}
	}
	wantPanic(t, "no next handler", "", func() { handler.NewAll(rules)(nil) })
	if asked || store.reads > 0 {
		t.Error("NewAll asked a store, a plan or an observer")
	}
}
