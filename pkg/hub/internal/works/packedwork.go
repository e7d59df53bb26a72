package works

import (
	"strings"
	"sync"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/compress"
)

// packedWork is a packed work in the memory of an informer: about 0.6 KB for one whose objects are like
// those of others. It is immutable, but for what it remembers.
type packedWork struct {
	namespace string // one for all works of it
	// uid is a string of its own: tables that are keyed by it outlive this version of the work.
	uid  types.UID
	data string // name, resource version, head, spec, status, one after the other
	ends [4]uint32

	mu sync.Mutex
	// recent is the work as it was last returned, for as long as somebody uses it: handlers of an
	// event share one. guarded by mu
	recent weak.Pointer[workv1.ManifestWork]
}

// hold returns work as a *packedWork, which shares no memory with it; or work itself, packed as far as it
// can be, if it is not one that an API server sends. It packs work.
func hold(work *workv1.ManifestWork) any {
	pack(work)
	c := contentOf(work)
	if c == nil {
		return work
	}
	var buffer [1024]byte
	head, ok := appendHead(buffer[:0], work)
	if !ok {
		return work
	}
	uid := types.UID(strings.Clone(string(work.UID))) // it may be part of a whole event
	w := &packedWork{namespace: known.canonical(work.Namespace), uid: uid, recent: weak.Make(work)}
	data := make([]byte, 0, len(work.Name)+len(work.ResourceVersion)+len(head)+len(c.spec)+len(c.status))
	for i, part := range []string{work.Name, work.ResourceVersion, string(head), string(c.spec)} {
		data = append(data, part...)
		w.ends[i] = uint32(len(data))
	}
	w.data = string(append(data, c.status...))
	return w
}

// GetObjectMeta returns namespace, name, UID and resource version.
func (w *packedWork) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: w.namespace, Name: w.data[:w.ends[0]], UID: w.uid, ResourceVersion: w.ResourceVersion()}
}

// UID implements [controller.Held].
func (w *packedWork) UID() types.UID { return w.uid }

// Key implements [controller.Held].
func (w *packedWork) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: w.namespace, Name: w.data[:w.ends[0]]}
}

// ResourceVersion implements [controller.Held].
func (w *packedWork) ResourceVersion() string { return w.data[w.ends[0]:w.ends[1]] }

// Object returns the packed work, which must not be modified. It costs about 1 µs if nobody uses it
// at the moment. UID, resource version and namespace may be kept; a label or the name keeps all of the
// work in memory, unless it is cloned.
func (w *packedWork) Object() *workv1.ManifestWork {
	w.mu.Lock()
	defer w.mu.Unlock()
	if work := w.recent.Value(); work != nil {
		return work
	}
	work := &workv1.ManifestWork{}
	work.Namespace, work.Name, work.UID = w.namespace, w.data[:w.ends[0]], w.uid
	work.ResourceVersion = strings.Clone(w.data[w.ends[0]:w.ends[1]])
	readHead(w.data[w.ends[1]:w.ends[2]], work)
	setContent(work, &content{spec: compress.Data(w.data[w.ends[2]:w.ends[3]]), status: compress.Data(w.data[w.ends[3]:])})
	w.recent = weak.Make(work)
	return work
}
