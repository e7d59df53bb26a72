package kubeapi

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// CollectLate has the garbage collector look at an object of that name so much later from now on; nil: at once.
func (s *Server) CollectLate(late func(name string) time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late = late
}

// collect has the garbage collector look at what a change concerns: an object whose owners may not exist, what an object owned that is
// gone, or that is to go after it (foreground), and owners that wait for an object.
func (s *Server) collect(k key, c change) {
	switch {
	case c.after == nil:
		s.lookAt(s.store.owned(c.before.GetUID())...)
		for _, owner := range c.before.GetOwnerReferences() {
			if at, found := s.store.find(owner.UID); found && waits(s.store.objects[at]) {
				s.lookAt(at)
			}
		}
	case waits(c.after):
		s.lookAt(append(s.store.owned(c.after.GetUID()), k)...)
	case len(c.after.GetOwnerReferences()) > 0:
		s.lookAt(k)
	}
}

// lookAt has the garbage collector look at objects, at once or later.
func (s *Server) lookAt(keys ...key) {
	for _, k := range keys {
		var late time.Duration
		if s.late != nil {
			late = s.late(k.name)
		}
		switch {
		case late == 0:
			s.gather(k)
		case !s.due[k]:
			s.due[k] = true
			time.AfterFunc(late, func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				delete(s.due, k)
				s.gather(k)
			})
		}
	}
}

// gather removes an object that nobody owns any more, and the finalizer of one that waits for nothing that it owns.
func (s *Server) gather(k key) {
	o := s.store.objects[k]
	switch {
	case o == nil:
	case waits(o):
		if !slices.ContainsFunc(s.store.owned(o.GetUID()), func(dependent key) bool { return blocks(s.store.objects[dependent], o.GetUID()) }) {
			s.endWait(k, o)
		}
	case o.GetDeletionTimestamp() == nil:
		owners := o.GetOwnerReferences()
		exist := slices.DeleteFunc(slices.Clone(owners), func(r metav1.OwnerReference) bool {
			at, found := s.store.find(r.UID)
			return !found || waits(s.store.objects[at])
		})
		switch {
		case len(exist) == len(owners):
		case len(exist) == 0:
			s.remove("", s.kindOf(k), k)
		default:
			after := o.DeepCopy()
			after.SetOwnerReferences(exist)
			s.put("", s.kindOf(k), k, after)
		}
	}
}

// endWait removes the finalizer of an object that has waited for what it owns.
func (s *Server) endWait(k key, o *Object) {
	after := o.DeepCopy()
	after.SetFinalizers(slices.DeleteFunc(after.GetFinalizers(), func(f string) bool { return f == metav1.FinalizerDeleteDependents }))
	if len(after.GetFinalizers()) == 0 {
		after = nil
	}
	s.put("", s.kindOf(k), k, after)
}

// waits reports whether an object is being deleted in the foreground: what it owns goes first.
func waits(o *Object) bool {
	return o.GetDeletionTimestamp() != nil && slices.Contains(o.GetFinalizers(), metav1.FinalizerDeleteDependents)
}

// blocks reports whether an owner that is being deleted in the foreground waits for an object.
func blocks(o *Object, owner types.UID) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool {
		return r.UID == owner && r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion
	})
}
