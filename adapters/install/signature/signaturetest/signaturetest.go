// Package signaturetest makes signatures for tests: an authority and a log like
// those of Sigstore, and a registry's key. It is for tests only.
package signaturetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/url"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/adapters/install/signature"
)

// SHA256 returns the SHA-256 of a file.
func SHA256(file []byte) []byte {
	sum := sha256.Sum256(file)
	return sum[:]
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func publicKey(t testing.TB, k *ecdsa.PrivateKey) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(&k.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(der)
}

func sign(t testing.TB, k *ecdsa.PrivateKey, b []byte) string {
	t.Helper()
	sig, err := ecdsa.SignASN1(rand.Reader, k, SHA256(b))
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(sig)
}

// Registry is an npm registry that signs packages.
type Registry struct {
	Key     signature.RegistryKey
	private *ecdsa.PrivateKey
}

// NewRegistry returns a registry with a key of its own.
func NewRegistry(t testing.TB) Registry {
	k := newKey(t)
	return Registry{signature.RegistryKey{ID: "SHA256:made-in-a-test", Key: publicKey(t, k)}, k}
}

// Sign signs one version of a package.
func (r Registry) Sign(t testing.TB, name, version, integrity string) signature.PackageSignature {
	return signature.PackageSignature{KeyID: r.Key.ID, Sig: sign(t, r.private, []byte(name+"@"+version+":"+integrity))}
}

// Sigstore is an authority and a log.
type Sigstore struct {
	Trust   signature.Sigstore
	between *x509.Certificate
	signer  *ecdsa.PrivateKey // of certificates
	log     *ecdsa.PrivateKey
}

// NewSigstore returns an authority with a root and one certificate below it, and
// a log.
func NewSigstore(t testing.TB) *Sigstore {
	t.Helper()
	rootKey := newKey(t)
	s := &Sigstore{signer: newKey(t), log: newKey(t)}
	authority := func(n int64, name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(n), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		}
	}
	root := authority(1, "root")
	s.between = authority(2, "between")
	chain := []string{
		base64.StdEncoding.EncodeToString(certificate(t, s.between, root, s.signer, rootKey)),
		base64.StdEncoding.EncodeToString(certificate(t, root, root, rootKey, rootKey)),
	}
	var err error
	if s.Trust, err = signature.NewSigstore(publicKey(t, s.log), chain...); err != nil {
		t.Fatal(err)
	}
	return s
}

func certificate(t testing.TB, c, by *x509.Certificate, key, signer *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, c, by, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// Bundle is what is written beside a signed file.
type Bundle struct {
	Signature, Cert string // base64
	Promise         string // base64
	Body            string // base64
	Time            int64
	LogID           string
	digest          []byte
}

// Sign signs a file as a workflow does.
func (s *Sigstore) Sign(t testing.TB, file []byte, by signature.Workflow) Bundle {
	t.Helper()
	key, der := s.certify(t, by)
	b := Bundle{
		Signature: sign(t, key, file), digest: SHA256(file),
		Cert: base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
	}
	return s.Log(t, b, time.Now().Unix())
}

// certify gives a workflow a key and a certificate of it.
func (s *Sigstore) certify(t testing.TB, by signature.Workflow) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	name, err := url.Parse(by.Name)
	if err != nil {
		t.Fatal(err)
	}
	issuer, err := asn1.MarshalWithParams(by.Issuer, "utf8")
	if err != nil {
		t.Fatal(err)
	}
	key := newKey(t)
	return key, certificate(t, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(10 * time.Minute),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}, URIs: []*url.URL{name},
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 8}, Value: issuer}},
	}, s.between, key, s.signer)
}

// Log lets the log promise to keep a signature, at a time.
func (s *Sigstore) Log(t testing.TB, b Bundle, at int64) Bundle {
	t.Helper()
	b.Body = base64.StdEncoding.EncodeToString([]byte(`{"apiVersion":"0.0.1","kind":"hashedrekord","spec":{"data":{"hash":{"algorithm":"sha256","value":"` +
		hex.EncodeToString(b.digest) + `"}},"signature":{"content":"` + b.Signature + `","publicKey":{"content":"` + b.Cert + `"}}}}`))
	b.Time, b.LogID = at, s.Trust.LogID
	payload, err := json.Marshal(b.payload())
	if err != nil {
		t.Fatal(err)
	}
	b.Promise = sign(t, s.log, payload)
	return b
}

// payload has its members in the order of their names, which is what the log signs.
func (b Bundle) payload() map[string]any {
	return map[string]any{"body": b.Body, "integratedTime": b.Time, "logID": b.LogID, "logIndex": 7}
}

// JSON returns the bundle as cosign writes it.
func (b Bundle) JSON(t testing.TB) []byte {
	t.Helper()
	doc, err := json.Marshal(map[string]any{
		"base64Signature": b.Signature, "cert": b.Cert,
		"rekorBundle": map[string]any{"SignedEntryTimestamp": b.Promise, "Payload": b.payload()},
	})
	if err != nil {
		t.Fatal(err)
	}
	return doc
}
