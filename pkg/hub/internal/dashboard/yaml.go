package dashboard

import (
	"bytes"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/redaction"
)

// hiddenValue stands for a value of a Secret.
const hiddenValue = "(hidden)"

// yamlOf returns a work as kubectl get -o yaml prints it, but for what is secret: the values of Secrets
// among its manifests, and the annotation of kubectl apply, which repeats them.
func yamlOf(work *workv1.ManifestWork) (string, error) {
	work = work.DeepCopy()
	work.SetGroupVersionKind(workv1.SchemeGroupVersion.WithKind("ManifestWork"))
	work.ManagedFields = nil
	delete(work.Annotations, corev1.LastAppliedConfigAnnotation)
	for i := range work.Spec.Workload.Manifests {
		raw, err := withoutSecrets(work.Spec.Workload.Manifests[i].Raw)
		if err != nil {
			return "", fmt.Errorf("read manifest %d of ManifestWork %s/%s: %w", i, work.Namespace, work.Name, err)
		}
		work.Spec.Workload.Manifests[i].RawExtension = runtime.RawExtension{Raw: raw}
	}
	data, err := yaml.Marshal(work)
	return string(data), err
}

// withoutSecrets returns a manifest with the values of Secrets hidden, also of those in a List.
func withoutSecrets(manifest []byte) ([]byte, error) {
	if len(manifest) == 0 {
		return manifest, nil
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(manifest))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	redaction.Objects(value, func(object map[string]any, secret bool) {
		if secret {
			hideValues(object)
		}
		if metadata, ok := object["metadata"].(map[string]any); ok {
			if annotations, ok := metadata["annotations"].(map[string]any); ok {
				delete(annotations, corev1.LastAppliedConfigAnnotation)
			}
		}
	})
	return json.Marshal(value)
}

// hideValues hides the values of a Secret, and of its annotations, where appliers keep copies of it.
func hideValues(secret map[string]any) {
	metadata, _ := secret["metadata"].(map[string]any)
	for _, in := range []struct {
		object map[string]any
		field  string
	}{{secret, "data"}, {secret, "stringData"}, {metadata, "annotations"}} {
		if values, ok := in.object[in.field].(map[string]any); ok {
			for key := range values {
				values[key] = hiddenValue
			}
		} else if in.object[in.field] != nil {
			in.object[in.field] = hiddenValue
		}
	}
}
