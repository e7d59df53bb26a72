package applied

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

var noon = metav1.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func cond(kind, status string, at metav1.Time) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionStatus(status), LastTransitionTime: at,
		Reason: "Some", Message: "not kept", ObservedGeneration: 4}
}

func ruled(kind, status, message string, at metav1.Time) metav1.Condition {
	c := cond(kind, status, at)
	c.Reason, c.Message = workv1.ReasonConditionRuleEvaluated, message
	return c
}

func manifest(ordinal int32, namespace, name string, conditions ...metav1.Condition) workv1.ManifestCondition {
	return workv1.ManifestCondition{Conditions: conditions, ResourceMeta: workv1.ManifestResourceMeta{
		Ordinal: ordinal, Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Namespace: namespace, Name: name,
	}}
}

func statusOfWork(work []metav1.Condition, manifests ...workv1.ManifestCondition) *workv1.ManifestWorkStatus {
	return &workv1.ManifestWorkStatus{Conditions: work, ResourceStatus: workv1.ManifestResourceStatus{Manifests: manifests}}
}

// remembers is what has to come back of a status: the definition that the round trip is held
// against.
func remembers(status *workv1.ManifestWorkStatus) *workv1.ManifestWorkStatus {
	conditions := func(in []metav1.Condition) []metav1.Condition {
		var out []metav1.Condition
		for _, c := range in {
			c = metav1.Condition{Type: c.Type, Status: c.Status, LastTransitionTime: metav1.NewTime(c.LastTransitionTime.UTC().Truncate(time.Second)),
				Reason: c.Reason, Message: c.Message}
			if !strings.HasPrefix(c.Reason, "ConditionRule") {
				c.Reason, c.Message = "", ""
			}
			whole := c.Message
			for end, r := range whole {
				if next := end + utf8.RuneLen(r); next <= 256 {
					c.Message = whole[:next]
				}
			}
			out = append(out, c)
		}
		return out
	}
	kept := &workv1.ManifestWorkStatus{Conditions: conditions(status.Conditions)}
	seen := map[workv1.ManifestResourceMeta]bool{}
	for _, m := range status.ResourceStatus.Manifests {
		m.ResourceMeta.Ordinal = 0
		if !seen[m.ResourceMeta] {
			kept.ResourceStatus.Manifests = append(kept.ResourceStatus.Manifests,
				workv1.ManifestCondition{ResourceMeta: m.ResourceMeta, Conditions: conditions(m.Conditions)})
		}
		seen[m.ResourceMeta] = true
	}
	return kept
}

// equalStatus compares but for the order of manifests.
func equalStatus(want, got *workv1.ManifestWorkStatus) string {
	for _, status := range []*workv1.ManifestWorkStatus{want, got} {
		slices.SortFunc(status.ResourceStatus.Manifests, func(a, b workv1.ManifestCondition) int { return compareMeta(a.ResourceMeta, b.ResourceMeta) })
	}
	if equality.Semantic.DeepEqual(want, got) {
		return ""
	}
	return cmp.Diff(want, got) + "."
}

func encode(t testing.TB, status *workv1.ManifestWorkStatus, before string) string {
	t.Helper()
	text, err := EncodeTransitions(status, before)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func decode(t testing.TB, text string) *workv1.ManifestWorkStatus {
	t.Helper()
	status, err := DecodeTransitions(text)
	if err != nil {
		t.Fatalf("%v: %.200s", err, text)
	}
	return status
}

// TestTransitionsLookLikeThis pins the text: records that were written stay readable.
func TestTransitionsLookLikeThis(t *testing.T) {
	text := encode(t, statusOfWork([]metav1.Condition{cond("Applied", "True", noon), ruled("Complete", "True", "Job is finished", noon)},
		manifest(0, "shop", "b", cond("Applied", "True", noon)),
		manifest(1, "shop", "a", cond("Applied", "True", noon)),
		manifest(2, "", "c", ruled("Complete", "False", "", noon), cond("Applied", "Unknown", metav1.Time{})),
	), "")
	want := `{"work":[["Applied","True","2026-03-01T12:00:00Z"],` +
		`["Complete","True","2026-03-01T12:00:00Z","ConditionRuleEvaluated","Job is finished"]],` +
		`"manifests":[{"conditions":[["Complete","False","2026-03-01T12:00:00Z","ConditionRuleEvaluated",""],["Applied","Unknown",""]],` +
		`"kinds":[{"kind":["","v1","ConfigMap","configmaps"],"names":{"":["c"]}}]},` +
		`{"conditions":[["Applied","True","2026-03-01T12:00:00Z"]],` +
		`"kinds":[{"kind":["","v1","ConfigMap","configmaps"],"names":{"shop":["a","b"]}}]}]}`
	if diff := cmp.Diff(want, text); diff != "" {
		t.Error(diff)
	}
}

func randomStatus(rng *rand.Rand) *workv1.ManifestWorkStatus {
	reasons := []string{"", "AppliedManifestComplete", "ConditionRuleEvaluated", "ConditionRulesAggregated", "ConditionRuleExpressionError"}
	conditions := func() []metav1.Condition {
		var list []metav1.Condition
		for _, kind := range []string{"Applied", "Available", "StatusFeedbackSynced", "Complete"} {
			if rng.IntN(4) == 0 {
				continue
			}
			list = append(list, metav1.Condition{
				Type: kind, Status: []metav1.ConditionStatus{"True", "False", "Unknown"}[rng.IntN(3)],
				Reason: reasons[rng.IntN(len(reasons))], ObservedGeneration: rng.Int64N(9),
				Message:            strings.Repeat([]string{"a", "é", "€", "😀", "<\""}[rng.IntN(5)], rng.IntN(4)*rng.IntN(100)) + "end",
				LastTransitionTime: metav1.NewTime(time.Unix(1_700_000_000+rng.Int64N(3), rng.Int64N(1e9)).In(time.FixedZone("", 3600))),
			})
		}
		return list
	}
	status := statusOfWork(conditions())
	for i := range rng.IntN(40) {
		status.ResourceStatus.Manifests = append(status.ResourceStatus.Manifests, workv1.ManifestCondition{
			ResourceMeta: workv1.ManifestResourceMeta{
				Ordinal: int32(i), Group: []string{"", "apps"}[rng.IntN(2)], Version: "v1", Kind: []string{"A/b", "B"}[rng.IntN(2)],
				Resource: []string{"", "bs"}[rng.IntN(2)], Namespace: []string{"", "n", "m"}[rng.IntN(3)], Name: string(rune('a' + rng.IntN(3))),
			},
			StatusFeedbacks: workv1.StatusFeedbackResult{Values: []workv1.FeedbackValue{{Name: "x"}}},
			Conditions:      conditions(),
		})
	}
	return status
}

func TestTransitionsRoundTrip(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		status := randomStatus(rng)
		text := encode(t, status, "")
		if diff := equalStatus(remembers(status), decode(t, text)); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
		if again := encode(t, decode(t, text), ""); again != text {
			t.Fatalf("seed %d: what is decoded is encoded differently:\n%s\n%s", seed, text, again)
		}
		if same := encode(t, status, text); same != text {
			t.Fatalf("seed %d: the same status changes the text", seed)
		}
		// Without doubles, the order of manifests does not matter.
		unique := decode(t, text)
		rng.Shuffle(len(unique.ResourceStatus.Manifests), func(i, j int) {
			m := unique.ResourceStatus.Manifests
			m[i], m[j] = m[j], m[i]
		})
		for i := range unique.ResourceStatus.Manifests {
			unique.ResourceStatus.Manifests[i].ResourceMeta.Ordinal = int32(i)
		}
		if again := encode(t, unique, ""); again != text {
			t.Fatalf("seed %d: another order of manifests changes the text", seed)
		}
	}
}

func TestTransitionsStayWhenOnlyFeedbackMoved(t *testing.T) {
	later := metav1.NewTime(noon.Add(time.Hour))
	status := func(synced string, syncedAt, appliedAt metav1.Time, others ...metav1.Condition) *workv1.ManifestWorkStatus {
		return statusOfWork([]metav1.Condition{cond("Applied", "True", noon)},
			manifest(0, "n", "a", append([]metav1.Condition{cond("Applied", "True", appliedAt), cond("StatusFeedbackSynced", synced, syncedAt)}, others...)...),
			manifest(1, "n", "b", cond("Applied", "True", noon), cond("StatusFeedbackSynced", "True", noon)))
	}
	first := status("True", noon, noon)
	before := encode(t, first, "")
	for name, c := range map[string]struct {
		now   *workv1.ManifestWorkStatus
		moves bool
	}{
		"nothing":                          {first, false},
		"a value":                          {status("True", later, noon), false},
		"feedback failed":                  {status("False", later, noon), true},
		"applied again":                    {status("True", noon, later), true},
		"a value, and applied again":       {status("True", later, later), true},
		"a new condition":                  {status("True", noon, noon, ruled("Complete", "True", "", noon)), true},
		"a manifest gone":                  {statusOfWork(first.Conditions, first.ResourceStatus.Manifests[0]), true},
		"a condition of the work":          {statusOfWork([]metav1.Condition{cond("Applied", "False", noon)}, first.ResourceStatus.Manifests...), true},
		"a reason that is not kept":        {statusOfWork([]metav1.Condition{{Type: "Applied", Status: "True", LastTransitionTime: noon}}, first.ResourceStatus.Manifests...), false},
		"that feedback time, of the work":  {statusOfWork([]metav1.Condition{cond("StatusFeedbackSynced", "True", noon)}, first.ResourceStatus.Manifests...), true},
		"everything gone":                  {&workv1.ManifestWorkStatus{}, true},
		"everything gone, given as no one": {nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			now := encode(t, c.now, before)
			if moved := now != before; moved != c.moves {
				t.Errorf("moved: %v, want %v", moved, c.moves)
			}
			if !c.moves || c.now == nil {
				return
			}
			if diff := equalStatus(remembers(c.now), decode(t, now)); diff != "" {
				t.Errorf("what is new is not whole: %s", diff)
			}
		})
	}
	// A rule's message is kept, so that it moves the text.
	with := func(message string) *workv1.ManifestWorkStatus {
		return statusOfWork(nil, manifest(0, "n", "a", ruled("Complete", "True", message, noon)))
	}
	if one := encode(t, with("a"), ""); encode(t, with("b"), one) == one {
		t.Error("another message leaves the text as it was")
	}
	// A text that cannot be read is replaced.
	for _, broken := range []string{"what", "gzip:AAAA", `{"work":[["Applied"]]}`} {
		if got := encode(t, first, broken); got != before {
			t.Errorf("before %q: %q", broken, got)
		}
	}
}

func TestTransitionsOfManyManifests(t *testing.T) {
	many := func(n int, conditions func(i int) []metav1.Condition) *workv1.ManifestWorkStatus {
		status := statusOfWork([]metav1.Condition{cond("Applied", "True", noon)})
		for i := range n {
			status.ResourceStatus.Manifests = append(status.ResourceStatus.Manifests,
				manifest(int32(i), "default", fmt.Sprintf("settings-%d", i), conditions(i)...))
		}
		return status
	}
	usual := func(i int) []metav1.Condition {
		at := metav1.NewTime(noon.Add(time.Duration(i%3) * time.Second))
		return []metav1.Condition{cond("Applied", "True", at), cond("Available", "True", at), cond("StatusFeedbackSynced", "True", at)}
	}
	long := func(size int) func(i int) []metav1.Condition {
		rng := rand.New(rand.NewPCG(1, 2))
		return func(int) []metav1.Condition {
			var message strings.Builder
			for message.Len() < size {
				message.WriteRune(rune('!' + rng.IntN(90)))
			}
			return []metav1.Condition{ruled("Complete", "True", message.String(), noon)}
		}
	}
	for name, c := range map[string]struct {
		status   *workv1.ManifestWorkStatus
		most     int
		messages bool
	}{
		"500":                           {many(500, usual), 4096, true},
		"as many as a work can have":    {many(8000, usual), 64 * 1024, true},
		"messages that are still good":  {many(800, long(200)), maxTransitions, true},
		"messages that have to be left": {many(2000, long(200)), maxTransitions, false},
	} {
		t.Run(name, func(t *testing.T) {
			want := remembers(c.status)
			text := encode(t, c.status, "")
			t.Logf("%d manifests: %d bytes", len(want.ResourceStatus.Manifests), len(text))
			if len(text) > c.most {
				t.Errorf("%d bytes, want at most %d", len(text), c.most)
			}
			if !c.messages {
				for _, m := range want.ResourceStatus.Manifests {
					m.Conditions[0].Message = ""
				}
			}
			if diff := equalStatus(want, decode(t, text)); diff != "" {
				t.Errorf("%.2000s", diff)
			}
			// Whatever was left out, the text stays while the status does.
			if again := encode(t, c.status, text); again != text {
				t.Error("the same status changes the text")
			}
		})
	}
	var kinds []metav1.Condition
	for i := range 200 {
		kinds = append(kinds, cond(fmt.Sprint("Kind", i), "True", noon))
	}
	if text, err := EncodeTransitions(many(600, func(int) []metav1.Condition { return kinds }), ""); err == nil {
		t.Errorf("more conditions than can be read again give %d bytes", len(text))
	} else if !strings.Contains(err.Error(), "600 manifests") {
		t.Errorf("error %q does not say of how much", err)
	}
}

func TestCutEndsAtARune(t *testing.T) {
	for _, message := range []string{"", "short", strings.Repeat("a", 256), strings.Repeat("a", 257), "a" + strings.Repeat("é", 200), "ab" + strings.Repeat("😀", 100), strings.Repeat("\xff", 300), strings.Repeat("a", 255) + "\xff"} {
		got := cut(message)
		if len(got) > 256 || !utf8.ValidString(got) || !strings.HasPrefix(strings.ToValidUTF8(message, "\uFFFD"), got) {
			t.Errorf("%.20q… of %d bytes becomes %d bytes", message, len(message), len(got))
		}
		if len(message) > 300 && len(got) < 253 {
			t.Errorf("%.20q… is cut to %d bytes", message, len(got))
		}
	}
}

func TestDecodeTransitionsRefuses(t *testing.T) {
	double := `{"conditions":[["A","True",""]],"kinds":[{"kind":["","v1","C","cs"],"names":{"n":["a"]}}]}`
	var names, conditions []string
	for i := range 2000 {
		names = append(names, fmt.Sprintf("%q", fmt.Sprint(i)))
		conditions = append(conditions, `["","",""]`)
	}
	bomb := fmt.Sprintf(`{"manifests":[{"conditions":[%s],"kinds":[{"kind":["","","",""],"names":{"n":[%s]}}]}]}`,
		strings.Join(conditions, ","), strings.Join(names, ","))
	inflated, err := compress([]byte(`{"work":[`+strings.Repeat(" ", maxPlain-20)+`]}`), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeTransitions(inflated); err != nil {
		t.Errorf("text at the limit: %v", err)
	}
	for name, c := range map[string]struct{ text, want string }{
		"no JSON":                {"what", "decode transitions: invalid character"},
		"no gzip":                {"gzip:AAAA", "uncompress"},
		"two entries":            {`{"manifests":[` + double + "," + double + `]}`, "C n/a has two entries"},
		"too few texts":          {`{"work":[["A","True"]]}`, "a condition must be"},
		"reason of no rule":      {`{"work":[["A","True","","Some",""]]}`, "a condition must be"},
		"message too long":       {`{"work":[["A","True","","ConditionRuleInvalid","` + strings.Repeat("x", 257) + `"]]}`, "a condition must be"},
		"no time":                {`{"work":[["A","True","noon"]]}`, "cannot parse"},
		"a time in another zone": {`{"work":[["A","True","2026-01-01T00:00:00+01:00"]]}`, "UTC"},
		"parts of a second":      {`{"work":[["A","True","2026-01-01T00:00:00.5Z"]]}`, "UTC"},
		"more than memory takes": {bomb, "more than 100000 conditions"},
	} {
		t.Run(name, func(t *testing.T) {
			if status, err := DecodeTransitions(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, %v; want an error with %q", status, err, c.want)
			}
		})
	}
	if status, err := DecodeTransitions(""); err != nil || status == nil || len(status.Conditions)+len(status.ResourceStatus.Manifests) != 0 {
		t.Errorf("nothing gives %v, %v", status, err)
	}
}
