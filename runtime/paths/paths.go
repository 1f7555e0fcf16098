package paths

import (
	"cmp"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// Pair is a path, and what stands in its place. Both are absolute, without a slash at the
// end.
type Pair struct{ From, To string }

// Map replaces paths. The zero value replaces none. It is safe for concurrent use.
type Map struct{ pairs []Pair }

// NewMap returns what replaces the paths of these pairs. Of two with one From the first
// counts; those that change nothing, and the root, count as well, but as they are: what
// lies below them stays.
func NewMap(pairs ...Pair) Map {
	var m Map
	for _, p := range pairs {
		same := func(o Pair) bool { return o.From == p.From }
		if len(p.From) > 1 && p.From[0] == '/' && !slices.ContainsFunc(m.pairs, same) {
			m.pairs = append(m.pairs, p)
		}
	}
	slices.SortStableFunc(m.pairs, func(a, b Pair) int { return cmp.Compare(len(b.From), len(a.From)) })
	return m
}

// Changes reports whether any path is replaced by another one.
func (m Map) Changes() bool {
	return slices.ContainsFunc(m.pairs, func(p Pair) bool { return p.From != p.To })
}

// Text returns the text with its paths replaced.
func (m Map) Text(s string) string {
	edits := m.edits(s)
	if len(edits) == 0 {
		return s
	}
	var out strings.Builder
	done := 0
	for _, e := range edits {
		out.WriteString(s[done:e.From])
		out.WriteString(e.With)
		done = e.To
	}
	out.WriteString(s[done:])
	return out.String()
}

// sealed are members that hold signatures, and what only a provider can read.
var sealed = []string{"signature", "thinkingSignature", "encrypted_content", "encryptedContent"}

// Sealed reports whether the text of a member is none that anybody here can read.
func Sealed(key string) bool { return slices.Contains(sealed, key) }

// signed reports whether the text of a member must stay as it is: it is checked against a
// signature.
func signed(key string) bool { return key == "thinking" || Sealed(key) }

// JSON returns raw, which must be valid JSON, with the paths in its strings and keys
// replaced. What is signed stays as it is.
func (m Map) JSON(raw []byte) []byte {
	return rawjson.EditStrings(raw, func(key, text string) []rawjson.Edit {
		if signed(key) {
			return nil
		}
		return m.edits(text)
	})
}

// edits finds the paths that are replaced in a text.
func (m Map) edits(s string) []rawjson.Edit {
	var out []rawjson.Edit
	if !m.Changes() {
		return nil
	}
	for i := 0; i < len(s); {
		n := strings.IndexByte(s[i:], '/')
		if n < 0 {
			break
		}
		i += n
		step := 1
		if begins(s, i) {
			for _, p := range m.pairs {
				if strings.HasPrefix(s[i:], p.From) && ends(s[i+len(p.From):]) {
					step = len(p.From)
					if p.From != p.To {
						out = append(out, rawjson.Edit{From: i, To: i + step, With: p.To})
					}
					break
				}
			}
		}
		i += step
	}
	return out
}

// begins reports whether an absolute path can begin at s[i], a slash.
func begins(s string, i int) bool {
	if i == 0 {
		return true
	}
	if s[i-1] == '/' {
		return strings.HasSuffix(s[:i], "://") // of file:///
	}
	return !inName(s[i-1]) && s[i-1] != '.'
}

// ends reports whether a name ends before rest.
func ends(rest string) bool {
	if rest == "" {
		return true
	}
	if rest[0] == '.' { // the end of a sentence, or of the name's last part
		return len(rest) == 1 || !inName(rest[1]) && rest[1] != '.'
	}
	return !inName(rest[0])
}

// inName reports whether a byte goes on with a file's name. Blanks and brackets do so in
// few, and end names in most texts.
func inName(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c >= 0x80 || strings.IndexByte("_-+@~%#", c) >= 0
}
