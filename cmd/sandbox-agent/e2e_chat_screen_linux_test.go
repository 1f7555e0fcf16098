package main_test

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// screen is a program in a tmux of its own, looked at through tmux's control mode.
type screen struct {
	t     *testing.T
	in    io.Writer
	lines chan string // what tmux says; closed when it ends
}

func startScreen(t *testing.T, width, height int, env []string, command ...string) *screen {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is not installed")
	}
	socket := filepath.Join(t.TempDir(), "tmux")
	tmux := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "tmux", append([]string{"-S", socket, "-f", os.DevNull, "-u"}, args...)...)
		for _, v := range os.Environ() {
			if name, _, _ := strings.Cut(v, "="); name != "TMUX" && name != "CI" && name != "NO_COLOR" && name != "COLORTERM" && name != "TERM" {
				cmd.Env = append(cmd.Env, v)
			}
		}
		cmd.Env = append(cmd.Env, "TERM=xterm-256color")
		return cmd
	}
	start := append([]string{"new-session", "-d", "-x", strconv.Itoa(width), "-y", strconv.Itoa(height), "env", "TERM=tmux-256color"}, env...)
	if out, err := tmux(append(start, command...)...).CombinedOutput(); err != nil {
		t.Fatalf("tmux: %v: %s", err, out)
	}
	control := tmux("-C", "attach-session")
	in, err := control.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := control.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := control.Start(); err != nil {
		t.Fatal(err)
	}
	s := &screen{t, in, make(chan string, 64)}
	done := make(chan struct{})
	go func() {
		defer close(s.lines)
		r := bufio.NewReader(out)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			select {
			case s.lines <- strings.TrimRight(line, "\n"):
			case <-done:
			}
		}
	}()
	t.Cleanup(func() {
		close(done)
		// The test's context is over, and with it the client: the server is ended by another one.
		_ = exec.Command("tmux", "-S", socket, "kill-server").Run()
		for range s.lines { // until it is gone
		}
		_ = control.Wait()
	})
	s.next("%end") // of attaching
	return s
}

// next waits for what tmux says next that begins so.
func (s *screen) next(word string) string {
	s.t.Helper()
	limit := time.After(patience)
	for {
		select {
		case line, ok := <-s.lines:
			if !ok || strings.HasPrefix(line, "%error") {
				s.t.Fatalf("tmux said %q, not %s", line, word)
			}
			if strings.HasPrefix(line, word) {
				return line
			}
		case <-limit:
			s.t.Fatalf("tmux said no %s", word)
		}
	}
}

// asks gives tmux a command and returns what it prints.
func (s *screen) asks(command string) []string {
	s.t.Helper()
	if _, err := io.WriteString(s.in, command+"\n"); err != nil {
		s.t.Fatal(err)
	}
	end := strings.Replace(s.next("%begin"), "%begin", "%end", 1)
	var out []string
	for line := range s.lines {
		if line == end {
			return out
		}
		if strings.HasPrefix(line, "%error") {
			s.t.Fatalf("tmux: %s: %s", command, out)
		}
		out = append(out, line)
	}
	s.t.Fatal("tmux is gone")
	return nil
}

// shows waits until all patterns are on the screen.
func (s *screen) shows(patterns ...string) string {
	s.t.Helper()
	return s.until(func(look string) string { return lacks(look, patterns) })
}

// lacks is the first pattern that is not on the screen.
func lacks(look string, patterns []string) string {
	plain := escapes.ReplaceAllString(look, "")
	for _, p := range patterns {
		if !regexp.MustCompile(`(?m)` + p).MatchString(plain) {
			return p + " is not on the screen:\n" + plain
		}
	}
	return ""
}

// until waits until nothing is wrong with what is on the screen, and returns that, with its
// colours. One look may be at a screen that is only half drawn.
func (s *screen) until(wrong func(look string) string) string {
	s.t.Helper()
	limit := time.After(patience)
	for {
		look := strings.Join(s.asks("capture-pane -p -e"), "\n")
		what := wrong(look)
		if what == "" {
			return look
		}
		select { // tmux tells of all that the program writes
		case <-s.lines:
		case <-limit:
			s.t.Fatal(what)
		}
	}
}

// sends types a prompt: as one that is pasted, which may have several lines.
func (s *screen) sends(text string) {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "paste")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.asks("load-buffer " + file)
	s.asks("paste-buffer -p")
	s.asks("send-keys Enter")
}

// What a chat looks like stands in testdata/chat, to be looked at: go test -update writes it.
// Its colours can be read on a light and on a dark terminal.
func TestChat_OnAScreen(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "--default-agent", "mock")
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, width := range []int{80, 200} {
		for _, light := range []bool{false, true} {
			background, name := "COLORFGBG=15;0", "dark"
			if light {
				background, name = "COLORFGBG=0;15", "light"
			}
			t.Run(fmt.Sprintf("%s, %d columns", name, width), func(t *testing.T) {
				s := startScreen(t, width, 46, []string{background}, program, "chat", "--endpoint", g.url, "--cwd", "/tmp")
				const ready = `^ready · mock · Mock Small · Ask · /tmp$`
				file, frame := filepath.Join("testdata/chat", fmt.Sprintf("%d.txt", width)), "\n"+strings.Repeat("▔", width)+"\n"
				updating := flag.Lookup("update").Value.String() == "true"
				want, err := os.ReadFile(file)
				if err != nil && !updating {
					t.Fatal(err)
				}
				wanted := strings.Split(strings.TrimSuffix(string(want), "\n"), frame)
				var looks []string // as they stand in the file
				shows := func(patterns ...string) {
					t.Helper()
					var text string
					readable(t, s.until(func(look string) string {
						if missing := lacks(look, patterns); missing != "" {
							return missing
						}
						text = regexp.MustCompile(`(?m) +$`).ReplaceAllString(escapes.ReplaceAllString(look, ""), "")
						text = regexp.MustCompile(`^\n{3,}`).ReplaceAllString(text, "\n\n") // a new chat is empty
						want := ""
						if len(looks) < len(wanted) {
							want = wanted[len(looks)]
						}
						if updating || text == want {
							return ""
						}
						return fmt.Sprintf("look %d is not what is in %s (-want +got):\n%s", len(looks), file, cmp.Diff(want, text))
					}), light)
					looks = append(looks, text)
				}
				shows(ready)
				s.sends("echo # What I found\n\nThe **parser** calls `next` *twice*, see [the source](https://example.com/parser.go):\n\n" +
					"| place | calls | why |\n|---|--:|---|\n| parse.go | 2 | the loop looks ahead by one token and forgets that it has done so when a line ends |\n| scan.go | 14 | as it should |\n\n" +
					"- [x] read\n- [ ] mended\n\n> It is said to be so since the first version.\n\n```go\nfunc next() {\n\treturn\n}\n```\n")
				shows(`☐ mended\s*$[^❯]*return\s*$`, ready)
				s.sends("diff")
				s.shows(`I edited notes.txt`, ready)
				s.sends("run")
				s.shows(`The command failed`, ready)
				s.sends("permission")
				shows(`1 Allow`, `│ a number answers`, `^waits for you`)
				s.asks("send-keys 3")
				s.shows(`reject_once`, ready)
				s.asks("send-keys C-o")
				shows(`Mock Large`)
				s.asks("send-keys Escape")
				s.shows(`reject_once\s*\n─+$`) // what follows an Escape at once is one key with it
				// How many of a plan's states are shown depends on how fast they follow each other.
				s.sends("plan")
				s.shows(`☑ Report`, ready)
				s.sends("slow")
				s.shows(`tick 3`, `^working, Escape cancels`)
				s.asks("send-keys Escape")
				s.shows(`the turn ended: cancelled`, ready)

				if updating {
					if err := os.WriteFile(file, []byte(strings.Join(looks, frame)+"\n"), 0o644); err != nil {
						t.Fatal(err)
					}
				} else if len(looks) != len(wanted) {
					t.Errorf("%s has %d looks, not %d", file, len(wanted), len(looks))
				}
			})
		}
	}
}

// Two chats in which Enter is pressed at once show the same conversation, in which each answer
// stands below its prompt.
func TestChat_TwoSendAtOnce(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "--default-agent", "mock")
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, speaks := range []string{"1", "2"} {
		t.Run("version "+speaks, func(t *testing.T) {
			session := connect(t, g, wsocket, options{agent: "mock"}).newSession()
			chats := map[string]*screen{}
			for _, who := range []string{"A", "B"} {
				chats[who] = startScreen(t, 80, 46, nil, program, "chat", "--endpoint", g.url, "--acp", speaks, "--session", session)
				chats[who].shows(`^ready`)
			}
			var before string
			for round := range 4 {
				for who, s := range chats {
					s.asks(fmt.Sprintf("send-keys 'echo from%s%d'", who, round))
					s.shows(fmt.Sprintf(`^❯ echo from%s%d\s*\n.*working|^❯ echo from%s%d\s*\nready`, who, round, who, round))
				}
				for _, s := range chats {
					if _, err := io.WriteString(s.in, "send-keys Enter\n"); err != nil {
						t.Fatal(err)
					}
				}
				said := func(who string) string { return fmt.Sprintf(`❯ echo from%s%d\s+from%s%d\s+`, who, round, who, round) }
				a := said("A") + said("B")
				b := said("B") + said("A")
				seen := escapes.ReplaceAllString(chats["A"].shows(`^`+before+`(`+a+`|`+b+`)─+\n❯ Say what`), "")
				if before += a; !regexp.MustCompile(`^\s*` + before).MatchString(seen) {
					before = strings.TrimSuffix(before, a) + b
				}
				chats["B"].shows(`^` + before + `─+\n❯ Say what`)
			}
		})
	}
}

var colours = regexp.MustCompile(`\x1b\[([0-9;]*)m`)

// readable reports text in a colour that cannot be read well on the background, or that
// each terminal shows in another way.
func readable(t *testing.T, look string, light bool) {
	t.Helper()
	ground := 0.0
	if light {
		ground = 1
	}
	for _, set := range colours.FindAllStringSubmatch(look, -1) {
		codes := strings.Split(set[1], ";")
		for i := 0; i < len(codes); i++ {
			code, _ := strconv.Atoi(codes[i])
			switch {
			case code == 38 && i+2 < len(codes) && codes[i+1] == "5":
				n, _ := strconv.Atoi(codes[i+2])
				i += 2
				if c := contrast(luminance(n), ground); n < 16 || c < 4.5 {
					t.Errorf("colour %d has a contrast of %.1f", n, c)
				}
			case code >= 30 && code <= 37, code >= 40 && code <= 48, code >= 90:
				t.Errorf("colour %s is of the terminal's own choice", set[1])
			}
		}
	}
	if !strings.Contains(look, "\x1b[38;5;") {
		t.Error("there are no colours")
	}
}

// luminance of one of the 256 colours of terminals, without the first 16.
func luminance(n int) float64 {
	linear := func(v int) float64 {
		if c := float64(v) / 255; c > 0.04045 {
			return math.Pow((c+0.055)/1.055, 2.4)
		}
		return float64(v) / 255 / 12.92
	}
	if n >= 232 {
		return linear(8 + 10*(n-232))
	}
	n -= 16
	level := []int{0, 95, 135, 175, 215, 255}
	return 0.2126*linear(level[n/36]) + 0.7152*linear(level[n/6%6]) + 0.0722*linear(level[n%6])
}

func contrast(a, b float64) float64 { return (max(a, b) + 0.05) / (min(a, b) + 0.05) }
