package install

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"sandboxagent.dev/sandbox-agent/adapters/install/signature"
)

// trust is what this release knows of those who sign.
type trust struct {
	registryKeys []signature.RegistryKey
	sigstore     func() signature.Sigstore
	digests      map[string]string // of npm packages, NAME@VERSION to integrity
	fingerprints map[string]string // in place of a recipe's, for tests
}

// publicSigstore reads its certificates with the first installation.
var publicSigstore = sync.OnceValue(signature.PublicSigstore)

func known() trust {
	return trust{registryKeys: signature.RegistryKeys(), sigstore: publicSigstore, digests: pinnedDigests()}
}

// checksumOf says how a download is verified that has no signature.
func checksumOf(d Download, by string) Verification {
	if !d.Verified {
		return Verification{How: Unverified, Note: "nobody publishes a checksum of " + d.URL}
	}
	return Verification{How: ByChecksum, By: by}
}

// verifyList checks the OpenPGP signature of a list of checksums. The result
// says nothing when nobody signs such lists.
func (j *job) verifyList(ctx context.Context, l layout, version string, values map[string]string, sums []byte) (Verification, error) {
	list := l.list
	if list == nil || sums == nil {
		return Verification{}, nil
	}
	unsigned := Verification{How: ByChecksum}
	if older(version, list.since) {
		unsigned.Note = "its maker signs its lists of checksums from version " + list.since + " on"
		return unsigned, nil
	}
	url := fill(l.sums, values)
	j.say.step(StepVerify, url+list.suffix)
	var sig, keys []byte
	var err error
	if sig, _, err = j.text(ctx, url+list.suffix); err == nil {
		keys, _, err = j.text(ctx, list.keys)
	}
	if ctx.Err() != nil {
		return unsigned, context.Cause(ctx)
	}
	if err != nil {
		unsigned.Note = "the signature of its list of checksums could not be checked: " + err.Error()
		return unsigned, nil
	}
	fingerprint := or(j.trust.fingerprints[list.fingerprint], list.fingerprint)
	v, err := signedOr(unsigned, "the list of checksums "+url, list.who+" "+fingerprint, signature.OpenPGP(fingerprint, keys, sig, sums))
	if err != nil || v.How != BySignature {
		return v, err
	}
	// A list of another version is signed just as well.
	var doc struct {
		Version string `json:"version"`
	}
	if json.Unmarshal(sums, &doc) != nil || doc.Version != version {
		return v, &forgedError{"the list of checksums " + url, fmt.Errorf("%w: it is for version %.80q, and %s was asked for", signature.ErrWrong, doc.Version, version)}
	}
	return v, nil
}

// verifyFiles checks the bundles of files in the stage, by their places in it.
// rest is how what has no bundle is verified.
func (j *job) verifyFiles(ctx context.Context, l layout, files []string, rest Verification, values map[string]string) (Verification, error) {
	who := l.workflow
	who.Name = fill(who.Name, values)
	var parts []part
	for _, file := range files {
		v := rest
		if url := fill(l.bundles[file], values); url != "" {
			j.say.step(StepVerify, url)
			doc, _, err := j.text(ctx, url)
			switch {
			case ctx.Err() != nil:
				return v, context.Cause(ctx)
			case missing(err):
				v.Note = "its maker publishes no signature of " + file + " of this version for this platform"
			case err != nil:
				v.Note = "the signature of " + file + " could not be checked: " + err.Error()
			default:
				sum, serr := fileSum(filepath.Join(j.stage, file))
				digest, derr := hex.DecodeString(sum)
				if err := errors.Join(serr, derr); err != nil {
					return v, fmt.Errorf("read what was unpacked: %w", err)
				}
				if v, err = signedOr(v, "the program "+file, "the workflow "+who.Name, j.trust.sigstore().File(doc, digest, who)); err != nil {
					return v, err
				}
			}
		}
		parts = append(parts, part{file, v})
	}
	return combined(parts), nil
}
