package tail

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/runtime/redaction"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
)

// Payload is how much of the payloads is shown.
type Payload int

// NoPayload shows size and digest, RedactedPayload all but the values of Secrets, and FullPayload all.
const (
	NoPayload Payload = iota
	RedactedPayload
	FullPayload
)

// Kinds are the kinds of events. An event that is none of them is "other", one that cannot be decoded
// "invalid".
var Kinds = []string{"spec", "deletion", "status", "spec-resync", "status-resync", "presence", "digest", "instance", "dry-run", "dry-run-answer", "other", "invalid"}

// Event is an event on the wire.
type Event struct {
	// Received is when it arrived here, Sent when its sender made it, by the sender's clock.
	Received time.Time `json:"received"`
	Sent     time.Time `json:"sent,omitzero"`
	Topic    string    `json:"topic"`
	// Kind is one of [Kinds].
	Kind    string `json:"kind"`
	Type    string `json:"type,omitempty"`
	Source  string `json:"source,omitempty"`
	Cluster string `json:"cluster,omitempty"`
	// Work is the name of the work, if the event has it.
	Work       string `json:"work,omitempty"`
	UID        string `json:"uid,omitempty"`
	Generation int64  `json:"generation,omitempty"`
	Signed     bool   `json:"signed,omitempty"`
	// Size is that of the packet in bytes.
	Size int `json:"size"`
	// Digest is the beginning of the SHA-256 of the payload, in hex.
	Digest string `json:"digest,omitempty"`
	// Summary is what the event says, in a few words.
	Summary string `json:"summary,omitempty"`
	// Data is the payload, if it is asked for.
	Data json.RawMessage `json:"data,omitempty"`
}

// Decode returns the event in a message that arrived at a time. It never fails: what is no event of
// the protocol is shown as such.
func Decode(m mqtt.Received, at time.Time, payload Payload) Event {
	e := Event{Received: at, Topic: m.Topic, Kind: "invalid", Size: m.Size}
	source, cluster, _ := wire.TopicSender(m.Topic)
	e.Source, e.Cluster = string(source), string(cluster)
	if m.Err != nil {
		e.Summary = m.Err.Error()
		return e
	}
	e.Sent, e.Type = m.Event.Time(), m.Event.Type()
	_, e.Signed = m.Event.Extensions()["signature"]
	if data := m.Event.Data(); len(data) > 0 {
		sum := sha256.Sum256(data)
		e.Digest = hex.EncodeToString(sum[:8])
		if plain, err := wire.PlainData(m.Event); err == nil {
			data = plain
		}
		switch payload {
		case RedactedPayload:
			e.Data = redact(data)
		case FullPayload:
			e.Data = asJSON(data)
		}
	}
	message, err := wire.Decode(m.Event)
	var failed *wire.DecodeError
	if errors.Is(err, wire.ErrSealed) && errors.As(err, &failed) && failed.Spec != nil {
		message, err = failed.Spec, nil
	}
	if err != nil {
		if e.Summary = err.Error(); errors.Is(err, wire.ErrUnknownDataType) {
			e.Kind = "other"
		}
		return e
	}
	e.describe(message)
	return e
}

// describe sets what a message says.
func (e *Event) describe(message wire.Message) {
	switch m := message.(type) {
	case *wire.Spec:
		e.Kind, e.Work, e.UID, e.Generation = "spec", m.Meta.Name, string(m.UID), int64(m.Generation)
		if m.IsDeletion() {
			e.Kind, e.Summary = "deletion", "deletes the work"
			break
		}
		if m.Bundle == nil {
			e.Summary = fmt.Sprintf("%s, sealed: only the agent can read it", m.Action)
			break
		}
		e.Summary = fmt.Sprintf("%s, %s", m.Action, cli.Plural(len(m.Bundle.Manifests), "manifest", "manifests"))
	case *wire.SpecDelta:
		e.Kind, e.Work, e.UID, e.Generation = "spec", m.Of.Meta.Name, string(m.Of.UID), int64(m.Of.Generation)
		e.Summary = cli.Plural(m.NewBytes(), "byte is", "bytes are") + " new since the spec before"
	case *wire.Status:
		e.Kind, e.Work, e.UID, e.Generation = "status", m.Meta.Name, string(m.UID), int64(m.Generation)
		var conditions []string
		for _, c := range m.Status.Conditions {
			text := c.Type + "=" + string(c.Status)
			if c.Status != metav1.ConditionTrue {
				text += " " + c.Reason
			}
			conditions = append(conditions, text)
		}
		e.Summary = strings.Join(conditions, ", ")
	case *wire.StatusDelta:
		e.Kind, e.Work, e.UID, e.Generation = "status", m.Of.Meta.Name, string(m.Of.UID), int64(m.Of.Generation)
		e.Summary = cli.Plural(m.NewBytes(), "byte is", "bytes are") + " new since the status before"
	case *wire.SpecResync:
		e.Kind, e.Summary = "spec-resync", fmt.Sprintf("asks for specs, lists %d", len(m.Versions))
	case *wire.StatusResync:
		e.Kind, e.Summary = "status-resync", fmt.Sprintf("asks for statuses, lists %d", len(m.Hashes))
	case *wire.Presence:
		e.Kind, e.Summary = "presence", "the agent has disconnected"
		if m.Present {
			e.Summary = "the agent is connected"
		}
	case *wire.Instance:
		e.Kind, e.Summary = "instance", "asks which programs publish for this source"
		if m.ID != "" {
			e.Summary = "a program publishes for this source: " + m.Program
		}
	case *wire.DryRun:
		e.Kind, e.Work, e.Summary = "dry-run", m.Work, fmt.Sprintf("asks what %s would change", cli.Plural(len(m.Bundle.Manifests), "manifest", "manifests"))
	case *wire.DryRunAnswer:
		e.Kind, e.Generation, e.Summary = "dry-run-answer", int64(m.Generation), "tells of "+cli.Plural(len(m.Objects), "object", "objects")
		if m.Failure != "" {
			e.Summary = m.Failure
		}
	case *wire.Digest:
		e.Kind, e.Summary = "digest", "digests in "+cli.Plural(len(m.Buckets), "bucket", "buckets")
	}
}

// asJSON returns data if it is JSON, else as a JSON string.
func asJSON(data []byte) json.RawMessage {
	if json.Valid(data) {
		return data
	}
	text, _ := json.Marshal(string(data)) // a string has no error
	return text
}

// redact returns the payload with the length of each value of a Secret in its place.
func redact(data []byte) json.RawMessage {
	text, err := redaction.HideSecrets(data, func(value any) string {
		text, isText := value.(string)
		if !isText {
			return "(redacted)"
		}
		return "(" + cli.Plural(len(text), "character", "characters") + ")"
	})
	if err != nil {
		return json.RawMessage(`"(not JSON)"`)
	}
	return text
}
