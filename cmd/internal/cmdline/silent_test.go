package cmdline

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// roundTripper is a function that carries requests.
type roundTripper func(r *http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// On a slow network a large upload keeps all else from getting through. It is not given up as long as some of it goes.
func TestHeard_SlowUpload(t *testing.T) {
	for name, takes := range map[string]int64{"it is taken to its end": 600, "nothing more is taken": 60} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := roundTripper(func(r *http.Request) (*http.Response, error) {
					if r.Body == nil { // the question beside it
						<-r.Context().Done()
						return nil, r.Context().Err()
					}
					for range takes {
						select {
						case <-time.After(time.Second):
						case <-r.Context().Done():
							return nil, r.Context().Err()
						}
						if _, err := io.CopyN(io.Discard, r.Body, 1); err != nil {
							return nil, err
						}
					}
					if _, err := r.Body.Read(make([]byte, 1)); takes == 600 && errors.Is(err, io.EOF) {
						return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
					}
					<-r.Context().Done()
					return nil, r.Context().Err()
				})
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://gateway/v2/fs/content", strings.NewReader(strings.Repeat("x", 600)))
				if err != nil {
					t.Fatal(err)
				}
				resp, err := Heard{network}.RoundTrip(r)
				if takes == 600 && err != nil || takes != 600 && !errors.Is(err, ErrSilent) {
					t.Fatal(err)
				}
				if resp != nil {
					_ = resp.Body.Close()
				}
			})
		})
	}
}
