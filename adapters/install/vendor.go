package install

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"

	"sandboxagent.dev/sandbox-agent/internal/secret"
)

const (
	gitHub    = "https://github.com"
	gitHubAPI = "https://api.github.com"
)

// vendor installs what the agent's maker publishes.
func (j *job) vendor(ctx context.Context) (*product, error) {
	v := j.recipe.vendor
	if v == nil {
		return nil, fmt.Errorf("%w: no downloads by the maker of %s are known", errNotOffered, j.recipe.agent)
	}
	target, ok := v.targets[j.platform.String()]
	if !ok {
		return nil, fmt.Errorf("%w: there is no build for %s", errNotOffered, j.platform)
	}
	j.say.step(StepResolve, "")
	rel, err := j.release(ctx, v)
	if err != nil {
		return nil, err
	}
	if err := j.resolved(rel.version); err != nil {
		return nil, err
	}
	values := map[string]string{"version": rel.version, "target": target, "release": rel.base}
	var absent error
	for _, l := range v.layouts {
		p, err := j.layout(ctx, l, rel, values)
		if !missing(err) {
			return p, err
		}
		absent = err
		if err := j.clear(); err != nil {
			return nil, err
		}
	}
	if j.want != "" {
		return nil, fmt.Errorf("%w as %s for %s: %w", errUnknownVersion, rel.version, j.platform, absent)
	}
	return nil, absent
}

// release is one version as its maker published it.
type release struct {
	version string
	base    string            // URL of its files
	digests map[string]string // SHA-256 by file name; nil when nobody told
}

// release finds the wanted version, or the newest.
func (j *job) release(ctx context.Context, v *vendor) (*release, error) {
	if v.repo != "" {
		return j.gitHubRelease(ctx, v)
	}
	version := j.want
	if version == "" {
		b, _, err := j.text(ctx, v.latest)
		if err != nil {
			return nil, fmt.Errorf("find the newest version: %w", err)
		}
		version = strings.TrimSpace(string(b))
		if err := checkVersion(version); err != nil {
			return nil, fmt.Errorf("find the newest version: %s answered no version: %w", v.latest, err)
		}
	}
	return &release{version: version}, nil
}

// gitHubRelease asks the API, which also knows checksums. It may refuse, as it
// counts requests by address; the pages of the releases do not.
func (j *job) gitHubRelease(ctx context.Context, v *vendor) (*release, error) {
	before, after, _ := strings.Cut(v.tag, "{version}")
	which := "latest"
	if j.want != "" {
		which = "tags/" + before + j.want + after
	}
	var doc struct {
		Tag    string `json:"tag_name"`
		Assets []struct {
			Name   string `json:"name"`
			Digest string `json:"digest"`
		} `json:"assets"`
	}
	b, _, err := j.text(ctx, gitHubAPI+"/repos/"+v.repo+"/releases/"+which, "Accept", "application/vnd.github+json")
	if err == nil {
		if jerr := json.Unmarshal(b, &doc); jerr != nil {
			err = fmt.Errorf("read the release of %s: %w", v.repo, jerr)
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	tag := doc.Tag
	switch {
	case j.want != "" && missing(err):
		return nil, fmt.Errorf("%w as %s: %w", errUnknownVersion, j.want, err)
	case j.want != "":
		tag = before + j.want + after
	case err != nil:
		var perr error
		if tag, perr = j.latestTag(ctx, v.repo); perr != nil {
			return nil, fmt.Errorf("find the newest version: %w; %w", err, perr)
		}
	}
	version := strings.TrimSuffix(strings.TrimPrefix(tag, before), after)
	if err := checkVersion(version); err != nil {
		return nil, fmt.Errorf("find the newest version: the tag %q of %s names none: %w", tag, v.repo, err)
	}
	rel := &release{version: version, base: gitHub + "/" + v.repo + "/releases/download/" + tag, digests: map[string]string{}}
	for _, a := range doc.Assets {
		rel.digests[a.Name] = asSum(a.Digest)
	}
	return rel, nil
}

// latestTag reads the newest tag from where the page of the newest release
// redirects to.
func (j *job) latestTag(ctx context.Context, repo string) (string, error) {
	url := j.mirrored(gitHub + "/" + repo + "/releases/latest")
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, url, http.NoBody)
	if err != nil {
		return "", fmt.Errorf("get %s: %w", secret.Address(url), cause(ctx, err))
	}
	req.Header.Set("User-Agent", userAgent)
	c := *j.http
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.Timeout = 2 * j.stall
	resp, err := c.Do(req)
	if err != nil {
		return "", fmt.Errorf("get %s: %w", secret.Address(url), cause(ctx, err))
	}
	_ = resp.Body.Close()
	to, err := resp.Location()
	if err != nil {
		return "", &statusError{url: secret.Address(url), code: resp.StatusCode}
	}
	_, tag, ok := strings.Cut(to.Path, "/releases/tag/")
	if !ok || tag == "" {
		return "", fmt.Errorf("%s redirects to %s, which names no release", secret.Address(url), secret.Address(to.String()))
	}
	return tag, nil
}

// layout downloads and unpacks a release that is packed like l.
func (j *job) layout(ctx context.Context, l layout, rel *release, values map[string]string) (*product, error) {
	p := &product{version: rel.version}
	var sums []byte
	var signed Verification
	if l.sums != "" {
		var err error
		// Without the list, the release's own digests may still do.
		if sums, _, err = j.text(ctx, fill(l.sums, values)); err != nil && (!missing(err) || ctx.Err() != nil) {
			return nil, fmt.Errorf("get the checksums: %w", err)
		}
		if signed, err = j.verifyList(ctx, l, rel.version, values, sums); err != nil {
			return nil, err
		}
	}
	var parts []part
	for _, a := range l.assets {
		url := fill(a.url, values)
		name := path.Base(url)
		by, want := hostOf(j.mirrored(url)), ""
		if rel.digests[name] != "" {
			by, want = hostOf(j.mirrored(gitHubAPI)), rel.digests[name]
		}
		if sum := findSum(sums, name, values["target"]); sum != "" && (want == "" || signed.How == BySignature) {
			by, want = hostOf(j.mirrored(fill(l.sums, values))), sum
		}
		d, err := j.place(ctx, url, want, a.rename, values)
		if a.optional && missing(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		p.downloads = append(p.downloads, d)
		v := checksumOf(d, by)
		if want != "" && signed.How != "" {
			v.How, v.Note = signed.How, signed.Note
			v.By = or(signed.By, v.By)
		}
		parts = append(parts, part{name, v})
	}
	for _, candidate := range l.program {
		if info, err := os.Stat(filepath.Join(j.stage, candidate)); err == nil && info.Mode().IsRegular() {
			p.program = candidate
			break
		}
	}
	if p.program == "" {
		return nil, fmt.Errorf("the download %s does not hold the program %s", p.downloads[0].URL, l.program[0])
	}
	for _, h := range l.helpers {
		if info, err := os.Stat(filepath.Join(j.stage, h)); err == nil && info.Mode().IsRegular() {
			p.helpers = append(p.helpers, h)
		}
	}
	p.verified = combined(parts)
	if l.bundles == nil {
		return p, nil
	}
	var err error
	p.verified, err = j.verifyFiles(ctx, l, append([]string{p.program}, p.helpers...), p.verified, values)
	return p, err
}

// place downloads one file and puts it, or what is in it, into the stage.
func (j *job) place(ctx context.Context, url, want string, rename, values map[string]string) (Download, error) {
	if want == "" && j.requireChecksum {
		return Download{}, fmt.Errorf("no checksum is published for %s, and one is required", url)
	}
	// Beside the stage, where no archive can name it. With a checksum to catch
	// mistakes, a part may wait there for the next installer.
	packed := j.stage + ".download"
	if want != "" {
		id := sha256.Sum256([]byte(url + " " + want))
		packed = filepath.Join(filepath.Dir(j.stage), partPrefix+hex.EncodeToString(id[:8]))
	}
	d, err := j.download(ctx, url, packed, want, j.say)
	if err != nil {
		if want == "" || !worthKeeping(err) {
			_ = os.Remove(packed)
		}
		return d, err
	}
	defer func() {
		if want == "" || ctx.Err() == nil { // else the next installer unpacks it
			_ = os.Remove(packed)
		}
	}()
	name := path.Base(url)
	kind := format(name)
	if kind == "raw" {
		if to := rename[""]; to != "" {
			name = to
		}
		to := filepath.Join(j.stage, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return d, err
		}
		if err := os.Rename(packed, to); err != nil {
			return d, err
		}
		return d, os.Chmod(to, 0o755)
	}
	if err := j.unpack(ctx, packed, kind, j.stage, j.say); err != nil {
		return d, err
	}
	for from, to := range rename {
		if from == "" {
			continue // of a file that is no archive
		}
		from = filepath.Join(j.stage, fill(from, values))
		if err := os.Rename(from, filepath.Join(j.stage, to)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return d, err
		}
	}
	return d, nil
}
