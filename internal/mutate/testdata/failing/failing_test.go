package failing

import "testing"

func TestFails(t *testing.T) {
	if Is() {
		t.Error("it is")
	}
}
