package agent_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/wirekit"
)

func orphan() *workv1.DeleteOption {
	return &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
}

// orphaned waits until a ConfigMap exists without an owner.
func (w *fixture) orphaned(name string) {
	w.Helper()
	kit.Eventually(w, name+" is nobody's", func() error {
		object, err := w.cluster.CoreV1().ConfigMaps(w.namespace).Get(w.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(object.OwnerReferences) > 0 || object.DeletionTimestamp != nil {
			return fmt.Errorf("owners %v, deleted at %v", object.OwnerReferences, object.DeletionTimestamp)
		}
		return nil
	})
}

// The object of a manifest is kept if one update both removes and orphans it, also if the agent may not watch objects of its type.
func TestOrphaningAndRemovingInOneUpdate(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]func(w *fixture) *workv1.DeleteOption{
		"Orphan": func(*fixture) *workv1.DeleteOption { return orphan() },
		"SelectivelyOrphan": func(w *fixture) *workv1.DeleteOption {
			return &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeSelectivelyOrphan,
				SelectivelyOrphan: &workv1.SelectivelyOrphan{OrphaningRules: []workv1.OrphaningRule{
					{Resource: "configmaps", Namespace: w.namespace, Name: "a"},
				}}}
		},
		"SelectivelyOrphan, by kind": func(w *fixture) *workv1.DeleteOption {
			return &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeSelectivelyOrphan,
				SelectivelyOrphan: &workv1.SelectivelyOrphan{OrphaningRules: []workv1.OrphaningRule{
					{Resource: "ConfigMap", Namespace: w.namespace, Name: "a"},
				}}}
		},
	} {
		for _, watched := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, watched=%t", name, watched), func(t *testing.T) {
				w := newWorld(t)
				works := w.source("hub1")
				if watched {
					w.agent()
				} else {
					w.restrictedAgent("get", "create", "update", "patch", "delete")
				}
				w.deploy(works, "web", configMap("a", "1"), configMap("b", "1"))
				w.Change(works, "web", func(work *workv1.ManifestWork) {
					work.Spec = w.work("", configMap("b", "2")).Spec
					work.Spec.DeleteOption = option(w)
				})
				w.data("b", "2")
				w.orphaned("a")
				w.remove(works, "web")
				w.orphaned("a")
				w.noneApplied()
			})
		}
	}
}

// The objects of a work stay if it is deleted right after an update that orphans them, even if the
// agent was not connected.
func TestOrphaningAndDeletingAtOnce(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]bool{"queued by the broker": false, "lost and asked for again": true} {
		t.Run(name, func(t *testing.T) {
			w, works := start(t)
			w.deploy(works, "web", configMap("a", "1"))
			observer := wirekit.Connect(w, w.Memory.Client("observer"), "sources/hub1/clusters/+/sourceevents")
			w.Memory.Cut(cluster + "-agent")
			if forget {
				w.Memory.Forget(cluster + "-agent")
			}
			w.Change(works, "web", func(work *workv1.ManifestWork) { work.Spec.DeleteOption = orphan() })
			w.Delete(works, "web")
			wirekit.Next(w, observer, "the source publishes the deletion", (*wire.Spec).IsDeletion)
			w.Memory.Restore(cluster + "-agent")
			w.Gone(works, "web")
			w.orphaned("a")
			w.noneApplied()
		})
	}
}

// TestWhatStaysCannotBeNoted: the API server refuses what is noted of the objects that stay, since others have filled the annotations of the
// AppliedManifestWork. That is logged, and holds up no deletion.
func TestWhatStaysCannotBeNoted(t *testing.T) {
	w := newWorld(t)
	works, log := w.source("hub1"), &kit.Log{}
	w.agent(func(c *agent.Config) { c.Logger = log.Logger() })
	work := w.work("web", configMap("a", "1"))
	work.Spec.DeleteOption = orphan()
	w.Create(works, work)
	amw := w.names("web", "a")
	const most = 256 << 10 // of all annotations together
	size := 0
	for key, value := range amw.Annotations {
		size += len(key) + len(value)
	}
	fill := fmt.Sprintf(`{"metadata":{"annotations":{"fill":%q}}}`, strings.Repeat("x", most-size-len("fill")))
	_, err := w.amws.Patch(t.Context(), amw.Name, types.MergePatchType, []byte(fill), metav1.PatchOptions{})
	kit.NoError(t, err)
	w.remove(works, "web")
	w.orphaned("a")
	w.noneApplied()
	if lines := log.Lines("which objects stay cannot be noted"); len(lines) != 1 {
		t.Errorf("%d lines say that it cannot be noted: %s", len(lines), log)
	}
}

// TestCompletedWorkIsOrphaned: a change of deleteOption takes effect on a complete work.
func TestCompletedWorkIsOrphaned(t *testing.T) {
	w, works := start(t)
	w.Create(works, w.completing("web", "true", configMap("a", "1")))
	w.Is(works, "web", "Complete=True")
	w.Change(works, "web", func(work *workv1.ManifestWork) { work.Spec.DeleteOption = orphan() })
	w.remove(works, "web")
	w.orphaned("a")
}

// With a kind that is not served, the AppliedManifestWork is updated all the same, and Deleted is
// not reported while objects remain.
func TestUnknownKindDoesNotFreezeTheRecord(t *testing.T) {
	w, works := start(t)
	unknown := "{apiVersion: nowhere.workwire.dev/v1, kind: Thing, metadata: {name: t, namespace: NAMESPACE}}"
	w.Create(works, w.work("web", unknown, configMap("a", "1"), configMap("b", "1")))
	w.manifestSays(works, "web", 0, `the server doesn't have a resource type "Thing"`)
	w.data("b", "1")
	w.change(works, "web", unknown, configMap("a", "1"), configMap("c", "1"))
	w.data("b", "")
	w.data("c", "1")
	w.names("web", "a", "c")
	w.remove(works, "web")
	for _, name := range []string{"a", "c"} {
		if _, err := w.cluster.CoreV1().ConfigMaps(w.namespace).Get(w.Context(), name, metav1.GetOptions{}); err == nil {
			t.Errorf("the work is gone and ConfigMap %s is not", name)
		}
	}
}

// TestLabelsReachTheAppliedManifestWork: so does a label that is added later.
func TestLabelsReachTheAppliedManifestWork(t *testing.T) {
	w, works := start(t)
	w.deploy(works, "web", configMap("a", "1"))
	w.Change(works, "web", func(work *workv1.ManifestWork) { work.Labels = map[string]string{"tier": "gold"} })
	w.applied("web", "has the label", func(amw *workv1.AppliedManifestWork) error {
		if amw.Labels["tier"] != "gold" {
			return fmt.Errorf("it has %v", amw.Labels)
		}
		return nil
	})
}

// TestInvalidWorkName: a work whose name cannot be part of the name of an AppliedManifestWork gets
// a condition. Deleting it works.
func TestInvalidWorkName(t *testing.T) {
	t.Parallel()
	for what, name := range map[string]string{"too long": strings.Repeat("x", 200), "no name": "A_B"} {
		t.Run(what, func(t *testing.T) {
			raw := newWorld(t).rawSource("hub1")
			raw.send(raw.spec(name, "uid-1", 1, configMap("a", "1")), nil)
			raw.answered("it is not applied", func(s *wire.Status) bool {
				if len(s.Status.ResourceStatus.Manifests) == 0 {
					return false
				}
				c := meta.FindStatusCondition(s.Status.ResourceStatus.Manifests[0].Conditions, workv1.ManifestApplied)
				return meta.IsStatusConditionFalse(s.Status.Conditions, workv1.WorkApplied) && c != nil &&
					c.Reason == workv1.ReasonAppliedManifestFailed && strings.Contains(c.Message, "188 characters")
			})
			raw.delete("uid-1", 1)
			raw.reported("uid-1", 1, workv1.WorkDeleted)
		})
	}
}

// TestOrphanOfAnAgentWithoutTheSpec: objects that were applied, and that a later spec leaves and only reads, or that it could not apply, since their
// manifest is invalid, refused or waits, stay when an agent that has started without state is told to delete the work. It does not touch what it only read and does not own.
func TestOrphanOfAnAgentWithoutTheSpec(t *testing.T) {
	w := newWorld(t)
	raw := w.rawSource("hub1")
	const immutable = "{immutable: true, "
	raw.send(raw.spec("web", "uid-1", 1, configMap("a", "1"), configMap("b", "1"), configMap("c", "1"), configMap("d", "1"), immutable+configMap("e", "1")[1:], configMap("f", "1")), nil)
	raw.reported("uid-1", 1, workv1.WorkApplied)
	client := w.cluster.CoreV1().ConfigMaps(w.namespace)
	foreign, err := client.Get(t.Context(), "a", metav1.GetOptions{})
	kit.NoError(t, err)
	foreign.ObjectMeta = metav1.ObjectMeta{Name: "foreign", Namespace: w.namespace, Labels: foreign.Labels}
	_, err = client.Create(t.Context(), foreign, metav1.CreateOptions{})
	kit.NoError(t, err)
	reads := raw.spec("web", "uid-1", 2, configMap("a", "1"), configMap("b", "1"), configMap("c", "2"), configMap("d", "1"), configMap("foreign", "1"),
		immutable+configMap("e", "2")[1:], inWave(1, configMap("f", "2")))
	option := func(name string, strategy workv1.UpdateStrategyType, rules ...workv1.ConditionRule) {
		id := workv1.ResourceIdentifier{Resource: "configmaps", Namespace: w.namespace, Name: name}
		reads.Bundle.ManifestConfigs = append(reads.Bundle.ManifestConfigs,
			workv1.ManifestConfigOption{ResourceIdentifier: id, UpdateStrategy: &workv1.UpdateStrategy{Type: strategy}, ConditionRules: rules})
		if reads.Bundle.DeleteOption == nil {
			reads.Bundle.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeSelectivelyOrphan, SelectivelyOrphan: &workv1.SelectivelyOrphan{}}
		}
		rule := workv1.OrphaningRule{Resource: id.Resource, Namespace: id.Namespace, Name: id.Name}
		reads.Bundle.DeleteOption.SelectivelyOrphan.OrphaningRules = append(reads.Bundle.DeleteOption.SelectivelyOrphan.OrphaningRules, rule)
	}
	invalid := workv1.ConditionRule{Type: workv1.CelConditionExpressionsType, Condition: workv1.WorkApplied, CelExpressions: []string{"true"}} // which the agent sets itself
	option("a", workv1.UpdateStrategyTypeReadOnly)
	option("c", workv1.UpdateStrategyTypeUpdate, invalid)
	option("d", workv1.UpdateStrategyTypeReadOnly, invalid)
	option("foreign", workv1.UpdateStrategyTypeReadOnly)
	option("e", workv1.UpdateStrategyTypeUpdate)
	option("f", workv1.UpdateStrategyTypeUpdate)
	raw.send(reads, nil)
	w.applied("web", "says what stays", func(amw *workv1.AppliedManifestWork) error {
		if kept := amw.Annotations["workwire.dev/kept-resources"]; !strings.HasSuffix(kept, `["a","c","d","e","f","foreign"]}}`) {
			return fmt.Errorf("it lists %s", kept)
		}
		return nil
	})
	raw.stop()
	raw.agent()
	wirekit.Next(raw, raw.peer, "the agent asks for specs", func(*wire.SpecResync) bool { return true })
	raw.delete("uid-1", 3)
	raw.reported("uid-1", 0, workv1.WorkDeleted)
	w.data("b", "")
	for _, name := range []string{"a", "c", "d", "e", "f"} {
		if kept, err := client.Get(t.Context(), name, metav1.GetOptions{}); err != nil || len(kept.OwnerReferences) > 0 {
			t.Errorf("%s, which was to stay, has the owners %v: %v", name, kept.OwnerReferences, err)
		}
	}
	if kept, err := client.Get(t.Context(), "foreign", metav1.GetOptions{}); err != nil || !maps.Equal(kept.Labels, foreign.Labels) {
		t.Errorf("the object that the work only read has the labels %v: %v", kept.Labels, err)
	}
}

// TestOrphanOfAnAgentKilledWhileItDeletes: an object that was to stay, and whose owner reference could not be removed until the agent was
// killed, stays also if the agent then knows the work from its AppliedManifestWork alone.
func TestOrphanOfAnAgentKilledWhileItDeletes(t *testing.T) {
	w := newWorld(t)
	raw := w.rawSource("hub1")
	raw.send(raw.spec("web", "uid-1", 1, configMap("a", "1")), nil)
	raw.reported("uid-1", 1, workv1.WorkApplied)
	tried, goOn := make(chan struct{}, 100), make(chan struct{})
	raw.requests.Fail(func(r kit.Request) error {
		if r.Name != "a" || r.Resource != "configmaps" || r.Verb == "get" {
			return nil
		}
		tried <- struct{}{}
		<-goOn
		return errors.New("nobody may write it")
	})
	keeps := raw.spec("web", "uid-1", 2, configMap("a", "1"))
	keeps.Bundle.DeleteOption = orphan()
	raw.send(keeps, nil)
	kit.Receive(t, "the object is to be released", tried)
	raw.delete("uid-1", 3)
	raw.send(raw.spec("later", "uid-2", 1, configMap("b", "1")), nil)
	raw.reported("uid-2", 1, workv1.WorkApplied) // so the agent holds the deletion
	close(goOn)
	kit.Receive(t, "the object is to be released again", tried)
	w.applied("web", "is being deleted", func(amw *workv1.AppliedManifestWork) error {
		if amw.DeletionTimestamp == nil {
			return errors.New("it is not")
		}
		return nil
	})
	raw.stop()
	raw.requests.Fail(nil)
	raw.agent()
	wirekit.Next(raw, raw.peer, "the agent asks for specs", func(*wire.SpecResync) bool { return true })
	raw.delete("uid-1", 3)
	raw.reported("uid-1", 0, workv1.WorkDeleted)
	w.orphaned("a")
}

// TestDeletingIsReportedOnceItIsNotedWhatStays: a source does not send the last spec again once an agent has reported Deleting. So one that cannot
// write down what stays does not report it, and if it is killed then, it deletes by the spec that it is sent again.
func TestDeletingIsReportedOnceItIsNotedWhatStays(t *testing.T) {
	w := newWorld(t)
	raw := w.rawSource("hub1")
	raw.send(raw.spec("web", "uid-1", 1, configMap("a", "1")), nil)
	raw.reported("uid-1", 1, workv1.WorkApplied)
	amw := w.names("web", "a").Name
	tried, goOn := make(chan struct{}, 100), make(chan struct{}, 1)
	raw.requests.Fail(func(r kit.Request) error {
		if r.Name != amw && r.Name != "a" || r.Verb == "get" {
			return nil
		}
		if r.Resource != "appliedmanifestworks/status" {
			tried <- struct{}{}
			<-goOn
		}
		return errors.New("nobody may write it")
	})
	keeps := raw.spec("web", "uid-1", 2, configMap("a", "1"))
	keeps.Bundle.DeleteOption = orphan()
	raw.send(keeps, nil)
	kit.Receive(t, "the object is to be released", tried)
	raw.delete("uid-1", 3)
	raw.send(raw.spec("later", "uid-2", 1, configMap("b", "1")), nil)
	raw.reported("uid-2", 1, workv1.WorkApplied) // so the agent holds the deletion
	goOn <- struct{}{}
	kit.Receive(t, "what stays is to be noted", tried)
	raw.send(raw.spec("last", "uid-3", 1, configMap("c", "1")), nil)
	raw.reported("uid-3", 1, workv1.WorkApplied) // after all that was reported before
	for _, message := range raw.peer.Received() {
		if s, ok := message.(*wire.Status); ok && s.UID == "uid-1" && s.Meta.DeletionTimestamp != nil {
			t.Errorf("the agent has reported: %+v", s.Status.Conditions)
		}
	}
	close(goOn)
	raw.stop()
	raw.requests.Fail(nil)
	raw.agent()
	wirekit.Next(raw, raw.peer, "the agent asks for specs", func(*wire.SpecResync) bool { return true })
	raw.send(keeps, nil)
	raw.delete("uid-1", 3)
	raw.reported("uid-1", 3, workv1.WorkDeleted)
	w.orphaned("a")
}
