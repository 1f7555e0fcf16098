package failing

import "testing"

func TestFails(t *testing.T) {
	if Is(1, 2) {
		t.Error("it is")
	}
}
