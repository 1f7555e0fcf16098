package rawjson

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Edit says what becomes of a string: text[from:to] is replaced by with. Edits of one
// string are in order and do not overlap.
type Edit struct {
	From, To int
	With     string
}

// EditStrings returns raw, which must be valid JSON, with its strings edited. edits is
// called with each string, keys of members included, and with the key of the member that
// it is the value of, "" for keys and for elements of arrays. What is not edited keeps
// its bytes, and raw itself is returned when nothing is. Half of a surrogate pair is
// shown to edits as U+FFFD.
func EditStrings(raw []byte, edits func(key, text string) []Edit) []byte {
	var out []byte
	done := 0
	key := "" // of the member whose value comes next
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '{', '[', ',':
			key = ""
			continue
		case '"':
		default:
			continue
		}
		end := stringEnd(raw, i)
		tok := raw[i:end]
		text, at := plainText(tok)
		isKey := false
		for j := end; j < len(raw); j++ {
			if !IsSpace(raw[j]) {
				isKey = raw[j] == ':'
				break
			}
		}
		var list []Edit
		if isKey {
			list, key = edits("", text), text
		} else {
			list = edits(key, text)
		}
		for _, e := range list {
			from, to := e.From, e.To
			if at != nil {
				from, to = at[from], at[to]
			} else {
				from, to = from+1, to+1
			}
			out = append(out, raw[done:i+from]...)
			quoted := AppendQuoted(nil, e.With)
			out = append(out, quoted[1:len(quoted)-1]...)
			done = i + to
		}
		i = end - 1
	}
	if out == nil {
		return raw
	}
	return append(out, raw[done:]...)
}

// stringEnd returns where the string token that begins at i ends.
func stringEnd(raw []byte, i int) int {
	for i++; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(raw)
}

// plainText returns the value of a string token, and where in the token each of its bytes
// comes from, with the end; nil when the token has no escapes.
func plainText(tok []byte) (text string, at []int) {
	body := tok[1 : len(tok)-1]
	escaped := false
	for _, c := range body {
		if c == '\\' {
			escaped = true
			break
		}
	}
	if !escaped {
		return string(body), nil
	}
	b := make([]byte, 0, len(body))
	at = make([]int, 0, len(body)+1)
	add := func(from int, c ...byte) {
		for range c {
			at = append(at, from)
		}
		b = append(b, c...)
	}
	for i := 1; i < len(tok)-1; {
		if tok[i] != '\\' {
			add(i, tok[i])
			i++
			continue
		}
		switch tok[i+1] {
		case 'b':
			add(i, '\b')
		case 'f':
			add(i, '\f')
		case 'n':
			add(i, '\n')
		case 'r':
			add(i, '\r')
		case 't':
			add(i, '\t')
		case 'u':
			r, n := escapedRune(tok[i : len(tok)-1])
			add(i, utf8.AppendRune(nil, r)...)
			i += n
			continue
		default:
			add(i, tok[i+1])
		}
		i += 2
	}
	return string(b), append(at, len(tok)-1)
}

// escapedRune reads the \u escape that b begins with, or the two of a surrogate pair.
func escapedRune(b []byte) (r rune, n int) {
	unit := func(b []byte) rune {
		if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
			return -1
		}
		v, err := strconv.ParseUint(string(b[2:6]), 16, 16)
		if err != nil {
			return -1
		}
		return rune(v)
	}
	first := unit(b)
	switch {
	case first < 0:
		return utf8.RuneError, min(6, len(b))
	case utf16.IsSurrogate(first):
		if pair := utf16.DecodeRune(first, unit(b[6:])); pair != utf8.RuneError {
			return pair, 12
		}
		return utf8.RuneError, 6
	}
	return first, 6
}
