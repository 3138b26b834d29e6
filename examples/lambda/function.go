package main

import (
	"context"
	"errors"
	"net/http"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/sqlimit/limiter/handler/awslambda"
)

// serveEvents serves events until Lambda ends the process.
func serveEvents(handler http.Handler, store Store) {
	lambda.StartWithOptions(
		events(handler, store),
		// Lambda tells a process that it is about to end only if it asks for that. What
		// is left open then stays open in the database until its own timeouts.
		lambda.WithEnableSIGTERM(func() { _ = store.Close() }),
	)
}

// events returns a handler for all events that the program is made for.
func events(handler http.Handler, store Store) lambda.Handler {
	return awslambda.Handler(handler, lambda.NewHandler(scheduled(store)))
}

// errUnknownEvent is the answer to an event that the program is not made for. It
// counts as an error of the function, which an alarm can watch.
var errUnknownEvent = errors.New("the event is neither an HTTP request nor a scheduled one")

// scheduledEvent is what an event of EventBridge begins with: of a rule, or of a
// schedule that has no input of its own.
type scheduledEvent struct {
	DetailType string `json:"detail-type"`
}

// scheduled returns a function that sweeps when EventBridge says that it is time.
func scheduled(store Store) func(context.Context, scheduledEvent) (swept, error) {
	return func(ctx context.Context, event scheduledEvent) (swept, error) {
		if event.DetailType != "Scheduled Event" {
			return swept{}, errUnknownEvent
		}
		return sweep(ctx, store)
	}
}
