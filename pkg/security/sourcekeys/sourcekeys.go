// Package sourcekeys reads the keys of a source from the files that its flags name: those that it signs and seals with, and those of agents.
package sourcekeys

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/workwire/workwire/pkg/security/sealing"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/wire"
)

// Keys are those that events are signed and sealed with, and those of agents. The zero value does neither,
// and believes every event.
type Keys struct {
	// Sign signs events, for agents that demand it. Optional.
	Sign func(*cloudevents.Event) error
	// Seal seals specs and dry runs. Optional.
	Seal *sealing.Sealer
	// TrustedAgents are the keys that agents sign with: no other event of an agent counts. Optional.
	TrustedAgents *signing.TrustedAgents
	// SignatureMaxAge is how old a signature of an agent may be, and how far ahead; 0: no limit.
	SignatureMaxAge time.Duration
}

// Flags are the values of the flags that name keys.
type Flags struct {
	SigningKey      string        // --signing-key
	SealKeys        string        // --seal-keys
	RequireSealing  []string      // --require-sealing
	TrustedAgents   []string      // --trusted-agents
	SignatureMaxAge time.Duration // --signature-max-age
}

// Validate reports every contradiction between flags.
func (f *Flags) Validate() []error {
	var errs []error
	if f.SealKeys != "" && f.SigningKey == "" {
		errs = append(errs, errors.New("--seal-keys needs --signing-key: whoever can forge works can have a cluster tell what others hold"))
	}
	if f.SignatureMaxAge != 0 && f.SignatureMaxAge < time.Minute {
		errs = append(errs, fmt.Errorf("--signature-max-age must be at least 1m, or 0 for no limit, got %v", f.SignatureMaxAge))
	}
	if len(f.RequireSealing) > 0 && f.SealKeys == "" {
		errs = append(errs, errors.New("--require-sealing needs --seal-keys: the directory with the keys of the clusters"))
	}
	return errs
}

// Open reads the keys. registerer, which may be nil, gets the metrics of the seal keys, and logger the lines about files that have changed.
func (f *Flags) Open(registerer prometheus.Registerer, logger *slog.Logger) (k Keys, err error) {
	k.SignatureMaxAge = f.SignatureMaxAge
	if len(f.TrustedAgents) > 0 {
		if k.TrustedAgents, err = signing.OpenTrustedAgents(signing.TrustedAgentsConfig{Files: f.TrustedAgents, Logger: logger}); err != nil {
			return k, fmt.Errorf("--trusted-agents: %w", err)
		}
	}
	if f.SigningKey == "" {
		return k, nil
	}
	signer, err := signing.NewSigner(signing.SignerConfig{KeyFile: f.SigningKey, Logger: logger})
	if err != nil {
		return k, fmt.Errorf("--signing-key: %w", err)
	}
	k.Sign = signer.Sign
	if f.SealKeys == "" {
		return k, nil
	}
	c := sealing.SealerConfig{Dir: f.SealKeys, Secret: signer.Secret, Registerer: registerer, Logger: logger}
	for _, cluster := range f.RequireSealing {
		c.Required = append(c.Required, wire.ClusterName(cluster))
	}
	if k.Seal, err = sealing.NewSealer(c); err != nil {
		return k, fmt.Errorf("--seal-keys: %w", err)
	}
	return k, nil
}
