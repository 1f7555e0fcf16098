package rawjson_test

import (
	"fmt"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

func TestObject(t *testing.T) {
	for _, c := range []struct {
		got  []byte
		want string
	}{
		{rawjson.Object{}.End(), `{}`},
		{rawjson.Object{}.String("a", `x"<y`).End(), `{"a":"x\"<y"}`},
		{rawjson.Object{}.Raw(`a"b`, []byte("[1, 2]")).String("c", "").End(), `{"a\"b":[1, 2],"c":""}`},
	} {
		if string(c.got) != c.want {
			t.Errorf("got %s\nwant %s", c.got, c.want)
		}
	}
}

func TestSetMember_DeleteMember(t *testing.T) {
	const obj = `{ "a" : {"b":1 , "c":[ ]} , "d":"x" }`
	for _, c := range []struct{ got, want string }{
		{string(rawjson.SetMember([]byte(obj), []byte("2"), "a", "b")), `{ "a" : {"b":2 , "c":[ ]} , "d":"x" }`},
		{string(rawjson.SetMember([]byte(obj), []byte("2"), "e", "f")), `{ "a" : {"b":1 , "c":[ ]} , "d":"x" ,"e":{"f":2}}`},
		{string(rawjson.SetMember([]byte(obj), []byte("2"), "d", "f")), `{ "a" : {"b":1 , "c":[ ]} , "d":{"f":2} }`},
		{string(rawjson.DeleteMember([]byte(obj), "a", "b")), `{ "a" : {"c":[ ]} , "d":"x" }`},
		{string(rawjson.DeleteMember([]byte(obj), "d")), `{"a" : {"b":1 , "c":[ ]}}`},
		{string(rawjson.DeleteMember([]byte(obj), "a", "x")), obj},
		{string(rawjson.DeleteMember([]byte(`{"a":1}`), "a")), `{}`},
	} {
		if c.got != c.want {
			t.Errorf("got %s\nwant %s", c.got, c.want)
		}
	}
	if got := fmt.Sprintf("%s", rawjson.Elements([]byte(` [1, {"a":[2]} ,"x"]`))); got != `[1 {"a":[2]} "x"]` {
		t.Errorf("elements: %s", got)
	}
}
