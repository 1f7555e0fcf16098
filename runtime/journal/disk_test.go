package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Who else makes a session's folder at the same time does not keep its log from
// being made.
func TestDisk_FolderIsMadeByTwo(t *testing.T) {
	dir := t.TempDir()
	for i := range 300 {
		folder := filepath.Join(dir, fmt.Sprint(i))
		var both sync.WaitGroup
		both.Go(func() { _ = os.Mkdir(folder, 0o700) })
		f, err := osDisk{}.Create(filepath.Join(folder, "log"))
		both.Wait()
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
