package paths_test

import (
	"encoding/json"
	"testing"

	"sandboxagent.dev/sandbox-agent/runtime/paths"
)

func TestMap_Text(t *testing.T) {
	shorter := paths.NewMap(paths.Pair{From: "/home/al", To: "/r"}, paths.Pair{From: "/home/al/work/site", To: "/w"})
	longer := paths.NewMap(paths.Pair{From: "/r", To: "/home/al"}, paths.Pair{From: "/w", To: "/home/al/work/site"})
	for _, c := range []struct {
		m        paths.Map
		in, want string
	}{
		{shorter, "/home/al", "/r"},
		{shorter, "/home/al/", "/r/"},
		{shorter, "cd /home/al/work/site && ls /home/al/work", "cd /w && ls /r/work"},
		{shorter, "/home/alice /home/al-2 /home/al.old /home/alé /mnt/home/al ./home/al a/home/al", "/home/alice /home/al-2 /home/al.old /home/alé /mnt/home/al ./home/al a/home/al"},
		{shorter, "in /home/al. And (/home/al), \"/home/al\":/home/al;", "in /r. And (/r), \"/r\":/r;"},
		{shorter, "file:///home/al/x http://h/home/al //home/al", "file:///r/x http://h/home/al //home/al"},
		{shorter, `{"cwd":"/home/al"} \"/home/al\"`, `{"cwd":"/r"} \"/r\"`},
		{shorter, "--root=/home/al,/home/al:/home/al/work/site/..", "--root=/r,/r:/w/.."},
		{longer, "/r/x /w/r /w /r/w /rr", "/home/al/x /home/al/work/site/r /home/al/work/site /home/al/w /rr"},
		{paths.NewMap(paths.Pair{From: "/", To: "/x"}), "/ /a", "/ /a"},
		{paths.NewMap(paths.Pair{From: "/a", To: "/b"}, paths.Pair{From: "/a/keep", To: "/a/keep"}), "/a/x /a/keep/x", "/b/x /a/keep/x"},
		{paths.NewMap(paths.Pair{From: "/a", To: "/a/a"}), "/a/a /a", "/a/a/a /a/a"},
		{paths.Map{}, "/a", "/a"},
	} {
		if got := c.m.Text(c.in); got != c.want {
			t.Errorf("%s: %s, want %s", c.in, got, c.want)
		}
	}
}

func TestMap_JSON(t *testing.T) {
	m := paths.NewMap(paths.Pair{From: "/home/al", To: `/x "y"`})
	const in = `{"cwd":"/home/al","thinking":"/home/al","signature":"a/home/al","n":1.0,"/home/al/f":["\n/home/al\t\ud800"],"s":"{\"p\":\"/home/al\"}"}`
	const want = `{"cwd":"/x \"y\"","thinking":"/home/al","signature":"a/home/al","n":1.0,"/x \"y\"/f":["\n/x \"y\"\t\ud800"],"s":"{\"p\":\"/x \"y\"\"}"}`
	if got := string(m.JSON([]byte(in))); got != want || !json.Valid([]byte(got)) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// There and back again is the same text, where the new paths do not stand in it before.
func FuzzMap(f *testing.F) {
	f.Add("/home/al/x and /home/al", "/home/al", "/r")
	f.Add("file:///r/x", "/r", "/home/al")
	f.Fuzz(func(t *testing.T, s, from, to string) {
		m := paths.NewMap(paths.Pair{From: from, To: to})
		quoted, err := json.Marshal(s)
		if err != nil {
			return
		}
		var plain, inJSON string
		_ = json.Unmarshal(quoted, &plain) // without what is no UTF-8
		if err := json.Unmarshal(m.JSON(quoted), &inJSON); err != nil {
			t.Fatalf("%q %q %q: %v", s, from, to, err)
		}
		var want string
		b, _ := json.Marshal(m.Text(plain))
		_ = json.Unmarshal(b, &want)
		if inJSON != want {
			t.Fatalf("%q %q %q: %q in JSON, %q else", s, from, to, inJSON, want)
		}
	})
}
