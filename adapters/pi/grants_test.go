package pi

import (
	"fmt"
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters"
)

// What an earlier version has kept counts, is listed, and is taken back.
func TestGrants_OfAnEarlierVersion(t *testing.T) {
	o := adapters.Options{StateDir: t.TempDir()}
	old := record{Always: []string{"bash\x00make all", "bash", "edit", "fetch"}}
	if err := newStore(o.StateDir).Change("s", func(r *record) { *r = old }); err != nil {
		t.Fatal(err)
	}
	var said []string
	list := Adapter{}.Grants(o, "s")
	for _, g := range list {
		said = append(said, fmt.Sprintf("%s %s %s", g.Key, g.Title, g.Kind))
	}
	if got := fmt.Sprint(said); got != "[bash make all `make all` execute bash all commands execute edit edits of files edit fetch fetch other]" {
		t.Errorf("listed is %s", got)
	}
	if err := (Adapter{}).Forget(o, "s", []string{list[1].ID}); err != nil {
		t.Fatal(err)
	}
	r, _ := newStore(o.StateDir).Load("s")
	if r.Granted.Has("bash") || !r.Granted.Has("bash\x00make all") || len(r.Granted) != 3 {
		t.Errorf("left is %+v", r.Granted)
	}
}
