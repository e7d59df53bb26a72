package wire

import (
	"errors"
	"fmt"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/types"
)

// SpecResync requests the specs that the agent lacks, from one source or all (docs/protocol.md,
// Spec resync).
type SpecResync struct {
	// Agent is the client id of the requesting agent: the event's `source`; required.
	Agent string
	// Cluster is the requesting cluster; required.
	Cluster ClusterName
	// Source is the requested source; empty for all.
	Source SourceID
	// Versions lists the specs that the agent holds; empty requests everything.
	Versions []SpecVersion
	// Partial: Versions lists only what to answer. Works that it leaves out are not sent, and a
	// generation of 0 means that the agent does not hold the work, unless the entry is marked as Recorded.
	Partial bool
	// Accepts is what the agent can read.
	Accepts Accepts
	// Expires is when the broker may drop the request; zero: never.
	Expires time.Time
}

// SpecVersion is the version of a spec that an agent holds.
type SpecVersion struct {
	UID        types.UID  `json:"resourceID"`
	Generation Generation `json:"resourceVersion"`
	// ContentHash is that of the spec, empty if the source sent none.
	ContentHash string `json:"contentHash,omitempty"`
	// Probe marks a work that no source has, whose deletion is the answer to the request. Agents do
	// not report on it.
	Probe bool `json:"probe,omitempty"`
	// Recorded marks, in a partial request, a work that the agent holds without a spec: it knows the work from its
	// AppliedManifestWork alone.
	Recorded bool `json:"recorded,omitempty"`
}

type specResyncData struct {
	ResourceVersions []SpecVersion `json:"resourceVersions"`
	Partial          bool          `json:"partial,omitempty"`
}

func (r *SpecResync) eventType() (EventType, error) {
	if r.Agent == "" || r.Cluster == "" {
		return EventType{}, fmt.Errorf("spec resync request: agent and cluster are required")
	}
	if r.Partial && len(r.Versions) == 0 {
		return EventType{}, fmt.Errorf("spec resync request: a partial one must list a work")
	}
	return EventType{Data: ManifestBundles, Subresource: SubresourceSpec, Action: ResyncRequest}, nil
}

func (r *SpecResync) encode(e *cloudevents.Event) error {
	setSender(e, r.Agent, r.Cluster, r.Source)
	setText(e, extAccepts, r.Accepts.String())
	setExpiry(e, r.Expires)
	return setData(e, specResyncData{ResourceVersions: orEmpty(r.Versions), Partial: r.Partial})
}

func decodeSpecResync(e cloudevents.Event, x extensions, _ Action) (Message, error) {
	var data specResyncData
	if err := decodeData(e, &data, "list of resource versions"); err != nil {
		return nil, err
	}
	for i := range data.ResourceVersions {
		if err := checkVersion(i, data.ResourceVersions[i].UID, data.ResourceVersions[i].ContentHash); err != nil {
			return nil, err
		}
	}
	r := &SpecResync{
		Agent:    e.Source(),
		Cluster:  ClusterName(x.text(extClusterName)),
		Source:   SourceID(x.text(extOriginalSource)),
		Versions: data.ResourceVersions,
		Partial:  data.Partial,
		Accepts:  ParseAccepts(x.text(extAccepts)),
		Expires:  x.expiry(),
	}
	if r.Cluster == "" {
		return nil, errors.New("clustername is required")
	}
	if r.Partial && len(r.Versions) == 0 {
		return nil, errors.New("a partial list is empty")
	}
	return r, nil
}

// Split splits a partial request into requests whose data is at most limit bytes long, 0 for no
// limit. An entry that exceeds limit is returned in its own request.
func (r *SpecResync) Split(limit int) []*SpecResync {
	if limit <= 0 || !r.Partial {
		return []*SpecResync{r}
	}
	var parts []*SpecResync
	for _, versions := range splitList(r.Versions, limit-len(`{"resourceVersions":[],"partial":true}`)) {
		part := *r
		part.Versions = versions
		parts = append(parts, &part)
	}
	return parts
}
