package cmdline

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// WriteJSON writes v as one line.
func WriteJSON(w io.Writer, v any) {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // output that cannot be written has nowhere to be reported
}

// Table writes rows with aligned columns; the first row is the heading.
func Table(w io.Writer, rows [][]string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, c := range row {
			if cells[i] = OneLine(c); c == "" {
				cells[i] = "-"
			}
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	_ = t.Flush() // as above
}

// List writes names with their values; empty values are left out.
func List(w io.Writer, pairs ...string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			fmt.Fprintf(t, "%s\t%s\n", pairs[i], OneLine(pairs[i+1]))
		}
	}
	_ = t.Flush() // as above
}

// Printable removes what would make a terminal do anything but show text:
// agents and the files they read are not trusted.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.IsControl(r) || bidi(r) {
			return -1
		}
		return r
	}, s)
}

// bidi reports whether r changes the direction in which others are shown.
func bidi(r rune) bool { return r >= 0x202A && r <= 0x202E || r >= 0x2066 && r <= 0x2069 }

// OneLine is s on one line.
func OneLine(s string) string { return strings.Join(strings.Fields(Printable(s)), " ") }

// Shorten cuts s to n runes.
func Shorten(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}

// Clock shows a time in the local zone.
func Clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05")
}
