package applied

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// TestOrderOf: an order is read as it is written, without the number of a run also as it was before runs had one.
func TestOrderOf(t *testing.T) {
	for text, want := range map[string]Order{
		"":           {},
		"abc/2":      {Spec: "abc", Opened: 2},
		"abc/2/1":    {Spec: "abc", Opened: 2, Run: 1},
		"abc":        {},
		"abc/x":      {},
		"abc/-1":     {},
		"abc/2/":     {},
		"abc/2/x":    {},
		"abc/2/-1":   {},
		"abc/2/1/17": {},
	} {
		got := OrderOf(&workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{OrderAnnotation: text}}})
		if got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
		if written := got.String(); want != (Order{}) && written != text {
			t.Errorf("%s: written as %s", text, written)
		}
	}
}
