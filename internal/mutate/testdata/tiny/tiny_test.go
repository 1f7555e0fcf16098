package tiny

import "testing"

func TestClamp(t *testing.T) {
	for _, c := range [][4]int{{1, 2, 4, 2}, {2, 2, 4, 2}, {3, 2, 4, 3}, {4, 2, 4, 4}, {5, 2, 4, 4}} {
		if got := Clamp(c[0], c[1], c[2]); got != c[3] {
			t.Errorf("Clamp(%v) is %d", c, got)
		}
	}
}

func TestCount(t *testing.T) {
	if got := Count([]string{"a", "word", "words"}); got != 2 {
		t.Errorf("%d", got)
	}
	Forgets(map[string]int{})
}

func TestHangs(t *testing.T) {
	if four, five := Hangs(4), Hangs(5); four != 2 || five != 3 {
		t.Errorf("%d, %d", four, five)
	}
}

func TestOdd(t *testing.T) {
	ch := make(chan int, 2)
	f, l, out := Odd(5, ch)
	if !f || l != 4 || len(out) != 2 || out[1] != 6 || len(ch) != 2 {
		t.Errorf("%v %d %v", f, l, out)
	}
}
