package version_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp/version"
)

func TestKnows_Tell(t *testing.T) {
	thought := func(text string) string {
		return update(`{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"` + text + `\n"}}`)
	}
	for says, want := range map[string]string{
		`{"sessionUpdate":"notice","severity":"warning","title":"Slow"}`:                                                                                        thought("Slow"),
		`{"sessionUpdate":"notice","severity":"error","title":"Full","description":"no room"}`:                                                                  thought("Full (no room)"),
		`{"sessionUpdate":"notice","severity":"error","title":"Full","description":"Full"}`:                                                                     thought("Full"),
		`{"sessionUpdate":"notice","severity":"info","title":"Fine"}`:                                                                                           "",
		`{"sessionUpdate":"compaction_update","compactionId":"c","status":"in_progress"}`:                                                                       "",
		`{"sessionUpdate":"compaction_summary_chunk","compactionId":"c","content":{"type":"text","text":"x"}}`:                                                  "",
		`{"sessionUpdate":"compaction_update","compactionId":"c","status":"cancelled"}`:                                                                         "",
		`{"sessionUpdate":"compaction_update","compactionId":"c","status":"completed"}`:                                                                         thought("The conversation was compacted."),
		`{"sessionUpdate":"compaction_update","compactionId":"c","status":"completed","_meta":{"sandboxagent.dev":{"tokens":{"before":9}}}}`:                    thought("The conversation was compacted from 9 tokens."),
		`{"sessionUpdate":"compaction_update","compactionId":"c","status":"completed","_meta":{"sandboxagent.dev":{"tokens":{"before":9,"after":1}}}}`:          thought("The conversation was compacted from 9 to 1 tokens."),
		`{"sessionUpdate":"compaction_update","compactionId":"c","status":"failed","error":"no model"}`:                                                         thought("The conversation could not be compacted (no model)."),
		`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a \"notice\", and a \"compaction_update\""}}`:                                  "as it is",
		`{"sessionUpdate":"tool_call","toolCallId":"notice","title":"x","kind":"notice","rawInput":{"sessionUpdate":"notice","compaction_update":"completed"}}`: "as it is",
	} {
		frame := update(says)
		if want == "as it is" {
			want = frame
		}
		if diff := cmp.Diff(want, string(version.Knows{}.Tell([]byte(frame)))); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(frame, string(version.Knows{Notices: true, Compaction: true}.Tell([]byte(frame)))); diff != "" {
			t.Errorf("who knows all (-want +got):\n%s", diff)
		}
	}
	one := version.KnownBy([]byte(`{"session":{"notices":{},"compaction":null}}`))
	if one != (version.Knows{Notices: true}) {
		t.Errorf("the client knows %+v", one)
	}
}
