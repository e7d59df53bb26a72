package agent_test

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/kit"
)

const (
	serviceAccount = "{apiVersion: v1, kind: ServiceAccount, metadata: {name: sa, namespace: NAMESPACE}, automountServiceAccountToken: false}"
	service        = "{apiVersion: v1, kind: Service, metadata: {name: svc, namespace: NAMESPACE}, spec: {selector: {a: b}, ports: [{port: 80}]}}"
)

// TestRestartKnowsWhatWasApplied restarts an agent without a state directory: what is as its
// manifest declares costs no request, and a field that its manifest has dropped meanwhile is found.
// Objects carry nothing for that.
func TestRestartKnowsWhatWasApplied(t *testing.T) {
	w, works := start(t)
	w.deploy(works, "web", serviceAccount, service, configMap("a", "1"))
	w.names("web", "a", "sa", "svc")
	w.requests.Take()
	w.change(works, "web", serviceAccount, service, configMap("a", "2"))
	w.data("a", "2")
	w.Is(works, "web", "Applied=True", "Available=True")
	if got := w.requests.Take(kit.NotWatch); len(got) != 1 {
		t.Errorf("a changed value took %d requests: %v", len(got), got)
	}
	for _, object := range w.objects() {
		if len(object.Annotations) != 0 || len(object.Labels) != 1 || len(object.OwnerReferences) != 1 {
			t.Errorf("%s: annotations %v, labels %v, owners %v", object.Name, object.Annotations, object.Labels, object.OwnerReferences)
		}
	}

	restart := func(marker string) {
		w.stop()
		w.requests.Take()
		w.agent()
		w.deploy(works, marker, configMap(marker, "1"))
		w.Is(works, "web", "Applied=True", "Available=True")
	}
	restart("first")
	for _, request := range w.requests.All(kit.InNamespace(w.namespace), kit.NotWatch) {
		if request.Name == "a" || request.Name == "sa" || request.Name == "svc" {
			t.Errorf("%s %s after a restart", request.Verb, request.Path)
		}
	}

	w.stop()
	digest := func(amw *workv1.AppliedManifestWork) string { return amw.Status.AppliedResources[1].FieldsDigest }
	before := digest(w.names("web", "a", "sa", "svc"))
	w.change(works, "web", "{apiVersion: v1, kind: ServiceAccount, metadata: {name: sa, namespace: NAMESPACE}}", service, configMap("a", "2"))
	w.agent()
	kit.Eventually(t, "the dropped field is gone", func() error {
		account, err := w.cluster.CoreV1().ServiceAccounts(w.namespace).Get(t.Context(), "sa", metav1.GetOptions{})
		if err == nil && account.AutomountServiceAccountToken != nil {
			err = errors.New("it is still there")
		}
		return err
	})
	// A request after the object's writes the digest: an agent stopped before it has to compare again.
	w.applied("web", "has the new digest", func(amw *workv1.AppliedManifestWork) error {
		if digest(amw) == before {
			return errors.New("it is the former one")
		}
		return nil
	})
	restart("second")
	for _, request := range w.requests.All(kit.InNamespace(w.namespace), kit.NotWatch) {
		if request.Name == "sa" {
			t.Errorf("%s %s after another restart", request.Verb, request.Path)
		}
	}
}

// objects returns the metadata of the objects that the test's works apply.
func (w *fixture) objects() []metav1.ObjectMeta {
	w.Helper()
	core := w.cluster.CoreV1()
	var all []metav1.ObjectMeta
	collect := func(object metav1.Object, err error) {
		kit.NoError(w, err)
		all = append(all, metav1.ObjectMeta{
			Name: object.GetName(), Annotations: object.GetAnnotations(), Labels: object.GetLabels(), OwnerReferences: object.GetOwnerReferences(),
		})
	}
	account, err := core.ServiceAccounts(w.namespace).Get(w.Context(), "sa", metav1.GetOptions{})
	collect(account, err)
	svc, err := core.Services(w.namespace).Get(w.Context(), "svc", metav1.GetOptions{})
	collect(svc, err)
	data, err := core.ConfigMaps(w.namespace).Get(w.Context(), "a", metav1.GetOptions{})
	collect(data, err)
	return all
}

// TestListDoesNotFit: an agent that comes back with an older copy of its state has a work that its source has deleted since, and one
// of which it has no spec and gets none. The list of its works does not fit the broker's packet limit, and it sends no digests.
func TestListDoesNotFit(t *testing.T) {
	w := newWorld(t)
	works, dir := w.source("hub1"), t.TempDir()
	configure := func(c *agent.Config) { c.StateDir, c.DigestInterval = dir, -1 }
	w.agent(configure)
	for i := range 40 {
		w.Create(works, w.work(fmt.Sprintf("w%d", i), configMap(fmt.Sprintf("c%d", i), "1")))
	}
	for i := range 40 {
		w.Is(works, fmt.Sprintf("w%d", i), "Applied=True", "Available=True")
	}
	w.stop()
	former := t.TempDir()
	kit.NoError(t, os.CopyFS(former, os.DirFS(dir)))
	w.agent(configure)
	large := make([]byte, 4<<10)
	_, _ = rand.Read(large)
	w.deploy(works, "later", configMap("later", hex.EncodeToString(large))) // does not fit the limit to come either
	w.remove(works, "w0")
	w.stop()
	dir = former
	w.Memory.SetLimit(4 << 10)
	w.agent(configure)
	w.deploy(works, "after", configMap("after", "1"))
	w.data("c0", "")
	kit.Eventually(t, "there is no trace of the deleted work", func() error {
		amws, err := w.amws.List(t.Context(), metav1.ListOptions{})
		for i := range amws.Items {
			if amws.Items[i].Spec.ManifestWorkName == "w0" && amws.Items[i].Spec.AgentID == w.BrokerHost {
				err = errors.New("it has an AppliedManifestWork")
			}
		}
		return err
	})
}
