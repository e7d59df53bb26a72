package wire

import (
	"fmt"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// StatusDelta is a status as its difference from an earlier one of the same work (docs/protocol.md, Deltas).
type StatusDelta struct {
	// Of is the status: Of.Status is empty, Of.Hash is that of the whole status and required, and
	// Of.Action is Update.
	Of Status
	// Delta is the difference between the texts of which the hashes are. Its Base is a [StatusHash].
	Delta
}

// maxStatus is the maximum size in bytes of a status that is made from a delta: more than the API server stores.
// A larger one is to be sent whole.
const maxStatus = 2 << 20

func (d *StatusDelta) eventType() (EventType, error) {
	if _, err := d.Of.eventType(); err != nil {
		return EventType{}, err
	}
	if err := d.check(d.Of.Hash); err != nil {
		return EventType{}, fmt.Errorf("status delta of work %q: %w", d.Of.UID, err)
	}
	return EventType{Data: Deltas, Subresource: SubresourceStatus, Action: Update}, nil
}

func (d *StatusDelta) encode(e *cloudevents.Event) error {
	if err := d.Of.encodeExtensions(e, d.Of.Hash); err != nil {
		return err
	}
	return setData(e, &d.Delta)
}

func decodeStatusDelta(e cloudevents.Event, x extensions, _ Action) (Message, error) {
	d := &StatusDelta{Of: Status{Action: Update}}
	if err := d.Of.decodeExtensions(e, x); err != nil {
		return nil, err
	}
	if err := decodeData(e, &d.Delta, "status delta"); err != nil {
		return nil, err
	}
	return d, d.check(d.Of.Hash)
}

// NewStatusDelta returns s as its difference from base, whose hash is baseHash. The hash of s must be
// set. It costs one encoding of each.
func NewStatusDelta(s *Status, base *workv1.ManifestWorkStatus, baseHash string) (*StatusDelta, error) {
	from, err := hashedText(base)
	if err != nil {
		return nil, err
	}
	to, err := hashedText(&s.Status)
	if err != nil {
		return nil, err
	}
	delta, err := difference(to, from, baseHash)
	if err != nil {
		return nil, err
	}
	d := &StatusDelta{Of: *s, Delta: delta}
	d.Of.Status = workv1.ManifestWorkStatus{}
	return d, nil
}

// Apply returns the whole status. base is the status with hash d.Base, and is not changed. Apply
// returns an error if the parts do not fit base, or the result is another status.
func (d *StatusDelta) Apply(base *workv1.ManifestWorkStatus) (*Status, error) {
	from, err := hashedText(base)
	if err != nil {
		return nil, err
	}
	text, err := d.apply(from, d.Of.Hash, maxStatus)
	if err != nil {
		return nil, err
	}
	var read struct { // what the hash covers, and nothing that agents do not report
		Conditions     []metav1.Condition            `json:"conditions"`
		ResourceStatus workv1.ManifestResourceStatus `json:"resourceStatus"`
	}
	if err := decodeBounded(text, &read); err != nil {
		return nil, fmt.Errorf("the result is no status: %w", err)
	}
	s := d.Of
	s.Status = workv1.ManifestWorkStatus{Conditions: read.Conditions, ResourceStatus: read.ResourceStatus}
	return &s, checkStatus(&s.Status)
}
