package socket

import (
	"net/http"
	"os"
	"strings"
	"testing"
)

// No proxy is used for this machine, whatever it is called by. It reads the environment once, so that there is one test of it.
func TestProxy(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://proxy.example:3128")
	t.Setenv("NO_PROXY", "")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	short, _, _ := strings.Cut(host, ".")
	for name, want := range map[string]bool{
		host: false, strings.ToUpper(host): false, host + ".": false, short: false,
		"localhost": false, "localhost.": false, "page.localhost": false, "127.0.0.1": false, "[::1]": false,
		"not-" + host: true, host + ".example": true, "example.com": true, "notlocalhost": true, "192.0.2.1": true,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+name+":8080/", nil)
		if err != nil {
			t.Fatal(err)
		}
		proxy, err := Proxy(r)
		if err != nil || (proxy != nil) != want {
			t.Errorf("%s: %v, %v", name, proxy, err)
		}
	}
}
