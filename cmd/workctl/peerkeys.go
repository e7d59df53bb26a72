package main

import (
	"errors"
	"log/slog"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/spf13/pflag"

	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/security/sourcekeys"
	"github.com/workwire/workwire/pkg/wire"
)

// keyFlags are the flags of apply, delete and diff that name keys, as those of work-hub do.
type keyFlags struct{ sourcekeys.Flags }

func (f *keyFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.SigningKey, "signing-key", "", "file with the source's private key, for agents that demand signatures (default: nothing is signed)")
	fs.StringVar(&f.SealKeys, "seal-keys", "", "directory with a file CLUSTER.pub for each cluster that specs and dry runs are sealed to, so that the broker cannot read them; "+
		"needs --signing-key (default: nothing is sealed)")
	fs.StringSliceVar(&f.RequireSealing, "require-sealing", nil, "clusters that get nothing in clear, also without a file in --seal-keys, comma-separated; * for all (default: none)")
	fs.StringSliceVar(&f.TrustedAgents, "trusted-agents", nil, "YAML files with the keys that agents sign with, comma-separated: no other status or answer counts (default: all that the broker delivers count)")
	fs.DurationVar(&f.SignatureMaxAge, "signature-max-age", signing.DefaultMaxAge, "how old a signature of an agent may be, and how far ahead of the clock here; at least 1m, 0 for no limit; with --trusted-agents only")
}

// validate returns an error if flags contradict each other.
func (f *keyFlags) validate() error { return errors.Join(f.Validate()...) }

// open reads the keys.
func (f *keyFlags) open() (sourcekeys.Keys, error) { return f.Open(nil, slog.New(slog.DiscardHandler)) }

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
