// Package routers_test limits single routes of chi, echo and gin. It is a module of its own, so
// that these routers stay out of the go.mod of the limiter.
package routers_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
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

type middleware = func(http.Handler) http.Handler

// A router has the routes /status and /items/{id}. Middleware is around the whole router, of the router,
// and of the second route.
func newChi(around, router, route middleware, item http.Handler) http.Handler {
	r := chi.NewRouter()
	r.Use(router)
	r.Get("/status", item.ServeHTTP)
	r.With(route).Get("/items/{id}", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, chi.URLParam(r, "id"))
		item.ServeHTTP(w, r)
	})
	return around(r)
}

func newEcho(around, router, route middleware, item http.Handler) http.Handler {
	e := echo.New()
	e.Use(echo.WrapMiddleware(router))
	e.GET("/status", echo.WrapHandler(item))
	e.GET("/items/:id", func(c echo.Context) error {
		item.ServeHTTP(c.Response(), c.Request())
		return c.String(http.StatusOK, c.Param("id"))
	}, echo.WrapMiddleware(route))
	return around(e)
}

func newGin(around, router, route middleware, item http.Handler) http.Handler {
	engine := gin.New()
	engine.Use(ginMiddleware(router))
	engine.GET("/status", gin.WrapH(item))
	engine.GET("/items/:id", ginMiddleware(route), func(c *gin.Context) {
		c.String(http.StatusOK, c.Param("id"))
		item.ServeHTTP(c.Writer, c.Request)
	})
	return around(engine)
}

// newBareGin is newGin with a refusal that does not abort the route.
func newBareGin(_, _, route middleware, item http.Handler) http.Handler {
	engine := gin.New()
	engine.GET("/items/:id", gin.WrapH(route(http.HandlerFunc(search))), gin.WrapH(item))
	return engine
}

// docs/recipes.md warns of the wrong ways. If one of them changes with a router, change the page.
func TestRouters(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name                  string
		build                 func(around, router, route middleware, item http.Handler) http.Handler
		around, router, route string // names of limits; "" is none
		paths                 []string
		codes                 []int
		ran                   int // calls of the handlers behind the limits
	}{
		{"chi, two limits", newChi, "", "all", "item", []string{"/items/7", "/items/8"}, []int{200, 429}, 1},
		{"echo, two limits", newEcho, "", "all", "item", []string{"/items/7", "/items/8"}, []int{200, 429}, 1},
		{"gin, two limits", newGin, "all", "", "item", []string{"/items/7", "/items/8"}, []int{200, 429}, 1},

		{"chi, wrong: limit on the router", newChi, "", "item", "", []string{"/items/7", "/status", "/nowhere"}, []int{200, 429, 429}, 1},
		{"echo, wrong: limit on the router", newEcho, "", "item", "", []string{"/items/7", "/status", "/nowhere"}, []int{200, 429, 429}, 1},
		{"gin, wrong: limit on the router", newGin, "", "item", "", []string{"/items/7", "/status", "/nowhere"}, []int{200, 429, 429}, 1},
		{"chi, wrong: route on the router", newChi, "", "route", "", []string{"/items/7", "/nowhere"}, []int{400, 400}, 0},
		{"echo, wrong: no pattern", newEcho, "", "", "route", []string{"/items/7"}, []int{400}, 0},
		{"gin, wrong: no pattern", newGin, "", "", "route", []string{"/items/7"}, []int{400}, 0},
		{"gin, wrong: not aborted", newBareGin, "", "", "item", []string{"/items/7", "/items/7"}, []int{200, 429}, 2},
	} {
		limits := map[string]middleware{
			"":      func(next http.Handler) http.Handler { return next },
			"all":   handler.New(mustLimiter("all", limiter.PerMinute(60)), handler.ClientIP()),
			"item":  handler.New(mustLimiter("item", limiter.PerMinute(1)), handler.ClientIP()),
			"route": handler.New(mustLimiter("api", limiter.PerMinute(1)), handler.Join(handler.Route(), handler.ClientIP())),
		}
		ran := 0
		item := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran++ })
		h := test.build(limits[test.around], limits[test.router], limits[test.route], item)
		var codes []int
		for i, path := range test.paths {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
			codes = append(codes, w.Code)
			if i > 0 || test.around+test.router != "all" {
				continue
			}
			if got, want := w.Header().Get("RateLimit"), `"all";r=59;t=1, "item";r=0;t=60`; got != want || w.Body.String() != "7" {
				t.Errorf("%s: RateLimit: %s and the body %q, want %s and the item", test.name, got, w.Body, want)
			}
		}
		if !slices.Equal(codes, test.codes) || ran != test.ran {
			t.Errorf("%s: %d, and the handlers ran %d times; want %d and %d times", test.name, codes, ran, test.codes, test.ran)
		}
	}
}
