package wire

import (
	"fmt"
	"slices"
	"strings"
)

// The identities of the protocol. They are distinct types so that a source cannot be passed as a
// cluster.
type (
	// SourceID is the id of a source (a hub, or a program that uses the SDK).
	SourceID string
	// ClusterName is the name of a managed cluster and of the namespace of its works.
	ClusterName string
	// Generation is the generation of a work's spec. Zero means that the source does not version
	// its works: such a spec always applies.
	Generation int64
)

// Subresource is the part of a work that an event is about.
type Subresource string

// Action is the action of an event.
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

// DataType is the type of an event's data: group, version and resource (docs/protocol.md, Event
// types).
type DataType struct {
	Group, Version, Resource string
}

// The data types of the protocol. Those of dev.workwire are not part of OCM's, whose sources and agents ignore such
// events.
var (
	// ManifestBundles is the data type of works: specs, statuses, and requests for them.
	ManifestBundles = DataType{Group: "io.open-cluster-management.works", Version: "v1alpha1", Resource: "manifestbundles"}
	// Deltas is the data type of specs and statuses as their difference from an earlier one.
	Deltas = DataType{Group: "dev.workwire", Version: "v1alpha1", Resource: "deltas"}
	// Digests is the data type of digests.
	Digests = DataType{Group: "dev.workwire", Version: "v1alpha1", Resource: "digests"}
	// Agents is the data type of presence.
	Agents = DataType{Group: "dev.workwire", Version: "v1alpha1", Resource: "agents"}
	// Sources is the data type of instances; only sources receive it.
	Sources = DataType{Group: "dev.workwire", Version: "v1alpha1", Resource: "sources"}
	// DryRuns is the data type of dry runs.
	DryRuns = DataType{Group: "dev.workwire", Version: "v1alpha1", Resource: "dryruns"}
)

// String returns group.version.resource.
func (t DataType) String() string {
	return t.Group + "." + t.Version + "." + t.Resource
}

// EventType is the parsed `type` attribute of an event (docs/protocol.md, Event types).
type EventType struct {
	Data        DataType
	Subresource Subresource
	Action      Action
}

// String returns the `type` attribute.
func (t EventType) String() string {
	return t.Data.String() + "." + string(t.Subresource) + "." + string(t.Action)
}

// ParseEventType parses a `type` attribute from the right: action, subresource, resource, version,
// and the rest is the group. It returns an error for fewer than five parts and for an unknown
// subresource or action.
func ParseEventType(s string) (EventType, error) {
	parts := strings.Split(s, ".")
	n := len(parts)
	if n < 5 {
		return EventType{}, fmt.Errorf("event type %q: want <group>.<version>.<resource>.<subresource>.<action>", s)
	}
	t := EventType{
		Data:        DataType{Group: strings.Join(parts[:n-4], "."), Version: parts[n-4], Resource: parts[n-3]},
		Subresource: Subresource(parts[n-2]),
		Action:      Action(parts[n-1]),
	}
	switch {
	case t.Subresource != SubresourceSpec && t.Subresource != SubresourceStatus:
		return EventType{}, fmt.Errorf("event type %q: unknown subresource %q", s, t.Subresource)
	case !slices.Contains([]Action{Create, Update, Delete, ResyncRequest, ResyncResponse}, t.Action):
		return EventType{}, fmt.Errorf("event type %q: unknown action %q", s, t.Action)
	case t.Data.Group == "" || t.Data.Version == "" || t.Data.Resource == "":
		return EventType{}, fmt.Errorf("event type %q: group, version and resource must not be empty", s)
	}
	return t, nil
}
