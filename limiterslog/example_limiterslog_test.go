package limiterslog_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/limiterslog"
)

func ExampleObserver() {
	store := fails{fmt.Errorf("%w: connection refused", limiter.ErrNotApplied)} // in your program: of package postgres
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: withoutTime}))

	logins, err := limiter.New(store, "login", limiter.PerMinute(5),
		limiter.FailOpen(), limiter.WithObserver(limiterslog.Observer(logger)))
	if err != nil {
		log.Fatal(err)
	}
	for range 1000 { // one line a minute
		if res, err := logins.Allow(context.Background(), "alice@example.com"); err != nil || !res.Allowed {
			log.Fatal(res, err)
		}
	}
	// Output:
	// level=ERROR msg="the rate limiter failed" limiter=login error="limiter \"login\": limiter: not applied: connection refused"
}

// withoutTime removes the time, which would differ each time.
func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}
