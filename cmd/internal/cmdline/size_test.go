package cmdline

import "testing"

func TestSize(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]int64{
		"1": 1, "65536": 65536, "64k": 65536, "32MiB": 32 << 20, "32 mib": 32 << 20, "1.5GiB": 3 << 29, "2kB": 2000, "7b": 7,
		"10TiB": 10 << 40, "1TB": 1e12, "2t": 2 << 40,
		"": 0, "-1": 0, "0": 0, "x": 0, "NaN": 0, "Inf": 0, "0.4": 0, "20000000TiB": 0, "9223372036854775807": 1 << 62,
	} {
		got, err := Size(s)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d, %v, want %d", s, got, err, want)
		}
	}
}

func TestSizeOrNone(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]int64{"0": 0, " 0 ": 0, "8GiB": 8 << 30} {
		if got, err := SizeOrNone(s); got != want || err != nil {
			t.Errorf("%q: %d, %v, want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "-1", "0MiB"} {
		if got, err := SizeOrNone(s); err == nil {
			t.Errorf("%q: %d, want an error", s, got)
		}
	}
}
