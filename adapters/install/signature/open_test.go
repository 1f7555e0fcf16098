package signature

import (
	"encoding/json"
	"errors"
	"os"
	"testing"
)

// Statements that the public instance of Sigstore has sealed, in both forms of its log:
// examples of the project's own libraries.
func TestOpen_SealedByThePublicInstance(t *testing.T) {
	for _, name := range []string{"dsse", "intoto"} {
		doc, err := os.ReadFile("testdata/sealed-" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		kind, payload, cert, err := PublicSigstore().open(doc)
		if err != nil || kind != "text/plain" || string(payload) != "hello, world!" || cert == nil {
			t.Errorf("%s: %q, %q, %v", name, kind, payload, err)
		}
		// Each part that is changed breaks it.
		var b sealed
		if err := json.Unmarshal(doc, &b); err != nil {
			t.Fatal(err)
		}
		for part, change := range map[string]func(b *sealed){
			"payload":   func(b *sealed) { b.Envelope.Payload[0] ^= 1 },
			"type":      func(b *sealed) { b.Envelope.Type = "text/html" },
			"signature": func(b *sealed) { b.Envelope.Signatures[0].Sig[20] ^= 1 },
			"time":      func(b *sealed) { b.Material.Entries[0].Time += "0" },
			"place":     func(b *sealed) { b.Material.Entries[0].Index += "0" },
			"promise":   func(b *sealed) { b.Material.Entries[0].Promise.Signed[20] ^= 1 },
		} {
			var other sealed
			if err := json.Unmarshal(doc, &other); err != nil {
				t.Fatal(err)
			}
			change(&other)
			changed, err := json.Marshal(other)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, _, err := PublicSigstore().open(changed); !errors.Is(err, ErrWrong) {
				t.Errorf("%s: another %s: %v", name, part, err)
			}
		}
	}
}
