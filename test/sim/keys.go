package sim

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/wire"
)

// Files of a directory of keys. All agents share one.
const (
	hubKey, agentKey           = "hub.pem", "agent.pem"
	trustedHubs, trustedAgents = "trusted-keys.yaml", "trusted-agents.yaml"
)

// WriteKeys writes keys for a hub and as many clusters into dir, for [Options].
func WriteKeys(dir string, clusters int) error {
	var names []wire.ClusterName
	for i := range clusters {
		names = append(names, clusterName(i))
	}
	return errors.Join(
		writeKey(dir, hubKey, trustedHubs, signing.TrustedKey{Sources: []wire.SourceID{source}}),
		writeKey(dir, agentKey, trustedAgents, signing.TrustedKey{Clusters: names}))
}

func clusterName(i int) wire.ClusterName { return wire.ClusterName(fmt.Sprintf("cluster%d", i+1)) }

func writeKey(dir, file, trustedFile string, trusted signing.TrustedKey) error {
	key, err := signing.NewKey()
	if err != nil {
		return err
	}
	private, err := key.PEM()
	if err != nil {
		return err
	}
	trusted.PublicKey = key.Public()
	public, err := signing.FormatTrustedKeys(trusted)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, file), private, 0o600), os.WriteFile(filepath.Join(dir, trustedFile), public, 0o600))
}

func openHubKeys(dir string, logger *slog.Logger) (*signing.Signer, *signing.TrustedAgents, error) {
	signer, err := signing.NewSigner(signing.SignerConfig{KeyFile: filepath.Join(dir, hubKey), Logger: logger})
	if err != nil {
		return nil, nil, err
	}
	trusted, err := signing.OpenTrustedAgents(signing.TrustedAgentsConfig{Files: []string{filepath.Join(dir, trustedAgents)}, Logger: logger})
	return signer, trusted, err
}

func openAgentKeys(dir string, logger *slog.Logger) (*signing.Signer, *signing.TrustedKeys, error) {
	signer, err := signing.NewSigner(signing.SignerConfig{KeyFile: filepath.Join(dir, agentKey), Logger: logger})
	if err != nil {
		return nil, nil, err
	}
	trusted, err := signing.OpenTrustedKeys(signing.TrustedKeysConfig{File: filepath.Join(dir, trustedHubs), Logger: logger})
	return signer, trusted, err
}
