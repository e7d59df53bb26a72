package inbox

import (
	"maps"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// Entry is a work as it is held. It is shared and never changes: read only.
type Entry struct {
	Key
	// Cluster that the work is for, as its last event says.
	Cluster wire.ClusterName
	// Generation of Spec, or of the deletion; 0 when the source keeps no
	// versions, and when no spec was good so far.
	Generation wire.Generation
	// Meta is the work's metadata as it goes into status events: name, namespace
	// and creation time from the first event that gave them, labels and
	// annotations from the last one, the original source as a label, the data
	// type as an annotation, and the agent's finalizer (docs/protocol.md,
	// Extensions). kubectl's last-applied annotation is left out.
	Meta metav1.ObjectMeta
	// Spec is in force. It has no manifests when none was good so far.
	Spec workv1.ManifestWorkSpec
	// Deleting is when the work was deleted, nil while it is not. A work that is
	// being deleted stays so.
	Deleting *metav1.Time
	// Refusal is set when a spec later than Spec could not be decoded. Spec stays
	// in force; the work's Applied condition is to say what is wrong.
	Refusal *Refusal
	// Trace is the `logtracing` extension of the last event.
	Trace string
}

// Refusal says which spec of a work was refused, and why.
type Refusal struct {
	// Generation of the refused spec, 0 when it could not be read.
	Generation wire.Generation `json:"generation,omitempty"`
	// Message is the decoder's, for the work's condition: at most 4096 bytes.
	Message string `json:"message"`
}

// HasSpec reports whether a spec is in force: e has manifests.
func (e *Entry) HasSpec() bool { return len(e.Spec.Workload.Manifests) > 0 }

// seen is the latest generation that was received, be it in force or refused.
func (e *Entry) seen() wire.Generation {
	if e.Refusal != nil && e.Refusal.Generation > e.Generation {
		return e.Refusal.Generation
	}
	return e.Generation
}

// maxMessage bounds Refusal.Message.
const maxMessage = 4096

// lastApplied is where kubectl keeps a copy of the whole object. Nobody reads it
// from a status event, and it can outgrow what an event's attribute may hold.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// accept gives the entry that the good spec in makes of held, which may be nil.
func accept(held *Entry, in *wire.Spec) *Entry {
	return &Entry{
		Key:        Key{in.Source, in.UID},
		Cluster:    in.Cluster,
		Generation: in.Generation,
		Meta:       heldMeta(held, in),
		Spec:       in.Bundle.WorkSpec(),
		Trace:      in.Trace,
	}
}

// bury gives the entry that the deletion in makes of held. The first deletion's
// time stays; the generation is the source's word in any case, since it drops
// statuses of a later one.
func bury(held *Entry, in *wire.Spec) *Entry {
	e := *held
	e.Generation = in.Generation
	e.Refusal = nil
	e.Trace = in.Trace
	if e.Deleting == nil {
		e.Deleting = in.DeletionTimestamp
	}
	e.Meta.Generation = int64(in.Generation)
	e.Meta.DeletionTimestamp = e.Deleting
	return &e
}

// refuse gives the entry that an undecodable spec makes of held, which may be
// nil.
func refuse(held *Entry, in *wire.Spec, refusal Refusal) *Entry {
	if held == nil {
		e := &Entry{Key: Key{in.Source, in.UID}, Cluster: in.Cluster, Meta: heldMeta(nil, in), Refusal: &refusal, Trace: in.Trace}
		return e
	}
	e := *held
	e.Refusal = &refusal
	e.Trace = in.Trace
	return &e
}

func refusalOf(failure *wire.DecodeError) Refusal {
	message := failure.Err.Error()
	if len(message) > maxMessage {
		const dots = "…"
		cut := maxMessage - len(dots)
		for !utf8.RuneStart(message[cut]) {
			cut--
		}
		message = message[:cut] + dots
	}
	return Refusal{Generation: failure.Spec.Generation, Message: message}
}

// Meta gives the metadata that a work first heard of by in would be held with,
// see [Entry].
func Meta(in *wire.Spec) metav1.ObjectMeta { return heldMeta(nil, in) }

// heldMeta gives the metadata to hold after the event in. A work keeps its name:
// its AppliedManifestWork is named after it.
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
	delete(meta.Annotations, lastApplied) // with has made a copy
	return meta
}

// with gives a copy of m that has key set.
func with(m map[string]string, key, value string) map[string]string {
	grown := make(map[string]string, len(m)+1)
	maps.Copy(grown, m)
	grown[key] = value
	return grown
}
