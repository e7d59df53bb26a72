package wire

import (
	"errors"
	"fmt"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
)

// DryRunAnswer is the agent's answer to a [DryRun].
type DryRunAnswer struct {
	// ID is that of the question; required.
	ID string
	// Agent is the client id of the agent: the event's `source`; required.
	Agent string
	// Cluster is the agent's; required.
	Cluster ClusterName
	// Source is who has asked: the event's `originalsource`.
	Source SourceID
	// Generation is that of the work that the agent holds under the name, 0 if it holds none.
	Generation Generation
	// Failure is why there is no answer; empty unless Objects is.
	Failure string
	// Objects are the objects of the spec, in its order, and those that the work would drop.
	Objects []DryRunObject
}

// DryRunResult is what would become of an object.
type DryRunResult string

// Values of [DryRunResult].
const (
	// DryRunCreated: the object would be created.
	DryRunCreated DryRunResult = "Created"
	// DryRunChanged: the object would be changed in these fields.
	DryRunChanged DryRunResult = "Changed"
	// DryRunRecreated: the object would be deleted and created again, for immutable fields.
	DryRunRecreated DryRunResult = "Recreated"
	// DryRunUnchanged: the object would stay as it is.
	DryRunUnchanged DryRunResult = "Unchanged"
	// DryRunReadOnly: the object is not written by its strategy.
	DryRunReadOnly DryRunResult = "ReadOnly"
	// DryRunRemoved: the work would drop the object, which would be deleted.
	DryRunRemoved DryRunResult = "Removed"
	// DryRunKept: the work would drop the object, which would stay: it does not belong to the work
	// alone.
	DryRunKept DryRunResult = "Kept"
	// DryRunDenied: rights are missing.
	DryRunDenied DryRunResult = "Denied"
	// DryRunConflict: other field managers own fields.
	DryRunConflict DryRunResult = "Conflict"
	// DryRunRefused: the API server, or one of its webhooks or policies, refuses the object.
	DryRunRefused DryRunResult = "Refused"
	// DryRunInvalid: the manifest cannot be applied by any API server, or not by this one.
	DryRunInvalid DryRunResult = "Invalid"
	// DryRunUnknown: a dry run cannot tell.
	DryRunUnknown DryRunResult = "Unknown"
)

// DryRunObject is what would become of one object.
type DryRunObject struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	// Resource is set instead of Kind where that is not known.
	Resource  string       `json:"resource,omitempty"`
	Namespace string       `json:"namespace,omitempty"`
	Name      string       `json:"name,omitempty"`
	Result    DryRunResult `json:"result"`
	// Message tells why, for people.
	Message string `json:"message,omitempty"`
	// Fields are those that would change, at most [MaxDryRunFields].
	Fields []DryRunField `json:"fields,omitempty"`
	// OmittedFields is how many more would change.
	OmittedFields int `json:"omittedFields,omitempty"`
	// Managers are the field managers of a conflict.
	Managers []string `json:"managers,omitempty"`
	// Warnings are those of the API server.
	Warnings []string `json:"warnings,omitempty"`
}

// DryRunField is a field that would change. From and To are JSON, cut if they are long, empty where
// the field does not exist. Values of Secrets are not told.
type DryRunField struct {
	Path string `json:"path"`
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// MaxDryRunFields is the maximum of [DryRunObject].Fields.
const MaxDryRunFields = 100

type dryRunAnswerData struct {
	Failure string         `json:"failure,omitempty"`
	Objects []DryRunObject `json:"objects,omitempty"`
}

func (a *DryRunAnswer) eventType() (EventType, error) {
	if err := a.validate(); err != nil {
		return EventType{}, fmt.Errorf("answer to a dry run: %w", err)
	}
	return EventType{Data: DryRuns, Subresource: SubresourceStatus, Action: Create}, nil
}

func (a *DryRunAnswer) validate() error {
	switch {
	case a.Agent == "" || a.Cluster == "":
		return errors.New("agent and cluster are required")
	case !sessionShape.MatchString(a.ID):
		return fmt.Errorf("id %.80q: want %s", a.ID, sessionShape)
	}
	for i := range a.Objects {
		if n := len(a.Objects[i].Fields); n > MaxDryRunFields {
			return fmt.Errorf("object %d has %d fields: want at most %d", i, n, MaxDryRunFields)
		}
	}
	return nil
}

func (a *DryRunAnswer) encode(e *cloudevents.Event) error {
	setSender(e, a.Agent, a.Cluster, a.Source)
	e.SetExtension(extResourceID, a.ID)
	e.SetExtension(extResourceVersion, fmt.Sprint(a.Generation))
	return setData(e, dryRunAnswerData{Failure: a.Failure, Objects: a.Objects})
}

func decodeDryRunAnswer(e cloudevents.Event, x extensions, _ Action) (Message, error) {
	var data dryRunAnswerData
	if err := decodeData(e, &data, "answer to a dry run"); err != nil {
		return nil, err
	}
	a := &DryRunAnswer{
		ID: x.text(extResourceID), Agent: e.Source(), Cluster: ClusterName(x.text(extClusterName)), Source: SourceID(x.text(extOriginalSource)),
		Failure: data.Failure, Objects: data.Objects,
	}
	var err error
	if a.Generation, err = x.generation(); err != nil {
		return nil, err
	}
	return a, a.validate()
}
