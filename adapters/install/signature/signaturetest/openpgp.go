package signaturetest

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"testing"
)

// OpenPGP is a maker's key.
type OpenPGP struct {
	Fingerprint string
	Key         []byte // the file of keys
	private     ed25519.PrivateKey
}

// NewOpenPGP returns a key of Ed25519.
func NewOpenPGP(t testing.TB) OpenPGP {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	body := append([]byte{4, 0, 0, 0, 1, 27}, public...)
	sum := sha1.Sum(append([]byte{0x99, 0, byte(len(body))}, body...))
	return OpenPGP{hex.EncodeToString(sum[:]), packet(6, body), private}
}

// Sign returns a detached signature of a document.
func (k OpenPGP) Sign(t testing.TB, document []byte) []byte {
	t.Helper()
	fingerprint, err := hex.DecodeString(k.Fingerprint)
	if err != nil {
		t.Fatal(err)
	}
	// Its time, and who made it.
	said := append([]byte{5, 2, 0, 0, 0, 2, 22, 33, 4}, fingerprint...)
	head := append([]byte{4, 0, 27, 8, 0, byte(len(said))}, said...)
	hash := sha256.New()
	hash.Write(document)
	hash.Write(binary.BigEndian.AppendUint32(append(append([]byte{}, head...), 4, 0xff), uint32(len(head))))
	sum := hash.Sum(nil)
	body := append(append(head, 0, 0), sum[:2]...)
	return packet(2, append(body, ed25519.Sign(k.private, sum)...))
}

func packet(tag byte, body []byte) []byte {
	return append([]byte{0xc0 | tag, byte(len(body))}, body...)
}
