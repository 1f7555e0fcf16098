package signature

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"strings"
	"time"
)

// RegistryKey is a key that an npm registry signs packages with.
type RegistryKey struct {
	ID      string // as the registry names it
	Key     string // DER of the public key, in base64
	Expires time.Time
}

// RegistryKeys are the keys of the public npm registry. They are those that it
// publishes below /-/npm/v1/keys, which Sigstore's root of trust repeats. The registry signed all packages again with the second when it gave
// up the first, so a signature by the first counts no more.
func RegistryKeys() []RegistryKey {
	return []RegistryKey{
		{
			ID:      "SHA256:jl3bwswu80PjjokCgh0o2w5c2U4LhQAE57gj9cz1kzA",
			Key:     "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE1Olb3zMAFFxXKHiIkQO5cJ3Yhl5i6UPp+IhuteBJbuHcA5UogKo0EWtlWwW6KSaKoTNEYL7JlCQiVnkhBktUgg==",
			Expires: time.Date(2025, 1, 29, 0, 0, 0, 0, time.UTC),
		},
		{
			ID:  "SHA256:DhQ8wR5APBvFHLF/+Tc+AYvPOdTpcIDqOhxsBHRwC7U",
			Key: "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEY6Ya7W++7aUPzvMTrezH6Ycx3c+HOKYCcNGybJZSCJq/fd7Qa8uuAKtdIkUQtQiEKERhAmE5lMMJhP8OkDOa2g==",
		},
	}
}

// PackageSignature is one of a package's signatures, as registries write them.
type PackageSignature struct {
	KeyID string `json:"keyid"`
	Sig   string `json:"sig"` // base64
}

// Package checks that a registry signed one version of an npm package with one
// of keys, and returns the id of that key. integrity is the package's, as SHA-512.
func Package(keys []RegistryKey, now time.Time, name, version, integrity string, sigs []PackageSignature) (keyID string, err error) {
	if len(sigs) == 0 {
		return "", fmt.Errorf("%w: the registry gives none", ErrUnknown)
	}
	if !strings.HasPrefix(integrity, "sha512-") {
		return "", fmt.Errorf("%w: the registry gives no SHA-512", ErrUnknown)
	}
	digest := sha256.Sum256([]byte(name + "@" + version + ":" + integrity))
	why := fmt.Errorf("%w: it is by the key %.80q, which this release does not know", ErrUnknown, sigs[0].KeyID)
	for _, s := range sigs {
		for _, k := range keys {
			if k.ID != s.KeyID {
				continue
			}
			if !k.Expires.IsZero() && now.After(k.Expires) {
				why = fmt.Errorf("%w: it is by the key %s, which counts no more since %s", ErrUnknown, k.ID, k.Expires.Format(time.DateOnly))
				continue
			}
			if err := k.verify(digest[:], s.Sig); err != nil {
				return "", fmt.Errorf("the registry's signature of %s %s: %w", name, version, err)
			}
			return k.ID, nil
		}
	}
	return "", why
}

func (k RegistryKey) verify(digest []byte, sig string) error {
	der, err := base64.StdEncoding.DecodeString(k.Key)
	if err != nil {
		return fmt.Errorf("read the key %s: %w", k.ID, err)
	}
	parsed, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return fmt.Errorf("read the key %s: %w", k.ID, err)
	}
	public, ok := parsed.(*ecdsa.PublicKey)
	if !ok {
		return fmt.Errorf("the key %s is no ECDSA key", k.ID)
	}
	b, err := base64.StdEncoding.DecodeString(sig)
	if err != nil || !ecdsa.VerifyASN1(public, digest, b) {
		return fmt.Errorf("%w: it is not by the key %s", ErrWrong, k.ID)
	}
	return nil
}
