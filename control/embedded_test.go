package control

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// What a page of another site embeds is refused without an Origin, too; links to
// the web page work.
func TestGuard_WhatOtherPagesEmbed(t *testing.T) {
	h := Guard{Bind: "127.0.0.1"}.prepare().wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, tt := range []struct {
		path, site, mode, dest string
		want                   int
	}{
		{"/v2/fs/file?path=/a.js", "cross-site", "no-cors", "script", 403},
		{"/v2/fs/file?path=/a.png", "same-site", "no-cors", "image", 403},
		{"/ui/", "cross-site", "navigate", "iframe", 403},
		{"/v2/sessions", "cross-site", "navigate", "document", 403},
		{"/ui/", "cross-site", "navigate", "document", 200},
		{"/v2/fs/file?path=/a.png", "same-origin", "no-cors", "image", 200},
		{"/v2/sessions", "none", "navigate", "document", 200}, // typed
		{"/v2/sessions", "", "", "", 200},                     // no browser
	} {
		r := httptest.NewRequest("GET", "http://127.0.0.1"+tt.path, nil)
		for name, v := range map[string]string{"Sec-Fetch-Site": tt.site, "Sec-Fetch-Mode": tt.mode, "Sec-Fetch-Dest": tt.dest} {
			if v != "" {
				r.Header.Set(name, v)
			}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("%+v: %d", tt, w.Code)
		}
		if w.Code == 200 && w.Header().Get("Cross-Origin-Resource-Policy") != "same-origin" {
			t.Errorf("%+v: other sites may load it", tt)
		}
	}
}

// A server on all addresses is reached by each of them, and by no other name.
func TestGuard_AllAddresses(t *testing.T) {
	ln, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(Guard{Bind: "0.0.0.0"}.prepare().wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	_ = srv.Listener.Close()
	srv.Listener = ln
	srv.Start()
	defer srv.Close()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	for _, a := range addrs {
		ip, _, err := net.ParseCIDR(a.String())
		if err != nil || ip.To4() == nil {
			continue
		}
		for host, want := range map[string]int{"": 200, "10.99.99.99": 403, "evil.example": 403} {
			req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+net.JoinHostPort(ip.String(), port)+"/v2/health", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = host
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode != want {
				t.Errorf("%s as %q: %d", ip, host, res.StatusCode)
			}
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
