package install

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/adapters/install/signature"
)

// How says what is known of where a program comes from, from the least to the
// most.
type How string

// What is known of programs.
const (
	// Unverified: nobody told what it should be, or it was there already.
	Unverified How = "unverified"
	// ByChecksum: it is what its server says it is. Whoever may change the
	// program there may change the checksum, too.
	ByChecksum How = "checksum-only"
	// BySignature: its maker, or the registry, signed it with a key that this
	// release knows.
	BySignature How = "signature"
	// ByDigest: this release holds its digest, so nobody can have changed it since.
	ByDigest How = "digest-pinned"
	// ByBuild: it is part of this program.
	ByBuild How = "builtin"
)

var allHow = []How{Unverified, ByChecksum, BySignature, ByDigest, ByBuild}

func (h How) rank() int { return slices.Index(allHow, h) }

// AllHow returns every [How], from the least to the most.
func AllHow() []How { return slices.Clone(allHow) }

// Verification says how an installed program was verified. Of a program with
// several parts it says what is true of all of them.
type Verification struct {
	How  How    `json:"how"`
	By   string `json:"by,omitempty"`   // whose signature, or whose checksum
	Note string `json:"note,omitempty"` // why it is not more, and what is more of some parts
}

// String says it in a line, for people.
func (v Verification) String() string {
	s := string(v.How)
	if v.By != "" {
		s += " by " + v.By
	}
	if v.Note != "" {
		s += "; " + v.Note
	}
	return s
}

// part is one of the things that an installation is made of.
type part struct {
	name string
	Verification
}

// combined says what is true of all parts.
func combined(parts []part) Verification {
	least := slices.MinFunc(parts, func(a, b part) int { return cmp.Compare(a.How.rank(), b.How.rank()) })
	v := Verification{How: least.How}
	var by, notes []string
	better := map[How][]string{}
	for _, p := range parts {
		if p.How == least.How {
			by, notes = append(by, p.By), append(notes, p.Note)
		} else {
			better[p.How] = append(better[p.How], p.name)
		}
	}
	for _, h := range allHow {
		if names := better[h]; len(names) > 0 {
			shown := strings.Join(names[:min(len(names), 3)], ", ")
			if len(names) > 3 {
				shown += ", …"
			}
			notes = append(notes, fmt.Sprintf("%d of %d parts more: %s: %s", len(names), len(parts), h, shown))
		}
	}
	v.By, v.Note = distinct(by, " and "), distinct(notes, "; ")
	return v
}

// distinct joins the first three of the texts that differ and are not empty.
func distinct(texts []string, by string) string {
	var kept []string
	for _, t := range texts {
		if t != "" && !slices.Contains(kept, t) {
			kept = append(kept, t)
		}
	}
	if len(kept) > 3 {
		kept = append(kept[:3], "…")
	}
	return strings.Join(kept, by)
}

// forgedError says that something is not what somebody who is known signed, or
// what this release knows under that name. No other source is asked then: it
// would be a way around the signature.
type forgedError struct {
	what string
	err  error
}

func (e *forgedError) Error() string {
	return fmt.Sprintf("%s: %v; nothing was installed: somebody changed it on the way or on its server. Try from another network or without a mirror; if it stays so, tell its maker, and do not trust that server. Another source is only used when it is named: --source", e.what, e.err)
}

func (e *forgedError) Unwrap() error { return e.err }

func forged(err error) bool {
	_, ok := errors.AsType[*forgedError](err)
	return ok
}

// signedOr returns by when the check of a signature passed, otherwise why not.
// The error is a *forgedError.
func signedOr(otherwise Verification, what, by string, err error) (Verification, error) {
	switch {
	case err == nil:
		return Verification{How: BySignature, By: by}, nil
	case errors.Is(err, signature.ErrWrong):
		return Verification{}, &forgedError{what, err}
	}
	otherwise.Note = err.Error()
	return otherwise, nil
}

// checkVerification refuses what is not verified as well as the options want.
func (j *job) checkVerification(v Verification) error {
	if j.requireSignature && v.How.rank() < BySignature.rank() {
		return fmt.Errorf("it is not signed by somebody whom this release knows, and a signature is required: %s", v)
	}
	return nil
}

// verifiedBefore describes an installation of an earlier release, whose receipt
// does not say more.
func verifiedBefore(checked bool) Verification {
	v := Verification{How: Unverified, Note: "installed by a release that kept no more; install it again to know more"}
	if checked {
		v.How = ByChecksum
	}
	return v
}
