package signature

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strconv"
	"strings"
)

// attestations is what an npm registry has about one version of a package.
type attestations struct {
	Attestations []struct {
		PredicateType string          `json:"predicateType"`
		Bundle        json.RawMessage `json:"bundle"`
	} `json:"attestations"`
}

// sealed is Sigstore's newer form of a bundle, with a signed statement in it.
type sealed struct {
	Material struct {
		Certificate struct {
			Raw []byte `json:"rawBytes"`
		} `json:"certificate"`
		Chain struct {
			Certificates []struct {
				Raw []byte `json:"rawBytes"`
			} `json:"certificates"`
		} `json:"x509CertificateChain"`
		Entries []sealedEntry `json:"tlogEntries"`
	} `json:"verificationMaterial"`
	Envelope struct {
		Payload    []byte `json:"payload"`
		Type       string `json:"payloadType"`
		Signatures []struct {
			Sig []byte `json:"sig"`
		} `json:"signatures"`
	} `json:"dsseEnvelope"`
}

type sealedEntry struct {
	Index string `json:"logIndex"`
	Log   struct {
		KeyID []byte `json:"keyId"`
	} `json:"logId"`
	Time    string `json:"integratedTime"`
	Promise struct {
		Signed []byte `json:"signedEntryTimestamp"`
	} `json:"inclusionPromise"`
	Body []byte `json:"canonicalizedBody"`
}

// sealedBody is what the log holds of a signed statement, in both of its forms.
type sealedBody struct {
	Kind string `json:"kind"`
	Spec struct {
		PayloadHash hash `json:"payloadHash"` // kind dsse
		Signatures  []struct {
			Signature []byte `json:"signature"`
			Verifier  []byte `json:"verifier"` // PEM
		} `json:"signatures"`
		Content struct { // kind intoto
			PayloadHash hash `json:"payloadHash"`
			Envelope    struct {
				Signatures []struct {
					Sig []byte `json:"sig"` // base64 once more
					Key []byte `json:"publicKey"`
				} `json:"signatures"`
			} `json:"envelope"`
		} `json:"content"`
	} `json:"spec"`
}

type hash struct{ Algorithm, Value string }

// statement is the part of an in-toto statement that says what was built.
type statement struct {
	Type    string `json:"_type"`
	Subject []struct {
		Name   string            `json:"name"`
		Digest map[string]string `json:"digest"`
	} `json:"subject"`
}

const (
	slsa          = "https://slsa.dev/provenance/"
	inToto        = "application/vnd.in-toto+json"
	statementType = "https://in-toto.io/Statement/v"
)

// Package checks what a registry has about where a version of a package was built:
// doc is its answer, integrity the package's, as SHA-512. It returns by which workflow.
func (s Sigstore) Package(doc []byte, name, version, integrity string) (Workflow, error) {
	var all attestations
	if err := json.Unmarshal(doc, &all); err != nil {
		return Workflow{}, fmt.Errorf("%w: the attestations have a form that this release does not read", ErrUnknown)
	}
	for _, a := range all.Attestations {
		if !strings.HasPrefix(a.PredicateType, slsa) {
			continue // by the registry itself, which has signed the package as well
		}
		kind, payload, cert, err := s.open(a.Bundle)
		if err != nil {
			return Workflow{}, err
		}
		if kind != inToto {
			return Workflow{}, fmt.Errorf("%w: what is signed is %.80q", ErrUnknown, kind)
		}
		if err := builds(payload, name, version, integrity); err != nil {
			return Workflow{}, err
		}
		issuer, err := issuerOf(cert)
		if err != nil || len(cert.URIs) != 1 {
			return Workflow{}, fmt.Errorf("%w: the certificate names no workflow", ErrUnknown)
		}
		return Workflow{Issuer: issuer, Name: cert.URIs[0].String()}, nil
	}
	return Workflow{}, fmt.Errorf("%w: nobody says where it was built", ErrUnknown)
}

// open checks a sealed statement and returns it, with the certificate of who signed it.
// What is checked is what [Sigstore.File] checks.
func (s Sigstore) open(doc []byte) (kind string, payload []byte, cert *x509.Certificate, err error) {
	var b sealed
	if err := json.Unmarshal(doc, &b); err != nil || len(b.Envelope.Signatures) != 1 || len(b.Material.Entries) != 1 {
		return "", nil, nil, fmt.Errorf("%w: the bundle has a form that this release does not read", ErrUnknown)
	}
	raw := b.Material.Certificate.Raw
	if raw == nil && len(b.Material.Chain.Certificates) > 0 {
		raw = b.Material.Chain.Certificates[0].Raw
	}
	if cert, err = x509.ParseCertificate(raw); err != nil {
		return "", nil, nil, fmt.Errorf("%w: read the certificate: %w", ErrUnknown, err)
	}
	e := b.Material.Entries[0]
	if hex.EncodeToString(e.Log.KeyID) != s.LogID || len(e.Promise.Signed) == 0 {
		return "", nil, nil, fmt.Errorf("%w: the log %.80q is not one that this release knows, or gave no promise", ErrUnknown, hex.EncodeToString(e.Log.KeyID))
	}
	at, terr := strconv.ParseInt(e.Time, 10, 64)
	index, ierr := strconv.ParseInt(e.Index, 10, 64)
	if terr != nil || ierr != nil {
		return "", nil, nil, fmt.Errorf("%w: the log's entry has no time or place", ErrUnknown)
	}
	p := promise{Body: base64.StdEncoding.EncodeToString(e.Body), Time: at, LogID: s.LogID, Index: index}
	if err := s.promised(p, e.Promise.Signed); err != nil {
		return "", nil, nil, err
	}
	sig := b.Envelope.Signatures[0].Sig
	if err := e.holds(b.Envelope.Payload, sig, raw); err != nil {
		return "", nil, nil, err
	}
	if err := s.certified(cert, at); err != nil {
		return "", nil, nil, err
	}
	public, ok := cert.PublicKey.(*ecdsa.PublicKey)
	if !ok {
		return "", nil, nil, fmt.Errorf("%w: the certificate's key is no ECDSA key", ErrUnknown)
	}
	signed := fmt.Appendf(nil, "DSSEv1 %d %s %d ", len(b.Envelope.Type), b.Envelope.Type, len(b.Envelope.Payload))
	sum := sha256.Sum256(append(signed, b.Envelope.Payload...))
	if !ecdsa.VerifyASN1(public, sum[:], sig) {
		return "", nil, nil, fmt.Errorf("%w: it is not of this statement", ErrWrong)
	}
	return b.Envelope.Type, b.Envelope.Payload, cert, nil
}

// holds checks that the log's entry is about this statement, signature and certificate.
func (e sealedEntry) holds(payload, sig, cert []byte) error {
	var body sealedBody
	if err := json.Unmarshal(e.Body, &body); err != nil {
		return fmt.Errorf("%w: the log's entry has a form that this release does not read", ErrUnknown)
	}
	var digest hash
	var signed, by []byte
	switch body.Kind {
	case "dsse":
		if len(body.Spec.Signatures) == 1 {
			digest, signed, by = body.Spec.PayloadHash, body.Spec.Signatures[0].Signature, body.Spec.Signatures[0].Verifier
		}
	case "intoto":
		if all := body.Spec.Content.Envelope.Signatures; len(all) == 1 {
			digest, by = body.Spec.Content.PayloadHash, all[0].Key
			signed, _ = base64.StdEncoding.DecodeString(string(all[0].Sig))
		}
	default:
		return fmt.Errorf("%w: the log's entry is of the kind %.80q", ErrUnknown, body.Kind)
	}
	sum := sha256.Sum256(payload)
	block, _ := pem.Decode(by)
	if digest.Algorithm != "sha256" || digest.Value != hex.EncodeToString(sum[:]) || !bytes.Equal(signed, sig) || block == nil || !bytes.Equal(block.Bytes, cert) {
		return fmt.Errorf("%w: the log has another statement", ErrWrong)
	}
	return nil
}

// builds checks that a statement is about one version of a package.
func builds(payload []byte, name, version, integrity string) error {
	var said statement
	if err := json.Unmarshal(payload, &said); err != nil || !strings.HasPrefix(said.Type, statementType) {
		return fmt.Errorf("%w: the statement has a form that this release does not read", ErrUnknown)
	}
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(integrity, "sha512-"))
	if err != nil {
		return fmt.Errorf("%w: the registry gives no SHA-512", ErrUnknown)
	}
	// As a package URL, in which the at sign of a scope is encoded.
	what := "pkg:npm/" + strings.Replace(name, "@", "%40", 1) + "@" + version
	for _, one := range said.Subject {
		if one.Name == what && one.Digest["sha512"] == hex.EncodeToString(sum) {
			return nil
		}
	}
	return fmt.Errorf("%w: it is about something else than %s with this digest", ErrWrong, what)
}
