package strategy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

	"github.com/workwire/workwire/pkg/agent/object"
)

// requests makes the requests for one object and counts them.
type requests struct {
	rest    rest.Interface
	ref     object.Ref
	manager string
	count   int
}

func (r *requests) resource() dynamic.ResourceInterface {
	resource := dynamic.New(r.rest).Resource(r.ref.GroupVersionResource)
	if r.ref.Namespace == "" {
		return resource
	}
	return resource.Namespace(r.ref.Namespace)
}

// get reads the object. It is Absent, without an error, if there is none.
func (r *requests) get(ctx context.Context) (object.Live, error) {
	r.count++
	obj, err := r.resource().Get(ctx, r.ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return object.Live{State: object.Absent}, nil
	case err != nil:
		return object.Live{}, err
	}
	return object.Live{State: object.Present, Object: obj}, nil
}

// write makes the request itself: the dynamic client reads every answer twice.
func (r *requests) write(ctx context.Context, verb Verb, body *unstructured.Unstructured, force bool) (*unstructured.Unstructured, error) {
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
	case Create:
		request = r.rest.Post().AbsPath(path[:len(path)-1]...).SetHeader("Content-Type", runtime.ContentTypeJSON)
	case Update:
		request = r.rest.Put().AbsPath(path...).SetHeader("Content-Type", runtime.ContentTypeJSON)
	case Apply:
		request = r.rest.Patch(types.ApplyPatchType).AbsPath(path...).Param("force", strconv.FormatBool(force))
	case Mark:
		request = r.rest.Patch(types.MergePatchType).AbsPath(path...)
	default:
		return nil, fmt.Errorf("%s is no write", verb)
	}
	// What the API server does not know it drops, and its answer tells us so.
	content, err := r.answer(request.Param("fieldManager", r.manager).Param("fieldValidation", metav1.FieldValidationIgnore).Body(data).Do(ctx))
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: content}, nil
}

// answer reads what the API server says to a request.
func (r *requests) answer(result rest.Result) (map[string]any, error) {
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

// tryCreate asks whether the object could be created, were there none of its name;
// then the error is AlreadyExists.
func (r *requests) tryCreate(ctx context.Context, body *unstructured.Unstructured) error {
	r.count++
	_, err := r.resource().Create(ctx, body, metav1.CreateOptions{
		FieldManager: r.manager, FieldValidation: metav1.FieldValidationIgnore, DryRun: []string{metav1.DryRunAll},
	})
	return err
}

// claim makes the fields that managers have updated fields that r.manager has
// applied.
func (r *requests) claim(ctx context.Context, live *unstructured.Unstructured, managers []string) (*unstructured.Unstructured, error) {
	r.count++
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(live, sets.New(managers...), r.manager)
	if err != nil {
		return nil, fmt.Errorf("take over the managed fields of %s: %w", r.ref, err)
	}
	return r.resource().Patch(ctx, r.ref.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: r.manager})
}

// delete deletes the object in the background, if its uid is the one given and,
// unless that is empty, its resourceVersion too. It gives the object as it stays
// behind for its finalizers or its grace period, or nil if it is gone.
func (r *requests) delete(ctx context.Context, uid types.UID, resourceVersion string) (*unstructured.Unstructured, error) {
	r.count++
	background := metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{
		TypeMeta:          metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"},
		PropagationPolicy: &background,
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
	// The dynamic client does not give the answer, which says what is left.
	left, err := r.answer(r.rest.Delete().AbsPath(segments...).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx))
	if err != nil {
		return nil, err
	}
	if obj := (&unstructured.Unstructured{Object: left}); remains(obj) {
		return obj, nil
	}
	return nil, nil // nothing is left
}

// remains says whether the answer to a deletion is an object that still exists.
// For some kinds it is the object as it was last; then nothing holds it.
func remains(answer *unstructured.Unstructured) bool {
	if answer.GetKind() == "Status" && answer.GetAPIVersion() == "v1" {
		return false
	}
	grace := answer.GetDeletionGracePeriodSeconds()
	finalizers, _, _ := unstructured.NestedSlice(answer.Object, "spec", "finalizers")
	return len(answer.GetFinalizers()) > 0 || grace != nil && *grace > 0 ||
		answer.GetKind() == "Namespace" && len(finalizers) > 0
}

func (r *requests) path() ([]string, error) {
	for _, segment := range []string{r.ref.Namespace, r.ref.Name} {
		if faults := content.IsPathSegmentName(segment); len(faults) > 0 {
			return nil, fmt.Errorf("%q can not name an object: %s", segment, strings.Join(faults, "; "))
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

// isNoSuchResource says whether an error means that the API server does not
// serve the resource at all.
func isNoSuchResource(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// immutableTexts are what API servers say about fields that can not be changed. A
// text that holds all strings of one of these is one.
var immutableTexts = [][]string{
	{"immutable"},
	{"may not change"},     // Pod, Service
	{"may not be changed"}, // PriorityClass
	{"cannot change roleRef"},
	{"updates to", "are forbidden"}, // StatefulSet
}

// isImmutable says whether all that the API server refuses is to change fields
// that can not be changed.
func isImmutable(err error) bool {
	causes := causesOf(err)
	for _, cause := range causes {
		if !slices.ContainsFunc(immutableTexts, func(parts []string) bool {
			return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(cause.Message, part) })
		}) {
			return false
		}
	}
	return len(causes) > 0
}

// isConflictWith says whether an apply was refused for fields of these managers
// only.
func isConflictWith(err error, managers []string) bool {
	causes := causesOf(err)
	for _, cause := range causes {
		ours := slices.ContainsFunc(managers, func(manager string) bool {
			return strings.HasPrefix(cause.Message, fmt.Sprintf("conflict with %q", manager))
		})
		if cause.Type != metav1.CauseTypeFieldManagerConflict || !ours {
			return false
		}
	}
	return apierrors.IsConflict(err) && len(causes) > 0
}

func causesOf(err error) []metav1.StatusCause {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	return status.Status().Details.Causes
}
