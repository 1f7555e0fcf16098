package adaptertest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDescendants_AlsoThoseWhoseParentsAreGone(t *testing.T) {
	dir := t.TempDir()
	add := func(pid, parent int, state, mark string) {
		own := filepath.Join(dir, strconv.Itoa(pid))
		if err := os.Mkdir(own, 0o700); err != nil {
			t.Fatal(err)
		}
		flags := 0
		if state == "exiting" {
			state, flags = "R", 0x40000c
		}
		stat := fmt.Sprintf("%d (a (strange) name) %s %d 1 1 0 -1 %d 0 0 0 0 0 0 0 0 20 0 1 0 %d000 0 0", pid, state, parent, flags, pid)
		env := "PATH=/bin\x00" + mark + "\x00HOME=/\x00"
		for name, text := range map[string]string{"stat": stat, "environ": env} {
			if err := os.WriteFile(filepath.Join(own, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	self := os.Getpid()
	const child, grandchild, zombie, orphan, stranger, unmarked, exiting = 1 << 24, 1<<24 + 1, 1<<24 + 2, 1<<24 + 3, 1<<24 + 4, 1<<24 + 5, 1<<24 + 6
	add(self, 1, "R", "")
	add(child, self, "S", markVar+"ours")
	add(grandchild, child, "S", "")
	add(zombie, self, "Z", markVar+"ours")
	add(exiting, self, "exiting", markVar+"ours")
	add(orphan, 1, "S", markVar+"ours")
	add(stranger, 1, "S", markVar+"theirs")
	add(unmarked, 1, "S", "")

	for root, pids := range map[int][]int{self: {child, grandchild, orphan}, child: {grandchild, orphan}} {
		got := procFS{dir}.descendants(root)
		want := map[process]bool{}
		for _, pid := range pids {
			want[process{pid, strconv.Itoa(pid) + "000"}] = true
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(process{})); diff != "" {
			t.Errorf("descendants of %d (-want +got):\n%s", root, diff)
		}
	}
}
