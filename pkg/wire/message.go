package wire

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// Message is the content of an event: *[Spec], *[SpecDelta], *[Status], *[StatusDelta], *[SpecResync], *[StatusResync],
// *[Presence], *[Digest], *[Instance], *[DryRun] or *[DryRunAnswer].
type Message interface {
	// eventType returns the `type` attribute, or an error if a required field is not set or the
	// action is invalid for the kind of message.
	eventType() (EventType, error)
}

// Spec is a work's spec, or its deletion, sent by a source to an agent (docs/protocol.md, Specs).
type Spec struct {
	// UID identifies the work; required.
	UID types.UID
	// Generation is that of the spec; 0 if the source does not version its works.
	Generation Generation
	// Source is the source of the work, the event's `source`; required.
	Source SourceID
	// Cluster is the target cluster; required.
	Cluster ClusterName
	// Action is Create, Update, Delete or ResyncResponse.
	Action Action
	// Meta is the work's metadata. For an event without metadata, Decode sets its name and UID to
	// UID, and NoMetadata.
	Meta metav1.ObjectMeta
	// NoMetadata reports whether the event has no metadata, as sent by a source for an id that it
	// does not have.
	NoMetadata bool
	// DeletionTimestamp is set on a deletion, which has no Bundle.
	DeletionTimestamp *metav1.Time
	// Bundle is the spec; nil on a deletion.
	Bundle *Bundle
	// Trace is the `logtracing` extension, a JSON map; it may be empty.
	Trace string
	// SourceIdentity identifies the memory of the source: it changes when the source has lost what
	// it knew. At most 64 characters a-z, 0-9 and -; empty if the source has none.
	SourceIdentity string
	// ContentHash is the [ContentHash] of Bundle, empty if the event has none. Encode computes it
	// if it is empty and SourceIdentity is set.
	ContentHash string
	// Authoritative tells the agent to take the spec although its generation is not higher than the
	// one that the agent holds.
	Authoritative bool
	// Accepts is what the source can read.
	Accepts Accepts
	// Sealed reports that the data was sealed (docs/protocol.md, Sealed data). It is not part of the
	// event: who has opened the data sets it.
	Sealed bool
}

// IsDeletion reports whether s is a deletion.
func (s *Spec) IsDeletion() bool { return s.DeletionTimestamp != nil }

// Bundle is the data of a spec event (docs/protocol.md, Data).
type Bundle struct {
	Manifests       []workv1.Manifest             `json:"manifests"`
	DeleteOption    *workv1.DeleteOption          `json:"deleteOption,omitempty"`
	ManifestConfigs []workv1.ManifestConfigOption `json:"manifestConfigs,omitempty"`
	// Executer is the work's executor; the spelling is the protocol's.
	Executer *workv1.ManifestWorkExecutor `json:"executer,omitempty"`
}

// NewBundle returns the bundle of spec. It shares memory with spec.
func NewBundle(spec *workv1.ManifestWorkSpec) *Bundle {
	return &Bundle{
		Manifests:       spec.Workload.Manifests,
		DeleteOption:    spec.DeleteOption,
		ManifestConfigs: spec.ManifestConfigs,
		Executer:        spec.Executor,
	}
}

// WorkSpec returns the spec in b. It shares memory with b.
func (b *Bundle) WorkSpec() workv1.ManifestWorkSpec {
	return workv1.ManifestWorkSpec{
		Workload:        workv1.ManifestsTemplate{Manifests: b.Manifests},
		DeleteOption:    b.DeleteOption,
		ManifestConfigs: b.ManifestConfigs,
		Executor:        b.Executer,
	}
}

// Status is a work's status, sent by an agent to the work's source (docs/protocol.md, Statuses).
type Status struct {
	// UID identifies the work; required.
	UID types.UID
	// Generation is that of the spec that the status is about.
	Generation Generation
	// Source is the source of the work: the `originalsource` extension.
	Source SourceID
	// Cluster is the reporting cluster; required.
	Cluster ClusterName
	// Agent is the client id of the reporting agent: the event's `source`.
	Agent string
	// Action is Create, Update or ResyncResponse.
	Action Action
	// Meta is the metadata of the work that the agent holds.
	Meta metav1.ObjectMeta
	// Sequence orders the statuses of one agent; 0 if the event has none.
	Sequence SequenceID
	// Session identifies the connection that the agent sent the status on, like that of a
	// [Presence]. At most 64 characters a-z, 0-9 and -; empty if the event has none.
	Session string
	// Hash is the [StatusHash] of Status. Encode computes it if it is empty.
	Hash string
	// Status is the work's status.
	Status workv1.ManifestWorkStatus
	// Trace is the `logtracing` extension of the spec.
	Trace string
	// Times are those of the spec on the cluster.
	Times Times
	// Accepts is what the agent can read.
	Accepts Accepts
}

// Times says when the spec that a status is about got how far, by the agent's clock. A zero time is
// not known, or not reached.
type Times struct {
	// Received is when the agent received the spec.
	Received metav1.MicroTime
	// Applied is when the agent had first applied all of its manifests.
	Applied metav1.MicroTime
	// Ready is when its objects last became ready; zero while they are not.
	Ready metav1.MicroTime
}

// SpecResync requests the specs that the agent lacks, from one source or all (docs/protocol.md,
// Spec resync).
type SpecResync struct {
	// Agent is the client id of the requesting agent: the event's `source`; required.
	Agent string
	// Cluster is the requesting cluster; required.
	Cluster ClusterName
	// Source is the requested source; empty for all.
	Source SourceID
	// Versions lists the specs that the agent holds; empty requests everything.
	Versions []SpecVersion
	// Partial: Versions lists only what to answer. Works that it leaves out are not sent, and a
	// generation of 0 means that the agent does not hold the work.
	Partial bool
	// Accepts is what the agent can read.
	Accepts Accepts
	// Expires is when the broker may drop the request; zero: never.
	Expires time.Time
}

// SpecVersion is the version of a spec that an agent holds.
type SpecVersion struct {
	UID        types.UID  `json:"resourceID"`
	Generation Generation `json:"resourceVersion"`
	// ContentHash is that of the spec, empty if the source sent none.
	ContentHash string `json:"contentHash,omitempty"`
	// Probe marks a work that no source has, whose deletion is the answer to the request. Agents do
	// not report on it.
	Probe bool `json:"probe,omitempty"`
}

// StatusResync requests the statuses that the source lacks, from one agent or all
// (docs/protocol.md, Status resync).
type StatusResync struct {
	// Source is the requesting source: the event's `source`; required.
	Source SourceID
	// Cluster is the requested cluster; empty for all.
	Cluster ClusterName
	// Hashes lists the statuses that the source has; empty requests everything, unless Buckets is
	// set. Works that a non-empty list does not contain are not sent.
	Hashes []StatusVersion
	// Buckets is set if Hashes lists all works of these buckets, with the specs that the agent
	// should hold (docs/protocol.md, Digest).
	Buckets *Buckets
	// SourceIdentity is like that of a [Spec].
	SourceIdentity string
	// Accepts is what the source can read.
	Accepts Accepts
	// Reply reports whether the source sends the request because the agent has asked for specs, so
	// that the agent must not ask for specs because of it.
	Reply bool
}

// NoStatus is a hash that no status has: it requests the status of a work whatever it is, also of a
// work that the source does not know.
const NoStatus = "none"

// StatusVersion is the hash of a status that a source has.
type StatusVersion struct {
	UID  types.UID `json:"resourceID"`
	Hash string    `json:"statusHash"`
	// Generation, ContentHash and Deleting describe the spec that the agent should hold, in a
	// request with Buckets. The hash is empty if the source does not know it.
	Generation  Generation `json:"resourceVersion,omitempty"`
	ContentHash string     `json:"contentHash,omitempty"`
	Deleting    bool       `json:"deleting,omitempty"`
}

// Presence tells sources that an agent has connected or disconnected (docs/protocol.md, Presence).
type Presence struct {
	// Agent is the client id of the agent: the event's `source`; required.
	Agent string
	// Cluster is the cluster of the agent; required.
	Cluster ClusterName
	// Source is the addressed source; empty for all.
	Source SourceID
	// Session identifies the connection of the agent, so that the end of an earlier connection is
	// not taken for the end of a later one; required.
	Session string
	// Present reports whether the agent is connected; otherwise the connection has ended.
	Present bool
}

// Digest tells a source in short what an agent holds of it, so that both notice what messages were
// lost (docs/protocol.md, Digest).
type Digest struct {
	// Agent is the client id of the agent: the event's `source`; required.
	Agent string
	// Cluster is the cluster of the agent; required.
	Cluster ClusterName
	// Source is the source of the works; required.
	Source SourceID
	// Buckets are the digests of the works by [Bucket]; 1 to [MaxDigestBuckets].
	Buckets []BucketDigest
	// Expires is when the broker may drop the digest; zero: never.
	Expires time.Time
}
