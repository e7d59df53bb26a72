package wire

import (
	"errors"
	"fmt"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

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

func decodeSpec(e cloudevents.Event, x extensions, action Action) (Message, error) {
	s := &Spec{Action: action}
	if err := s.decodeExtensions(e, x); err != nil {
		return nil, s.failure(e, err)
	}
	if s.IsDeletion() {
		return s, nil
	}
	if action == Delete {
		return nil, s.failure(e, errors.New("a deletion needs extension deletiontimestamp"))
	}
	if IsSealed(e.Data()) {
		return nil, s.failure(e, ErrSealed)
	}
	var bundle Bundle
	if err := decodeData(e, &bundle, "ManifestBundle"); err != nil {
		return nil, s.failure(e, err)
	}
	if err := bundle.Validate(); err != nil {
		return nil, s.failure(e, err)
	}
	s.Bundle = &bundle
	return s, nil
}

// decodeExtensions sets s from the attributes and extensions of e, except its Action and Bundle.
func (s *Spec) decodeExtensions(e cloudevents.Event, x extensions) error {
	s.Source, s.Trace = SourceID(e.Source()), x.trace()
	// Decode the identity first: the agent needs it to report other errors.
	s.UID = types.UID(x.text(extResourceID))
	s.Cluster = ClusterName(x.text(extClusterName))
	bare := metav1.ObjectMeta{Name: string(s.UID), Namespace: string(s.Cluster), UID: s.UID}
	s.Meta, s.NoMetadata = bare, true
	if s.UID == "" || s.Cluster == "" || s.Source == "" {
		return errors.New("resourceid, clustername and source are required")
	}
	var err error
	if s.Generation, err = x.generation(); err != nil {
		return err
	}
	var meta metav1.ObjectMeta
	switch found, err := x.metadata(&meta); {
	case err != nil:
		return err
	case found:
		s.Meta, s.NoMetadata = meta, false
	}
	if s.Meta.Name == "" {
		s.Meta.Name = bare.Name
	}
	s.Meta.UID, s.Meta.Generation = s.UID, int64(s.Generation)
	if s.SourceIdentity, err = x.shaped(extSourceIdentity, memoryIdentityShape); err != nil {
		return err
	}
	s.Accepts = ParseAccepts(x.text(extAccepts))
	if s.DeletionTimestamp, err = x.deletionTimestamp(); err != nil || s.IsDeletion() {
		return err
	}
	if s.ContentHash, err = x.shaped(extContentHash, contentHashShape); err != nil {
		return err
	}
	s.Authoritative = x.flag(extAuthoritative)
	return nil
}

// failure returns the error of Decode for e, an event whose extensions are those of s as far as they
// could be decoded.
func (s *Spec) failure(e cloudevents.Event, err error) error {
	failed := &DecodeError{Type: e.Type(), Err: err}
	if s.UID != "" && s.Source != "" && s.Cluster != "" {
		failed.Spec = s
	}
	return failed
}
