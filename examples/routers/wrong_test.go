package routers_test

import (
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

// docs/recipes.md warns of these. If one of them changes with a router, change the page.
func TestTheWrongWaysOfTheRecipeGoWrong(t *testing.T) {
	t.Parallel()
	type middleware = func(http.Handler) http.Handler
	ran := 0 // calls of the handler behind the limit
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran++ })
	ofEcho, ofGin := echo.WrapHandler(next), gin.WrapH(next)
	for name, c := range map[string]struct {
		router func(limit, perRoute middleware) http.Handler
		paths  []string
		codes  []int
		ran    int
	}{
		"chi, limit on the router": {func(limit, _ middleware) http.Handler {
			router := chi.NewRouter()
			router.Use(limit)
			router.Get("/export", next)
			router.Get("/status", next)
			return router
		}, []string{"/export", "/status", "/nowhere"}, []int{200, 429, 429}, 1},
		"chi, route on the router": {func(_, perRoute middleware) http.Handler {
			router := chi.NewRouter()
			router.Use(perRoute)
			router.Get("/search", next)
			return router
		}, []string{"/search", "/nowhere"}, []int{400, 400}, 0},
		"echo, limit on the router": {func(limit, _ middleware) http.Handler {
			e := echo.New()
			e.Use(echo.WrapMiddleware(limit))
			e.GET("/export", ofEcho)
			e.GET("/status", ofEcho)
			return e
		}, []string{"/export", "/status", "/nowhere"}, []int{200, 429, 429}, 1},
		"echo, no pattern": {func(_, perRoute middleware) http.Handler {
			e := echo.New()
			e.GET("/search", ofEcho, echo.WrapMiddleware(perRoute))
			return e
		}, []string{"/search"}, []int{400}, 0},
		"gin, limit on the router": {func(limit, _ middleware) http.Handler {
			engine := gin.New()
			engine.Use(ginMiddleware(limit))
			engine.GET("/export", ofGin)
			engine.GET("/status", ofGin)
			return engine
		}, []string{"/export", "/status", "/nowhere"}, []int{200, 429, 429}, 1},
		"gin, no pattern": {func(_, perRoute middleware) http.Handler {
			engine := gin.New()
			engine.GET("/search", ginMiddleware(perRoute), ofGin)
			return engine
		}, []string{"/search"}, []int{400}, 0},
		"gin, not aborted": {func(limit, _ middleware) http.Handler {
			engine := gin.New()
			engine.GET("/export", gin.WrapH(limit(http.HandlerFunc(search))), ofGin)
			return engine
		}, []string{"/export", "/export"}, []int{200, 429}, 2},
	} {
		ran = 0
		router := c.router(
			handler.New(mustLimiter("export", limiter.PerHour(1)), handler.ClientIP()),
			handler.New(mustLimiter("api", limiter.PerMinute(1)), handler.Join(handler.Route(), handler.ClientIP())))
		var codes []int
		for _, path := range c.paths {
			w := httptest.NewRecorder()
			router.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
			codes = append(codes, w.Code)
		}
		if !slices.Equal(codes, c.codes) || ran != c.ran {
			t.Errorf("%s: %d, and the handler ran %d times; want %d and %d times", name, codes, ran, c.codes, c.ran)
		}
	}
}
