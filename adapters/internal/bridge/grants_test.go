package bridge

import (
	"fmt"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
)

func TestGrants(t *testing.T) {
	var g Grants
	g.Add(Given("bash\x00make", "`make`", schema.ToolKindExecute))
	first := g[0].GivenAt
	g.Add(Given("bash\x00make", "once more", ""))
	g.Add(Given("", "nothing", ""))
	g.Add(Grant{Key: "edit", Title: "edits", Process: true})
	g.Add(Grant{Key: "rule", Title: "a rule", File: "/f"})
	if len(g) != 3 || !g.Has("edit") || g.Has("bash make") || g[0].GivenAt != first || g[0].Title != "`make`" {
		t.Fatalf("they are %+v", g)
	}
	list := g.List()
	where := []adapters.GrantPlace{list[0].Where, list[1].Where, list[2].Where}
	if fmt.Sprint(where) != "[session process file]" || list[0].Key != "bash make" || list[0].ID == list[1].ID || list[0].Reason != "" || !strings.Contains(list[2].Reason, "/f") || !list[1].GivenAt.IsZero() {
		t.Errorf("listed as %+v", list)
	}
	before := g
	g.Forget([]string{list[0].ID, list[2].ID, "another"})
	if len(g) != 2 || g.Has("bash\x00make") || !g.Has("rule") || !before.Has("bash\x00make") {
		t.Errorf("left is %+v, and of the list before %+v", g, before)
	}
	g.Reopened()
	if len(g) != 1 || !g.Has("rule") {
		t.Errorf("opened again it has %+v", g)
	}
	g.Add(Grant{Key: "rule", Title: "in the session", Process: true})
	if len(g) != 1 || g[0].File != "" {
		t.Errorf("one that counts somewhere else is kept as %+v", g)
	}
	g.Add(Grant{Key: "rule", Title: "a rule", File: "/f"})
	g.Asked("another")
	if !g.Has("rule") {
		t.Error("what was not asked about is gone")
	}
	g.Asked("rule")
	if g.Has("rule") {
		t.Error("what the agent asks about is in the file still")
	}
	for i := range 2 * maxGrants {
		g.Add(Given(fmt.Sprint(i), "t", ""))
	}
	if len(g) != maxGrants || g.Has("0") || !g.Has(fmt.Sprint(2*maxGrants-1)) {
		t.Errorf("%d are kept", len(g))
	}
	long := strings.Repeat("x", maxCommand)
	if CommandKey(long) != long || len(CommandKey(long+"y")) > 100 || CommandKey(long+"y") == CommandKey(long+"z") {
		t.Error("the key of a long command is no hash of it")
	}
}

// upgraded is a record that an earlier version has written as old.
type upgraded struct {
	Old     string `json:"old,omitempty"`
	Granted Grants `json:"granted,omitempty"`
}

func (r *upgraded) Upgrade() {
	if r.Old != "" {
		r.Granted.Add(Grant{Key: r.Old, Title: r.Old})
	}
	r.Old = ""
}

func TestStore_Upgrades(t *testing.T) {
	const id = "5a7e8a0c-0000-4000-8000-00000000abcd"
	s := Store[upgraded]{Dir: t.TempDir()}
	if err := WritePrivate(s.path(id), []byte(`{"old":"a"}`)); err != nil {
		t.Fatal(err)
	}
	if r, ok := s.Load(id); !ok || !r.Granted.Has("a") {
		t.Errorf("it is read as %+v", r)
	}
	if err := s.Change(id, func(r *upgraded) { r.Granted.Forget([]string{r.Granted.List()[0].ID}) }); err != nil {
		t.Fatal(err)
	}
	if r, _ := s.Load(id); len(r.Granted) > 0 {
		t.Errorf("what was taken back is there: %+v", r)
	}
}
