package integration

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/ctl/wrap"
	"github.com/workwire/workwire/test/kit"
)

// TestWrap wraps a directory with manifests in the wrong order, and has the works created at a hub
// and applied by an agent.
func TestWrap(t *testing.T) {
	t.Parallel()
	w := withBroker(t)
	w.StartHub()
	w.StartAgent(0)
	namespace, group := kit.Unique("shop"), kit.Unique("g")+".example.com"
	text := strings.NewReplacer("NAMESPACE", namespace, "GROUP", group).Replace(`
{apiVersion: GROUP/v1, kind: Gadget, metadata: {name: g}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "example.com/web:1"}]}
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {html: "<b>&</b>"}}
- {apiVersion: v1, kind: Namespace, metadata: {name: NAMESPACE}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.GROUP}
spec:
  group: GROUP
  scope: Namespaced
  names: {kind: Gadget, plural: gadgets}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`)
	dir := t.TempDir()
	kit.NoError(t, os.WriteFile(dir+"/app.yaml", []byte(text), 0o600))
	manifests, err := wrap.Read([]string{dir}, nil, false)
	kit.NoError(t, err)
	works, warnings, err := wrap.Works(manifests, wrap.Config{
		Name: "shop", Cluster: string(w.Clusters[0]), ObjectNamespace: namespace, Feedback: true, Readiness: true, MaxManifests: 3,
	})
	if err != nil || len(warnings) > 0 || len(works) != 2 {
		t.Fatalf("%d works, warnings %q, error %v", len(works), warnings, err)
	}
	var out bytes.Buffer
	kit.NoError(t, wrap.Write(&out, works, "yaml"))
	documents := strings.Split(out.String(), "---\n")[1:]
	for _, document := range documents {
		work := &workv1.ManifestWork{}
		kit.NoError(t, yaml.UnmarshalStrict([]byte(document), work))
		w.Create(w.Works(0), work)
	}
	w.Applied(w.Works(0), "shop-1", "shop-2")
	kit.Await(t, w.Works(0), "shop-2", "reports feedback and readiness", func(work *workv1.ManifestWork) bool {
		if work == nil || meta.FindStatusCondition(work.Status.Conditions, workv1.WorkProgressing) == nil {
			return false
		}
		for _, m := range work.Status.ResourceStatus.Manifests {
			if m.ResourceMeta.Kind == "Deployment" && len(m.StatusFeedbacks.Values) > 0 {
				return true
			}
		}
		return false
	})
	gadget := schema.GroupVersionResource{Group: group, Version: "v1", Resource: "gadgets"}
	if _, err := dynamic.NewForConfigOrDie(spokePlane.REST()).Resource(gadget).Namespace(namespace).Get(t.Context(), "g", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	w.Delete(w.Works(0), "shop-1")
	w.Delete(w.Works(0), "shop-2")
	w.Gone(w.Works(0), "shop-1", "shop-2")
	kit.Eventually(t, "the CRD is gone", func() error {
		crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
		_, err := dynamic.NewForConfigOrDie(spokePlane.REST()).Resource(crds).Get(t.Context(), "gadgets."+group, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it exists, or cannot be read: %w", err)
	})
}
