package session

import (
	"context"
	"errors"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/workwire/workwire/pkg/wire"
)

// open returns the message in e, whose spec or dry run is sealed. failure is what Decode has returned; the
// error is one of the same work or question.
func (s *Session) open(e cloudevents.Event, failure error) (wire.Message, error) {
	opened, err := s.config.Unseal.Open(e)
	if err != nil {
		if closed, ok := errors.AsType[*wire.DecodeError](failure); ok {
			err = &wire.DecodeError{Type: closed.Type, Spec: closed.Spec, Question: closed.Question, Err: err}
		}
		return nil, err
	}
	message, err := wire.Decode(opened)
	switch message := message.(type) {
	case *wire.Spec:
		message.Sealed = true
	case *wire.DryRun:
		message.Sealed = true
	}
	return message, err
}

// closed returns message, unless its source must seal and it has a spec, or a dry run of one, in clear: then
// it returns the error of what could not be opened.
func (s *Session) closed(e cloudevents.Event, source wire.SourceID, message wire.Message) (wire.Message, error) {
	failure := &wire.DecodeError{Type: e.Type()}
	switch m := message.(type) {
	case *wire.Spec:
		if m.Sealed || m.IsDeletion() {
			return message, nil
		}
		inClear := *m
		inClear.Bundle, failure.Spec = nil, &inClear
	case *wire.SpecDelta: // never sealed
		failure.Spec = &m.Of
	case *wire.DryRun:
		if m.Sealed {
			return message, nil
		}
		failure.Question = m
	default:
		return message, nil
	}
	if failure.Err = s.config.Unseal.Demand(source); failure.Err == nil {
		return message, nil
	}
	return nil, failure
}

// runUnseal asks again for the specs that could not be opened, once the keys are others, until ctx
// ends.
func (s *Session) runUnseal(ctx context.Context) error {
	if s.config.Unseal == nil {
		return nil
	}
	ticker := time.NewTicker(s.config.RetryInterval)
	defer ticker.Stop()
	for changes := s.config.Unseal.Changes(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now := s.config.Unseal.Changes()
		if now == changes {
			continue
		}
		changes = now
		for _, source := range s.config.Inbox.Closed() {
			s.Ask(source)
		}
	}
}

// specIn returns the spec that an event is about, also if its data could not be decoded; nil if the
// event names none.
func specIn(message wire.Message, err error) *wire.Spec {
	switch message := message.(type) {
	case *wire.Spec:
		return message
	case *wire.SpecDelta:
		return &message.Of
	}
	if failure, ok := errors.AsType[*wire.DecodeError](err); ok {
		return failure.Spec
	}
	return nil
}
