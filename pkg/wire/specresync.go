package wire

import (
	"errors"
	"fmt"
	"iter"
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
	// generation of 0 means that the agent does not hold the work.
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

// WorkVersion is the version of a work that a source has.
type WorkVersion struct {
	UID        types.UID
	Generation Generation
	Deleting   bool
}

// Answer returns what a source must send (docs/protocol.md, Spec resync): send contains the works
// to send, in the order of works; gone contains the works that the agent holds and the source does
// not have, to be answered with a deletion. works are all works of this source for the requesting
// cluster. It costs O(n) for n listed works and works.
func (r *SpecResync) Answer(works iter.Seq[WorkVersion]) (send []types.UID, gone []SpecVersion) {
	held := make(map[types.UID]Generation, len(r.Versions))
	for _, h := range r.Versions {
		held[h.UID] = h.Generation
	}
	known := make(map[types.UID]struct{}, len(r.Versions))
	for work := range works {
		known[work.UID] = struct{}{}
		have, holds := held[work.UID]
		if !holds || work.Deleting || work.Generation == 0 || work.Generation > have {
			send = append(send, work.UID)
		}
	}
	for _, h := range r.Versions {
		if _, ok := known[h.UID]; !ok {
			gone = append(gone, h)
		}
	}
	return send, gone
}

// Overrule returns the listed works that the source must send again as authoritative: those that
// the agent holds at a higher generation than own returns, and those that it holds at an equal
// generation with other content than hash returns. Entries without a hash and works for which own
// returns false are not among them. hash is called for equal generations only. It costs O(n) for n
// listed works.
func (r *SpecResync) Overrule(own func(types.UID) (Generation, bool), hash func(types.UID) string) (send []types.UID) {
	for _, h := range r.Versions {
		generation, ok := own(h.UID)
		if ok && h.ContentHash != "" && (h.Generation > generation || h.Generation == generation && h.ContentHash != hash(h.UID)) {
			send = append(send, h.UID)
		}
	}
	return send
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
