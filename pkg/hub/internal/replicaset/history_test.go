package replicaset

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/revisions"
	"github.com/workwire/workwire/test/kit"
)

// awaitRevisions waits until the set is annotated with the last of these revisions, which are stored:
// "NUMBER:VALUE" of the template.
func (e *env) awaitRevisions(want string) {
	e.t.Helper()
	kit.Eventually(e.t, "the revisions are "+want, func() error {
		set, err := e.getSet("set")
		if err != nil {
			return err
		}
		stored, err := revisions.List(e.t.Context(), e.client, set)
		if err != nil {
			return err
		}
		var texts []string
		for _, r := range stored {
			value := "?"
			for _, candidate := range []string{"1", "2", "3", "4", "5"} {
				if template := template(candidate); sameSpec(&r.Template, &template) {
					value = candidate
				}
			}
			texts = append(texts, fmt.Sprintf("%d:%s", r.Revision, value))
		}
		got := strings.Join(texts, " ")
		if last := want[strings.LastIndex(want, " ")+1:]; !strings.HasPrefix(last, set.Annotations[workwirev1alpha1.RevisionAnnotationKey]+":") {
			return fmt.Errorf("the set is annotated with %v", set.Annotations)
		}
		if got != want {
			return fmt.Errorf("they are %s", got)
		}
		return nil
	})
}

func (e *env) template(value string) {
	e.t.Helper()
	e.updateSet("set", func(set *workv1alpha1.ManifestWorkReplicaSet) { set.Spec.ManifestWorkTemplate = template(value) })
}

// TestHistory: templates are stored, bounded, numbered again by an undo, and cost nothing while the
// template stays.
func TestHistory(t *testing.T) {
	e := newEnv(t, 1)
	r := e.start()
	e.writePlacement("p", e.clusters)
	set := newSet("p")
	set.Annotations = map[string]string{workwirev1alpha1.RevisionHistoryLimitAnnotationKey: "2"}
	e.createSet(set)
	e.awaitRevisions("1:2")
	e.awaitTemplate("set", "2", "c01")
	e.awaitIdle(r, "set")
	r.requests.Take()
	e.template("3")
	e.awaitRevisions("1:2 2:3")
	e.awaitTemplate("set", "3", "c01")
	e.awaitIdle(r, "set")
	e.template("4")
	e.awaitRevisions("1:2 2:3 3:4")
	e.template("5")
	e.awaitRevisions("2:3 3:4 4:5")

	current, err := e.getSet("set")
	kit.NoError(t, err)
	other := revisions.New(current, strings.Repeat("0", 32), 7)
	other.OwnerReferences[0].UID = "earlier"
	_, err = e.client.WorkwireV1alpha1().ManifestWorkReplicaSetRevisions(e.namespace).Create(t.Context(), other, metav1.CreateOptions{})
	kit.NoError(t, err)
	for to, want := range map[int64]error{4: revisions.ErrCurrent, 1: revisions.ErrUnknown, 7: revisions.ErrUnknown} { // 7 is of another set
		if _, err := revisions.Undo(t.Context(), e.client, e.namespace, "set", to); !errors.Is(err, want) {
			t.Errorf("to revision %d: %v, want %v", to, err, want)
		}
	}
	undone, err := revisions.Undo(t.Context(), e.client, e.namespace, "set", 0)
	kit.NoError(t, err)
	if undone.From != 4 || undone.To != 3 {
		t.Errorf("undone %+v", undone)
	}
	e.awaitRevisions("2:3 4:5 5:4")
	e.awaitTemplate("set", "4", "c01")
	e.awaitEvent(r, "Normal NewTemplate Revision 5, the template of revision 3 again")

	e.updateSet("set", func(set *workv1alpha1.ManifestWorkReplicaSet) {
		set.Annotations[workwirev1alpha1.RevisionHistoryLimitAnnotationKey] = "0"
	})
	e.awaitRevisions("5:4")
	e.awaitIdle(r, "set")

	// A hub that starts again, and a change that is not of the template, store nothing.
	r.stop()
	r = e.start()
	e.updateSet("set", func(set *workv1alpha1.ManifestWorkReplicaSet) {
		set.Spec.CascadeDeletionPolicy = workv1alpha1.Foreground
	})
	e.awaitIdle(r, "set")
	for _, request := range r.requests.Take() {
		if strings.Contains(request.String(), "revisions") {
			t.Errorf("a request without a new template: %s", request)
		}
	}
}

// TestHistoryOfAServedRevision: the revision that clusters receive is kept beyond the limit, also if it is not proven.
func TestHistoryOfAServedRevision(t *testing.T) {
	e := newEnv(t, 1)
	e.start()
	e.writePlacement("p", e.clusters)
	e.createSet(newSet("p"))
	e.awaitRevisions("1:2")
	e.template("3")
	e.awaitRevisions("1:2 2:3")
	e.template("4")
	e.awaitRevisions("1:2 2:3 3:4")
	e.updateSet("set", func(set *workv1alpha1.ManifestWorkReplicaSet) {
		set.Annotations[workwirev1alpha1.ServedRevisionAnnotationKey] = "1"
		set.Annotations[workwirev1alpha1.RevisionHistoryLimitAnnotationKey] = "0"
	})
	e.awaitRevisions("1:2 3:4")
	e.awaitTemplate("set", "2", "c01")
}

// TestHistoryOfASetMadeAnew: nothing is taken from a set of the same name and generation, also if no reconcile sees that it is gone.
func TestHistoryOfASetMadeAnew(t *testing.T) {
	e := newEnv(t, 0)
	c, informers := newController(t, Config{Client: e.client, Now: e.now})
	kit.Run(t, "informers", informers.Run)
	key := types.NamespacedName{Namespace: e.namespace, Name: "set"}
	reconcile := func(seen func(*workv1alpha1.ManifestWorkReplicaSet) bool) (uid types.UID) {
		t.Helper()
		kit.True(t, "the cache shows the set", func() bool {
			set, found := c.sets.Latest(key)
			if found {
				uid = set.UID
			}
			return found && seen(set)
		})
		_, err := c.reconcile(t.Context(), key)
		kit.NoError(t, err)
		return uid
	}
	e.createSet(newSet("p"))
	former := reconcile(func(*workv1alpha1.ManifestWorkReplicaSet) bool { return true })
	e.awaitRevisions("1:2")
	kit.NoError(t, e.client.WorkV1alpha1().ManifestWorkReplicaSets(e.namespace).Delete(t.Context(), "set", metav1.DeleteOptions{}))
	reconcile(func(set *workv1alpha1.ManifestWorkReplicaSet) bool { return set.DeletionTimestamp != nil })
	e.awaitGone("set")
	again := newSet("p")
	again.Spec.ManifestWorkTemplate = template("3")
	e.createSet(again)
	reconcile(func(set *workv1alpha1.ManifestWorkReplicaSet) bool { return set.UID != former })
	want, err := revisions.Hash(&again.Spec.ManifestWorkTemplate)
	kit.NoError(t, err)
	set, err := e.getSet("set")
	kit.NoError(t, err)
	if got := set.Annotations[workwirev1alpha1.RevisionHashAnnotationKey]; got != want {
		t.Fatalf("the hash of the template is %q, want %q", got, want)
	}
	e.awaitRevisions("1:3")
}

// TestHistoryFails: a rollout goes on while revisions cannot be stored, and they are stored later.
func TestHistoryFails(t *testing.T) {
	e := newEnv(t, 1)
	e.writePlacement("p", e.clusters)
	r := e.startWith(func(next http.RoundTripper, request *http.Request) (*http.Response, error) {
		if strings.Contains(request.URL.Path, "manifestworkreplicasetrevisions") {
			return nil, fmt.Errorf("no definition")
		}
		return next.RoundTrip(request)
	})
	e.createSet(newSet("p"))
	e.awaitTemplate("set", "2", "c01")
	e.awaitEvent(r, "Warning RevisionNotStored The rollout goes on")
	events := slices.DeleteFunc(r.events.all(), func(text string) bool { return !strings.Contains(text, "RevisionNotStored") })
	if len(events) != 1 {
		t.Errorf("events: %q", events)
	}
	r.stop()
	e.start()
	e.awaitRevisions("1:2")
	stored, err := e.client.WorkwireV1alpha1().ManifestWorkReplicaSetRevisions(e.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(stored.Items) != 1 || len(stored.Items[0].OwnerReferences) != 1 {
		t.Errorf("stored: %+v %v", stored, err)
	}
}

// TestHistoryRetry: attempts to store a revision are bounded in time.
func TestHistoryRetry(t *testing.T) {
	c := &Controller{cfg: Config{Logger: kit.Logger(t), Recorder: &events{}}}
	var h history
	var waits []time.Duration
	now := time.Now()
	for range 12 {
		c.revisionFailed(newSet("p"), &h, now, fmt.Errorf("no"))
		waits = append(waits, h.retry.retryAt.Sub(now))
	}
	if waits[0] != 2*retryBackoff || waits[11] != retryBackoffMax || !slices.IsSorted(waits) {
		t.Errorf("waits: %v", waits)
	}
}
