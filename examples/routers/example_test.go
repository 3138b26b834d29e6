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

// show prints the answers to requests of one client.
func show(h http.Handler, paths ...string) {
	for _, path := range paths {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		fmt.Println(path, w.Code, w.Header().Values("RateLimit"))
	}
}

func Example_chi() {
	perRoute := handler.New(mustLimiter("api", limiter.PerMinute(1)),
		handler.Join(handler.Route(), handler.ClientIP()))

	router := chi.NewRouter()
	router.Use(handler.New(mustLimiter("all", limiter.PerMinute(60)), handler.ClientIP()))
	router.With(perRoute).Get("/items/{id}", search)
	router.With(perRoute).Get("/search", search)
	router.Get("/status", search)

	show(router, "/items/1", "/items/2", "/search", "/status")
	// Output:
	// /items/1 200 ["all";r=59;t=1, "api";r=0;t=60]
	// /items/2 429 ["all";r=58;t=1, "api";r=0;t=60]
	// /search 200 ["all";r=57;t=1, "api";r=0;t=60]
	// /status 200 ["all";r=56;t=1]
}

func Example_echo() {
	limit := echo.WrapMiddleware(handler.New(mustLimiter("export", limiter.PerHour(1)), handler.ClientIP()))
	ok := func(c echo.Context) error { return c.NoContent(http.StatusOK) }

	e := echo.New()
	e.GET("/export", ok, limit)
	e.GET("/status", ok)

	show(e, "/export", "/export", "/status")
	// Output:
	// /export 200 ["export";r=0;t=3600]
	// /export 429 ["export";r=0;t=3600]
	// /status 200 []
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

	show(engine, "/export", "/export", "/status")
	// Output:
	// /export 200 ["export";r=0;t=3600]
	// /export 429 ["export";r=0;t=3600]
	// /status 200 []
}
