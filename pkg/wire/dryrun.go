package wire

import (
	"errors"
	"fmt"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
)

// DryRun asks an agent what a spec would change (docs/protocol.md, Dry runs).
type DryRun struct {
	// ID of the question: 1 to 64 characters a-z, 0-9 and -; required.
	ID string
	// Source asks: the event's `source`; required. The dry run is about its work.
	Source SourceID
	// Cluster is the target cluster; required.
	Cluster ClusterName
	// Work is the name of the work that would have the spec; required.
	Work string
	// Bundle is the spec; required.
	Bundle *Bundle
	// Expires is when nobody waits for the answer any more; zero: never.
	Expires time.Time
	// Sealed reports that the data was sealed (docs/protocol.md, Sealed data). It is not part of the
	// event: who has opened the data sets it.
	Sealed bool
}

type dryRunData struct {
	Work   string  `json:"work"`
	Bundle *Bundle `json:"bundle"`
}

func (d *DryRun) eventType() (EventType, error) {
	if err := d.validate(); err != nil {
		return EventType{}, fmt.Errorf("dry run: %w", err)
	}
	return EventType{Data: DryRuns, Subresource: SubresourceSpec, Action: Create}, nil
}

func (d *DryRun) validate() error {
	switch {
	case d.Source == "" || d.Cluster == "" || d.Work == "" || d.Bundle == nil:
		return errors.New("source, cluster, work and bundle are required")
	case len(d.Work) > maxName:
		return tooLong("work", d.Work, maxName)
	case !sessionShape.MatchString(d.ID):
		return fmt.Errorf("id %.80q: want %s", d.ID, sessionShape)
	}
	return d.Bundle.Validate()
}

func (d *DryRun) encode(e *cloudevents.Event) error {
	setSender(e, string(d.Source), d.Cluster, "")
	e.SetExtension(extResourceID, d.ID)
	setExpiry(e, d.Expires)
	return setData(e, dryRunData{Work: d.Work, Bundle: d.Bundle})
}

func decodeDryRun(e cloudevents.Event, x extensions, _ Action) (Message, error) {
	d := &DryRun{ID: x.text(extResourceID), Source: SourceID(e.Source()), Cluster: ClusterName(x.text(extClusterName)), Expires: x.expiry()}
	if IsSealed(e.Data()) {
		return nil, &DecodeError{Type: e.Type(), Question: d, Err: ErrSealed}
	}
	var data dryRunData
	if err := decodeData(e, &data, "dry run"); err != nil {
		return nil, err
	}
	d.Work, d.Bundle = data.Work, data.Bundle
	return d, d.validate()
}
