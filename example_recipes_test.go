package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
)

// Workers on all machines share one line, in order of arrival.
func ExampleLimiter_Wait() {
	calls, err := limiter.New(memory.New(), "partner-api",
		limiter.TokenBucket{Capacity: 1, Refill: 1, Interval: 10 * time.Millisecond},
		limiter.WithMaxWait(30*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	jobs := make(chan string, 3)
	jobs <- "first"
	jobs <- "second"
	jobs <- "third"

	ctx := context.Background() // in your program: one that ends at shutdown
	for range 3 {
		job := <-jobs // in your program: take a job from the queue
		if err := calls.Wait(ctx, "partner"); err != nil {
			jobs <- job // put it back
			if errors.Is(err, limiter.ErrCanceled) {
				return // shutdown
			}
			time.Sleep(5 * time.Second) // more than 30 s of work is booked ahead, or the store failed
			continue
		}
		fmt.Println("call for the", job, "job")
	}
	// Output:
	// call for the first job
	// call for the second job
	// call for the third job
}

func ExampleReservation_Cancel() {
	ctx := context.Background()
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	calls, err := limiter.New(memory.New(), "callback", limiter.PerMinute(1),
		limiter.WithClock(func() time.Time { return noon })) // only for the exact output below
	if err != nil {
		log.Fatal(err)
	}
	book := func() *limiter.Reservation {
		r, err := calls.Reserve(ctx, "support", 1, 90*time.Second)
		if err != nil || !r.Allowed {
			log.Fatal("no turn within 90 s: ", err)
		}
		fmt.Println("call in", r.Delay)
		return r
	}
	book()
	second := book()
	fmt.Println("cancel:", second.Cancel(ctx))
	book()
	// Output:
	// call in 0s
	// call in 1m0s
	// cancel: <nil>
	// call in 1m0s
}

func Example_batch() {
	mails, err := limiter.New(memory.New(), "mail", limiter.PerHour(100))
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	addresses, sent := make([]string, 250), 0
	for chunk := range slices.Chunk(addresses, 50) {
		err := mails.WaitN(ctx, "provider", int64(len(chunk)))
		if errors.Is(err, limiter.ErrExceedsMaxWait) {
			break // the next turn comes after the deadline of ctx, or in over an hour
		}
		if err != nil {
			log.Fatal(err)
		}
		sent += len(chunk) // send them here
	}
	fmt.Println("sent", sent, "of", len(addresses))
	// Output: sent 100 of 250
}

func TestThirdWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, start := newLimiter(t, memory.New(), limiter.PerMinute(1)), time.Now()
		for range 3 {
			if err := calls.Wait(t.Context(), "partner"); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took != 2*time.Minute {
			t.Errorf("three calls took %v, want 2m0s", took)
		}
	})
}
