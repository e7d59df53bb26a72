package direct

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/ctl/fleet"
	"github.com/workwire/workwire/pkg/ctl/wrap"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/pkg/workstate/condition"
	"github.com/workwire/workwire/test/kit"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func status(version wire.Generation, applyError error) *wire.Status {
	return &wire.Status{Generation: version, Status: condition.WorkStatus(condition.Input{Generation: int64(version), Now: metav1.NewTime(now),
		Manifests: []condition.Manifest{{Meta: workv1.ManifestResourceMeta{Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Name: "a"}, ApplyError: applyError}}})}
}

func with(kind string) *wire.Status {
	s := status(versionAt(now), nil)
	s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: kind})
	return s
}

// TestReceive checks what each status of an agent means for a work that is applied or deleted.
func TestReceive(t *testing.T) {
	version := versionAt(now)
	refused := &wire.Status{Generation: version}
	refused.Status = condition.InvalidStatus(refused.Status, refused.Status, int64(version), "", "manifest 0: not JSON", metav1.NewTime(now))
	for name, c := range map[string]struct {
		delete  bool
		status  *wire.Status
		again   bool
		version wire.Generation
		done    bool
		want    string // part of the message and failure
	}{
		"applied":                  {status: status(version, nil), version: version, done: true},
		"not applied":              {status: status(version, errors.New("no")), version: version, want: "NotApplied, ConfigMap a"},
		"refused":                  {status: refused, version: version, want: "InvalidSpec"},
		"before":                   {status: status(version-1, nil), version: version},
		"of a clock that is ahead": {status: status(version+60, nil), again: true, version: version + 61},
		"being deleted":            {status: with(workv1.WorkDeleting), version: version, want: "earlier deletion"},
		"was deleted":              {status: with(workv1.WorkDeleted), again: true, version: version},
		"deleted":                  {delete: true, status: with(workv1.WorkDeleted), version: version, done: true, want: "deleted"},
		"deleting":                 {delete: true, status: with(workv1.WorkDeleting), version: version, want: "Finalizer, ConfigMap a"},
		"not yet deleting":         {delete: true, status: status(version+60, nil), version: version, want: "has not begun"},
	} {
		t.Run(name, func(t *testing.T) {
			goal, err := fleet.ParseGoal("applied")
			kit.NoError(t, err)
			o := newOrder(&workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "web"}}, c.delete, goal, now)
			o.sent(true, nil)
			again := o.receive(c.status, now)
			if again != c.again || o.version != c.version || o.result.Done != c.done || !strings.Contains(o.result.Message+o.result.Failure, c.want) {
				t.Errorf("again %v, version %d, %+v", again, o.version-version, o.result)
			}
		})
	}
}

// TestSends checks that a run does not send without end, and what the broker's answers mean.
func TestSends(t *testing.T) {
	o := newOrder(&workv1.ManifestWork{}, false, fleet.Goal{}, now)
	for o.open() {
		o.sent(true, nil)
		o.receive(status(o.version+1, nil), now)
	}
	if o.sends != maxSends || !strings.Contains(o.result.Failure, "another program") {
		t.Errorf("%d: %+v", o.sends, o.result)
	}
	for want, err := range map[string]error{"no agent subscribes": nil, transport.ErrNotAuthorized.Error(): transport.ErrNotAuthorized} {
		o := newOrder(&workv1.ManifestWork{}, false, fleet.Goal{}, now)
		o.sent(false, err)
		if !strings.Contains(o.result.Failure, want) {
			t.Errorf("%q: %+v", want, o.result)
		}
	}
	if versionAt(now) >= versionAt(now.Add(time.Second)) || versionAt(time.Time{}) != 1 || versionAt(now.AddDate(40, 0, 0)) >= 1<<31 {
		t.Error("versions must grow, begin with 1, and have 31 bits")
	}
}

// TestWorks checks which files are refused, with all faults at once.
func TestWorks(t *testing.T) {
	topics := wire.Topics{SourceEvents: "sources/ops/clusters/+/sourceevents", AgentEvents: "sources/ops/clusters/+/agentevents"}
	of, err := topics.ForSource("ops")
	kit.NoError(t, err)
	const head = "apiVersion: work.open-cluster-management.io/v1\nkind: ManifestWork\n"
	const spec = "spec: {workload: {manifests: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: b}}]}}\n"
	parse := func(text, cluster string) ([]*workv1.ManifestWork, error) {
		manifests, err := wrap.Parse("f.yaml", []byte(text))
		kit.NoError(t, err)
		return Works(manifests, "ops", of, cluster)
	}
	works, err := parse(head+"metadata: {name: web, uid: x, generation: 7}\n"+spec+"---\n"+head+"metadata: {name: two, namespace: c1}\n"+spec, "c1")
	if err != nil || len(works) != 2 || works[0].Namespace != "c1" || works[0].Generation != 0 || works[0].UID != wire.UIDFor("ops", "c1", "web") {
		t.Errorf("%v: %+v", err, works)
	}
	for want, text := range map[string]string{
		"is no ManifestWork: workctl wrap":                            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
		`unknown field "spec.worklod"`:                                head + "metadata: {name: web}\nspec: {worklod: {}}\n",
		"spec.workload.manifests: Required value":                     head + "metadata: {name: web}\nspec: {}\n",
		"is in namespace c2, and -n is c1":                            head + "metadata: {name: web, namespace: c2}\n" + spec,
		"the work c1/web is there twice":                              head + "metadata: {name: web}\n" + spec + "---\n" + head + "metadata: {name: web}\n" + spec,
		"f.yaml, document 1 (line 1): ManifestWork.work.open-cluster": head + "metadata: {name: Web_}\n" + spec,
	} {
		if _, err := parse(text, "c1"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := parse(head+"metadata: {name: web}\n"+spec, ""); err == nil || !strings.Contains(err.Error(), "set metadata.namespace, or -n") {
		t.Error(err)
	}
}

// TestRunsHaveTheirOwnVersions: the next run has a later version, also if it begins at once.
func TestRunsHaveTheirOwnVersions(t *testing.T) {
	at := now.Add(300 * time.Millisecond)
	o := newOrder(&workv1.ManifestWork{}, false, fleet.Goal{}, at)
	if got := untilLater([]*order{o}, at); got != 0 {
		t.Errorf("%s for a work that was not sent", got)
	}
	o.sent(true, nil)
	got := untilLater([]*order{o}, at)
	if next := newOrder(o.work, false, fleet.Goal{}, at.Add(got)); got > time.Second || next.version <= o.version {
		t.Errorf("after %s the version is %d, it was %d", got, next.version, o.version)
	}
	o.resend(o.version + 60)
	if got := untilLater([]*order{o}, at); got != 0 {
		t.Errorf("%s for a version ahead of the clock: the agent's answer says so", got)
	}
}
