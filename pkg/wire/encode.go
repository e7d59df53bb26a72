package wire

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// Extension names (docs/protocol.md, Extensions).
const (
	extResourceID        = "resourceid"
	extResourceVersion   = "resourceversion"
	extClusterName       = "clustername"
	extOriginalSource    = "originalsource"
	extMetadata          = "metadata"
	extDeletionTimestamp = "deletiontimestamp"
	extSequenceID        = "sequenceid"
	extStatusHash        = "statushash"
	extLogTracing        = "logtracing"
	extSourceIdentity    = "sourceidentity"
	extContentHash       = "contenthash"
	extAuthoritative     = "authoritative"
	extSession           = "session"
	extExpiryTime        = "expirytime"
	extReceivedTime      = "receivedtime"
	extAppliedTime       = "appliedtime"
	extReadyTime         = "readytime"
	extAccepts           = "accepts"
)

// ContentHashOf returns the [ContentHash] in the event of a spec, empty if it has none.
func ContentHashOf(e cloudevents.Event) string {
	return extensions(e.Extensions()).text(extContentHash)
}

const contentType = "application/json"

// statusData is the data of a status event (docs/protocol.md, Data).
type statusData struct {
	Conditions     []metav1.Condition         `json:"conditions,omitempty"`
	ResourceStatus []workv1.ManifestCondition `json:"resourceStatus,omitempty"`
}

type presenceData struct {
	Present bool   `json:"present"`
	Session string `json:"session"`
}

type specResyncData struct {
	ResourceVersions []SpecVersion `json:"resourceVersions"`
	Partial          bool          `json:"partial,omitempty"`
}

type statusResyncData struct {
	StatusHashes []StatusVersion `json:"statusHashes"`
	Reply        bool            `json:"reply,omitempty"`
	Buckets      *Buckets        `json:"buckets,omitempty"`
}

// Encode returns the event for m, with a new id and the time now. It returns an error if a required
// field of m is not set.
func Encode(m Message, now time.Time) (cloudevents.Event, error) {
	eventType, err := m.eventType()
	if err != nil {
		return cloudevents.Event{}, err
	}
	e := cloudevents.New()
	e.SetID(uuid.NewString())
	e.SetType(eventType.String())
	e.SetTime(now)
	switch m := m.(type) {
	case *Spec:
		err = m.encode(&e)
	case *SpecDelta:
		err = m.encode(&e)
	case *Status:
		err = m.encode(&e)
	case *StatusDelta:
		err = m.encode(&e)
	case *SpecResync:
		setSender(&e, m.Agent, m.Cluster, m.Source)
		setText(&e, extAccepts, m.Accepts.String())
		setExpiry(&e, m.Expires)
		err = setData(&e, specResyncData{ResourceVersions: orEmpty(m.Versions), Partial: m.Partial})
	case *Digest:
		setSender(&e, m.Agent, m.Cluster, m.Source)
		setExpiry(&e, m.Expires)
		err = setData(&e, digestDataOf(m.Buckets))
	case *Presence:
		setSender(&e, m.Agent, m.Cluster, m.Source)
		err = setData(&e, presenceData{Present: m.Present, Session: m.Session})
	case *Instance:
		setSender(&e, string(m.Source), "", "")
		setExpiry(&e, m.Expires)
		err = setData(&e, m.data())
	case *DryRun:
		err = m.encode(&e)
	case *DryRunAnswer:
		err = m.encode(&e)
	case *StatusResync:
		setSender(&e, string(m.Source), m.Cluster, m.Source)
		setText(&e, extSourceIdentity, m.SourceIdentity)
		setText(&e, extAccepts, m.Accepts.String())
		err = setData(&e, statusResyncData{StatusHashes: orEmpty(m.Hashes), Reply: m.Reply, Buckets: m.Buckets})
	}
	if err != nil {
		return cloudevents.Event{}, err
	}
	return e, nil
}

func (s *Spec) encode(e *cloudevents.Event) error {
	if err := s.encodeExtensions(e); err != nil || s.IsDeletion() {
		return err
	}
	if err := setData(e, s.Bundle); err != nil {
		return err
	}
	if s.ContentHash == "" && s.SourceIdentity != "" {
		setText(e, extContentHash, hexSHA256(e.Data()))
	}
	return nil
}

// encodeExtensions sets the attributes and extensions of a spec.
func (s *Spec) encodeExtensions(e *cloudevents.Event) error {
	setSender(e, string(s.Source), s.Cluster, "")
	setWork(e, s.UID, s.Generation, s.Trace)
	if !s.NoMetadata {
		if err := setMetadata(e, &s.Meta); err != nil {
			return err
		}
	}
	setText(e, extSourceIdentity, s.SourceIdentity)
	setText(e, extAccepts, s.Accepts.String())
	if s.IsDeletion() {
		e.SetExtension(extDeletionTimestamp, s.DeletionTimestamp.UTC().Format(time.RFC3339Nano))
		return nil
	}
	setFlag(e, extAuthoritative, s.Authoritative)
	setText(e, extContentHash, s.ContentHash)
	return nil
}

func (s *Status) encode(e *cloudevents.Event) error {
	hash := s.Hash
	if hash == "" {
		var err error
		if hash, err = StatusHash(&s.Status); err != nil {
			return err
		}
	}
	if err := s.encodeExtensions(e, hash); err != nil {
		return err
	}
	return setData(e, statusData{Conditions: s.Status.Conditions, ResourceStatus: s.Status.ResourceStatus.Manifests})
}

// encodeExtensions sets the attributes and extensions of a status with this hash.
func (s *Status) encodeExtensions(e *cloudevents.Event, hash string) error {
	setSender(e, s.Agent, s.Cluster, s.Source)
	setWork(e, s.UID, s.Generation, s.Trace)
	if s.Sequence != 0 {
		e.SetExtension(extSequenceID, s.Sequence.String())
	}
	setText(e, extSession, s.Session)
	setText(e, extAccepts, s.Accepts.String())
	setMicroTime(e, extReceivedTime, s.Times.Received)
	setMicroTime(e, extAppliedTime, s.Times.Applied)
	setMicroTime(e, extReadyTime, s.Times.Ready)
	e.SetExtension(extStatusHash, hash)
	return setMetadata(e, &s.Meta)
}

func (s *Spec) eventType() (EventType, error) {
	if s.UID == "" || s.Source == "" || s.Cluster == "" {
		return EventType{}, fmt.Errorf("spec of work %q: uid, source and cluster are required", s.UID)
	}
	if s.IsDeletion() == (s.Bundle != nil) {
		return EventType{}, fmt.Errorf("spec of work %q: want either manifests or a deletion timestamp", s.UID)
	}
	if s.Action == Delete && !s.IsDeletion() {
		return EventType{}, fmt.Errorf("spec of work %q: action %q needs a deletion timestamp", s.UID, s.Action)
	}
	switch s.Action {
	case Create, Update, Delete, ResyncResponse:
		return EventType{Data: ManifestBundles, Subresource: SubresourceSpec, Action: s.Action}, nil
	default:
		return EventType{}, fmt.Errorf("spec of work %q: action %q is not one of a spec", s.UID, s.Action)
	}
}

func (s *Status) eventType() (EventType, error) {
	if s.UID == "" || s.Agent == "" || s.Cluster == "" {
		return EventType{}, fmt.Errorf("status of work %q: uid, agent and cluster are required", s.UID)
	}
	if s.Session != "" && !sessionShape.MatchString(s.Session) {
		return EventType{}, fmt.Errorf("status of work %q: session %.80q: want %s", s.UID, s.Session, sessionShape)
	}
	switch s.Action {
	case Create, Update, ResyncResponse:
		return EventType{Data: ManifestBundles, Subresource: SubresourceStatus, Action: s.Action}, nil
	default:
		return EventType{}, fmt.Errorf("status of work %q: action %q is not one of a status", s.UID, s.Action)
	}
}

func (r *SpecResync) eventType() (EventType, error) {
	if r.Agent == "" || r.Cluster == "" {
		return EventType{}, fmt.Errorf("spec resync request: agent and cluster are required")
	}
	if r.Partial && len(r.Versions) == 0 {
		return EventType{}, fmt.Errorf("spec resync request: a partial one must list a work")
	}
	return EventType{Data: ManifestBundles, Subresource: SubresourceSpec, Action: ResyncRequest}, nil
}

func (r *StatusResync) eventType() (EventType, error) {
	if r.Source == "" {
		return EventType{}, fmt.Errorf("status resync request: source is required")
	}
	if err := r.Buckets.validate(); err != nil {
		return EventType{}, fmt.Errorf("status resync request: %w", err)
	}
	return EventType{Data: ManifestBundles, Subresource: SubresourceStatus, Action: ResyncRequest}, nil
}

func (p *Presence) eventType() (EventType, error) {
	if p.Agent == "" || p.Cluster == "" || p.Session == "" {
		return EventType{}, fmt.Errorf("presence: agent, cluster and session are required")
	}
	return EventType{Data: Agents, Subresource: SubresourceStatus, Action: Update}, nil
}

func (d *Digest) eventType() (EventType, error) {
	if d.Agent == "" || d.Cluster == "" || d.Source == "" {
		return EventType{}, fmt.Errorf("digest: agent, cluster and source are required")
	}
	if n := len(d.Buckets); n < 1 || n > MaxDigestBuckets {
		return EventType{}, fmt.Errorf("digest: %d buckets: want 1 to %d", n, MaxDigestBuckets)
	}
	return EventType{Data: Digests, Subresource: SubresourceStatus, Action: Update}, nil
}

// setSender sets who sends e, the cluster it is about, and its `originalsource`.
func setSender(e *cloudevents.Event, sender string, cluster ClusterName, original SourceID) {
	e.SetSource(sender)
	e.SetExtension(extClusterName, string(cluster))
	e.SetExtension(extOriginalSource, string(original))
}

// setWork sets the work that e is about.
func setWork(e *cloudevents.Event, uid types.UID, generation Generation, trace string) {
	e.SetExtension(extResourceID, string(uid))
	e.SetExtension(extResourceVersion, strconv.FormatInt(int64(generation), 10))
	setText(e, extLogTracing, trace)
}

// setText sets an extension that an empty value leaves out.
func setText(e *cloudevents.Event, name, value string) {
	if value != "" {
		e.SetExtension(name, value)
	}
}

// setFlag sets an extension to true, or leaves it out.
func setFlag(e *cloudevents.Event, name string, on bool) {
	if on {
		e.SetExtension(name, "true")
	}
}

// setMicroTime sets an extension that the zero time leaves out.
func setMicroTime(e *cloudevents.Event, name string, at metav1.MicroTime) {
	if !at.IsZero() {
		e.SetExtension(name, at.UTC().Format(metav1.RFC3339Micro))
	}
}

// setExpiry sets when the broker may drop e, unless at is zero (docs/protocol.md, Transport).
func setExpiry(e *cloudevents.Event, at time.Time) {
	if !at.IsZero() {
		e.SetExtension(extExpiryTime, at.UTC())
	}
}

func setMetadata(e *cloudevents.Event, meta *metav1.ObjectMeta) error {
	data, err := json.Marshal(meta)
	if err != nil {
		return fmt.Errorf("encode the metadata of work %q: %w", meta.Name, err)
	}
	e.SetExtension(extMetadata, string(data))
	return nil
}

func setData(e *cloudevents.Event, data any) error {
	encoded, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encode the data of event %s: %w", e.Type(), err)
	}
	return e.SetData(contentType, encoded)
}

// orEmpty returns an empty list for nil, as the protocol requires.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
