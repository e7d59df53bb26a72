package main

import (
	"fmt"
	"log/slog"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/spf13/pflag"

	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/direct"
	"github.com/workwire/workwire/pkg/security/sealing"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/wire"
)

// keyFlags are the flags of apply, delete and diff that name keys, as those of work-hub do.
type keyFlags struct {
	signingKey      string
	sealKeys        string
	requireSealing  []string
	trustedAgents   []string
	signatureMaxAge time.Duration
}

func (f *keyFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.signingKey, "signing-key", "", "file with the source's private key, for agents that demand signatures (default: nothing is signed)")
	fs.StringVar(&f.sealKeys, "seal-keys", "", "directory with a file CLUSTER.pub for each cluster that specs and dry runs are sealed to, so that the broker cannot read them; "+
		"needs --signing-key (default: nothing is sealed)")
	fs.StringSliceVar(&f.requireSealing, "require-sealing", nil, "clusters that get nothing in clear, also without a file in --seal-keys, comma-separated; * for all (default: none)")
	fs.StringSliceVar(&f.trustedAgents, "trusted-agents", nil, "YAML files with the keys that agents sign with, comma-separated: no other status or answer counts (default: all that the broker delivers count)")
	fs.DurationVar(&f.signatureMaxAge, "signature-max-age", signing.DefaultMaxAge, "how old a signature of an agent may be, and how far ahead of the clock here; at least 1m, 0 for no limit; with --trusted-agents only")
}

// validate returns an error if flags contradict each other.
func (f *keyFlags) validate() error {
	switch {
	case f.sealKeys != "" && f.signingKey == "":
		return cli.Usagef("--seal-keys needs --signing-key: whoever can forge works can have a cluster tell what others hold")
	case len(f.requireSealing) > 0 && f.sealKeys == "":
		return cli.Usagef("--require-sealing needs --seal-keys: the directory with the keys of the clusters")
	case f.signatureMaxAge != 0 && f.signatureMaxAge < time.Minute:
		return cli.Usagef("--signature-max-age must be at least 1m, or 0 for no limit, got %v", f.signatureMaxAge)
	}
	return nil
}

// open reads the keys.
func (f *keyFlags) open() (k direct.Keys, err error) {
	k.SignatureMaxAge = f.signatureMaxAge
	logger := slog.New(slog.DiscardHandler)
	if len(f.trustedAgents) > 0 {
		if k.TrustedAgents, err = signing.OpenTrustedAgents(signing.TrustedAgentsConfig{Files: f.trustedAgents, Logger: logger}); err != nil {
			return k, fmt.Errorf("--trusted-agents: %w", err)
		}
	}
	if f.signingKey == "" {
		return k, nil
	}
	signer, err := signing.NewSigner(signing.SignerConfig{KeyFile: f.signingKey, Logger: logger})
	if err != nil {
		return k, err
	}
	k.Sign = signer.Sign
	if f.sealKeys == "" {
		return k, nil
	}
	c := sealing.SealerConfig{Dir: f.sealKeys, Secret: signer.Secret, Logger: logger}
	for _, cluster := range f.requireSealing {
		c.Required = append(c.Required, wire.ClusterName(cluster))
	}
	if k.Seal, err = sealing.NewSealer(c); err != nil {
		return k, fmt.Errorf("--seal-keys: %w", err)
	}
	return k, nil
}

// signWith returns what signs events of a source, or of an agent, with the key in a file, nil if none is named.
func signWith(keyFile string) (func(*cloudevents.Event) error, error) {
	if keyFile == "" {
		return nil, nil
	}
	signer, err := signing.NewSigner(signing.SignerConfig{KeyFile: keyFile, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	return func(e *cloudevents.Event) error {
		if wire.IsSignableByAgent(*e) {
			return signer.SignStatus(e)
		}
		return signer.Sign(e)
	}, nil
}
