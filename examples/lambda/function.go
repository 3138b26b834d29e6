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
		// Lambda sends SIGTERM only to processes that ask for it. A connection that the
		// process leaves open stays open in the database until a timeout there.
		lambda.WithEnableSIGTERM(func() { _ = store.Close() }),
	)
}

// events returns a handler of all events that the program serves.
func events(handler http.Handler, store Store) lambda.Handler {
	return awslambda.Handler(handler, lambda.NewHandler(scheduled(store)))
}

// errUnknownEvent is the result of an event that the program does not serve. Lambda counts
// it as an error of the function, so an alarm can watch it.
var errUnknownEvent = errors.New("the event is neither an HTTP request nor a scheduled event of EventBridge")

// scheduledEvent is the part of a scheduled event that the program reads. EventBridge sends
// it for a rule, and for a schedule without an input of its own.
type scheduledEvent struct {
	DetailType string `json:"detail-type"`
}

// scheduled returns a function that sweeps at each scheduled event.
func scheduled(store Store) func(context.Context, scheduledEvent) (swept, error) {
	return func(ctx context.Context, event scheduledEvent) (swept, error) {
		if event.DetailType != "Scheduled Event" {
			return swept{}, errUnknownEvent
		}
		return sweep(ctx, store)
	}
}
