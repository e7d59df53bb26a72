package wire_test

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

const (
	lantern   = "2861136e-7b35-5411-b823-7fd166b7b3b2"
	lampDim   = `{"apiVersion":"v1","data":{"lamp":"dim"},"kind":"ConfigMap","metadata":{"name":"lamp","namespace":"pier"}}`
	lampLight = `{"apiVersion":"v1","data":{"lamp":"bright"},"kind":"ConfigMap","metadata":{"name":"lamp","namespace":"pier"}}`
	memory    = "6f1c2d3e-0000-4000-8000-00000000cafe"
	// hash256 was computed with sha256sum.
	hash256 = "38fdc28d661acd29c272e409a4efd7e1a4d0cc363739522d01b9097923f93136"
	beam    = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"beam","namespace":"pier"},"spec":{"replicas":2,` +
		`"selector":{"matchLabels":{"app":"beam"}},"template":{"metadata":{"labels":{"app":"beam"}},` +
		`"spec":{"containers":[{"image":"registry.example/beam:3","name":"beam"}]}}}}`
)

func at(t testing.TB, text string) metav1.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return metav1.NewTime(parsed)
}

func ptr[T any](v T) *T { return &v }

func raw(text string) workv1.Manifest {
	return workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(text)}}
}

func specMeta(generation int64, version string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: "lantern", Namespace: "quay-7", UID: lantern, Generation: generation,
		ResourceVersion: version, Labels: map[string]string{"team": "lights"}}
}

// agentMeta is the metadata that the agent reports.
func agentMeta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: "lantern", Namespace: "quay-7", UID: lantern, Generation: 2,
		Labels:      map[string]string{workv1.OriginalSourceLabelKey: "harbor", "team": "lights"},
		Annotations: map[string]string{workv1.DataTypeAnnotationKey: wire.ManifestBundles.String()},
		Finalizers:  []string{workv1.ManifestWorkFinalizer}}
}

func condition(t testing.TB, kind string, generation int64, second, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, ObservedGeneration: generation,
		LastTransitionTime: at(t, "2031-03-04T05:"+second+"Z"), Reason: reason, Message: message}
}

// available is the status of the work once it is up.
func available(t testing.TB) workv1.ManifestWorkStatus {
	entry := func(ordinal int32, group, kind, resource, name string, synced metav1.Condition, values ...workv1.FeedbackValue) workv1.ManifestCondition {
		return workv1.ManifestCondition{
			ResourceMeta: workv1.ManifestResourceMeta{Ordinal: ordinal, Group: group, Version: "v1", Kind: kind,
				Resource: resource, Name: name, Namespace: "pier"},
			StatusFeedbacks: workv1.StatusFeedbackResult{Values: values},
			Conditions: []metav1.Condition{
				condition(t, "Applied", 2, "07:08", "AppliedManifestComplete", "Apply manifest complete"),
				condition(t, "Available", 0, "07:08", "ResourceAvailable", "Resource is available"),
				synced,
			},
		}
	}
	return workv1.ManifestWorkStatus{
		Conditions: []metav1.Condition{
			condition(t, "Applied", 2, "07:08", "AppliedManifestWorkComplete", "Apply manifest work complete"),
			condition(t, "Available", 2, "07:09", "ResourcesAvailable", "All resources are available"),
		},
		ResourceStatus: workv1.ManifestResourceStatus{Manifests: []workv1.ManifestCondition{
			entry(0, "", "ConfigMap", "configmaps", "lamp",
				condition(t, "StatusFeedbackSynced", 0, "07:08", "NoStatusFeedbackSynced", "")),
			entry(1, "apps", "Deployment", "deployments", "beam",
				condition(t, "StatusFeedbackSynced", 0, "07:09", "StatusFeedbackSynced", ""),
				workv1.FeedbackValue{Name: "ReadyReplicas", Value: workv1.FieldValue{Type: workv1.Integer, Integer: ptr(int64(2))}},
				workv1.FeedbackValue{Name: "isAvailable", Value: workv1.FieldValue{Type: workv1.String, String: ptr("True")}}),
		}},
	}
}

// messages says what each message of testdata/exchange.txt means.
func messages(t testing.TB) map[string]wire.Message {
	update := &wire.Bundle{
		Manifests: []workv1.Manifest{raw(lampLight), raw(beam)},
		DeleteOption: &workv1.DeleteOption{
			PropagationPolicy: workv1.DeletePropagationPolicyTypeSelectivelyOrphan,
			SelectivelyOrphan: &workv1.SelectivelyOrphan{OrphaningRules: []workv1.OrphaningRule{
				{Resource: "configmaps", Namespace: "pier", Name: "lamp"}}},
			TTLSecondsAfterFinished: ptr(int64(90)),
		},
		ManifestConfigs: []workv1.ManifestConfigOption{{
			ResourceIdentifier: workv1.ResourceIdentifier{Group: "apps", Resource: "deployments", Name: "beam", Namespace: "pier"},
			FeedbackRules: []workv1.FeedbackRule{{Type: workv1.WellKnownStatusType}, {Type: workv1.JSONPathsType,
				JsonPaths: []workv1.JsonPath{{Name: "isAvailable", Path: `.status.conditions[?(@.type=="Available")].status`}}}},
			UpdateStrategy: &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeServerSideApply,
				ServerSideApply: &workv1.ServerSideApplyConfig{Force: true, FieldManager: "work-agent-lights"}},
		}},
		Executer: &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
			Type:           workv1.ExecutorSubjectTypeServiceAccount,
			ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: "pier", Name: "keeper"}}},
	}
	bareMeta := metav1.ObjectMeta{Name: lantern, Namespace: "quay-7", UID: lantern, Generation: 2}
	deletingMeta := agentMeta()
	deletingMeta.DeletionTimestamp = ptr(at(t, "2031-03-04T05:08:07Z"))
	deletedMeta := *deletingMeta.DeepCopy()
	deletedMeta.Finalizers = nil
	deleting := available(t)
	deleting.Conditions = append(deleting.Conditions, condition(t, "Deleting", 2, "08:07", "WorkDeleting", "ManifestWork is being deleted"))
	gone := condition(t, "Deleted", 0, "08:09", "ManifestsDeleted", "The manifests are deleted from the cluster quay-7")
	deleted := *deleting.DeepCopy()
	deleted.Conditions = append(deleted.Conditions, gone)

	spec := func(action wire.Action, generation wire.Generation, s wire.Spec) *wire.Spec {
		s.UID, s.Source, s.Cluster, s.Action, s.Generation = lantern, "harbor", "quay-7", action, generation
		return &s
	}
	status := func(action wire.Action, sequence wire.SequenceID, meta metav1.ObjectMeta, s workv1.ManifestWorkStatus, hash string) *wire.Status {
		return &wire.Status{UID: lantern, Generation: 2, Source: "harbor", Cluster: "quay-7", Agent: "quay-7-agent", Action: action,
			Meta: meta, Sequence: sequence, Hash: hash, Status: s, Trace: "{}"}
	}
	hash := func(name string) string { return fixture(t, name).properties["ce-statushash"] }
	return map[string]wire.Message{
		"create": spec(wire.Create, 1, wire.Spec{Meta: specMeta(1, "41"), Bundle: &wire.Bundle{Manifests: []workv1.Manifest{raw(lampDim)}}}),
		"update": spec(wire.Update, 2, wire.Spec{Meta: specMeta(2, "42"), Bundle: update,
			Trace: `{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}`}),
		"delete": spec(wire.Delete, 2, wire.Spec{Meta: specMeta(2, "42"), DeletionTimestamp: ptr(at(t, "2031-03-04T05:08:07.454198249Z"))}),
		"delete-bare": spec(wire.ResyncResponse, 2, wire.Spec{Meta: bareMeta, NoMetadata: true,
			DeletionTimestamp: ptr(at(t, "2031-03-04T05:08:08Z"))}),
		"status":          status(wire.Update, 2690781301568442368, agentMeta(), available(t), hash("status")),
		"status-deleting": status(wire.Update, 2690781546935226368, deletingMeta, deleting, hash("status-deleting")),
		"status-deleted":  status(wire.Update, 2690781554275258369, deletedMeta, deleted, hash("status-deleted")),
		"status-unknown": status(wire.Update, 2690781556372410368, deletedMeta,
			workv1.ManifestWorkStatus{Conditions: []metav1.Condition{gone}}, hash("status-unknown")),
		"status-resync": status(wire.ResyncResponse, 2690781766087610368, agentMeta(), available(t), hash("status-resync")),
		"spec-resync": &wire.SpecResync{Agent: "quay-7-agent", Cluster: "quay-7", Versions: []wire.SpecVersion{
			{UID: lantern, Generation: 2}, {UID: "0d9f4f0e-0000-4000-8000-00000000beef"}}},
		"spec-resync-all": &wire.SpecResync{Agent: "quay-7-agent", Cluster: "quay-7", Source: "harbor", Versions: []wire.SpecVersion{}},
		"status-resync-request": &wire.StatusResync{Source: "harbor", Cluster: "quay-7", Hashes: []wire.StatusVersion{
			{UID: lantern, Hash: strings.Repeat("5f", 32)}}},
		"authoritative": spec(wire.ResyncResponse, 2, wire.Spec{Meta: specMeta(2, "42"), Bundle: update, SourceIdentity: memory,
			ContentHash: hash256, Authoritative: true, Trace: `{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}`}),
		"delete-identity": spec(wire.ResyncResponse, 2, wire.Spec{Meta: bareMeta, NoMetadata: true, SourceIdentity: memory,
			DeletionTimestamp: ptr(at(t, "2031-03-04T05:08:08Z"))}),
		"spec-resync-content": &wire.SpecResync{Agent: "quay-7-agent", Cluster: "quay-7", Versions: []wire.SpecVersion{
			{UID: lantern, Generation: 2, ContentHash: hash256}}},
		"status-resync-identity": &wire.StatusResync{Source: "harbor", Cluster: "quay-7", SourceIdentity: memory, Hashes: []wire.StatusVersion{
			{UID: lantern, Hash: strings.Repeat("5f", 32)}}},
		"status-resync-reply": &wire.StatusResync{Source: "harbor", Cluster: "quay-7", SourceIdentity: memory, Reply: true, Hashes: []wire.StatusVersion{
			{UID: lantern, Hash: strings.Repeat("5f", 32)}}},
		"presence": &wire.Presence{Agent: "quay-7-agent", Cluster: "quay-7", Source: "harbor", Session: "41", Present: true},
		"presence-about": &wire.Presence{Agent: "quay-7-agent", Cluster: "quay-7", Source: "harbor", Session: "41", Present: true, About: &wire.About{
			Kubernetes: "v1.36.3", Capacity: map[string]string{"cpu": "12", "memory": "64Gi"}, Allocatable: map[string]string{"cpu": "11500m"},
			Claims: []wire.Claim{{Name: "region.open-cluster-management.io", Value: "eu-1"}}}},
		"presence-gone":     &wire.Presence{Agent: "quay-7-agent", Cluster: "quay-7", Source: "harbor", Session: "41"},
		"status-resync-all": &wire.StatusResync{Source: "harbor", Hashes: []wire.StatusVersion{}},
	}
}

func TestDecodeReadsEveryMessage(t *testing.T) {
	want := messages(t)
	if got := names(t); !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
		t.Fatalf("testdata/exchange.txt has %v, the test knows %v", got, slices.Sorted(maps.Keys(want)))
	}
	for name, message := range want {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(message, decoded(t, name)); diff != "" {
				t.Errorf("Decode differs (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEncodeWritesEveryMessage holds what Encode writes against the packets: every user property
// but the id and the time, and the payload byte for byte.
func TestEncodeWritesEveryMessage(t *testing.T) {
	for name, message := range messages(t) {
		t.Run(name, func(t *testing.T) {
			want := fixture(t, name)
			if status, ok := message.(*wire.Status); ok {
				status.Hash = "" // Encode computes it
			}
			now := at(t, "2031-03-04T05:00:00.000000042Z").Time
			e, err := wire.Encode(message, now)
			if err != nil {
				t.Fatal(err)
			}
			got := packetOf(t, want.topic, e)
			if !e.Time().Equal(now) || e.ID() == "" {
				t.Errorf("event has id %q and time %v, want an id and %v", e.ID(), e.Time(), now)
			}
			for _, p := range []packet{got, want} {
				delete(p.properties, "ce-id")
				delete(p.properties, "ce-time")
			}
			sameJSON := cmp.FilterPath(func(p cmp.Path) bool {
				return strings.Contains(p.GoString(), `["ce-metadata"]`)
			}, cmp.Comparer(equalMeta(t)))
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(packet{}), sameJSON); diff != "" {
				t.Errorf("packet differs (-want +got):\n%s", diff)
			}
		})
	}
}

// equalMeta compares metadata as JSON: sources differ in the order of the keys and in whether they
// write creationTimestamp as null or not at all.
func equalMeta(t *testing.T) func(a, b string) bool {
	read := func(text string) map[string]any {
		var m map[string]any
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatalf("metadata %q: %v", text, err)
		}
		if m["creationTimestamp"] == nil {
			delete(m, "creationTimestamp")
		}
		return m
	}
	return func(a, b string) bool { return cmp.Equal(read(a), read(b)) }
}

func TestRoundTripKeepsEverything(t *testing.T) {
	for name, message := range messages(t) {
		t.Run(name, func(t *testing.T) {
			e, err := wire.Encode(message, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			got, err := wire.Decode(packetOf(t, "", e).event(t))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(message, got); diff != "" {
				t.Errorf("differs after a round trip (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStatusWithoutSequenceStaysWithout(t *testing.T) {
	e, err := wire.Encode(&wire.Status{UID: lantern, Cluster: "quay-7", Agent: "a", Action: wire.Update}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	got, err := wire.Decode(e)
	if err != nil {
		t.Fatal(err)
	}
	if sequence := got.(*wire.Status).Sequence; sequence != 0 {
		t.Errorf("sequence is %d, want none", sequence)
	}
}

func TestBundleAndWorkSpecAreTheSame(t *testing.T) {
	bundle := messages(t)["update"].(*wire.Spec).Bundle
	spec := bundle.WorkSpec()
	if diff := cmp.Diff(bundle, wire.NewBundle(&spec)); diff != "" {
		t.Errorf("bundle differs after WorkSpec and BundleOf (-want +got):\n%s", diff)
	}
	if spec.Executor == nil || spec.Executor.Subject.ServiceAccount.Name != "keeper" {
		t.Errorf("the executor is lost: %+v", spec.Executor)
	}
}

func TestUIDFor(t *testing.T) {
	// Computed apart, by another UUID library.
	if got := wire.UIDFor("harbor", "quay-7", "lantern"); got != lantern {
		t.Errorf("UIDFor = %s, want %s", got, lantern)
	}
	if wire.UIDFor("harbor", "quay-8", "lantern") == lantern || wire.UIDFor("pier", "quay-7", "lantern") == lantern {
		t.Error("another cluster or source gives the same UID")
	}
}

func TestEncodeRefuses(t *testing.T) {
	bundle := &wire.Bundle{Manifests: []workv1.Manifest{raw(lampDim)}}
	now := ptr(metav1.Now())
	for name, tc := range map[string]struct {
		message wire.Message
		want    string
	}{
		"spec without uid":           {&wire.Spec{Source: "s", Cluster: "c", Action: wire.Create, Bundle: bundle}, "uid, source and cluster are required"},
		"spec without source":        {&wire.Spec{UID: "u", Cluster: "c", Action: wire.Create, Bundle: bundle}, "uid, source and cluster are required"},
		"spec without cluster":       {&wire.Spec{UID: "u", Source: "s", Action: wire.Create, Bundle: bundle}, "uid, source and cluster are required"},
		"spec of nothing":            {&wire.Spec{UID: "u", Source: "s", Cluster: "c", Action: wire.Create}, "want either"},
		"spec of both":               {&wire.Spec{UID: "u", Source: "s", Cluster: "c", Action: wire.Delete, Bundle: bundle, DeletionTimestamp: now}, "want either"},
		"deletion without time":      {&wire.Spec{UID: "u", Source: "s", Cluster: "c", Action: wire.Delete, Bundle: bundle}, "needs a deletion timestamp"},
		"spec with a request":        {&wire.Spec{UID: "u", Source: "s", Cluster: "c", Action: wire.ResyncRequest, Bundle: bundle}, "is not one of a spec"},
		"status without agent":       {&wire.Status{UID: "u", Cluster: "c", Action: wire.Update}, "uid, agent and cluster are required"},
		"status that deletes":        {&wire.Status{UID: "u", Cluster: "c", Agent: "a", Action: wire.Delete}, "is not one of a status"},
		"spec resync of no cluster":  {&wire.SpecResync{Agent: "a"}, "agent and cluster are required"},
		"presence of no session":     {&wire.Presence{Agent: "a", Cluster: "c"}, "agent, cluster and session are required"},
		"status resync of no source": {&wire.StatusResync{Cluster: "c"}, "source is required"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := wire.Encode(tc.message, time.Now()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Encode = %v, want an error with %q", err, tc.want)
			}
		})
	}
}

// TestDecodeRefuses changes one thing of a good message at a time. answerable says that the error
// still names the work.
func TestDecodeRefuses(t *testing.T) {
	set := func(name, value string) func(*packet) {
		return func(p *packet) { p.properties["ce-"+name] = value }
	}
	drop := func(name string) func(*packet) {
		return func(p *packet) { delete(p.properties, "ce-"+name) }
	}
	payload := func(text string) func(*packet) { return func(p *packet) { p.payload = text } }
	for name, tc := range map[string]struct {
		from       string
		change     func(*packet)
		want       string
		answerable bool
	}{
		"foreign type":              {"create", set("type", "com.example.v1.things.spec.create_request"), "not an event about works", false},
		"type of three parts":       {"create", set("type", "a.b.c"), "want <group>", false},
		"no uid":                    {"create", drop("resourceid"), "are required", false},
		"no cluster":                {"create", drop("clustername"), "are required", false},
		"generation is a word":      {"create", set("resourceversion", "one"), `resourceversion "one"`, true},
		"generation below zero":     {"create", set("resourceversion", "-1"), `resourceversion "-1"`, true},
		"generation out of range":   {"create", set("resourceversion", "9223372036854775808"), "resourceversion", true},
		"metadata is no JSON":       {"create", set("metadata", "{"), "extension metadata", true},
		"metadata is a list":        {"create", set("metadata", "[]"), "extension metadata", true},
		"content hash in capitals":  {"authoritative", set("contenthash", strings.Repeat("A", 64)), "extension contenthash", true},
		"content hash too short":    {"authoritative", set("contenthash", "a1"), "extension contenthash", true},
		"identity of two lines":     {"authoritative", set("sourceidentity", "a\nb"), "extension sourceidentity", true},
		"identity too long":         {"delete-identity", set("sourceidentity", strings.Repeat("a", 65)), "extension sourceidentity", true},
		"identity of a request":     {"status-resync-identity", set("sourceidentity", "A"), "extension sourceidentity", false},
		"deletion at no time":       {"delete", set("deletiontimestamp", "yesterday"), "RFC 3339", true},
		"deletion without time":     {"delete", drop("deletiontimestamp"), "needs extension deletiontimestamp", true},
		"no data":                   {"create", payload(""), "no ManifestBundle", true},
		"data is no JSON":           {"create", payload("manifests"), "no ManifestBundle", true},
		"data is a list":            {"create", payload("[]"), "no ManifestBundle", true},
		"no manifests":              {"create", payload(`{"manifests":[]}`), "manifests should not be empty", true},
		"manifest is a number":      {"create", payload(`{"manifests":[7]}`), "manifest 0: want a Kubernetes object, got a number", true},
		"manifest is null":          {"create", payload(`{"manifests":[null]}`), "manifest 0: not JSON", true},
		"manifest without kind":     {"create", payload(`{"manifests":[{"apiVersion":"v1","metadata":{"name":"a"}}]}`), "kind must be set", true},
		"status without uid":        {"status", drop("resourceid"), "are required", false},
		"status of no sequence":     {"status", set("sequenceid", "later"), `sequence id "later"`, false},
		"status of sequence 0":      {"status", set("sequenceid", "0"), `sequence id "0"`, false},
		"status with bad data":      {"status", payload("7"), "data is no status", false},
		"status that deletes":       {"status", set("type", wire.ManifestBundles.String()+".status.delete_request"), "can not be deleted", false},
		"status metadata":           {"status", set("metadata", "x"), "extension metadata", false},
		"spec resync of no cluster": {"spec-resync", set("clustername", ""), "clustername is required", false},
		"spec resync of no list":    {"spec-resync", payload("{"), "no list of resource versions", false},
		"presence of no cluster":    {"presence", set("clustername", ""), "clustername and session are required", false},
		"presence of no session":    {"presence", payload("{}"), "clustername and session are required", false},
		"presence with bad data":    {"presence", payload("7"), "data is no presence", false},
		"another event of agents":   {"presence", set("type", "dev.workwire.v1alpha1.agents.spec.update_request"), "not an event about works", false},
		"status resync of no list":  {"status-resync-request", payload(`{"statusHashes":{}}`), "no list of status hashes", false},
	} {
		t.Run(name, func(t *testing.T) {
			p := fixture(t, tc.from)
			tc.change(&p)
			e := p.event(t)
			m, err := wire.Decode(e)
			if m != nil || err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("Decode = %v, %v; want an error with %q", m, err, tc.want)
			}
			var failure *wire.DecodeError
			if !errors.As(err, &failure) || failure.Type != e.Type() {
				t.Fatalf("error %#v is no *DecodeError with the event's type", err)
			}
			if answerable := failure.Spec != nil; answerable != tc.answerable {
				t.Fatalf("error names a work: %v, want %v", answerable, tc.answerable)
			}
			if failure.Spec != nil && (failure.Spec.UID != lantern || failure.Spec.Source != "harbor" || failure.Spec.Cluster != "quay-7") {
				t.Errorf("error names %s of %s for %s", failure.Spec.UID, failure.Spec.Source, failure.Spec.Cluster)
			}
			if foreign := errors.Is(err, wire.ErrUnknownDataType); foreign != (name == "foreign type" || name == "another event of agents") {
				t.Errorf("error is ErrUnknownDataType: %v", foreign)
			}
		})
	}
}

func TestDecodeErrorQuotesNoData(t *testing.T) {
	const secret = "hunter2"
	for _, payload := range []string{
		`{"manifests":[{"apiVersion":"v1","kind":"Secret","metadata":{"name":["` + secret + `"]}}]}`,
		`{"manifests":["` + secret + `"]}`,
		`{"manifests":[{"apiVersion":"v1","kind":"Secret","stringData":{"a":"` + secret + `"},"metadata":{"generateName":"x"}}]}`,
		`{"manifests":"` + secret + `"}`,
		secret,
	} {
		p := fixture(t, "create")
		p.payload = payload
		_, err := wire.Decode(p.event(t))
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("Decode of %s = %v, want an error that does not quote it", payload, err)
		}
	}
}

func TestDecodeReadsWhatIsOptional(t *testing.T) {
	p := fixture(t, "create")
	for _, name := range []string{"metadata", "originalsource", "resourceversion"} {
		delete(p.properties, "ce-"+name)
	}
	m, err := wire.Decode(p.event(t))
	if err != nil {
		t.Fatal(err)
	}
	spec := m.(*wire.Spec)
	if spec.Generation != 0 || !spec.NoMetadata || spec.Meta.Name != lantern || spec.Meta.Namespace != "quay-7" {
		t.Errorf("Decode = generation %d, bare %v, %s/%s", spec.Generation, spec.NoMetadata, spec.Meta.Namespace, spec.Meta.Name)
	}

	// What metadata says of the identity does not count.
	p.properties["ce-metadata"] = `{"name":"x","uid":"another","generation":9}`
	p.properties["ce-resourceversion"] = "3"
	m, err = wire.Decode(p.event(t))
	if err != nil {
		t.Fatal(err)
	}
	if spec := m.(*wire.Spec); spec.Meta.UID != lantern || spec.Meta.Generation != 3 || spec.Generation != 3 {
		t.Errorf("metadata overrules the extensions: %+v", spec.Meta)
	}
	s := fixture(t, "status")
	s.properties["ce-metadata"] = `{"name":"x","uid":"another"}`
	m, err = wire.Decode(s.event(t))
	if err != nil {
		t.Fatal(err)
	}
	if status := m.(*wire.Status); status.Meta.UID != lantern {
		t.Errorf("metadata overrules the extensions: %+v", status.Meta)
	}
}

// TestContentHash: Encode computes the hash for a source with an identity, and only for that, and
// it is the hash of the data; a value of authoritative other than true means nothing.
func TestContentHash(t *testing.T) {
	spec := *messages(t)["update"].(*wire.Spec)
	for _, identity := range []string{"", memory} {
		spec.SourceIdentity = identity
		e, err := wire.Encode(&spec, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		got, sent := e.Extensions()["contenthash"]
		if want := sum(string(e.Data())); sent != (identity != "") || sent && (got != want || want != hash256) {
			t.Errorf("identity %q: contenthash %v, want %s", identity, got, want)
		}
	}
	if got, err := wire.ContentHash(spec.Bundle); err != nil || got != hash256 {
		t.Errorf("ContentHash = %s, %v; want %s", got, err, hash256)
	}
	p := fixture(t, "authoritative")
	p.properties["ce-authoritative"] = "yes"
	if m, err := wire.Decode(p.event(t)); err != nil || m.(*wire.Spec).Authoritative {
		t.Errorf("authoritative %q is taken for true: %v", "yes", err)
	}
}

// TestDecodeTakesIntegerVersions: in memory, other than over MQTT, the extension may be a number.
func TestDecodeTakesIntegerVersions(t *testing.T) {
	e := fixture(t, "create").event(t)
	e.SetExtension("resourceversion", 7)
	m, err := wire.Decode(e)
	if err != nil {
		t.Fatal(err)
	}
	if got := m.(*wire.Spec).Generation; got != 7 {
		t.Errorf("generation is %d, want 7", got)
	}
}

func TestValidate(t *testing.T) {
	object := func(fields string) string { return `{"apiVersion":"v1","kind":"ConfigMap",` + fields + `}` }
	fine := object(`"metadata":{"name":"a"}`)
	filled := func(size int) string {
		shell := object(`"metadata":{"name":"a"},"data":{"a":""}`)
		return strings.Replace(shell, `"a":""`, `"a":"`+strings.Repeat("x", size-len(shell))+`"`, 1)
	}
	for name, tc := range map[string]struct {
		manifests []string
		want      string
	}{
		"fine":             {[]string{fine, fine}, ""},
		"none":             {nil, "manifests should not be empty"},
		"just fits":        {[]string{filled(workv1.MaxManifestsSize - len(fine)), fine}, ""},
		"a byte too much":  {[]string{filled(workv1.MaxManifestsSize + 1 - len(fine)), fine}, "the size of manifests is 512001 bytes which exceeds the 512000 limit"},
		"generateName":     {[]string{object(`"metadata":{"generateName":"a"}`)}, "manifest 0: generateName must not be set in manifest"},
		"no name":          {[]string{fine, object(`"metadata":{}`)}, "manifest 1: name must be set in manifest"},
		"no metadata":      {[]string{object(`"a":1`)}, "manifest 0: name must be set in manifest"},
		"a List":           {[]string{`{"apiVersion":"v1","kind":"List","items":[` + fine + `]}`}, "manifest 0: a List must not be a manifest: give its items as manifests of their own"},
		"no apiVersion":    {[]string{`{"kind":"a","metadata":{"name":"a"}}`}, "manifest 0: apiVersion must be set in manifest"},
		"name is a number": {[]string{object(`"metadata":{"name":1}`)}, "manifest 0: field metadata.name must not be a number"},
		"every fault at once": {[]string{"1", fine, `"x"`}, "manifest 0: want a Kubernetes object, got a number\n" +
			"manifest 2: want a Kubernetes object, got a string"},
	} {
		t.Run(name, func(t *testing.T) {
			var b wire.Bundle
			for _, m := range tc.manifests {
				b.Manifests = append(b.Manifests, raw(m))
			}
			err := b.Validate()
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("Validate = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestParseEventType(t *testing.T) {
	for text, want := range map[string]wire.EventType{
		"io.open-cluster-management.works.v1alpha1.manifestbundles.spec.create_request": {
			Data: wire.ManifestBundles, Subresource: wire.SubresourceSpec, Action: wire.Create},
		"io.open-cluster-management.works.v1alpha1.manifestbundles.status.resync_response": {
			Data: wire.ManifestBundles, Subresource: wire.SubresourceStatus, Action: wire.ResyncResponse},
		"g.v1.things.spec.delete_request": {
			Data: wire.DataType{Group: "g", Version: "v1", Resource: "things"}, Subresource: wire.SubresourceSpec, Action: wire.Delete},
	} {
		got, err := wire.ParseEventType(text)
		if err != nil || got != want {
			t.Errorf("ParseEventType(%q) = %+v, %v; want %+v", text, got, err, want)
		}
		if got.String() != text {
			t.Errorf("String gives %q, want %q", got, text)
		}
	}
	for _, text := range []string{
		"", "....", "v1.things.spec.create_request", ".v1.things.spec.create_request", "g..things.spec.create_request",
		"g.v1..spec.create_request", "g.v1.things.body.create_request", "g.v1.things.spec.create", "g.v1.things.spec.",
		"g.v1.things.spec.create_request.",
	} {
		if got, err := wire.ParseEventType(text); err == nil {
			t.Errorf("ParseEventType(%q) = %+v, want an error", text, got)
		}
	}
}

// TestTimesOfAStatus: times survive the wire to the microsecond, and what is no time is left out.
func TestTimesOfAStatus(t *testing.T) {
	at := metav1.NewMicroTime(time.Date(2026, 11, 22, 18, 0, 0, 1000, time.UTC))
	status := &wire.Status{UID: "u", Cluster: "c", Source: "s", Agent: "a", Action: wire.Update, Times: wire.Times{Received: at, Ready: at}}
	event, err := wire.Encode(status, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]bool{"2026-11-22T18:00:00.000001Z": true, "soon": false, "1969-12-31T00:00:00Z": false, "9999-12-31T23:59:59-23:59": false} {
		event.SetExtension("readytime", value)
		m, err := wire.Decode(event)
		if err != nil {
			t.Fatalf("%s: %v", value, err)
		}
		got := m.(*wire.Status).Times
		if !got.Received.Equal(&at) || !got.Applied.IsZero() || got.Ready.Equal(&at) != want || !want && !got.Ready.IsZero() {
			t.Errorf("%s: times %+v", value, got)
		}
	}
}
