package signature_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters/install/signature"
)

// GnuPG made the keys and signatures in testdata; their secret halves are gone.
const (
	rsaKey     = "B720F88B1F11B73D74FDC321A0645663C162FE8B"
	subkeyOf   = "D217F23F0452FB49183105C671FA1B177B25083E"
	revokedKey = "146AFCB221D83CE61AAFF7EDCDE67A20C80384FE"
)

func file(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestOpenPGP(t *testing.T) {
	document := file(t, "document.json")
	changed := bytes.Replace(document, []byte("1.0.0"), []byte("1.0.1"), 1)
	tests := []struct {
		name, fingerprint, keys, sig string
		document                     []byte
		want                         error
	}{
		{"RSA", rsaKey, "rsa.key", "rsa.sig", document, nil},
		{"RSA as bytes", rsaKey, "rsa-binary.key", "rsa-binary.sig", document, nil},
		{"a subkey that may sign", subkeyOf, "subkey.key", "subkey.sig", document, nil},
		{"a changed document", rsaKey, "rsa.key", "rsa.sig", changed, signature.ErrWrong},
		{"a changed document and a subkey", subkeyOf, "subkey.key", "subkey.sig", changed, signature.ErrWrong},
		{"a key that was given up", revokedKey, "revoked.key", "revoked.sig", document, signature.ErrWrong},
		{"by another key", rsaKey, "rsa.key", "subkey.sig", document, signature.ErrUnknown},
		{"another key instead of the maker's", rsaKey, "subkey.key", "subkey.sig", document, signature.ErrUnknown},
		{"a page of a portal instead of a key", rsaKey, "document.json", "rsa.sig", document, signature.ErrUnknown},
		{"a page of a portal instead of a signature", rsaKey, "rsa.key", "document.json", document, signature.ErrUnknown},
		{"a key instead of a signature", rsaKey, "rsa.key", "rsa.key", document, signature.ErrUnknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := signature.OpenPGP(tt.fingerprint, file(t, tt.keys), file(t, tt.sig), tt.document)
			if !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
}

// Whoever may write the file of keys cannot make a key of their own count.
func TestOpenPGP_KeysOfOthersBesideIt(t *testing.T) {
	document := file(t, "document.json")
	both := append(file(t, "rsa-binary.key"), unarmored(t, file(t, "subkey.key"))...)
	if err := signature.OpenPGP(rsaKey, both, file(t, "subkey.sig"), document); !errors.Is(err, signature.ErrUnknown) {
		t.Errorf("a key behind the maker's: %v", err)
	}
	// The packets of a foreign subkey right behind the maker's key: nobody's
	// signature binds them to it.
	foreign := unarmored(t, file(t, "subkey.key"))
	_, own := packet(t, foreign)
	grafted := append(file(t, "rsa-binary.key"), own...)
	if err := signature.OpenPGP(rsaKey, grafted, file(t, "subkey.sig"), document); !errors.Is(err, signature.ErrUnknown) {
		t.Errorf("a grafted subkey: %v", err)
	}
	if err := signature.OpenPGP(rsaKey, grafted, file(t, "rsa.sig"), document); err != nil {
		t.Errorf("the maker's own signature with it: %v", err)
	}
}

// Every single bit of a signature counts, or the file is told to be unreadable.
func TestOpenPGP_ChangedSignature(t *testing.T) {
	document, keys, sig := file(t, "document.json"), file(t, "rsa-binary.key"), file(t, "rsa-binary.sig")
	passed := 0
	for i := range sig {
		bad := bytes.Clone(sig)
		bad[i] ^= 0x10
		if signature.OpenPGP(rsaKey, keys, bad, document) == nil {
			passed++
		}
	}
	// What is not signed of a signature is a hint at the key: it may change
	// without making another document pass. The id of the key in it is eight bytes.
	if passed > 10 {
		t.Errorf("%d of %d changed bytes made no difference", passed, len(sig))
	}
}

func FuzzOpenPGP(f *testing.F) {
	document := file(f, "document.json")
	for _, name := range []string{"rsa", "subkey", "revoked", "rsa-binary"} {
		f.Add(file(f, name+".key"), file(f, name+".sig"))
	}
	genuine := file(f, "rsa.key")
	f.Fuzz(func(t *testing.T, keys, sig []byte) {
		// No file of keys makes a signature pass for a document that nobody signed.
		other := append(bytes.Clone(document), "and more"...)
		for _, k := range [][]byte{keys, genuine} {
			if err := signature.OpenPGP(rsaKey, k, sig, other); err == nil {
				t.Errorf("%q passed as a signature", sig)
			}
		}
	})
}

// unarmored returns the bytes of a key in its text form.
func unarmored(t *testing.T, text []byte) []byte {
	t.Helper()
	_, body, _ := strings.Cut(string(text), "\n\n")
	body, _, _ = strings.Cut(body, "\n=")
	b, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(body, "\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// packet cuts the first packet off a key.
func packet(t *testing.T, b []byte) (first, rest []byte) {
	t.Helper()
	if b[0]&0xc3 != 0x80 { // of the older form, with a length of one byte
		t.Fatalf("the key begins with %#x", b[0])
	}
	n := 2 + int(b[1])
	return b[:n], b[n:]
}
