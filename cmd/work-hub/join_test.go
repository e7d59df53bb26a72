package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/transport/config"
)

// TestJoinFlags: each fault of the flags for joining is named with its flag.
func TestJoinFlags(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*joinOptions)
		want   string
	}{
		"the defaults":           {func(*joinOptions) {}, ""},
		"another signer":         {func(o *joinOptions) { o.signerName = "clusterissuers.cert-manager.io/fleet" }, ""},
		"no domain":              {func(o *joinOptions) { o.signerName = "fleet" }, `--join-signer-name must be DOMAIN/NAME, got "fleet"`},
		"no name":                {func(o *joinOptions) { o.signerName = "cert-manager.io/" }, "--join-signer-name must be DOMAIN/NAME"},
		"two signers":            {func(o *joinOptions) { o.signerName, o.certFile, o.keyFile = "example.com/fleet", "ca.crt", "ca.key" }, "--join-signer-name is for another signer"},
		"a certificate alone":    {func(o *joinOptions) { o.certFile = "ca.crt" }, "belong together"},
		"a program alone":        {func(o *joinOptions) { o.signCommand = "sign" }, "belong together"},
		"two places of the key":  {func(o *joinOptions) { o.certFile, o.keyFile, o.signCommand = "ca.crt", "ca.key", "sign" }, "set one of them"},
		"no such certificate":    {func(o *joinOptions) { o.certFile, o.signCommand = "none.crt", "sign" }, "--join-authority-cert-file, --join-sign-command: open none.crt"},
		"certificates too short": {func(o *joinOptions) { o.validity = time.Second }, "--join-certificate-validity must be at least 1m"},
		"a negative time":        {func(o *joinOptions) { o.rejoin = -time.Second }, "--rejoin-within must not be negative"},
	} {
		o := newJoinOptions()
		o.enabled = true
		c.change(&o)
		err := errors.Join(o.validate(config.Config{}, "hub.yaml")...)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
