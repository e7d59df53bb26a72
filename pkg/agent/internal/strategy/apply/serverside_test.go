package apply_test

import (
	"strings"
	"testing"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/strategytest"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

func applyConfig(manager string, force bool) func(*workv1.ManifestWorkSpec) {
	return strategytest.Configured(strategytest.ServerSide(&workv1.ServerSideApplyConfig{FieldManager: manager, Force: force}))
}

func data(text string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"NS","name":"c"},"data":` + text + `}`
}

func TestServerSideApply(t *testing.T) {
	s := newSpoke(t)
	manifests := s.parse(applyConfig("", false), data(`{"a":"1","b":"2"}`))
	ref := manifests[0].Ref
	if outcome := s.applied(manifests, "1× PATCH 201")[0]; outcome.Action != apply.Created {
		t.Errorf("got %s", outcome.Action)
	}
	live := s.get(ref)
	if got := managers(live); got != "work-agent Apply" || len(live.GetOwnerReferences()) != 1 || live.GetLabels()[object.AgentLabel] != agentHash {
		t.Errorf("managers %s, metadata %v", got, live.Object["metadata"])
	}
	s.applied(manifests, "")

	// A field that is dropped goes, one of others stays.
	s.patch(ref, "other", `{"data":{"theirs":"x"}}`)
	s.applied(manifests, "")
	manifests = s.parse(applyConfig("", false), data(`{"a":"1"}`))
	if outcome := s.applied(manifests, "1× PATCH 200")[0]; outcome.Action != apply.Updated {
		t.Errorf("got %s", outcome.Action)
	}
	s.wantData(ref, `{"a":"1","theirs":"x"}`)

	// A field that another has taken is a conflict, until it is forced.
	s.patch(ref, "other", `{"data":{"a":"theirs"}}`)
	outcome := s.apply(manifests)[0]
	if got := strategytest.ErrorText(outcome.Err); got != `Apply failed with 1 conflict: conflict with "other" using v1: .data.a` {
		t.Errorf("got %q", got)
	}
	s.wantRequests("1× PATCH 409")
	s.applied(s.parse(applyConfig("", true), data(`{"a":"1"}`)), "1× PATCH 200")
	s.wantData(ref, `{"a":"1","theirs":"x"}`)

	// Another manager shares the object, in the same work.
	first := s.digests[ref]
	shared := s.parse(applyConfig("work-agent-2", false), data(`{"c":"3"}`))
	s.applied(shared, "1× PATCH 200")
	s.applied(shared, "")
	s.last, s.digests[ref] = map[object.Ref]*strategy.Manifest{}, first+","+s.digests[ref]
	s.applied(s.parse(applyConfig("", false), data(`{"a":"1"}`)), "")
	s.wantData(ref, `{"a":"1","c":"3","theirs":"x"}`)

	// After a restart the digest says that all is well.
	s.restart()
	s.see(ref)
	s.applied(manifests, "")

	orphaned := s.parse(func(w *workv1.ManifestWorkSpec) { applyConfig("", false)(w); strategytest.Orphan(w) }, data(`{"a":"1"}`))
	s.applied(orphaned, "2× PATCH 200") // the reference is shared with work-agent-2
	if refs := s.get(ref).GetOwnerReferences(); len(refs) != 0 {
		t.Errorf("owners %v", refs)
	}
}

func TestServerSideResourceVersion(t *testing.T) {
	s := newSpoke(t)
	text := strings.Replace(data(`{"a":"1"}`), `"name":"c"`, `"name":"c","resourceVersion":"5"`, 1)
	outcome := s.apply(s.parse(applyConfig("", false), text))[0]
	if got := strategytest.ErrorText(outcome.Err); got != "resourceVersion should not be set on objects to be created" {
		t.Errorf("got %q", got)
	}
	s.requests.take()
	s.applied(s.parse(nil, data(`{"a":"1"}`)), "1× POST 201")
	s.applied(s.parse(nil, text), "1× PUT 200") // Update does not mind it
	outcome = s.apply(s.parse(applyConfig("", false), text))[0]
	if outcome.Err == nil || !strings.Contains(outcome.Err.Error(), "the object has been modified") {
		t.Errorf("got %v", outcome.Err)
	}
}
