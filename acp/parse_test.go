package acp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestParse_FindsTheEnvelope(t *testing.T) {
	for _, c := range []struct {
		frame, method, id, session string
		request, response          bool
	}{
		{`{"jsonrpc":"2.0","id":0,"method":"a","params":{"sessionId":"s"}}`, "a", "0", "s", true, false},
		{`{"jsonrpc":"2.0","id":-1,"method":"a"}`, "a", "-1", "", true, false},
		{`{"id":"0","params":{"x":{"sessionId":"no"}},"method":"a","jsonrpc":"2.0"}`, "a", `"0"`, "", true, false},
		{`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"a\u0062\"c"}}`, "session/update", "", `ab"c`, false, false},
		{`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}`, "", "null", "", false, true},
		{"\r\n {\"jsonrpc\" : \"2.0\",\n\"id\":1e3 ,\"result\":null}\n", "", "1e3", "", false, true},
		{`{"jsonrpc":"2.0","m\u0065thod":"x\/y","id":1.50}`, "x/y", "1.50", "", true, false},
		{`{"jsonrpc":"2.0","method":"x","params":[1,{"sessionId":"s"}]}`, "x", "", "", false, false},
		{`{"jsonrpc":"2.0","method":"x","params":{"sessionId":7}}`, "x", "", "", false, false},
	} {
		m, err := Parse([]byte(c.frame))
		if err != nil {
			t.Errorf("%s: %v", c.frame, err)
			continue
		}
		if m.Method() != c.method || string(m.ID()) != c.id || m.Session() != c.session || m.IsRequest() != c.request || m.IsResponse() != c.response {
			t.Errorf("%s: method %q id %q session %q request %v response %v", c.frame, m.Method(), m.ID(), m.Session(), m.IsRequest(), m.IsResponse())
		}
		if bytes.ContainsAny(m.Frame(), "\r\n") || !json.Valid(m.Frame()) {
			t.Errorf("%s: frame became %q", c.frame, m.Frame())
		}
	}
}

func TestParse_RefusesWhatIsNoMessage(t *testing.T) {
	deep := strings.Repeat("[", 2000) + strings.Repeat("]", 2000)
	for frame, code := range map[string]int64{
		"":                   CodeParseError,
		"{":                  CodeParseError,
		`{"jsonrpc":"2.0"`:   CodeParseError,
		`{"a":"\x"}`:         CodeParseError,
		`{"a":"\ud83"}`:      CodeParseError,
		"{\"a\":\"\x01\"}":   CodeParseError,
		"{\"a\":\"\xff\"}":   CodeParseError,
		`{"a":01}`:           CodeParseError,
		`{"a":1.}`:           CodeParseError,
		`{"a":tru}`:          CodeParseError,
		`{"a":1,}`:           CodeParseError,
		`{"a":1}{`:           CodeParseError,
		`{"a":` + deep + `}`: CodeParseError,
		`[]`:                 CodeInvalidRequest,
		`[{"jsonrpc":"2.0","id":1,"method":"a"}]`: CodeInvalidRequest,
		`"x"`:                                                                     CodeInvalidRequest,
		`{"id":1,"method":"a"}`:                                                   CodeInvalidRequest,
		`{"jsonrpc":"1.0","id":1,"method":"a"}`:                                   CodeInvalidRequest,
		`{"jsonrpc":"2.0"}`:                                                       CodeInvalidRequest,
		`{"jsonrpc":"2.0","id":1}`:                                                CodeInvalidRequest,
		`{"jsonrpc":"2.0","id":{},"method":"a"}`:                                  CodeInvalidRequest,
		`{"jsonrpc":"2.0","id":true,"method":"a"}`:                                CodeInvalidRequest,
		`{"jsonrpc":"2.0","id":1,"method":7}`:                                     CodeInvalidRequest,
		`{"jsonrpc":"2.0","id":1,"method":""}`:                                    CodeInvalidRequest,
		`{"jsonrpc":"2.0","id":1,"method":"a","result":1}`:                        CodeInvalidRequest,
		`{"jsonrpc":"2.0","id":1,"method":"a","params":"s"}`:                      CodeInvalidRequest,
		`{"jsonrpc":"2.0","id":1,"result":1,"error":{}}`:                          CodeInvalidRequest,
		`{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 2000) + `","method":"a"}`: CodeInvalidRequest,
	} {
		_, err := Parse([]byte(frame))
		pe, ok := errors.AsType[*ParseError](err)
		if !ok || pe.Code != code {
			t.Errorf("%.60s: %v", frame, err)
		}
	}
}

func TestRefusal_NamesTheRequest(t *testing.T) {
	for frame, want := range map[string]string{
		`{`:                                     `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"invalid JSON at byte 1 of 1","data":{"type":"urn:sandbox-agent:error:invalid_request"}}}`,
		`{"jsonrpc":"2.0","id":"a","method":7}`: `{"jsonrpc":"2.0","id":"a","error":{"code":-32600,"message":"the method must be a string","data":{"type":"urn:sandbox-agent:error:invalid_request"}}}`,
		`{"id":1.50,"method":"m"}`:              `{"jsonrpc":"2.0","id":1.50,"error":{"code":-32600,"message":"the member jsonrpc must be \"2.0\"","data":{"type":"urn:sandbox-agent:error:invalid_request"}}}`,
		`{"jsonrpc":"2.0","id":null,"method":"m"}`: `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"the id of a request must not be null","data":{"type":"urn:sandbox-agent:error:invalid_request"}}}`,
		`{"jsonrpc":"2.0","id":[1],"method":"m"}`:  `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"the id must be a string, a number or null","data":{"type":"urn:sandbox-agent:error:invalid_request"}}}`,
		// The id of a response is one of the receiver's own requests.
		`{"jsonrpc":"2.0","id":7,"result":1,"error":{}}`: `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"a response has a result or an error, and not both","data":{"type":"urn:sandbox-agent:error:invalid_request"}}}`,
	} {
		_, err := Parse([]byte(frame))
		if err == nil {
			t.Errorf("%s was taken", frame)
			continue
		}
		if m := Refusal(err); string(m.Frame()) != want {
			t.Errorf("%s\n got %s\nwant %s", frame, m.Frame(), want)
		}
	}
}

func TestMessage_RewritesOnlyIDAndSession(t *testing.T) {
	const frame = `{"params":{ "x":[1.0e0,"\ud800"],"sessionId":"native" ,"_meta":{"a":null}}, "id" : "7","method":"session/prompt","jsonrpc":"2.0","extra":{}}`
	m := MustParse([]byte(frame))
	got := string(m.AppendRewritten(nil, IntID(12), `gate"way`))
	want := `{"params":{ "x":[1.0e0,"\ud800"],"sessionId":"gate\"way" ,"_meta":{"a":null}}, "id" : 12,"method":"session/prompt","jsonrpc":"2.0","extra":{}}`
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if got := string(m.AppendRewritten(nil, "", "")); got != frame {
		t.Errorf("an empty rewrite changed the frame: %s", got)
	}
	before, after := m.SplitSession()
	if string(before)+`"native"`+string(after) != frame {
		t.Errorf("split: %s | %s", before, after)
	}
}

func TestMessage_AppendSeq(t *testing.T) {
	for frame, want := range map[string]string{
		`{"jsonrpc":"2.0","method":"m","params":{"a":1}}`:                                        `{"jsonrpc":"2.0","method":"m","params":{"a":1,"_meta":{"sandboxagent.dev":{"seq":9}}}}`,
		`{"jsonrpc":"2.0","method":"m","params":{ }}`:                                            `{"jsonrpc":"2.0","method":"m","params":{ "_meta":{"sandboxagent.dev":{"seq":9}}}}`,
		`{"jsonrpc":"2.0","method":"m","params":{"_meta":{},"a":1}}`:                             `{"jsonrpc":"2.0","method":"m","params":{"_meta":{"sandboxagent.dev":{"seq":9}},"a":1}}`,
		`{"jsonrpc":"2.0","method":"m","params":{"_meta":{"v":1},"a":1}}`:                        `{"jsonrpc":"2.0","method":"m","params":{"_meta":{"v":1,"sandboxagent.dev":{"seq":9}},"a":1}}`,
		`{"jsonrpc":"2.0","method":"m","params":{"_meta":{"sandboxagent.dev":{"k":2,"seq":1}}}}`: `{"jsonrpc":"2.0","method":"m","params":{"_meta":{"sandboxagent.dev":{"k":2,"seq":9}}}}`,
		`{"jsonrpc":"2.0","method":"m","params":{"_meta":null}}`:                                 `{"jsonrpc":"2.0","method":"m","params":{"_meta":{"sandboxagent.dev":{"seq":9}}}}`,
		`{"jsonrpc":"2.0","method":"m"}`:                                                         `{"jsonrpc":"2.0","method":"m"}`,
	} {
		m := MustParse([]byte(frame))
		if got := string(m.AppendSeq(nil, 9, "")); got != want {
			t.Errorf("%s\n got %s\nwant %s", frame, got, want)
		}
	}
}

func TestMessage_Root(t *testing.T) {
	for frame, want := range map[string]string{
		`{"jsonrpc":"2.0","method":"m","params":{"a":1}}`:                                              `{"jsonrpc":"2.0","method":"m","params":{"a":1,"_meta":{"sandboxagent.dev":{"seq":9,"rootSessionId":"s\"1"}}}}`,
		`{"jsonrpc":"2.0","method":"m","params":{"_meta":{"v":1,"w":[]}}}`:                             `{"jsonrpc":"2.0","method":"m","params":{"_meta":{"v":1,"w":[],"sandboxagent.dev":{"seq":9,"rootSessionId":"s\"1"}}}}`,
		`{"jsonrpc":"2.0","method":"m","params":{"_meta":{"sandboxagent.dev":{"rootSessionId":"x"}}}}`: `{"jsonrpc":"2.0","method":"m","params":{"_meta":{"sandboxagent.dev":{"rootSessionId":"s\"1","seq":9}}}}`,
	} {
		m := MustParse([]byte(frame))
		got := m.AppendSeq(nil, 9, `s"1`)
		if string(got) != want {
			t.Errorf("%s\n got %s\nwant %s", frame, got, want)
		}
		if m = MustParse(got); m.Root() != `s"1` {
			t.Errorf("%s is of %q", got, m.Root())
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"a","params":{"sessionId":"s","update":{"sessionUpdate":"x"},"_meta":{}}}`,
		`{"jsonrpc":"2.0","id":null,"result":[1,2,{"a":"\ud800\n"}]}`, "{\n}", `[1]`, `{"a":-0.5e+7}`, "{\"a\":\"\u2028😀\"}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		valid := json.Valid(b)
		in := bytes.Clone(b)
		m, err := Parse(b)
		if err != nil {
			pe, ok := errors.AsType[*ParseError](err)
			if !ok {
				t.Fatalf("error of type %T", err)
			}
			// Beyond what encoding/json refuses, only invalid UTF-8 is not JSON.
			if pe.Code == CodeParseError && valid && pe.Reason != ErrInvalidUTF8 {
				t.Fatalf("%q is JSON, but: %v", in, err)
			}
			return
		}
		if !valid {
			t.Fatalf("%q is not JSON, but was taken", in)
		}
		var env struct {
			Method *string
			Params json.RawMessage
		}
		if json.Unmarshal(m.Frame(), &env) == nil && env.Method != nil && m.Method() != "" && !bytes.Contains(bytes.ToLower(in), []byte(`\u`)) && *env.Method != m.Method() && strings.Count(strings.ToLower(string(in)), `"method"`) == 1 {
			t.Fatalf("method %q, want %q", m.Method(), *env.Method)
		}
		out := m.AppendRewritten(nil, IntID(7), "new session")
		if again, err := Parse(out); err != nil {
			t.Fatalf("rewritten frame %q: %v", out, err)
		} else if m.IsRequest() && again.ID() != IntID(7) || m.HasSession() && again.Session() != "new session" {
			t.Fatalf("rewritten frame %q has id %s, session %q", out, again.ID(), again.Session())
		}
		if seq := m.AppendSeq(nil, 3, `a "root"`); !json.Valid(seq) {
			t.Fatalf("with seq: %q", seq)
		}
	})
}

var frame50 = []byte(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"stub-123-1","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"@ts=0000000000000000000#00000000;abcdefghijklmnop"}}}}`)

func BenchmarkParse(b *testing.B) {
	for _, n := range []int{50, 1024, 65536} {
		f := bytes.Replace(frame50, []byte("abcdefghijklmnop"), bytes.Repeat([]byte("a"), n-34), 1)
		b.Run(fmt.Sprintf("size=%d", n), func(b *testing.B) {
			b.SetBytes(int64(len(f)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestParse_DeepNestingIsNamed(t *testing.T) {
	for _, deep := range []string{strings.Repeat("[", 2000) + strings.Repeat("]", 2000), strings.Repeat(`{"a":`, 2000) + "1" + strings.Repeat("}", 2000)} {
		_, err := Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"x","params":` + deep + `}`))
		if err == nil || !strings.Contains(err.Error(), "nested deeper than 1000 levels") {
			t.Errorf("%v", err)
		}
	}
}
