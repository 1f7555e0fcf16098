package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sandboxagent.dev/sandbox-agent/adapters/install/signature"
)

const (
	// maxPackages bounds the packages of one agent. The largest has some hundred.
	maxPackages = 5000
	// askers is how many packages' signatures are asked for at once.
	askers = 8
	// refusals is how many failed answers end the asking: a registry that does
	// not answer these will not answer those.
	refusals = 3
)

// npmDist is what a registry says of one version of a package.
type npmDist struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Dist    struct {
		Integrity  string                       `json:"integrity"`
		Signatures []signature.PackageSignature `json:"signatures"`
		// Attestations is where the registry has what others say of it.
		Attestations struct {
			URL string `json:"url"`
		} `json:"attestations"`
	} `json:"dist"`
}

// npmPart is a package that npm installed.
type npmPart struct {
	name, version, integrity string
}

func (p npmPart) spec() string { return p.name + "@" + p.version }

// verifyPackages says how what npm installed into the stage is verified: each
// package by the digest that this release holds of it, else by the registry's
// signature, else by the sum that npm checked. root is the package that npm was
// asked for.
func (j *job) verifyPackages(ctx context.Context, client, root string) (Verification, error) {
	installed, err := j.installedPackages()
	if err != nil {
		return Verification{}, err
	}
	j.say.step(StepVerify, root)
	parts := make([]part, len(installed))
	var open []int
	for i, p := range installed {
		parts[i] = part{p.spec(), Verification{How: ByChecksum, By: "the registry that npm uses"}}
		pinned, ok := j.trust.digests[p.spec()]
		switch {
		case p.integrity == "":
			parts[i].Verification = Verification{How: Unverified, Note: "npm knows no checksum of " + p.spec()}
		case ok && p.integrity != pinned:
			return Verification{}, &forgedError{"the package " + p.spec(), fmt.Errorf("it has the digest %s, and this release knows it with %s", p.integrity, pinned)}
		case ok:
			parts[i].Verification = Verification{How: ByDigest, By: "this release of sandbox-agent"}
		default:
			open = append(open, i)
		}
	}
	if err := j.signedPackages(ctx, client, root, installed, parts, open); err != nil {
		return Verification{}, err
	}
	return combined(parts), nil
}

// signedPackages asks for the signatures of packages that are not pinned, by
// their place in installed.
func (j *job) signedPackages(ctx context.Context, client, root string, installed []npmPart, parts []part, open []int) error {
	// The npm client has the registry's credentials, but takes half a second for
	// each package: it is asked for the one that was wanted.
	if i := slices.IndexFunc(open, func(i int) bool { return installed[i].name == root }); i >= 0 {
		k := open[i]
		open = slices.Delete(open, i, i+1)
		dist, err := j.askNPM(ctx, client, installed[k])
		if err == nil && len(dist.Dist.Signatures) == 0 {
			open = nil // a registry that does not pass them on
		}
		if err := j.signed(&parts[k], installed[k], dist, err); err != nil {
			return err
		}
		if err := j.built(ctx, &parts[k], installed[k], dist); err != nil {
			return err
		}
		if parts[k].How != BySignature {
			for _, i := range open {
				parts[i].Note = parts[k].Note
			}
			return ctx.Err()
		}
	}
	if len(open) == 0 {
		return ctx.Err()
	}
	registry, stderr, err := run(ctx, 4*j.stall, j.npmSpec(client, "config", "get", "registry"), "", nil)
	if err != nil {
		return j.npmError("say which registry it uses", stderr, err)
	}
	registry = strings.TrimRight(strings.TrimSpace(registry), "/")
	var failed atomic.Int32
	errs := make([]error, len(open))
	free := make(chan struct{}, askers)
	var workers sync.WaitGroup
	for n, i := range open {
		free <- struct{}{}
		workers.Go(func() {
			defer func() { <-free }()
			var dist npmDist
			err := errors.New("the registry gave no answer for the packages before it")
			if failed.Load() < refusals {
				if dist, err = j.askRegistry(ctx, registry, installed[i]); err != nil {
					failed.Add(1)
				}
			}
			errs[n] = j.signed(&parts[i], installed[i], dist, err)
		})
	}
	workers.Wait()
	return errors.Join(ctx.Err(), firstOf(errs))
}

func firstOf(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// signed says in to how a package is signed. asked is the error of asking.
func (j *job) signed(to *part, p npmPart, dist npmDist, asked error) error {
	if asked != nil {
		to.Note = "its signature is not known: " + asked.Error()
		return nil
	}
	key, err := signature.Package(j.trust.registryKeys, time.Now(), p.name, p.version, dist.Dist.Integrity, dist.Dist.Signatures)
	what := "the package " + p.spec()
	if err == nil && dist.Dist.Integrity != p.integrity {
		return &forgedError{what, fmt.Errorf("%w: npm installed what has the digest %s, and %s is signed", signature.ErrWrong, p.integrity, dist.Dist.Integrity)}
	}
	to.Verification, err = signedOr(to.Verification, what, "the npm registry's key "+key, err)
	return err
}

// built says in to which workflow built the package, as far as the registry has it. The
// error is a *forgedError: that of another package or of other contents is no provenance.
func (j *job) built(ctx context.Context, to *part, p npmPart, dist npmDist) error {
	url := dist.Dist.Attestations.URL
	if url == "" || to.How != BySignature {
		return nil
	}
	doc, _, err := j.text(ctx, url, "Accept", "application/json")
	if err != nil {
		to.Note = "where it was built is not known: " + err.Error()
		return ctx.Err()
	}
	switch by, err := j.trust.sigstore().Package(doc, p.name, p.version, dist.Dist.Integrity); {
	case err == nil:
		to.By += " and the workflow " + by.Name
	case errors.Is(err, signature.ErrWrong):
		return &forgedError{"the provenance of " + p.spec(), err}
	default:
		to.Note = "where it was built is not known: " + err.Error()
	}
	return nil
}

// askNPM asks for a package with npm's configuration and credentials.
func (j *job) askNPM(ctx context.Context, client string, p npmPart) (npmDist, error) {
	stdout, stderr, err := run(ctx, 4*j.stall, j.npmSpec(client, "view", p.spec(), "name", "version", "dist", "--json"), "", nil)
	if err != nil {
		return npmDist{}, j.npmError("ask for the signature of "+p.name, stdout+"\n"+stderr, err)
	}
	return readDist([]byte(stdout), p)
}

// askRegistry asks for a package without credentials.
func (j *job) askRegistry(ctx context.Context, registry string, p npmPart) (npmDist, error) {
	b, _, err := j.text(ctx, registry+"/"+strings.Replace(p.name, "/", "%2f", 1)+"/"+p.version, "Accept", "application/json")
	if err != nil {
		if e, ok := errors.AsType[*statusError](err); ok && (e.code == http.StatusUnauthorized || e.code == http.StatusForbidden) {
			err = fmt.Errorf("%w: it wants credentials, which only npm has", err)
		}
		return npmDist{}, err
	}
	return readDist(b, p)
}

func readDist(b []byte, p npmPart) (npmDist, error) {
	var d npmDist
	if err := json.Unmarshal(b, &d); err != nil {
		return d, fmt.Errorf("read what the registry says of %s: %w", p.spec(), err)
	}
	if d.Name != p.name || d.Version != p.version {
		return d, fmt.Errorf("the registry answers %.80s@%.80s to who asks for %s", d.Name, d.Version, p.spec())
	}
	return d, nil
}

// installedPackages returns what npm installed into the stage.
func (j *job) installedPackages() ([]npmPart, error) {
	b, err := os.ReadFile(filepath.Join(j.stage, "node_modules", ".package-lock.json"))
	if err != nil {
		return nil, fmt.Errorf("read what npm installed: %w", err)
	}
	var doc struct {
		Packages map[string]struct {
			Name      string `json:"name"` // when it has another one in its folder
			Version   string `json:"version"`
			Integrity string `json:"integrity"`
			InBundle  bool   `json:"inBundle"` // part of the package around it
		} `json:"packages"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("read what npm installed: %w", err)
	}
	if len(doc.Packages) == 0 || len(doc.Packages) > maxPackages {
		return nil, fmt.Errorf("npm installed %d packages, and says it of at most %d", len(doc.Packages), maxPackages)
	}
	var all []npmPart
	for place, p := range doc.Packages {
		if p.InBundle {
			continue
		}
		name := p.Name
		if name == "" {
			name = place[strings.LastIndex(place, "node_modules/")+len("node_modules/"):]
		}
		all = append(all, npmPart{name, p.Version, p.Integrity})
	}
	slices.SortFunc(all, func(a, b npmPart) int { return strings.Compare(a.spec(), b.spec()) })
	return slices.Compact(all), nil
}
