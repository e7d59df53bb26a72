package wire

import (
	"encoding/json"
	"errors"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// hostile are texts of about size bytes that become as much as possible when they are decoded, by the kind of
// message, with the extensions that it needs.
func hostile(size int) map[string]struct{ eventType, text string } {
	const (
		works    = "io.open-cluster-management.works.v1alpha1.manifestbundles."
		workwire = "dev.workwire.v1alpha1."
	)
	list := func(before, item, after string) string {
		n := max((size-len(before)-len(after))/(len(item)+1), 1)
		return before + strings.Repeat(item+",", n-1) + item + after
	}
	return map[string]struct{ eventType, text string }{
		"versions":             {works + "spec.resync_request", list(`{"resourceVersions":[`, `{}`, `]}`)},
		"versions in capitals": {works + "spec.resync_request", list(`{"RESOURCEVERSIONS":[`, `{}`, `]}`)},
		"versions escaped":     {works + "spec.resync_request", list(`{"\u0072esourceVersion\u017f":[`, `0`, `]}`)},
		"versions twice": {works + "spec.resync_request",
			list(`{"resourceVersions":[`, `{}`, `],"resourceVersions":[`) + list("", "{}", `]}`)},
		"hashes":            {works + "status.resync_request", list(`{"statusHashes":[`, `{}`, `]}`)},
		"buckets":           {works + "status.resync_request", list(`{"statusHashes":[],"buckets":{"count":64,"indices":[`, `0`, `]}}`)},
		"manifests":         {works + "status.update_request", list(`{"resourceStatus":[`, `{}`, `]}`)},
		"no manifests":      {works + "status.update_request", list(`{"resourceStatus":[`, `null`, `]}`)},
		"conditions":        {works + "status.update_request", list(`{"conditions":[`, `{}`, `]}`)},
		"short conditions":  {works + "status.update_request", list(`{"conditions":[`, `{"type":"a","status":"b"}`, `]}`)},
		"inner conditions":  {works + "status.update_request", list(`{"resourceStatus":[`, `{"conditions":[{},{}]}`, `]}`)},
		"values":            {works + "status.update_request", list(`{"resourceStatus":[{"statusFeedback":{"values":[`, `{"fieldValue":{"integer":1}}`, `]}}]}`)},
		"specs":             {works + "spec.update_request", list(`{"manifests":[`, `1`, `]}`)},
		"configs":           {works + "spec.update_request", list(`{"manifests":[{}],"manifestConfigs":[`, `{}`, `]}`)},
		"rules":             {works + "spec.update_request", list(`{"manifests":[{}],"manifestConfigs":[{"feedbackRules":[`, `{"jsonPaths":[{}]}`, `]}]}`)},
		"strategies":        {works + "spec.update_request", list(`{"manifests":[{}],"manifestConfigs":[`, `{"updateStrategy":{"serverSideApply":{}}}`, `]}`)},
		"orphaning rules":   {works + "spec.update_request", list(`{"manifests":[{}],"deleteOption":{"selectivelyOrphans":{"orphaningRules":[`, `{"name":"of-an-object"}`, `]}}}`)},
		"parts of a spec":   {workwire + "deltas.spec.update_request", list(`{"base":"b","parts":[`, `{}`, `]}`)},
		"parts of a status": {workwire + "deltas.status.update_request", list(`{"base":"b","parts":[`, `{}`, `]}`)},
		"digests":           {workwire + "digests.status.update_request", list(`{"works":[`, `""`, `]}`)},
		"instances":         {workwire + "sources.spec.update_request", list(`{"heard":[`, `""`, `]}`)},
		"dry run":           {workwire + "dryruns.spec.create_request", list(`{"work":"w","bundle":{"manifests":[`, `1`, `]}}`)},
		"dry-run answers":   {workwire + "dryruns.status.create_request", list(`{"objects":[`, `{}`, `]}`)},
		"dry-run fields":    {workwire + "dryruns.status.create_request", list(`{"objects":[{"fields":[`, `{}`, `]}]}`)},
		"dry-run warnings":  {workwire + "dryruns.status.create_request", list(`{"objects":[{"warnings":[`, `""`, `]}]}`)},
		"one long text":     {works + "spec.resync_request", `{"resourceVersions":[{"resourceID":"` + strings.Repeat("a", size) + `"}]}`},
		"quotes":            {works + "status.update_request", `{"conditions":[{"message":"` + strings.Repeat(`\"`, size/2) + `"}]}`},
		"unknown":           {works + "status.update_request", list(`{"other":[`, `[{}]`, `]}`)},
	}
}

func hostileEvent(eventType, text string, compressed bool) cloudevents.Event {
	e := cloudevents.New()
	e.SetID("1")
	e.SetType(eventType)
	e.SetSource("cluster1-agent")
	for name, value := range map[string]string{
		extResourceID: "u", extClusterName: "cluster1", extOriginalSource: "hub1", extResourceVersion: "1", extStatusHash: "h", extContentHash: strings.Repeat("0", 64),
	} {
		e.SetExtension(name, value)
	}
	_ = e.SetData(contentType, []byte(text))
	if compressed {
		_ = e.SetData(zstdContentType, zstdEncoder().EncodeAll([]byte(text), nil))
	}
	return e
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestDecodingIsBounded: whatever a message is, decoding it allocates no more than a fixed multiple of the size
// of its text, also if that came compressed; so does what a status delta makes of it.
func TestDecodingIsBounded(t *testing.T) {
	const fixed, factor = 2 << 20, 24 // fixed: with a new buffer to uncompress into
	worst := 0.0
	for _, size := range []int{30 << 10, 1<<20 - 100} {
		for name, h := range hostile(size) {
			for _, compressed := range []bool{false, true} {
				e := hostileEvent(h.eventType, h.text, compressed)
				_, _ = Decode(e) // the types are read once
				var err error
				got := allocated(func() {
					var m Message
					if m, err = Decode(e); err == nil {
						if d, ok := m.(*StatusDelta); ok {
							_, _ = d.Apply(&workv1.ManifestWorkStatus{})
						}
					}
				})
				if limit := uint64(fixed + factor*len(h.text)); got > limit {
					t.Errorf("%s of %d bytes (compressed %v): decoding allocates %d bytes, want at most %d; %.200v", name, len(h.text), compressed, got, limit, err)
				}
				worst = max(worst, float64(got)/float64(len(h.text)+fixed/factor))
			}
		}
	}
	t.Logf("at most %.1f times the size", worst)
}

// TestLongIDIsNotDecoded: what is refused for its length alone costs neither a copy nor a second reading.
func TestLongIDIsNotDecoded(t *testing.T) {
	h := hostile(1<<20 - 100)["one long text"]
	e := hostileEvent(h.eventType, h.text, false)
	_, _ = Decode(e) // the types are read once
	if got := allocated(func() { _, _ = Decode(e) }); got > 64<<10 {
		t.Errorf("decoding an id of %d bytes allocates %d bytes", len(h.text), got)
	}
}

// TestOtherUIDs: only ids of works are limited, and not those of objects that sources have of their own.
func TestOtherUIDs(t *testing.T) {
	long := types.UID(strings.Repeat("u", 10*MaxUID))
	e, err := Encode(&Status{UID: "u", Agent: "a", Cluster: "c", Action: Update, Meta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: long}}}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	m, err := Decode(e)
	if s, ok := m.(*Status); err != nil || !ok || len(s.Meta.OwnerReferences) != 1 || s.Meta.OwnerReferences[0].UID != long {
		t.Errorf("%+v %v", m, err)
	}
}

// TestLists: each list has its limit, however it arrives, and the error names it.
func TestLists(t *testing.T) {
	for name, want := range map[string]string{
		"versions":             "decoded, they would take more than 4 times",
		"versions in capitals": "decoded, they would take more than 4 times",
		"versions escaped":     "decoded, they would take more than 4 times",
		"hashes":               "decoded, they would take more than 4 times",
		"buckets":              "more than 64 entries: buckets",
		"manifests":            "more than 5000 entries: manifests",
		"conditions":           "decoded, they would take more than 4 times",
		"parts of a status":    "decoded, they would take more than 4 times",
		"specs":                "decoded, they would take more than 4 times",
		"orphaning rules":      "more than 5000 entries: orphaningRules",
		"dry-run fields":       "decoded, they would take more than 4 times",
		"one long text":        "resourceID \"aaaaaaaa",
		"quotes":               "condition 0: message",
	} {
		h := hostile(1<<20 - 100)[name]
		_, err := Decode(hostileEvent(h.eventType, h.text, true))
		var failure *DecodeError
		if !errors.As(err, &failure) || !strings.Contains(err.Error(), want) || len(err.Error()) > 500 {
			t.Errorf("%s: %.600v, want %q", name, err, want)
		}
	}
	status := func(n int, item string) string {
		return `{"resourceStatus":[` + strings.Repeat(item+",", n-1) + item + `]}`
	}
	manifest := `{"resourceMeta":{"ordinal":1,"version":"v1","kind":"ConfigMap","resource":"configmaps","name":"a","namespace":"b"},"conditions":[]}`
	updated := "io.open-cluster-management.works.v1alpha1.manifestbundles.status.update_request"
	for n, want := range map[int]string{MaxManifests: "", MaxManifests + 1: "more than 5000 entries: manifests"} {
		_, err := Decode(hostileEvent(updated, status(n, manifest), false))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d manifests: %v, want %q", n, err, want)
		}
	}
}

// TestSpecDeltaIsBounded: a spec that is refused when it comes whole is refused as a delta too, for the same reason.
func TestSpecDeltaIsBounded(t *testing.T) {
	const base = `{"manifests":[{}]}`
	var bundle Bundle
	if err := json.Unmarshal([]byte(base), &bundle); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"configs", "rules", "strategies", "orphaning rules"} {
		h := hostile(1<<20 - 100)[name]
		_, whole := Decode(hostileEvent(h.eventType, h.text, true))
		d, err := NewSpecDelta(&Spec{}, []byte(h.text), []byte(base))
		if err != nil {
			t.Fatal(err)
		}
		_, err = d.Apply(&bundle)
		for err != nil && errors.Unwrap(err) != nil {
			err = errors.Unwrap(err)
		}
		if err == nil || whole == nil || !strings.HasSuffix(whole.Error(), err.Error()) {
			t.Errorf("%s: as a delta %.500v, whole %.500v", name, err, whole)
		}
	}
}

// TestTexts: ids, names and texts of conditions have the limits of the API, and a longer one is refused with an
// error that is short.
func TestTexts(t *testing.T) {
	long := func(n int) string { return strings.Repeat("ä", n/2) + strings.Repeat("a", n%2) }
	condition := func(c metav1.Condition) Message {
		return &Status{UID: "u", Agent: "a", Cluster: "c", Source: "s", Action: Update, Status: workv1.ManifestWorkStatus{Conditions: []metav1.Condition{c}}}
	}
	for name, c := range map[string]struct {
		max     int
		message func(text string) Message
	}{
		"resourceid": {MaxUID, func(text string) Message { return &Presence{Agent: "a", Cluster: "c", Session: "s"} }},
		"uid": {MaxUID, func(text string) Message {
			return &SpecResync{Agent: "a", Cluster: "c", Versions: []SpecVersion{{UID: "u"}, {UID: types.UID(text)}}}
		}},
		"status uid": {MaxUID, func(text string) Message {
			return &StatusResync{Source: "s", Hashes: []StatusVersion{{UID: types.UID(text)}}}
		}},
		"hash": {maxHash, func(text string) Message {
			return &StatusResync{Source: "s", Hashes: []StatusVersion{{UID: "u", Hash: text}}}
		}},
		"agent":   {maxSender, func(text string) Message { return &Presence{Agent: text, Cluster: "c", Session: "s"} }},
		"cluster": {maxName, func(text string) Message { return &Presence{Agent: "a", Cluster: ClusterName(text), Session: "s"} }},
		"source": {maxName, func(text string) Message {
			return &Presence{Agent: "a", Cluster: "c", Source: SourceID(text), Session: "s"}
		}},
		"name": {maxName, func(text string) Message {
			return &Status{UID: "u", Agent: "a", Cluster: "c", Action: Update, Meta: metav1.ObjectMeta{Name: text}}
		}},
		"namespace": {maxName, func(text string) Message {
			return &Status{UID: "u", Agent: "a", Cluster: "c", Action: Update, Meta: metav1.ObjectMeta{Namespace: text}}
		}},
		"type":    {2 * maxConditionType, func(text string) Message { return condition(metav1.Condition{Type: text}) }},
		"reason":  {2 * maxConditionReason, func(text string) Message { return condition(metav1.Condition{Reason: text}) }},
		"message": {2 * maxConditionMessage, func(text string) Message { return condition(metav1.Condition{Message: text}) }},
	} {
		for n, fits := range map[int]bool{c.max: true, c.max + 2: false} {
			text := long(n)
			if name == "agent" { // an attribute that escapes other letters
				text = strings.Repeat("a", n)
			}
			e, err := Encode(c.message(text), time.Now())
			if err != nil {
				t.Fatal(err)
			}
			if name == "resourceid" {
				e.SetExtension(extResourceID, long(n))
			}
			_, err = Decode(e)
			if (err == nil) != fits || err != nil && (len(err.Error()) > 500 || !strings.Contains(err.Error(), "want at most")) {
				t.Errorf("%s of %d bytes: %.600v, fits %v", name, n, err, fits)
			}
		}
	}
}

// FuzzStructure: what passes the check takes no more memory than that says, and nothing makes it fail.
func FuzzStructure(f *testing.F) {
	for _, h := range hostile(300) {
		f.Add([]byte(h.text))
	}
	f.Add([]byte(`{"conditions":[{"type":"\\`))
	f.Add([]byte(`{"resourceStatus":[[{]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, of := range []reflect.Type{reflect.TypeFor[statusData](), reflect.TypeFor[Delta](), reflect.TypeFor[specResyncData](), reflect.TypeFor[Bundle]()} {
			if checkStructure(text, of) != nil || !json.Valid(text) || len(text) > 4<<10 {
				continue
			}
			value := reflect.New(of)
			if got, limit := allocated(func() { _ = json.Unmarshal(text, value.Interface()) }), uint64(512<<10+24*len(text)); got > limit {
				t.Errorf("%s: %d bytes for %.200q, want at most %d", of, got, text, limit)
			}
		}
	})
}
