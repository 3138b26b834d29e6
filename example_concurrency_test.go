package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
)

// A customer may have one export in flight.
func ExampleConcurrency() {
	exports, err := limiter.NewConcurrency(memory.New(), "exports", limiter.InFlight{Limit: 1, Hold: 2 * time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	first, err := exports.TryAcquire(ctx, "customer-7")
	fmt.Println(first.Allowed, first.Used, "of", first.Limit, err)
	second, err := exports.TryAcquire(ctx, "customer-7")
	fmt.Println(second.Allowed, second.Used, "of", second.Limit, err)
	fmt.Println(first.Release(ctx))
	third, err := exports.TryAcquire(ctx, "customer-7")
	fmt.Println(third.Allowed, third.Used, "of", third.Limit, err)
	// Output:
	// true 1 of 1 <nil>
	// false 1 of 1 <nil>
	// <nil>
	// true 1 of 1 <nil>
}

// errBusy means that the customer must try again later.
var errBusy = errors.New("too many exports")

// exportMessage serves a message of a queue in AWS Lambda. It calls work while it holds a place.
func exportMessage(ctx context.Context, inFlight *limiter.Concurrency, customer string, work func() error) error {
	deadline, _ := ctx.Deadline() // Lambda stops the function then
	lease, err := inFlight.TryAcquireFor(ctx, customer, time.Until(deadline)+time.Second)
	defer func() { _ = lease.Release(context.WithoutCancel(ctx)) }() // in your program: log the error
	if err == nil && !lease.Allowed {
		err = errBusy
	}
	if err != nil {
		return err // the queue delivers the message again
	}
	return work()
}

func Example_lambda() {
	inFlight, err := limiter.NewConcurrency(memory.New(), "exports", limiter.InFlight{Limit: 1, Hold: 15 * time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second) // as Lambda does
	defer cancel()
	err = exportMessage(ctx, inFlight, "customer-7", func() error {
		held, err := inFlight.Peek(ctx, "customer-7")
		fmt.Println(held.Used, "in flight for at most", held.ResetAfter.Round(time.Second))
		return err
	})
	held, _ := inFlight.Peek(ctx, "customer-7")
	fmt.Println(held.Used, err)
	// Output:
	// 1 in flight for at most 31s
	// 0 <nil>
}

// exportPages serves a job of a worker. It reports false if the job must run again after delay.
func exportPages(ctx context.Context, exports *limiter.Concurrency, customer string, pages int) (done bool, delay time.Duration) {
	delay = time.Second + rand.N(time.Second) // random, because others also come again
	lease, err := exports.TryAcquire(ctx, customer)
	defer func() { _ = lease.Release(context.WithoutCancel(ctx)) }() // in your program: log the error
	if err != nil || !lease.Allowed {
		return false, delay
	}
	for range pages {
		if held, err := lease.Extend(ctx, time.Minute); err != nil || !held {
			return false, delay // another job may have the place
		}
		// in your program: export a page, which takes less than a minute
	}
	return true, 0
}

func Example_jobsInFlight() {
	inFlight, err := limiter.NewConcurrency(memory.New(), "exports", limiter.InFlight{Limit: 1, Hold: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	other, err := inFlight.TryAcquire(ctx, "customer-7") // by a worker on another machine
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		done, _ := exportPages(ctx, inFlight, "customer-7", 100)
		fmt.Println(done)
		if err := other.Release(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// false
	// true
}
