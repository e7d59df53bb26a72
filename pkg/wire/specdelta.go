package wire

import (
	"encoding/json"
	"errors"
	"fmt"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
)

// SpecDelta is a spec as its difference from an earlier one of the same work (docs/protocol.md, Deltas).
type SpecDelta struct {
	// Of is the spec: Of.Bundle is nil, Of.ContentHash is that of the whole bundle and required, and
	// Of.Action is Update.
	Of Spec
	// Delta is the difference between the encoded bundles. Its Base is a [ContentHash].
	Delta
}

func (d *SpecDelta) eventType() (EventType, error) {
	if d.Of.UID == "" || d.Of.Source == "" || d.Of.Cluster == "" {
		return EventType{}, fmt.Errorf("spec delta of work %q: uid, source and cluster are required", d.Of.UID)
	}
	if d.Of.Action != Update || d.Of.IsDeletion() || d.Of.Bundle != nil {
		return EventType{}, fmt.Errorf("spec delta of work %q: it is of an update without its manifests", d.Of.UID)
	}
	if err := d.check(d.Of.ContentHash); err != nil {
		return EventType{}, fmt.Errorf("spec delta of work %q: %w", d.Of.UID, err)
	}
	return EventType{Data: Deltas, Subresource: SubresourceSpec, Action: Update}, nil
}

func (d *SpecDelta) encode(e *cloudevents.Event) error {
	if err := d.Of.encodeExtensions(e); err != nil {
		return err
	}
	return setData(e, &d.Delta)
}

func decodeSpecDelta(e cloudevents.Event, x extensions, _ Action) (Message, error) {
	d := &SpecDelta{Of: Spec{Action: Update}}
	err := d.Of.decodeExtensions(e, x)
	if err == nil && d.Of.IsDeletion() {
		err = errors.New("a spec delta is no deletion")
	}
	if err == nil {
		err = decodeData(e, &d.Delta, "spec delta")
	}
	if err == nil {
		err = d.check(d.Of.ContentHash)
	}
	if err != nil {
		return nil, d.Of.failure(e, err)
	}
	return d, nil
}

// NewSpecDelta returns s, whose encoded Bundle is data, as its difference from base, the encoded Bundle
// of an earlier spec. It returns an error if data is not UTF-8, or too large for a delta.
func NewSpecDelta(s *Spec, data, base []byte) (*SpecDelta, error) {
	if len(data) > maxCompressed {
		return nil, fmt.Errorf("%d bytes are too large for a delta", len(data))
	}
	delta, err := difference(data, base, hexSHA256(base))
	if err != nil {
		return nil, err
	}
	d := &SpecDelta{Of: *s, Delta: delta}
	d.Of.Action, d.Of.Bundle, d.Of.ContentHash = Update, nil, hexSHA256(data)
	return d, nil
}

// Apply returns the whole spec. base is the bundle with content hash d.Base, and is not changed. Apply
// returns an error if the parts do not fit base, or the result is another spec, one that would be refused
// if it came whole, or larger than 1 MiB.
func (d *SpecDelta) Apply(base *Bundle) (*Spec, error) {
	encoded, err := json.Marshal(base)
	if err != nil {
		return nil, fmt.Errorf("encode the earlier bundle: %w", err)
	}
	data, err := d.apply(encoded, d.Of.ContentHash, maxCompressed)
	if err != nil {
		return nil, err
	}
	s := d.Of
	s.Bundle = &Bundle{}
	if err := decodeBounded(data, s.Bundle); err != nil {
		return nil, fmt.Errorf("the result is no ManifestBundle: %w", err)
	}
	return &s, s.Bundle.Validate()
}
