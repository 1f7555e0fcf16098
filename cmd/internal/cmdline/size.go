package cmdline

import (
	"fmt"
	"strconv"
	"strings"
)

// Size reads a number of bytes such as 32MiB, 1GB or 65536, which is more than 0.
func Size(s string) (int64, error) {
	units := []struct {
		name string
		size float64
	}{
		{"kib", 1 << 10},
		{"mib", 1 << 20},
		{"gib", 1 << 30},
		{"tib", 1 << 40},
		{"kb", 1e3},
		{"mb", 1e6},
		{"gb", 1e9},
		{"tb", 1e12},
		{"k", 1 << 10},
		{"m", 1 << 20},
		{"g", 1 << 30},
		{"t", 1 << 40},
		{"b", 1},
	}
	num, factor := strings.ToLower(strings.TrimSpace(s)), 1.0
	for _, u := range units {
		if rest, ok := strings.CutSuffix(num, u.name); ok {
			num, factor = strings.TrimSpace(rest), u.size
			break
		}
	}
	n, err := strconv.ParseFloat(num, 64)
	if n *= factor; err != nil || !(n >= 1) || n > 1<<63 {
		return 0, fmt.Errorf("%q is not a size: use for example 32MiB", s)
	}
	return int64(min(n, 1<<62)), nil // to which one can be added
}

// SizeOrNone is Size for what may also be 0, which is no bound.
func SizeOrNone(s string) (int64, error) {
	if strings.TrimSpace(s) == "0" {
		return 0, nil
	}
	return Size(s)
}
