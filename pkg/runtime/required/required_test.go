package required_test

import (
	"testing"

	"github.com/workwire/workwire/pkg/runtime/required"
)

func TestFields(t *testing.T) {
	type config struct {
		Name   string
		Action func()
		Any    error
	}
	for want, got := range map[string]error{
		"Name is required\nAction is required": required.Fields(config{}, "Name", "Action"),
		"Any is required":                      required.Fields(&config{Name: "a", Action: func() {}}, "Name", "Action", "Any"),
	} {
		if got == nil || got.Error() != want {
			t.Errorf("got %v, want %q", got, want)
		}
	}
	if err := required.Fields(config{Name: "a"}, "Name"); err != nil {
		t.Error(err)
	}
}
