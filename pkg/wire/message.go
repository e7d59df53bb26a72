package wire

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// Message is what an event says: *[Spec], *[Status], *[SpecResync],
// *[StatusResync] or *[Presence].
type Message interface {
	// eventType gives the `type` attribute, or an error when the message's
	// action is not one that its kind may have.
	eventType() (EventType, error)
}

// Spec carries a work's spec, or its deletion, from a source to an agent
// (docs/protocol.md, Specs).
type Spec struct {
	// UID identifies the work for ever; required.
	UID types.UID
	// Generation of the spec; 0 means that the source keeps no versions.
	Generation Generation
	// Source that the work belongs to: the event's `source`; required.
	Source SourceID
	// Cluster that the work is for; required.
	Cluster ClusterName
	// Action is Create, Update, Delete or ResyncResponse.
	Action Action
	// Meta is the work's metadata. An event without it decodes to a Meta whose
	// name and UID are UID, and NoMetadata is set.
	Meta metav1.ObjectMeta
	// NoMetadata reports that the event carried no metadata: what a source sends for
	// an id that it does not have.
	NoMetadata bool
	// DeletionTimestamp is set on a deletion, which carries no Bundle.
	DeletionTimestamp *metav1.Time
	// Bundle is the spec; nil on a deletion.
	Bundle *Bundle
	// Trace is the `logtracing` extension as it came, a JSON map; it may be
	// empty.
	Trace string
}

// IsDeletion reports whether s asks for the work to be deleted.
func (s *Spec) IsDeletion() bool { return s.DeletionTimestamp != nil }

// Bundle is the data of a spec event (docs/protocol.md, Data).
type Bundle struct {
	Manifests       []workv1.Manifest             `json:"manifests"`
	DeleteOption    *workv1.DeleteOption          `json:"deleteOption,omitempty"`
	ManifestConfigs []workv1.ManifestConfigOption `json:"manifestConfigs,omitempty"`
	// Executer is the work's executor; the spelling is the protocol's.
	Executer *workv1.ManifestWorkExecutor `json:"executer,omitempty"`
}

// NewBundle returns the bundle that carries spec. It shares memory with spec.
func NewBundle(spec *workv1.ManifestWorkSpec) *Bundle {
	return &Bundle{
		Manifests:       spec.Workload.Manifests,
		DeleteOption:    spec.DeleteOption,
		ManifestConfigs: spec.ManifestConfigs,
		Executer:        spec.Executor,
	}
}

// WorkSpec gives the spec that b carries. It shares memory with b.
func (b *Bundle) WorkSpec() workv1.ManifestWorkSpec {
	return workv1.ManifestWorkSpec{
		Workload:        workv1.ManifestsTemplate{Manifests: b.Manifests},
		DeleteOption:    b.DeleteOption,
		ManifestConfigs: b.ManifestConfigs,
		Executor:        b.Executer,
	}
}

// Status carries a work's status from an agent to the work's source
// (docs/protocol.md, Statuses).
type Status struct {
	// UID of the work; required.
	UID types.UID
	// Generation of the spec that the status is about.
	Generation Generation
	// Source that the work came from: the `originalsource` extension.
	Source SourceID
	// Cluster that reports.
	Cluster ClusterName
	// Agent is the client id of the reporting agent: the event's `source`.
	Agent string
	// Action is Create, Update or ResyncResponse.
	Action Action
	// Meta is the work's metadata as the agent holds it.
	Meta metav1.ObjectMeta
	// Sequence orders the statuses of one agent; 0 when the event has none.
	Sequence SequenceID
	// Hash is [StatusHash] of Status. Encode computes it when it is empty.
	Hash string
	// Status is the work's status.
	Status workv1.ManifestWorkStatus
	// Trace is the `logtracing` extension of the spec, carried through.
	Trace string
}

// SpecResync asks a source, or all of them, for the specs that the agent is
// missing (docs/protocol.md, Spec resync).
type SpecResync struct {
	// Agent is the client id of the asking agent: the event's `source`.
	Agent string
	// Cluster that asks; required.
	Cluster ClusterName
	// Source that is asked; empty asks all.
	Source SourceID
	// Versions lists what the agent holds; empty asks for everything.
	Versions []SpecVersion
}

// SpecVersion names a spec that an agent holds.
type SpecVersion struct {
	UID        types.UID  `json:"resourceID"`
	Generation Generation `json:"resourceVersion"`
}

// StatusResync asks an agent, or all of them, for the statuses that the source
// is missing (docs/protocol.md, Status resync).
type StatusResync struct {
	// Source that asks: the event's `source`; required.
	Source SourceID
	// Cluster that is asked; empty asks all.
	Cluster ClusterName
	// Hashes lists what the source holds; empty asks for everything. A work that
	// a non-empty list leaves out is not sent.
	Hashes []StatusVersion
}

// StatusVersion names a status that a source holds.
type StatusVersion struct {
	UID  types.UID `json:"resourceID"`
	Hash string    `json:"statusHash"`
}

// Presence tells sources that an agent has come or gone (docs/protocol.md,
// Presence).
type Presence struct {
	// Agent is the client id of the agent: the event's `source`; required.
	Agent string
	// Cluster that it serves; required.
	Cluster ClusterName
	// Source that is told; empty tells all.
	Source SourceID
	// Session tells the agent's connections apart: the end of one says nothing
	// about a later one; required.
	Session string
	// Present says that the agent is there; otherwise that connection has ended.
	Present bool
}
