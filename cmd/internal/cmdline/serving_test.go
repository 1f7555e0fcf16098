package cmdline

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Who is refused, and does not send the rest of the body, is told so, and the connection ends.
func TestBoundRest_OfABodyThatIsNotRead(t *testing.T) {
	refuse := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	srv := httptest.NewServer(boundRest(refuse, time.Millisecond))
	defer srv.Close()
	for _, head := range []string{"Content-Length: 100\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n5\r\n{"} {
		b, err := io.ReadAll(sent(t, srv, head))
		if err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 401") {
			t.Errorf("%q: %q, %v", head, b, err)
		}
	}
}

// Who waits to be asked for the body is refused at once, and so is who has announced more of it than is read to no end.
func TestBoundRest_WaitsForNoBodyThatIsNotWanted(t *testing.T) {
	refuse := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	srv := httptest.NewServer(boundRest(refuse, time.Hour))
	defer srv.Close()
	for _, head := range []string{"Expect: 100-continue\r\nContent-Length: 100\r\n\r\n", "Content-Length: 1073741824\r\n\r\n{"} {
		conn := sent(t, srv, head)
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || !strings.HasPrefix(line, "HTTP/1.1 401") {
			t.Errorf("%q: %q, %v", head, line, err)
		}
		_ = conn.Close()
	}
}

// Nothing is bounded of a body that was read, and of a connection that was taken over.
func TestBoundRest_LeavesTheRestAlone(t *testing.T) {
	slow := make(chan bool)
	srv := httptest.NewServer(boundRest(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/read" {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(w, "read")
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		go func() {
			defer conn.Close()
			<-slow
			line, err := rw.ReadString('\n')
			fmt.Fprintf(conn, "%q, %v", line, err)
		}()
	}), time.Nanosecond))
	defer srv.Close()
	for range 2 {
		resp, err := http.Post(srv.URL+"/read", "text/plain", strings.NewReader("all"))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || string(b) != "read" {
			t.Errorf("%q, %v", b, err)
		}
	}
	conn := sent(t, srv, "Content-Length: 100\r\n\r\n")
	close(slow)
	if _, err := io.WriteString(conn, "own\n"); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(bufio.NewReader(conn)); err != nil || string(b) != `"own\n", <nil>` {
		t.Errorf("what has the connection: %s, %v", b, err)
	}
}

// sent sends the beginning of a request.
func sent(t *testing.T, srv *httptest.Server, rest string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\n"+rest); err != nil {
		t.Fatal(err)
	}
	return conn
}
