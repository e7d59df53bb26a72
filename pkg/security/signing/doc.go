// Package signing signs the events of a source and verifies their signatures (docs/protocol.md,
// Signatures), with Ed25519 keys from files:
//
//	signer, err := signing.NewSigner(signing.SignerConfig{KeyFile: "signing.key"})
//	err = signer.Sign(&event)
//	...
//	trusted, err := signing.OpenTrustedKeys(signing.TrustedKeysConfig{File: "trusted-keys.yaml"})
//	at, err := trusted.Verify(event, "hub1") // a *RefusedError says why not
//
// A valid signature says who made an event and when, not that it is new: age.go has the rules for that, which package
// trust of the agent and package delivery of sources remember the newest times for. Files are read again when they change, so that keys can be rotated.
package signing
