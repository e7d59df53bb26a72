package amount_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/workwire/workwire/pkg/runtime/amount"
)

func TestOf(t *testing.T) {
	for text, want := range map[string]int{"0": 0, "3": 3, "9": 9, "0%": 0, "1%": 1, "50%": 4, "100%": 7} {
		for _, from := range []intstr.IntOrString{intstr.FromString(text), intstr.Parse(text)} {
			if a, err := amount.Of(from); err != nil || a.Resolve(7) != want {
				t.Errorf("%#v of 7: %d (%v), want %d", from, a.Resolve(7), err, want)
			}
		}
	}
	for _, text := range []string{"", "-1", "-1%", "101%", "5 %", "%", "+1", "1.5", "4294967296"} {
		if a, err := amount.Of(intstr.FromString(text)); err == nil {
			t.Errorf("%q: %+v", text, a)
		}
	}
	if a, err := amount.Of(intstr.FromInt32(-1)); err == nil {
		t.Errorf("-1: %+v", a)
	}
}
