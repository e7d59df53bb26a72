package reconcile

import (
	"github.com/workwire/workwire/pkg/agent/internal/applied"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// naming maps works to AppliedManifestWorks and back.
type naming struct {
	brokerHost string
	topics     wire.AgentTopics
}

// hubHash returns the hash that stands for source in the names of AppliedManifestWorks.
func (n naming) hubHash(source wire.SourceID) string {
	if _, one := n.topics.Source(); one {
		source = ""
	}
	return applied.HubHash(n.brokerHost, source)
}

// name returns the name of a work's AppliedManifestWork. It may be invalid.
func (n naming) name(source wire.SourceID, work string) string {
	return n.hubHash(source) + "-" + work
}

// AppliedName returns the function that names the AppliedManifestWork of a source's work, for an agent
// with these topics. A name may be invalid.
func AppliedName(brokerHost string, topics wire.AgentTopics) func(source wire.SourceID, work string) string {
	return naming{brokerHost: brokerHost, topics: topics}.name
}

// source returns the source of the work behind an AppliedManifestWork: the one that the topics
// name, or the one of its label. It is empty if neither tells.
func (n naming) source(amw *workv1.AppliedManifestWork) wire.SourceID {
	if source, one := n.topics.Source(); one {
		return source
	}
	return wire.SourceID(amw.Labels[workv1.OriginalSourceLabelKey])
}
