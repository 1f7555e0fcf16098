package signature_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/adapters/install/signature"
)

// A signature that the public registry gave for a package of Claude Code.
const (
	npmName      = "@anthropic-ai/claude-code-linux-x64"
	npmVersion   = "2.1.117"
	npmIntegrity = "sha512-bhN6qnc9xchKQqKWdwuZazEeSO+9NIhOPcoD/WgqTK5QRPSAwnvo5SZWIQUbkNbTKLaMwuxAu3u+Fj/jYbiidg=="
	npmKey       = "SHA256:DhQ8wR5APBvFHLF/+Tc+AYvPOdTpcIDqOhxsBHRwC7U"
	npmSignature = "MEUCIQDUymbxQflsibDfoYq28KKCAIPKbssiUho979lCvEJezQIgHBj/rmNW7BgE8R6GHIAnv92KP0had6nmBupG7SgB7zA="
)

func TestPackage(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	old := "SHA256:jl3bwswu80PjjokCgh0o2w5c2U4LhQAE57gj9cz1kzA"
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256([]byte(npmName + "@" + npmVersion + ":" + npmIntegrity))
	sig, err := ecdsa.SignASN1(rand.Reader, private, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	own := signature.PackageSignature{KeyID: "own", Sig: base64.StdEncoding.EncodeToString(sig)}
	ownKey := signature.RegistryKey{ID: "own", Key: base64.StdEncoding.EncodeToString(der), Expires: now.Add(time.Hour)}
	real := signature.PackageSignature{KeyID: npmKey, Sig: npmSignature}
	keys := append(signature.RegistryKeys(), ownKey)
	tests := []struct {
		name, version, integrity string
		sigs                     []signature.PackageSignature
		now                      time.Time
		key                      string
		want                     error
	}{
		{"the public registry's", npmVersion, npmIntegrity, []signature.PackageSignature{real}, now, npmKey, nil},
		{"one that is known behind one that is not", npmVersion, npmIntegrity, []signature.PackageSignature{{KeyID: "new", Sig: "x"}, real}, now, npmKey, nil},
		{"another registry's", npmVersion, npmIntegrity, []signature.PackageSignature{own}, now, "own", nil},
		{"its key has ended", npmVersion, npmIntegrity, []signature.PackageSignature{own}, now.Add(2 * time.Hour), "", signature.ErrUnknown},
		{"the key that the registry gave up", npmVersion, npmIntegrity, []signature.PackageSignature{{KeyID: old, Sig: npmSignature}}, now, "", signature.ErrUnknown},
		{"of another version", "2.1.118", npmIntegrity, []signature.PackageSignature{real}, now, "", signature.ErrWrong},
		{"of other contents", npmVersion, strings.Replace(npmIntegrity, "bhN6", "bhN7", 1), []signature.PackageSignature{real}, now, "", signature.ErrWrong},
		{"no signature, but its name", npmVersion, npmIntegrity, []signature.PackageSignature{{KeyID: npmKey, Sig: "AAAA"}}, now, "", signature.ErrWrong},
		{"no base64", npmVersion, npmIntegrity, []signature.PackageSignature{{KeyID: npmKey, Sig: "%"}}, now, "", signature.ErrWrong},
		{"a key that nobody knows", npmVersion, npmIntegrity, []signature.PackageSignature{{KeyID: "new", Sig: npmSignature}}, now, "", signature.ErrUnknown},
		{"none", npmVersion, npmIntegrity, nil, now, "", signature.ErrUnknown},
		{"a sum that is too weak", npmVersion, "sha1-0000", []signature.PackageSignature{real}, now, "", signature.ErrUnknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			key, err := signature.Package(keys, tt.now, npmName, tt.version, tt.integrity, tt.sigs)
			if key != tt.key || !errors.Is(err, tt.want) {
				t.Errorf("%q, %v; want %q, %v", key, err, tt.key, tt.want)
			}
		})
	}
}
