package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/csaupgrade"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/plan"
)

// requests makes the requests for one object and counts them.
type requests struct {
	rest    rest.Interface
	creator func(context.Context) (rest.Interface, error) // nil: rest
	ref     object.Ref
	manager string
	count   int
	// warnings of the API server about the writes, each once.
	warnings []string
}

// use makes the following requests by clients.
func (r *requests) use(clients Clients) {
	if clients.Client != nil {
		r.rest = clients.Client
	}
	r.creator = clients.Creator
}

// creating returns the client that creates the object.
func (r *requests) creating(ctx context.Context) (rest.Interface, error) {
	if r.creator == nil {
		return r.rest, nil
	}
	return r.creator(ctx)
}

func (r *requests) resource() dynamic.ResourceInterface { return r.resourceOf(r.rest) }

func (r *requests) resourceOf(client rest.Interface) dynamic.ResourceInterface {
	return dynamic.New(client).Resource(r.ref.GroupVersionResource).Namespace(r.ref.Namespace)
}

// get reads the object. One that does not exist is Absent, without an error.
func (r *requests) get(ctx context.Context) (object.Live, error) {
	r.count++
	return object.Found(r.resource().Get(ctx, r.ref.Name, metav1.GetOptions{}))
}

// write sends a step. It does not use the dynamic client, which decodes answers twice.
func (r *requests) write(ctx context.Context, verb plan.Verb, body *unstructured.Unstructured, force bool) (*unstructured.Unstructured, error) {
	r.count++
	data, err := json.Marshal(body.Object)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", r.ref, err)
	}
	path, err := r.path()
	if err != nil {
		return nil, err
	}
	var request *rest.Request
	switch verb {
	case plan.Create:
		client, err := r.creating(ctx)
		if err != nil {
			return nil, err
		}
		request = client.Post().AbsPath(path[:len(path)-1]...).SetHeader("Content-Type", runtime.ContentTypeJSON)
	case plan.Update:
		request = r.rest.Put().AbsPath(path...).SetHeader("Content-Type", runtime.ContentTypeJSON)
	case plan.Apply:
		request = r.rest.Patch(types.ApplyPatchType).AbsPath(path...).Param("force", strconv.FormatBool(force))
	case plan.PatchMetadata:
		request = r.rest.Patch(types.MergePatchType).AbsPath(path...)
	default:
		return nil, fmt.Errorf("%s is not a write", verb)
	}
	// The API server drops unknown fields. Its response shows and says that.
	result := request.Param("fieldManager", r.manager).Param("fieldValidation", metav1.FieldValidationWarn).Body(data).Do(ctx)
	content, err := r.decode(result)
	if err != nil {
		return nil, err
	}
	for _, warning := range result.Warnings() {
		if !slices.Contains(r.warnings, warning.Text) {
			r.warnings = append(r.warnings, warning.Text)
		}
	}
	return &unstructured.Unstructured{Object: content}, nil
}

// decode returns the object in the API server's answer.
func (r *requests) decode(result rest.Result) (map[string]any, error) {
	if err := result.Error(); err != nil {
		return nil, err
	}
	data, err := result.Raw()
	if err != nil {
		return nil, err
	}
	var content map[string]any
	if err := utiljson.Unmarshal(data, &content); err != nil {
		return nil, fmt.Errorf("decode the API server's answer about %s: %w", r.ref, err)
	}
	return content, nil
}

// tryCreate is a dry run of creating the object. The error is AlreadyExists if the name of the
// existing object is the only obstacle.
func (r *requests) tryCreate(ctx context.Context, body *unstructured.Unstructured) error {
	r.count++
	client, err := r.creating(ctx)
	if err != nil {
		return err
	}
	_, err = r.resourceOf(client).Create(ctx, body, metav1.CreateOptions{
		FieldManager: r.manager, FieldValidation: metav1.FieldValidationIgnore, DryRun: []string{metav1.DryRunAll},
	})
	return err
}

// migrateManagedFields turns fields that managers have updated into fields that r.manager has
// applied.
func (r *requests) migrateManagedFields(ctx context.Context, live *unstructured.Unstructured, managers []string) (*unstructured.Unstructured, error) {
	r.count++
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(live, sets.New(managers...), r.manager)
	if err != nil {
		return nil, fmt.Errorf("migrate the managedFields of %s: %w", r.ref, err)
	}
	return r.resource().Patch(ctx, r.ref.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: r.manager})
}

// delete deletes the object, and what it owns as propagation says, if it has the uid and, unless that is empty, the
// resourceVersion. It returns the object if finalizers or its grace period keep it, nil if it is
// gone.
func (r *requests) delete(ctx context.Context, uid types.UID, resourceVersion string, propagation metav1.DeletionPropagation) (*unstructured.Unstructured, error) {
	r.count++
	options := metav1.DeleteOptions{
		TypeMeta:          metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"},
		PropagationPolicy: &propagation,
		Preconditions:     &metav1.Preconditions{UID: &uid},
	}
	if resourceVersion != "" {
		options.Preconditions.ResourceVersion = &resourceVersion
	}
	body, err := json.Marshal(options)
	if err != nil {
		return nil, fmt.Errorf("encode the deletion of %s: %w", r.ref, err)
	}
	segments, err := r.path()
	if err != nil {
		return nil, err
	}
	// The dynamic client does not return the answer.
	left, err := r.decode(r.rest.Delete().AbsPath(segments...).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx))
	if err != nil {
		return nil, err
	}
	if obj := (&unstructured.Unstructured{Object: left}); remains(obj) {
		return obj, nil
	}
	return nil, nil
}

// remains reports whether the answer to a deletion is an object that still exists. For some kinds
// it is the last version of a deleted object, without finalizers or grace period.
func remains(answer *unstructured.Unstructured) bool {
	if answer.GetKind() == "Status" && answer.GetAPIVersion() == "v1" {
		return false
	}
	grace := answer.GetDeletionGracePeriodSeconds()
	finalizers, _, _ := unstructured.NestedSlice(answer.Object, "spec", "finalizers")
	return len(answer.GetFinalizers()) > 0 || grace != nil && *grace > 0 ||
		answer.GetKind() == "Namespace" && len(finalizers) > 0
}

// path returns the segments of the object's path.
func (r *requests) path() ([]string, error) {
	for _, segment := range []string{r.ref.Namespace, r.ref.Name} {
		if errs := content.IsPathSegmentName(segment); len(errs) > 0 {
			return nil, fmt.Errorf("%q cannot name an object: %s", segment, strings.Join(errs, "; "))
		}
	}
	segments := []string{"/apis", r.ref.Group, r.ref.Version}
	if r.ref.Group == "" {
		segments = []string{"/api", r.ref.Version}
	}
	if r.ref.Namespace != "" {
		segments = append(segments, "namespaces", r.ref.Namespace)
	}
	return append(segments, r.ref.Resource, r.ref.Name), nil
}
