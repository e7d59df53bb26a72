package wire_test

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// FuzzDecode: any event either decodes to a message that survives a round trip, or gives a *DecodeError.
func FuzzDecode(f *testing.F) {
	// Go orders maps at random; the seeds are named in a stable order.
	for _, name := range names(f) {
		p := fixture(f, name)
		f.Add(p.properties["ce-type"], p.properties["ce-source"], p.properties["ce-resourceid"], p.properties["ce-resourceversion"],
			p.properties["ce-clustername"], p.properties["ce-originalsource"], p.properties["ce-metadata"],
			p.properties["ce-deletiontimestamp"], p.properties["ce-sequenceid"], p.properties["ce-sourceidentity"],
			p.properties["ce-contenthash"], p.properties["ce-authoritative"], p.properties["ce-session"],
			p.properties["ce-receivedtime"], []byte(p.payload))
	}
	f.Add("io.open-cluster-management.works.v1alpha1.manifestbundles.status.update_request", "quay-7-agent", lantern, "2", "quay-7", "harbor",
		"", "", "2690781301568442368", "", "", "", "3f1e4f0e-0000-4000-8000-00000000cafe", "2026-11-22T18:00:00.000001Z", []byte(`{"conditions":[]}`))
	f.Add("io.open-cluster-management.works.v1alpha1.manifestbundles.status.update_request", "quay-7-agent", lantern, "2", "quay-7", "harbor",
		"", "", "2690781301568442368", "", "", "", "", "9999-12-31T23:59:59-23:59", []byte(`{"conditions":[]}`))
	for _, outside := range []string{"9999-12-31T23:59:59-01:00", "0000-01-01T00:00:00+01:00"} {
		meta, condition := `{"name":"lantern","creationTimestamp":"`+outside+`"}`, `{"conditions":[{"type":"A","lastTransitionTime":"`+outside+`"}]}`
		for _, data := range []string{condition, `{"resourceStatus":[` + condition + `]}`} {
			f.Add("io.open-cluster-management.works.v1alpha1.manifestbundles.status.update_request", "quay-7-agent", lantern, "2", "quay-7", "harbor",
				"", "", "2690781301568442368", "", "", "", "", "", []byte(data))
		}
		f.Add("io.open-cluster-management.works.v1alpha1.manifestbundles.spec.update_request", "harbor", lantern, "2", "quay-7", "",
			meta, "", "", "", "", "", "", "", []byte(`{"manifests":[`+lampDim+`]}`))
	}
	f.Add("dev.workwire.v1alpha1.sources.spec.update_request", "harbor", "", "", "", "", "", "", "", "", "", "", "", "",
		[]byte(`{"instance":"0b1e2f3a-0000-4000-8000-000000000001","program":"host \u001b[31mquay","since":"2026-11-22T18:00:00Z","heard":["a"]}`))
	f.Add("dev.workwire.v1alpha1.dryruns.spec.create_request", "harbor", "0b1e2f3a", "", "quay-7", "", "", "", "", "", "", "", "", "",
		[]byte(`{"work":"web","bundle":{"manifests":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}]}}`))
	f.Add("dev.workwire.v1alpha1.dryruns.status.create_request", "quay-7-agent", "0b1e2f3a", "2", "quay-7", "harbor", "", "", "", "", "", "", "", "",
		[]byte(`{"objects":[{"kind":"ConfigMap","name":"a","result":"Changed","fields":[{"path":"data.k","from":"\"1\"","to":"\"2\""}]}]}`))
	f.Add("dev.workwire.v1alpha1.deltas.status.update_request", "quay-7-agent", lantern, "2", "quay-7", "harbor", "", "", "2690781301568442368",
		"", "", "", "3f1e4f0e", "", []byte(`{"base":"b","parts":[{"count":3},{"text":"False"}]}`))
	f.Fuzz(func(t *testing.T, kind, source, uid, version, cluster, original, metadata, deleted, sequence, identity, hash, authoritative, session, at string, data []byte) {
		e := cloudevents.New()
		e.SetID("1")
		e.SetType(kind)
		e.SetSource(source)
		for name, value := range map[string]string{"resourceid": uid, "resourceversion": version, "clustername": cluster,
			"originalsource": original, "metadata": metadata, "deletiontimestamp": deleted, "sequenceid": sequence,
			"sourceidentity": identity, "contenthash": hash, "authoritative": authoritative, "session": session,
			"receivedtime": at, "appliedtime": at, "readytime": at} {
			if value != "" {
				e.SetExtension(name, value)
			}
		}
		_ = e.SetData("application/json", data)
		m, err := wire.Decode(e)
		if err != nil {
			var failure *wire.DecodeError
			if !errors.As(err, &failure) {
				t.Fatalf("Decode fails with %T, want *DecodeError", err)
			}
			if s := failure.Spec; s != nil && (s.UID == "" || s.Source == "" || s.Cluster == "" || s.Bundle != nil) {
				t.Fatalf("the error names a work without identity or with a spec: %+v", s)
			}
			return
		}
		if s, ok := m.(*wire.Spec); ok && s.IsDeletion() == (s.Bundle != nil) {
			t.Fatalf("a spec that deletes %v and has manifests %v", s.IsDeletion(), s.Bundle != nil)
		}
		again, err := wire.Encode(m, time.Now())
		if err != nil {
			if strings.Contains(err.Error(), "are required") || strings.Contains(err.Error(), "is required") {
				return // a status without an agent, for one, can be read but not written
			}
			t.Fatalf("Encode of what was decoded: %v", err)
		}
		got, err := wire.Decode(again)
		if err != nil {
			t.Fatalf("Decode of what was encoded: %v", err)
		}
		// Times have seconds in JSON, and an absent list is an empty one.
		if s, ok := m.(*wire.Status); ok && s.Hash == "" {
			s.Hash = got.(*wire.Status).Hash
		}
		if s, ok := m.(*wire.Spec); ok && s.ContentHash == "" {
			s.ContentHash = got.(*wire.Spec).ContentHash
		}
		a, _ := json.Marshal(m)
		b, _ := json.Marshal(got)
		if diff := cmp.Diff(plain(a), plain(b)); diff != "" {
			t.Fatalf("differs after a round trip (-want +got):\n%s", diff)
		}
	})
}

// plain makes null, empty lists and empty objects of JSON the same.
func plain(data []byte) any {
	var v any
	_ = json.Unmarshal(data, &v)
	return prune(v)
}

func prune(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if v[key] = prune(value); v[key] == nil {
				delete(v, key)
			}
		}
		if len(v) == 0 {
			return nil
		}
	case []any:
		if len(v) == 0 {
			return nil
		}
		for i := range v {
			v[i] = prune(v[i])
		}
	}
	return v
}

// FuzzParseEventType: what parses says itself again.
func FuzzParseEventType(f *testing.F) {
	for _, name := range names(f) {
		f.Add(fixture(f, name).properties["ce-type"])
	}
	f.Add("g.v1.things.spec.create_request")
	f.Add("....")
	f.Fuzz(func(t *testing.T, text string) {
		kind, err := wire.ParseEventType(text)
		if err == nil && kind.String() != text {
			t.Fatalf("ParseEventType(%q) says %q", text, kind)
		}
	})
}

var topicName = regexp.MustCompile(`^[a-z0-9/-]+$`)

// FuzzTopics: patterns that are taken give topics without wildcards that name the source and the
// cluster they were made for.
func FuzzTopics(f *testing.F) {
	for _, topics := range []wire.Topics{oneSource, everySource} {
		f.Add(topics.SourceEvents, topics.AgentEvents, topics.SourceBroadcast, topics.AgentBroadcast, "harbor", "quay-7")
	}
	f.Add("$share/g/"+oneSource.SourceEvents, "$share/g/"+oneSource.AgentEvents, "", "$share/g/clusters/+/agentbroadcast", "harbor", "quay-7")
	f.Fuzz(func(t *testing.T, sourceEvents, agentEvents, sourceBroadcast, agentBroadcast, source, cluster string) {
		topics := wire.Topics{SourceEvents: sourceEvents, AgentEvents: agentEvents, SourceBroadcast: sourceBroadcast, AgentBroadcast: agentBroadcast}
		valid := topics.Validate() == nil
		if agent, err := topics.ForAgent(wire.ClusterName(cluster)); err == nil {
			if !valid {
				t.Fatalf("ForAgent takes %+v, Validate does not", topics)
			}
			if topic, err := agent.Events(wire.SourceID(source)); err == nil {
				from, to, ok := wire.TopicSender(topic)
				if !topicName.MatchString(topic) || !ok || string(from) != source || string(to) != cluster {
					t.Fatalf("Events(%q) of cluster %q is %q", source, cluster, topic)
				}
			}
			if topic, ok := agent.Broadcast(); ok && !topicName.MatchString(topic) {
				t.Fatalf("Broadcast of cluster %q is %q", cluster, topic)
			}
		}
		if hub, err := topics.ForSource(wire.SourceID(source)); err == nil {
			if !valid {
				t.Fatalf("ForSource takes %+v, Validate does not", topics)
			}
			if topic, err := hub.Specs(wire.ClusterName(cluster)); err == nil {
				from, to, ok := wire.TopicSender(topic)
				if !topicName.MatchString(topic) || !ok || string(from) != source || string(to) != cluster {
					t.Fatalf("Specs(%q) of source %q is %q", cluster, source, topic)
				}
			}
		}
		if from, to, ok := wire.TopicSender(sourceEvents); ok && !topicName.MatchString(string(from)+"/"+string(to)) {
			t.Fatalf("SenderOf(%q) = %q, %q", sourceEvents, from, to)
		}
	})
}

// FuzzManifest: a manifest that is taken has a kind, an apiVersion and a name.
func FuzzManifest(f *testing.F) {
	for _, text := range []string{lampDim, beam, "null", "7", `{"kind":1}`, `{"apiVersion":"v1","kind":"a","metadata":{"generateName":"b"}}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b := wire.Bundle{Manifests: []workv1.Manifest{raw(string(data))}}
		if b.Validate() != nil {
			return
		}
		var object struct {
			APIVersion, Kind string
			Metadata         struct{ Name, GenerateName string }
		}
		if err := json.Unmarshal(data, &object); err != nil {
			t.Fatalf("Validate takes what is no object: %v", err)
		}
		if object.APIVersion == "" || object.Kind == "" || object.Metadata.Name == "" || object.Metadata.GenerateName != "" {
			t.Fatalf("Validate takes %+v", object)
		}
	})
}
