package routers_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
)

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
