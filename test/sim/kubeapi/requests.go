package kubeapi

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// webhooks change what is written, and say why an object may not become this, or be deleted; empty if it may.
type webhooks struct {
	mutate func(Kind, *Object)
	refuse func(Kind, *Object) string
}

// admit has an object, which is about to be stored, changed, or refused. The API server has recorded the field managers before.
func (w webhooks) admit(kind Kind, o *Object) *apierrors.StatusError {
	if w.mutate != nil {
		w.mutate(kind, o)
	}
	return w.check(kind, o)
}

func (w webhooks) check(kind Kind, o *Object) *apierrors.StatusError {
	if w.refuse == nil {
		return nil
	}
	if reason := w.refuse(kind, o); reason != "" {
		return apierrors.NewForbidden(kind.GroupResource(), o.GetName(), errors.New(reason))
	}
	return nil
}

// change carries out a request that is no watch. It returns what to answer.
func (s *Server) change(r *http.Request, t target, body []byte, webhook webhooks) (any, *apierrors.StatusError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key{t.kind.GroupResource(), t.namespace, t.name}
	user := userOf(r)
	switch r.Method {
	case http.MethodGet:
		if t.name == "" {
			return s.list(r, t)
		}
		return s.get(k)
	case http.MethodPost:
		o, failure := decode(body)
		if failure != nil {
			return nil, failure
		}
		return s.create(r, t, o, webhook)
	case http.MethodPut, http.MethodPatch:
		if isApply(r) && s.store.objects[k] == nil && t.kind.Kind == managed {
			o, failure := s.applied(r, t.kind, nil, body)
			if failure != nil {
				return nil, failure
			}
			return s.create(r, t, o, webhook)
		}
		return s.write(r, t, k, body, webhook)
	case http.MethodDelete:
		return s.delete(user, t, k, body, webhook)
	}
	return nil, apierrors.NewMethodNotSupported(k.resource, r.Method)
}

// userOf returns who sends a request.
func userOf(r *http.Request) string {
	name, _, _ := strings.Cut(r.UserAgent(), "/")
	return name
}

func dryRun(r *http.Request) bool { return r.URL.Query().Get("dryRun") != "" }

func (s *Server) get(k key) (*Object, *apierrors.StatusError) {
	if object, ok := s.store.objects[k]; ok {
		return object, nil
	}
	return nil, apierrors.NewNotFound(k.resource, k.name)
}

func (s *Server) list(r *http.Request, t target) (any, *apierrors.StatusError) {
	selected, err := selector(r)
	if err != nil {
		return nil, err
	}
	items := []text{}
	for _, o := range s.store.list(t.kind.GroupResource(), t.namespace) {
		if selected(o) {
			items = append(items, s.asRequested(r, o))
		}
	}
	kind, version := t.kind.Kind+"List", t.kind.GroupVersion().String()
	if metadataOnly(r) {
		kind, version = "PartialObjectMetadataList", "meta.k8s.io/v1"
	}
	return map[string]any{
		"kind": kind, "apiVersion": version, "items": items, "metadata": map[string]any{"resourceVersion": strconv.FormatInt(s.store.version, 10)},
	}, nil
}

// metadataOnly reports whether the client wants no more than metadata.
func metadataOnly(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
}

// asRequested returns object, or its metadata if the client wants no more.
func (s *Server) asRequested(r *http.Request, object *Object) text {
	if !metadataOnly(r) {
		return s.encoded(object)
	}
	return encode(map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object.Object["metadata"]})
}

// selector returns which objects the request selects.
func selector(r *http.Request) (func(*Object) bool, *apierrors.StatusError) {
	byLabels, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	byFields, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if byLabels.Empty() && byFields.Empty() {
		return func(o *Object) bool { return o != nil }, nil
	}
	return func(o *Object) bool {
		return o != nil && byLabels.Matches(labels.Set(o.GetLabels())) &&
			byFields.Matches(fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()})
	}, nil
}

func setVersion(o *Object, version int64) { o.SetResourceVersion(strconv.FormatInt(version, 10)) }

func decode(body []byte) (*Object, *apierrors.StatusError) {
	o := &Object{}
	if err := json.Unmarshal(body, &o.Object); err != nil || o.Object == nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the body is no object: %v", err))
	}
	return o, nil
}

func (s *Server) create(r *http.Request, t target, o *Object, webhook webhooks) (any, *apierrors.StatusError) {
	if o.GetName() == "" && o.GetGenerateName() != "" {
		o.SetName(o.GetGenerateName() + string(uuid.NewUUID())[:5])
	}
	if o.GetName() == "" {
		return nil, invalid(t.kind, o, "metadata.name", "name or generateName is required")
	}
	if o.GetResourceVersion() != "" {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: "resourceVersion should not be set on objects to be created",
		}}
	}
	k := key{t.kind.GroupResource(), t.namespace, o.GetName()}
	if _, exists := s.store.objects[k]; exists {
		return nil, apierrors.NewAlreadyExists(k.resource, k.name)
	}
	o.SetAPIVersion(t.kind.GroupVersion().String())
	o.SetKind(t.kind.Kind)
	o.SetNamespace(t.namespace)
	o.SetUID(uuid.NewUUID())
	o.SetCreationTimestamp(metav1.Now())
	o.SetDeletionTimestamp(nil)
	if t.kind.Status {
		delete(o.Object, "status")
		o.SetGeneration(1)
	}
	o = s.updated(r, t.kind, nil, o)
	if failure := webhook.admit(t.kind, o); failure != nil {
		return nil, failure
	}
	if !dryRun(r) {
		s.put(userOf(r), t.kind, k, o)
	}
	return o, nil
}

// write replaces or patches an object, or its status.
func (s *Server) write(r *http.Request, t target, k key, body []byte, webhook webhooks) (any, *apierrors.StatusError) {
	before, failure := s.get(k)
	if failure != nil {
		return nil, failure
	}
	given, failure := s.desired(r, t.kind, before, body)
	if failure != nil {
		return nil, failure
	}
	if v := given.GetResourceVersion(); v != "" && v != before.GetResourceVersion() {
		return nil, apierrors.NewConflict(k.resource, k.name, errors.New("the object has been modified; please apply your changes to the latest version and try again"))
	}
	if uid := given.GetUID(); uid != "" && uid != before.GetUID() {
		if r.Method == http.MethodPatch {
			return nil, invalid(t.kind, given, "metadata.uid", "field is immutable")
		}
		return nil, apierrors.NewConflict(k.resource, k.name, fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", uid, before.GetUID()))
	}
	after := before.DeepCopy()
	if t.subresource == "status" {
		setField(after, "status", given.Object["status"])
	} else {
		after = s.updated(r, t.kind, before, merged(t.kind, before, given))
		if added := sets.New(after.GetFinalizers()...).Delete(before.GetFinalizers()...); before.GetDeletionTimestamp() != nil && len(added) > 0 {
			return nil, invalid(t.kind, after, "metadata.finalizers", fmt.Sprintf("no new finalizers can be added if the object is being deleted, found new finalizers %v", sets.List(added)))
		}
		if failure := webhook.admit(t.kind, after); failure != nil {
			return nil, failure
		}
	}
	if dryRun(r) {
		return after, nil
	}
	if after.GetDeletionTimestamp() != nil && len(after.GetFinalizers()) == 0 {
		s.put(userOf(r), t.kind, k, nil)
		return after, nil
	}
	s.put(userOf(r), t.kind, k, after)
	return cmp.Or(s.store.objects[k], after), nil // the garbage collector may have removed it
}

// invalid is the answer to an object of which a field cannot be so.
func invalid(kind Kind, o *Object, path, why string) *apierrors.StatusError {
	return apierrors.NewInvalid(kind.GroupVersion().WithKind(kind.Kind).GroupKind(), o.GetName(), field.ErrorList{{Type: field.ErrorTypeInvalid, Field: path, Detail: why}})
}

// desired returns the object that a request asks for.
func (s *Server) desired(r *http.Request, kind Kind, before *Object, body []byte) (*Object, *apierrors.StatusError) {
	switch {
	case r.Method == http.MethodPut:
		return decode(body)
	case isApply(r) && kind.Kind == managed:
		return s.applied(r, kind, before, body)
	}
	switch types.PatchType(r.Header.Get("Content-Type")) {
	case types.MergePatchType, types.StrategicMergePatchType: // only of Events, whose patches have no lists
		patch, failure := decode(body)
		if failure != nil {
			return nil, failure
		}
		after := before.DeepCopy()
		mergePatch(after.Object, patch.Object)
		return after, nil
	case types.JSONPatchType:
		patch, err := jsonpatch.DecodePatch(body)
		var after []byte
		if err == nil {
			after, err = patch.Apply(s.encoded(before))
		}
		if err != nil {
			return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", gr(before), before.GetName(), err.Error(), 0, false)
		}
		return decode(after)
	default:
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
			Message: "the model has no patches of type " + r.Header.Get("Content-Type"),
		}}
	}
}

// mergePatch changes an object as a patch says (RFC 7396).
func mergePatch(object, patch map[string]any) {
	for field, value := range patch {
		inner, isObject := value.(map[string]any)
		switch {
		case value == nil:
			delete(object, field)
		case isObject:
			old, _ := object[field].(map[string]any)
			if old == nil {
				old = map[string]any{}
			}
			mergePatch(old, inner)
			object[field] = old
		default:
			object[field] = value
		}
	}
}

// merged returns given with what only the server sets, from before.
func merged(kind Kind, before, given *Object) *Object {
	after := given.DeepCopy()
	after.SetAPIVersion(before.GetAPIVersion())
	after.SetKind(before.GetKind())
	after.SetUID(before.GetUID())
	after.SetNamespace(before.GetNamespace())
	after.SetCreationTimestamp(before.GetCreationTimestamp())
	after.SetDeletionTimestamp(before.GetDeletionTimestamp())
	after.SetDeletionGracePeriodSeconds(before.GetDeletionGracePeriodSeconds())
	after.SetResourceVersion(before.GetResourceVersion())
	after.SetGeneration(before.GetGeneration())
	if kind.Status {
		setField(after, "status", before.Object["status"])
		if !sameContent(before, after) {
			after.SetGeneration(before.GetGeneration() + 1)
		}
	}
	return after
}

func setField(o *Object, field string, value any) {
	if value == nil {
		delete(o.Object, field)
		return
	}
	o.Object[field] = value
}

// sameContent reports whether two objects differ in metadata and status at most.
func sameContent(a, b *Object) bool {
	content := func(o *Object) map[string]any {
		c := map[string]any{}
		for field, value := range o.Object {
			if field != "metadata" && field != "status" {
				c[field] = value
			}
		}
		return c
	}
	return apiequality.Semantic.DeepEqual(content(a), content(b))
}

func (s *Server) delete(user string, t target, k key, body []byte, webhook webhooks) (any, *apierrors.StatusError) {
	before, failure := s.get(k)
	if failure != nil {
		return nil, failure
	}
	if failure := webhook.check(t.kind, before); failure != nil {
		return nil, failure
	}
	var options metav1.DeleteOptions
	if len(body) > 0 {
		if err := json.Unmarshal(body, &options); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	if p := options.Preconditions; p != nil {
		if p.UID != nil && *p.UID != before.GetUID() {
			return nil, apierrors.NewConflict(k.resource, k.name, fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", *p.UID, before.GetUID()))
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != before.GetResourceVersion() {
			return nil, apierrors.NewConflict(k.resource, k.name, fmt.Errorf("Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v", *p.ResourceVersion, before.GetResourceVersion()))
		}
	}
	switch policy := ptr.Deref(options.PropagationPolicy, metav1.DeletePropagationBackground); policy {
	case metav1.DeletePropagationOrphan:
		s.disown(user, before.GetUID())
	case metav1.DeletePropagationForeground:
		if before.GetDeletionTimestamp() == nil {
			return s.mark(user, t.kind, k, append(before.GetFinalizers(), metav1.FinalizerDeleteDependents)), nil
		}
	}
	return s.remove(user, t.kind, k), nil
}

// remove deletes an object, or marks it if it has finalizers.
func (s *Server) remove(user string, kind Kind, k key) *Object {
	before := s.store.objects[k]
	if len(before.GetFinalizers()) == 0 {
		s.put(user, kind, k, nil)
		return before
	}
	if before.GetDeletionTimestamp() != nil {
		return before
	}
	return s.mark(user, kind, k, before.GetFinalizers())
}

// mark notes that an object is being deleted, and waits for finalizers.
func (s *Server) mark(user string, kind Kind, k key, finalizers []string) *Object {
	before := s.store.objects[k]
	after := before.DeepCopy()
	now := metav1.NewTime(time.Now())
	after.SetDeletionTimestamp(&now)
	after.SetDeletionGracePeriodSeconds(new(int64))
	after.SetFinalizers(finalizers)
	if kind.Status {
		after.SetGeneration(before.GetGeneration() + 1)
	}
	s.put(user, kind, k, after)
	return after
}

// disown takes an owner from all that it owns.
func (s *Server) disown(user string, owner types.UID) {
	for k, o := range s.store.objects {
		owned := func(r metav1.OwnerReference) bool { return r.UID == owner }
		if slices.ContainsFunc(o.GetOwnerReferences(), owned) {
			after := o.DeepCopy()
			after.SetOwnerReferences(slices.DeleteFunc(after.GetOwnerReferences(), owned))
			s.put(user, s.kindOf(k), k, after)
		}
	}
}

func (s *Server) kindOf(k key) Kind {
	return s.kinds[slices.IndexFunc(s.kinds, func(kind Kind) bool { return kind.GroupResource() == k.resource })]
}

// put stores an object, nil for none, tells the observers, and has the garbage collector look at what it owns, or at itself.
func (s *Server) put(user string, kind Kind, k key, after *Object) {
	c, ok := s.store.set(k, after)
	if !ok {
		return
	}
	for _, observe := range s.observers {
		observe(Write{Kind: kind, User: user, Before: c.before, After: c.after})
	}
	s.collect(k, c)
}
