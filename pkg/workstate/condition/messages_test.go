package condition

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

func TestCut(t *testing.T) {
	for _, test := range []struct{ message, want string }{
		{"", ""},
		{"short", "short"},
		{strings.Repeat("x", 50), strings.Repeat("x", 50)},
		{strings.Repeat("x", 51), strings.Repeat("x", 31) + "… (cut, 51 bytes)"},
		{strings.Repeat("é", 30), strings.Repeat("é", 15) + "… (cut, 60 bytes)"},
		{"\xff" + strings.Repeat("x", 50), strings.Repeat("x", 50)},
	} {
		got := Cut(test.message, 50)
		if len(got) > 50 || !utf8.ValidString(got) || got != test.want {
			t.Errorf("%q: %q, want %q", test.message, got, test.want)
		}
	}
}

// TestMessagesTogether: the messages of a work have a limit together, whatever its rules say and
// whatever is refused.
func TestMessagesTogether(t *testing.T) {
	long := strings.Repeat("x", 40_000)
	for _, test := range []struct{ manifests, rules, most int }{
		{1, 0, MaxMessage + 100},
		{1, 64, maxMessages},
		{500, 20, 500 * 22 * minMessage},
		{5000, 1, 5000 * 3 * minMessage},
	} {
		in := Input{Generation: 1}
		for i := range test.manifests {
			m := Manifest{Meta: workv1.ManifestResourceMeta{Ordinal: int32(i)}, ApplyError: errors.New(long)}
			for j := range test.rules {
				m.Rules = append(m.Rules, fmt.Sprint("C", j))
				m.Evaluated = append(m.Evaluated, metav1.Condition{Type: fmt.Sprint("C", j), Status: metav1.ConditionTrue,
					Reason: workv1.ReasonConditionRuleEvaluated, Message: long})
			}
			in.Manifests = append(in.Manifests, m)
		}
		total := 0
		for _, m := range WorkStatus(in).ResourceStatus.Manifests {
			for _, c := range m.Conditions {
				total += len(c.Message)
				if len(c.Message) > minMessage && !strings.HasSuffix(c.Message, " bytes)") {
					t.Fatalf("%s does not say that it was cut: %.300s", c.Type, c.Message)
				}
			}
		}
		if total > test.most {
			t.Errorf("%d manifests with %d rules: %d bytes of messages, at most %d are allowed", test.manifests, test.rules, total, test.most)
		}
	}
	// Nothing is cut while all fit.
	whole := strings.Repeat("x", 30_000)
	in := Input{Manifests: []Manifest{{ApplyError: errors.New(whole)}, {Meta: workv1.ManifestResourceMeta{Ordinal: 1}}}}
	if got := WorkStatus(in).ResourceStatus.Manifests[0].Conditions[0].Message; got != "Failed to apply manifest: "+whole {
		t.Errorf("a message that fits was cut: %.60s… (%d bytes)", got, len(got))
	}
}
