package control

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"
)

// An answer that is long in the making begins, so that nobody gives it up, and is the same JSON.
func TestBlanks(t *testing.T) {
	for name, of := range map[string]struct {
		takes time.Duration
		said  string
	}{"at once": {29 * time.Second, ""}, "long": {61 * time.Second, "   "}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &wire{header: http.Header{}}
				r := httptest.NewRequestWithContext(t.Context(), "POST", "http://localhost/", nil)
				r.Header.Set("Accept-Encoding", "gzip")
				s := newServer(t, Options{})
				text := strings.Repeat("x", compressFrom)
				s.observe(http.HandlerFunc(func(rec http.ResponseWriter, r *http.Request) {
					c := echo.New().NewContext(r, rec)
					end := blanks(c)
					time.Sleep(of.takes) // of the bubble's own clock
					synctest.Wait()
					status, kind, _ := w.head()
					if got := w.taken(); got != of.said || got != "" && (status != 200 || kind != "application/json") {
						t.Errorf("before the answer it said %d, %s and %q", status, kind, got)
					}
					end()
					if err := s.writeJSON(c, text); err != nil {
						t.Error(err)
					}
				})).ServeHTTP(w, r)
				plain := w.taken() == `"`+text+"\"\n"
				if packed := w.header.Get("Content-Encoding") == "gzip"; plain == packed || packed != (of.said == "") {
					t.Errorf("the answer is plain %v, and says that it is packed %v", plain, packed)
				}
			})
		})
	}
}
