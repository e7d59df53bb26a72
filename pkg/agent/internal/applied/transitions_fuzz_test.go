package applied

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

func FuzzDecodeTransitions(f *testing.F) {
	status := statusOfWork([]metav1.Condition{cond("Applied", "True", noon)},
		manifest(0, "n", "a", cond("Applied", "True", noon), ruled("Complete", "True", "done", noon)), manifest(1, "n", "b"))
	plain := encode(f, status, "")
	packed, err := compress([]byte(plain), 0)
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{"", "{}", "null", "gzip:", "gzip:AAAA", plain, packed, `{"work":[["A","B","9999-12-31T23:59:59Z"]]}`,
		`{"manifests":[{"conditions":null,"kinds":[{"names":{"":["",""]}}]}]}`, `{"work":[["\ufffd","\ud800",""]]}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		decoded, err := DecodeTransitions(text)
		if err != nil {
			return
		}
		again, err := EncodeTransitions(decoded, "")
		if err != nil {
			return // it fits in memory, but not in an object
		}
		same, err := DecodeTransitions(again)
		if err != nil {
			t.Fatalf("%q became %q, which can not be read: %v", text, again, err)
		}
		if !slices.IsSortedFunc(same.ResourceStatus.Manifests, func(a, b workv1.ManifestCondition) int {
			return compareMeta(a.ResourceMeta, b.ResourceMeta)
		}) {
			t.Error("manifests are not in order")
		}
		if diff := equalStatus(decoded, same); diff != "" {
			t.Fatal(diff)
		}
		if kept := encode(t, same, text); text != "" && kept != text {
			t.Fatalf("%q says the same as %q, and is replaced", text, kept)
		}
	})
}

func BenchmarkEncodeTransitions(b *testing.B) {
	for _, n := range []int{2, 500} {
		status := statusOfWork([]metav1.Condition{cond("Applied", "True", noon), cond("Available", "True", noon)})
		for i := range n {
			status.ResourceStatus.Manifests = append(status.ResourceStatus.Manifests, manifest(int32(i), "default", fmt.Sprintf("settings-%d", i),
				cond("Applied", "True", noon), cond("Available", "True", noon), cond("StatusFeedbackSynced", "True", noon)))
		}
		before := encode(b, status, "")
		b.Run(fmt.Sprintf("unchanged/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := EncodeTransitions(status, before); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("new/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := EncodeTransitions(status, ""); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
