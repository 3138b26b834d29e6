// Package routers_test limits single routes of chi, echo and gin. It is a module of its own, so
// that these routers stay out of the go.mod of the limiter.
package routers_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/memory"
)

func init() { gin.SetMode(gin.ReleaseMode) } // gin logs every route otherwise

func search(http.ResponseWriter, *http.Request) {}

// mustLimiter returns a limiter whose clock stands still, so that the headers are always the same.
func mustLimiter(name string, p limiter.Policy) *limiter.Limiter {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	l, err := limiter.New(memory.New(), name, p, limiter.WithClock(func() time.Time { return noon }))
	if err != nil {
		panic(err)
	}
	return l
}

func Example_chi() {
	perRoute := handler.New(mustLimiter("api", limiter.PerMinute(1)),
		handler.Join(handler.Route(), handler.ClientIP()))

	router := chi.NewRouter()
	router.With(perRoute).Get("/items/{id}", search)
	router.With(perRoute).Get("/search", search)
	router.Get("/status", search)

	for _, client := range []string{"192.0.2.1", "192.0.2.2"} {
		for _, path := range []string{"/items/1", "/items/2", "/search", "/status"} {
			r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
			r.RemoteAddr = client
			w := httptest.NewRecorder()
			router.ServeHTTP(w, r)
			fmt.Println(client, path, w.Code, w.Header().Values("RateLimit"))
		}
	}
	// Output:
	// 192.0.2.1 /items/1 200 ["api";r=0;t=60]
	// 192.0.2.1 /items/2 429 ["api";r=0;t=60]
	// 192.0.2.1 /search 200 ["api";r=0;t=60]
	// 192.0.2.1 /status 200 []
	// 192.0.2.2 /items/1 200 ["api";r=0;t=60]
	// 192.0.2.2 /items/2 429 ["api";r=0;t=60]
	// 192.0.2.2 /search 200 ["api";r=0;t=60]
	// 192.0.2.2 /status 200 []
}

func Example_echo() {
	limit := echo.WrapMiddleware(handler.New(mustLimiter("export", limiter.PerHour(1)), handler.ClientIP()))
	ok := func(c echo.Context) error { return c.NoContent(http.StatusOK) }

	e := echo.New()
	e.GET("/export", ok, limit)
	e.GET("/status", ok)

	for _, client := range []string{"192.0.2.1", "192.0.2.2"} {
		for _, path := range []string{"/export", "/export", "/status"} {
			r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
			r.RemoteAddr = client
			w := httptest.NewRecorder()
			e.ServeHTTP(w, r)
			fmt.Println(client, path, w.Code, w.Header().Values("RateLimit"))
		}
	}
	// Output:
	// 192.0.2.1 /export 200 ["export";r=0;t=3600]
	// 192.0.2.1 /export 429 ["export";r=0;t=3600]
	// 192.0.2.1 /status 200 []
	// 192.0.2.2 /export 200 ["export";r=0;t=3600]
	// 192.0.2.2 /export 429 ["export";r=0;t=3600]
	// 192.0.2.2 /status 200 []
}

// ginMiddleware turns a limiter's middleware into that of gin.
func ginMiddleware(limit func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		passed := false
		limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			passed = true
			c.Request = r
			c.Next()
		})).ServeHTTP(c.Writer, c.Request)
		if !passed {
			c.Abort() // otherwise gin calls the route's handler after the refusal
		}
	}
}

func Example_gin() {
	limit := ginMiddleware(handler.New(mustLimiter("export", limiter.PerHour(1)), handler.ClientIP()))
	ok := func(c *gin.Context) { c.Status(http.StatusOK) }

	engine := gin.New()
	engine.GET("/export", limit, ok)
	engine.GET("/status", ok)

	for _, client := range []string{"192.0.2.1", "192.0.2.2"} {
		for _, path := range []string{"/export", "/export", "/status"} {
			r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
			r.RemoteAddr = client
			w := httptest.NewRecorder()
			engine.ServeHTTP(w, r)
			fmt.Println(client, path, w.Code, w.Header().Values("RateLimit"))
		}
	}
	// Output:
	// 192.0.2.1 /export 200 ["export";r=0;t=3600]
	// 192.0.2.1 /export 429 ["export";r=0;t=3600]
	// 192.0.2.1 /status 200 []
	// 192.0.2.2 /export 200 ["export";r=0;t=3600]
	// 192.0.2.2 /export 429 ["export";r=0;t=3600]
	// 192.0.2.2 /status 200 []
}
