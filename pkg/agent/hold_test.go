package agent_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// TestSourceThatLostItsMemory: a source says that it knows none of the works that it sent. Their
// objects stay, and keep their UIDs, until somebody releases them or the source knows them again.
func TestSourceThatLostItsMemory(t *testing.T) {
	for name, c := range map[string]struct{ before, after, reason string }{
		"another identity": {"one", "two", workv1.ReasonSourceIdentityChanged},
		"no identity":      {"", "", workv1.ReasonSourceKnowsTooFew},
	} {
		for _, restart := range []string{"no restart", "restart without state", "restart with state"} {
			t.Run(name+", "+restart, func(t *testing.T) {
				loseMemory(t, c.before, c.after, c.reason, restart)
			})
		}
	}
}

func loseMemory(t *testing.T, before, after, reason, restart string) {
	registry, dir := prometheus.NewRegistry(), ""
	if restart == "restart with state" {
		dir = t.TempDir()
	}
	configure := func(c *agent.Config) { c.StateDir, c.Registerer = dir, registry }
	raw := newWorld(t).rawSource("hub1", configure)
	send := func(identity, name string, uid types.UID, value string) {
		spec := raw.spec(name, uid, 1, configMap(name, value))
		spec.SourceIdentity = identity
		raw.send(spec, nil)
	}
	works := []string{"released", "known", "taken", "deleted"}
	for _, name := range works {
		send(before, name, types.UID(name), "1")
		raw.reported(types.UID(name), 1, workv1.WorkApplied)
		raw.names(name)
	}
	uids := raw.uids(works...)
	if restart != "no restart" {
		raw.stop()
		registry = prometheus.NewRegistry()
		raw.agent(configure)
		wirekit.Next(raw, raw.peer, "the agent asks for specs", func(*wire.SpecResync) bool { return true })
	}

	for _, name := range works {
		raw.disown(types.UID(name), after)
	}
	for range works {
		raw.answered("the deletion is held", func(s *wire.Status) bool {
			c := meta.FindStatusCondition(s.Status.Conditions, workv1.WorkDeletionHeld)
			for _, of := range s.Status.Conditions {
				if of.Reason == "" {
					t.Errorf("the hub's API would refuse %+v", of)
				}
			}
			return c != nil && c.Status == metav1.ConditionTrue && c.Reason == reason && strings.Contains(c.Message, workv1.ReleaseAnnotation)
		})
	}
	for _, name := range works {
		raw.heldFor(name, reason)
	}
	if got := kit.Metric(t, registry, "workwire_agent_works_deletion_held"); got != 4 {
		t.Errorf("the metric counts %v held works", got)
	}

	amw := raw.heldFor("released", reason)
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, workv1.ReleaseAnnotation)
	_, err := raw.amws.Patch(raw.Context(), amw.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	kit.NoError(raw, err)
	raw.reported("released", 0, workv1.WorkDeleted)
	raw.data("released", "")

	// The source knows one again, gets another one restored under a new UID, and deletes the third.
	send(after, "known", "known", "1")
	send(after, "taken", "restored", "2")
	now := metav1.Now()
	raw.send(&wire.Spec{UID: "deleted", Source: "hub1", Cluster: cluster, Generation: 1, Action: wire.Delete, SourceIdentity: after,
		Meta: metav1.ObjectMeta{Name: "deleted", Namespace: cluster, UID: "deleted"}, DeletionTimestamp: &now}, nil)
	raw.reported("deleted", 1, workv1.WorkDeleted)
	raw.data("deleted", "")
	raw.data("taken", "2")
	for _, name := range []string{"known", "taken"} {
		raw.heldFor(name, "")
	}
	if now := raw.uids("known", "taken"); now["known"] != uids["known"] || now["taken"] != uids["taken"] {
		t.Errorf("the objects are %v, were %v", now, uids)
	}
	kit.True(raw, "no work is held", func() bool { return kit.Metric(t, registry, "workwire_agent_works_deletion_held") == 0 })
}

// holdWork has the agent hold work web, uid-1, with the ConfigMap a, whose source has another identity since.
func holdWork(raw *rawSource) *workv1.AppliedManifestWork {
	raw.Helper()
	spec := raw.spec("web", "uid-1", 1, configMap("a", "1"))
	spec.SourceIdentity = "one"
	raw.send(spec, nil)
	raw.reported("uid-1", 1, workv1.WorkApplied)
	raw.names("web")
	raw.disown("uid-1", "two")
	return raw.heldFor("web", workv1.ReasonSourceIdentityChanged)
}

// TestHeldWorksAskOnce: while works are held, a status resync request of their source has the agent
// ask for specs, so that a source that was restarted learns of them. A reply to that does not.
func TestHeldWorksAskOnce(t *testing.T) {
	// Nobody answers the agent's first question, which it is not to repeat while the test counts.
	raw := newWorld(t).rawSource("hub1", func(c *agent.Config) { c.SyncInterval = time.Hour })
	holdWork(raw)
	raw.reported("uid-1", 0, workv1.WorkDeletionHeld)
	ask := func(reply bool, works ...wire.StatusVersion) {
		raw.peer.Publish(raw, raw.topic, &wire.StatusResync{Source: "hub1", Cluster: cluster, SourceIdentity: "two", Hashes: works, Reply: reply}, nil)
	}
	asked := func() (n int) {
		for _, message := range raw.peer.Received() {
			if _, ok := message.(*wire.SpecResync); ok {
				n++
			}
		}
		return n
	}
	before := asked()
	// The agent answers in order: the second status comes after what the first request causes.
	for range 2 {
		ask(true, wire.StatusVersion{UID: "uid-1", Hash: wire.NoStatus})
		raw.reported("uid-1", 0, workv1.WorkDeletionHeld)
	}
	if n := asked(); n != before {
		t.Errorf("the agent has asked %d times because of replies", n-before)
	}
	ask(false, wire.StatusVersion{UID: "other", Hash: "1"})
	kit.True(raw, "the agent asks", func() bool { return asked() > before })
	if versions := raw.listed(); !slices.Contains(versions, wire.SpecVersion{UID: "uid-1"}) {
		t.Errorf("the agent lists %v, without the held work", versions)
	}
	// The request for the status of a work that the source does not know is no sign that it does.
	raw.heldFor("web", workv1.ReasonSourceIdentityChanged)
}

// TestHeldWorksFlap: the objects of a held work are restored with backoff, as those of any other, found by test/sim.
func TestHeldWorksFlap(t *testing.T) {
	raw := newWorld(t).rawSource("hub1")
	holdWork(raw)
	kit.Run(raw, "rival", func(ctx context.Context) error {
		return raw.fight(ctx, "a", func(ctx context.Context) error {
			_, err := raw.cluster.CoreV1().ConfigMaps(raw.namespace).Patch(ctx, "a", types.MergePatchType, []byte(`{"data":{"k":"theirs"}}`), metav1.PatchOptions{FieldManager: "rival"})
			return err
		})
	})
	raw.answered("the object flaps", func(s *wire.Status) bool {
		c := meta.FindStatusCondition(s.Status.Conditions, workv1.WorkApplied)
		return c != nil && c.Reason == workv1.ReasonFlapping
	})
}

// TestDeletedAppliedManifestWorkReleases: deleting the AppliedManifestWork of a held work releases
// it, too.
func TestDeletedAppliedManifestWorkReleases(t *testing.T) {
	raw := newWorld(t).rawSource("hub1")
	amw := holdWork(raw)
	kit.NoError(raw, raw.amws.Delete(raw.Context(), amw.Name, metav1.DeleteOptions{}))
	raw.reported("uid-1", 0, workv1.WorkDeleted)
	raw.data("a", "")
	raw.noneApplied()
}

// TestRecordedDeletionsWithoutMetadata: a source of Open Cluster Management may leave out the metadata of deletions. However many it records,
// they are carried out at once.
func TestRecordedDeletionsWithoutMetadata(t *testing.T) {
	raw := newWorld(t).rawSource("hub1")
	uids := []types.UID{"uid-0", "uid-1", "uid-2", "uid-3"}
	for i, uid := range uids {
		raw.send(raw.spec(fmt.Sprint("web", i), uid, 1, configMap(fmt.Sprint("a", i), "1")), nil)
		raw.reported(uid, 1, workv1.WorkApplied)
	}
	began := time.Now()
	for _, uid := range uids {
		raw.delete(uid, 2)
		raw.reported(uid, 0, workv1.WorkDeleted)
	}
	raw.noneApplied()
	t.Logf("%d deletions took %s", len(uids), time.Since(began).Round(time.Millisecond))
}

// disown publishes that the source does not know a work.
func (r *rawSource) disown(uid types.UID, identity string) {
	r.Helper()
	now := metav1.Now()
	r.send(&wire.Spec{UID: uid, Source: "hub1", Cluster: cluster, Generation: 1, Action: wire.ResyncResponse, SourceIdentity: identity,
		NoMetadata: true, DeletionTimestamp: &now}, nil)
}

// heldFor waits until the AppliedManifestWork of a work says that its deletion is held for reason,
// or that it is not held if reason is empty.
func (w *fixture) heldFor(work, reason string) *workv1.AppliedManifestWork {
	w.Helper()
	return w.applied(work, fmt.Sprintf("is held for %q", reason), func(amw *workv1.AppliedManifestWork) error {
		if got := amw.Annotations[workv1.HeldAnnotation]; got != reason {
			return fmt.Errorf("it is held for %q", got)
		}
		return nil
	})
}

// uids returns the UIDs of ConfigMaps by name.
func (w *fixture) uids(names ...string) map[string]types.UID {
	w.Helper()
	all := map[string]types.UID{}
	for _, name := range names {
		object, err := w.cluster.CoreV1().ConfigMaps(w.namespace).Get(w.Context(), name, metav1.GetOptions{})
		kit.NoError(w, err)
		all[name] = object.UID
	}
	return all
}
