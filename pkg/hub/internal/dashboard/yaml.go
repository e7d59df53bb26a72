package dashboard

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/redaction"
)

// yamlOf returns a work as kubectl get -o yaml prints it, but for what is secret: the values and annotations
// of Secrets among its manifests, and the annotation of kubectl apply, which repeats them.
func yamlOf(work *workv1.ManifestWork) (string, error) {
	work = work.DeepCopy()
	work.SetGroupVersionKind(workv1.SchemeGroupVersion.WithKind("ManifestWork"))
	work.ManagedFields = nil
	delete(work.Annotations, corev1.LastAppliedConfigAnnotation)
	for i := range work.Spec.Workload.Manifests {
		manifest := &work.Spec.Workload.Manifests[i]
		if len(manifest.Raw) == 0 {
			continue
		}
		raw, err := redaction.HideSecrets(manifest.Raw, func(any) string { return "(hidden)" })
		if err != nil {
			return "", fmt.Errorf("read manifest %d of ManifestWork %s/%s: %w", i, work.Namespace, work.Name, err)
		}
		manifest.Raw = raw
	}
	data, err := yaml.Marshal(work)
	return string(data), err
}
