package wire

import (
	"errors"
	"fmt"
	"unicode/utf8"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// Status is a work's status, sent by an agent to the work's source (docs/protocol.md, Statuses).
type Status struct {
	// UID identifies the work; required.
	UID types.UID
	// Generation is that of the spec that the status is about.
	Generation Generation
	// Source is the source of the work: the `originalsource` extension.
	Source SourceID
	// Cluster is the reporting cluster; required.
	Cluster ClusterName
	// Agent is the client id of the reporting agent: the event's `source`.
	Agent string
	// Action is Create, Update or ResyncResponse.
	Action Action
	// Meta is the metadata of the work that the agent holds.
	Meta metav1.ObjectMeta
	// Sequence orders the statuses of one agent; 0 if the event has none.
	Sequence SequenceID
	// Session identifies the connection that the agent sent the status on, like that of a
	// [Presence]. At most 64 characters a-z, 0-9 and -; empty if the event has none.
	Session string
	// Hash is the [StatusHash] of Status. Encode computes it if it is empty.
	Hash string
	// Status is the work's status.
	Status workv1.ManifestWorkStatus
	// Trace is the `logtracing` extension of the spec.
	Trace string
	// Times are those of the spec on the cluster.
	Times Times
	// Accepts is what the agent can read.
	Accepts Accepts
}

// Times says when the spec that a status is about got how far, by the agent's clock. A zero time is
// not known, or not reached.
type Times struct {
	// Received is when the agent received the spec.
	Received metav1.MicroTime
	// Applied is when the agent had first applied all of its manifests.
	Applied metav1.MicroTime
	// Ready is when its objects last became ready; zero while they are not.
	Ready metav1.MicroTime
}

// statusData is the data of a status event (docs/protocol.md, Data). What the hash of a status and deltas of one cover is
// in hash.go: a field of a status belongs in both.
type statusData struct {
	Conditions     []metav1.Condition         `json:"conditions,omitempty"`
	ResourceStatus []workv1.ManifestCondition `json:"resourceStatus,omitempty"`
}

func (s *Status) eventType() (EventType, error) {
	if s.UID == "" || s.Agent == "" || s.Cluster == "" {
		return EventType{}, fmt.Errorf("status of work %q: uid, agent and cluster are required", s.UID)
	}
	if s.Session != "" && !sessionShape.MatchString(s.Session) {
		return EventType{}, fmt.Errorf("status of work %q: session %.80q: want %s", s.UID, s.Session, sessionShape)
	}
	switch s.Action {
	case Create, Update, ResyncResponse:
		return EventType{Data: ManifestBundles, Subresource: SubresourceStatus, Action: s.Action}, nil
	default:
		return EventType{}, fmt.Errorf("status of work %q: action %q is not one of a status", s.UID, s.Action)
	}
}

func (s *Status) encode(e *cloudevents.Event) error {
	hash := s.Hash
	if hash == "" {
		var err error
		if hash, err = StatusHash(&s.Status); err != nil {
			return err
		}
	}
	if err := s.encodeExtensions(e, hash); err != nil {
		return err
	}
	return setData(e, statusData{Conditions: s.Status.Conditions, ResourceStatus: s.Status.ResourceStatus.Manifests})
}

// encodeExtensions sets the attributes and extensions of a status with this hash.
func (s *Status) encodeExtensions(e *cloudevents.Event, hash string) error {
	setSender(e, s.Agent, s.Cluster, s.Source)
	setWork(e, s.UID, s.Generation, s.Trace)
	if s.Sequence != 0 {
		e.SetExtension(extSequenceID, s.Sequence.String())
	}
	setText(e, extSession, s.Session)
	setText(e, extAccepts, s.Accepts.String())
	setMicroTime(e, extReceivedTime, s.Times.Received)
	setMicroTime(e, extAppliedTime, s.Times.Applied)
	setMicroTime(e, extReadyTime, s.Times.Ready)
	e.SetExtension(extStatusHash, hash)
	return setMetadata(e, &s.Meta)
}

func decodeStatus(e cloudevents.Event, x extensions, action Action) (Message, error) {
	if action == Delete {
		return nil, errors.New("a status can not be deleted")
	}
	s := &Status{Action: action}
	if err := s.decodeExtensions(e, x); err != nil {
		return nil, err
	}
	var data statusData
	if len(e.Data()) > 0 {
		if err := decodeData(e, &data, "status"); err != nil {
			return nil, err
		}
	}
	s.Status = workv1.ManifestWorkStatus{
		Conditions:     data.Conditions,
		ResourceStatus: workv1.ManifestResourceStatus{Manifests: data.ResourceStatus},
	}
	return s, checkStatus(&s.Status)
}

// decodeExtensions sets s from the attributes and extensions of e, except its Action and Status.
func (s *Status) decodeExtensions(e cloudevents.Event, x extensions) error {
	s.UID = types.UID(x.text(extResourceID))
	s.Source = SourceID(x.text(extOriginalSource))
	s.Cluster = ClusterName(x.text(extClusterName))
	s.Agent = e.Source()
	s.Hash = x.text(extStatusHash)
	s.Trace = x.trace()
	if s.UID == "" || s.Cluster == "" {
		return errors.New("resourceid and clustername are required")
	}
	var err error
	if s.Generation, err = x.generation(); err != nil {
		return err
	}
	if text := x.text(extSequenceID); text != "" {
		if s.Sequence, err = ParseSequenceID(text); err != nil {
			return err
		}
	}
	s.Accepts = ParseAccepts(x.text(extAccepts))
	if s.Session, err = x.shaped(extSession, sessionShape); err != nil {
		return err
	}
	s.Times = Times{Received: x.microTime(extReceivedTime), Applied: x.microTime(extAppliedTime), Ready: x.microTime(extReadyTime)}
	s.Meta = metav1.ObjectMeta{Name: string(s.UID), Namespace: string(s.Cluster), UID: s.UID}
	if _, err := x.metadata(&s.Meta); err != nil {
		return err
	}
	s.Meta.UID = s.UID
	return nil
}

// checkStatus returns an error if a condition in a status is not what the API takes.
func checkStatus(status *workv1.ManifestWorkStatus) error {
	if err := checkConditions(status.Conditions); err != nil {
		return err
	}
	for i := range status.ResourceStatus.Manifests {
		if err := checkConditions(status.ResourceStatus.Manifests[i].Conditions); err != nil {
			return fmt.Errorf("manifest %d: %w", i, err)
		}
	}
	return nil
}

// checkConditions returns an error if a text of a condition is longer than the API takes, or its time is none of JSON.
func checkConditions(conditions []metav1.Condition) error {
	for i := range conditions {
		c := &conditions[i]
		for _, text := range [...]struct {
			what, text string
			max        int
		}{{"type", c.Type, maxConditionType}, {"reason", c.Reason, maxConditionReason}, {"message", c.Message, maxConditionMessage}} {
			if len(text.text) > text.max && utf8.RuneCountInString(text.text) > text.max {
				return fmt.Errorf("condition %d: %w", i, tooLong(text.what, text.text, text.max))
			}
		}
		if len(c.Status) > maxHash {
			return fmt.Errorf("condition %d: %w", i, tooLong("status", string(c.Status), maxHash))
		}
		if !isJSONTime(c.LastTransitionTime.Time) {
			return fmt.Errorf("condition %d: lastTransitionTime: %w", i, errYear)
		}
	}
	return nil
}
