package sim

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/wire"
)

// Files of [Options].Keys. All agents share one key.
const (
	hubKey, agentKey           = "hub.pem", "agent.pem"
	trustedHubs, trustedAgents = "trusted-keys.yaml", "trusted-agents.yaml"
)

func clusterName(i int) wire.ClusterName { return wire.ClusterName(fmt.Sprintf("cluster%d", i+1)) }

func openHubKeys(dir string, logger *slog.Logger, now func() time.Time) (*signing.Signer, *signing.TrustedAgents, error) {
	signer, err := signing.NewSigner(signing.SignerConfig{KeyFile: filepath.Join(dir, hubKey), Now: now, Logger: logger})
	if err != nil {
		return nil, nil, err
	}
	trusted, err := signing.OpenTrustedAgents(signing.TrustedAgentsConfig{Files: []string{filepath.Join(dir, trustedAgents)}, Logger: logger})
	return signer, trusted, err
}

func openAgentKeys(dir string, logger *slog.Logger, now func() time.Time) (*signing.Signer, *signing.TrustedKeys, error) {
	signer, err := signing.NewSigner(signing.SignerConfig{KeyFile: filepath.Join(dir, agentKey), Now: now, Logger: logger})
	if err != nil {
		return nil, nil, err
	}
	trusted, err := signing.OpenTrustedKeys(signing.TrustedKeysConfig{File: filepath.Join(dir, trustedHubs), Logger: logger})
	return signer, trusted, err
}
