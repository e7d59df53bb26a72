package wire

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
)

// InstancesCluster stands for the cluster in the topic of instances (docs/protocol.md, Instances).
// No cluster can have this name.
const InstancesCluster ClusterName = "-"

// Limits of an [Instance].
const (
	MaxHeardInstances = 16
	maxProgramName    = 256 // bytes
)

// Instance tells the other programs that publish under the id of a source that this one does, too
// (docs/protocol.md, Instances).
type Instance struct {
	// Source is the source: the event's `source`; required.
	Source SourceID
	// ID is new for each start of the program: 1 to 64 characters a-z, 0-9 and -. Empty is a question:
	// every instance that receives it publishes its own.
	ID string
	// Program tells people which program it is, for example its host and process; at most 256 bytes.
	Program string
	// Since is when the program started; zero if it is not known.
	Since time.Time
	// Part names the clusters that the program serves, if others under the same source id serve the
	// rest; at most 256 bytes. Programs with different parts share no cluster. Empty: all clusters.
	// Other Go code calls it the shard.
	Part string
	// Heard are the ids of the other instances that this one hears, at most [MaxHeardInstances].
	Heard []string
	// Expires is when the broker may drop the event; zero: never.
	Expires time.Time
}

type instanceData struct {
	Instance string     `json:"instance,omitempty"`
	Program  string     `json:"program,omitempty"`
	Part     string     `json:"part,omitempty"`
	Since    *time.Time `json:"since,omitempty"`
	Heard    []string   `json:"heard,omitempty"`
}

func (i *Instance) eventType() (EventType, error) {
	if i.Source == "" {
		return EventType{}, errors.New("instance: source is required")
	}
	if err := i.validate(); err != nil {
		return EventType{}, fmt.Errorf("instance: %w", err)
	}
	return EventType{Data: Sources, Subresource: SubresourceSpec, Action: Update}, nil
}

func (i *Instance) validate() error {
	if len(i.Heard) > MaxHeardInstances {
		return fmt.Errorf("it lists %d instances: want at most %d", len(i.Heard), MaxHeardInstances)
	}
	if len(i.Program) > maxProgramName {
		return fmt.Errorf("its program has %d bytes: want at most %d", len(i.Program), maxProgramName)
	}
	if len(i.Part) > maxProgramName {
		return fmt.Errorf("its part has %d bytes: want at most %d", len(i.Part), maxProgramName)
	}
	for _, id := range append([]string{i.ID}, i.Heard...) {
		if id != "" && !sessionShape.MatchString(id) {
			return fmt.Errorf("id %.80q: want %s", id, sessionShape)
		}
	}
	return nil
}

func (i *Instance) encode(e *cloudevents.Event) error {
	setSender(e, string(i.Source), "", "")
	setExpiry(e, i.Expires)
	data := instanceData{Instance: i.ID, Program: i.Program, Part: i.Part, Heard: i.Heard}
	if !i.Since.IsZero() {
		data.Since = &i.Since
	}
	return setData(e, data)
}

func decodeInstance(e cloudevents.Event, x extensions, _ Action) (Message, error) {
	var data instanceData
	if err := decodeData(e, &data, "instance"); err != nil {
		return nil, err
	}
	i := &Instance{
		Source: SourceID(e.Source()), ID: data.Instance, Heard: slices.Clip(data.Heard), Expires: x.expiry(),
		Part: data.Part,
		Program: strings.Map(func(r rune) rune {
			if unicode.IsPrint(r) {
				return r
			}
			return ' ' // it is shown to people, on terminals and in logs
		}, data.Program),
	}
	if len(i.Heard) == 0 {
		i.Heard = nil
	}
	if data.Since != nil {
		i.Since = *data.Since
	}
	return i, i.validate()
}

// Instances returns the topic on which the programs of the source find each other, and false if
// topics.sourceEvents names a cluster.
func (s SourceTopics) Instances() (string, bool) {
	topic, err := s.Specs(InstancesCluster)
	return topic, err == nil
}
