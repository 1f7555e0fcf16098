package signaturetest

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/adapters/install/signature"
)

// Attestation is what a workflow says of a package that it built. Tests change its parts
// before they are sealed.
type Attestation struct {
	Name, Version, Integrity string
	By                       signature.Workflow
	Kind                     string // of what is signed
	At                       time.Time
}

// Attest describes one version of a package.
func Attest(name, version, integrity string, by signature.Workflow) Attestation {
	return Attestation{name, version, integrity, by, "application/vnd.in-toto+json", time.Now()}
}

// Seal signs an attestation and returns what a registry answers about it. change may alter
// the bundle, whose members are those of its JSON.
func (s *Sigstore) Seal(t testing.TB, a Attestation, change func(bundle map[string]any)) []byte {
	t.Helper()
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(a.Integrity, "sha512-"))
	if err != nil {
		t.Fatal(err)
	}
	payload := asJSON(t, map[string]any{
		"_type": "https://in-toto.io/Statement/v1", "predicateType": "https://slsa.dev/provenance/v1", "predicate": map[string]any{},
		"subject": []any{map[string]any{
			"name": "pkg:npm/" + strings.Replace(a.Name, "@", "%40", 1) + "@" + a.Version, "digest": map[string]string{"sha512": hex.EncodeToString(sum)},
		}},
	})
	key, der := s.certify(t, a.By)
	sig := sign(t, key, append(fmt.Appendf(nil, "DSSEv1 %d %s %d ", len(a.Kind), a.Kind, len(payload)), payload...))
	body := asJSON(t, map[string]any{"apiVersion": "0.0.1", "kind": "dsse", "spec": map[string]any{
		"payloadHash": map[string]string{"algorithm": "sha256", "value": hex.EncodeToString(SHA256(payload))},
		"signatures":  []any{map[string]any{"signature": sig, "verifier": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}},
	}})
	logged := Bundle{Body: base64.StdEncoding.EncodeToString(body), Time: a.At.Unix(), LogID: s.Trust.LogID}
	id, err := hex.DecodeString(s.Trust.LogID)
	if err != nil {
		t.Fatal(err)
	}
	bundle := map[string]any{
		"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
		"verificationMaterial": map[string]any{
			"certificate": map[string]any{"rawBytes": der},
			"tlogEntries": []any{map[string]any{
				"logIndex": "7", "logId": map[string]any{"keyId": id}, "integratedTime": strconv.FormatInt(a.At.Unix(), 10),
				"inclusionPromise": map[string]any{"signedEntryTimestamp": sign(t, s.log, asJSON(t, logged.payload()))}, "canonicalizedBody": body,
			}},
		},
		"dsseEnvelope": map[string]any{"payload": payload, "payloadType": a.Kind, "signatures": []any{map[string]any{"sig": sig, "keyid": ""}}},
	}
	if change != nil {
		change(bundle)
	}
	return asJSON(t, map[string]any{"attestations": []any{
		map[string]any{"predicateType": "https://github.com/npm/attestation/tree/main/specs/publish/v0.1", "bundle": map[string]any{}},
		map[string]any{"predicateType": "https://slsa.dev/provenance/v1", "bundle": bundle},
	}})
}

func asJSON(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
