package kubeapi

import (
	"cmp"
	"maps"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Object is an object of any kind.
type Object = unstructured.Unstructured

// store holds objects, and the history of their changes. It knows nothing of requests.
type store struct {
	version   int64 // of the last change
	objects   map[key]*Object
	history   []change
	compacted int64                                  // history has the changes after this version
	changed   map[schema.GroupResource]chan struct{} // closed at the next change of a resource, of which somebody waits
}

type key struct {
	resource        schema.GroupResource
	namespace, name string
}

func (a key) compare(b key) int {
	return cmp.Or(cmp.Compare(a.resource.Group, b.resource.Group), cmp.Compare(a.resource.Resource, b.resource.Resource),
		cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
}

// change is an entry of the history. Its objects are not changed any more.
type change struct {
	key           key
	version       int64
	before, after *Object // nil: there is none
}

func newStore() store {
	return store{version: 1, objects: map[key]*Object{}, changed: map[schema.GroupResource]chan struct{}{}} // as in etcd: 0 is no version
}

// compact forgets the history.
func (s *store) compact() { s.history, s.compacted = nil, s.version }

// set makes after the object of k; nil removes it. It returns the change, false if there is none.
func (s *store) set(k key, after *Object) (change, bool) {
	before := s.objects[k]
	if after != nil && before != nil && equal(before, after) {
		return change{}, false
	}
	s.version++
	if after == nil {
		delete(s.objects, k)
	} else {
		setVersion(after, s.version)
		s.objects[k] = after
	}
	c := change{k, s.version, before, after}
	s.history = append(s.history, c)
	if changed := s.changed[k.resource]; changed != nil {
		close(changed)
		delete(s.changed, k.resource)
	}
	return c, true
}

// equal reports whether two objects differ at most in the times at which managers have written their fields.
func equal(a, b *Object) bool {
	if len(a.GetManagedFields()) == len(b.GetManagedFields()) && len(a.GetManagedFields()) > 0 {
		fields := a.GetManagedFields()
		b = b.DeepCopy()
		managed := b.GetManagedFields()
		for i := range managed {
			managed[i].Time = fields[i].Time
		}
		b.SetManagedFields(managed)
	}
	return apiequality.Semantic.DeepEqual(a.Object, b.Object)
}

// next returns what is closed at the next change of a resource.
func (s *store) next(resource schema.GroupResource) <-chan struct{} {
	if s.changed[resource] == nil {
		s.changed[resource] = make(chan struct{})
	}
	return s.changed[resource]
}

// since returns the changes after version, false if they are forgotten.
func (s *store) since(version int64) ([]change, bool) {
	if version < s.compacted {
		return nil, false
	}
	at, _ := slices.BinarySearchFunc(s.history, version+1, func(c change, v int64) int { return cmp.Compare(c.version, v) })
	return s.history[at:], true
}

// list returns the objects of a resource in order, of all namespaces if namespace is empty.
func (s *store) list(resource schema.GroupResource, namespace string) []*Object {
	var keys []key
	for k := range s.objects {
		if k.resource == resource && (namespace == "" || k.namespace == namespace) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, key.compare)
	found := make([]*Object, 0, len(keys))
	for _, k := range keys {
		found = append(found, s.objects[k])
	}
	return found
}

// find returns the key of the object with a UID.
func (s *store) find(uid types.UID) (key, bool) {
	for k, o := range s.objects {
		if o.GetUID() == uid {
			return k, true
		}
	}
	return key{}, false
}

// owned returns the keys of the objects that have an owner, in order.
func (s *store) owned(owner types.UID) []key {
	var found []key
	for k, o := range s.objects {
		if slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == owner }) {
			found = append(found, k)
		}
	}
	slices.SortFunc(found, key.compare)
	return found
}

// past returns the objects of a resource as they were after the change of a version, of which the history must know what came since.
func (s *store) past(resource schema.GroupResource, namespace string, version int64) []*Object {
	then := store{objects: maps.Clone(s.objects)}
	changes, _ := s.since(version)
	for _, c := range slices.Backward(changes) {
		if then.objects[c.key] = c.before; c.before == nil {
			delete(then.objects, c.key)
		}
	}
	return then.list(resource, namespace)
}
