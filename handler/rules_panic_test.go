package handler_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

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
	counting := handler.Rule{Limiter: newOn(t, store, c, "counting", limiter.FixedWindow{Limit: 1, Window: time.Hour, CountRejected: true}), Key: oneKey}
	clockless, err := limiter.New(store, "clockless", limiter.PerHour(1))
	if err != nil {
		t.Fatal(err)
	}
	var many []handler.Rule
	for i := range limiter.MaxClaims {
		many = append(many, handler.Rule{Limiter: newOn(t, store, c, fmt.Sprint(i), limiter.PerHour(1)), Key: oneKey})
	}
	alike := func(p limiter.Policy) []handler.Rule {
		return []handler.Rule{rules[0], {Limiter: newOn(t, store, c, "burst", p), Key: oneKey}}
	}
	const ownName = `"burst"; give each rule a limiter with a name of its own`
	for name, test := range map[string]struct {
		rules  []handler.Rule
		opt    handler.Option
		advice string // "" if it does not panic
	}{
		"one rule":               {rules[:1], handler.DryRun(), ""},
		"two rules":              {rules, handler.ChargeFailures(), ""},
		"rules by plan":          {planned, handler.DryRun(), ""},
		"the most rules":         {many, handler.DryRun(), ""},
		"no rule":                {nil, handler.DryRun(), "pass 1 to 8"},
		"a rule too many":        {append(many, rules[0]), handler.DryRun(), "pass 1 to 8"},
		"one limiter twice":      {[]handler.Rule{rules[0], rules[1], {Limiter: rules[0].Limiter, Key: handler.ClientIP()}}, handler.DryRun(), ownName},
		"one name, two policies": {alike(limiter.PerHour(7)), handler.DryRun(), ownName},
		"one name, two kinds":    {alike(limiter.FixedWindow{Limit: 3, Window: time.Hour}), handler.DryRun(), ownName},
		"no limiter":             {[]handler.Rule{rules[0], {Key: oneKey}}, handler.DryRun(), "limiter.New"},
		"no key":                 {[]handler.Rule{rules[0], {Limiter: rules[1].Limiter}}, handler.DryRun(), "handler.ClientIP()"},
		"a nil option":           {rules, nil, "leave it out"},
		"the option Cost":        {rules, handler.Cost(costOf("n")), "Rule.Cost"},
		"two stores":             {[]handler.Rule{rules[0], elsewhere[1]}, handler.DryRun(), "one store"},
		"counted refusals":       {[]handler.Rule{counting}, handler.DryRun(), "CountRejected"},
		"one clock":              {[]handler.Rule{rules[0], {Limiter: clockless, Key: oneKey}}, handler.DryRun(), "WithClock"},
		"one clock, by plan":     {[]handler.Rule{planned[0], {Limiter: clockless, Key: oneKey}}, handler.DryRun(), "WithClock"},
		"a store for one limit":  {burstAndDay(t, struct{ limiter.Store }{store}, c, 2), handler.DryRun(), "cannot decide over several limits"},
	} {
		func() {
			defer func() {
				text := recover()
				if test.advice == "" && text == nil {
					return
				}
				said, _ := text.(string)
				if !strings.HasPrefix(said, "handler: ") || test.advice == "" || !strings.Contains(said, test.advice) {
					t.Errorf("%s: the panic says %q, want what to do: %q", name, text, test.advice)
				}
			}()
			handler.NewAll(test.rules, test.opt)
		}()
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no next handler: no panic")
			}
		}()
		handler.NewAll(rules)(nil)
	}()
	if asked || store.reads > 0 {
		t.Error("NewAll asked a store, a plan or an observer")
	}
}
