package tunnel_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/fleet/tunnel"
)

func TestHello_RoundTrip(t *testing.T) {
	want := tunnel.Hello{Name: "box-1.eu", Labels: map[string]string{"team": "a", "example.com/zone": "eu-1", "empty": ""}, Version: "v1.2.3-4-gabc", Instance: strings.Repeat("A", 26)}
	got, err := tunnel.ParseHello(want.Header())
	if err != nil || got.Name != want.Name || got.Version != want.Version || got.Instance != want.Instance || !maps.Equal(got.Labels, want.Labels) {
		t.Errorf("%+v became %+v: %v", want, got, err)
	}
}

func TestLabels_BadOnes(t *testing.T) {
	for words, says := range map[string]string{
		"a":                            "write it as NAME=VALUE",
		"=b":                           "no name of a label",
		"a=b,a=c":                      "two values",
		"a b=c":                        "no name of a label",
		"a=b c":                        "no value of a label",
		"-a=b":                         "no name of a label",
		"a=" + strings.Repeat("b", 64): "no value of a label",
		strings.Repeat("a", 64) + "=b": "no name of a label",
	} {
		labels, err := tunnel.ParseLabels(strings.Split(words, ","))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, %v, want %q", words, labels, err, says)
		}
	}
	many := []string{}
	for i := range tunnel.MaxLabels + 1 {
		many = append(many, "l"+strings.Repeat("x", i)+"=v")
	}
	if _, err := tunnel.ParseLabels(many); err == nil {
		t.Error("more labels than may be were taken")
	}
}

// Whatever a node says of itself is refused, or can be said again and is the same.
func FuzzParseHello(f *testing.F) {
	f.Add("box", "a=b,c=d", "v1", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
	f.Add("", ",", " ", "")
	f.Add("a..b", "a==b", "dev", "0123456789abcdef")
	f.Fuzz(func(t *testing.T, name, labels, version, instance string) {
		h := http.Header{}
		h["X-Sandbox-Node"], h["X-Sandbox-Labels"], h["X-Sandbox-Version"], h["X-Sandbox-Instance"] = []string{name}, []string{labels}, []string{version}, []string{instance}
		got, err := tunnel.ParseHello(h)
		if err != nil {
			return
		}
		if strings.ContainsAny(got.Name, "/\\ \r\n=*>") || got.Name == "." || got.Name == ".." || len(got.Name) > 63 {
			t.Errorf("%q is a name", got.Name)
		}
		again, err := tunnel.ParseHello(got.Header())
		if err != nil || again.Name != got.Name || !maps.Equal(again.Labels, got.Labels) {
			t.Errorf("%+v became %+v: %v", got, again, err)
		}
	})
}
