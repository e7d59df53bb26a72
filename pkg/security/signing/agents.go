package signing

import (
	"cmp"
	"errors"
	"log/slog"
	"slices"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/workwire/workwire/pkg/security/keyfile"
	"github.com/workwire/workwire/pkg/wire"
)

// TrustedAgentsConfig configures [OpenTrustedAgents].
type TrustedAgentsConfig struct {
	// Files are files of trusted agents; at least one. A Kubernetes ConfigMap holds the keys of about
	// 7,000 clusters.
	Files []string
	// Logger; default slog.Default().
	Logger *slog.Logger
}

// TrustedAgents are the keys that agents sign their statuses and questions with, by cluster. It is safe for
// concurrent use.
type TrustedAgents struct {
	files []*keyfile.File[*agentKeys]
}

// agentKeys are the keys of a file.
type agentKeys struct {
	byID     map[string]TrustedKey
	clusters map[wire.ClusterName]struct{} // that have a key
}

// OpenTrustedAgents reads the files, and reads each again when it changes.
func OpenTrustedAgents(c TrustedAgentsConfig) (*TrustedAgents, error) {
	if len(c.Files) == 0 {
		return nil, errors.New("trusted agents: no file")
	}
	t := &TrustedAgents{}
	for _, path := range c.Files {
		file, err := keyfile.OpenList(path, "keys of trusted agents", newAgentKeys, cmp.Or(c.Logger, slog.Default()))
		if err != nil {
			return nil, err
		}
		t.files = append(t.files, file)
	}
	return t, nil
}

func newAgentKeys(data []byte) (*agentKeys, error) {
	byID, err := byID(ParseTrustedAgents)(data)
	keys := &agentKeys{byID: byID, clusters: make(map[wire.ClusterName]struct{}, len(byID))}
	for _, key := range byID {
		for _, cluster := range key.Clusters {
			keys.clusters[cluster] = struct{}{}
		}
	}
	return keys, err
}

// Verify returns when e, an event of an agent, was signed, by a key that is trusted for cluster, which is that of
// e and of its topic. Its error is a [*RefusedError].
func (t *TrustedAgents) Verify(e cloudevents.Event, cluster wire.ClusterName) (time.Time, error) {
	return verify(e, func(id string) (PublicKey, Reason) {
		now, reason := time.Now(), UnknownKey
		for _, file := range t.files {
			key, known := file.Get(now).byID[id]
			switch {
			case !known:
			case !slices.Contains(key.Clusters, cluster) || !wire.IsAbout(e, cluster):
				reason = WrongCluster
			default:
				return key.PublicKey, ""
			}
		}
		return PublicKey{}, reason
	})
}

// Knows reports whether a cluster has a key.
func (t *TrustedAgents) Knows(cluster wire.ClusterName) bool {
	now := time.Now()
	return slices.ContainsFunc(t.files, func(f *keyfile.File[*agentKeys]) bool {
		_, known := f.Get(now).clusters[cluster]
		return known
	})
}
