package signature

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// Sigstore is what is trusted to say who signed: the authority that gives
// certificates to workflows, and the log that says when.
type Sigstore struct {
	Roots, Between *x509.CertPool
	Log            *ecdsa.PublicKey
	LogID          string // SHA-256 of the log's key, in hexadecimal
}

// Workflow is a program of a code host that signs what it builds.
type Workflow struct {
	Issuer string // who vouches for it
	Name   string // its address with the revision that it ran at
}

// bundle is what cosign writes beside a signed file.
type bundle struct {
	Signature string `json:"base64Signature"`
	Cert      []byte `json:"cert"` // PEM
	Rekor     struct {
		Promise []byte  `json:"SignedEntryTimestamp"`
		Payload promise `json:"Payload"`
	} `json:"rekorBundle"`
}

// promise is what the log signs; its members stand in the order of their names,
// as the signed form wants.
type promise struct {
	Body  string `json:"body"` // base64
	Time  int64  `json:"integratedTime"`
	LogID string `json:"logID"`
	Index int64  `json:"logIndex"`
}

// entry is what the log holds of a signed file.
type entry struct {
	Kind string `json:"kind"`
	Spec struct {
		Data struct {
			Hash struct{ Algorithm, Value string }
		}
		Signature struct {
			Content   string
			PublicKey struct{ Content []byte }
		}
	}
}

// File checks that a workflow signed the file with a SHA-256, by the bundle that
// cosign wrote for it.
//
// The log's promise to keep the signature is checked, and that the certificate
// was good when it gave it. Nobody is asked whether the log kept its promise.
func (s Sigstore) File(doc, digest []byte, by Workflow) error {
	var b bundle
	if err := json.Unmarshal(doc, &b); err != nil || b.Signature == "" || len(b.Cert) == 0 || len(b.Rekor.Promise) == 0 {
		return fmt.Errorf("%w: the bundle has a form that this release does not read", ErrUnknown)
	}
	cert, err := b.certificate()
	if err != nil {
		return err
	}
	if b.Rekor.Payload.LogID != s.LogID {
		return fmt.Errorf("%w: the log %.80q is not one that this release knows", ErrUnknown, b.Rekor.Payload.LogID)
	}
	if err := s.logged(b, digest); err != nil {
		return err
	}
	if err := s.certified(cert, b.Rekor.Payload.Time); err != nil {
		return err
	}
	if err := signedBy(cert, by); err != nil {
		return err
	}
	public, ok := cert.PublicKey.(*ecdsa.PublicKey)
	if !ok {
		return fmt.Errorf("%w: the certificate's key is no ECDSA key", ErrUnknown)
	}
	sig, err := base64.StdEncoding.DecodeString(b.Signature)
	if err != nil || !ecdsa.VerifyASN1(public, digest, sig) {
		return fmt.Errorf("%w: it is not of this file", ErrWrong)
	}
	return nil
}

func (b bundle) certificate() (*x509.Certificate, error) {
	block, _ := pem.Decode(b.Cert)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("%w: the bundle has no certificate", ErrUnknown)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: read the certificate: %w", ErrUnknown, err)
	}
	return cert, nil
}

// certified checks that the authority gave a certificate to sign with, and that it was
// good at a time.
func (s Sigstore) certified(cert *x509.Certificate, at int64) error {
	_, err := cert.Verify(x509.VerifyOptions{
		Roots: s.Roots, Intermediates: s.Between, CurrentTime: time.Unix(at, 0),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
	})
	if err != nil {
		return fmt.Errorf("%w: the certificate: %w", ErrWrong, err)
	}
	return nil
}

// promised checks that the log signed a promise.
func (s Sigstore) promised(p promise, sig []byte) error {
	signed, err := json.Marshal(p)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(signed)
	if !ecdsa.VerifyASN1(s.Log, sum[:], sig) {
		return fmt.Errorf("%w: the log did not promise to keep it", ErrWrong)
	}
	return nil
}

// logged checks that the log promised to keep this very signature of this file.
func (s Sigstore) logged(b bundle, digest []byte) error {
	if err := s.promised(b.Rekor.Payload, b.Rekor.Promise); err != nil {
		return err
	}
	body, err := base64.StdEncoding.DecodeString(b.Rekor.Payload.Body)
	var e entry
	if err == nil {
		err = json.Unmarshal(body, &e)
	}
	if err != nil || e.Kind != "hashedrekord" || e.Spec.Data.Hash.Algorithm != "sha256" {
		return fmt.Errorf("%w: the log's entry has a form that this release does not read", ErrUnknown)
	}
	switch {
	case e.Spec.Data.Hash.Value != hex.EncodeToString(digest):
		return fmt.Errorf("%w: the log has it for a file with the SHA-256 %.64s", ErrWrong, e.Spec.Data.Hash.Value)
	case e.Spec.Signature.Content != b.Signature, !bytes.Equal(e.Spec.Signature.PublicKey.Content, b.Cert):
		return fmt.Errorf("%w: the log has another one of this file", ErrWrong)
	}
	return nil
}

// The certificate's extensions that name who vouched for the workflow: the older
// one holds plain text, the newer one a string of ASN.1.
var (
	issuerText   = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 1}
	issuerString = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 8}
)

func signedBy(cert *x509.Certificate, by Workflow) error {
	if len(cert.URIs) != 1 || cert.URIs[0].String() != by.Name {
		return fmt.Errorf("%w: it is by %.200q and not by %s", ErrWrong, cert.URIs, by.Name)
	}
	issuer, err := issuerOf(cert)
	if err != nil {
		return err
	}
	if issuer != by.Issuer {
		return fmt.Errorf("%w: %.200q vouched for it and not %s", ErrWrong, issuer, by.Issuer)
	}
	return nil
}

// issuerOf returns who vouched for the workflow that has a certificate, "" if it does not
// say.
func issuerOf(cert *x509.Certificate) (issuer string, err error) {
	for _, x := range cert.Extensions {
		switch {
		case x.Id.Equal(issuerString):
			if rest, err := asn1.Unmarshal(x.Value, &issuer); err != nil || len(rest) > 0 {
				return "", fmt.Errorf("%w: the certificate does not say who vouched for its workflow", ErrWrong)
			}
		case x.Id.Equal(issuerText) && issuer == "":
			issuer = string(x.Value)
		}
	}
	return issuer, nil
}

// NewSigstore returns what is trusted of an authority's certificates, the last
// of which is its root, and a log's key as DER in base64.
func NewSigstore(logKey string, chain ...string) (Sigstore, error) {
	s := Sigstore{Roots: x509.NewCertPool(), Between: x509.NewCertPool()}
	for i, c := range chain {
		der, err := base64.StdEncoding.DecodeString(c)
		if err != nil {
			return s, fmt.Errorf("read a certificate: %w", err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return s, fmt.Errorf("read a certificate: %w", err)
		}
		if i == len(chain)-1 {
			s.Roots.AddCert(cert)
		} else {
			s.Between.AddCert(cert)
		}
	}
	der, err := base64.StdEncoding.DecodeString(logKey)
	if err != nil {
		return s, fmt.Errorf("read the log's key: %w", err)
	}
	key, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return s, fmt.Errorf("read the log's key: %w", err)
	}
	var ok bool
	if s.Log, ok = key.(*ecdsa.PublicKey); !ok {
		return s, errors.New("the log's key is no ECDSA key")
	}
	sum := sha256.Sum256(der)
	s.LogID = hex.EncodeToString(sum[:])
	return s, nil
}

// PublicSigstore is the public instance that projects sign with, from its root
// of trust: the log rekor.sigstore.dev and the authority fulcio.sigstore.dev.
// The authority's certificates are good until October 2031.
func PublicSigstore() Sigstore {
	s, err := NewSigstore(
		"MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE2G2Y+2tabdTV5BcGiBIx0a9fAFwrkBbmLSGtks4L3qX6yYY0zufBnhC8Ur/iy55GhWP/9A/bY2LhC30M9+RYtw==",
		"MIICGjCCAaGgAwIBAgIUALnViVfnU0brJasmRkHrn/UnfaQwCgYIKoZIzj0EAwMwKjEVMBMGA1UEChMMc2lnc3RvcmUuZGV2MREwDwYDVQQDEwhzaWdzdG9yZTAeFw0yMjA0MTMyMDA2MTVaFw0zMTEwMDUxMzU2NThaMDcxFTATBgNVBAoTDHNpZ3N0b3JlLmRldjEeMBwGA1UEAxMVc2lnc3RvcmUtaW50ZXJtZWRpYXRlMHYwEAYHKoZIzj0CAQYFK4EEACIDYgAE8RVS/ysH+NOvuDZyPIZtilgUF9NlarYpAd9HP1vBBH1U5CV77LSS7s0ZiH4nE7Hv7ptS6LvvR/STk798LVgMzLlJ4HeIfF3tHSaexLcYpSASr1kS0N/RgBJz/9jWCiXno3sweTAOBgNVHQ8BAf8EBAMCAQYwEwYDVR0lBAwwCgYIKwYBBQUHAwMwEgYDVR0TAQH/BAgwBgEB/wIBADAdBgNVHQ4EFgQU39Ppz1YkEZb5qNjpKFWixi4YZD8wHwYDVR0jBBgwFoAUWMAeX5FFpWapesyQoZMi0CrFxfowCgYIKoZIzj0EAwMDZwAwZAIwPCsQK4DYiZYDPIaDi5HFKnfxXx6ASSVmERfsynYBiX2X6SJRnZU84/9DZdnFvvxmAjBOt6QpBlc4J/0DxvkTCqpclvziL6BCCPnjdlIB3Pu3BxsPmygUY7Ii2zbdCdliiow=",
		"MIIB9zCCAXygAwIBAgIUALZNAPFdxHPwjeDloDwyYChAO/4wCgYIKoZIzj0EAwMwKjEVMBMGA1UEChMMc2lnc3RvcmUuZGV2MREwDwYDVQQDEwhzaWdzdG9yZTAeFw0yMTEwMDcxMzU2NTlaFw0zMTEwMDUxMzU2NThaMCoxFTATBgNVBAoTDHNpZ3N0b3JlLmRldjERMA8GA1UEAxMIc2lnc3RvcmUwdjAQBgcqhkjOPQIBBgUrgQQAIgNiAAT7XeFT4rb3PQGwS4IajtLk3/OlnpgangaBclYpsYBr5i+4ynB07ceb3LP0OIOZdxexX69c5iVuyJRQ+Hz05yi+UF3uBWAlHpiS5sh0+H2GHE7SXrk1EC5m1Tr19L9gg92jYzBhMA4GA1UdDwEB/wQEAwIBBjAPBgNVHRMBAf8EBTADAQH/MB0GA1UdDgQWBBRYwB5fkUWlZql6zJChkyLQKsXF+jAfBgNVHSMEGDAWgBRYwB5fkUWlZql6zJChkyLQKsXF+jAKBggqhkjOPQQDAwNpADBmAjEAj1nHeXZp+13NWBNa+EDsDP8G1WWg1tCMWP/WHPqpaVo0jhsweNFZgSs0eE7wYI4qAjEA2WB9ot98sIkoF3vZYdd3/VtWB5b9TNMea7Ix/stJ5TfcLLeABLE4BNJOsQ4vnBHJ",
	)
	if err != nil {
		panic(err) // constants, which a test reads
	}
	return s
}
