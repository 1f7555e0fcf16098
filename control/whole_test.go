package control

import (
	"bytes"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestWhole_NothingElseLooksWhole reads bodies that are made while they are sent, and of which some end too early.
func TestWhole_NothingElseLooksWhole(t *testing.T) {
	line := `{"from":"agent","line":"x"}` + "\n"
	for _, tt := range []struct {
		name  string
		lines int
		fails bool
		want  int // the status, 0 where the answer is cut
	}{
		{"short", 1, false, http.StatusOK},
		{"long", 2 * heldBack / len(line), false, http.StatusOK},
		{"ends before anything was sent", 1, true, http.StatusInternalServerError},
		{"ends in the middle", 2 * heldBack / len(line), true, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &fake{}
			f.raw = strings.Repeat(line, tt.lines)
			if tt.fails {
				f.rawFails = errors.New("the disk is broken")
			}
			var said bytes.Buffer
			srv := httptest.NewUnstartedServer(newServer(t, Options{Sessions: f}))
			srv.Config.ErrorLog = log.New(&said, "", 0)
			srv.Start()
			defer srv.Close()
			resp, err := srv.Client().Get(srv.URL + "/v2/sessions/s1/raw")
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			srv.Close()
			switch {
			case tt.want == 0:
				if err == nil {
					t.Errorf("the answer looks whole, and ends with %q", body[max(0, len(body)-200):])
				}
			case err != nil || resp.StatusCode != tt.want:
				t.Errorf("%d, %v; want %d", resp.StatusCode, err, tt.want)
			case tt.want == http.StatusOK && string(body) != f.raw:
				t.Errorf("%d bytes of %d came", len(body), len(f.raw))
			}
			if said.Len() > 0 {
				t.Errorf("the server complains: %s", &said)
			}
		})
	}
}
