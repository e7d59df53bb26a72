package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
)

// SpecDelta is a spec as its difference from an earlier one of the same work (docs/protocol.md, Spec
// deltas).
type SpecDelta struct {
	// Of is the spec: Of.Bundle is nil, Of.ContentHash is that of the whole bundle and required, and
	// Of.Action is Update.
	Of Spec
	// Base is the [ContentHash] of the bundle that Change is of; required.
	Base string
	// Change is the difference.
	Change BundleChange
}

// BundleChange is a [Bundle] as its difference from another one. Manifests and manifestConfigs are
// kept or replaced as a whole, so that not one byte of them can become another one.
type BundleChange struct {
	Manifests       []ListPart      `json:"manifests"`
	DeleteOption    json.RawMessage `json:"deleteOption,omitempty"`
	ManifestConfigs []ListPart      `json:"manifestConfigs,omitempty"`
	Executer        json.RawMessage `json:"executer,omitempty"`
}

// ListPart is a part of a list: a new item, or items of the list before.
type ListPart struct {
	// Item is the new item; empty for items of the list before.
	Item json.RawMessage `json:"item,omitempty"`
	// From is the index of the first of Count items of the list before, from 0.
	From int `json:"from,omitempty"`
	// Count is the number of items; 0 if there is a new Item.
	Count int `json:"count,omitempty"`
}

// Changed returns how many of the manifests are new or changed. The others are those of the bundle before.
func (c *BundleChange) Changed() (n int) {
	for _, part := range c.Manifests {
		if part.Count == 0 {
			n++
		}
	}
	return n
}

// specDeltaData is the data of a spec delta.
type specDeltaData struct {
	Base string `json:"base"`
	BundleChange
}

func (d *SpecDelta) eventType() (EventType, error) {
	if d.Of.UID == "" || d.Of.Source == "" || d.Of.Cluster == "" {
		return EventType{}, fmt.Errorf("spec delta of work %q: uid, source and cluster are required", d.Of.UID)
	}
	if d.Of.Action != Update || d.Of.IsDeletion() || d.Of.Bundle != nil {
		return EventType{}, fmt.Errorf("spec delta of work %q: it is of an update without its manifests", d.Of.UID)
	}
	return EventType{Data: SpecDeltas, Subresource: SubresourceSpec, Action: Update}, d.validate()
}

func (d *SpecDelta) validate() error {
	return checkDelta(fmt.Sprintf("spec delta of work %q: contenthash, base and manifests", d.Of.UID), d.Base, d.Of.ContentHash, len(d.Change.Manifests) > 0)
}

func (d *SpecDelta) encode(e *cloudevents.Event) error {
	if err := d.Of.encodeExtensions(e); err != nil {
		return err
	}
	if err := setData(e, specDeltaData{Base: d.Base, BundleChange: d.Change}); err != nil {
		return err
	}
	if _, deep := nesting(e.Data(), maxDepth); deep {
		return fmt.Errorf("spec delta of work %q: nested deeper than %d levels", d.Of.UID, maxDepth)
	}
	return nil
}

func decodeSpecDelta(e cloudevents.Event, x extensions, _ Action) (Message, error) {
	d := &SpecDelta{Of: Spec{Action: Update}}
	if err := d.Of.decodeExtensions(e, x); err != nil {
		return nil, d.Of.failure(e, err)
	}
	if d.Of.IsDeletion() {
		return nil, d.Of.failure(e, errors.New("a spec delta is no deletion"))
	}
	var data specDeltaData
	if err := decodeData(e, &data, "spec delta"); err != nil {
		return nil, d.Of.failure(e, err)
	}
	d.Base, d.Change = data.Base, data.BundleChange
	if err := d.validate(); err != nil {
		return nil, d.Of.failure(e, err)
	}
	return d, nil
}

// bundleParts is a Bundle whose parts are not decoded.
type bundleParts struct {
	Manifests       []json.RawMessage `json:"manifests"`
	DeleteOption    json.RawMessage   `json:"deleteOption,omitempty"`
	ManifestConfigs []json.RawMessage `json:"manifestConfigs,omitempty"`
	Executer        json.RawMessage   `json:"executer,omitempty"`
}

// NewSpecDelta returns s, whose encoded Bundle is data, as its difference from base, the encoded Bundle
// of an earlier spec. It returns an error if one of them is no Bundle, or data is too large for a delta.
func NewSpecDelta(s *Spec, data, base []byte) (*SpecDelta, error) {
	if len(data) > maxCompressed {
		return nil, fmt.Errorf("%d bytes are too large for a delta", len(data))
	}
	var from, to bundleParts
	if err := json.Unmarshal(base, &from); err != nil {
		return nil, fmt.Errorf("read the earlier bundle: %w", err)
	}
	if err := json.Unmarshal(data, &to); err != nil {
		return nil, fmt.Errorf("read the bundle: %w", err)
	}
	d := &SpecDelta{Of: *s, Base: hexSHA256(base), Change: BundleChange{
		Manifests: difference(from.Manifests, to.Manifests), DeleteOption: to.DeleteOption,
		ManifestConfigs: difference(from.ManifestConfigs, to.ManifestConfigs), Executer: to.Executer,
	}}
	d.Of.Action, d.Of.Bundle, d.Of.ContentHash = Update, nil, hexSHA256(data)
	return d, nil
}

// difference returns the parts of which list consists.
func difference(before, list []json.RawMessage) []ListPart {
	index := make(map[string]int, len(before))
	for i, item := range before {
		if _, known := index[string(item)]; !known {
			index[string(item)] = i
		}
	}
	var parts []ListPart
	for _, item := range list {
		if n := len(parts); n > 0 && parts[n-1].Count > 0 {
			last := &parts[n-1]
			if next := last.From + last.Count; next < len(before) && bytes.Equal(before[next], item) {
				last.Count++
				continue
			}
		}
		if i, known := index[string(item)]; known {
			parts = append(parts, ListPart{From: i, Count: 1})
		} else {
			parts = append(parts, ListPart{Item: item})
		}
	}
	return parts
}

// ErrOtherSpec is wrapped by the error of [SpecDelta.Apply] if the result is not the spec that the
// delta stands for.
var ErrOtherSpec = errors.New("the result has another content hash than the spec")

// Apply returns the whole spec. base is the bundle with content hash d.Base, and is not changed. Apply
// returns an error if the change does not fit base, or its result is another spec, one that would be refused
// if it came whole, or larger than 1 MiB.
func (d *SpecDelta) Apply(base *Bundle) (*Spec, error) {
	encoded, err := json.Marshal(base)
	if err != nil {
		return nil, fmt.Errorf("encode the earlier bundle: %w", err)
	}
	var from, to bundleParts
	if err := json.Unmarshal(encoded, &from); err != nil {
		return nil, fmt.Errorf("read the earlier bundle: %w", err)
	}
	left := maxCompressed - len(d.Change.DeleteOption) - len(d.Change.Executer)
	if to.Manifests, err = assemble(from.Manifests, d.Change.Manifests, &left); err != nil {
		return nil, fmt.Errorf("manifests: %w", err)
	}
	if to.ManifestConfigs, err = assemble(from.ManifestConfigs, d.Change.ManifestConfigs, &left); err != nil {
		return nil, fmt.Errorf("manifestConfigs: %w", err)
	}
	to.DeleteOption, to.Executer = d.Change.DeleteOption, d.Change.Executer
	data, err := json.Marshal(to)
	if err != nil {
		return nil, fmt.Errorf("encode the result: %w", err)
	}
	if hash := hexSHA256(data); hash != d.Of.ContentHash {
		return nil, fmt.Errorf("%w: want %s, got %s", ErrOtherSpec, d.Of.ContentHash, hash)
	}
	s := d.Of
	s.Bundle = &Bundle{}
	if err := decodeBounded(data, s.Bundle); err != nil {
		return nil, fmt.Errorf("the result is no ManifestBundle: %w", err)
	}
	if err := s.Bundle.Validate(); err != nil {
		return nil, err
	}
	return &s, nil
}

// assemble is the reverse of difference. It takes the bytes of the list from left.
func assemble(before []json.RawMessage, parts []ListPart, left *int) ([]json.RawMessage, error) {
	var list []json.RawMessage
	for i, part := range parts {
		items := []json.RawMessage{part.Item}
		if len(part.Item) == 0 {
			if part.From < 0 || part.Count < 1 || part.Count > len(before) || part.From > len(before)-part.Count {
				return nil, fmt.Errorf("part %d is %d items from %d of %d", i, part.Count, part.From, len(before))
			}
			items = before[part.From : part.From+part.Count]
		}
		for _, item := range items {
			if *left -= len(item) + 1; *left < 0 {
				return nil, fmt.Errorf("the result is larger than %d bytes", maxCompressed)
			}
		}
		list = append(list, items...)
	}
	return list, nil
}
