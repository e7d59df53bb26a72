package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// StatusDelta is a status as its difference from an earlier one of the same work (docs/protocol.md,
// Status deltas).
type StatusDelta struct {
	// Of is the status: Of.Status is empty, Of.Hash is that of the whole status and required, and
	// Of.Action is Update.
	Of Status
	// Base is the [StatusHash] of the status that Patch changes; required.
	Base string
	// Patch is the JSON merge patch (RFC 7396) from the one to the other, both with their lists as
	// objects of the indices; required.
	Patch json.RawMessage
}

// maxStatus is the maximum size in bytes of a status that is made from a delta: more than the API server stores.
// A larger one is to be sent whole.
const maxStatus = 2 << 20

// statusDeltaData is the data of a status delta.
type statusDeltaData struct {
	Base  string          `json:"base"`
	Patch json.RawMessage `json:"patch"`
}

func (d *StatusDelta) eventType() (EventType, error) {
	if _, err := d.Of.eventType(); err != nil {
		return EventType{}, err
	}
	return EventType{Data: StatusDeltas, Subresource: SubresourceStatus, Action: Update}, d.validate()
}

func (d *StatusDelta) validate() error {
	isObject := bytes.HasPrefix(bytes.TrimSpace(d.Patch), []byte("{"))
	return checkDelta(fmt.Sprintf("status delta of work %q: statushash, base and a patch that is an object", d.Of.UID), d.Base, d.Of.Hash, isObject)
}

func (d *StatusDelta) encode(e *cloudevents.Event) error {
	if err := d.Of.encodeExtensions(e, d.Of.Hash); err != nil {
		return err
	}
	return setData(e, statusDeltaData{Base: d.Base, Patch: d.Patch})
}

func decodeStatusDelta(e cloudevents.Event, x extensions, _ Action) (Message, error) {
	d := &StatusDelta{Of: Status{Action: Update}}
	if err := d.Of.decodeExtensions(e, x); err != nil {
		return nil, err
	}
	var data statusDeltaData
	if err := decodeData(e, &data, "status delta"); err != nil {
		return nil, err
	}
	if err := checkStructure(data.Patch, reflect.TypeFor[indexedStatus]()); err != nil {
		return nil, err
	}
	d.Base, d.Patch = data.Base, data.Patch
	return d, d.validate()
}

// indexedStatus is statusData with its lists as maps by index: a merge patch replaces lists as a
// whole.
type indexedStatus struct {
	Conditions     map[int]metav1.Condition `json:"conditions,omitempty"`
	ResourceStatus map[int]indexedManifest  `json:"resourceStatus,omitempty"`
}

type indexedManifest struct {
	ResourceMeta   workv1.ManifestResourceMeta `json:"resourceMeta"`
	StatusFeedback indexedFeedback             `json:"statusFeedback"`
	Conditions     map[int]metav1.Condition    `json:"conditions"`
}

type indexedFeedback struct {
	Values map[int]workv1.FeedbackValue `json:"values,omitempty"`
}

// NewStatusDelta returns s as its difference from base, whose hash is baseHash. The hash of s must be
// set. It costs one encoding of each.
func NewStatusDelta(s *Status, base *workv1.ManifestWorkStatus, baseHash string) (*StatusDelta, error) {
	from, err := document(indexed(base))
	if err != nil {
		return nil, err
	}
	to, err := document(indexed(&s.Status))
	if err != nil {
		return nil, err
	}
	patch, err := json.Marshal(mergePatch(from, to))
	if err != nil {
		return nil, err
	}
	d := &StatusDelta{Of: *s, Base: baseHash, Patch: patch}
	d.Of.Status = workv1.ManifestWorkStatus{}
	return d, nil
}

// ErrOtherStatus is wrapped by the error of [StatusDelta.Apply] if the result is not the status that
// the delta stands for.
var ErrOtherStatus = errors.New("the result has another hash than the status")

// Apply returns the whole status. base is the status with hash d.Base, and is not changed. Apply
// returns an error if the patch cannot be applied, or its result is another status.
func (d *StatusDelta) Apply(base *workv1.ManifestWorkStatus) (*Status, error) {
	from, err := json.Marshal(indexed(base))
	if err != nil {
		return nil, err
	}
	merged, err := jsonpatch.MergePatch(from, d.Patch)
	if err != nil {
		return nil, fmt.Errorf("apply the merge patch: %w", err)
	}
	if len(merged) > maxStatus {
		return nil, fmt.Errorf("the result is larger than %d bytes", maxStatus)
	}
	var result indexedStatus
	if err := decodeBounded(merged, &result); err != nil {
		return nil, fmt.Errorf("the result is no status: %w", err)
	}
	s := d.Of
	if s.Status, err = result.lists(); err != nil {
		return nil, err
	}
	if err := checkStatus(&s.Status); err != nil {
		return nil, err
	}
	hash, err := StatusHash(&s.Status)
	if err != nil {
		return nil, err
	}
	if hash != s.Hash {
		return nil, fmt.Errorf("%w: want %s, got %s", ErrOtherStatus, s.Hash, hash)
	}
	return &s, nil
}

// mergePatch returns the JSON merge patch from one object to another. It is our own, because those of
// libraries turn large integers into floating-point numbers.
func mergePatch(from, to map[string]any) map[string]any {
	patch := map[string]any{}
	for key := range from {
		if _, stays := to[key]; !stays {
			patch[key] = nil
		}
	}
	for key, value := range to {
		before, had := from[key]
		beforeObject, was := before.(map[string]any)
		object, is := value.(map[string]any)
		switch {
		case is && was:
			if inner := mergePatch(beforeObject, object); len(inner) > 0 {
				patch[key] = inner
			}
		case !had || !reflect.DeepEqual(before, value):
			patch[key] = value
		}
	}
	return patch
}

// document returns the JSON of s, decoded.
func document(s *indexedStatus) (object map[string]any, err error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode the status: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	return object, decoder.Decode(&object)
}

func indexed(s *workv1.ManifestWorkStatus) *indexedStatus {
	result := &indexedStatus{Conditions: byIndex(s.Conditions)}
	if manifests := s.ResourceStatus.Manifests; manifests != nil {
		result.ResourceStatus = make(map[int]indexedManifest, len(manifests))
		for i := range manifests {
			m := &manifests[i]
			result.ResourceStatus[i] = indexedManifest{
				ResourceMeta: m.ResourceMeta, StatusFeedback: indexedFeedback{byIndex(m.StatusFeedbacks.Values)}, Conditions: byIndex(m.Conditions),
			}
		}
	}
	return result
}

// lists is the reverse of indexed.
func (s *indexedStatus) lists() (workv1.ManifestWorkStatus, error) {
	status := workv1.ManifestWorkStatus{}
	var err error
	if status.Conditions, err = inOrder(s.Conditions); err != nil {
		return status, fmt.Errorf("conditions: %w", err)
	}
	manifests, err := inOrder(s.ResourceStatus)
	if err != nil {
		return status, fmt.Errorf("resourceStatus: %w", err)
	}
	for i := range manifests {
		m := workv1.ManifestCondition{ResourceMeta: manifests[i].ResourceMeta}
		if m.StatusFeedbacks.Values, err = inOrder(manifests[i].StatusFeedback.Values); err != nil {
			return status, fmt.Errorf("values of manifest %d: %w", i, err)
		}
		if m.Conditions, err = inOrder(manifests[i].Conditions); err != nil {
			return status, fmt.Errorf("conditions of manifest %d: %w", i, err)
		}
		status.ResourceStatus.Manifests = append(status.ResourceStatus.Manifests, m)
	}
	return status, nil
}

// byIndex returns nil for nil, which is encoded differently from an empty map.
func byIndex[T any](list []T) map[int]T {
	if list == nil {
		return nil
	}
	byIndex := make(map[int]T, len(list))
	for i := range list {
		byIndex[i] = list[i]
	}
	return byIndex
}

// inOrder is the reverse of byIndex. It returns an error if an index is left out.
func inOrder[T any](byIndex map[int]T) ([]T, error) {
	if byIndex == nil {
		return nil, nil
	}
	list := make([]T, len(byIndex))
	for i := range list {
		item, ok := byIndex[i]
		if !ok {
			return nil, fmt.Errorf("%d items and none with index %d", len(byIndex), i)
		}
		list[i] = item
	}
	return list, nil
}
