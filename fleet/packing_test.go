package fleet

import (
	"os"
	"path/filepath"
	"testing"
)

// What an agent keeps of a session is put together where the hub finds it again, should it be killed meanwhile.
func TestPacking_Folder(t *testing.T) {
	temp := filepath.Join(t.TempDir(), "requests")
	h := &Hub{o: Options{Temp: temp}}
	dir, remove, err := h.packing()
	if err != nil || filepath.Dir(dir) != temp {
		t.Fatalf("it is %s, %v", dir, err)
	}
	remove()
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}
