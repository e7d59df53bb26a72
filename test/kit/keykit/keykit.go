// Package keykit makes keys for tests of programs that sign.
//
//	keykit.Write(t, "signing.key", "trusted-keys.yaml", signing.TrustedKey{Sources: []wire.SourceID{"hub1"}})
package keykit

import (
	"os"
	"testing"

	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/test/kit"
)

// Write writes a new signing key to the file private, and the file public, which trusts it for what trusted names.
func Write(t testing.TB, private, public string, trusted signing.TrustedKey) {
	t.Helper()
	key, err := signing.NewKey()
	kit.NoError(t, err)
	data, err := key.PEM()
	kit.NoError(t, err)
	kit.NoError(t, os.WriteFile(private, data, 0o600))
	trusted.PublicKey = key.Public()
	data, err = signing.FormatTrustedKeys(trusted)
	kit.NoError(t, err)
	kit.NoError(t, os.WriteFile(public, data, 0o600))
}
