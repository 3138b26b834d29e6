package routers_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
)

// Each router has a limiter around all routes, as the comment of package handler says, and a second
// one around a single route.
func TestLimitersNestInRouters(t *testing.T) {
	t.Parallel()
	type middleware = func(http.Handler) http.Handler
	for name, router := range map[string]func(all, item middleware) http.Handler{
		"chi": func(all, item middleware) http.Handler {
			r := chi.NewRouter()
			r.Use(all)
			r.With(item).Get("/items/{id}", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, chi.URLParam(r, "id")) })
			return r
		},
		"echo": func(all, item middleware) http.Handler {
			e := echo.New()
			e.Use(echo.WrapMiddleware(all))
			e.GET("/items/:id", func(c echo.Context) error { return c.String(http.StatusOK, c.Param("id")) }, echo.WrapMiddleware(item))
			return e
		},
		"gin": func(all, item middleware) http.Handler {
			engine := gin.New()
			engine.GET("/items/:id", ginMiddleware(item), func(c *gin.Context) { c.String(http.StatusOK, c.Param("id")) })
			return all(engine)
		},
	} {
		h := router(
			handler.New(mustLimiter("all", limiter.PerMinute(60)), handler.ClientIP()),
			handler.New(mustLimiter("item", limiter.PerMinute(1)), handler.ClientIP()))
		get := func(path string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
			return w
		}
		w := get("/items/7")
		if w.Code != http.StatusOK || w.Body.String() != "7" {
			t.Errorf("%s: %d %q, want 200 and the item", name, w.Code, w.Body)
		}
		if got, want := w.Header().Get("RateLimit"), `"all";r=59;t=1, "item";r=0;t=60`; got != want {
			t.Errorf("%s: RateLimit: %s, want %s", name, got, want)
		}
		if w := get("/items/8"); w.Code != http.StatusTooManyRequests {
			t.Errorf("%s: %d, want 429 for the second item", name, w.Code)
		}
	}
}
