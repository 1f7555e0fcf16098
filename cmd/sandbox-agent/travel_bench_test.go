package main_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// peak returns the most memory, in MiB, that a gateway has used.
func (g *gateway) peak(b *testing.B) float64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.cmd.Process.Pid))
	if err != nil {
		b.Skipf("this system does not tell of memory: %v", err)
	}
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if m == nil {
		b.Fatalf("no memory in %s", status)
	}
	kb, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		b.Fatal(err)
	}
	return kb / 1024
}

// BenchmarkTravel_Workspace takes a session with a workspace of 1 GiB out of one gateway
// and brings it to another, over loopback; TRAVEL_MIB sets another size. Half of the files
// can be compressed, the others cannot.
func BenchmarkTravel_Workspace(b *testing.B) {
	mib := 1024
	if v := os.Getenv("TRAVEL_MIB"); v != "" {
		var err error
		if mib, err = strconv.Atoi(v); err != nil {
			b.Fatal(err)
		}
	}
	from, to := startGateway(b), startGateway(b)
	home := filepath.Join(b.TempDir(), "home")
	random := rand.NewChaCha8([32]byte{1})
	buf := make([]byte, 1<<20)
	for i := range mib {
		if _, err := random.Read(buf); err != nil {
			b.Fatal(err)
		}
		if i%2 == 0 {
			for k := range buf {
				buf[k] = "abcdefgh"[buf[k]&7]
			}
		}
		path := filepath.Join(home, strconv.Itoa(i%32), strconv.Itoa(i))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(path, buf, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	c := connect(b, from, wsocket, options{agent: "mock", cwd: home})
	id := c.newSession()
	c.prompt(id, "echo hello")
	c.close()
	file := filepath.Join(b.TempDir(), "session")
	do := func(method, url string, body io.Reader, want int, to io.Writer) {
		req, err := http.NewRequestWithContext(context.Background(), method, url, body)
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/zstd")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(to, resp.Body); err != nil || resp.StatusCode != want {
			b.Fatalf("%s %s: %s, %v", method, url, resp.Status, err)
		}
	}
	// What the machine can do at the time: a program that copies the files and nothing else.
	b.Run("cp", func(b *testing.B) {
		b.SetBytes(int64(mib) << 20)
		for i := 0; b.Loop(); i++ {
			away := filepath.Join(b.TempDir(), strconv.Itoa(i))
			if out, err := exec.CommandContext(b.Context(), "cp", "-r", home, away).CombinedOutput(); err != nil {
				b.Fatalf("%v, %s", err, out)
			}
			b.StopTimer()
			if err := os.RemoveAll(away); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
	b.Run("export", func(b *testing.B) {
		b.SetBytes(int64(mib) << 20)
		began := from.used(b)
		for b.Loop() {
			out, err := os.Create(file)
			if err != nil {
				b.Fatal(err)
			}
			do(http.MethodGet, from.url+"/v2/sessions/"+id+"/export?workspace=true", nil, http.StatusOK, out)
			_ = out.Close()
		}
		b.ReportMetric(from.peak(b), "MiB-peak")
		b.ReportMetric((from.used(b)-began)/float64(b.N), "cpu-s/op")
	})
	b.Run("import", func(b *testing.B) {
		b.SetBytes(int64(mib) << 20)
		began := to.used(b)
		for i := 0; b.Loop(); i++ {
			in, err := os.Open(file)
			if err != nil {
				b.Fatal(err)
			}
			away := filepath.Join(b.TempDir(), strconv.Itoa(i))
			do(http.MethodPost, to.url+"/v2/sessions/import?workspace=true&cwd="+url.QueryEscape(away), in, http.StatusCreated, io.Discard)
			b.StopTimer()
			do(http.MethodDelete, to.url+"/v2/sessions/"+id, nil, http.StatusNoContent, io.Discard)
			if err := os.RemoveAll(away); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
		b.ReportMetric(to.peak(b), "MiB-peak")
		b.ReportMetric((to.used(b)-began)/float64(b.N), "cpu-s/op")
	})
}

// used returns the processor time of a gateway, in seconds.
func (g *gateway) used(b *testing.B) float64 {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", g.cmd.Process.Pid))
	if err != nil {
		b.Skipf("this system does not tell of time: %v", err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	sum := 0.0
	for _, f := range fields[11:13] { // user and system, in hundredths
		n, err := strconv.ParseFloat(f, 64)
		if err != nil {
			b.Fatal(err)
		}
		sum += n / 100
	}
	return sum
}
