// Package wrap makes ManifestWorks of plain manifests.
//
//	manifests, err := wrap.Read([]string{"deploy/"}, os.Stdin, false)
//	...
//	works, warnings, err := wrap.Works(manifests, wrap.Config{Name: "web", Cluster: "cluster1", Feedback: true, Readiness: true})
//
// Manifests come in the order in which they can be applied: CRDs, namespaces, RBAC, configuration,
// workloads, and what depends on them. What does not fit in one work goes to several.
package wrap

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// LabelKey labels works with Config.Name, so that the parts of a work that was split can be
// selected.
const LabelKey = "workwire.dev/wrap"

// Config says what works to make.
type Config struct {
	// Name is the name of the work; required. Works that are split have it with "-1", "-2" and so
	// on.
	Name string
	// Cluster is the namespace of the works; empty for none.
	Cluster string
	// ObjectNamespace is the namespace for objects that need one and have none; without it they are
	// an error.
	ObjectNamespace string
	// MaxBytes is the maximum size of a work's manifests as JSON; default
	// [workv1.MaxManifestsSize], which agents refuse to exceed.
	MaxBytes int
	// MaxManifests is the maximum number of a work's manifests; default [wire.MaxManifests].
	MaxManifests int
	// Feedback adds a rule of type WellKnownStatus for each manifest whose kind has one.
	Feedback bool
	// Hooks wraps the hooks of Helm charts like other objects. Otherwise they are left out, with a warning.
	Hooks bool
	// Readiness has the agent report the conditions Progressing and Degraded of all manifests.
	Readiness bool
}

func (c Config) withDefaults() (Config, error) {
	c.MaxBytes = cmp.Or(c.MaxBytes, workv1.MaxManifestsSize)
	c.MaxManifests = cmp.Or(c.MaxManifests, wire.MaxManifests)
	var errs []error
	if faults := validation.IsDNS1123Subdomain(c.Name); len(faults) > 0 {
		errs = append(errs, fmt.Errorf("the name %q of the work is invalid: %s", c.Name, strings.Join(faults, "; ")))
	}
	if c.MaxBytes < 1 || c.MaxBytes > workv1.MaxManifestsSize {
		errs = append(errs, fmt.Errorf("a work has 1 to %d bytes of manifests, got %d", workv1.MaxManifestsSize, c.MaxBytes))
	}
	if c.MaxManifests < 1 || c.MaxManifests > wire.MaxManifests {
		errs = append(errs, fmt.Errorf("a work has 1 to %d manifests, got %d", wire.MaxManifests, c.MaxManifests))
	}
	return c, errors.Join(errs...)
}

// Works returns works with all manifests, in the order in which they can be applied, and warnings
// about manifests that may not do what their author wants. It leaves out what clusters add to
// objects: status, UIDs, versions and managed fields. Its error names the origin of every manifest
// that cannot be wrapped. Works does not change manifests.
func Works(manifests []Manifest, c Config) (works []*workv1.ManifestWork, warnings []string, err error) {
	if c, err = c.withDefaults(); err != nil {
		return nil, nil, err
	}
	if !c.Hooks {
		manifests, warnings = withoutHooks(manifests)
	}
	if len(manifests) == 0 {
		return nil, warnings, errors.New("there is no manifest")
	}
	encoded, more, err := prepare(manifests, c)
	if warnings = append(warnings, more...); err != nil {
		return nil, warnings, err
	}
	parts := divide(encoded, c.MaxBytes, c.MaxManifests)
	for i, part := range parts {
		name := c.Name
		if len(parts) > 1 {
			name = fmt.Sprintf("%s-%d", c.Name, i+1)
		}
		works = append(works, newWork(name, part, c))
	}
	return works, warnings, nil
}

// hookAnnotation says when Helm runs an object of a chart; helm template prints it with the others.
const hookAnnotation = "helm.sh/hook"

// withoutHooks leaves out what Helm would run before or after the other objects, or as a test.
func withoutHooks(manifests []Manifest) (rest []Manifest, warnings []string) {
	for _, m := range manifests {
		hook, isHook := m.Object.GetAnnotations()[hookAnnotation]
		if !isHook {
			rest = append(rest, m)
			continue
		}
		warnings = append(warnings, fmt.Sprintf("%s is left out: it is a hook of Helm (%s), and no agent runs hooks. To apply it like any other object, use --hooks", &m, hook))
	}
	return rest, warnings
}

// encodedManifest is a manifest as it is sent.
type encodedManifest struct {
	raw      []byte
	kind     schema.GroupVersionKind
	resource workv1.ResourceIdentifier
}

// prepare returns the manifests as they are sent, in the order of application.
func prepare(manifests []Manifest, c Config) (encoded []encodedManifest, warnings []string, err error) {
	var errs []error
	defined := scopes(manifests)
	origins := make(map[workv1.ResourceIdentifier]string)
	for _, m := range sorted(manifests) {
		object := m.Object.DeepCopy()
		clean(object.Object)
		kind := object.GroupVersionKind()
		scope := scopeOf(kind, defined)
		if object.GetNamespace() == "" && scope == namespacedScope {
			if c.ObjectNamespace == "" {
				errs = append(errs, fmt.Errorf("%s has no namespace: set metadata.namespace, or --object-namespace", &m))
			}
			object.SetNamespace(c.ObjectNamespace)
		}
		if object.GetNamespace() == "" && scope == unknownScope && c.ObjectNamespace != "" {
			warnings = append(warnings, fmt.Sprintf("%s has no namespace, and gets none: nothing says whether its kind needs one", &m))
		}
		if kind.Group == workv1.GroupName {
			warnings = append(warnings, fmt.Sprintf("%s is wrapped like any other object: it would reach a hub on the cluster. To apply it here, use kubectl apply", &m))
		}
		plural, _ := meta.UnsafeGuessKindToResource(kind)
		id := workv1.ResourceIdentifier{Group: kind.Group, Resource: plural.Resource, Namespace: object.GetNamespace(), Name: object.GetName()}
		if first, twice := origins[id]; twice {
			errs = append(errs, fmt.Errorf("%s is there twice: it is also in %s", &m, first))
		}
		origins[id] = m.Origin
		raw, err := json.Marshal(object.Object)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", &m, err))
		}
		if len(raw) > c.MaxBytes {
			errs = append(errs, fmt.Errorf("%s has %d bytes as JSON; a work holds %d, and an object is not divided", &m, len(raw), c.MaxBytes))
		}
		encoded = append(encoded, encodedManifest{raw: raw, kind: kind, resource: id})
	}
	return encoded, warnings, errors.Join(errs...)
}

// clean removes what a cluster adds to an object.
func clean(object map[string]any) {
	delete(object, "status")
	meta, _ := object["metadata"].(map[string]any)
	for _, key := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"} {
		delete(meta, key)
	}
	annotations, _ := meta["annotations"].(map[string]any)
	delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	if annotations != nil && len(annotations) == 0 {
		delete(meta, "annotations")
	}
}

// divide returns the manifests in parts of at most these sizes, in their order. No manifest is
// larger than maxBytes.
func divide(manifests []encodedManifest, maxBytes, maxManifests int) [][]encodedManifest {
	var parts [][]encodedManifest
	start, size := 0, 0
	for i := range manifests {
		if size+len(manifests[i].raw) > maxBytes || i-start == maxManifests {
			parts = append(parts, manifests[start:i])
			start, size = i, 0
		}
		size += len(manifests[i].raw)
	}
	return append(parts, manifests[start:])
}

func newWork(name string, manifests []encodedManifest, c Config) *workv1.ManifestWork {
	work := &workv1.ManifestWork{
		TypeMeta:   metav1.TypeMeta{APIVersion: workv1.GroupVersion.String(), Kind: "ManifestWork"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.Cluster},
	}
	if len(validation.IsValidLabelValue(c.Name)) == 0 {
		work.Labels = map[string]string{LabelKey: c.Name}
	}
	if c.Readiness {
		work.Annotations = map[string]string{workv1.ReportReadinessAnnotationKey: "true"}
	}
	for _, m := range manifests {
		work.Spec.Workload.Manifests = append(work.Spec.Workload.Manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: m.raw}})
		if c.Feedback && workv1.WellKnownStatus(m.kind) != nil {
			work.Spec.ManifestConfigs = append(work.Spec.ManifestConfigs, workv1.ManifestConfigOption{
				ResourceIdentifier: m.resource, FeedbackRules: []workv1.FeedbackRule{{Type: workv1.WellKnownStatusType}},
			})
		}
	}
	return work
}
