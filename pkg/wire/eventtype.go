package wire

import (
	"fmt"
	"strings"
)

// Names of the identities of the protocol. They are distinct types so that a
// source can not be passed where a cluster is meant.
type (
	// SourceID names a source (a hub, or a program that uses the SDK).
	SourceID string
	// ClusterName names a managed cluster, and the namespace of its works.
	ClusterName string
	// Generation is the generation of a work's spec. Zero means that the
	// source keeps no versions: such a spec always applies.
	Generation int64
)

// Subresource says which half of a work an event is about.
type Subresource string

// Action says what an event does.
type Action string

// Values of [Subresource] and [Action] (docs/protocol.md, Event types).
const (
	SubresourceSpec   Subresource = "spec"
	SubresourceStatus Subresource = "status"

	Create         Action = "create_request"
	Update         Action = "update_request"
	Delete         Action = "delete_request"
	ResyncRequest  Action = "resync_request"
	ResyncResponse Action = "resync_response"
)

// DataType identifies what an event carries: group, version and resource
// (docs/protocol.md, Event types).
type DataType struct {
	Group, Version, Resource string
}

// Agents is the data type of presence. It is not of OCM's protocol: its sources
// ignore such events.
var Agents = DataType{Group: "dev.workwire", Version: "v1alpha1", Resource: "agents"}

// ManifestBundles is the data type of works.
var ManifestBundles = DataType{
	Group:    "io.open-cluster-management.works",
	Version:  "v1alpha1",
	Resource: "manifestbundles",
}

// String gives group.version.resource.
func (t DataType) String() string {
	return t.Group + "." + t.Version + "." + t.Resource
}

// EventType is the `type` attribute of an event, taken apart
// (docs/protocol.md, Event types).
type EventType struct {
	Data        DataType
	Subresource Subresource
	Action      Action
}

// String gives the attribute as it stands on the wire.
func (t EventType) String() string {
	return t.Data.String() + "." + string(t.Subresource) + "." + string(t.Action)
}

// ParseEventType takes a `type` attribute apart, from the right: action,
// subresource, resource, version, and the rest is the group. It fails on fewer
// than five parts and on a subresource or an action that does not exist.
func ParseEventType(s string) (EventType, error) {
	parts := strings.Split(s, ".")
	n := len(parts)
	if n < 5 {
		return EventType{}, fmt.Errorf("event type %q: want <group>.<version>.<resource>.<subresource>.<action>", s)
	}
	t := EventType{
		Data: DataType{
			Group:    strings.Join(parts[:n-4], "."),
			Version:  parts[n-4],
			Resource: parts[n-3],
		},
		Subresource: Subresource(parts[n-2]),
		Action:      Action(parts[n-1]),
	}
	switch t.Subresource {
	case SubresourceSpec, SubresourceStatus:
	default:
		return EventType{}, fmt.Errorf("event type %q: unknown subresource %q", s, t.Subresource)
	}
	switch t.Action {
	case Create, Update, Delete, ResyncRequest, ResyncResponse:
	default:
		return EventType{}, fmt.Errorf("event type %q: unknown action %q", s, t.Action)
	}
	if t.Data.Group == "" || t.Data.Version == "" || t.Data.Resource == "" {
		return EventType{}, fmt.Errorf("event type %q: group, version and resource must not be empty", s)
	}
	return t, nil
}
