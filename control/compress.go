package control

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/labstack/echo/v4"

	"sandboxagent.dev/sandbox-agent/internal/memory"
)

// compressFrom is the size from which JSON is compressed for who takes that.
// Smaller answers fit into a few packets anyway.
const compressFrom = 4 << 10

// zippers are used again: each has some hundred kilobytes of tables.
var zippers = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is one of its own
	return z
}}

// writeDocument answers with JSON, compressed when that is worth it.
func writeDocument(c echo.Context, b []byte) error {
	w, r := c.Response(), c.Request()
	if w.Committed { // and has blanks before it
		writePieces(w, memory.From(r.Context()), b)
		return nil
	}
	h := w.Header()
	h.Set("Content-Type", echo.MIMEApplicationJSON)
	h.Add("Vary", "Accept-Encoding")
	if len(b) >= compressFrom && accepts(r, "gzip") {
		var packed bytes.Buffer
		packed.Grow(len(b) / 4)
		z := zippers.Get().(*gzip.Writer)
		z.Reset(&packed)
		_, err := z.Write(b)
		if err == nil {
			err = z.Close()
		}
		zippers.Put(z)
		if err != nil {
			return err
		}
		h.Set("Content-Encoding", "gzip")
		b = packed.Bytes()
	}
	writeAll(w, memory.From(r.Context()), b)
	return nil
}

// writeAll answers with 200 and a body whose size is told.
func writeAll(w http.ResponseWriter, share *memory.Share, b []byte) {
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(http.StatusOK)
	writePieces(w, share, b)
}

// accepts reports whether a client takes an encoding. One that it gives the
// weight 0 it does not.
func accepts(r *http.Request, encoding string) bool {
	for _, v := range offered(r.Header, "Accept-Encoding") {
		name, weight, weighed := strings.Cut(v, ";")
		if !strings.EqualFold(strings.TrimSpace(name), encoding) {
			continue
		}
		if !weighed {
			return true
		}
		q, err := strconv.ParseFloat(strings.TrimPrefix(strings.ReplaceAll(weight, " ", ""), "q="), 64)
		return err == nil && q > 0
	}
	return false
}
