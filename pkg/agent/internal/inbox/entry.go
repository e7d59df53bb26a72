package inbox

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/security/sealing"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

// Entry is a work in the inbox. It is shared and immutable. Its JSON is that of [storedEntry], which adds the spec.
type Entry struct {
	Key
	// Cluster of the work, from its last event.
	Cluster wire.ClusterName `json:"cluster"`
	// Generation of Spec, or of the deletion. It is 0 if the source does not use generations, and
	// before the first valid spec.
	Generation wire.Generation `json:"generation,omitempty"`
	// SourceIdentity is the identity of the source that sent Spec; empty if it has none.
	SourceIdentity string `json:"sourceIdentity,omitempty"`
	// ContentHash is that of the event with Spec; empty if it had none.
	ContentHash string `json:"contentHash,omitempty"`
	// Meta is the work's metadata for status events: name, namespace and creation time from the
	// first event that had them, labels and annotations from the last one, the original source as a
	// label, the data type as an annotation, and the agent's finalizer (docs/protocol.md,
	// Extensions). kubectl's last-applied annotation is removed.
	Meta metav1.ObjectMeta `json:"metadata"`
	// Spec in force. It has no manifests before the first valid spec.
	Spec workv1.ManifestWorkSpec `json:"-"`
	// Deleting is the time of the deletion, or nil. A deletion is never undone.
	Deleting *metav1.Time `json:"deleting,omitempty"`
	// Hold is set if the source does not know the work any more, and the agent keeps it all the
	// same. A spec of the work or its recorded deletion ends the hold, and so does [Inbox.Release].
	Hold *Hold `json:"hold,omitempty"`
	// Refusal is set if a spec newer than Spec could not be decoded. Spec stays in force, and the
	// work's Applied condition reports the error.
	Refusal *Refusal `json:"refusal,omitempty"`
	// Distrust is set if an event of the work was refused because of its signature, after which none
	// was accepted: the reason, for condition SpecUntrusted.
	Distrust string `json:"distrust,omitempty"`
	// Trace is the `logtracing` extension of the last event.
	Trace string `json:"trace,omitempty"`
	// Sealed reports whether Spec arrived sealed. It is then not in clear on disk, and no hash of it is
	// sent to anybody.
	Sealed bool `json:"-"`
	// Received is when Spec arrived, or the deletion; zero if it did before the agent started.
	Received time.Time `json:"-"`
}

// Refusal describes a spec that could not be decoded.
type Refusal struct {
	// Generation of the refused spec, 0 if it is unknown.
	Generation wire.Generation `json:"generation,omitempty"`
	// ContentHash is that of the refused event; empty if it had none.
	ContentHash string `json:"contentHash,omitempty"`
	// Reason of the work's condition; empty for InvalidManifestWork.
	Reason string `json:"reason,omitempty"`
	// Message of the decoder for the work's condition, at most 4096 bytes.
	Message string `json:"message"`
}

// HasSpec reports whether a spec is in force.
func (e *Entry) HasSpec() bool { return len(e.Spec.Workload.Manifests) > 0 }

// latestGeneration returns the highest generation of e that was received, in force or refused; 0 if
// e is nil.
func latestGeneration(e *Entry) wire.Generation {
	switch {
	case e == nil:
		return 0
	case e.Refusal != nil && e.Refusal.Generation > e.Generation:
		return e.Refusal.Generation
	default:
		return e.Generation
	}
}

// maxMessage bounds Refusal.Message.
const maxMessage = 4096

// lastApplied is the annotation in which kubectl keeps a copy of the whole object. It is of no use
// in a status event and can exceed the maximum size of an event's attribute.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// newEntry returns the entry after the valid spec in. held, which may be nil, is the entry before.
func newEntry(held *Entry, in *wire.Spec) *Entry {
	e := &Entry{
		Key:            Key{in.Source, in.UID},
		Cluster:        in.Cluster,
		Generation:     in.Generation,
		SourceIdentity: in.SourceIdentity,
		ContentHash:    in.ContentHash,
		Meta:           heldMeta(held, in),
		Spec:           in.Bundle.WorkSpec(),
		Trace:          in.Trace,
		Sealed:         in.Sealed,
	}
	if held != nil {
		e.SourceIdentity = cmp.Or(e.SourceIdentity, held.SourceIdentity)
	}
	return e
}

// heldEntry returns held after the event in, whose source does not know the work.
func heldEntry(held *Entry, in *wire.Spec, reason string) *Entry {
	e := *held
	e.Hold, e.Distrust = &Hold{Reason: reason, Generation: in.Generation}, ""
	return &e
}

// keptEntry returns held after its source has shown that it knows the work.
func keptEntry(held *Entry) *Entry {
	e := *held
	e.Hold, e.Distrust = nil, ""
	return &e
}

// deletedEntry returns held after the deletion in. It keeps the time of the first deletion, but
// takes the generation of the last one, because the source ignores statuses of other generations.
func deletedEntry(held *Entry, in *wire.Spec) *Entry {
	e := *held
	e.Generation = in.Generation
	e.Refusal, e.Hold, e.Distrust = nil, nil, ""
	e.Trace = in.Trace
	if e.Deleting == nil {
		e.Deleting = in.DeletionTimestamp
	}
	e.Meta.Generation = int64(in.Generation)
	e.Meta.DeletionTimestamp = e.Deleting
	return &e
}

// refusedEntry returns held, which may be nil, after a spec that could not be decoded.
func refusedEntry(held *Entry, in *wire.Spec, refusal Refusal) *Entry {
	if held == nil {
		return &Entry{Key: Key{in.Source, in.UID}, Cluster: in.Cluster, Meta: heldMeta(nil, in), Refusal: &refusal, Trace: in.Trace}
	}
	e := *held
	e.Refusal, e.Hold, e.Distrust = &refusal, nil, ""
	e.Trace = in.Trace
	return &e
}

// distrustedEntry returns held after an event that was refused because of its signature, or after
// one that was accepted, for which reason is empty.
func distrustedEntry(held *Entry, reason string) *Entry {
	e := *held
	e.Distrust = reason
	return &e
}

// overhead is about what an entry takes besides its texts, in bytes.
const overhead = 1 << 10

// overheadOfRule is that of an orphaning rule: four strings.
const overheadOfRule = 64

// size returns about how many bytes e takes in memory. Labels and annotations count, although works mostly share them.
func (e *Entry) size() int64 {
	size := overhead + len(e.UID) + len(e.Meta.Name) + len(e.Meta.Namespace) + len(e.SourceIdentity) + len(e.ContentHash) + len(e.Trace) + len(e.Distrust)
	for _, m := range []map[string]string{e.Meta.Labels, e.Meta.Annotations} {
		for key, value := range m {
			size += len(key) + len(value)
		}
	}
	for _, m := range e.Spec.Workload.Manifests {
		size += len(m.Raw)
	}
	if len(e.Spec.ManifestConfigs) > 0 {
		if text, err := json.Marshal(e.Spec.ManifestConfigs); err == nil {
			size += len(text)
		}
	}
	size += sizeOfDeleteOption(e.Spec.DeleteOption)
	if executor := e.Spec.Executor; executor != nil {
		size += len(executor.Subject.Type)
		if account := executor.Subject.ServiceAccount; account != nil {
			size += len(account.Namespace) + len(account.Name)
		}
	}
	if e.Refusal != nil {
		size += len(e.Refusal.Message) + len(e.Refusal.ContentHash) + len(e.Refusal.Reason)
	}
	return int64(size)
}

// sizeOfDeleteOption counts what rules take besides their texts too: a source can send many without any.
func sizeOfDeleteOption(o *workv1.DeleteOption) int {
	if o == nil {
		return 0
	}
	size := len(o.PropagationPolicy)
	if o.SelectivelyOrphan != nil {
		for _, rule := range o.SelectivelyOrphan.OrphaningRules {
			size += overheadOfRule + len(rule.Group) + len(rule.Resource) + len(rule.Namespace) + len(rule.Name)
		}
	}
	return size
}

// fullRefusal is the refusal of a spec for which there is no room.
func (b *Inbox) fullRefusal(in *wire.Spec) Refusal {
	return Refusal{
		Generation: in.Generation, ContentHash: in.ContentHash, Reason: workv1.ReasonTooManySpecs,
		Message: fmt.Sprintf("the agent holds as many specs of source %s as it may, %d bytes: delete works of this cluster, or raise --max-source-specs of the agent", in.Source, b.config.MaxSource),
	}
}

func refusalOf(failure *wire.DecodeError) Refusal {
	return Refusal{
		Generation: failure.Spec.Generation, ContentHash: failure.Spec.ContentHash, Reason: unsealReason(failure),
		Message: condition.Shorten(failure.Err.Error(), maxMessage),
	}
}

// unsealReason returns the reason of a spec that could not be opened, "" for other failures.
func unsealReason(failure *wire.DecodeError) string {
	var closed *sealing.OpenError
	switch {
	case !errors.As(failure, &closed):
		return ""
	case closed.Reason == sealing.UnknownKey:
		return workv1.ReasonNoUnsealKey
	case closed.Reason == sealing.Clear:
		return workv1.ReasonNotSealed
	default:
		return workv1.ReasonInvalidSeal
	}
}

// Meta returns the metadata of a work whose first event is in, see [Entry].
func Meta(in *wire.Spec) metav1.ObjectMeta { return heldMeta(nil, in) }

// heldMeta returns the metadata of held after the event in. A work keeps its name, because its
// AppliedManifestWork is named after it.
func heldMeta(held *Entry, in *wire.Spec) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{
		Name:              in.Meta.Name,
		Namespace:         in.Meta.Namespace,
		UID:               in.UID,
		Generation:        int64(in.Generation),
		CreationTimestamp: in.Meta.CreationTimestamp,
		Labels:            in.Meta.Labels,
		Annotations:       in.Meta.Annotations,
		Finalizers:        []string{workv1.ManifestWorkFinalizer},
	}
	if held != nil {
		meta.Name, meta.Namespace, meta.CreationTimestamp = held.Meta.Name, held.Meta.Namespace, held.Meta.CreationTimestamp
		if in.NoMetadata {
			meta.Labels, meta.Annotations = held.Meta.Labels, held.Meta.Annotations
		}
	}
	meta.Labels = with(meta.Labels, workv1.OriginalSourceLabelKey, string(in.Source))
	meta.Annotations = with(meta.Annotations, workv1.DataTypeAnnotationKey, wire.ManifestBundles.String())
	delete(meta.Annotations, lastApplied) // a copy
	return meta
}

// with returns a copy of m in which key is set.
func with(m map[string]string, key, value string) map[string]string {
	grown := make(map[string]string, len(m)+1)
	maps.Copy(grown, m)
	grown[key] = value
	return grown
}
