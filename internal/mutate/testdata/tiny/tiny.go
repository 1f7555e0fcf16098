// Package tiny has what the tests of mutate change: some of it is tested.
package tiny

import "time"

// Clamp returns v, or the nearest of low and high. It is tested well.
func Clamp(v, low, high int) int {
	if v < low {
		return low
	}
	if v > high {
		return high
	}
	return v
}

// Count is tested but for its bounds.
func Count(words []string) (n int) {
	for _, w := range words {
		if len(w) > 3 {
			n++
		}
	}
	return n
}

// Untested is reached by no test.
func Untested(a, b bool) bool { return a && b }

// Forgets is called, and nobody looks at what it does.
func Forgets(m map[string]int) { m["called"] = 1 }

// Hangs does not end when its step is left out.
func Hangs(n int) (steps int) {
	for i := 0; i < n; {
		i += 2
		steps++
	}
	return steps
}

type flag bool

type level uint8

const base level = 2

// Odd has what is hard to put behind a switch.
func Odd[T ~int](x T, ch chan int) (f flag, l level, out []T) {
	names := [...]string{0: "a", 1: "b"}
	byNumber := map[int]string{1 << 2: names[0]}
	f = flag(len(byNumber) == 1)
	l = base + 1
	var big uint64 = 1 << 40
	deadline := time.Duration(big) * time.Nanosecond
loop:
	for i := range 3 {
		select {
		case ch <- i:
			out = append(out, x+T(i))
		default:
			break loop
		}
	}
	switch {
	case !bool(f), deadline < 0 && l == 7:
		panic("never")
	case (x > 1) == (l >= 2):
		out = append(make([]T, 0, 16), out...)
	}
	switch l {
	case 1, base + 1:
		defer func() { l++ }()
	}
	return f, l, out
}
