package viewer

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// A client that opens a session again while it reads it is given each answer once, behind what was said before it.
func TestAttach_AnswersComeInTheirPlaces(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			s := newPlain(t)
			c := NewClient("c", 1, Capabilities{}, acp.OneStream, nil, NewUnread(0))
			defer c.Close()
			c.Attach(s, 0, 0)
			st, err := c.Stream("", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			answers := map[string]int{}
			newest := uint64(0)  // update of the feed
			skipped := uint64(0) // newest update that a feed began behind: answers up to there need no place
			read := func(most int) {
				events, err := st.Poll(most)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range events {
					var seq uint64
					if _, err := fmt.Sscanf(string(e.Frame), `{"update":%d`, &seq); err == nil {
						if seq != newest+1 {
							t.Fatalf("update %d behind %d", seq, newest)
						}
						newest = seq
						continue
					}
					if _, err := fmt.Sscanf(string(e.Frame), `{"answer":%d`, &seq); err != nil {
						t.Fatalf("%s: %v", e.Frame, err)
					}
					if answers[string(e.Frame)]++; seq > skipped && newest < seq {
						t.Fatalf("the answer behind %d came behind %d", seq, newest)
					}
				}
				st.Written()
			}
			said, shown, answered := uint64(0), uint64(0), 0 // shown is what was said at the last flush
			for range 40 {
				switch random.IntN(6) {
				case 0:
					answered++
					s.log.Append(journal.Response, 1, fmt.Appendf(nil, `{"answer":%d,"number":%d}`, said, answered))
				case 1:
					read(60) // a few
				case 2:
					before, had := s.log.Last(), shown
					s.Flush()
					shown = said
					switch random.IntN(3) {
					case 0: // as a load does
						newest = 0
						c.Attach(s, 0, s.log.Last())
					case 1: // as a resume does
						newest, skipped = said, said
						c.Resume(s, s.log.Last())
					default: // as one does that has looked before more was said, and read
						read(1 << random.IntN(10))
						newest, skipped = max(newest, had), max(skipped, had)
						c.Resume(s, before)
					}
				default:
					said++
					s.log.Append(journal.Update, journal.Everyone, fmt.Appendf(nil, `{"update":%d}`, said))
				}
			}
			s.Flush()
			for range 100 {
				read(1 << 10)
			}
			if newest != said {
				t.Errorf("%d of %d updates came", newest, said)
			}
			if len(answers) != answered {
				t.Errorf("%d of %d answers came", len(answers), answered)
			}
			for answer, times := range answers {
				if times != 1 {
					t.Errorf("%s came %d times", answer, times)
				}
			}
		})
	}
}
