package command

import "testing"

func TestMemoryLimit(t *testing.T) {
	for text, want := range map[string]int64{
		"536870912\n": 483183810, "max\n": 0, "9223372036854771712\n": 0, "": 0, "-1": 0, "0": 0, "many": 0, "100": 90,
	} {
		if got, ok := memoryLimit(text); got != want || ok != (want > 0) {
			t.Errorf("%q: %d, %v, want %d", text, got, ok, want)
		}
	}
}
