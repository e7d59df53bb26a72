package wire

import (
	"errors"
	"fmt"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/uuid"
)

// Message is the content of an event: *[Spec], *[SpecDelta], *[Status], *[StatusDelta], *[SpecResync], *[StatusResync],
// *[Presence], *[Digest], *[Instance], *[DryRun] or *[DryRunAnswer].
type Message interface {
	// eventType returns the `type` attribute, or an error if a required field is not set or the
	// action is invalid for the kind of message.
	eventType() (EventType, error)
	// encode sets the other attributes, the extensions and the data of e.
	encode(e *cloudevents.Event) error
}

// signer is who signs a kind of message, where events are signed.
type signer int

const (
	nobody signer = iota
	theSource
	theAgent
)

// kind is what is the same for all events of a kind of message.
type kind struct {
	decode   func(e cloudevents.Event, x extensions, action Action) (Message, error)
	signer   signer
	sealable bool // its data may be sealed
}

// kinds has the kind of every message of the protocol by the type of its event (docs/protocol.md, Event types).
// Events of other types are ignored.
var kinds = map[EventType]kind{
	{ManifestBundles, SubresourceSpec, Create}:           {decodeSpec, theSource, true},
	{ManifestBundles, SubresourceSpec, Update}:           {decodeSpec, theSource, true},
	{ManifestBundles, SubresourceSpec, Delete}:           {decodeSpec, theSource, true},
	{ManifestBundles, SubresourceSpec, ResyncResponse}:   {decodeSpec, theSource, true},
	{ManifestBundles, SubresourceStatus, Create}:         {decodeStatus, theAgent, false},
	{ManifestBundles, SubresourceStatus, Update}:         {decodeStatus, theAgent, false},
	{ManifestBundles, SubresourceStatus, Delete}:         {decodeStatus, theAgent, false},
	{ManifestBundles, SubresourceStatus, ResyncResponse}: {decodeStatus, theAgent, false},
	{Deltas, SubresourceSpec, Update}:                    {decodeSpecDelta, theSource, false},
	{Deltas, SubresourceStatus, Update}:                  {decodeStatusDelta, theAgent, false},
	{ManifestBundles, SubresourceSpec, ResyncRequest}:    {decodeSpecResync, theAgent, false},
	{ManifestBundles, SubresourceStatus, ResyncRequest}:  {decodeStatusResync, theSource, false},
	{Digests, SubresourceStatus, Update}:                 {decodeDigest, theAgent, false},
	{Agents, SubresourceStatus, Update}:                  {decodePresence, nobody, false},
	{Sources, SubresourceSpec, Update}:                   {decodeInstance, nobody, false},
	{DryRuns, SubresourceSpec, Create}:                   {decodeDryRun, theSource, true},
	{DryRuns, SubresourceStatus, Create}:                 {decodeDryRunAnswer, theAgent, false},
}

// kindOf returns the kind of e, the zero kind if there is none.
func kindOf(e cloudevents.Event) kind {
	t, err := ParseEventType(e.Type())
	if err != nil {
		return kind{}
	}
	return kinds[t]
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
	if err := m.encode(&e); err != nil {
		return cloudevents.Event{}, err
	}
	return e, nil
}

// DecodeError is returned by Decode. It identifies the work if possible, so that an agent can
// report the failure in the work's status (docs/protocol.md, Refused specs).
type DecodeError struct {
	// Type is the event's `type` attribute.
	Type string
	// Spec is the spec without its Bundle if the event is a spec whose identity could be decoded,
	// otherwise nil.
	Spec *Spec
	// Question is the dry run without its Bundle if the event is one whose data is sealed, otherwise nil.
	Question *DryRun
	// Err is the cause. It does not contain the event's data.
	Err error
}

// Error returns the event's type, the work and the cause.
func (e *DecodeError) Error() string {
	if e.Spec != nil {
		return fmt.Sprintf("decode %s of work %s: %v", e.Type, e.Spec.UID, e.Err)
	}
	return fmt.Sprintf("decode event of type %q: %v", e.Type, e.Err)
}

// Unwrap returns the cause.
func (e *DecodeError) Unwrap() error { return e.Err }

// ErrUnknownDataType is wrapped by the errors of Decode for events that are not about works or
// agents. Such events must be ignored.
var ErrUnknownDataType = errors.New("not an event about works")

// Decode returns the message in e. Its errors are *[DecodeError]; those for events of other data
// types wrap [ErrUnknownDataType].
func Decode(e cloudevents.Event) (Message, error) {
	m, err := decode(e)
	if err == nil {
		return m, nil
	}
	var failed *DecodeError
	if !errors.As(err, &failed) {
		failed = &DecodeError{Type: e.Type(), Err: err}
	}
	return nil, failed
}

func decode(e cloudevents.Event) (Message, error) {
	t, err := ParseEventType(e.Type())
	if err != nil {
		return nil, err
	}
	x := extensions(e.Extensions())
	if err := checkTexts(e.Source(), x); err != nil {
		return nil, err
	}
	k, known := kinds[t]
	if !known {
		return nil, fmt.Errorf("data type %s: %w", t.Data, ErrUnknownDataType)
	}
	return k.decode(e, x, t.Action)
}
